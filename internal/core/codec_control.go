package core

import "math"

// The encoding of the ops by which a queue is operated, and of the settings that came with them.

// controlOp writes what follows the kind of one of these ops: its fixed fields, then those with presence bits.
func (w *writer) controlOp(op Op) {
	switch op := op.(type) {
	case *TaskCancel:
		w.id(op.Task)
		f := w.fields(false)
		f.has(op.Force)
		f.text(op.Reason)
	case *TaskStop:
		w.hold(TaskHold{op.Task, op.Token})
		f := w.fields(false)
		f.text(op.Error.Code)
		f.text(op.Error.Message)
		f.text(op.Error.Stack)
	case *TaskRedrive:
		w.id(op.Task)
	case *TaskForceRelease:
		w.id(op.Task)
		w.uint(uint64(op.Attempt))
	case *TaskUpdate:
		w.taskUpdate(op)
	case *QueuePause:
		w.name(op.Queue)
		f := w.fields(false)
		f.has(op.Resume)
		f.has(op.Make)
		f.int(int64(op.Until))
		f.text(op.Reason)
	}
}

// controlOp reads what the writer's controlOp wrote. A kind that is not named here is taken as OpQueuePause: op calls
// it with these kinds only.
func (r *reader) controlOp(kind OpKind) Op {
	switch kind {
	case OpTaskCancel:
		op := &TaskCancel{Task: r.id()}
		f := r.fields(false)
		op.Force, op.Reason = f.has(), f.text()
		f.end()
		return op
	case OpTaskStop:
		h := r.hold()
		f := r.fields(false)
		op := &TaskStop{Task: h.Task, Token: h.Token, Error: TaskError{Code: f.text(), Message: f.text(), Stack: f.text()}}
		f.end()
		return op
	case OpTaskRedrive:
		return &TaskRedrive{Task: r.id()}
	case OpTaskForceRelease:
		return &TaskForceRelease{Task: r.id(), Attempt: uint32(r.max(math.MaxUint32))}
	case OpTaskUpdate:
		return r.taskUpdate()
	}
	op := &QueuePause{Queue: r.name()}
	f := r.fields(false)
	op.Resume, op.Make, op.Until, op.Reason = f.has(), f.has(), ShardTime(f.int()), f.text()
	f.end()
	return op
}

// taskUpdate writes the task and, for each field, whether it changes and its new value. A value of zero has no bytes,
// so the Has bit alone tells "set to zero" from "left as it is".
func (w *writer) taskUpdate(op *TaskUpdate) {
	w.id(op.Task)
	f := w.fields(true)
	f.has(op.HasPriority)
	f.uint(uint64(op.Priority))
	f.has(op.HasRunAt)
	f.int(int64(op.RunAt))
	f.int(int64(op.Delay))
	f.has(op.HasPayload)
	f.bytes(op.Payload)
	f.name(op.ContentType)
	f.has(op.HasLabels)
	if f.has(len(op.Labels) > 0) {
		w.labels(op.Labels)
	}
	f.has(op.HasExpiry)
	f.int(int64(op.ExpiresAt))
}

// taskUpdate reads what the writer's taskUpdate wrote.
func (r *reader) taskUpdate() *TaskUpdate {
	op := &TaskUpdate{Task: r.id()}
	f := r.fields(true)
	op.HasPriority, op.Priority = f.has(), uint8(f.uint(math.MaxUint8))
	op.HasRunAt, op.RunAt, op.Delay = f.has(), ShardTime(f.int()), Millis(f.int())
	op.HasPayload, op.Payload, op.ContentType = f.has(), f.bytes(), f.name()
	op.HasLabels = f.has()
	if f.has() {
		op.Labels = r.labels()
		r.nonZero(len(op.Labels) > 0)
	}
	op.HasExpiry, op.ExpiresAt = f.has(), ShardTime(f.int())
	f.end()
	return op
}

// labels writes the number of labels, and their names and values. Names recur from task to task, so they go through
// the table of names.
func (w *writer) labels(list []Label) {
	w.uint(uint64(len(list)))
	for _, l := range list {
		w.name(l.Name)
		w.text(l.Value)
	}
}

// labels reads a list of labels in the order in which it was written, which is that of names; nil when it is empty.
func (r *reader) labels() []Label {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	out := make([]Label, n)
	for i := range out {
		out[i] = Label{Name: r.name(), Value: r.text()}
	}
	return out
}

// queueLimits writes the bounds that came with FormatOperate. It is written within a queue's configuration, and only
// when a bound is set.
func (w *writer) queueLimits(c *QueueLimits) {
	f := w.fields(true)
	f.int(int64(c.CancelGrace))
	f.int(int64(c.DefaultTTL))
	f.int(c.MaxTasks)
	f.int(c.MaxBytes)
	f.int(int64(c.CeilingAttempts))
	f.int(int64(c.CeilingCrashes))
	f.int(int64(c.CeilingDeliveries))
	f.int(int64(c.CeilingLease))
	f.int(int64(c.CeilingMaxRun))
	f.int(int64(c.CeilingPriority))
}

// queueLimits reads into c, which must be the zero value.
func (r *reader) queueLimits(c *QueueLimits) {
	f := r.fields(true)
	c.CancelGrace, c.DefaultTTL = Millis(f.int()), Millis(f.int())
	c.MaxTasks, c.MaxBytes = f.int(), f.int()
	c.CeilingAttempts, c.CeilingCrashes, c.CeilingDeliveries = f.int32(), f.int32(), f.int32()
	c.CeilingLease, c.CeilingMaxRun = Millis(f.int()), Millis(f.int())
	c.CeilingPriority = f.int32()
	f.end()
}

// controlOpSize is opSize of the ops of this file that have texts.
func controlOpSize(op Op) int {
	switch op := op.(type) {
	case *TaskCancel:
		return opHeader + 16 + nameBytes + len(op.Reason)
	case *TaskStop:
		return opHeader + holdBytes + 3*nameBytes + len(op.Error.Code) + len(op.Error.Message) + len(op.Error.Stack)
	case *TaskUpdate:
		return opHeader + 16 + 5*varintBytes + nameBytes + len(op.Payload) + newName + len(op.ContentType) + labelsSize(op.Labels)
	case *QueuePause:
		return opHeader + len(op.Queue) + varintBytes + nameBytes + len(op.Reason)
	}
	return 0
}

// labelsSize is the most bytes that a list of labels takes: each name is counted as a new one.
func labelsSize(list []Label) int {
	n := nameBytes
	for _, l := range list {
		n += newName + len(l.Name) + nameBytes + len(l.Value)
	}
	return n
}
