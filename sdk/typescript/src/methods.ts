// The unary methods that this package calls.
import { keeping } from "./core/kept.js";
import type { Codec, Method } from "./core/transport.js";
import * as batch from "./gen/millrace/v1/batch.js";
import * as bulk from "./gen/millrace/v1/bulk.js";
import * as cron from "./gen/millrace/v1/cron.js";
import * as kv from "./gen/millrace/v1/kv.js";
import * as limiter from "./gen/millrace/v1/limiter.js";
import * as stream from "./gen/millrace/v1/stream.js";
import * as task from "./gen/millrace/v1/task.js";

const method = <Req, Res>(path: string, request: Codec<Req>, response: Codec<Res>): Method<Req, Res> => ({
	path: `/millrace.v1.${path}`,
	request,
	response,
});

export const methods = {
	status: method("ServerService/Status", stream.StatusRequest, stream.StatusResponse),
	getTask: method("TaskService/Get", task.GetRequest, task.GetResponse),
	cancel: method("TaskService/Cancel", task.CancelRequest, task.CancelResponse),
	retry: method("TaskService/Retry", task.RetryRequest, task.RetryResponse),
	report: method("TaskService/Report", task.ReportRequest, task.ReportResponse),
	logs: method("TaskService/Logs", task.LogsRequest, task.LogsResponse),
	list: method("TaskService/List", task.ListRequest, task.ListResponse),
	queueStats: method("QueueService/Stats", task.QueueStatsRequest, task.QueueStatsResponse),
	pauseQueue: method("QueueService/Pause", task.PauseQueueRequest, task.PauseQueueResponse),
	resumeQueue: method("QueueService/Resume", task.ResumeQueueRequest, task.ResumeQueueResponse),
	listQueues: method("QueueService/List", task.ListQueuesRequest, task.ListQueuesResponse),
	getQueue: method(
		"QueueService/Get",
		task.GetQueueRequest,
		keeping(task.GetQueueResponse, "config", 1, "QueueConfig"),
	),
	setQueue: method(
		"QueueService/Set",
		keeping(task.SetQueueRequest, "config", 2, "QueueConfig"),
		task.SetQueueResponse,
	),
	deleteQueue: method("QueueService/Delete", task.DeleteQueueRequest, task.DeleteQueueResponse),
	listKeys: method("QueueService/Keys", task.ListKeysRequest, task.ListKeysResponse),
	setKey: method("QueueService/SetKey", task.SetKeyRequest, task.SetKeyResponse),
	pauseKey: method("QueueService/PauseKey", task.PauseKeyRequest, task.PauseKeyResponse),
	resumeKey: method("QueueService/ResumeKey", task.ResumeKeyRequest, task.ResumeKeyResponse),
	startBulk: method("BulkService/Start", bulk.StartBulkRequest, bulk.StartBulkResponse),
	listBulk: method("BulkService/List", bulk.ListBulkRequest, bulk.ListBulkResponse),
	getBulk: method("BulkService/Get", bulk.GetBulkRequest, bulk.GetBulkResponse),
	cancelBulk: method("BulkService/Cancel", bulk.CancelBulkRequest, bulk.CancelBulkResponse),
	listCrons: method("CronService/List", cron.ListCronsRequest, cron.ListCronsResponse),
	getCron: method("CronService/Get", cron.GetCronRequest, cron.GetCronResponse),
	setCron: method("CronService/Set", cron.SetCronRequest, cron.SetCronResponse),
	deleteCron: method("CronService/Delete", cron.DeleteCronRequest, cron.DeleteCronResponse),
	triggerCron: method("CronService/Trigger", cron.TriggerCronRequest, cron.TriggerCronResponse),
	pauseCron: method("CronService/Pause", cron.PauseCronRequest, cron.PauseCronResponse),
	resumeCron: method("CronService/Resume", cron.ResumeCronRequest, cron.ResumeCronResponse),
	previewCron: method("CronService/Preview", cron.PreviewCronRequest, cron.PreviewCronResponse),
	cronRuns: method("CronService/Runs", cron.ListCronRunsRequest, cron.ListCronRunsResponse),
	listLimiters: method("LimiterService/List", limiter.ListLimitersRequest, limiter.ListLimitersResponse),
	getLimiter: method("LimiterService/Get", limiter.GetLimiterRequest, limiter.GetLimiterResponse),
	setLimiter: method("LimiterService/Set", limiter.SetLimiterRequest, limiter.SetLimiterResponse),
	deleteLimiter: method("LimiterService/Delete", limiter.DeleteLimiterRequest, limiter.DeleteLimiterResponse),
	openBatch: method("BatchService/Open", batch.OpenBatchRequest, batch.OpenBatchResponse),
	listBatches: method("BatchService/List", batch.ListBatchesRequest, batch.ListBatchesResponse),
	getBatch: method("BatchService/Get", batch.GetBatchRequest, batch.GetBatchResponse),
	waitBatch: method("BatchService/Wait", batch.WaitBatchRequest, batch.WaitBatchResponse),
	sealBatch: method("BatchService/Seal", batch.SealBatchRequest, batch.SealBatchResponse),
	cancelBatch: method("BatchService/Cancel", batch.CancelBatchRequest, batch.CancelBatchResponse),
	kvGet: method("KVService/Get", kv.KVGetRequest, kv.KVGetResponse),
	kvRange: method("KVService/Range", kv.KVRangeRequest, kv.KVRangeResponse),
	kvBatchGet: method("KVService/BatchGet", kv.KVBatchGetRequest, kv.KVBatchGetResponse),
};
