/** Client of Millrace, a durable work queue with transactions. */
export { Batch, type BatchCancelOptions, type BatchCounts, type BatchInfo, type BatchOptions } from "./batch.js";
export {
	Bulk,
	type BulkAction,
	type BulkCount,
	type BulkInfo,
	type BulkOptions,
	type BulkSettings,
	type RedriveOptions,
	type TaskFilter,
} from "./bulk.js";
export { Client, type ClientOptions } from "./client.js";
export type { Codec } from "./content.js";
export type { Logger } from "./core/hub.js";
export { newId } from "./core/place.js";
export type { Method, TlsOptions } from "./core/transport.js";
export type { Transport } from "./core/ways.js";
export {
	type CatchUp,
	Cron,
	type CronChange,
	type CronInfo,
	type CronOptions,
	type CronPreview,
	type CronRun,
	type Overlap,
} from "./cron.js";
export {
	BatchError,
	type Code,
	Fatal,
	MillraceError,
	type Outcome,
	outcomeOf,
	Release,
	RetryIn,
	Snooze,
	type Span,
	TaskError,
} from "./errors.js";
export { Cancelled, LeaseLost, Stopped } from "./handler.js";
export type { Dependency, TaskInfo } from "./info.js";
export {
	type AddOptions,
	type Binding,
	type CallOptions,
	type FollowUp,
	type Handle,
	type Job,
	type JobOptions,
	job,
	type RetryPolicy,
	type TaskRef,
	type TemplateOptions,
} from "./job.js";
export { type KeyWriter, KV, Value } from "./kv.js";
export { Limiter, type LimiterInfo, type LimiterSettings } from "./limiter.js";
export { methods } from "./methods.js";
export {
	type KeyLimits,
	Queue,
	type QueueCeilings,
	type QueueChanges,
	type QueueConfig,
	type QueueKey,
	type QueuePaused,
	type QueueSettings,
	type QueueStats,
	type QueuesQuery,
	type Rate,
} from "./queue.js";
export type { Schema } from "./schema.js";
export { Task } from "./task.js";
export {
	Changes,
	type Committed,
	type Condition,
	type KeyRange,
	type PauseOptions,
	type Point,
	Tx,
	type TxKV,
} from "./tx.js";
export * from "./webhook.js";
export { type Settlement, Worker, type WorkerOptions } from "./worker.js";
