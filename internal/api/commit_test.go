package api

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func TestACommitOfAllOps(t *testing.T) {
	r := newRig(t, edge.Limits{})
	hold := &pb.Hold{Id: apitest.ID(1), Token: 4}
	checks := []*pb.KVCheck{
		{Keyspace: "ks", Key: []byte("a"), Compare: pb.KVCheck_ABSENT},
		{Keyspace: "ks", Key: []byte("b"), Compare: pb.KVCheck_EQUAL, Operand: &pb.KVCheck_Rev{Rev: 3}},
		{Keyspace: "ks", Key: []byte("c"), Compare: pb.KVCheck_LESS, Operand: &pb.KVCheck_Value{Value: []byte("v")}},
	}
	out, err := pb.NewCommitServiceClient(r.conn).Commit(apitest.As("acme/all"), &pb.CommitRequest{
		RequestId: apitest.Repeat(16, byte(1)), Conditions: checks, Ops: []*pb.Op{
			{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "q", Id: apitest.ID(2)}}},
			{Op: &pb.Op_TaskComplete{TaskComplete: &pb.TaskComplete{Task: hold, Complete: &pb.Complete{Result: []byte("r")}}}},
			{Op: &pb.Op_TaskFail{TaskFail: &pb.TaskFail{Task: hold, Fail: &pb.Fail{Fatal: true}}}},
			{Op: &pb.Op_TaskSnooze{TaskSnooze: &pb.TaskSnooze{Task: hold, Snooze: &pb.Snooze{Until: timestamppb.New(apitest.Now)}}}},
			{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte("k"), IfRev: new(uint64(0)), WantPrev: true}}},
			{Op: &pb.Op_KvDelete{KvDelete: &pb.KVDelete{Keyspace: "ks", Key: []byte("d"), IfRev: new(uint64(5))}}},
			{Op: &pb.Op_KvCheck{KvCheck: checks[0]}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.GetResults()) != 7 || out.GetResults()[0].GetTask() != apitest.ID(2) || out.GetResults()[4].GetRev() != 7 {
		t.Errorf("results: %v", out)
	}
	c := r.n.Proposed()[0]
	if c.RequestID != core.RequestID(apitest.Repeat(16, byte(1))) || len(c.Conditions) != 3 || c.Conditions[1].Target != core.TargetRev || c.Conditions[2].Compare != core.CompareLess {
		t.Errorf("commit: %+v", c)
	}
	put := c.Ops[4].(*core.KVPut)
	if !put.HasRev || put.IfRev != 0 || !put.WantPrev || c.Ops[5].(*core.KVDelete).IfRev != 5 || c.Ops[3].(*core.TaskSnooze).Until == 0 {
		t.Errorf("ops: %+v", c.Ops)
	}
}

func TestBadCommitsAreRefusedWithTheirPath(t *testing.T) {
	op := func(p *pb.KVPut) []*pb.Op {
		return []*pb.Op{apitest.PutCommit().GetOps()[0], {Op: &pb.Op_KvPut{KvPut: p}}}
	}
	check := func(c *pb.KVCheck) *pb.CommitRequest { return &pb.CommitRequest{Conditions: []*pb.KVCheck{c}} }
	r := newRig(t, edge.Limits{})
	for name, c := range map[string]struct {
		in    *pb.CommitRequest
		field string
	}{
		"nothing":              {&pb.CommitRequest{}, "ops"},
		"request id of 15":     {&pb.CommitRequest{RequestId: apitest.Repeat(15, byte(1)), Ops: apitest.PutCommit().GetOps()}, "request_id"},
		"request id of zeroes": {&pb.CommitRequest{RequestId: make([]byte, 16), Ops: apitest.PutCommit().GetOps()}, "request_id"},
		"fence without token":  {&pb.CommitRequest{Fence: &pb.Fence{Task: apitest.ID(1)}, Ops: apitest.PutCommit().GetOps()}, "fence.token"},
		"fence without task":   {&pb.CommitRequest{Fence: &pb.Fence{Token: 1}, Ops: apitest.PutCommit().GetOps()}, "fence.task"},
		"empty key":            {&pb.CommitRequest{Ops: op(&pb.KVPut{Keyspace: "ks"})}, "ops[1].key"},
		"keyspace with colon":  {&pb.CommitRequest{Ops: op(&pb.KVPut{Keyspace: "a:b", Key: []byte("k")})}, "ops[1].keyspace"},
		"rev and absent":       {&pb.CommitRequest{Ops: op(&pb.KVPut{Keyspace: "a", Key: []byte("k"), IfAbsent: true, IfRev: new(uint64(3))})}, "ops[1].if_rev"},
		"empty op":             {&pb.CommitRequest{Ops: []*pb.Op{{}}}, "ops[0]"},
		"no comparison":        {check(&pb.KVCheck{Keyspace: "a", Key: []byte("k")}), "conditions[0].compare"},
		"unknown comparison":   {check(&pb.KVCheck{Keyspace: "a", Key: []byte("k"), Compare: 99}), "conditions[0].compare"},
		"equal to nothing":     {check(&pb.KVCheck{Keyspace: "a", Key: []byte("k"), Compare: pb.KVCheck_EQUAL}), "conditions[0].compare"},
		"exists with operand":  {check(&pb.KVCheck{Keyspace: "a", Key: []byte("k"), Compare: pb.KVCheck_EXISTS, Operand: &pb.KVCheck_Rev{}}), "conditions[0].compare"},
		"task op without task": {&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_TaskFail{TaskFail: &pb.TaskFail{}}}}}, "ops[0].task.id"},
		"bad task in commit":   {&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "q", Unique: &pb.Unique{Key: "k", Ttl: ms(-1)}}}}}}, "ops[0].unique.ttl"},
		"batch without id":     {&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_BatchSeal{BatchSeal: &pb.BatchSeal{}}}}}, "ops[0].id"},
		"cancel without id":    {&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_BatchCancel{BatchCancel: &pb.BatchCancel{}}}}}, "ops[0].id"},
		"cancel too fast":      {&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_BatchCancel{BatchCancel: &pb.BatchCancel{Id: apitest.ID(1), Rate: core.MaxBulkRate + 1}}}}}, "ops[0].rate"},
		"id and tag":           {&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{Id: apitest.ID(1), Tag: "t"}}}}}, "ops[0].id"},
		"follow-up of nothing": {&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{OnDone: &pb.TaskTemplate{}}}}}}, "ops[0].on_done.queue"},
		"snooze without when": {&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_TaskSnooze{TaskSnooze: &pb.TaskSnooze{
			Task: &pb.Hold{Id: apitest.ID(1), Token: 1},
		}}}}}, "ops[0].snooze"},
	} {
		if e := apitest.ErrorOf(t, commitOf(c.in)(r)); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != c.field {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestARefusedCommitNamesOpAndRevision(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Judge = func(core.Commit) core.Result {
		return core.Result{Refusal: &core.Refusal{Op: 2, Fact: core.RevMismatch{Rev: 41, Value: []byte("now")}}}
	}
	e := apitest.ErrorOf(t, commitOf(&pb.CommitRequest{Ops: apitest.Repeat(3, apitest.PutCommit().GetOps()[0])})(r))
	if e.GetCode() != "PRECONDITION_FAILED" || e.GetOp() != 2 || e.GetDetails()["rev"] != "41" || e.GetDetails()["value"] != "now" {
		t.Errorf("got %v", e)
	}
	_, err := pb.NewCommitServiceClient(r.conn).Commit(apitest.As("acme/kv:write"), apitest.PutCommit())
	if e := apitest.ErrorOf(t, err); e.GetDetails()["rev"] != "41" || e.GetDetails()["value"] != "" {
		t.Errorf("to a caller who may not read: %v", e)
	}
}

func TestOldValuesThatDoNotFitAnAnswerAreLeftOut(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Judge = func(c core.Commit) core.Result {
		res := apitest.Applied(c)
		for i := range res.Ops {
			res.Ops[i].Prev, res.Ops[i].Existed = make([]byte, mib), true
		}
		return res
	}
	out, err := pb.NewCommitServiceClient(r.conn).Commit(apitest.As("acme/all"), &pb.CommitRequest{Ops: apitest.Repeat(9, apitest.PutCommit().GetOps()[0])})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, o := range out.GetResults() {
		if len(o.GetPrev()) > 0 {
			kept++
		}
		if !o.GetExisted() {
			t.Error("existed was left out too")
		}
	}
	if kept != 3 || proto.Size(out) > 4*mib {
		t.Errorf("%d of 9 values, %d bytes", kept, proto.Size(out))
	}
}

// FuzzTranslateCommit feeds bytes that may be a commit to the way from the wire to core: it may refuse, never panic.
func FuzzTranslateCommit(f *testing.F) {
	for _, in := range []proto.Message{apitest.PutCommit(), &pb.CommitRequest{Fence: &pb.Fence{Task: apitest.ID(1), Token: 1}, Conditions: []*pb.KVCheck{apitest.ExistsCheck()}}} {
		b, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		f.Fatal(err)
	}
	known := make(shapes)
	known.add((&pb.CommitRequest{}).ProtoReflect().Descriptor())
	f.Fuzz(func(t *testing.T, b []byte) {
		in := new(pb.CommitRequest)
		if proto.Unmarshal(b, in) != nil || known.checkMessage(in) != nil {
			return
		}
		tr := Translator{l: &l, now: core.ShardTimeOf(apitest.Now)}
		tr.who.Scopes = ^tr.who.Scopes
		tr.rand = zeroRand{}
		c, fact := tr.Commit(in)
		if fact == nil && int64(c.EncodedSize()) > l.CommitBytes {
			t.Error("admitted beyond the limit")
		}
	})
}

type zeroRand struct{}

func (zeroRand) Uint64() uint64 { return 0 }

func (zeroRand) Fill(b []byte) { clear(b) }
