package rest

import (
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

func TestEveryRouteEndsWithItsToken(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	began := make(chan struct{})
	for _, patterns := range r.h.routes.byLength {
		for _, p := range patterns {
			for _, rt := range p.routes {
				rt.handle = func(c *restCall) error {
					began <- struct{}{}
					<-c.ctx.Done()
					return c.ctx.Err()
				}
			}
		}
	}
	const token = "acme/all/9h"
	eachRoute(t, func(rt *Route, s sampleRequest) {
		if rt.rule.Public {
			return
		}
		r.auth.Mu.Lock()
		delete(r.auth.Revoked, token)
		r.auth.Mu.Unlock()
		got := make(chan answer, 1)
		go func() { got <- r.send(r.request(rt.Method, s.path, token, s.body)) }()
		<-began
		r.auth.Revoke(token)
		r.s.Live.Sweep()
		(<-got).expect(t, rt.name(), http.StatusUnauthorized)
	})
}

func TestACommitThatWasProposedKeepsItsOutcomeWhenItsTokenEnds(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.Holding = true
	const token = "acme/all/9h"
	grpcEnd, restEnd := make(chan error, 1), make(chan answer, 1)
	go func() {
		_, err := r.tasks().Create(apitest.As(token), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
		grpcEnd <- err
	}()
	go func() { restEnd <- r.send(r.request("POST", "/v1/tasks", token, `{"queue":"q"}`)) }()
	apitest.Eventually(t, "both are proposed", func() bool { return r.n.Waiting() == 2 })
	r.auth.Revoke(token)
	r.s.Live.Sweep()
	err := <-grpcEnd
	apitest.ExpectCode(t, "gRPC", err, codes.Unauthenticated)
	if e := apitest.ErrorOf(t, err); e.GetOutcome() != pb.Error_UNKNOWN {
		t.Errorf("gRPC: its outcome is told as %v", e.GetOutcome())
	}
	if f := failed(t, (<-restEnd).expect(t, "REST", http.StatusUnauthorized)); f.Outcome != "unknown" {
		t.Errorf("REST: its outcome is told as %q", f.Outcome)
	}
}
