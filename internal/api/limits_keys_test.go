package api

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// A put that is refused for a limit names it at each door, is counted, and is not the end of anything.
func TestLimitsOfKeysAreNamedAtEachDoorAndCounted(t *testing.T) {
	r := newRESTRig(t, Limits{})
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
		r.n.judge = func(core.Commit) core.Result { return core.Result{Refusal: &core.Refusal{Fact: c.fact}} }
		before := r.s.Stats().Refusals[c.fact.Limit]
		_, err := kv.Put(as("acme/all"), put)
		expectCode(t, c.fact.Limit, err, codes.ResourceExhausted)
		web := failed(t, r.do("PUT", "/v1/kv/ks/keys/k", "v").expect(t, c.fact.Limit, c.status))
		for door, e := range map[string]*pb.Error{
			"gRPC": errorOf(t, err), "stream": frame().GetError(),
			"REST": {Code: web.Code, Limit: web.Limit, Max: web.Max, Message: web.Message},
		} {
			if e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != c.fact.Limit || e.GetMax() != c.fact.Max || e.GetMessage() != c.message || e.GetOutcome() != pb.Error_REFUSED {
				t.Errorf("%s over %s: %v", c.fact.Limit, door, e)
			}
		}
		if got := r.s.Stats().Refusals[c.fact.Limit]; got != before+3 {
			t.Errorf("%s: %d refusals are counted, want 3", c.fact.Limit, got-before)
		}
		r.n.judge = nil
		if _, err := kv.Put(as("acme/all"), put); err != nil {
			t.Errorf("after %s: %v", c.fact.Limit, err)
		}
	}
}

func TestPutsBeyondTheRateOfAKeyspaceAreToldWhenToComeAgain(t *testing.T) {
	for i, limit := range []string{"writes_per_second", "bytes_per_second"} {
		r := newRESTRig(t, Limits{})
		r.n.rates[i].Store(2)
		kv := pb.NewKVServiceClient(r.conn)
		put := &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}
		for range 2 { // a second's worth, of one byte each
			if _, err := kv.Put(as("acme/all"), put); err != nil {
				t.Fatal(err)
			}
		}
		_, err := kv.Put(as("acme/all"), put)
		expectCode(t, limit, err, codes.ResourceExhausted)
		if e := errorOf(t, err); e.GetCode() != "RATE_LIMITED" || e.GetLimit() != limit || e.GetRetryAfter().AsDuration() <= 0 {
			t.Errorf("%s: %v", limit, e)
		}
		e := failed(t, r.do("PUT", "/v1/kv/ks/keys/k", "v").expect(t, limit, http.StatusTooManyRequests))
		if e.Code != "RATE_LIMITED" || e.Limit != limit || e.RetryMs <= 0 {
			t.Errorf("%s over REST: %+v", limit, e)
		}
		if got := r.s.Stats().Refusals[limit]; got != 2 {
			t.Errorf("%s: %d refusals are counted, want 2", limit, got)
		}
		if _, err := kv.Delete(as("acme/all"), &pb.KVDeleteRequest{Delete: &pb.KVDelete{Keyspace: "ks", Key: []byte("k")}}); err != nil {
			t.Errorf("%s: a delete: %v", limit, err)
		}
		r.clock.advance(errorOf(t, err).GetRetryAfter().AsDuration())
		if _, err := kv.Put(as("acme/all"), put); err != nil {
			t.Errorf("%s: after the wait: %v", limit, err)
		}
	}
}

func TestWhatAKeyspaceCannotBeIsRefusedByItsField(t *testing.T) {
	for name, c := range map[string]struct {
		config        *pb.KeyspaceConfig
		field, reason string
	}{
		"another kind":       {&pb.KeyspaceConfig{Kind: pb.KeyspaceConfig_HISTORY}, "config.kind", "not_supported"},
		"an unknown kind":    {&pb.KeyspaceConfig{Kind: 7}, "config.kind", "not_supported"},
		"a tag":              {&pb.KeyspaceConfig{Tag: "t"}, "config.tag", "not_supported"},
		"a retention":        {&pb.KeyspaceConfig{Retention: durationpb.New(time.Hour)}, "config.retention", "not_supported"},
		"no bound on bytes":  {&pb.KeyspaceConfig{Quota: &pb.KeyspaceQuota{Bytes: -1}}, "config.quota.bytes", ""},
		"no bound on writes": {&pb.KeyspaceConfig{Quota: &pb.KeyspaceQuota{WritesPerSecond: -1}}, "config.quota.writes_per_second", ""},
		"no bound on rates":  {&pb.KeyspaceConfig{Quota: &pb.KeyspaceQuota{BytesPerSecond: -1}}, "config.quota.bytes_per_second", ""},
	} {
		r := newRig(t, Limits{})
		_, err := pb.NewKeyspaceServiceClient(r.conn).Set(as("acme/all"), &pb.SetKeyspaceRequest{Keyspace: "ks", Config: c.config})
		expectCode(t, name, err, codes.InvalidArgument)
		if e := errorOf(t, err); e.GetField() != c.field || c.reason != "" && e.GetReason() != c.reason {
			t.Errorf("%s: %v", name, e)
		}
		if n := len(r.n.proposed()); n > 0 {
			t.Errorf("%s: %d commits were proposed", name, n)
		}
	}
}

func TestHowOldAStaleAnswerMayBeIsAskedOfTheNode(t *testing.T) {
	l, err := Limits{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	tr := &translator{l: &l}
	if o, fact := tr.freshness(7, true, durationpb.New(2*time.Second)); fact != nil || o != (core.ReadOptions{MinIndex: 7, Stale: true, MaxStale: 2000}) {
		t.Errorf("%+v, %v", o, fact)
	}
	for name, c := range map[string]struct {
		stale bool
		max   time.Duration
	}{"without stale": {false, time.Second}, "negative": {true, -time.Second}} {
		f, ok := func() (core.Invalid, bool) {
			_, fact := tr.freshness(0, c.stale, durationpb.New(c.max))
			f, ok := fact.(core.Invalid)
			return f, ok
		}()
		if !ok || f.Field != "max_staleness" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestARangeThatNobodyReadsEndsAfterItsTime(t *testing.T) {
	r := newRig(t, Limits{})
	r.n.endless.Store(true)
	kv := pb.NewKVServiceClient(r.conn)
	if _, err := kv.Put(as("acme/all"), &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}); err != nil {
		t.Fatal(err)
	}
	stream, err := kv.Range(as("acme/all"), &pb.KVRangeRequest{Keyspace: "ks"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	before := r.s.Stats().Refusals["range_ms"]
	eventually(t, "its time runs", func() bool { return r.clock.armed() > 1 })
	r.clock.advance(rangeFor)
	for err == nil {
		_, err = stream.Recv()
	}
	expectCode(t, "the range", err, codes.Unavailable)
	if e := errorOf(t, err); e.GetReason() != "slow_consumer" || e.GetLimit() != "range_ms" {
		t.Errorf("it ended as %v", e)
	}
	if got := r.s.Stats().Refusals["range_ms"]; got != before+1 {
		t.Errorf("%d refusals are counted", got-before)
	}
}
