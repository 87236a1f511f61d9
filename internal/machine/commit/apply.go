package commit

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Apply applies the entry at index: each commit in order, one result each. An error means corruption, and that tx must
// not be published: the shard stops.
func (m *Machine) Apply(tx core.Txn, index uint64, e *core.Entry) (core.Applied, error) {
	return m.ApplyEach(tx, index, e, nil)
}

// ApplyEach is Apply that calls judged, if there is one, with the results so far after each commit.
func (m *Machine) ApplyEach(tx core.Txn, index uint64, e *core.Entry, judged func(results []core.Result)) (core.Applied, error) {
	if e.Format == 0 || e.Format > core.NewestFormat() {
		return core.Applied{}, errs.Corruptf("entry %d has format %d, this build knows up to %d", index, e.Format, core.NewestFormat())
	}
	if e.Stamp < m.clock.stamp {
		return core.Applied{}, errs.Corruptf("entry %d is stamped %d, the one before it %d", index, e.Stamp, m.clock.stamp)
	}
	// These say which entry is at hand. What refers to its transaction is cleared afterwards.
	m.tx, m.index, m.clock.stamp, m.clock.format, m.queues = tx, index, e.Stamp, e.Format, e.Queues
	defer func() { m.tx, m.answers, m.ctx = nil, nil, core.ApplyContext{} }()
	ops := 0
	for i := range e.Commits {
		ops += len(e.Commits[i].Ops)
	}
	// One allocation holds the answers of all ops of the entry; each commit takes its part from the front.
	m.answers = make([]core.OpResult, ops)
	m.events.Reset()
	out := core.Applied{Results: make([]core.Result, len(e.Commits))}
	for i := range e.Commits {
		r, err := m.apply(&e.Commits[i])
		if err != nil {
			return core.Applied{}, fmt.Errorf("apply commit %d of entry %d: %w", i, index, err)
		}
		out.Results[i] = r
		if judged != nil {
			judged(out.Results[:i+1])
		}
	}
	if err := m.end(&out); err != nil {
		return core.Applied{}, fmt.Errorf("end entry %d: %w", index, err)
	}
	return out, nil
}

// end writes what is written once per entry, and gathers its events.
func (m *Machine) end(out *core.Applied) error {
	// Rows are written in the order of partitions: in what order commits touched them says nothing, and all replicas
	// must write alike.
	slices.SortFunc(m.touched, func(a, b *partition) int { return comparePartitions(a.p, b.p) })
	for _, part := range m.touched {
		if err := part.end(m.tx, m.context(part, nil)); err != nil {
			return err
		}
		for _, s := range part.services {
			s.Events(&m.events)
		}
	}
	for i := range m.left {
		m.events.Add(&core.NamespaceGone{NamespaceInfo: m.left[i]})
	}
	for _, p := range m.cleared {
		m.events.Add(&core.PartitionCleared{Partition: p})
	}
	out.Events, m.left, m.cleared = m.events.All(), nil, nil
	changed := m.touched
	if m.movesDue() {
		changed = m.sorted
	}
	m.refreshDue(changed)
	m.touched = m.touched[:0]
	// The clock's row is written at most once per entry, after all that may have changed it.
	if m.clock != m.saved {
		m.tx.Set(keys.ShardTime(), m.clock.append(nil))
		m.saved = m.clock
	}
	return nil
}

// verdict is how the judgement of a commit ends: applied with results, or refused by one op.
type verdict struct {
	// The first refusal; nil: the commit was applied.
	refusal *core.Refusal
	// The commit had been applied before, and was answered again.
	replayed bool
	// One result for each op; nil with a refusal.
	ops []core.OpResult
}

// refuse is the verdict of a commit that is refused by an op, or by core.CommitOp, core.FenceOp or a condition.
func refuse(op int, fact core.Fact) verdict {
	return verdict{refusal: &core.Refusal{Op: op, Fact: fact}}
}

// result returns what callers see. A refused commit has no results of ops: what they did was undone.
func (v verdict) result() core.Result {
	if v.refusal != nil {
		return core.Result{Refusal: v.refusal}
	}
	return core.Result{Replayed: v.replayed, Ops: v.ops}
}

// apply applies one commit: answers a repeated one, judges a new one, and remembers what it became.
func (m *Machine) apply(c *core.Commit) (core.Result, error) {
	part, err := m.partition(m.tx, c.Partition)
	if err != nil {
		return core.Result{}, err
	}
	// A partition that is not open takes steps of a removal alone. It is not touched: a cleared one has no machines.
	if part.removal.state != partitionOpen || removes(c) {
		return m.applyRemoval(part, c)
	}
	m.touch(part)
	hasRequest, hasSession := c.RequestID != core.RequestID{}, c.Session != core.SessionID{} && c.Seq != 0
	switch {
	case hasRequest && hasSession:
		fact := core.Invalid{Field: "request_id", Reason: "contradiction", Message: "a sequence number serves already"}
		return refuse(core.CommitOp, fact).result(), nil
	case hasRequest:
		return m.applyRequest(part, c)
	case hasSession:
		return m.applySequenced(part, c)
	}
	return m.judgeOrFail(part, c)
}

// removes reports whether c is a step of the removal of its partition's namespace.
func removes(c *core.Commit) bool {
	return len(c.Ops) == 1 && c.Ops[0].Kind() == core.OpPartitionRemove
}

// applyRemoval judges a step of a removal, and refuses all else in a partition that is not open.
func (m *Machine) applyRemoval(part *partition, c *core.Commit) (core.Result, error) {
	if !removes(c) {
		return refuse(core.CommitOp, gone).result(), nil
	}
	if refusal := m.inspect(c); refusal != nil {
		return verdict{refusal: refusal}.result(), nil
	}
	r, fact, err := m.removePartition(part, c.Ops[0].(*core.PartitionRemove))
	if err != nil {
		return core.Result{}, err
	}
	if fact != nil {
		return refuse(0, fact).result(), nil
	}
	r.Kind = core.OpPartitionRemove
	return core.Result{Ops: []core.OpResult{r}}, nil
}

// judgeOrFail judges c and, when it asks for it, fails the attempt that a refused commit would have completed.
func (m *Machine) judgeOrFail(part *partition, c *core.Commit) (core.Result, error) {
	v, err := m.judge(part, c)
	if err != nil || v.refusal == nil || !c.FailOnRefusal {
		return v.result(), err
	}
	return m.failInstead(part, c, v)
}

// judge judges a commit that does not repeat a request or a session's frame.
func (m *Machine) judge(part *partition, c *core.Commit) (verdict, error) {
	if refusal := m.inspect(c); refusal != nil {
		return verdict{refusal: refusal}, nil
	}
	if v, repeated, err := m.settledBefore(part, c); repeated || err != nil {
		return v, err
	}
	if f := c.Fence; f != nil {
		if fact := part.queue.Live(f.Task, f.Token); fact != nil {
			return refuse(core.FenceOp, fact), nil
		}
	}
	// Conditions are judged in order, and on the state before the ops.
	for i, check := range c.Conditions {
		fact, err := part.kv.Check(m.tx, check)
		if err != nil {
			return verdict{}, err
		}
		if fact != nil {
			return refuse(core.ConditionOp-i, fact), nil
		}
	}
	if len(c.Ops) == 1 { // an op that is refused alone has changed nothing: no need to remember how it was
		return m.ops(part, c, c.Ops)
	}
	part.begin(m.tx)
	v, err := m.ops(part, c, c.Ops)
	switch {
	case err != nil:
	case v.refusal != nil:
		part.undo(m.tx)
	default:
		part.keep(m.tx)
	}
	return v, err
}

// settledBefore answers the repetition of a commit that settled tasks, under the tokens they were settled with: then
// all of c was applied with them. Judged before fence and conditions, which the first time may have made false. The
// other ops' answers are not kept.
func (m *Machine) settledBefore(part *partition, c *core.Commit) (verdict, bool, error) {
	var v verdict
	for i, op := range c.Ops {
		hold, ok := core.Settled(op)
		if !ok {
			continue
		}
		if part.queue.Live(hold.Task, hold.Token) == nil {
			return verdict{}, false, nil
		}
		r, fact, err := part.queue.Apply(m.tx, m.context(part, c), op) // no live lease: it changes nothing
		// A task that was settled with this token says so. Otherwise the commit is judged as a new one.
		if err != nil || fact != nil || !r.Replayed {
			return verdict{}, false, err
		}
		if v.ops == nil {
			v = verdict{replayed: true, ops: make([]core.OpResult, len(c.Ops))}
		}
		v.ops[i] = r
	}
	if v.ops == nil {
		return verdict{}, false, nil
	}
	// All ops are marked as repeated. The answer to a create is made from its id, the answers of others are left out.
	for i, op := range c.Ops {
		v.ops[i].Kind, v.ops[i].Replayed = op.Kind(), true
		if create, ok := op.(*core.TaskCreate); ok {
			v.ops[i].Task = create.ID
		}
	}
	return v, true, nil
}

// ops applies ops in order, until one is refused. The commit's revisions are taken only when all are applied.
func (m *Machine) ops(part *partition, c *core.Commit, ops []core.Op) (verdict, error) {
	// The context is one per commit, so that later ops see which revisions earlier ones took.
	ctx := m.context(part, c)
	v := verdict{ops: m.answers[:0:len(ops)]}
	m.answers = m.answers[len(ops):]
	for i, op := range ops {
		kind := op.Kind()
		r, fact, err := m.op(part, ctx, kind, op)
		if err != nil {
			return verdict{}, fmt.Errorf("op %d: %w", i, err)
		}
		if fact != nil {
			return refuse(i, fact), nil
		}
		r.Kind = kind
		v.ops = append(v.ops, r)
		if kind.Has(core.OpTakesRev) {
			ctx.Revs = max(ctx.Revs, 1)
		}
	}
	// A commit takes one revision for all that it wrote, or one per item of a batch of puts.
	part.counts.rev += ctx.Revs
	return v, nil
}

// op applies one op of any service. A refused one has changed nothing.
func (m *Machine) op(part *partition, ctx *core.ApplyContext, kind core.OpKind, op core.Op) (core.OpResult, core.Fact, error) {
	switch service := kind.Service(); service {
	case core.ServiceQueue, core.ServiceKV, core.ServiceRefs, core.ServiceSearch:
		// The services of a partition stand in the order of their numbers.
		return part.services[service-core.ServiceQueue].Apply(m.tx, ctx, op)
	case core.ServiceShard:
		return m.shardOp(part, op)
	}
	return core.OpResult{}, nil, errs.Corruptf("op kind %d is not known", kind)
}

// shardOp applies an op of the shard itself.
func (m *Machine) shardOp(part *partition, op core.Op) (core.OpResult, core.Fact, error) {
	switch op := op.(type) {
	case *core.Tick:
		more, err := m.tick(op.Max)
		return core.OpResult{More: more}, nil, err
	case *core.TermStart:
		m.clock.termStart, m.clock.term, m.clock.leader = m.clock.stamp, op.Term, op.Leader
		return core.OpResult{}, nil, nil
	case *core.ClockShift:
		r, fact := m.setShift(op)
		return r, fact, nil
	case *core.NamespaceCreate:
		return m.createNamespace(op)
	case *core.NamespaceRemove:
		return m.removeNamespace(op)
	case *core.TenantSet:
		return m.setTenant(op)
	case *core.SessionKeyAdd:
		return m.addSessionKey(op)
	case *core.MembersInit, *core.MemberChange, *core.MemberStep:
		return m.changeMembers(op)
	case *core.FormatRaise:
		r, fact := m.raiseFormat(op)
		return r, fact, nil
	case *core.NamespaceSet:
		return m.setNamespace(part, op)
	}
	return core.OpResult{}, nil, errs.Corruptf("op %d does not belong to the shard", op.Kind())
}

// failInstead fails every attempt that a refused commit would have completed and whose lease is held, with the
// refusal's code. A commit that is refused for its lease stays refused: the attempt is no longer the caller's.
func (m *Machine) failInstead(part *partition, c *core.Commit, v verdict) (core.Result, error) {
	out := v.result()
	if _, lost := v.refusal.Fact.(core.LeaseLost); lost {
		return out, nil
	}
	for _, op := range c.Ops {
		done, ok := op.(*core.TaskComplete)
		if !ok {
			continue
		}
		if part.queue.Live(done.Task, done.Token) != nil {
			continue
		}
		fail := &core.TaskFail{Task: done.Task, Token: done.Token, Error: core.TaskError{
			Code: v.refusal.Fact.Code().String(), Message: "effects refused: " + core.Cut(v.refusal.Fact.Error(), maxReason),
		}}
		_, fact, err := part.queue.Apply(m.tx, m.context(part, c), fail)
		if err != nil {
			return core.Result{}, err
		}
		out.FailedInstead = out.FailedInstead || fact == nil
	}
	return out, nil
}

// maxReason bounds how much of a refusal's text an attempt's error carries: a key may be 16 KiB.
const maxReason = 1024
