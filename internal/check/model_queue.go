package check

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// queueSet judges a change of a queue's configuration: the version rises by one, and only with a change.
func (m *Model) queueSet(p *part, op *core.QueueSet, a answer) error {
	q, there := p.queues[op.Queue]
	var now core.QueueConfig
	if there {
		now = q.config
	}
	if there && m.mayLack(p, op.Queue) && a.result != nil && a.result.Version == 1 {
		there = false // it went, and this makes another one
	}
	if f, ok := a.fact.(core.Exhausted); ok {
		if f.Limit == "queues" && m.mayLack(p, op.Queue) && int64(len(p.queues)) >= f.Max {
			return nil
		}
		return fmt.Errorf("queue %q: refused with %w, there are %d", op.Queue, f, len(p.queues))
	}
	if judged, err := p.setLetters(op, a); judged {
		return err
	}
	if judged, err := p.setLimited(op, a); judged {
		return err
	}
	changed := op.Config
	changed.Version = now.Version
	if changed != now || !there {
		changed.Version++
	}
	if err := m.judgeVersion(op.IfVersion, now.Version, changed.Version, a); err != nil || a.fact != nil {
		return err
	}
	next := &queue{config: changed, fresh: map[place][]*task{}}
	if there {
		m.countUnder(q)
		next.fresh, next.pauses, next.keys, next.began = q.fresh, q.pauses, q.keys, q.began
	}
	if changed.Aging != now.Aging && m.rules < core.FormatQueues { // rows keep the order they were written with: nothing is known of it any more
		next.fresh = map[place][]*task{}
		p.unorder(m, op.Queue)
	}
	set(m, p.queues, op.Queue, next)
	return nil
}

func (p *part) unorder(m *Model, name string) {
	for _, t := range p.tasks {
		if t.create.Queue != name {
			continue
		}
		next := append([]standing{}, t.may...)
		for i := range next {
			next[i].fresh = false
		}
		m.stand(p, t, next)
	}
}

// mayLack reports whether there may be no queue of a name: none was made, or it was never set and all its tasks may be gone.
func (m *Model) mayLack(p *part, name string) bool {
	q := p.queues[name]
	if q == nil {
		return true
	}
	if m.rules < core.FormatQueues || q.config.Version != 0 || !slices.Contains(q.paused(), core.QueuePaused{}) {
		return false
	}
	for _, t := range p.tasks {
		if t.create.Queue == name && !t.might(func(s *standing) bool { return s.gone }) {
			return false
		}
	}
	return true
}

// queueDelete judges the removal of a queue: with tasks that have not ended only by purge. All of its tasks are gone then,
// those that had not ended as cancelled ones; their ids are known for a while.
func (m *Model) queueDelete(p *part, op *core.QueueDelete, a answer) error {
	if m.rules < core.FormatQueues {
		if f, ok := a.fact.(core.Invalid); ok && f.Reason == "not_supported" {
			return nil
		}
		return fmt.Errorf("a queue was removed by an entry of format %d: answered %s", m.rules, a)
	}
	var version uint64
	if q := p.queues[op.Queue]; q != nil {
		version = q.config.Version
	}
	waits := func(s *standing) bool { return !s.gone && !s.state.Terminal() }
	switch f := a.fact.(type) {
	case nil:
	case core.RevMismatch:
		if op.IfVersion >= 0 && uint64(op.IfVersion) != version && f.Rev == version {
			return nil
		}
		return fmt.Errorf("queue %q has version %d: answered %s", op.Queue, version, a)
	case core.WrongState:
		for _, t := range p.tasks {
			if !op.Purge && t.create.Queue == op.Queue && t.might(func(s *standing) bool { return waits(s) && s.state == f.State }) {
				return nil
			}
		}
		return fmt.Errorf("queue %q has no tasks that are %s: answered %s", op.Queue, f.State, a)
	default:
		return fmt.Errorf("queue %q: answered %s", op.Queue, a)
	}
	switch {
	case op.IfVersion >= 0 && uint64(op.IfVersion) != version:
		return fmt.Errorf("queue %q has version %d and was removed as version %d", op.Queue, version, op.IfVersion)
	case !a.blind && !a.result.Existed && !m.mayLack(p, op.Queue):
		return fmt.Errorf("queue %q is there and was not found", op.Queue)
	case !a.blind && a.result.Existed && p.queues[op.Queue] == nil:
		return fmt.Errorf("queue %q is not there and was removed", op.Queue)
	}
	for id, t := range p.tasks {
		if t.create.Queue != op.Queue {
			continue
		}
		if !op.Purge && t.sure(waits) {
			return fmt.Errorf("queue %q was removed with task %s, which has not ended", op.Queue, id)
		}
		m.purge(p, t)
	}
	drop(m, p.queues, op.Queue)
	return nil
}

// purge removes a task with its queue.
func (m *Model) purge(p *part, t *task) {
	var next []standing
	for _, s := range t.may {
		if !s.gone {
			s.gone, s.known, s.fresh, s.frees = true, true, false, core.UniqueTTL
			if !s.state.Terminal() {
				s.state, s.ended, s.pending, s.unswept = core.Cancelled, m.stamp, awaited{}, true
				set(m, p.unswept, t.id, true)
			}
		}
		if !slices.Contains(next, s) {
			next = append(next, s)
		}
	}
	m.stand(p, t, next)
}
