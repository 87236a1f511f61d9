// Jobs of the server that do one thing to many tasks.
import type { Client } from "./client.js";
import { newId } from "./core/place.js";
import { invalid } from "./errors.js";
import { BulkJobAction, BulkJobState, StartBulkRequest, type BulkJob as WireJob } from "./gen/millrace/v1/bulk.js";
import { State } from "./gen/millrace/v1/task.js";
import { type TaskInfo, taskInfo } from "./info.js";
import type { CallOptions } from "./job.js";
import { methods } from "./methods.js";
import { fromTimestamp, toTimestamp } from "./time.js";

/** What a bulk job does to each of its tasks. */
export type BulkAction = "cancel" | "retry" | "delete" | "prioritize";

/** Which tasks a bulk job is about: those that have all of it. None of it: all that the action is about. */
export interface TaskFilter {
	queue?: string;
	/** One that the action is about. Default: all of these. */
	state?: string;
	kind?: string;
	/** That runs them, or completed them. */
	worker?: string;
	/** The unique key that they were added under. */
	unique?: string;
	labels?: Record<string, string>;
	/** Then or later. */
	createdFrom?: Date;
	/** Before. */
	createdTo?: Date;
	/** Of their last error. */
	fingerprint?: string;
	/** Id of the batch that they were added to. */
	batch?: string;
}

/** How a bulk job is run. */
export interface BulkSettings extends CallOptions {
	/** Made with newId: makes the start repeatable over processes. */
	id?: string;
	/** Tasks a second in each partition, 1 to 1,000,000. Default: 1,000. */
	rate?: number;
	/** At most 256 B. */
	reason?: string;
	/** With cancel: running tasks are taken from their workers at once. */
	force?: boolean;
	/** With prioritize: 0 to 9. */
	priority?: number;
	/** With retry: the queue that the tasks move to, as the same tasks. */
	toQueue?: string;
	/** With retry: a merge patch (RFC 7396) of each payload. */
	patch?: Record<string, unknown>;
}

export type BulkOptions = TaskFilter & BulkSettings;

/** Which dead tasks of a queue are retried, and how. */
export type RedriveOptions = Omit<TaskFilter, "queue" | "state"> & BulkSettings;

/** How far a bulk job is. */
export interface BulkInfo {
	id: string;
	action: BulkAction | "unknown";
	/** Stopped: it was stopped, or its queue was removed. */
	state: "running" | "done" | "stopped" | "unknown";
	rate: number;
	reason: string;
	/** Name of the token. */
	by: string;
	startedAt: Date | undefined;
	endedAt: Date | undefined;
	/** Tasks that were found before the start. */
	matched: number;
	/** matched is all of them, and not a part. */
	exact: boolean;
	/** Tasks that the action was done to. */
	done: number;
	/** Tasks that refused it, by the code; CHANGED: they were in another state by then. */
	refused: Record<string, number>;
	/** When it will be done, at the pace so far. */
	eta: Date | undefined;
}

/** What a bulk job would find. */
export interface BulkCount {
	count: number;
	/** All were looked at; else there may be more. */
	exact: boolean;
	/** Creations of those that were looked at. */
	oldest: Date | undefined;
	newest: Date | undefined;
	/** The first ones, at most 10. */
	sample: TaskInfo[];
}

const actions: Record<BulkAction, BulkJobAction> = {
	cancel: BulkJobAction.CANCEL,
	retry: BulkJobAction.RETRY,
	delete: BulkJobAction.DELETE,
	prioritize: BulkJobAction.PRIORITIZE,
};
const states = {
	running: BulkJobState.RUNNING,
	done: BulkJobState.DONE,
	stopped: BulkJobState.STOPPED,
};

const nameOf = <Name extends string, V>(of: Record<Name, V>, v: V): Name | "unknown" =>
	(Object.keys(of) as Name[]).find((name) => of[name] === v) ?? "unknown";

function infoOf(j: WireJob): BulkInfo {
	const refused: Record<string, number> = {};
	for (const r of j.refused) refused[r.code] = (refused[r.code] ?? 0) + Number(r.count);
	return {
		id: j.id,
		action: nameOf(actions, j.action),
		state: nameOf(states, j.state),
		rate: j.rate,
		reason: j.reason,
		by: j.by,
		startedAt: fromTimestamp(j.startedAt),
		endedAt: fromTimestamp(j.endedAt),
		matched: Number(j.matched),
		exact: j.exact,
		done: Number(j.done),
		refused,
		eta: fromTimestamp(j.eta),
	};
}

function requestOf(action: BulkAction, o: BulkOptions): StartBulkRequest {
	if (!Object.hasOwn(actions, action)) throw invalid("action", "must be cancel, retry, delete or prioritize");
	const state = o.state === undefined ? State.STATE_UNSPECIFIED : State[o.state.toUpperCase() as keyof typeof State];
	if (state === undefined) throw invalid("filter.state", "must be a state of tasks");
	return StartBulkRequest.fromPartial({
		id: o.id ?? newId(),
		action: actions[action],
		filter: {
			queue: o.queue ?? "",
			state,
			kind: o.kind ?? "",
			worker: o.worker ?? "",
			unique: o.unique ?? "",
			labels: o.labels ?? {},
			from: o.createdFrom && toTimestamp(o.createdFrom),
			to: o.createdTo && toTimestamp(o.createdTo),
			fingerprint: o.fingerprint ?? "",
			batch: o.batch ?? "",
		},
		priority: o.priority ?? 0,
		force: o.force ?? false,
		rate: o.rate ?? 0,
		reason: o.reason ?? "",
		toQueue: o.toQueue ?? "",
		patch: o.patch === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(o.patch)),
	});
}

/** Begins a job. */
export async function startBulk(client: Client, action: BulkAction, o: BulkOptions): Promise<BulkInfo> {
	return infoOf((await client.engine.call(methods.startBulk, requestOf(action, o), o)).job!);
}

/** Counts what a job would find. */
export async function countBulk(client: Client, action: BulkAction, o: BulkOptions): Promise<BulkCount> {
	const request = { ...requestOf(action, o), dryRun: true };
	const f = (await client.engine.call(methods.startBulk, request, o)).found!;
	return {
		count: Number(f.count),
		exact: f.exact,
		oldest: fromTimestamp(f.oldest),
		newest: fromTimestamp(f.newest),
		sample: f.sample.map(taskInfo),
	};
}

/** Lists jobs. */
export async function bulks(client: Client, o: CallOptions): Promise<BulkInfo[]> {
	return (await client.engine.call(methods.listBulk, { stale: false }, o)).jobs.map(infoOf);
}

/** A bulk job, by its id. One that is not there, or ended more than a day ago, is NOT_FOUND. */
export class Bulk {
	readonly id: string;
	readonly #client: Client;

	/** @internal */
	constructor(client: Client, id: string) {
		this.#client = client;
		this.id = id;
	}

	/** Reads how far it is. */
	async get(o: CallOptions = {}): Promise<BulkInfo> {
		return infoOf((await this.#client.engine.call(methods.getBulk, { id: this.id, stale: false }, o)).job!);
	}

	/** Ends it before its end. Returns whether it had ended. What it did stays. */
	async stop(o: CallOptions = {}): Promise<boolean> {
		return (await this.#client.engine.call(methods.cancelBulk, { id: this.id }, o)).replayed;
	}
}
