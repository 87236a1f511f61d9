package rest

import (
	"io"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// Bodies of REST count by what has come of them, in the same share.
func TestBodiesOnTheirWayAreBoundedByTenant(t *testing.T) {
	r := newRESTRig(t, edge.Limits{RESTBodyBytes: mib})
	r.s.Requests.Most, r.s.RequestShares.Most = 8*mib, 4*mib
	part := body(mib, "q")[:mib*3/4]
	refused := 0
	for range 20 {
		c := r.raw()
		c.send("POST /v1/tasks HTTP/1.1\r\nHost: x\r\n" + tokenLine + "Content-Length: 1048576\r\n\r\n")
		go func() { _, _ = io.WriteString(c, part) }() // a refused one is not read
	}
	apitest.Eventually(t, "those beyond the share are refused", func() bool {
		refused = int(r.s.Stats().Refusals["requests_tenant"])
		return refused >= 16
	})
	if held := r.s.Stats().Held.Requests; held > 5*mib {
		t.Errorf("%d bytes are held", held)
	}
	r.send(r.request("POST", "/v1/tasks", "rival/all", body(mib/2, "q"))).expect(t, "another tenant", 201)
}
