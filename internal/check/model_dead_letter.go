package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// letter is of a task that was made as a copy of one that died.
type letter struct {
	task  core.TaskID // that died
	queue string      // of that
	born  uint64      // the entry that may have made it last
	loose bool        // several entries may have made it, with different content
}

// isLoose reports whether it is not known what a task holds.
func (t *task) isLoose() bool { return t.letter != nil && t.letter.loose }

// leadsBack reports whether the dead letters of a queue come back to it, or go too far, where it names another queue for them.
func (p *part) leadsBack(queue, to string) bool {
	for range 16 {
		if to == "" || to == queue {
			return to == queue
		}
		to = p.configOf(to).Share.DeadLetter
	}
	return true
}

// setLetters judges which queue of dead letters a queue may have. judged is false where there is no ground to refuse it.
func (p *part) setLetters(op *core.QueueSet, a answer) (judged bool, err error) {
	if !p.leadsBack(op.Queue, op.Config.Share.DeadLetter) {
		return false, nil
	}
	if _, ok := a.fact.(core.RevMismatch); ok {
		return false, nil // the version is judged first
	}
	if f, ok := a.fact.(core.Invalid); ok && f.Field == "config.dead_letter" {
		return true, nil
	}
	return true, fmt.Errorf("queue %q: its dead letters in %q lead back to it: answered %s", op.Queue, op.Config.Share.DeadLetter, a)
}

// letters makes copies of a task that came to stand as dead. Where it is certain that it died just now, and that there is room, the
// copy is certain too.
func (m *Model) letters(p *part, t *task, old, next []standing) {
	to := p.configOf(t.create.Queue).Share.DeadLetter
	if to == "" {
		return
	}
	died := func(s *standing) bool {
		return s.state == core.Dead && s.ended == m.stamp && !slices.ContainsFunc(old, func(o standing) bool {
			return o.state == core.Dead && o.redrives == s.redrives && o.ended == s.ended
		})
	}
	sure := !slices.ContainsFunc(next, func(s standing) bool { return !died(&s) || s.redrives != next[0].redrives })
	again := m.mayEndNow(old, next)
	for i := range next {
		if s := &next[i]; died(s) || again && s.state == core.Dead && s.ended == m.stamp {
			m.letter(p, t, s, to, sure)
		}
	}
}

// letter makes the copy of a task that stands as dead.
func (m *Model) letter(p *part, t *task, s *standing, to string, sure bool) {
	id := core.DeadLetterID(t.id, s.redrives)
	if p.configOf(to).MaxPayload > 0 && int64(len(t.now.payload)) > p.configOf(to).MaxPayload {
		return
	}
	op := core.TaskCreate{
		ID: id, Queue: to, TaskKind: cmp.Or(t.create.TaskKind, t.create.Queue), Priority: t.now.priority, Payload: t.now.payload,
		ContentType: t.now.contentType, Headers: withoutDead(t.create.Headers), Labels: t.now.labels, Key: t.create.Key, Tag: t.create.Tag,
	}
	if most := p.configOf(to).Limits.CeilingPriority; most > 0 {
		op.Priority = min(op.Priority, uint8(most))
	}
	ready := m.born(p, &op)
	ready.fresh = false
	absent := standing{state: core.Dead, limit: core.Never, gone: true}
	was := p.tasks[id]
	l := p.configOf(to).Limits
	sure = sure && was == nil && p.queues[to] != nil && !m.mayLack(p, to) && l.MaxTasks == 0 && l.MaxBytes == 0
	if q, ok := m.quotaOf(p); ok && (q.least.Tasks < 1 || q.least.Bytes < int64(len(op.Payload))) {
		sure = false // the tenant may have no room for it
	}
	if was != nil && (was.letter == nil || was.letter.born == m.index && was.might(func(s *standing) bool { return *s != absent })) ||
		was != nil && was.sure(func(s *standing) bool { return !s.gone }) {
		return // it may have been made by this death already, or its id is taken
	}
	made := &task{
		id: id, first: op, create: op, now: contentOf(&op), creator: t.creator, index: m.index, at: m.stamp, past: map[core.Token]settledAs{},
		letter: &letter{task: t.id, queue: t.create.Queue, born: m.index}, perhaps: slices.Clone(t.perhaps),
	}
	may := []standing{absent, ready}
	if sure {
		may = may[1:]
	}
	if was != nil { // it may have died before
		if may = slices.Clone(was.may); !slices.Contains(may, ready) {
			may = append(may, ready)
		}
		made.letter.loose = was.isLoose() || !sameTask(&was.create, &op) || !sameTask(&was.first, &was.create) || len(was.perhaps) > 0
		if len(was.now.payload) > len(made.now.payload) {
			made.now.payload = was.now.payload
		}
		made.index, made.at, made.past, made.told, made.result = was.index, was.at, was.past, was.told, was.result
	}
	set(m, p.tasks, id, made)
	if p.queues[to] == nil {
		set(m, p.queues, to, &queue{fresh: map[place][]*task{}})
	}
	m.stand(p, made, may)
}

// withoutDead returns the headers that do not tell of a death.
func withoutDead(headers []core.Header) []core.Header {
	return slices.DeleteFunc(slices.Clone(headers), func(h core.Header) bool { return strings.HasPrefix(h.Name, core.HeaderDead) })
}

// sameHeaders compares the headers that a worker got: a copy of a dead task tells, besides those of the task, of which one it is a copy.
func (t *task) sameHeaders(got []core.Header) bool {
	if t.letter == nil {
		return slices.Equal(got, t.create.Headers)
	}
	return slices.Equal(withoutDead(got), t.create.Headers) &&
		slices.Contains(got, core.Header{Name: core.HeaderDeadTask, Value: t.letter.task.String()}) &&
		slices.Contains(got, core.Header{Name: core.HeaderDeadQueue, Value: t.letter.queue})
}
