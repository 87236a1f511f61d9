package stream

import (
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func TestCreatedTasksAreSeparateCommitsUnlessAtomic(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	f := createFrame(1, 3)
	f.GetCreate().Tasks[1] = &pb.TaskSpec{Queue: "bad queue", Id: apitest.ID(9)}
	ws.send(f)
	a := ws.ack()
	if len(a.GetCreated()) != 3 || a.GetCreated()[0].GetId() == "" || a.GetCreated()[2].GetError() != nil {
		t.Errorf("ack: %v", a)
	}
	if e := a.GetCreated()[1].GetError(); e.GetField() != "tasks[1].queue" {
		t.Errorf("the bad one: %v", e)
	}
	if got := len(r.n.Proposed()); got != 2 {
		t.Errorf("%d commits, want 2", got)
	}
	f = createFrame(2, 3)
	f.GetCreate().Atomic = true
	ws.send(f)
	if a = ws.ack(); len(a.GetCreated()) != 3 || a.GetAt().GetIndex() == 0 {
		t.Errorf("atomic: %v", a)
	}
	commits := r.n.Proposed()
	if len(commits) != 3 || len(commits[2].Ops) != 3 || commits[2].Principal != "someone" {
		t.Errorf("atomic: %+v", commits)
	}
	f.GetCreate().Tasks[2] = &pb.TaskSpec{Queue: ""}
	ws.send(f)
	if e := ws.ack().GetError(); e.GetField() != "tasks[2].queue" {
		t.Errorf("atomic with a bad one: %v", e)
	}
	r.n.Judge = func(core.Commit) core.Result {
		return core.Result{Refusal: &core.Refusal{Op: 1, Fact: core.AlreadyExists{Kind: "task", ID: "x"}}}
	}
	f = createFrame(4, 2)
	f.GetCreate().Atomic = true
	ws.send(f)
	if e := ws.ack().GetError(); e.GetCode() != "ALREADY_EXISTS" || e.GetOp() != 1 {
		t.Errorf("atomic refused: %v", e)
	}
	ws.send(createFrame(5, 2))
	a = ws.ack()
	if e := a.GetCreated()[1].GetError(); e.GetCode() != "ALREADY_EXISTS" || e.Op != nil || a.GetError() != nil {
		t.Errorf("one refused: %v", a)
	}
}

func TestAnEmptyOrOverfullFrameIsRefusedByItsAck(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	for seq, n := range []int{0, 513} {
		ws.send(createFrame(uint64(seq), n))
		a := ws.ack()
		if a.GetSeq() != uint64(seq) || a.GetError().GetField() != "tasks" || len(a.GetCreated()) != 0 {
			t.Errorf("%d tasks: %v", n, a)
		}
	}
	f := createFrame(3, 1)
	f.GetCreate().Tasks[0].ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 0x01})
	ws.send(f)
	if e := ws.ack().GetError(); e.GetReason() != "unknown_field" || e.GetField() != "tasks[0]" {
		t.Errorf("unknown field: %v", e)
	}
	f = createFrame(4, 1)
	f.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 0x01})
	ws.send(f)
	if a := ws.ack(); a.GetSeq() != 4 || a.GetError().GetField() != "ClientFrame" {
		t.Errorf("unknown field next to the frame: %v", a)
	}
	ws.send(createFrame(5, 512))
	if a := ws.ack(); len(a.GetCreated()) != 512 {
		t.Errorf("a full frame: %v", a.GetError())
	}
}

func TestASettleIsOneCommitOfTheCompletionAndItsEffects(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, ses := r.greet(apitest.As("acme/all"), 1)
	full := apitest.DoneItem(1, 2)
	full.Effects = &pb.Effects{Conditions: []*pb.KVCheck{apitest.ExistsCheck()}, Ops: apitest.PutCommit().GetOps(), FailOnRefusal: true}
	retry := &pb.SettleItem{Id: apitest.ID(3), Token: 4, Outcome: &pb.SettleItem_Fail{Fail: &pb.Fail{
		Error: &pb.TaskError{Code: strings.Repeat("c", 99), Message: "m"}, RetryAfter: ms(0),
	}}}
	snooze := &pb.SettleItem{Id: apitest.ID(4), Token: 5, Outcome: &pb.SettleItem_Snooze{Snooze: &pb.Snooze{Delay: ms(9)}}}
	release := &pb.SettleItem{Id: apitest.ID(5), Token: 6, Outcome: &pb.SettleItem_Release{Release: &pb.Release{}}}
	none := &pb.SettleItem{Id: apitest.ID(6), Token: 7}
	misplaced := &pb.SettleItem{Id: apitest.ID(7), Token: 8, Outcome: release.GetOutcome(), Effects: &pb.Effects{}}
	ws.send(settleFrame(1, full, none, retry, snooze, misplaced, release))
	a := ws.ack()
	if len(a.GetSettled()) != 6 || len(a.GetSettled()[0].GetEffects()) != 1 || a.GetSettled()[0].GetEffects()[0].GetRev() != 7 {
		t.Fatalf("ack: %v", a)
	}
	if got := a.GetSettled()[0].GetState(); got != pb.State_COMPLETED {
		t.Errorf("state %v", got)
	}
	if e := a.GetSettled()[1].GetError(); e.GetField() != "items[1]" {
		t.Errorf("without an outcome: %v", e)
	}
	if e := a.GetSettled()[4].GetError(); e.GetReason() != "not_supported" || e.GetField() != "items[4].effects" {
		t.Errorf("effects of a release: %v", e)
	}
	commits := r.n.Proposed()
	if len(commits) != 4 || len(ses.Settled) != 4 {
		t.Fatalf("%d commits, %d settled", len(commits), len(ses.Settled))
	}
	c := commits[0]
	if len(c.Ops) != 2 || len(c.Conditions) != 1 || !c.FailOnRefusal || c.Ops[0].Kind() != core.OpTaskComplete || c.Ops[1].Kind() != core.OpKVPut {
		t.Errorf("commit: %+v", c)
	}
	fail := commits[1].Ops[0].(*core.TaskFail)
	if !fail.HasRetry || fail.RetryAfter != 0 || len(fail.Error.Code) != 64 {
		t.Errorf("fail: %+v", fail)
	}
}

func TestARefusedSettleNamesTheEffect(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	refusals := []*core.Refusal{
		{Op: 1, Fact: core.RevMismatch{Rev: 4, Value: []byte("now")}},
		{Op: 0, Fact: core.LeaseLost{Given: 2}},
		{Op: core.ConditionOp - 1, Fact: core.RevMismatch{Missing: true}},
	}
	next := 0
	r.n.Judge = func(core.Commit) core.Result {
		next++
		return core.Result{Refusal: refusals[next-1], FailedInstead: next == 1}
	}
	ws.send(settleFrame(1, apitest.DoneItem(1, 2), apitest.DoneItem(2, 3), apitest.DoneItem(3, 4)))
	got := ws.ack().GetSettled()
	if e := got[0].GetError(); e.GetCode() != "PRECONDITION_FAILED" || e.GetOp() != 0 || e.Op == nil || e.GetDetails()["value"] != "now" || !got[0].GetFailedInstead() {
		t.Errorf("effect: %v", got[0])
	}
	if e := got[1].GetError(); e.GetCode() != "LEASE_LOST" || e.Op != nil {
		t.Errorf("completion: %v", e)
	}
	if e := got[2].GetError(); e.GetOp() != -3 {
		t.Errorf("condition: %v", e)
	}
}

func TestAStreamCommitCarriesItsSequence(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, ses := r.greet(apitest.As("acme/all"), 3)
	ws.send(commitFrame(&pb.CommitFrame{Seq: 1, Commit: apitest.PutCommit(), CommitSeq: 9}))
	if a := ws.ack(); a.GetCommit().GetResults()[0].GetRev() != 7 || a.GetAt().GetIndex() == 0 {
		t.Errorf("ack: %v", a)
	}
	if c := r.n.Proposed()[0]; c.Session != ses.Spec.ID || c.Seq != 9 {
		t.Errorf("commit: %+v", c)
	}
	fenced := apitest.PutCommit()
	fenced.Fence = &pb.Fence{Task: apitest.ID(1), Token: 2}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 2, Commit: fenced, CommitSeq: 10}))
	if a := ws.ack(); a.GetError() != nil || a.GetCommit() == nil {
		t.Errorf("fenced, with a sequence: %v", a)
	}
	if c := r.n.Proposed()[1]; c.Session != ses.Spec.ID || c.Seq != 10 || c.Fence == nil || c.Fence.Token != 2 {
		t.Errorf("fenced commit: %+v", c)
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 3, Commit: fenced}))
	if a := ws.ack(); a.GetError() != nil || a.GetCommit() == nil {
		t.Errorf("fenced: %v", a)
	}
	request := apitest.PutCommit()
	request.RequestId = apitest.Repeat(16, byte(1))
	ws.send(commitFrame(&pb.CommitFrame{Seq: 4, Commit: request, CommitSeq: 11}))
	if e := ws.ack().GetError(); e.GetField() != "commit_seq" {
		t.Errorf("a sequence with a request id: %v", e)
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 5}))
	if e := ws.ack().GetError(); e.GetField() != "ops" {
		t.Errorf("of nothing: %v", e)
	}
	r.n.Judge = func(core.Commit) core.Result {
		return core.Result{Refusal: &core.Refusal{Op: 0, Fact: core.SessionExpired{}}}
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 6, Commit: apitest.PutCommit(), CommitSeq: 11}))
	if e := ws.ack().GetError(); e.GetCode() != "WRONG_STATE" || e.GetReason() != "session_expired" {
		t.Errorf("expired: %v", e)
	}
}

func TestRenewAnswersEachLease(t *testing.T) {
	r := newRig(t, edge.Limits{FrameItems: 2})
	ws, ses := r.greet(apitest.As("acme/all"), 1)
	renew := func(f *pb.RenewFrame) *pb.Ack {
		ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Renew{Renew: f}})
		return ws.ack()
	}
	hold := &pb.Hold{Id: apitest.ID(1), Token: 2}
	if a := renew(&pb.RenewFrame{Seq: 1, Items: []*pb.Hold{hold, hold}, Extend: ms(5000)}); len(a.GetRenewed()) != 2 {
		t.Errorf("items: %v", a)
	}
	if op := r.n.Proposed()[0].Ops[0].(*core.TaskRenew); op.Extend != 5000 {
		t.Errorf("extend: %+v", op)
	}
	if a := renew(&pb.RenewFrame{Seq: 2, All: true}); len(a.GetRenewed()) != 0 || a.GetError() != nil {
		t.Errorf("all of none: %v", a)
	}
	id, err := core.ParseTaskID(apitest.ID(1))
	if err != nil {
		t.Fatal(err)
	}
	ses.Mu.Lock()
	ses.Holds = apitest.Repeat(5, core.TaskHold{Task: id, Token: 2})
	ses.Mu.Unlock()
	if a := renew(&pb.RenewFrame{Seq: 3, All: true}); len(a.GetRenewed()) != 5 {
		t.Errorf("all: %v", a)
	}
	if got := len(r.n.Proposed()); got != 4 {
		t.Errorf("%d commits, want 1 and 3", got)
	}
	if e := renew(&pb.RenewFrame{Seq: 4, Items: []*pb.Hold{{Id: apitest.ID(1)}}}).GetError(); e.GetField() != "items[0].token" {
		t.Errorf("no token: %v", e)
	}
	if e := renew(&pb.RenewFrame{Seq: 5, All: true, Items: []*pb.Hold{hold}}).GetError(); e.GetField() != "items" {
		t.Errorf("items together with all: %v", e)
	}
	if e := renew(&pb.RenewFrame{Seq: 6, All: true, Extend: ms(1)}).GetError(); e.GetLimit() != "lease_ms" {
		t.Errorf("short: %v", e)
	}
}

func TestAProposalWithoutResultsIsAnsweredAsUnknownOrRefused(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	for seq, c := range map[uint64]struct {
		fact        core.Fact
		code        string
		showOutcome pb.Error_Outcome
	}{
		1: {core.Unavailable{Reason: "stopping", Unknown: true}, "UNAVAILABLE", pb.Error_UNKNOWN},
		2: {core.Unavailable{Reason: "overload", Limit: "proposals"}, "UNAVAILABLE", pb.Error_REFUSED},
		3: {core.DeadlineExceeded{Unknown: true}, "DEADLINE_EXCEEDED", pb.Error_UNKNOWN},
		4: {core.Exhausted{Limit: "disk"}, "RESOURCE_EXHAUSTED", pb.Error_REFUSED},
		5: {core.NotLeader{Leader: "n2"}, "NOT_LEADER", pb.Error_REFUSED},
	} {
		r.n.Mu.Lock()
		r.n.Ended = func([]core.Commit) core.Fact { return c.fact }
		r.n.Mu.Unlock()
		ws.send(createFrame(seq, 2))
		a := ws.ack()
		if a.GetSeq() != seq || a.GetError().GetCode() != c.code || a.GetError().GetOutcome() != c.showOutcome {
			t.Errorf("%v: %v", c.fact, a)
		}
	}
}

func TestANodeThatAnswersTooLittleIsInternal(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	st := r.d.open[sessionKey{r.n.Sessions[0].Part, r.n.Sessions[0].Spec.ID}]
	p := &pending{seq: 4, commits: 2, answers: r.s.Answers("create", false), load: load{frames: 1}}
	st.admit(p.load)
	st.done(p, core.Proposed{})
	if a := ws.ack(); a.GetSeq() != 4 || a.GetError().GetCode() != "INTERNAL" {
		t.Errorf("ack: %v", a)
	}
}

func TestStreamFramesBeyondALimitEndTheStream(t *testing.T) {
	sub := func(change func(*pb.Subscribe)) *pb.ClientFrame {
		f := subscribeFrame(1, 1)
		change(f.GetSubscribe())
		return f
	}
	for field, f := range map[string]*pb.ClientFrame{
		"subscribe.slots":            sub(func(s *pb.Subscribe) { s.Slots = 4097 }),
		"subscribe.batch":            sub(func(s *pb.Subscribe) { s.Batch = 129 }),
		"subscribe.queues":           sub(func(s *pb.Subscribe) { s.Queues = apitest.Repeat(65, s.Queues[0]) }),
		"subscribe.queues[0].name":   sub(func(s *pb.Subscribe) { s.Queues = []*pb.QueueWeight{{Name: ""}} }),
		"subscribe.queues[0].weight": sub(func(s *pb.Subscribe) { s.Queues[0].Weight = 1001 }),
		"subscribe.strict":           sub(func(s *pb.Subscribe) { s.Queues[0].Weight, s.Strict = 2, true }),
		"subscribe.queues[1].name":   sub(func(s *pb.Subscribe) { s.Queues, s.Strict = apitest.Repeat(2, s.Queues[0]), true }),
		"subscribe.lease":            sub(func(s *pb.Subscribe) { s.Lease = ms(5) }),
		"slots.sub":                  slotsFrame(9, 1),
		"slots.slots":                slotsFrame(1, 4097),
		"frame":                      {},
	} {
		r := newRig(t, edge.Limits{})
		ws, ses := r.greet(apitest.As("acme/all"), 1)
		ws.send(subscribeFrame(1, 4096))
		ws.send(f)
		if e := apitest.ErrorOf(t, ws.end()); e.GetField() != field {
			t.Errorf("%s: %v", field, e)
		}
		apitest.Eventually(t, "the session is closed", func() bool { _, _, closed := ses.State(); return closed })
	}
	r := newRig(t, edge.Limits{})
	ws, ses := r.greet(apitest.As("acme/all"), 1)
	for n := range uint32(16) {
		ws.send(subscribeFrame(n, 1))
	}
	ws.send(subscribeFrame(3, 2)) // again: no further one
	ws.send(slotsFrame(3, 0))
	apitest.Eventually(t, "the subscriptions are there", func() bool { n, _, _ := ses.State(); return n == 17 })
	if got := ses.Subs[0]; got.Batch != 128 || got.Queues[0].Weight != 1 {
		t.Errorf("defaults: %+v", got)
	}
	ws.send(subscribeFrame(99, 1))
	if e := apitest.ErrorOf(t, ws.end()); e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "subscriptions" || e.GetMax() != 16 {
		t.Errorf("a 17th subscription: %v", e)
	}
}

func TestAnOversizedFrameEndsTheStreamAndNamesTheLimit(t *testing.T) {
	r := newRig(t, edge.Limits{MessageBytes: 64 * kib})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	f := createFrame(1, 1)
	f.GetCreate().Tasks[0].Payload = make([]byte, 65*kib)
	ws.send(f)
	if e := apitest.ErrorOf(t, ws.end()); e.GetCode() != "TOO_LARGE" || e.GetLimit() != "grpc_message" {
		t.Errorf("end: %v", e)
	}
}
