package rest

import (
	"math"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/edge"
)

// Parameters that several routes have.
var (
	// min_index and consistency say how fresh an answer must be: as fresh as an answer before, or as
	// this node has it.
	minIndex = Param{Name: "min_index", Type: "integer", Form: AnyUint64, Doc: "Wait until this index of the partition is applied."}
	freshly  = Param{Name: "consistency", Type: "linearizable|stale", Doc: "stale reads what this node has, without asking a majority."}
	// A page has a length, and a cursor for the next one, which names a place and not a number of rows.
	limitOf  = Param{Name: "limit", Type: "integer", Form: wholes(1, defaults.ListItems), Doc: "Length of the page, 1 to 1,000; default 100."}
	cursorOf = Param{Name: "cursor", Type: "string", Form: cursorForm, Doc: "Of the page before; empty for the first page."}
	// Versions guard configurations. Keys have revisions, and their own parameter.
	ifMatch = Param{Name: "If-Match", Type: "string", Form: etagForm, Doc: "The version that the change expects, as its ETag; 0 for none yet."}
)

// The services of the contract, as prefixes of their methods.
const (
	tasksService    = "/millrace.v1.TaskService/"
	commitsService  = "/millrace.v1.CommitService/"
	keysService     = "/millrace.v1.KVService/"
	queuesService   = "/millrace.v1.QueueService/"
	bulkService     = "/millrace.v1.BulkService/"
	searchesService = "/millrace.v1.SearchService/"
	serversService  = "/millrace.v1.ServerService/"
)

// The statuses of answers, and the parameters of reads and of pages.
var (
	statusOK    = []int{http.StatusOK}
	statusBegun = []int{http.StatusAccepted, http.StatusOK}
	statusMade  = []int{http.StatusCreated, http.StatusOK}
	readParams  = []Param{minIndex, freshly}
	pageParams  = []Param{limitOf, cursorOf}
	stalePage   = []Param{limitOf, cursorOf, freshly}
	staleParams = []Param{freshly}
)

// routes makes the table.
func routes() []*Route {
	// The order is that of the document.
	return slices.Concat(
		producerRoutes(), workerRoutes(), operatorRoutes(), workerListRoutes(), errorRoutes(), overviewRoutes(), bulkRoutes(), cronRoutes(), batchRoutes(), limiterRoutes(), dataRoutes(), keyRoutes(), tenantRoutes(), repoRoutes(), refRoutes(), collectionRoutes(), searchRoutes(), clusterRoutes(), eventRoutes(), serverRoutes(), namespaceListRoutes(), sessionRoutes(),
	)
}

// producerRoutes make tasks and read them.
func producerRoutes() []*Route {
	return []*Route{
		{
			// The key is not the request id of other routes: it is remembered as a unique key of the
			// queue, and so longer.
			Method: http.MethodPost, Path: "/v1/tasks", Repeat: RepeatByKey, Native: tasksService + "Create", Body: "TaskSpec", Answer: "Created", Headers: []string{"Location"}, Status: statusMade,
			Doc: "Make one task. It can be repeated safely with an id, a unique key or an Idempotency-Key: a repetition is answered with 200 and the first task. Without one of them it makes another task.",
			Header: []Param{{
				Name: "Idempotency-Key", Type: "string", Form: keyForm,
				Doc: "1 to 256 bytes, good for 24 hours in the queue: the same key with another payload is refused. Mutually exclusive with unique.",
			}},
			fields: fieldNames(taskSpecFields), handle: (*restCall).create,
		},
		{
			// A colon begins what is done with a whole collection: no name of a thing below it can be the
			// same.
			Method: http.MethodPost, Path: "/v1/tasks:batch", Repeat: RepeatByID, Native: tasksService + "BatchCreate", Body: "BatchCreateRequest", Answer: "BatchCreateResponse", Status: statusOK,
			Doc:    "Make up to 512 tasks, each by itself, or all or none of them.",
			fields: fieldNames(batchCreateRequestFields), handle: (*restCall).taskBatchCreate,
		},
		{
			// A list is of one queue and one state, since that is how tasks are stored.
			Method: http.MethodGet, Path: "/v1/tasks", Native: tasksService + "List", Answer: "ListResponse", Status: statusOK,
			Doc: "List tasks, without their payloads and results: of a queue in a state in the order of that state, else about in the order of their creation; partition after partition, but ended tasks of a queue with the last ones first in one order over all. One request looks at 10,000 tasks at most: a page may be short, and even empty, and still have a cursor.",
			Query: append([]Param{
				{Name: "queue", Type: "string", Form: queueForm.filled(), Doc: "Name of the queue; default: of any."},
				{Name: "state", Type: "blocked|scheduled|ready|running|completed|dead|cancelled", Doc: "State of the tasks; default: any."},
				{Name: "order", Type: "asc|desc", Doc: "desc begins with the last ones."},
				{Name: "kind", Type: "string", Form: queueForm.filled(), Doc: "Kind of the tasks."},
				{Name: "label", Type: "string", Form: labelQuery, Many: true, Doc: "NAME=VALUE of a label; given several times, tasks have all of them."},
				{Name: "worker", Type: "string", Form: plainText.filled().upTo(defaults.WorkerBytes), Doc: "Worker that runs the tasks, or completed them."},
				{Name: "unique", Type: "string", Form: plainText.filled().upTo(defaults.UniqueKeyBytes), Doc: "The unique key that the tasks were created under."},
				{Name: "from", Type: "time", Doc: "Tasks created then or later."},
				{Name: "to", Type: "time", Doc: "Tasks created before then."},
				{Name: "fingerprint", Type: "string", Form: fingerprintForm, Doc: "Fingerprint of the last error of the tasks, as GET /v1/errors shows it."},
				{Name: "batch", Type: "string", Form: taskForm.filled(), Doc: "Id of the batch that the tasks were added to."},
				{Name: "head", Type: "integer", Form: wholes[int64](1, api.MaxHead), Doc: "The first bytes of each payload too, 1 to 256, and its size."},
			}, stalePage...),
			handle: (*restCall).listTasks,
		},
		{
			Method: http.MethodGet, Path: "/v1/tasks/{id}", Native: tasksService + "Get", Answer: "Task", Status: statusOK,
			Query: []Param{minIndex, freshly, {Name: "view", Type: "full|meta", Doc: "meta: without payload and result, with their sizes instead."}},
			Doc:   "Read one task.", handle: (*restCall).getTask,
		},
		payloadRoute(), outputRoute(),
		{
			Method: http.MethodPost, Path: "/v1/tasks:get", Repeat: RepeatRead, Native: tasksService + "BatchGet", Body: "BatchGetRequest", Answer: "BatchGetResponse", Status: statusOK,
			Doc:    "Read up to 100 tasks, without their payloads and results. Those that are not there are left out.",
			fields: fieldNames(batchGetRequestFields), handle: (*restCall).getTasks,
		},
		{
			Method: http.MethodGet, Path: "/v1/tasks/{id}/attempts", Native: tasksService + "ListAttempts", Answer: "ListAttemptsResponse", Status: statusOK, Query: staleParams,
			Doc: "List the last 20 attempts of a task, oldest first.", handle: (*restCall).taskListAttempts,
		},
		{
			// It has the rule of Wait, though it may answer without waiting.
			Method: http.MethodGet, Path: "/v1/tasks/{id}/result", Native: tasksService + "Wait", Answer: "Result", Status: statusOK, waits: true,
			Doc:    "Read what became of a task, waiting for its end.",
			Query:  []Param{{Name: "wait", Type: "duration", Form: spans(api.Span{Max: defaults.ResultWaitMs}), Doc: "How long to wait for the end; default 0s."}},
			handle: (*restCall).result,
		},
	}
}

// workerRoutes are for who works on tasks.
func workerRoutes() []*Route {
	return []*Route{
		{
			// What a lost answer named comes back when its leases end: a claim needs no key.
			Method: http.MethodPost, Path: "/v1/tasks:claim", Repeat: RepeatClaim, Native: tasksService + "Claim", Body: "ClaimRequest", Answer: "ClaimResponse",
			Status: []int{http.StatusOK, http.StatusNoContent}, waits: true,
			Doc:    "Take ready tasks, waiting for one. No content: none was ready in time. Each has a lease and a token, which its settle and its heartbeats carry.",
			fields: fieldNames(claimRequestFields), handle: (*restCall).claim,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks:endclaim", Repeat: RepeatSame, Native: tasksService + "EndClaim", Body: "EndClaimRequest", Answer: "EndClaimResponse", Status: statusOK,
			Doc:    "End the wait of a claim under way that named itself. It is answered as if its time were over: a worker that stops reads the answer and knows what it was given. The partition is that of the claim; without one, a claim of any partition is ended at whichever node it waits. found is false where no claim of that name waits, or not yet.",
			fields: fieldNames(endClaimRequestFields), handle: (*restCall).taskEndClaim,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks:settle", Repeat: RepeatByToken, Native: tasksService + "Settle", Body: "SettleRequest", Answer: "SettleResponse", Status: statusOK,
			Doc: "End up to 512 attempts, each by itself.", fields: fieldNames(settleRequestFields), handle: (*restCall).taskSettle,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks:heartbeat", Repeat: RepeatSame, Native: tasksService + "Heartbeat", Body: "HeartbeatRequest", Answer: "HeartbeatResponse", Status: statusOK,
			Doc: "Extend up to 512 leases.", fields: fieldNames(heartbeatRequestFields), handle: (*restCall).taskHeartbeat,
		},
		{
			// This and the next ones are for one task each: a refusal of it is the answer, with its status, where a
			// batch answers 200 and tells item by item.
			Method: http.MethodPost, Path: "/v1/tasks/{id}/complete", Repeat: RepeatByToken, Native: tasksService + "Settle", Body: "CompleteOne", Answer: "Settled", Status: statusOK,
			Doc:    "End an attempt with its result. Its effects commit with it, or nothing does.",
			fields: fieldNames(completeOneFields), handle: (*restCall).complete,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/fail", Repeat: RepeatByToken, Native: tasksService + "Settle", Body: "FailOne", Answer: "Settled", Status: statusOK,
			Doc: "End an attempt that failed.", fields: fieldNames(failOneFields), handle: (*restCall).failTask,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/snooze", Repeat: RepeatByToken, Native: tasksService + "Settle", Body: "SnoozeOne", Answer: "Settled", Status: statusOK,
			Doc: "Give a task back until a time. It counts as no failure.", fields: fieldNames(snoozeOneFields), handle: (*restCall).snooze,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/release", Repeat: RepeatByToken, Native: tasksService + "Settle", Body: "ReleaseOne", Answer: "Settled", Status: statusOK,
			Doc: "Give a task back to its old place in the queue.", fields: fieldNames(releaseOneFields), handle: (*restCall).release,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/heartbeat", Repeat: RepeatSame, Native: tasksService + "Heartbeat", Body: "HeartbeatOne", Answer: "Renewed", Status: statusOK,
			Doc: "Extend the lease of a task.", fields: fieldNames(heartbeatOneFields), handle: (*restCall).heartbeatOne,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/report", Repeat: RepeatSame, Native: tasksService + "Report", Body: "ReportRequest", Answer: "ReportResponse", Status: statusOK,
			Doc:    reportDoc,
			fields: fieldNames(reportRequestFields), handle: (*restCall).taskReport,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/stop", Repeat: RepeatByToken, Native: tasksService + "Settle", Body: "StopOne", Answer: "Settled", Status: statusOK,
			Doc: "End an attempt whose cancel was asked for: the task is cancelled.", fields: fieldNames(stopOneFields), handle: (*restCall).stopTask,
		},
	}
}

// operatorRoutes are for who looks after tasks.
func operatorRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/tasks/{id}/logs", Native: tasksService + "Logs", Answer: "LogsResponse", Status: statusOK,
			Query: []Param{
				{Name: "attempt", Type: "integer", Form: wholes(0, int64(math.MaxUint32)), Doc: "Only lines of this attempt; default: of all."},
				{Name: "after", Type: "integer", Form: AnyUint64, Doc: "Only lines with a number above this one; default 0."},
				limitOf, freshly,
			},
			Doc:    "Read the log of a task, oldest line first. About the last 1,000 lines or 256 KiB of all attempts are kept; older ones are counted as dropped.",
			handle: (*restCall).taskLogs,
		},
		{
			Method: http.MethodGet, Path: "/v1/tasks/{id}/effects", Native: tasksService + "Effects", Answer: "EffectsResponse", Status: statusOK, Query: staleParams,
			Doc: "Read what the completion of a task did besides ending it, in the same log entry, and whether that still stands.", handle: (*restCall).taskEffects,
		},
		{
			Method: http.MethodGet, Path: "/v1/tasks/{id}/why", Native: tasksService + "Why", Answer: "WhyResponse", Status: statusOK,
			Doc: "Say why a task is where it is: what it waits for, who holds it, or how it ended.", handle: (*restCall).taskWhy,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/run-now", Repeat: RepeatCondition, Native: tasksService + "RunNow", Answer: "Done", Status: statusOK,
			Doc: "Make a scheduled task ready.", handle: (*restCall).taskRunNow,
		},
		{
			Method: http.MethodPatch, Path: "/v1/tasks/{id}", Repeat: RepeatByKey, Native: tasksService + "Update", Body: "UpdateRequest", Answer: "UpdateResponse", Status: statusOK,
			Doc:    "Edit a task that waits: what the body leaves out stays. Of a dead task payload, priority and labels can be edited. A repetition of the create is still known by what it sent.",
			Header: []Param{keyParam}, fields: fieldNames(updateRequestFields), handle: (*restCall).taskUpdate,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/cancel", Repeat: RepeatByKey, Native: tasksService + "Cancel", Body: "CancelRequest", Bare: true, Answer: "CancelResponse", Status: statusOK,
			Doc:    "Cancel a task. One that waits is cancelled at once. The worker of one that runs is told to stop; the task is cancelled when that worker confirms, when its attempt ends in any way but a completion, or when the queue's cancel_grace is over. With force it is cancelled at once, and its worker loses it.",
			Header: []Param{keyParam}, fields: fieldNames(cancelRequestFields), handle: (*restCall).taskCancel,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/retry", Repeat: RepeatByKey, Native: tasksService + "Retry", Body: "RetryRequest", Bare: true, Answer: "RetryResponse", Status: statusOK,
			Doc:    "Make a dead or cancelled task ready. Its failures, crashes, snoozes and deliveries count from 0 again; its attempts stay.",
			Header: []Param{keyParam}, fields: fieldNames(retryRequestFields), handle: (*restCall).taskRetry,
		},
		{
			Method: http.MethodPost, Path: "/v1/tasks/{id}/force-release", Repeat: RepeatByKey, Native: tasksService + "ForceRelease", Body: "ForceReleaseRequest", Bare: true, Answer: "ForceReleaseResponse", Status: statusOK,
			Doc:    "Take a running task from its worker, and put it back to its old place. It counts only as a delivery.",
			Header: []Param{keyParam}, fields: fieldNames(forceReleaseRequestFields), handle: (*restCall).taskForceRelease,
		},
		{
			Method: http.MethodDelete, Path: "/v1/tasks/{id}", Repeat: RepeatCondition, Native: tasksService + "Delete", Answer: "Done", Status: statusOK,
			Doc: "Remove a task that has ended.", handle: (*restCall).taskDelete,
		},
	}
}

// dataRoutes commit, read keys, and look into queues.
func dataRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodPost, Path: "/v1/commit", Repeat: RepeatByKey, Native: commitsService + "Commit", Body: "CommitRequest", Answer: "CommitResponse", Status: statusOK,
			Header: []Param{keyParam},
			Doc:    "Apply ops in one log entry, all or none. With an Idempotency-Key or a request_id it can be repeated safely, with a fence or without. One that ends the attempt of its fence can be repeated by its token too.", fields: fieldNames(commitRequestFields), handle: (*restCall).commitCommit,
		},
		{
			Method: http.MethodGet, Path: "/v1/queues", Native: queuesService + "List", Answer: "ListQueuesResponse", Status: statusOK, Query: append([]Param{
				{Name: "prefix", Type: "string", Form: queueForm.filled(), Doc: "What their names begin with."},
				{Name: "sort", Type: "name|ready|oldest|dead|rate", Doc: "name, the default; ready or dead: those with the most such tasks first; oldest: the one whose ready task has waited longest first; rate: the one that completed the most in the last minute first."},
				{Name: "only", Type: "paused|stuck|dead", Doc: "Those that are paused, that have dead tasks, or that are stuck: not paused, with a task that has been ready for a minute, and none running."},
			}, stalePage...),
			Doc: "List queues with their counters. Of a namespace with more than 10,000 queues only a prefix can be sorted or chosen from.", handle: (*restCall).queueList,
		},
		{
			Method: http.MethodGet, Path: "/v1/queues/{queue}", Native: queuesService + "Get", Answer: "QueueConfig", Headers: []string{"ETag"}, Status: statusOK, Query: staleParams,
			Doc: "Read a queue's configuration. The ETag is its version.", handle: (*restCall).queueGet,
		},
		{
			// It makes the queue where there is none, and says so by its status.
			Method: http.MethodPut, Path: "/v1/queues/{queue}", Repeat: RepeatCondition, Native: queuesService + "Set", Body: "QueueConfig", Answer: "Configured",
			Headers: []string{"ETag"}, Status: []int{http.StatusOK, http.StatusCreated}, Header: []Param{ifMatch},
			Doc:    "Replace a queue's configuration, or make the queue. The version rises only when something changes.",
			fields: fieldNames(queueConfigFields), handle: (*restCall).setQueue,
		},
		{
			// No content: what it removed is not counted.
			Method: http.MethodDelete, Path: "/v1/queues/{queue}", Repeat: RepeatCondition, Native: queuesService + "Delete",
			Status: []int{http.StatusNoContent}, Header: []Param{ifMatch},
			Query: []Param{{Name: "purge", Type: "true|false", Doc: "Remove the queue also while it has tasks that have not ended: they are cancelled, and their workers lose them."}},
			Doc:   "Remove a queue with its tasks and its configuration. Its name is free at once. Without purge it is refused while the queue has tasks that have not ended.", handle: (*restCall).queueDelete,
		},
		{
			// A verb on one thing stands behind its name. The router tries it before the route of the
			// name alone.
			Method: http.MethodPost, Path: "/v1/queues/{queue}:pause", Repeat: RepeatSame, Native: queuesService + "Pause", Body: "PauseQueueRequest", Bare: true, Answer: "PauseQueueResponse", Status: statusOK,
			Doc:    "Stop giving out a queue's tasks, until it is resumed or until a time. Tasks that run go on, and delays come due.",
			fields: fieldNames(pauseQueueRequestFields), handle: (*restCall).queuePause,
		},
		{
			Method: http.MethodPost, Path: "/v1/queues/{queue}:resume", Repeat: RepeatSame, Native: queuesService + "Resume", Answer: "ResumeQueueResponse", Status: statusOK,
			Doc: "Give out the tasks of a paused queue again.", handle: (*restCall).queueResume,
		},
		{
			Method: http.MethodGet, Path: "/v1/queues/{queue}/keys", Native: queuesService + "Keys", Answer: "ListKeysResponse", Status: statusOK,
			Query: []Param{
				{Name: "sort", Type: "name|backlog|oldest|owed", Doc: "name, the default; backlog: those with the most ready tasks first; oldest: those whose first task has been ready longest first; owed: those that are the furthest behind their share first."},
				{Name: "prefix", Type: "string", Doc: "What the keys begin with."},
				limitOf, cursorOf, freshly,
			},
			Doc: "List the keys of a queue that have tasks which have not ended, or for which something is set. Of a queue with more than 10,000 keys only a prefix can be sorted by something else than the name.", handle: (*restCall).queueKeys,
		},
		{
			Method: http.MethodPut, Path: "/v1/queues/{queue}/keys/{key}", Repeat: RepeatSame, Native: queuesService + "SetKey", Body: "KeySettings", Answer: "SetKeyResponse", Status: statusOK,
			Doc:    "Set the weight and the limits of one key of a queue. An empty body leaves the key to the queue.",
			fields: fieldNames(keySettingsFields), handle: (*restCall).queueSetKey,
		},
		{
			Method: http.MethodPost, Path: "/v1/queues/{queue}/keys/{key}:pause", Repeat: RepeatSame, Native: queuesService + "PauseKey", Body: "PauseKeyRequest", Bare: true, Answer: "PauseKeyResponse", Status: statusOK,
			Doc:    "Stop giving out the tasks of one key, until it is resumed or until a time. Tasks that run go on.",
			fields: fieldNames(pauseKeyRequestFields), handle: (*restCall).queuePauseKey,
		},
		{
			Method: http.MethodPost, Path: "/v1/queues/{queue}/keys/{key}:resume", Repeat: RepeatSame, Native: queuesService + "ResumeKey", Answer: "ResumeKeyResponse", Status: statusOK,
			Doc: "Give out the tasks of a paused key again.", handle: (*restCall).queueResumeKey,
		},
		{
			Method: http.MethodGet, Path: "/v1/queues/{queue}/stats", Native: queuesService + "Stats", Answer: "QueueStats", Status: statusOK, Query: staleParams,
			Doc: "Count what is in a queue.", handle: (*restCall).queueStats,
		},
	}
}

// bulkRoutes are of jobs about many tasks.
func bulkRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodPost, Path: "/v1/bulk", Repeat: RepeatByID, Native: bulkService + "Start", Body: "StartBulkRequest", Answer: "StartBulkResponse", Status: statusBegun,
			Doc:    "Begin a job that cancels, retries, deletes or prioritizes every task that the filter finds. With an id it can be repeated safely: a repetition is answered with 200. With dry_run nothing is begun: 200, and what it would find.",
			fields: fieldNames(startBulkRequestFields), handle: (*restCall).bulkStart,
		},
		{
			Method: http.MethodPost, Path: "/v1/queues/{queue}:redrive", Repeat: RepeatByID, Native: bulkService + "Redrive", Body: "RedriveRequest", Bare: true, Answer: "StartBulkResponse", Status: statusBegun,
			Doc:    "Begin a job that makes the dead tasks of a queue ready again. It is the job of POST /v1/bulk with the action retry and the state dead.",
			fields: fieldNames(redriveRequestFields), handle: (*restCall).bulkRedrive,
		},
		{
			Method: http.MethodGet, Path: "/v1/bulk", Native: bulkService + "List", Answer: "ListBulkResponse", Status: statusOK, Query: staleParams,
			Doc: "List the jobs that run, and those that ended within the last 24 hours, the last begun first.", handle: (*restCall).bulkList,
		},
		{
			Method: http.MethodGet, Path: "/v1/bulk/{id}", Native: bulkService + "Get", Answer: "BulkJob", Status: statusOK, Query: staleParams,
			Doc: "Read how far a job is.", handle: (*restCall).bulkGet,
		},
		{
			Method: http.MethodPost, Path: "/v1/bulk/{id}:cancel", Repeat: RepeatSame, Native: bulkService + "Cancel", Answer: "CancelBulkResponse", Status: statusOK,
			Doc: "End a job before its end. What it did stays.", handle: (*restCall).bulkCancel,
		},
	}
}

// serverRoutes are of the namespace and of the server.
func serverRoutes() []*Route {
	return []*Route{
		{
			// The namespace is that of the parameter ns, as on all routes, so it is not in the path.
			Method: http.MethodPost, Path: "/v1/namespace", Repeat: RepeatSame, Native: queuesService + "CreateNamespace", Body: "CreateNamespaceRequest", Answer: "CreateNamespaceResponse", Status: statusMade,
			Doc:    "Make the namespace, with a number of partitions that never changes. One that is used before it is made has one partition. 200: it was there, with as many.",
			fields: fieldNames(createNamespaceRequestFields), handle: (*restCall).queueCreateNamespace,
		},
		{
			Method: http.MethodGet, Path: "/v1/namespace", Native: queuesService + "GetNamespace", Answer: "Namespace", Headers: []string{"ETag"}, Status: statusOK, Query: staleParams,
			Doc: "Read the configuration of the namespace, and where its partitions lie. The ETag is its version.", handle: (*restCall).queueGetNamespace,
		},
		{
			Method: http.MethodPut, Path: "/v1/namespace", Repeat: RepeatCondition, Native: queuesService + "SetNamespace", Body: "NamespaceConfig", Answer: "Configured", Headers: []string{"ETag"}, Status: statusOK,
			Header: []Param{ifMatch},
			Doc:    "Replace the configuration of the namespace, or make it.",
			fields: fieldNames(namespaceConfigFields), handle: (*restCall).queueSetNamespace,
		},
		{
			Method: http.MethodDelete, Path: "/v1/namespace", Repeat: RepeatSame, Native: queuesService + "DeleteNamespace", Answer: "DeleteNamespaceResponse", Status: statusOK,
			Doc: "Remove the namespace with its configuration, its queues and its keyspaces. Refused while it has tasks, keys, repositories, also deleted ones that can be brought back, collections or rulesets. Its name is free at once.", handle: (*restCall).queueDeleteNamespace,
		},
		{
			Method: http.MethodGet, Path: "/v1/status", Native: serversService + "Status", Answer: "StatusResponse", Status: statusOK,
			Doc: "Tell what this server is, and, to an operator (a token with the scope cluster or tenant:admin), what it has done for all tenants.", handle: (*restCall).status,
		},
		{
			// The one route without a token: it tells nothing of what is stored.
			Method: http.MethodGet, Path: "/v1/openapi.json", rule: edge.Public(), Status: statusOK,
			Doc: "This document.", handle: (*restCall).openAPI,
		},
	}
}
