package rest

import (
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// A put that is refused for a limit names it at each door, is counted, and is not the end of anything.
func TestLimitsOfKeysAreNamedAtEachDoorAndCounted(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	ws := r.greetKeys("acme/all")
	kv := pb.NewKVServiceClient(r.conn)
	number := uint64(0)
	frame := func() *pb.Ack {
		number++
		ws.send(putsFrame(number, number, "k"))
		return ws.ack()
	}
	put := &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}
	for _, c := range []struct {
		fact    core.Exhausted
		status  int
		message string
	}{
		{core.Exhausted{Limit: "keyspaces", Max: 1000}, http.StatusTooManyRequests, "limit keyspaces of 1000 reached"},
		{core.Exhausted{Limit: "keyspace_bytes", Max: 1 << 20}, http.StatusTooManyRequests, "limit keyspace_bytes of 1048576 reached"},
		{core.Exhausted{Limit: "namespace_key_bytes", Max: 1 << 30}, http.StatusTooManyRequests, "limit namespace_key_bytes of 1073741824 reached"},
		{core.Exhausted{Limit: "sessions", Max: 100_000}, http.StatusTooManyRequests, "limit sessions of 100000 reached"},
		{core.Exhausted{Limit: "disk", Max: 5}, http.StatusInsufficientStorage, "limit disk of 5 reached"},
	} {
		r.n.Judge = func(core.Commit) core.Result { return core.Result{Refusal: &core.Refusal{Fact: c.fact}} }
		before := r.s.Stats().Refusals[c.fact.Limit]
		_, err := kv.Put(apitest.As("acme/all"), put)
		expectCode(t, c.fact.Limit, err, codes.ResourceExhausted)
		web := failed(t, r.do("PUT", "/v1/kv/ks/keys/k", "v").expect(t, c.fact.Limit, c.status))
		for door, e := range map[string]*pb.Error{
			"gRPC": apitest.ErrorOf(t, err), "stream": frame().GetError(),
			"REST": {Code: web.Code, Limit: web.Limit, Max: web.Max, Message: web.Message},
		} {
			if e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != c.fact.Limit || e.GetMax() != c.fact.Max || e.GetMessage() != c.message || e.GetOutcome() != pb.Error_REFUSED {
				t.Errorf("%s over %s: %v", c.fact.Limit, door, e)
			}
		}
		if got := r.s.Stats().Refusals[c.fact.Limit]; got != before+3 {
			t.Errorf("%s: %d refusals are counted, want 3", c.fact.Limit, got-before)
		}
		r.n.Judge = nil
		if _, err := kv.Put(apitest.As("acme/all"), put); err != nil {
			t.Errorf("after %s: %v", c.fact.Limit, err)
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
		expectCode(t, limit, err, codes.ResourceExhausted)
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
