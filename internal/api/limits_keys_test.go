package api

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

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
		r := newRig(t, edge.Limits{})
		_, err := pb.NewKeyspaceServiceClient(r.conn).Set(apitest.As("acme/all"), &pb.SetKeyspaceRequest{Keyspace: "ks", Config: c.config})
		apitest.ExpectCode(t, name, err, codes.InvalidArgument)
		if e := apitest.ErrorOf(t, err); e.GetField() != c.field || c.reason != "" && e.GetReason() != c.reason {
			t.Errorf("%s: %v", name, e)
		}
		if n := len(r.n.Proposed()); n > 0 {
			t.Errorf("%s: %d commits were proposed", name, n)
		}
	}
}

func TestHowOldAStaleAnswerMayBeIsAskedOfTheNode(t *testing.T) {
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	tr := &Translator{l: &l}
	if o, fact := tr.Freshness(7, true, durationpb.New(2*time.Second)); fact != nil || o != (core.ReadOptions{MinIndex: 7, Stale: true, MaxStale: 2000}) {
		t.Errorf("%+v, %v", o, fact)
	}
	for name, c := range map[string]struct {
		stale bool
		max   time.Duration
	}{"without stale": {false, time.Second}, "negative": {true, -time.Second}} {
		f, ok := func() (core.Invalid, bool) {
			_, fact := tr.Freshness(0, c.stale, durationpb.New(c.max))
			f, ok := fact.(core.Invalid)
			return f, ok
		}()
		if !ok || f.Field != "max_staleness" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestARangeThatNobodyReadsEndsAfterItsTime(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Endless.Store(true)
	kv := pb.NewKVServiceClient(r.conn)
	if _, err := kv.Put(apitest.As("acme/all"), &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}); err != nil {
		t.Fatal(err)
	}
	stream, err := kv.Range(apitest.As("acme/all"), &pb.KVRangeRequest{Keyspace: "ks"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	before := r.s.Stats().Refusals["range_ms"]
	apitest.Eventually(t, "its time runs", func() bool { return r.clock.Armed() > 1 })
	r.clock.Advance(rangeFor)
	for err == nil {
		_, err = stream.Recv()
	}
	apitest.ExpectCode(t, "the range", err, codes.Unavailable)
	if e := apitest.ErrorOf(t, err); e.GetReason() != "slow_consumer" || e.GetLimit() != "range_ms" {
		t.Errorf("it ended as %v", e)
	}
	if got := r.s.Stats().Refusals["range_ms"]; got != before+1 {
		t.Errorf("%d refusals are counted", got-before)
	}
}
