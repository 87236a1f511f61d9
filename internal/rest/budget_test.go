package rest

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

func TestBodiesCountAsRequests(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.s.Requests.Most = kib
	a := r.do("POST", "/v1/tasks", body(2*kib, "q")).expect(t, "a body beyond the share", http.StatusServiceUnavailable)
	if e := failed(t, a); e.Code != "UNAVAILABLE" || e.Limit != "requests" || e.Outcome != "refused" {
		t.Errorf("%+v", e)
	}
	apitest.Eventually(t, "no byte is counted", func() bool { return r.s.Stats().Held.Requests == 0 })
}
