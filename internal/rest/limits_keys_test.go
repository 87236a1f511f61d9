package rest

import (
	"fmt"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// A put that is refused for a limit names it at both doors of requests, is counted, and is not the end of anything.
func TestLimitsOfKeysAreNamedAtEachDoorAndCounted(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	kv := pb.NewKVServiceClient(r.conn)
	put := &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}
	for _, full := range apitest.FullLimits() {
		code, message := http.StatusTooManyRequests, fmt.Sprintf("limit %s of %d reached", full.Limit, full.Max)
		if full.Limit == "disk" {
			code = http.StatusInsufficientStorage
		}
		r.n.Judge = func(core.Commit) core.Result { return core.Result{Refusal: &core.Refusal{Fact: full}} }
		before := r.s.Stats().Refusals[full.Limit]
		_, err := kv.Put(apitest.As("acme/all"), put)
		apitest.ExpectCode(t, full.Limit, err, codes.ResourceExhausted)
		web := failed(t, r.do("PUT", "/v1/kv/ks/keys/k", "v").expect(t, full.Limit, code))
		for door, e := range map[string]*pb.Error{
			"gRPC": apitest.ErrorOf(t, err),
			"REST": {Code: web.Code, Limit: web.Limit, Max: web.Max, Message: web.Message},
		} {
			if e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != full.Limit || e.GetMax() != full.Max || e.GetMessage() != message || e.GetOutcome() != pb.Error_REFUSED {
				t.Errorf("%s over %s: %v", full.Limit, door, e)
			}
		}
		if got := r.s.Stats().Refusals[full.Limit]; got != before+2 {
			t.Errorf("%s: %d refusals are counted, want 2", full.Limit, got-before)
		}
		r.n.Judge = nil
		if _, err := kv.Put(apitest.As("acme/all"), put); err != nil {
			t.Errorf("after %s: %v", full.Limit, err)
		}
	}
}

func TestPutsBeyondTheRateOfAKeyspaceAreToldWhenToComeAgain(t *testing.T) {
	for i, limit := range []string{"writes_per_second", "bytes_per_second"} {
		r := newRESTRig(t, edge.Limits{})
		r.n.Rates[i].Store(2)
		kv := pb.NewKVServiceClient(r.conn)
		put := &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}
		for range 2 { // a second's worth, of one byte each
			if _, err := kv.Put(apitest.As("acme/all"), put); err != nil {
				t.Fatal(err)
			}
		}
		_, err := kv.Put(apitest.As("acme/all"), put)
		apitest.ExpectCode(t, limit, err, codes.ResourceExhausted)
		if e := apitest.ErrorOf(t, err); e.GetCode() != "RATE_LIMITED" || e.GetLimit() != limit || e.GetRetryAfter().AsDuration() <= 0 {
			t.Errorf("%s: %v", limit, e)
		}
		e := failed(t, r.do("PUT", "/v1/kv/ks/keys/k", "v").expect(t, limit, http.StatusTooManyRequests))
		if e.Code != "RATE_LIMITED" || e.Limit != limit || e.RetryMs <= 0 {
			t.Errorf("%s over REST: %+v", limit, e)
		}
		if got := r.s.Stats().Refusals[limit]; got != 2 {
			t.Errorf("%s: %d refusals are counted, want 2", limit, got)
		}
		if _, err := kv.Delete(apitest.As("acme/all"), &pb.KVDeleteRequest{Delete: &pb.KVDelete{Keyspace: "ks", Key: []byte("k")}}); err != nil {
			t.Errorf("%s: a delete: %v", limit, err)
		}
		r.clock.Advance(apitest.ErrorOf(t, err).GetRetryAfter().AsDuration())
		if _, err := kv.Put(apitest.As("acme/all"), put); err != nil {
			t.Errorf("%s: after the wait: %v", limit, err)
		}
	}
}
