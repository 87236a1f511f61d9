package api

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func TestQueuesAreListedByName(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	var names []string
	in := &pb.ListQueuesRequest{Limit: 2}
	for {
		out, err := r.queues().List(apitest.As("acme/all"), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range out.GetQueues() {
			names = append(names, q.GetQueue())
		}
		if in.Cursor = out.GetCursor(); in.GetCursor() == "" {
			break
		}
	}
	if got := strings.Join(names, ","); got != "q0,q1,q2,q3,q4" {
		t.Errorf("got %s", got)
	}
	in.Cursor = showCursor([]byte("a b"))
	_, err := r.queues().List(apitest.As("acme/all"), in)
	if e := apitest.ErrorOf(t, err); e.GetField() != "cursor" {
		t.Errorf("bad cursor: %v", e)
	}
}

func TestQueueConfigurationSurvivesTheEdge(t *testing.T) {
	r := newRig(t, edge.Limits{})
	in := &pb.QueueConfig{
		MaxAttempts: 3, MaxCrashes: 4, MaxDeliveries: new(int32(0)), Lease: ms(7000), MaxRun: ms(8),
		Retry:      &pb.Retry{Backoff: pb.Backoff_FIXED, Base: ms(9), Factor: 1.5, Max: ms(10)},
		MaxPayload: 11, Aging: ms(0), RetainCompleted: ms(0), RetainCancelled: ms(12), RetainDead: ms(13),
		Fairness: pb.QueueConfig_NONE, Order: pb.QueueConfig_STRICT, Concurrency: 14, Rate: &pb.Rate{Limit: 15, Per: ms(16), Burst: 17},
		PerKey: &pb.KeyLimits{Concurrency: 18, Rate: &pb.Rate{Limit: 19, Per: ms(20)}}, MaxWorkers: 21,
	}
	out, err := r.queues().Set(apitest.As("acme/all"), &pb.SetQueueRequest{Queue: "mail", Config: in, IfVersion: new(uint64(2))})
	if err != nil || out.GetVersion() != 3 {
		t.Fatalf("set: %v, %v", out, err)
	}
	op := r.n.Proposed()[0].Ops[0].(*core.QueueSet)
	if op.IfVersion != 2 || op.Config.Aging != -1 || op.Config.RetainCompleted != -1 || op.Config.MaxDeliveries != -1 {
		t.Errorf("op: %+v", op)
	}
	in.Pinned = true // it says so of itself
	if got := showQueueConfig(op.Config); !proto.Equal(got, in) {
		t.Errorf("shown as %v", got)
	}
	if got := showQueueConfig(core.QueueConfig{}); !proto.Equal(got, &pb.QueueConfig{}) {
		t.Errorf("defaults are shown as %v", got)
	}
	get, err := r.queues().Get(apitest.As("acme/all"), &pb.GetQueueRequest{Queue: "mail"})
	if err != nil || get.GetConfig().GetVersion() != 2 || get.GetConfig().GetAging() == nil {
		t.Errorf("get: %v, %v", get, err)
	}
	for field, bad := range map[string]*pb.SetQueueRequest{
		"config":                     {Queue: "q"},
		"config.concurrency":         {Queue: "q", Config: &pb.QueueConfig{Concurrency: -1}},
		"config.rate.limit":          {Queue: "q", Config: &pb.QueueConfig{Rate: &pb.Rate{Per: ms(1)}}},
		"config.rate.per":            {Queue: "q", Config: &pb.QueueConfig{Rate: &pb.Rate{Limit: 1}}},
		"config.rate":                {Queue: "q", Config: &pb.QueueConfig{Rate: &pb.Rate{Limit: 1_000_001, Per: ms(1)}}},
		"config.per_key.rate.burst":  {Queue: "q", Config: &pb.QueueConfig{PerKey: &pb.KeyLimits{Rate: &pb.Rate{Limit: 1, Per: ms(1), Burst: -1}}}},
		"config.per_key.concurrency": {Queue: "q", Config: &pb.QueueConfig{PerKey: &pb.KeyLimits{Concurrency: 1 << 40}}},
		"config.max_workers":         {Queue: "q", Config: &pb.QueueConfig{MaxWorkers: -1}},
		"config.max_payload":         {Queue: "q", Config: &pb.QueueConfig{MaxPayload: mib + 1}},
		"config.aging":               {Queue: "q", Config: &pb.QueueConfig{Aging: ms(-1)}},
		"config.retain_dead":         {Queue: "q", Config: &pb.QueueConfig{RetainDead: ms(-1)}},
		"config.retain_cancelled":    {Queue: "q", Config: &pb.QueueConfig{RetainCancelled: ms(-1)}},
		"config.max_attempts":        {Queue: "q", Config: &pb.QueueConfig{MaxAttempts: -1}},
		"if_version":                 {Queue: "q", Config: &pb.QueueConfig{}, IfVersion: new(uint64(1 << 63))},
		"queue":                      {Queue: "q q", Config: &pb.QueueConfig{}},
	} {
		_, err := r.queues().Set(apitest.As("acme/all"), bad)
		if e := apitest.ErrorOf(t, err); e.GetField() != field {
			t.Errorf("%s: %v", field, e)
		}
	}
}

func TestNamespaceConfigurationSurvivesTheEdge(t *testing.T) {
	r := newRig(t, edge.Limits{})
	set := &pb.SetNamespaceRequest{Config: &pb.NamespaceConfig{AutoCreate: new(false), RetainBytes: 9}}
	if out, err := r.queues().SetNamespace(apitest.As("acme/all"), set); err != nil || out.GetVersion() != 3 {
		t.Fatalf("set: %v, %v", out, err)
	}
	op := r.n.Proposed()[0].Ops[0].(*core.NamespaceSet)
	if op.IfVersion != -1 || !op.Config.NoAutoCreate || op.Config.RetainBytes != 9 {
		t.Errorf("op: %+v", op)
	}
	get, err := r.queues().GetNamespace(apitest.As("acme/all"), &pb.GetNamespaceRequest{})
	if err != nil || get.GetConfig().GetVersion() != 4 || get.GetConfig().GetAutoCreate() {
		t.Errorf("get: %v, %v", get, err)
	}
	set.Config.RetainBytes = -1
	_, err = r.queues().SetNamespace(apitest.As("acme/all"), set)
	if e := apitest.ErrorOf(t, err); e.GetField() != "config.retain_bytes" {
		t.Errorf("negative: %v", e)
	}
}
