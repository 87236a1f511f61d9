package rest

import (
	"net/http"
	"strings"
)

// workersService begins the methods of workers.
const workersService = "/millrace.v1.WorkerService/"

// anyQueueForm is the name of a queue, or empty for any.
var anyQueueForm = Form{Pattern: "^(" + strings.Trim(queueForm.Pattern, "^$") + ")?$"}

// workerListRoutes show who takes tasks.
func workerListRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/workers", Native: workersService + "List", Answer: "ListWorkersResponse", Status: statusOK,
			Query:  []Param{{Name: "queue", Type: "string", Form: anyQueueForm, Doc: "Name of a queue that the workers take tasks of; default: of any."}},
			Doc:    "List who takes tasks: streams with subscriptions, and callers of claims, which are shown for five minutes after the last one. An election forgets them until they come again.",
			handle: (*restCall).workerList,
		},
		{
			Method: http.MethodPost, Path: "/v1/workers/{worker}:quiet", Repeat: RepeatSame, Native: workersService + "Quiet", Body: "QuietWorkerRequest", Answer: "QuietWorkerResponse", Status: statusOK,
			Doc:    "Give a worker no further tasks, by any of its streams and claims, or take that back. Tasks that it runs go on. The nodes forget it once the worker was away for ten minutes; an election may forget it too.",
			fields: fieldNames(quietWorkerRequestFields), handle: (*restCall).workerQuiet,
		},
	}
}
