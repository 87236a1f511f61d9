package rest

import (
	"net/http"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// namespaceListRoutes show the namespaces of a tenant.
func namespaceListRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/namespaces", Answer: "Namespaces", Status: statusOK, rule: edge.AnyToken(), handle: (*restCall).namespaces,
			Query: []Param{
				{Name: "limit", Type: "integer", Form: wholes(1, int64(api.NamespacesPage)), Doc: "Length of the page, 1 to 100; default 100."},
				cursorOf,
			},
			Doc: "List the namespaces of the caller's tenant by name, and what each holds, as the node that is asked has it. What the token may not read is left out. Keyspaces, repositories and collections are counted up to 1,000.",
		},
	}
}

// namespaces serves GET /v1/namespaces.
// It is written by hand: it reads several namespaces, where a message is of one.
func (c *restCall) namespaces() error {
	limit := uint64(api.NamespacesPage)
	if v, ok := c.query.get("limit"); ok {
		n, wrong := strictjson.ParseUnsigned(v)
		if wrong != "" || n == 0 || n > api.NamespacesPage {
			return edge.Invalid("limit", "must be a whole number from 1 to 100")
		}
		limit = n
	}
	cursor, _ := c.query.get("cursor")
	list, next, err := c.s.Namespaces(c.ctx, cursor, int(limit))
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.List("namespaces", len(list), func(i int) {
			w.Open('{')
			writeNamespaceSums(w, &list[i])
			w.Close('}')
		})
		w.OptStr("cursor", next)
	})
}

// writeNamespaceSums writes what a namespace holds, without what the caller may not know.
func writeNamespaceSums(w *jsonWriter, n *api.NamespaceSums) {
	count := func(name string, n int) {
		if n >= 0 {
			w.Count(name, uint64(n))
		}
	}
	w.Str("name", n.Name)
	w.Count("partitions", uint64(n.Partitions))
	count("queues", n.Queues)
	if n.Queues >= 0 {
		w.Object("states", func() {
			w.Count("blocked", n.Sum.GetBlocked())
			w.Count("scheduled", n.Sum.GetScheduled())
			w.Count("ready", n.Sum.GetReady())
			w.Count("running", n.Sum.GetRunning())
			w.Count("completed", n.Sum.GetCompleted())
			w.Count("dead", n.Sum.GetDead())
			w.Count("cancelled", n.Sum.GetCancelled())
		})
	}
	count("keyspaces", n.Keyspaces)
	count("repos", n.Repos)
	count("collections", n.Collections)
}
