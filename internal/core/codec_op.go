package core

import (
	"math"
	"slices"
)

// opTaskCreateMore is the number of a TaskCreate that has fields of FormatOperate: the word of presence bits of the other has no
// bit left. It stands in entries alone and is not an OpKind.
const opTaskCreateMore = 31

// op writes an op: those of tasks and of the shard itself here, the others where their service has them.
func (w *writer) op(op Op) {
	if w.formedOp(op) {
		return
	}
	kind := op.Kind()
	w.byte(byte(kind))
	switch op := op.(type) {
	case *TaskComplete:
		w.hold(TaskHold{op.Task, op.Token})
		f := w.fields(false)
		f.bytes(op.Result)
		f.name(op.ResultType)
	case *TaskFail:
		w.taskFail(op)
	case *TaskSnooze:
		w.hold(TaskHold{op.Task, op.Token})
		f := w.fields(false)
		f.int(int64(op.Until))
		f.int(int64(op.Delay))
	case *TaskRelease:
		w.hold(TaskHold{op.Task, op.Token})
		w.bool(op.Undelivered)
	case *TaskRenew:
		w.int(int64(op.Extend))
		w.holds(op.Items)
	case *TaskDelete:
		w.id(op.Task)
	case *TaskRunNow:
		w.id(op.Task)
	case *TaskCancel, *TaskStop, *TaskRedrive, *TaskForceRelease, *TaskUpdate, *QueuePause:
		w.controlOp(op)
	case *BulkStop:
		w.id(op.ID)
	case *CronSet, *CronDelete, *CronFire:
		w.cronOp(op)
	case *BatchOpen, *BatchSeal, *BatchCancel:
		w.batchOp(op)
	case *LimiterSet, *LimiterDelete:
		w.limiterOp(op)
	case *QueueSet:
		w.name(op.Queue)
		w.int(op.IfVersion)
		w.queueConfig(&op.Config)
	case *QueueDelete:
		w.name(op.Queue)
		w.bool(op.Purge)
		w.int(op.IfVersion)
	case *KeySet:
		w.keySet(op)
	case *Grant:
		w.grant(op)
	case *SessionLost:
		w.sessionLost(op)
	case *TaskReport:
		w.taskReport(op)
	case *Tick:
		w.uint(uint64(op.Max))
	case *TermStart:
		w.uint(op.Term)
		w.uint(op.Leader)
	case *ClockShift:
		w.int(int64(op.Shift))
	case *NamespaceCreate:
		w.name(op.Tenant)
		w.name(op.Name)
		w.uint(uint64(op.Partitions) | uint64(op.Shards)<<16)
		w.int(int64(op.Max))
	case *NamespaceSet:
		w.int(op.IfVersion)
		w.namespaceConfig(&op.Config)
	case *TenantSet, *TenantUse, *TenantQuota:
		w.tenantOp(op)
	case *SessionKeyAdd:
		w.sessionKeyAdd(op)
	case *NamespaceRemove, *PartitionRemove:
		w.removalOp(op)
	default:
		w.serviceOp(kind.Service(), op)
	}
}

// formedOp writes an op that has a number for each of its forms; ok says that it is one.
func (w *writer) formedOp(op Op) (ok bool) {
	switch op := op.(type) {
	case *TaskCreate:
		w.taskCreate(op)
	case *BulkStart:
		w.bulkStart(op)
	default:
		return false
	}
	return true
}

// serviceOp writes an op of the services that have codecs of their own. What belongs to no such service is an op of
// membership.
func (w *writer) serviceOp(service Service, op Op) {
	switch service {
	case ServiceKV:
		w.kvOp(op)
	case ServiceSearch:
		w.searchOp(op)
	case ServiceRefs:
		w.refOp(op)
	default:
		w.memberOp(op)
	}
}

// op reads one op. The kinds that are frequent in entries come from chunks of the slab; the others are allocated one
// by one.
func (r *reader) op() Op {
	switch kind := OpKind(r.byte()); kind {
	case OpTaskCreate, opTaskCreateMore:
		return r.taskCreate(kind == opTaskCreateMore)
	case opTaskCreateBatch:
		return r.taskCreateBatch()
	case OpTaskComplete:
		op := one(&r.slab.completes)
		h := r.hold()
		f := r.fields(false)
		op.Task, op.Token, op.Result, op.ResultType = h.Task, h.Token, f.bytes(), f.name()
		f.end()
		return op
	case OpTaskFail:
		return r.taskFail()
	case OpTaskSnooze:
		h := r.hold()
		f := r.fields(false)
		op := &TaskSnooze{Task: h.Task, Token: h.Token, Until: ShardTime(f.int()), Delay: Millis(f.int())}
		f.end()
		return op
	case OpTaskRelease:
		h := r.hold()
		return &TaskRelease{Task: h.Task, Token: h.Token, Undelivered: r.bool()}
	case OpTaskRenew:
		extend := Millis(r.int())
		return &TaskRenew{Extend: extend, Items: r.holds()}
	case OpTaskDelete:
		return &TaskDelete{Task: r.id()}
	case OpTaskRunNow:
		return &TaskRunNow{Task: r.id()}
	case OpTaskCancel, OpTaskStop, OpTaskRedrive, OpTaskForceRelease, OpTaskUpdate, OpQueuePause:
		return r.controlOp(kind)
	case OpBulkStart, OpBulkStop, opBulkStartBatch:
		return r.bulkOp(kind)
	case OpCronSet, OpCronDelete, OpCronFire:
		return r.cronOp(kind)
	case OpBatchOpen, OpBatchSeal, OpBatchCancel:
		return r.batchOp(kind)
	case OpLimiterSet, OpLimiterDelete:
		return r.limiterOp(kind)
	case OpQueueSet:
		op := &QueueSet{Queue: r.name(), IfVersion: r.int()}
		r.queueConfig(&op.Config)
		return op
	case OpQueueDelete:
		return &QueueDelete{Queue: r.name(), Purge: r.bool(), IfVersion: r.int()}
	case OpKeySet:
		return r.keySet()
	case OpGrant:
		return r.grant()
	case OpSessionLost:
		return r.sessionLost()
	case OpTaskReport:
		return r.taskReport()
	case OpTenantSet, OpTenantUse, OpTenantQuota:
		return r.tenantOp(kind)
	case OpSessionKeyAdd:
		return r.sessionKeyAdd()
	default:
		return r.serviceOp(kind)
	}
}

// serviceOp reads an op of a service other than the queues'.
func (r *reader) serviceOp(kind OpKind) Op {
	switch kind.Service() {
	case ServiceKV:
		return r.kvOp(kind)
	case ServiceSearch:
		return r.searchOp(kind)
	case ServiceRefs:
		return r.refOp(kind)
	}
	return r.systemOp(kind)
}

// systemOp reads the ops of the shard itself. A kind that is not known fails the whole entry: an entry is either
// applied in full or stops the shard.
func (r *reader) systemOp(kind OpKind) Op {
	switch kind {
	case OpTick:
		return &Tick{Max: uint32(r.max(math.MaxUint32))}
	case OpTermStart:
		return &TermStart{Term: r.uint(), Leader: r.uint()}
	case OpClockShift:
		return &ClockShift{Shift: Millis(r.int())}
	case OpNamespaceCreate:
		op := &NamespaceCreate{Tenant: r.name(), Name: r.name()}
		n := r.max(math.MaxUint32)
		op.Partitions, op.Shards, op.Max = uint16(n), uint16(n>>16), r.int32()
		return op
	case OpNamespaceSet:
		op := &NamespaceSet{IfVersion: r.int()}
		r.namespaceConfig(&op.Config)
		return op
	case OpNamespaceRemove, OpPartitionRemove:
		return r.removalOp(kind)
	}
	if op := r.memberOp(kind); op != nil {
		return op
	}
	r.fail("unknown op kind %d", kind)
	return nil
}

// taskCreate writes a create under one of its two kinds, after its batch if it has one: one without labels and expiry has the same
// bytes as before FormatOperate. Unique.Request has a bit of its own at the end, because entries before FormatQueues have none.
func (w *writer) taskCreate(op *TaskCreate) {
	if !op.Batch.IsZero() {
		w.byte(opTaskCreateBatch)
		w.id(op.Batch)
	}
	more := op.hasMore()
	if more {
		w.byte(opTaskCreateMore)
	} else {
		w.byte(byte(OpTaskCreate))
	}
	w.id(op.ID)
	w.name(op.Queue)
	f := w.fields(true)
	f.name(op.TaskKind)
	f.uint(uint64(op.Priority))
	f.int(int64(op.RunAt))
	f.int(int64(op.Delay))
	f.int(int64(op.MaxAttempts))
	f.int(int64(op.MaxCrashes))
	f.int(int64(op.MaxDeliveries))
	f.int(int64(op.Lease))
	f.int(int64(op.MaxRun))
	if f.has(!op.Retry.IsZero()) {
		w.retry(op.Retry)
	}
	if u := &op.Unique; f.has(u.Key != "" || u.TTL != 0 || u.Reject) {
		w.text(op.Unique.Key)
		w.int(int64(op.Unique.TTL))
		w.bool(op.Unique.Reject)
	}
	f.name(op.ContentType)
	if f.has(len(op.Headers) > 0) {
		w.headers(op.Headers)
	}
	f.bytes(op.Payload)
	f.text(op.Tag)
	f.has(op.Unique.Request)
	if more {
		f = w.fields(false)
		f.int(int64(op.ExpiresAt))
		if f.has(len(op.Labels) > 0) {
			w.labels(op.Labels)
		}
		f.text(op.Key)
		f.uint(uint64(op.Cost))
		if f.has(len(op.Limiters) > 0) {
			w.uint(uint64(len(op.Limiters)))
			for _, name := range op.Limiters {
				w.name(name)
			}
		}
		if f.has(len(op.After) > 0) {
			w.uint(uint64(len(op.After)))
			for _, a := range op.After {
				w.id(a.Task)
				w.bool(a.Terminal)
			}
		}
		f.uint(uint64(op.OnDepFailure))
		until := uint64(op.Unique.Until) << 1
		if op.Unique.Replace {
			until |= 1
		}
		f.uint(until)
	}
}

// hasMore reports whether a create has fields that came after those which entries of the first formats have, without its batch.
func (op *TaskCreate) hasMore() bool {
	return op.ExpiresAt != 0 || len(op.Labels) > 0 || op.sharesLane()
}

// taskCreateBatch reads a create that adds to a batch, behind its first byte.
func (r *reader) taskCreateBatch() *TaskCreate {
	batch := r.batchID()
	var op *TaskCreate
	switch kind := r.byte(); kind {
	case byte(OpTaskCreate), opTaskCreateMore:
		op = r.taskCreate(kind == opTaskCreateMore)
	default:
		r.fail("create of kind %d in a batch", kind)
		op = &TaskCreate{}
	}
	op.Batch = batch
	return op
}

// taskCreate reads a create; more says that its kind was opTaskCreateMore, which must then have one of the later
// fields.
func (r *reader) taskCreate(more bool) *TaskCreate {
	op := one(&r.slab.creates)
	op.ID = r.id()
	op.Queue = r.name()
	f := r.fields(true)
	op.TaskKind = f.name()
	op.Priority = uint8(f.uint(math.MaxUint8))
	op.RunAt = ShardTime(f.int())
	op.Delay = Millis(f.int())
	op.MaxAttempts, op.MaxCrashes, op.MaxDeliveries = f.int32(), f.int32(), f.int32()
	op.Lease, op.MaxRun = Millis(f.int()), Millis(f.int())
	if f.has() {
		op.Retry = r.retry()
		r.nonZero(!op.Retry.IsZero())
	}
	if f.has() {
		op.Unique = Unique{Key: r.text(), TTL: Millis(r.int()), Reject: r.bool()}
		r.nonZero(op.Unique != Unique{})
	}
	op.ContentType = f.name()
	if f.has() {
		op.Headers = r.headers()
		r.nonZero(len(op.Headers) > 0)
	}
	op.Payload = f.bytes()
	op.Tag = f.text()
	op.Unique.Request = f.has()
	f.end()
	if more {
		f = r.fields(false)
		op.ExpiresAt = ShardTime(f.int())
		if f.has() {
			op.Labels = r.labels()
			r.nonZero(len(op.Labels) > 0)
		}
		r.share(op, &f)
		f.end()
		r.nonZero(op.hasMore())
	}
	return op
}

// share reads the fields of a create that came with FormatShare.
func (r *reader) share(op *TaskCreate, f *present) {
	op.Key = f.text()
	op.Cost = uint32(f.uint(math.MaxUint32))
	if f.has() {
		n := r.count(1)
		r.nonZero(n > 0)
		op.Limiters = make([]string, n)
		for i := range op.Limiters {
			op.Limiters[i] = r.name()
		}
	}
	if f.has() {
		n := r.count(17)
		r.nonZero(n > 0)
		op.After = make([]After, n)
		for i := range op.After {
			op.After[i] = After{Task: r.id(), Terminal: r.bool()}
		}
	}
	op.OnDepFailure = DepFailure(f.uint(math.MaxUint8))
	until := f.uint(2*math.MaxUint8 + 1)
	op.Unique.Until, op.Unique.Replace = UniqueUntil(until>>1), until&1 != 0
}

// taskFail writes the lease that the failure ends, then the fields that are not zero.
func (w *writer) taskFail(op *TaskFail) {
	w.hold(TaskHold{op.Task, op.Token})
	f := w.fields(false)
	f.has(op.Fatal)
	f.has(op.HasRetry)
	f.int(int64(op.RetryAfter))
	f.text(op.Error.Code)
	f.text(op.Error.Message)
	f.text(op.Error.Stack)
}

// taskFail reads what the writer's taskFail wrote.
func (r *reader) taskFail() *TaskFail {
	h := r.hold()
	f := r.fields(false)
	op := &TaskFail{
		Task: h.Task, Token: h.Token, Fatal: f.has(), HasRetry: f.has(), RetryAfter: Millis(f.int()),
		Error: TaskError{Code: f.text(), Message: f.text(), Stack: f.text()},
	}
	f.end()
	return op
}

// grant writes a grant. Names of queues and of the worker go through the table of names: an entry of a busy shard has
// many grants of the same ones.
func (w *writer) grant(op *Grant) {
	f := w.fields(false)
	f.id(op.Session)
	f.uint(uint64(op.Sub))
	f.name(op.Worker)
	f.uint(uint64(op.N))
	f.int(int64(op.Lease))
	f.has(op.Weighted)
	passes := f.has(slices.ContainsFunc(op.Queues, func(q GrantQueue) bool { return q.Pass != 0 }))
	w.uint(uint64(len(op.Queues)))
	for _, q := range op.Queues {
		w.name(q.Name)
		w.uint(uint64(q.Weight))
		if passes {
			w.uint(q.Pass)
		}
	}
	w.holds(op.Settles)
}

// grant reads what the writer's grant wrote.
func (r *reader) grant() *Grant {
	op := one(&r.slab.grants)
	f := r.fields(false)
	op.Session = f.id()
	op.Sub = uint32(f.uint(math.MaxUint32))
	op.Worker = f.name()
	op.N = uint32(f.uint(math.MaxUint32))
	op.Lease = Millis(f.int())
	op.Weighted = f.has()
	passes := f.has()
	f.end()
	if n := r.count(2); n > 0 {
		op.Queues = make([]GrantQueue, n)
		for i := range op.Queues {
			op.Queues[i] = GrantQueue{Name: r.name(), Weight: uint32(r.max(math.MaxUint32))}
			if passes {
				op.Queues[i].Pass = r.uint()
			}
		}
	}
	op.Settles = r.holds()
	return op
}

// holds writes the number of leases and then each: the id of its task, 16 bytes, and its token.
func (w *writer) holds(holds []TaskHold) {
	w.uint(uint64(len(holds)))
	for _, h := range holds {
		w.hold(h)
	}
}

// holds reads a list of leases; nil when it is empty.
func (r *reader) holds() []TaskHold {
	n := r.count(len(TaskID{}) + 1)
	if n == 0 {
		return nil
	}
	out := make([]TaskHold, n)
	for i := range out {
		out[i] = r.hold()
	}
	return out
}

// kvPut writes a put: its keyspace and key, then the fields that are not zero.
func (w *writer) kvPut(op *KVPut) {
	w.name(op.Keyspace)
	w.bytes(op.Key)
	f := w.fields(false)
	f.bytes(op.Value)
	f.has(op.HasRev)
	f.uint(op.IfRev)
	f.has(op.IfAbsent)
	f.has(op.WantPrev)
}

// kvPut reads what the writer's kvPut wrote. Key and value alias the input.
func (r *reader) kvPut() *KVPut {
	op := one(&r.slab.puts)
	op.Keyspace, op.Key = r.name(), r.bytes()
	f := r.fields(false)
	op.Value = f.bytes()
	op.HasRev, op.IfRev = f.has(), f.uint(math.MaxUint64)
	op.IfAbsent, op.WantPrev = f.has(), f.has()
	f.end()
	return op
}

// kvCheck writes a check, as an op or as a condition of a commit: conditions have no kind before them.
func (w *writer) kvCheck(op *KVCheck) {
	w.name(op.Keyspace)
	w.bytes(op.Key)
	f := w.fields(false)
	f.uint(uint64(op.Target))
	f.uint(uint64(op.Compare))
	f.uint(op.Rev)
	f.bytes(op.Value)
}

// kvCheck reads what the writer's kvCheck wrote. Whether Target and Compare are known is judged where the check is
// applied.
func (r *reader) kvCheck() *KVCheck {
	op := one(&r.slab.checks)
	op.Keyspace, op.Key = r.name(), r.bytes()
	f := r.fields(false)
	op.Target, op.Compare = Target(f.uint(math.MaxUint8)), Compare(f.uint(math.MaxUint8))
	op.Rev, op.Value = f.uint(math.MaxUint64), f.bytes()
	f.end()
	return op
}

// retry writes a policy for retries. Its callers write it only when it is not zero.
func (w *writer) retry(v Retry) {
	w.byte(byte(v.Backoff))
	w.int(int64(v.Base))
	w.uint(uint64(v.FactorPercent))
	w.int(int64(v.Max))
}

// retry reads what the writer's retry wrote.
func (r *reader) retry() Retry {
	return Retry{
		Backoff: Backoff(r.byte()), Base: Millis(r.int()), FactorPercent: uint32(r.max(math.MaxUint32)), Max: Millis(r.int()),
	}
}

// headers writes the number of headers, and their names and values, in the order of the list.
func (w *writer) headers(list []Header) {
	w.uint(uint64(len(list)))
	for _, h := range list {
		w.name(h.Name)
		w.text(h.Value)
	}
}

// headers reads a list of headers; nil when it is empty.
func (r *reader) headers() []Header {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	out := make([]Header, n)
	for i := range out {
		out[i] = Header{Name: r.name(), Value: r.text()}
	}
	return out
}

// queueConfig writes the settings of a queue: the fields that are not zero, and last the limits if one is set.
func (w *writer) queueConfig(c *QueueConfig) {
	f := w.fields(true)
	f.uint(c.Version)
	f.int(int64(c.MaxAttempts))
	f.int(int64(c.MaxCrashes))
	f.int(int64(c.MaxDeliveries))
	f.int(int64(c.Lease))
	f.int(int64(c.MaxRun))
	if f.has(!c.Retry.IsZero()) {
		w.retry(c.Retry)
	}
	f.int(c.MaxPayload)
	f.int(int64(c.Aging))
	f.int(int64(c.RetainCompleted))
	f.int(int64(c.RetainCancelled))
	f.int(int64(c.RetainDead))
	if f.has(c.Limits != QueueLimits{}) {
		w.queueLimits(&c.Limits)
	}
	if f.has(c.Share != QueueShare{}) {
		w.queueShare(&c.Share)
	}
}

// queueConfig reads into c, which must be the zero value.
func (r *reader) queueConfig(c *QueueConfig) {
	f := r.fields(true)
	c.Version = f.uint(math.MaxUint64)
	c.MaxAttempts, c.MaxCrashes, c.MaxDeliveries = f.int32(), f.int32(), f.int32()
	c.Lease, c.MaxRun = Millis(f.int()), Millis(f.int())
	if f.has() {
		c.Retry = r.retry()
		r.nonZero(!c.Retry.IsZero())
	}
	c.MaxPayload = f.int()
	c.Aging = Millis(f.int())
	c.RetainCompleted, c.RetainCancelled, c.RetainDead = Millis(f.int()), Millis(f.int()), Millis(f.int())
	if f.has() {
		r.queueLimits(&c.Limits)
		r.nonZero(c.Limits != QueueLimits{})
	}
	if f.has() {
		r.queueShare(&c.Share)
		r.nonZero(c.Share != QueueShare{})
	}
	f.end()
}

// namespaceConfig writes the settings of a namespace, in entries and in the store alike.
func (w *writer) namespaceConfig(c *NamespaceConfig) {
	f := w.fields(false)
	f.uint(c.Version)
	f.has(c.NoAutoCreate)
	f.int(c.RetainBytes)
	f.has(c.CreateOnPush)
	f.int(c.KeyBytes)
	f.int(c.KeyRate)
	f.int(c.KeyByteRate)
}

// namespaceConfig reads into c, which must be the zero value.
func (r *reader) namespaceConfig(c *NamespaceConfig) {
	f := r.fields(false)
	c.Version = f.uint(math.MaxUint64)
	c.NoAutoCreate = f.has()
	c.RetainBytes = f.int()
	c.CreateOnPush = f.has()
	c.KeyBytes, c.KeyRate, c.KeyByteRate = f.int(), f.int(), f.int()
	f.end()
}

// AppendNamespaceConfig appends the encoding of c, as entries and the store hold it.
func AppendNamespaceConfig(dst []byte, c *NamespaceConfig) []byte {
	w := writer{b: dst}
	w.namespaceConfig(c)
	return w.b
}

// DecodeNamespaceConfig reads what AppendNamespaceConfig wrote. Its error wraps ErrMalformed.
func DecodeNamespaceConfig(b []byte) (c NamespaceConfig, err error) {
	r := reader{b: b}
	r.namespaceConfig(&c)
	return c, r.end()
}
