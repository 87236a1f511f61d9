package rest

import "net/http"

// limiterService is the service of limiters.
const limiterService = "/millrace.v1.LimiterService/"

// limiterRoutes are of limiters, which tasks of several queues share.
func limiterRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/limiters", Native: limiterService + "List", Answer: "ListLimitersResponse", Status: statusOK,
			Query: append([]Param{{Name: "prefix", Type: "string", Form: queueForm.filled(), Doc: "What their names begin with."}}, stalePage...),
			Doc:   "List limiters by name, with what is used of each.", handle: (*restCall).limiterList,
		},
		{
			Method: http.MethodGet, Path: "/v1/limiters/{limiter}", Native: limiterService + "Get", Answer: "Limiter", Headers: []string{"ETag"}, Status: statusOK, Query: staleParams,
			Doc: "Read a limiter, with the tasks that hold it and the queues that name it. The ETag is its version.", handle: (*restCall).limiterGet,
		},
		{
			Method: http.MethodPut, Path: "/v1/limiters/{limiter}", Repeat: RepeatCondition, Native: limiterService + "Set", Body: "LimiterConfig", Answer: "Limiter",
			Headers: []string{"ETag"}, Status: statusOK, Header: []Param{ifMatch},
			Doc:    "Make a limiter, or replace what it bounds. Running tasks go on when a limit falls below what runs. The version rises only when something changes.",
			fields: fieldNames(limiterConfigFields), handle: (*restCall).limiterSet,
		},
		{
			Method: http.MethodDelete, Path: "/v1/limiters/{limiter}", Repeat: RepeatCondition, Native: limiterService + "Delete",
			Status: []int{http.StatusNoContent}, Header: []Param{ifMatch},
			Doc: "Remove a limiter. It is refused while a queue names it, or a task that has not ended: setting it to nothing lifts its limits at once.", handle: (*restCall).limiterDelete,
		},
	}
}
