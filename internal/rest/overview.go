package rest

import (
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/api"
)

// overviewsService begins the methods of overviews.
const overviewsService = "/millrace.v1.OverviewService/"

// overviewRoutes show how a namespace is, and how it was.
func overviewRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/overview", Native: overviewsService + "Get", Answer: "Overview", Status: statusOK,
			Doc:    "Tell how a namespace is: what needs somebody's attention, what its tasks do, and which queues are to be looked at first. The node answers by its own replica. To a token with the scope cluster it tells of the cluster too, and to one with admin of tokens that end soon.",
			handle: (*restCall).overviewGet,
		},
		{
			Method: http.MethodGet, Path: "/v1/history", Native: overviewsService + "History", Answer: "HistoryResponse", Status: statusOK,
			Query: []Param{
				{Name: "queue", Type: "string", Form: anyQueueForm, Doc: "Name of the queue; default: all queues of the namespace together."},
				{Name: "node", Type: "integer", Form: AnyUint64, Doc: "The number of a node, for what that node did (scope cluster); mutually exclusive with queue."},
				{Name: "series", Type: "string", Form: seriesForm(), Doc: "Names of series, separated by commas; default: all. Of queues created, completed, failed, crashed, ready, running, dead; of a node entries, fsyncs, log_kib, mutations, disk_free_mib, memory_mib, log_on_disk_mib."},
				{Name: "span", Type: "15m|1h|24h", Doc: "How far back; default 15m. 15m and 1h have steps of 10 s, 24h has steps of 5 min."},
			},
			Doc:    "Show what a queue, or a node, did in the last quarter of an hour, hour or day, as the node that is asked has seen it since its start. What a node did only that node knows, and the request goes there.",
			handle: (*restCall).overviewHistory,
		},
	}
}

// seriesForm is of names of series, separated by commas.
func seriesForm() Form {
	lists := make([]string, 2)
	for i, node := range []bool{false, true} {
		name := "(" + strings.Join(api.HistorySeries(node), "|") + ")"
		lists[i] = name + "(," + name + ")*"
	}
	return Form{Pattern: "^(" + strings.Join(lists, "|") + ")?$", Examples: []string{"created,completed"}}
}
