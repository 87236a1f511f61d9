package check

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// A task may wait for others. Each of its standings knows for which of them, by their place in the create. When one of those may have
// ended, the standings are added to which that may have led; when all have surely ended, the task surely waits no more.

// awaited are the places of those that a task waits for, in core.TaskCreate.After.
type awaited [2]uint64

func (a *awaited) has(i int) bool { return a[i/64]&(1<<(i%64)) != 0 }
func (a *awaited) add(i int)      { a[i/64] |= 1 << (i % 64) }
func (a *awaited) drop(i int)     { a[i/64] &^= 1 << (i % 64) }
func (a *awaited) count() int     { return bits.OnesCount64(a[0]) + bits.OnesCount64(a[1]) }

// effect is what the end of one task means for another one that waits for it.
type effect byte

const (
	effectNone effect = iota
	effectGo
	effectCancel
	effectUnknown // the id is not known: a create that names it is refused
)

// effectOf is the effect of a state.
func effectOf(op *core.TaskCreate, i int, s core.State) effect {
	switch {
	case !s.Terminal():
		return effectNone
	case s == core.Completed || op.After[i].Terminal || op.OnDepFailure == core.DepRun:
		return effectGo
	case op.OnDepFailure == core.DepCancel:
		return effectCancel
	}
	return effectNone
}

// misfitsOfAfter: few, sorted, each once, not the task itself, and a policy that there is.
func misfitsOfAfter(op *core.TaskCreate) []misfit {
	var out []misfit
	if len(op.After) > core.MaxAfter {
		out = append(out, misfit{"after", "after"})
	}
	for i, a := range op.After {
		if a.Task == op.ID || i > 0 && slices.Compare(op.After[i-1].Task[:], a.Task[:]) >= 0 {
			out = append(out, misfit{field: "after"})
		}
	}
	if op.OnDepFailure > core.DepRun || op.OnDepFailure != core.DepHold && len(op.After) == 0 {
		out = append(out, misfit{field: "on_dep_failure"})
	}
	return out
}

// mayMean lists what one of those that a new task names may mean for it.
func (m *Model) mayMean(p *part, op *core.TaskCreate, i int) (out []effect) {
	t := p.tasks[op.After[i].Task]
	if t == nil {
		return []effect{effectUnknown}
	}
	add := func(e effect) {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	for _, s := range t.may {
		e := effectOf(op, i, s.state)
		if s.gone && (!s.known || e != effectGo) {
			e = effectUnknown
		}
		add(e)
		if s.gone && m.stamp >= s.ended.Add(keepIdentity) {
			add(effectUnknown)
		}
	}
	return out
}

// mayMiss reports whether a create may be refused because an id is not known that it names.
func (m *Model) mayMiss(p *part, op *core.TaskCreate, f core.NotFound) bool {
	for i, a := range op.After {
		if f.Kind == "task" && f.ID == a.Task.String() && slices.Contains(m.mayMean(p, op, i), effectUnknown) {
			return true
		}
	}
	return false
}

// waitingFor lists the standings that a new task may have that names others. s is the one that it would have without.
func (m *Model) waitingFor(p *part, t *task, s standing) ([]standing, error) {
	op := &t.create
	first := s
	first.state, first.fresh = core.Blocked, false
	may := []standing{first}
	for i := range op.After {
		effects := m.mayMean(p, op, i)
		var next []standing
		for _, s := range may {
			for _, e := range effects {
				switch n := s; e {
				case effectNone:
					n.pending.add(i)
					next = append(next, n)
				case effectGo:
					next = append(next, n)
				case effectCancel:
					if n.cancel.At == 0 { // the first one is named
						n.cancel = m.cancelOf(p.tasks[op.After[i].Task], effectState(p.tasks[op.After[i].Task], op, i), m.stamp)
					}
					next = append(next, n)
				}
			}
		}
		may = next
	}
	var out []standing
	for _, n := range may {
		switch {
		case n.cancel.At != 0:
			n.pending = awaited{}
			for _, st := range m.end(p, t, n.timeless(), core.Cancelled) {
				out = append(out, st.next)
			}
		case n.pending == awaited{}:
			out = append(out, s)
		default:
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("task %s was made, and one that it names is not known", t.id)
	}
	return out, nil
}

// effectState is a state of a task that cancels those that wait for it.
func effectState(t *task, op *core.TaskCreate, i int) core.State {
	for _, s := range t.may {
		if effectOf(op, i, s.state) == effectCancel {
			return s.state
		}
	}
	return 0
}

// cancelOf is the cancel of a task because another one ended in a state.
func (m *Model) cancelOf(of *task, s core.State, at core.ShardTime) core.CancelAsked {
	return core.CancelAsked{At: at, Reason: fmt.Sprintf("task %s, which it waited for, is %s", of.id, s)}
}

// timeless is the same task without a time that it waits for.
func (s standing) timeless() standing {
	s.earliest, s.latest, s.wall = 0, 0, false
	return s
}

// released is a task that waits for no other one any more.
func (m *Model) released(s standing) standing {
	if s.earliest > m.now(s.wall) {
		s.state = core.Scheduled
		return s
	}
	return s.ready()
}

// depend remembers which tasks a new one waits for: an id that is made again is another task.
func (m *Model) depend(p *part, t *task) {
	t.deps = make([]*task, len(t.create.After))
	for i, a := range t.create.After {
		if d := p.tasks[a.Task]; d != nil {
			t.deps[i] = d
			n := len(d.dependents)
			m.change(func() { d.dependents = d.dependents[:n] })
			d.dependents = append(d.dependents, t)
		}
	}
}

// ends are the ways in which a task may have ended, as those see it that wait for it.
func ends(may []standing) (out []standing) {
	for _, s := range may {
		e := standing{state: s.state, ended: s.ended, unswept: s.unswept}
		if !s.state.Terminal() {
			e = standing{}
		}
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// mayEndNow reports whether one of the standings that are led from old ones is an end at the stamp. It may have been among the old ones
// too: that says nothing of when in the entry the task ended, and some may wait for it that were made in between.
func (m *Model) mayEndNow(old, may []standing) bool {
	return slices.ContainsFunc(old, func(s standing) bool { return !s.state.Terminal() }) &&
		slices.ContainsFunc(may, func(s standing) bool { return s.state.Terminal() && s.ended == m.stamp })
}

// noteEnds notes that those must be looked at that wait for a task, where it may have ended in another way than before, or just now.
func (m *Model) noteEnds(p *part, t *task, old []standing) {
	if len(t.dependents) == 0 {
		return
	}
	if was, is := ends(old), ends(t.may); !slices.Equal(was, is) || m.mayEndNow(old, t.may) {
		for _, d := range t.dependents {
			m.follow = append(m.follow, following{p, d})
		}
	}
}

// following is a task that waits for one that may have ended.
type following struct {
	p *part
	t *task
}

// followEnds adds the standings to which the ends of tasks may have led those that wait for them, which may end further ones.
func (m *Model) followEnds() {
	for len(m.follow) > 0 {
		f := m.follow[0]
		m.follow = m.follow[1:]
		m.followOne(f.p, f.t)
	}
	m.follow = nil
}

// meaning is one thing that the end of another task may mean.
type meaning struct {
	effect effect
	at     core.ShardTime
	state  core.State
}

func (m *Model) followOne(p *part, t *task) {
	var next []standing
	add := func(s standing) {
		if !slices.Contains(next, s) {
			next = append(next, s)
		}
	}
	for _, s := range t.may {
		if s.state != core.Blocked || s.gone {
			add(s)
			continue
		}
		may := []standing{s}
		for i := range t.deps {
			if !s.pending.has(i) {
				continue
			}
			var then []standing
			for _, n := range may {
				if n.cancel.At != 0 { // it was cancelled by an earlier one
					then = append(then, n)
				}
				for _, e := range m.meanings(t, i) {
					c := n
					switch {
					case e.effect == effectCancel && (c.cancel.At == 0 || e.at <= c.cancel.At):
						c.cancel = m.cancelOf(t.deps[i], e.state, e.at)
					case e.effect == effectGo && c.cancel.At == 0:
						c.pending.drop(i)
					}
					if !slices.Contains(then, c) {
						then = append(then, c)
					}
				}
			}
			may = then
		}
		for _, n := range may {
			switch {
			case n.cancel.At != 0:
				n.pending = awaited{}
				at := m.stamp
				m.stamp = n.cancel.At // when the other one ended
				for _, st := range m.end(p, t, n.timeless(), core.Cancelled) {
					add(st.next)
				}
				m.stamp = at
			case n.pending == awaited{}:
				add(m.released(n))
			default:
				add(n)
			}
		}
	}
	if !slices.Equal(next, t.may) {
		m.stand(p, t, next)
	}
}

// meanings lists what the standings of one that a task waits for may mean for it.
func (m *Model) meanings(t *task, i int) (out []meaning) {
	add := func(e meaning) {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	for _, s := range t.deps[i].may {
		e := meaning{effectOf(&t.create, i, s.state), s.ended, s.state}
		if e.effect != effectCancel {
			e = meaning{effect: e.effect}
		}
		if s.unswept {
			add(meaning{effect: effectNone})
			e.at = min(e.at, m.stamp)
			if e.effect == effectCancel {
				e.at = m.stamp
			}
		}
		add(e)
	}
	return out
}

// swept notes that the tasks of removed queues may have been looked at by now, and all of them where nothing is left to do.
func (m *Model) swept(p *part, all bool) {
	for id := range p.unswept {
		t := p.tasks[id]
		if t == nil {
			continue
		}
		for _, d := range t.dependents {
			m.follow = append(m.follow, following{p, d})
		}
	}
	m.followEnds()
	if !all {
		return
	}
	for id := range p.unswept {
		if t := p.tasks[id]; t != nil {
			next := slices.Clone(t.may)
			for i := range next {
				next[i].unswept = false
			}
			m.stand(p, t, next)
		}
		drop(m, p.unswept, id)
	}
	m.followEnds()
}

// samePending compares how many a task waits for, as it is read back, with what it may be.
func (s *standing) samePending(got *core.Task) bool {
	return s.state != core.Blocked || uint32(s.pending.count()) == got.Pending
}
