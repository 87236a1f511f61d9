package check

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// replaced is a create that replaced what an earlier one of its unique key had asked for. It is known under its id for a while.
type replaced struct {
	create core.TaskCreate
	task   core.TaskID // of the earlier create
	at     core.ShardTime
}

// again judges a repetition of such a create.
func (r *replaced) again(op *core.TaskCreate, a answer) error {
	if !sameTask(&r.create, op) {
		if f, ok := a.fact.(core.AlreadyExists); ok && f.Kind == "task" {
			return nil
		}
		return fmt.Errorf("create %s replaced another with other content: answered %s", op.ID, a)
	}
	if a.blind || a.fact == nil && a.result.Replayed && a.result.Task == r.task && a.result.PayloadMatches {
		return nil
	}
	return fmt.Errorf("create %s, which replaced that of task %s, comes again: answered %s", op.ID, r.task, a)
}

// same reports whether a create asks for the same as the one that holds its unique key.
func (k *uniqueKey) same(op *core.TaskCreate) bool {
	first, again := k.create, *op
	first.ID, first.Unique, again.ID, again.Unique = core.TaskID{}, core.Unique{}, core.TaskID{}, core.Unique{}
	return sameTask(&first, &again)
}

// createHeld judges a create whose unique key a task holds, or may have freed. judged is false where the key was free.
func (m *Model) createHeld(p *part, c *core.Commit, held uniqueKey, op *core.TaskCreate, a answer) (judged bool, err error) {
	t := p.tasks[held.create.ID]
	if freed := held.create.Unique.Until != core.UniqueTTL; t == nil || !freed && !op.Unique.Replace {
		return true, m.createTaken(held, op, a)
	} else if freed {
		holds := func(s *standing) bool { return s.frees != core.UniqueTTL }
		free := func(s *standing) bool { return s.frees == core.UniqueTTL }
		isHeld := a.isHeld(t.id)
		if a.blind {
			isHeld = t.might(holds) && (!t.might(free) || !m.guess())
		}
		switch {
		case isHeld && !m.keep(p, t, holds):
			return true, fmt.Errorf("unique key %q was freed by task %s: answered %s", op.Unique.Key, t.id, a)
		case !isHeld && t.might(free):
			m.keep(p, t, free)
			return false, nil
		}
	}
	if !op.Unique.Replace || held.old {
		return true, m.createTaken(held, op, a)
	}
	return true, m.createReplaces(p, t, held, op, a)
}

// isHeld reports whether an answer to a create says that its unique key is held by a task.
func (a answer) isHeld(by core.TaskID) bool {
	if a.fact != nil {
		f, ok := a.fact.(core.AlreadyExists)
		return ok && f.Kind == "unique"
	}
	return a.result != nil && a.result.Task == by
}

// createReplaces judges a create which replaces what another asked for whose task holds the unique key, unless that has started.
func (m *Model) createReplaces(p *part, t *task, held uniqueKey, op *core.TaskCreate, a answer) error {
	waits := func(s *standing) bool {
		return !s.gone && s.deliveries == 0 && (s.state == core.Ready || s.state == core.Scheduled || s.state == core.Blocked)
	}
	still := held.same(op) && op.Delay == 0
	if a.blind && !still && t.might(waits) && !t.sure(waits) {
		started := m.guess()
		m.keep(p, t, func(s *standing) bool { return waits(s) != started })
	}
	switch {
	case a.fact != nil:
		if still || !m.keep(p, t, waits) {
			return fmt.Errorf("task %s is as create %s wants it, or has started: answered %s", t.id, op.ID, a)
		}
		return m.createRefused(p, op, a.fact)
	case a.blind && (still || !t.might(waits)):
		return nil
	case !a.blind && a.result.Replayed:
		if !still && !m.keep(p, t, func(s *standing) bool { return !waits(s) }) {
			return fmt.Errorf("task %s has not started, and create %s did not replace what it is: answered %s", t.id, op.ID, a)
		}
		return m.createTaken(held, op, a)
	case still || !a.blind && (!a.result.Existed || a.result.Task != t.id):
		return fmt.Errorf("create %s was to replace task %s: answered %s", op.ID, t.id, a)
	}
	if err := p.replaceAllowed(t, op); err != nil {
		return err
	}
	var next []standing
	for _, s := range t.may {
		if !waits(&s) {
			continue
		}
		to := m.born(p, op)
		if s.state == core.Blocked {
			to.state = core.Blocked
		}
		if a.result != nil && a.result.State != 0 && a.result.State != to.state {
			continue
		}
		s.state, s.earliest, s.latest, s.wall, s.expires, s.frees, s.fresh = to.state, to.earliest, to.latest, to.wall, to.expires, to.frees, false
		if !slices.Contains(next, s) {
			next = append(next, s)
		}
	}
	if len(next) == 0 {
		return fmt.Errorf("task %s was replaced and is answered %s; it may have been %+v", t.id, a, t.may)
	}
	create, now := t.create, t.now
	m.change(func() { t.create, t.now = create, now })
	t.create, t.now = *op, contentOf(op)
	t.create.ID, t.create.Tag, t.create.Key, t.create.Cost = t.id, create.Tag, create.Key, create.Cost
	t.create.Limiters, t.create.After, t.create.OnDepFailure, t.create.Batch = create.Limiters, create.After, create.OnDepFailure, create.Batch
	m.setPerhaps(t, nil)
	m.stand(p, t, next)
	m.relabelled(p, t)
	set(m, p.replaced, op.ID, replaced{*op, t.id, m.stamp})
	holds := *op
	holds.ID = t.id
	ttl := op.Unique.TTL
	if ttl == 0 {
		ttl = 24 * 3_600_000
	}
	set(m, p.unique, uniqueName{op.Queue, op.Unique.Key, op.Unique.Request}, uniqueKey{holds, m.stamp.Add(ttl), false})
	return nil
}

// replaceAllowed judges that a create which replaced another is within the limits of its queue.
func (p *part) replaceAllowed(t *task, op *core.TaskCreate) error {
	if bad := p.beyondCeilings(op); len(bad) > 0 {
		return fmt.Errorf("create %s replaced another, and asks for more than queue %s allows: %v", op.ID, op.Queue, bad)
	}
	more := int64(len(op.Payload)) - int64(len(t.now.payload))
	most := p.configOf(op.Queue).Limits.MaxBytes
	if least, _ := p.held(op.Queue); more > 0 && most > 0 && least+more > most {
		return fmt.Errorf("create %s gave task %s %d bytes more, and queue %s has %d bytes of %d", op.ID, t.id, more, op.Queue, least, most)
	}
	return nil
}
