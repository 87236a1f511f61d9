package check

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// commit judges one commit: repeats, then fence, conditions and ops in order, all or nothing.
func (m *Model) commit(c *core.Commit, got *core.Result) error {
	p := m.part(c.Partition)
	m.undo = nil
	if p.closing.shut() && !isStep(c) {
		return m.shut(got)
	}
	if c.Session != (core.SessionID{}) && c.Seq != 0 {
		return m.sessionCommit(p, c, got)
	}
	if c.RequestID != (core.RequestID{}) {
		return m.requestCommit(p, c, got)
	}
	return m.judge(p, c, got)
}

// judge runs fence, conditions and ops against the observed result.
func (m *Model) judge(p *part, c *core.Commit, got *core.Result) error {
	if got.Refusal != nil {
		return m.judgeRefusal(p, c, got)
	}
	if replayOf(c, got) {
		return m.judgeSettleReplay(p, c, got)
	}
	if got.Replayed && !allReplayed(got) {
		return fmt.Errorf("answered as a replay, but nothing like it was applied: %s", describe(got))
	}
	if err := m.shape(c); err != nil {
		return fmt.Errorf("applied, but %w", err)
	}
	if len(got.Ops) != len(c.Ops) {
		return fmt.Errorf("%d op results for %d ops", len(got.Ops), len(c.Ops))
	}
	if c.Fence != nil {
		if err := m.fence(p, c.Fence, nil); err != nil {
			return fmt.Errorf("fence: %w", err)
		}
	}
	for i, check := range c.Conditions {
		if f := m.checkKey(p, check); f != nil {
			return fmt.Errorf("applied, but condition %d is false: %w", i, f)
		}
	}
	before := p.rev
	for i, op := range c.Ops {
		if err := m.op(p, c, op, answer{result: &got.Ops[i]}, before); err != nil {
			return fmt.Errorf("ops[%d]: %w", i, err)
		}
	}
	return nil
}

// allReplayed: a commit whose every op had been applied before may say so as a whole.
func allReplayed(got *core.Result) bool {
	return len(got.Ops) > 0 && !slices.ContainsFunc(got.Ops, func(r core.OpResult) bool { return !r.Replayed })
}

// replayOf reports whether the answer is that the settles of the commit had all been applied before.
func replayOf(c *core.Commit, got *core.Result) bool {
	settles, replayed := 0, 0
	for i, op := range c.Ops {
		if _, _, _, ok := settleOf(op); !ok {
			continue
		}
		settles++
		if i < len(got.Ops) && got.Ops[i].Replayed {
			replayed++
		}
	}
	return settles > 0 && (got.Replayed || replayed == settles)
}

// judgeSettleReplay: the same settle under the same token was applied; of the commit nothing is applied again.
func (m *Model) judgeSettleReplay(p *part, c *core.Commit, _ *core.Result) error {
	for i, op := range c.Ops {
		id, token, outcome, ok := settleOf(op)
		if !ok {
			continue
		}
		t := p.tasks[id]
		replayed := func(s *standing) bool {
			replay, _ := t.replays(*s, token, outcome)
			return replay && !s.live(token)
		}
		if t == nil || !m.keep(p, t, replayed) {
			return fmt.Errorf("ops[%d]: task %s: token %d answered as a replay of %s, which it never did", i, id, token, outcome)
		}
	}
	return nil
}

// judgeRefusal finds whether the refused part could be refused so, then takes back what came before it.
func (m *Model) judgeRefusal(p *part, c *core.Commit, got *core.Result) error {
	r := got.Refusal
	if len(got.Ops) != 0 {
		return fmt.Errorf("refused with %d op results", len(got.Ops))
	}
	if err := m.guessed(func() error { return m.refused(p, c, r) }); err != nil {
		return err
	}
	if r.Op > 0 { // else nothing was applied, and what the answer ruled out stays ruled out
		m.rollback()
	}
	_, lost := r.Fact.(core.LeaseLost)
	if !c.FailOnRefusal || lost {
		if got.FailedInstead {
			return errors.New("failed the attempt although it must not")
		}
		return nil
	}
	for _, op := range c.Ops {
		done, ok := op.(*core.TaskComplete)
		if !ok {
			continue
		}
		t := p.tasks[done.Task]
		held := func(s *standing) bool { return s.live(done.Token) }
		if !got.FailedInstead {
			if t != nil && !m.keep(p, t, func(s *standing) bool { return !held(s) }) {
				return fmt.Errorf("refused with %w, but the attempt was not failed", r.Fact)
			}
			continue
		}
		fail := &core.TaskFail{Task: done.Task, Token: done.Token}
		if err := m.op(p, c, fail, answer{blind: true}, p.rev); err != nil {
			return fmt.Errorf("failed instead: %w", err)
		}
	}
	return nil
}

func (m *Model) refused(p *part, c *core.Commit, r *core.Refusal) error {
	if m.shapeRefusal(c, r) {
		return nil
	}
	if r.Op == core.FenceOp {
		if c.Fence == nil {
			return fmt.Errorf("refused by a fence it does not have: %w", r.Fact)
		}
		return m.fence(p, c.Fence, r.Fact)
	}
	if c.Fence != nil {
		if err := m.fence(p, c.Fence, nil); err != nil {
			return fmt.Errorf("refused by op %d (%w) instead of the fence: %w", r.Op, r.Fact, err)
		}
	}
	for i, check := range c.Conditions {
		f := m.checkKey(p, check)
		if r.Op == core.ConditionOp-i {
			return sameFact(f, r.Fact)
		}
		if f != nil {
			return fmt.Errorf("refused by op %d (%w) instead of condition %d", r.Op, r.Fact, i)
		}
	}
	if r.Op < 0 || r.Op >= len(c.Ops) {
		return fmt.Errorf("refusal names op %d of %d", r.Op, len(c.Ops))
	}
	before := p.rev
	for i, op := range c.Ops[:r.Op] {
		if err := m.op(p, c, op, answer{blind: true}, before); err != nil {
			return fmt.Errorf("refused at ops[%d] (%w) instead of ops[%d]: %w", r.Op, r.Fact, i, err)
		}
	}
	if err := m.op(p, c, c.Ops[r.Op], answer{fact: r.Fact}, before); err != nil {
		return fmt.Errorf("ops[%d]: %w", r.Op, err)
	}
	return nil
}

// fence judges that the token is live (want nil), or that it was refused with want.
func (m *Model) fence(p *part, f *core.Fence, want core.Fact) error {
	t := p.tasks[f.Task]
	live := func(s *standing) bool { return s.live(f.Token) }
	if want == nil {
		if t == nil || !m.keep(p, t, live) {
			return fmt.Errorf("task %s: token %d passed, but is not live", f.Task, f.Token)
		}
		return nil
	}
	switch fact := want.(type) {
	case core.LeaseLost:
		if fact.Task != f.Task || fact.Given != f.Token {
			return fmt.Errorf("LEASE_LOST names task %s token %d, asked for %s token %d", fact.Task, fact.Given, f.Task, f.Token)
		}
	case core.NotFound:
		if t != nil && !t.forgettable(m.stamp) {
			return fmt.Errorf("task %s is known and was answered with %w", f.Task, want)
		}
		return nil
	default:
		return fmt.Errorf("a fence was refused with %w", want)
	}
	if t != nil && !m.keep(p, t, func(s *standing) bool { return !live(s) }) {
		return fmt.Errorf("task %s: token %d is live and was refused", f.Task, f.Token)
	}
	return nil
}

// shape judges what needs no state: size, partition bits, repeated keys.
func (m *Model) shape(c *core.Commit) error {
	if n := len(c.Ops) + len(c.Conditions); n > core.MaxCommitOps {
		return fmt.Errorf("it has %d ops", n)
	}
	if bad := strays(c); len(bad) > 0 {
		return core.WrongPartition{Ops: bad}
	}
	if crowdedPuts(c) {
		return errors.New("a batch of puts has company")
	}
	if at := repoTwice(c); at >= 0 {
		return fmt.Errorf("ops[%d] is about the repository of an earlier one", at)
	}
	if at := crowdedRefs(c); at >= 0 {
		return fmt.Errorf("ops[%d] has changes that stand alone, and has company", at)
	}
	if at := repeatedKey(c); at >= 0 {
		return fmt.Errorf("ops[%d] repeats a key", at)
	}
	return nil
}

func (m *Model) shapeRefusal(c *core.Commit, r *core.Refusal) bool {
	switch f := r.Fact.(type) {
	case core.TooLarge:
		return f.Limit == "commit_ops" && len(c.Ops)+len(c.Conditions) > core.MaxCommitOps || f.Limit == "commit_bytes"
	case core.WrongPartition:
		if c.Partition == (core.Partition{}) || slices.ContainsFunc(c.Ops, ofSystem) {
			return len(strays(c)) > 0
		}
		return reflect.DeepEqual(f.Ops, strays(c)) && len(f.Ops) > 0
	case core.Invalid:
		if f.Reason == "duplicate_repo" || f.Reason == "not_alone" && crowdedRefs(c) >= 0 {
			at := crowdedRefs(c)
			if f.Reason == "duplicate_repo" {
				at = repoTwice(c)
			}
			return r.Op >= 0 && r.Op == at
		}
		return f.Reason == "duplicate_key" && r.Op >= 0 && r.Op == repeatedKey(c) || f.Reason == "not_alone" && (slices.ContainsFunc(c.Ops, ofSystem) || crowdedPuts(c) && r.Op == batchOf(c))
	}
	return false
}

// crowdedPuts reports whether a batch of puts comes with another op.
func crowdedPuts(c *core.Commit) bool {
	return batchOf(c) >= 0 && len(c.Ops)+len(c.Conditions) > 1
}

// batchOf is the place of the first batch of puts, or -1.
func batchOf(c *core.Commit) int {
	return slices.IndexFunc(c.Ops, func(op core.Op) bool { return op.Kind() == core.OpKVPuts })
}

// strays lists the ops whose task does not belong to the commit's partition; in the system's partition, and for its
// ops, those that do not belong there.
func strays(c *core.Commit) []int {
	var out []int
	system := c.Partition == core.Partition{}
	for i, op := range c.Ops {
		if ofSystem(op) != system {
			out = append(out, i)
			continue
		}
		id, named := taskOf(op)
		astray := named && id.Partition() != c.Partition.Index
		if batch, named := batchNamed(op); named {
			astray = astray || batch.Partition() != c.Partition.Index
		}
		if create, ok := op.(*core.TaskCreate); ok {
			astray = astray || slices.ContainsFunc(create.After, func(a core.After) bool { return a.Task.Partition() != c.Partition.Index })
		}
		if astray {
			out = append(out, i)
		}
	}
	return out
}

// batchNamed is the batch that an op names.
func batchNamed(op core.Op) (core.TaskID, bool) {
	switch op := op.(type) {
	case *core.TaskCreate:
		return op.Batch, op.Batch != core.TaskID{}
	case *core.BatchOpen:
		return op.ID, true
	case *core.BatchSeal:
		return op.ID, true
	case *core.BatchCancel:
		return op.ID, true
	}
	return core.TaskID{}, false
}

func ofSystem(op core.Op) bool {
	switch op.(type) {
	case *core.Tick, *core.TermStart, *core.ClockShift, *core.NamespaceCreate, *core.NamespaceRemove, *core.TenantSet, *core.SessionKeyAdd, *core.MembersInit, *core.MemberChange, *core.MemberStep, *core.FormatRaise:
		return true
	}
	return false
}

func taskOf(op core.Op) (core.TaskID, bool) {
	if id, _, _, ok := settleOf(op); ok {
		return id, true
	}
	switch op := op.(type) {
	case *core.TaskCreate:
		return op.ID, true
	case *core.TaskCancel:
		return op.Task, true
	case *core.TaskRedrive:
		return op.Task, true
	case *core.TaskForceRelease:
		return op.Task, true
	case *core.TaskUpdate:
		return op.Task, true
	case *core.TaskReport:
		return op.Task, true
	case *core.TaskDelete:
		return op.Task, true
	case *core.TaskRunNow:
		return op.Task, true
	}
	return core.TaskID{}, false
}

// repeatedKey finds the first op that writes a key, or a point, which an earlier op writes; a check names a key freely.
func repeatedKey(c *core.Commit) int {
	seen := map[string]bool{}
	for i, op := range c.Ops {
		space, key, one := keyOf(op)
		name := "key " + space + "\x00" + key
		if !one {
			space, key, one = pointOf(op)
			name = "point " + space + "\x00" + key
		}
		if !one {
			continue
		}
		if seen[name] {
			return i
		}
		seen[name] = true
	}
	return -1
}

// refusal returns the fact of a refusal if it is an F.
func refusal[F core.Fact](got *core.Result) *F {
	if got.Refusal == nil {
		return nil
	}
	if f, ok := got.Refusal.Fact.(F); ok {
		return &f
	}
	return nil
}

// exhausted accepts a refusal by a count that really is reached. Expiry runs in bounded steps, so more may be held
// than the model still counts; fewer never.
func exhausted(got *core.Result, limit string, have int) bool {
	f := refusal[core.Exhausted](got)
	return f != nil && f.Limit == limit && int64(have) >= f.Max
}

func factOf(r *core.Result) core.Fact {
	if r.Refusal == nil {
		return nil
	}
	return r.Refusal.Fact
}

// named is a fact with its type, which its text does not always tell.
func named(f core.Fact) string { return fmt.Sprintf("%T %v", f, f) }

func sameFact(want, got core.Fact) error {
	if w, ok := want.(core.RevMismatch); ok {
		g, ok := got.(core.RevMismatch)
		if ok && (w.Rev == g.Rev || w.Rev == laterRev) && w.Missing == g.Missing && w.Keyspace == g.Keyspace && bytes.Equal(w.Key, g.Key) &&
			(g.Value == nil || bytes.Equal(w.Value, g.Value)) {
			return nil
		}
	} else if reflect.DeepEqual(want, got) {
		return nil
	}
	return fmt.Errorf("refused with %s, expected %s", named(got), named(want))
}

func describe(r *core.Result) string {
	if r.Refusal != nil {
		return fmt.Sprintf("refused at op %d with %T: %v", r.Refusal.Op, r.Refusal.Fact, r.Refusal.Fact)
	}
	return fmt.Sprintf("applied, replayed=%v", r.Replayed)
}
