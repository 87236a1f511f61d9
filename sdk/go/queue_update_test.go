package millrace

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	fakeserver "github.com/millrace/millrace/test/sdk/fake"
)

// newerQueues is the queues of a server that is newer than this client: it has one queue.
type newerQueues struct {
	pb.UnimplementedQueueServiceServer
	mu  sync.Mutex // guards the fields below
	cfg *pb.QueueConfig
	set []*pb.SetQueueRequest
}

func (n *newerQueues) Get(context.Context, *pb.GetQueueRequest) (*pb.GetQueueResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &pb.GetQueueResponse{Config: n.cfg}, nil
}

func (n *newerQueues) Set(_ context.Context, r *pb.SetQueueRequest) (*pb.SetQueueResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set = append(n.set, r)
	return &pb.SetQueueResponse{Version: 9}, nil
}

// more adds a field that this client does not know.
func more(m proto.Message) {
	b := protowire.AppendTag(nil, 5000, protowire.VarintType)
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(b, 7))
}

// newer is a configuration with fields and a word that this client does not know.
func newer() *pb.QueueConfig {
	cfg := &pb.QueueConfig{
		Version: 8, MaxAttempts: 7, Lease: &durationpb.Duration{Seconds: 1, Nanos: 5}, Order: pb.QueueConfig_Order(6), Limiters: []string{"a"},
		PerKey: &pb.KeyLimits{Concurrency: 2, Rate: &pb.Rate{Limit: 5, Per: durationpb.New(time.Second)}}, Retry: &pb.Retry{Backoff: pb.Backoff(77), Factor: 3},
	}
	for _, m := range []proto.Message{cfg, cfg.PerKey, cfg.PerKey.Rate, cfg.Retry} {
		more(m)
	}
	return cfg
}

func TestAnUpdateKeepsSettingsThatItDoesNotKnow(t *testing.T) {
	n := &newerQueues{cfg: newer()}
	f := &fake{t: t, lis: bufconn.Listen(1 << 20)}
	f.Server = fakeserver.Serve(f.lis, func(s grpc.ServiceRegistrar) { pb.RegisterQueueServiceServer(s, n) })
	f.stop = f.Stop
	c := f.client(Transport(TransportStream))
	defer f.end(c)
	q := c.Queue("q")
	for name, one := range map[string]struct {
		change func(cfg *QueueConfig)
		want   func(w *pb.QueueConfig)
	}{
		"nothing":           {func(*QueueConfig) {}, func(*pb.QueueConfig) {}},
		"a number":          {func(cfg *QueueConfig) { cfg.Concurrency = 3 }, func(w *pb.QueueConfig) { w.Concurrency = 3 }},
		"a default":         {func(cfg *QueueConfig) { cfg.MaxAttempts = 0 }, func(w *pb.QueueConfig) { w.MaxAttempts = 0 }},
		"a word":            {func(cfg *QueueConfig) { cfg.Order = "strict" }, func(w *pb.QueueConfig) { w.Order = pb.QueueConfig_STRICT }},
		"the default word":  {func(cfg *QueueConfig) { cfg.Order = "fifo" }, func(w *pb.QueueConfig) { w.Order = pb.QueueConfig_FIFO }},
		"a part of a limit": {func(cfg *QueueConfig) { cfg.PerKey.Concurrency = 4 }, func(w *pb.QueueConfig) { w.PerKey.Concurrency = 4 }},
		"a rate":            {func(cfg *QueueConfig) { cfg.PerKey.Rate.Burst = 9 }, func(w *pb.QueueConfig) { w.PerKey.Rate.Burst = 9 }},
		"no limits of keys": {func(cfg *QueueConfig) { cfg.PerKey = KeyLimits{} }, func(w *pb.QueueConfig) { w.PerKey = nil }},
		"a list, in place":  {func(cfg *QueueConfig) { cfg.Limiters[0] = "b" }, func(w *pb.QueueConfig) { w.Limiters = []string{"b"} }},
	} {
		if v, err := q.Update(t.Context(), one.change); err != nil || v != 9 {
			t.Fatalf("%s: %d, %v", name, v, err)
		}
		want := newer()
		want.Version = 0
		one.want(want)
		got := n.set[len(n.set)-1]
		if !proto.Equal(got.Config, want) || got.GetIfVersion() != 8 {
			t.Errorf("%s: set to %v if %d, want %v", name, got.Config, got.GetIfVersion(), want)
		}
	}
}

func TestAnUpdateOverRESTKeepsSettingsThatItDoesNotKnow(t *testing.T) {
	const was = `{"version":"8","max_attempts":7,"new":{"a":[1,"\u00e9"]},"order":"newest","aging":"60s","per_key":{"concurrency":2,"new":9007199254740993,` +
		`"rate":{"limit":5,"per":"1s","new":true}},"gone":null,"retry":{"factor":3,"new":"x"}}`
	f, w := newFake(t), newWeb(t)
	w.on("GET /v1/queues/q", was)
	w.on("PUT /v1/queues/q", `{"version":"9"}`)
	c := w.client(f, Transport(TransportREST))
	defer f.end(c)
	for name, one := range map[string]struct {
		change func(cfg *QueueConfig)
		want   string
	}{
		"a number": {
			func(cfg *QueueConfig) { cfg.Concurrency, cfg.PerKey.Concurrency = 3, 4 },
			`{"max_attempts":7,"concurrency":3,"new":{"a":[1,"é"]},"order":"newest","aging":"1m0s","per_key":{"concurrency":4,"new":9007199254740993,` +
				`"rate":{"limit":5,"per":"1s","new":true}},"retry":{"factor":3,"new":"x"}}`,
		},
		"a word": {
			func(cfg *QueueConfig) { cfg.Order, cfg.Retry, cfg.PerKey = "strict", RetryPolicy{}, KeyLimits{} },
			`{"max_attempts":7,"new":{"a":[1,"é"]},"order":"strict","aging":"1m0s"}`,
		},
		"the default word": {
			func(cfg *QueueConfig) { cfg.Order, cfg.Retry, cfg.PerKey = "fifo", RetryPolicy{}, KeyLimits{} },
			`{"max_attempts":7,"new":{"a":[1,"é"]},"aging":"1m0s"}`,
		},
	} {
		if _, err := c.Queue("q").Update(t.Context(), one.change); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all := w.bodies("PUT /v1/queues/q")
		if got := all[len(all)-1]; !sameJSON(t, []byte(got), []byte(one.want)) {
			t.Errorf("%s: set to\n%s, want\n%s", name, got, one.want)
		}
	}
}

// What REST cannot say is refused, and not left out.
func TestASettingThatRESTCannotCarryIsRefused(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	w.on("PUT /v1/queues/q", `{"version":"9"}`)
	c := w.client(f, Transport(TransportREST))
	defer f.end(c)
	_, err := c.Queue("q").set(t.Context(), newer(), nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeInvalidArgument || e.Field != "config" {
		t.Errorf("got %v", err)
	}
	if all := w.bodies("PUT /v1/queues/q"); len(all) > 0 {
		t.Errorf("sent %s", all)
	}
}
