package rest

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// The same of every route.
func TestAPanicBelowAnyRouteLeavesTheNextRequestWorking(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.s.Recovers = true
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	eachRoute(t, func(rt *Route, s sampleRequest) {
		if rt.rule.Public {
			return
		}
		r.n.PanicEverywhere(t, rt.name(), r.free, func() (string, bool) {
			a := r.send(r.request(rt.Method, s.path, "acme/all", s.body))
			return http.StatusText(a.status), a.status >= 400
		})
	})
}
