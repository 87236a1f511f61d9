// The unary methods that this package calls.
import type { Codec, Method } from "./core/transport.js";
import * as kv from "./gen/millrace/v1/kv.js";
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
	setQueue: method("QueueService/Set", task.SetQueueRequest, task.SetQueueResponse),
	kvGet: method("KVService/Get", kv.KVGetRequest, kv.KVGetResponse),
	kvRange: method("KVService/Range", kv.KVRangeRequest, kv.KVRangeResponse),
	kvBatchGet: method("KVService/BatchGet", kv.KVBatchGetRequest, kv.KVBatchGetResponse),
};
