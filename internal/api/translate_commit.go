package api

import (
	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// The longest texts of a failed attempt; longer ones are cut, never refused.
const (
	errorCodeBytes    = 64
	errorMessageBytes = 4 * kib
	errorStackBytes   = 16 * kib
)

// taskOps are the ops of tasks.
var taskOps = []opRow{
	opOf(core.OpTaskCreate, auth.TaskCreate, func(t *Translator, in *pb.Op_TaskCreate) (core.Op, core.Fact) {
		return asOp(t.taskCreate(in.TaskCreate))
	}),
	opOf(core.OpTaskComplete, auth.TaskWork, func(t *Translator, in *pb.Op_TaskComplete) (core.Op, core.Fact) {
		return asOp(t.taskComplete(in.TaskComplete))
	}),
	opOf(core.OpTaskFail, auth.TaskWork, func(t *Translator, in *pb.Op_TaskFail) (core.Op, core.Fact) { return asOp(t.taskFail(in.TaskFail)) }),
	opOf(core.OpTaskSnooze, auth.TaskWork, func(t *Translator, in *pb.Op_TaskSnooze) (core.Op, core.Fact) {
		return asOp(t.taskSnooze(in.TaskSnooze))
	}),
	opOf(core.OpTaskCancel, auth.TaskCreate, func(t *Translator, in *pb.Op_TaskCancel) (core.Op, core.Fact) {
		return asOp(t.taskCancel(in.TaskCancel))
	}).orAny(auth.TaskOperate | auth.Admin),
	opOf(core.OpQueuePause, auth.TaskWork, func(t *Translator, in *pb.Op_QueuePause) (core.Op, core.Fact) { // a handler pauses its queue
		return asOp(t.queuePause(in.QueuePause))
	}).orAny(auth.TaskOperate | auth.Admin),
}

// Commit reads a commit, with a fence or without.
// Parts are read in the order in which a client would look for a mistake: sizes, fence, request id,
// conditions, ops, and last whether all are of one partition and fit an entry.
func (t *Translator) Commit(in *pb.CommitRequest) (c core.Commit, fact core.Fact) {
	c = core.Commit{Partition: t.part, Principal: t.who.Name}
	if fact = t.commitSize(len(in.GetConditions()), len(in.GetOps())); fact != nil {
		return c, fact
	}
	// A fence needs the right to work on tasks: it tells whether a lease is live.
	if f := in.GetFence(); f != nil {
		if fact = fenceRule.Missing(t.who.Scopes); fact != nil {
			return c, fact
		}
		h, fact := hold("fence.task", "fence.token", f.GetTask(), f.GetToken())
		if fact != nil {
			return c, fact
		}
		if fact = t.ReachesTask(h.Task); fact != nil {
			return c, fact
		}
		c.Fence = &core.Fence{Task: h.Task, Token: h.Token}
	}
	if c.RequestID, fact = requestID(in.GetRequestId()); fact != nil {
		return c, fact
	}
	// Before the ops are read, whose tasks draw their ids.
	t.repeatableBy(c.RequestID, endedBy(in.GetOps()))
	// Ids are then sorted near the task whose worker commits.
	if c.Fence != nil {
		t.seedMs = c.Fence.Task.Millis()
	}
	if c.Conditions, fact = t.conditions(in.GetConditions()); fact != nil {
		return c, fact
	}
	c.Ops = make([]core.Op, 0, len(in.GetOps()))
	if c.Ops, fact = t.ops(c.Ops, in.GetOps()); fact != nil {
		return c, fact
	}
	if fact = t.place(&c, 0); fact != nil {
		return c, fact
	}
	return c, FitsLog(t.l, &c)
}

// endedBy returns the first lease that ops end; without one the token is 0.
// A commit with a fence may end its lease, or others: the first one that is named makes it repeatable.
func endedBy(ops []*pb.Op) core.TaskHold {
	for _, op := range ops {
		var in *pb.Hold
		switch o := op.GetOp().(type) {
		case *pb.Op_TaskComplete:
			in = o.TaskComplete.GetTask()
		case *pb.Op_TaskFail:
			in = o.TaskFail.GetTask()
		case *pb.Op_TaskSnooze:
			in = o.TaskSnooze.GetTask()
		default:
			continue
		}
		// One that cannot be read is refused when its op is.
		if id, err := core.ParseTaskID(in.GetId()); err == nil {
			return core.TaskHold{Task: id, Token: core.Token(in.GetToken())}
		}
	}
	return core.TaskHold{}
}

// commitSize refuses a commit of nothing, and one of too many parts.
func (t *Translator) commitSize(conditions, ops int) core.Fact {
	if conditions+ops == 0 {
		return edge.Invalid("ops", "must not be empty")
	}
	// Conditions cost as much as ops: each reads a key.
	if int64(conditions+ops) > t.l.CommitOps {
		return edge.TooLarge("ops", "commit_ops", t.l.CommitOps)
	}
	return nil
}

// FitsLog refuses a commit that is too large for an entry of the log.
func FitsLog(l *edge.Limits, c *core.Commit) core.Fact {
	if int64(c.EncodedSize()) > l.CommitBytes {
		return edge.TooLarge("ops", "commit_bytes", l.CommitBytes)
	}
	return nil
}

// conditions reads the conditions of a commit, which its caller must be allowed to ask.
// They are judged before any op, and all must hold.
func (t *Translator) conditions(in []*pb.KVCheck) ([]*core.KVCheck, core.Fact) {
	if len(in) == 0 {
		return nil, nil
	}
	if fact := conditionRule.Missing(t.who.Scopes); fact != nil {
		return nil, fact
	}
	out := make([]*core.KVCheck, len(in))
	for i, c := range in {
		var fact core.Fact
		if out[i], fact = t.kvCheck(c); fact != nil {
			return nil, edge.Within(edge.Item("conditions", i), fact)
		}
	}
	return out, nil
}

// taskComplete reads an op that ends the attempt of a lease with its result.
func (t *Translator) taskComplete(in *pb.TaskComplete) (*core.TaskComplete, core.Fact) {
	h, fact := hold("task.id", "task.token", in.GetTask().GetId(), in.GetTask().GetToken())
	if fact != nil {
		return nil, fact
	}
	return t.complete(h, in.GetComplete())
}

// taskFail reads an op that fails the attempt of a lease.
func (t *Translator) taskFail(in *pb.TaskFail) (*core.TaskFail, core.Fact) {
	h, fact := hold("task.id", "task.token", in.GetTask().GetId(), in.GetTask().GetToken())
	if fact != nil {
		return nil, fact
	}
	return t.fail(h, in.GetFail())
}

// taskSnooze reads an op that puts the task of a lease off.
func (t *Translator) taskSnooze(in *pb.TaskSnooze) (*core.TaskSnooze, core.Fact) {
	h, fact := hold("task.id", "task.token", in.GetTask().GetId(), in.GetTask().GetToken())
	if fact != nil {
		return nil, fact
	}
	return t.snooze(h, in.GetSnooze())
}

// complete reads the result of a task; nil is an empty one.
// It is that of an op of a commit, and of a settle.
func (t *Translator) complete(h core.TaskHold, in *pb.Complete) (*core.TaskComplete, core.Fact) {
	// Refused, and not cut: a part of a result is not one.
	if int64(len(in.GetResult())) > t.l.ResultBytes {
		return nil, edge.TooLarge("complete.result", "result_bytes", t.l.ResultBytes)
	}
	fact := TextUpTo("complete.result_type", in.GetResultType(), "content_type_bytes", t.l.ContentTypeBytes)
	if fact != nil {
		return nil, fact
	}
	return &core.TaskComplete{Task: h.Task, Token: h.Token, Result: in.GetResult(), ResultType: in.GetResultType()}, nil
}

// fail reads the error of an attempt. Texts that are too long are cut: an attempt must be able to end.
func (t *Translator) fail(h core.TaskHold, in *pb.Fail) (*core.TaskFail, core.Fact) {
	op := &core.TaskFail{Task: h.Task, Token: h.Token, Fatal: in.GetFatal(), HasRetry: in.GetRetryAfter() != nil}
	op.Error = taskError(in.GetError())
	var fact core.Fact
	op.RetryAfter, fact = Millis("fail.retry_after", in.GetRetryAfter(), Span{0, t.l.RetryAfterMs, "retry_after_ms"})
	return op, fact
}

// stop reads the end of an attempt whose cancel was asked for.
func (t *Translator) stop(h core.TaskHold, in *pb.Stop) (*core.TaskStop, core.Fact) {
	return &core.TaskStop{Task: h.Task, Token: h.Token, Error: taskError(in.GetError())}, t.operated("stop")
}

// taskError reads what an attempt reports. Longer texts are cut.
// Cut between runes, so that the texts stay UTF-8.
func taskError(in *pb.TaskError) core.TaskError {
	return core.TaskError{
		Code:    core.Cut(in.GetCode(), errorCodeBytes),
		Message: core.Cut(in.GetMessage(), errorMessageBytes),
		Stack:   core.Cut(in.GetStack(), errorStackBytes),
	}
}

// snooze reads until when an attempt is put off: a time, or a delay from the entry on.
func (t *Translator) snooze(h core.TaskHold, in *pb.Snooze) (*core.TaskSnooze, core.Fact) {
	op := &core.TaskSnooze{Task: h.Task, Token: h.Token}
	// Exactly one of the two.
	if (in.GetUntil() == nil) == (in.GetDelay() == nil) {
		return nil, edge.Invalid("snooze", "give either until or delay")
	}
	var fact core.Fact
	if op.Until, fact = moment("snooze.until", in.GetUntil(), t.now, t.l.HorizonMs); fact != nil {
		return nil, fact
	}
	op.Delay, fact = Millis("snooze.delay", in.GetDelay(), HorizonSpan(t.l))
	return op, fact
}

// key holds a keyspace and a key to their forms.
// Keys are any bytes; names of keyspaces have an alphabet.
func (t *Translator) key(keyspace string, key []byte) core.Fact {
	if fact := edge.SpaceName("keyspace", keyspace); fact != nil {
		return fact
	}
	return KeyLength(t.l, "key", key)
}

// KeyLength refuses a key that is empty or too long; field names it.
func KeyLength(l *edge.Limits, field string, key []byte) core.Fact {
	if len(key) == 0 {
		return edge.Invalid(field, "must not be empty")
	}
	if int64(len(key)) > l.KeyBytes {
		return edge.TooLarge(field, "key_bytes", l.KeyBytes)
	}
	return nil
}

// kvPut reads a put. The old value is shown only to who may read values.
// Whether its condition holds is judged in Apply.
func (t *Translator) kvPut(in *pb.KVPut) (*core.KVPut, core.Fact) {
	if fact := t.key(in.GetKeyspace(), in.GetKey()); fact != nil {
		return nil, fact
	}
	if int64(len(in.GetValue())) > t.l.ValueBytes {
		return nil, edge.TooLarge("value", "value_bytes", t.l.ValueBytes)
	}
	// Another right than writing: a put would else read.
	if in.GetWantPrev() && !t.who.Scopes.Has(edge.ReadsValues) {
		return nil, core.Denied{Scope: edge.ReadsValues.String()}
	}
	// if_rev 0 says the same as if_absent, so both together are allowed.
	if in.GetIfAbsent() && in.GetIfRev() != 0 {
		return nil, edge.Invalid("if_rev", "and if_absent are mutually exclusive")
	}
	return &core.KVPut{
		Keyspace: in.GetKeyspace(), Key: in.GetKey(), Value: in.GetValue(),
		HasRev: in.IfRev != nil, IfRev: in.GetIfRev(), IfAbsent: in.GetIfAbsent(), WantPrev: in.GetWantPrev(),
	}, nil
}

// kvDelete reads a delete of one key.
func (t *Translator) kvDelete(in *pb.KVDelete) (*core.KVDelete, core.Fact) {
	if fact := t.key(in.GetKeyspace(), in.GetKey()); fact != nil {
		return nil, fact
	}
	return &core.KVDelete{
		Keyspace: in.GetKeyspace(), Key: in.GetKey(), HasRev: in.IfRev != nil, IfRev: in.GetIfRev(),
	}, nil
}

// kvCheck reads a condition: whether a key is there, or how its revision or its value compares with an operand.
// Values are compared byte by byte.
func (t *Translator) kvCheck(in *pb.KVCheck) (*core.KVCheck, core.Fact) {
	if fact := t.key(in.GetKeyspace(), in.GetKey()); fact != nil {
		return nil, fact
	}
	op := &core.KVCheck{Keyspace: in.GetKeyspace(), Key: in.GetKey(), Compare: core.Compare(in.GetCompare())}
	switch o := in.GetOperand().(type) {
	case *pb.KVCheck_Rev:
		op.Target, op.Rev = core.TargetRev, o.Rev
	case *pb.KVCheck_Value:
		if int64(len(o.Value)) > t.l.ValueBytes {
			return nil, edge.TooLarge("value", "value_bytes", t.l.ValueBytes)
		}
		op.Target, op.Value = core.TargetValue, o.Value
	}
	switch in.GetCompare() {
	// Whether there is an operand depends on what is compared.
	case pb.KVCheck_EXISTS, pb.KVCheck_ABSENT:
		if op.Target != 0 {
			return nil, edge.Invalid("compare", "takes no operand")
		}
	case pb.KVCheck_EQUAL, pb.KVCheck_NOT_EQUAL, pb.KVCheck_LESS, pb.KVCheck_GREATER:
		if op.Target == 0 {
			return nil, edge.Invalid("compare", "needs rev or value to compare with")
		}
	case pb.KVCheck_COMPARE_UNSPECIFIED:
		return nil, edge.Invalid("compare", "is required")
	default:
		return nil, edge.NotSupported("compare")
	}
	return op, nil
}

// taskCancel reads the cancel of a task as an op of a commit.
// The task must be of the commit's partition.
func (t *Translator) taskCancel(in *pb.TaskCancel) (*core.TaskCancel, core.Fact) {
	id, fact := ReadTaskID("id", in.GetId())
	if fact == nil {
		fact = t.operated("id")
	}
	if fact == nil {
		fact = reason(in.GetReason())
	}
	return &core.TaskCancel{Task: id, Reason: in.GetReason(), Force: in.GetForce()}, fact
}

// queuePause reads the pause of a queue as an op of a commit: it is that of the commit's partition.
func (t *Translator) queuePause(in *pb.QueuePause) (*core.QueuePause, core.Fact) {
	fact := QueueName("queue", in.GetQueue())
	if fact == nil {
		fact = t.operated("queue")
	}
	if fact == nil {
		fact = reason(in.GetReason())
	}
	if fact != nil {
		return nil, fact
	}
	until, fact := moment("until", in.GetUntil(), t.now, t.l.HorizonMs)
	return &core.QueuePause{Queue: in.GetQueue(), Resume: in.GetResume(), Until: until, Reason: in.GetReason()}, fact
}

// operated is Server.operated, of which a test of translations has none.
func (t *Translator) operated(field string) core.Fact {
	if t.edge.s == nil {
		return nil
	}
	return t.edge.s.operated(field)
}
