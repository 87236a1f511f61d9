package rest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// queueScopeOpen are the routes that answer a token of another queue, and what their answer must hold then.
var queueScopeOpen = map[string]string{
	"POST /v1/tasks:batch":            `"PERMISSION_DENIED"`,
	"POST /v1/tasks:settle":           `"NOT_FOUND"`,
	"POST /v1/tasks:heartbeat":        `"lost":true`,
	"POST /v1/tasks:get":              `"tasks":[]`,
	"POST /v1/tasks:endclaim":         `"found":false`,
	"GET /v1/queues":                  `"queues":[]`,
	"GET /v1/bulk":                    `"jobs":[]`,
	"GET /v1/batches":                 `"batches":[]`,
	"GET /v1/crons":                   `"crons":[]`,
	"GET /v1/limiters":                `"name":"api"`,
	"GET /v1/limiters/{limiter}":      `"used":1`,
	"POST /v1/crons:preview":          `"words":"at 00:00 every day"`,
	"GET /v1/workers":                 `"workers":[]`,
	"GET /v1/namespaces":              `"queues":0`,
	"GET /v1/session":                 `"queues":["web","ci.*"]`,
	"DELETE /v1/session":              "", // a cookie
	"POST /v1/session:code":           `"code":`,
	"GET /v1/overview":                `"queues":[]`,
	"POST /v1/commit":                 "", // of keys
	"GET /v1/namespace":               "",
	"POST /v1/namespace":              "",
	"GET /v1/status":                  "",
	"PUT /v1/keyspaces/{keyspace}":    "",
	"DELETE /v1/keyspaces/{keyspace}": "",
	"GET /v1/tenant":                  "",
	"GET /v1/tenants/{tenant}":        "",
}

func TestEveryRouteIsClosedToATokenOfAnotherQueue(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.Mu.Lock()
	r.n.Known = []core.Worker{{ID: "w", Queues: []string{"mail"}}}
	r.n.Mu.Unlock()
	tried := make(map[string]bool)
	eachRoute(t, func(rt *Route, s sampleRequest) {
		if !edge.RightsOf(rt.rule, false).Queues {
			return
		}
		tried[rt.name()] = true
		a := r.send(r.request(rt.Method, s.path, "acme/all/queues=web+ci.*", s.body))
		holds, open := queueScopeOpen[rt.name()]
		switch {
		case open && (a.status != s.status || !strings.Contains(string(a.body), holds)):
			t.Errorf("%s answers %d %s", rt.name(), a.status, a.body)
		case !open && a.status != http.StatusForbidden && a.status != http.StatusNotFound && a.status != http.StatusConflict:
			t.Errorf("%s answers %d %s", rt.name(), a.status, a.body)
		case !open && a.status == http.StatusConflict && !strings.Contains(string(a.body), `"LEASE_LOST"`):
			t.Errorf("%s answers %d %s", rt.name(), a.status, a.body)
		}
	})
	for name := range queueScopeOpen {
		if !tried[name] {
			t.Errorf("%s is told of, and has no rule of queues", name)
		}
	}
	r.n.Mu.Lock()
	defer r.n.Mu.Unlock()
	for i := range r.n.Commits {
		for _, op := range r.n.Commits[i].Ops {
			if op.Kind().Service() == core.ServiceQueue {
				t.Errorf("a %s is proposed", op.Kind().Name())
			}
		}
	}
}

// A topic that is of all queues is closed to a token of some, and a batch of other queues is not there.
func TestTopicsOfAllQueuesAreClosedToATokenOfSome(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	for topic, want := range map[string]int{
		"crons": http.StatusForbidden, "limiters": http.StatusForbidden, "batch:" + apitest.ID(1): http.StatusNotFound,
	} {
		if a := r.send(r.request(http.MethodGet, "/v1/events?topics="+topic, "acme/all/queues=web+ci.*", "")); a.status != want {
			t.Errorf("%s: %d %s", topic, a.status, a.body)
		}
	}
}
