package core

import "math"

// Numbers of the facts in an encoded result. They are stored and never reused.
const (
	factNotFound         byte = 1
	factAlreadyExists    byte = 2
	factLeaseLost        byte = 3
	factWrongState       byte = 4
	factRevMismatch      byte = 5
	factWrongPartition   byte = 6
	factExhausted        byte = 7
	factTooLarge         byte = 8
	factInvalid          byte = 9
	factSessionExpired   byte = 10
	factUnavailable      byte = 11
	factDeadlineExceeded byte = 12
	factUnauthenticated  byte = 13
	factDenied           byte = 14
	factRateLimited      byte = 15
	factNotLeader        byte = 16
	factRefRefused       byte = 17
	factWrongMembership  byte = 19
	factWrongBatch       byte = 21
)

// AppendResult appends the encoding of r, facts included, to dst. Equal results have equal encodings, so that it
// serves the apply hash as well as answers that are kept.
func AppendResult(dst []byte, r *Result) []byte {
	w := writer{b: dst}
	f := w.fields(false)
	f.has(r.Replayed)
	f.has(r.FailedInstead)
	f.uint(r.Index)
	if f.has(r.Refusal != nil) {
		w.int(int64(r.Refusal.Op))
		w.fact(r.Refusal.Fact)
	}
	w.uint(uint64(len(r.Ops)))
	for i := range r.Ops {
		w.opResult(&r.Ops[i])
	}
	return w.b
}

// DecodeResult reads what AppendResult wrote. Byte slices alias b. Every error wraps ErrMalformed.
func DecodeResult(b []byte) (*Result, error) {
	r := reader{b: b}
	out := &Result{}
	f := r.fields(false)
	out.Replayed, out.FailedInstead = f.has(), f.has()
	out.Index = f.uint(math.MaxUint64)
	if f.has() {
		op := r.int()
		if op < math.MinInt32 || op > math.MaxInt32 {
			r.fail("op %d", op)
		}
		out.Refusal = &Refusal{Op: int(op), Fact: r.fact()}
	}
	f.end()
	if n := r.count(3); n > 0 {
		out.Ops = make([]OpResult, n)
		for i := range out.Ops {
			r.opResult(&out.Ops[i])
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return out, nil
}

// opResult writes what one op answers: the fields that are not zero, whatever the kind. Prev is written also when it
// is empty but not nil.
func (w *writer) opResult(o *OpResult) {
	w.byte(byte(o.Kind))
	f := w.fields(true)
	f.has(o.Replayed)
	f.id(o.Task)
	f.has(o.PayloadMatches)
	f.uint(uint64(o.State))
	f.uint(o.Rev)
	if f.has(o.Prev != nil) {
		w.bytes(o.Prev)
	}
	f.has(o.Existed)
	f.uint(o.Version)
	if f.has(len(o.Assigned) > 0) {
		w.uint(uint64(len(o.Assigned)))
		for i := range o.Assigned {
			w.assigned(&o.Assigned[i])
		}
	}
	if f.has(len(o.Renewed) > 0) {
		w.uint(uint64(len(o.Renewed)))
		for _, v := range o.Renewed {
			w.byte(v.flags())
			w.int(int64(v.Until))
		}
	}
	f.has(o.More)
	f.uint(uint64(o.Tenant))
	f.uint(uint64(o.Namespace))
	if f.has(o.Refs != nil) {
		w.refsAnswer(o.Refs)
	}
	if f.has(o.KV != nil) {
		w.kvResult(o.KV)
	}
}

// opResult reads into o, which must be the zero value.
func (r *reader) opResult(o *OpResult) {
	o.Kind = OpKind(r.byte())
	f := r.fields(true)
	o.Replayed = f.has()
	o.Task = f.id()
	o.PayloadMatches = f.has()
	o.State = State(f.uint(math.MaxUint8))
	o.Rev = f.uint(math.MaxUint64)
	if f.has() {
		o.Prev = r.take(r.length())
	}
	o.Existed = f.has()
	o.Version = f.uint(math.MaxUint64)
	if f.has() {
		o.Assigned = make([]Assigned, r.count(len(TaskID{})+2))
		for i := range o.Assigned {
			r.assigned(&o.Assigned[i])
		}
		r.nonZero(len(o.Assigned) > 0)
	}
	if f.has() {
		o.Renewed = make([]Renewed, r.count(2))
		for i := range o.Renewed {
			o.Renewed[i] = r.renewed()
		}
		r.nonZero(len(o.Renewed) > 0)
	}
	o.More = f.has()
	o.Tenant = TenantID(f.uint(math.MaxUint32))
	o.Namespace = NamespaceID(f.uint(math.MaxUint32))
	if f.has() {
		o.Refs = r.refsAnswer()
	}
	if f.has() {
		o.KV = r.kvResult()
	}
	f.end()
}

// The flags of a renewed lease. They are stored.
const (
	// The lease was not extended: its token no longer holds the task.
	renewedLost byte = 1 << iota
	// The cancel of the task was asked for.
	renewedCancel
)

// flags returns v without its time, as one byte.
func (v *Renewed) flags() (f byte) {
	if v.Lost {
		f |= renewedLost
	}
	if v.Cancel {
		f |= renewedCancel
	}
	return f
}

// renewed reads the flags of a renewal and until when the lease holds.
func (r *reader) renewed() Renewed {
	flags := r.byte()
	if flags > renewedLost|renewedCancel {
		r.fail("flags %d of a renewed lease", flags)
	}
	return Renewed{Lost: flags&renewedLost != 0, Cancel: flags&renewedCancel != 0, Until: ShardTime(r.int())}
}

// assigned writes a task that a grant gave out: its lease, and what the worker needs to run it.
func (w *writer) assigned(a *Assigned) {
	w.hold(TaskHold{a.Task, a.Token})
	f := w.fields(true)
	f.uint(uint64(a.Attempt))
	f.name(a.Queue)
	f.name(a.Kind)
	f.name(a.ContentType)
	if f.has(len(a.Headers) > 0) {
		w.headers(a.Headers)
	}
	f.bytes(a.Payload)
	f.uint(uint64(a.Priority))
	f.int(int64(a.LeaseUntil))
	f.int(int64(a.Lease))
	f.int(int64(a.MaxAttempts))
	f.uint(uint64(a.Failures))
	f.uint(uint64(a.Crashes))
	f.int(int64(a.CreatedAt))
	f.bytes(a.Checkpoint)
	f.name(a.Tag)
	if f.has(a.MaxRun != 0 || a.ReadyAt != 0) { // the last of 16 presence bits
		w.int(int64(a.MaxRun))
		w.int(int64(a.ReadyAt))
	}
}

// assigned reads into a, which must be the zero value.
func (r *reader) assigned(a *Assigned) {
	h := r.hold()
	a.Task, a.Token = h.Task, h.Token
	f := r.fields(true)
	a.Attempt = uint32(f.uint(math.MaxUint32))
	a.Queue, a.Kind, a.ContentType = f.name(), f.name(), f.name()
	if f.has() {
		a.Headers = r.headers()
		r.nonZero(len(a.Headers) > 0)
	}
	a.Payload = f.bytes()
	a.Priority = uint8(f.uint(math.MaxUint8))
	a.LeaseUntil = ShardTime(f.int())
	a.Lease = Millis(f.int())
	a.MaxAttempts = f.int32()
	a.Failures, a.Crashes = uint32(f.uint(math.MaxUint32)), uint32(f.uint(math.MaxUint32))
	a.CreatedAt = ShardTime(f.int())
	a.Checkpoint = f.bytes()
	a.Tag = f.name()
	if f.has() {
		a.MaxRun, a.ReadyAt = Millis(r.int()), ShardTime(r.int())
		r.nonZero(a.MaxRun != 0 || a.ReadyAt != 0)
	}
	f.end()
}

// fact writes the number of a fact and then its fields. A fact has no presence bits: a field that is added needs a
// new number.
func (w *writer) fact(fact Fact) {
	switch f := fact.(type) {
	case NotFound:
		w.byte(factNotFound)
		w.text(f.Kind)
		w.text(f.ID)
	case AlreadyExists:
		w.byte(factAlreadyExists)
		w.text(f.Kind)
		w.text(f.ID)
	case LeaseLost:
		w.byte(factLeaseLost)
		w.hold(TaskHold{f.Task, f.Given})
	case WrongState:
		w.byte(factWrongState)
		w.id(f.Task)
		w.byte(byte(f.State))
	case WrongBatch:
		w.byte(factWrongBatch)
		w.id(f.Batch)
		w.byte(byte(f.State))
	case RevMismatch:
		w.byte(factRevMismatch)
		w.uint(f.Rev)
		w.nilable(f.Value)
		w.bool(f.Missing)
		w.text(f.Keyspace)
		w.bytes(f.Key)
	case WrongPartition:
		w.byte(factWrongPartition)
		w.uint(uint64(len(f.Ops)))
		for _, op := range f.Ops {
			w.int(int64(op))
		}
	case Exhausted:
		w.byte(factExhausted)
		w.text(f.Limit)
		w.int(f.Max)
	case TooLarge:
		w.byte(factTooLarge)
		w.text(f.Field)
		w.text(f.Limit)
		w.int(f.Max)
	case Invalid:
		w.byte(factInvalid)
		w.text(f.Field)
		w.text(f.Reason)
		w.text(f.Message)
	case SessionExpired:
		w.byte(factSessionExpired)
	case RefRefused:
		w.byte(factRefRefused)
		w.refRefused(f)
	case WrongMembership:
		w.membershipFact(f)
	case NotEmpty:
		w.notEmpty(f)
	case InUse:
		w.byte(factInUse)
		w.text(f.Kind)
		w.text(f.ID)
		w.text(f.By)
	case QueuePinned:
		w.byte(factQueuePinned)
		w.text(f.Queue)
	default:
		w.nodeFact(fact)
	}
}

// fact reads what the writer's fact wrote.
func (r *reader) fact() Fact {
	switch number := r.byte(); number {
	case factNotFound:
		return NotFound{Kind: r.text(), ID: r.text()}
	case factAlreadyExists:
		return AlreadyExists{Kind: r.text(), ID: r.text()}
	case factLeaseLost:
		h := r.hold()
		return LeaseLost{Task: h.Task, Given: h.Token}
	case factWrongState:
		return WrongState{Task: r.id(), State: State(r.byte())}
	case factWrongBatch:
		return WrongBatch{Batch: r.id(), State: BatchState(r.byte())}
	case factRevMismatch:
		return RevMismatch{Rev: r.uint(), Value: r.nilable(), Missing: r.bool(), Keyspace: r.text(), Key: r.bytes()}
	case factWrongPartition:
		n := r.count(1)
		if n == 0 {
			return WrongPartition{}
		}
		ops := make([]int, n)
		for i := range ops {
			ops[i] = int(r.int32())
		}
		return WrongPartition{Ops: ops}
	case factExhausted:
		return Exhausted{Limit: r.text(), Max: r.int()}
	case factTooLarge:
		return TooLarge{Field: r.text(), Limit: r.text(), Max: r.int()}
	case factInvalid:
		return Invalid{Field: r.text(), Reason: r.text(), Message: r.text()}
	case factSessionExpired:
		return SessionExpired{}
	case factRefRefused:
		return r.refRefused()
	case factWrongMembership:
		return r.membershipFact()
	case factNotEmpty:
		return r.notEmpty()
	case factInUse:
		return InUse{Kind: r.text(), ID: r.text(), By: r.text()}
	case factQueuePinned:
		return QueuePinned{Queue: r.text()}
	default:
		return r.nodeFact(number)
	}
}

// nodeFact writes a fact that only nodes and edges state. A fact of another type is a fault of the program; it is
// written as number 0, which no reader accepts.
func (w *writer) nodeFact(fact Fact) {
	switch f := fact.(type) {
	case Unavailable:
		w.byte(factUnavailable)
		w.text(f.Reason)
		w.text(f.Limit)
		w.bool(f.Unknown)
	case DeadlineExceeded:
		w.byte(factDeadlineExceeded)
		w.bool(f.Unknown)
	case Unauthenticated:
		w.byte(factUnauthenticated)
	case Denied:
		w.byte(factDenied)
		w.text(f.Scope)
	case RateLimited:
		w.byte(factRateLimited)
		w.text(f.Limit)
		w.int(int64(f.RetryAfter))
	case NotLeader:
		w.byte(factNotLeader)
		w.text(f.Leader)
	case NotAdded:
		w.byte(factNotAdded)
		w.text(f.Reason)
		w.uint(f.Rev)
		w.text(f.Keyspace)
		w.bytes(f.Key)
	default:
		if !w.searchFact(fact) {
			w.byte(0)
		}
	}
}

// nodeFact reads the fact of a number that fact does not know.
func (r *reader) nodeFact(number byte) Fact {
	switch number {
	case factUnavailable:
		return Unavailable{Reason: r.text(), Limit: r.text(), Unknown: r.bool()}
	case factDeadlineExceeded:
		return DeadlineExceeded{Unknown: r.bool()}
	case factUnauthenticated:
		return Unauthenticated{}
	case factDenied:
		return Denied{Scope: r.text()}
	case factRateLimited:
		return RateLimited{Limit: r.text(), RetryAfter: Millis(r.int())}
	case factNotLeader:
		return NotLeader{Leader: r.text()}
	case factNotAdded:
		return NotAdded{Reason: r.text(), Rev: r.uint(), Keyspace: r.text(), Key: r.bytes()}
	}
	return r.searchFact(number)
}
