package check

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// pauses are how a queue may stand: given out, which is the zero value, or paused. There is more than one where a tick may have
// let it go on.
type pauses []core.QueuePaused

func (q *queue) paused() pauses {
	if q == nil || len(q.pauses) == 0 {
		return pauses{{}}
	}
	return q.pauses
}

func (m *Model) setPauses(q *queue, next pauses) {
	was := q.pauses
	m.change(func() { q.pauses = was })
	q.pauses = next
}

// pause judges that a queue stops, or goes on.
func (m *Model) pause(p *part, c *core.Commit, op *core.QueuePause, a answer) error {
	q := p.queues[op.Queue]
	if f, ok := a.fact.(core.NotFound); ok && f.Kind == "queue" && m.mayLack(p, op.Queue) {
		return nil
	}
	if a.fact != nil || q == nil {
		return fmt.Errorf("queue %q: answered %s", op.Queue, a)
	}
	var next pauses
	for _, was := range q.paused() {
		to := core.QueuePaused{}
		same := was == to
		if !op.Resume {
			to = core.QueuePaused{Since: m.stamp, Until: op.Until, By: c.Principal, Reason: cutReason(op.Reason)}
			if same = was.Since != 0 && was.Until == to.Until && was.Reason == to.Reason; same {
				to = was
			} else if was.Since != 0 {
				to.Since = was.Since
			}
		}
		if !a.blind && a.result.Replayed != same {
			continue
		}
		if !slices.Contains(next, to) {
			next = append(next, to)
		}
	}
	if len(next) == 0 {
		return fmt.Errorf("queue %q may stand as %+v: answered %s", op.Queue, q.paused(), a)
	}
	m.setPauses(q, next)
	return nil
}

// goOn lets queues go on whose pause is over by the wall clocks; all: the tick says that it has done so.
func (m *Model) goOn(p *part, all bool) {
	for _, q := range p.queues {
		var next pauses
		for _, s := range q.paused() {
			over := s.Until != 0 && s.Until <= m.now(true)
			for _, add := range []core.QueuePaused{s, {}} {
				if may := add == s && !(over && all) || add != s && over; may && !slices.Contains(next, add) {
					next = append(next, add)
				}
			}
		}
		if !slices.Equal(next, q.paused()) {
			m.setPauses(q, next)
		}
	}
}

// gives judges that a task of a queue could be given out, as none of a paused queue is.
func (m *Model) gives(p *part, name string) error {
	q := p.queues[name]
	if !slices.Contains(q.paused(), core.QueuePaused{}) {
		return fmt.Errorf("queue %q is paused: %+v", name, q.paused())
	}
	if len(q.paused()) > 1 {
		m.setPauses(q, nil)
	}
	return nil
}

// stops reports whether a queue may be paused.
func (p *part) stops(name string) bool {
	return slices.ContainsFunc(p.queues[name].paused(), func(s core.QueuePaused) bool { return s.Since != 0 })
}
