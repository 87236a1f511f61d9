package check

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// queue is what a queue rules, and the order in which its tasks were made.
type queue struct {
	config core.QueueConfig
	fresh  map[place][]*task // tasks ready since their creation, oldest first
	pauses pauses
	keys   map[string]keyShare
	began  bucket // what began under the rate of the queue
}

// settings are the rules in force for one task.
type settings struct {
	core.QueueConfig
	retry core.Retry
}

// What a queue that was never configured rules.
var defaults = core.QueueConfig{
	MaxAttempts: 5, MaxCrashes: 10, MaxDeliveries: 1000, Lease: 60_000,
	Retry:           core.Retry{Backoff: core.BackoffFullJitter, Base: 5_000, FactorPercent: 200, Max: 15 * 60_000},
	RetainCompleted: 24 * 3_600_000, RetainCancelled: 24 * 3_600_000, RetainDead: 14 * 24 * 3_600_000,
	MaxPayload: 1 << 20, Aging: 60_000,
}

// settings returns what the task asks for, else its queue, else the defaults.
func (p *part) settings(t *task) settings {
	q, c := p.configOf(t.create.Queue), &t.create
	return settings{
		QueueConfig: core.QueueConfig{
			MaxAttempts:   cmp.Or(c.MaxAttempts, q.MaxAttempts, defaults.MaxAttempts),
			MaxCrashes:    cmp.Or(c.MaxCrashes, q.MaxCrashes, defaults.MaxCrashes),
			MaxDeliveries: cmp.Or(c.MaxDeliveries, q.MaxDeliveries, defaults.MaxDeliveries),
			Lease:         cmp.Or(c.Lease, q.Lease, defaults.Lease),
			MaxRun:        cmp.Or(c.MaxRun, q.MaxRun),
		},
		retry: core.Retry{
			Backoff:       cmp.Or(c.Retry.Backoff, q.Retry.Backoff, defaults.Retry.Backoff),
			Base:          cmp.Or(c.Retry.Base, q.Retry.Base, defaults.Retry.Base),
			FactorPercent: cmp.Or(c.Retry.FactorPercent, q.Retry.FactorPercent, defaults.Retry.FactorPercent),
			Max:           cmp.Or(c.Retry.Max, q.Retry.Max, defaults.Retry.Max),
		},
	}
}

func (p *part) configOf(name string) core.QueueConfig {
	if q := p.queues[name]; q != nil {
		return q.config
	}
	return core.QueueConfig{}
}

func (s settings) deliveriesOver(n uint32) bool {
	return s.MaxDeliveries > 0 && n >= uint32(s.MaxDeliveries)
}

// backoff bounds the delay after failure n, from 1. Rounding is left one millisecond either way.
func (s settings) backoff(n uint32) (least, most core.Millis) {
	r := s.retry
	full := r.Base
	switch r.Backoff {
	case core.BackoffFixed:
	case core.BackoffLinear:
		full = min(r.Base*core.Millis(n), r.Max)
	default:
		for range n - 1 {
			if full >= r.Max {
				break
			}
			full = full * core.Millis(r.FactorPercent) / 100
		}
	}
	full = min(full, r.Max)
	switch r.Backoff {
	case core.BackoffFullJitter:
		return 0, full + 1
	case core.BackoffEqualJitter:
		return max(0, full/2-1), full + 1
	}
	return max(0, full-core.Millis(n)), full + core.Millis(n)
}

// retain is how long a task that ended so is kept; nothing or less: it is removed at its end.
func (p *part) retain(t *task, state core.State) core.Millis {
	q := p.configOf(t.create.Queue)
	switch state {
	case core.Completed:
		return cmp.Or(q.RetainCompleted, defaults.RetainCompleted)
	case core.Cancelled:
		return cmp.Or(q.RetainCancelled, defaults.RetainCancelled)
	}
	return cmp.Or(q.RetainDead, defaults.RetainDead)
}

// create judges a new task, a repeated id, a taken unique key and a refusal. asked says that a client asks for it, rather than a cron.
func (m *Model) create(p *part, c *core.Commit, op *core.TaskCreate, asked bool, a answer) error {
	if t := p.tasks[op.ID]; t != nil {
		exists, told := a.fact.(core.AlreadyExists)
		known := told && exists.Kind == "task" || a.result != nil && a.result.Replayed || !t.forgettable(m.stamp)
		if known || a.blind && sameTask(&t.first, op) && m.guess() {
			return m.createAgain(p, t, op, a)
		}
	}
	if r, ok := p.replaced[op.ID]; ok {
		forgotten := m.stamp >= r.at.Add(keepIdentity)
		if err := r.again(op, a); err == nil && !(forgotten && a.blind && m.guess()) || !forgotten {
			return err
		}
	}
	if op.Unique.Key != "" {
		if held, ok := p.holder(op); ok && m.stamp < held.until {
			if judged, err := m.createHeld(p, c, held, op, a); judged {
				return err
			}
		}
	}
	if a.fact != nil {
		return m.createRefused(p, op, a.fact)
	}
	if q := p.queues[op.Queue]; q == nil && p.config.NoAutoCreate {
		return fmt.Errorf("task %s was made in queue %s, which does not exist", op.ID, op.Queue)
	}
	if asked && p.pinnedElsewhere(op.Queue) {
		return fmt.Errorf("task %s was made in partition %d, and queue %s is pinned", op.ID, p.index, op.Queue)
	}
	if !a.blind && (a.result.Replayed || a.result.Task != op.ID) {
		return fmt.Errorf("task %s is new: answered %s, replayed=%v", op.ID, a.result.Task, a.result.Replayed)
	}
	if err := p.allowed(op); err != nil {
		return err
	}
	if err := p.limitersFit(op.Queue, op.Limiters); err != nil {
		return fmt.Errorf("task %s was made: %w", op.ID, err)
	}
	if err := m.roomInTenant(p, 1, int64(len(op.Payload))); err != nil {
		return fmt.Errorf("task %s: %w", op.ID, err)
	}
	s := m.born(p, op)
	t := &task{id: op.ID, first: *op, create: *op, now: contentOf(op), creator: c.Principal, index: m.index, at: m.stamp, past: map[core.Token]settledAs{}}
	may := []standing{s}
	if len(op.After) > 0 {
		var err error
		if may, err = m.waitingFor(p, t, s); err != nil {
			return err
		}
		m.depend(p, t)
	}
	if err := m.addToBatch(p, t); err != nil {
		return err
	}
	told := core.State(0)
	if a.result != nil {
		told = a.result.State
	}
	may = slices.DeleteFunc(may, func(s standing) bool { return told != 0 && s.state != told })
	if len(may) == 0 {
		return fmt.Errorf("task %s was made %s, expected %s", op.ID, told, s.state)
	}
	set(m, p.tasks, op.ID, t)
	m.stand(p, t, may)
	s.fresh = s.fresh && t.sure(func(s *standing) bool { return s.fresh })
	p.join(m, t, s)
	if op.Unique.Key != "" {
		ttl := cmp.Or(op.Unique.TTL, 24*3_600_000)
		old := m.rules < core.FormatQueues
		set(m, p.unique, uniqueName{op.Queue, op.Unique.Key, op.Unique.Request && !old}, uniqueKey{*op, m.stamp.Add(ttl), old})
	}
	return nil
}

// holder returns what holds the unique key of a create, or held it last.
func (p *part) holder(op *core.TaskCreate) (uniqueKey, bool) {
	if held, ok := p.unique[uniqueName{op.Queue, op.Unique.Key, op.Unique.Request}]; ok {
		return held, true
	}
	held, ok := p.unique[uniqueName{op.Queue, op.Unique.Key, false}]
	return held, ok && held.old
}

// born returns the first standing of a task that waits for no other one.
func (m *Model) born(p *part, op *core.TaskCreate) standing {
	due, wall := op.RunAt, m.rules >= core.FormatQueues
	if due == 0 {
		due, wall = m.stamp.Add(op.Delay), false
	}
	s := standing{state: core.Ready, limit: core.Never, fresh: true}
	if due > m.now(wall) {
		s = standing{state: core.Scheduled, limit: core.Never, earliest: due, latest: due, wall: wall}
	}
	s.frees = op.Unique.Until
	s.expires = op.ExpiresAt
	if ttl := p.configOf(op.Queue).Limits.DefaultTTL; s.expires == 0 && ttl > 0 {
		s.expires = m.now(true).Add(ttl)
	}
	return s
}

// join enters a task in its queue.
func (p *part) join(m *Model, t *task, s standing) {
	q := p.queues[t.create.Queue]
	if q == nil {
		q = &queue{fresh: map[place][]*task{}}
		set(m, p.queues, t.create.Queue, q)
	}
	if !s.fresh || t.create.Priority > 9 {
		return
	}
	set(m, q.fresh, placeOf(t), append(slices.Clip(q.fresh[placeOf(t)]), t))
}

// createAgain judges a create of an id that is known.
func (m *Model) createAgain(p *part, t *task, op *core.TaskCreate, a answer) error {
	if !sameTask(&t.first, op) {
		if f, ok := a.fact.(core.AlreadyExists); ok && f.Kind == "task" {
			return nil
		}
		return fmt.Errorf("task %s exists with other content: answered %s", op.ID, a)
	}
	if a.blind {
		return nil
	}
	if a.fact != nil || !a.result.Replayed || a.result.Task != op.ID || !a.result.PayloadMatches {
		return fmt.Errorf("task %s exists with the same content: answered %s", op.ID, a)
	}
	return m.move(p, t, answer{result: &core.OpResult{State: a.result.State}}, func(s standing) []step {
		return []step{{next: s}}
	})
}

// createTaken judges a create whose unique key another task holds.
func (m *Model) createTaken(held uniqueKey, op *core.TaskCreate, a answer) error {
	holder := held.create.ID
	if op.Unique.Reject {
		if f, ok := a.fact.(core.AlreadyExists); ok && f.Kind == "unique" {
			return nil
		}
		return fmt.Errorf("unique key %q is held by task %s: answered %s", op.Unique.Key, holder, a)
	}
	if a.blind {
		return nil
	}
	if a.fact != nil || !a.result.Replayed || a.result.Task != holder {
		return fmt.Errorf("unique key %q is held by task %s: answered %s", op.Unique.Key, holder, a)
	}
	same := bytes.Equal(held.create.Payload, op.Payload)
	if !held.old {
		same = held.same(op)
	}
	if a.result.PayloadMatches != same {
		return fmt.Errorf("unique key %q: told that the content is the same: %v, it is: %v", op.Unique.Key, a.result.PayloadMatches, same)
	}
	return nil
}

func (m *Model) createRefused(p *part, op *core.TaskCreate, fact core.Fact) error {
	if m.notInBatch(p, op, fact) || p.limitersRefuse(op.Queue, op.Limiters, fact) {
		return nil
	}
	switch f := fact.(type) {
	case core.QueuePinned:
		if f.Queue == op.Queue && p.pinnedElsewhere(op.Queue) {
			return nil
		}
	case core.NotFound:
		if m.mayMiss(p, op, f) {
			return nil
		}
		if f.Kind == "queue" && p.config.NoAutoCreate && m.mayLack(p, op.Queue) {
			return nil
		}
	case core.Exhausted:
		if f.Limit == "queues" && m.mayLack(p, op.Queue) && int64(len(p.queues)) >= f.Max {
			return nil
		}
		if p.noRoom(op.Queue, int64(len(op.Payload)), f) == nil || f.Limit == "keys" && laneOf(op) != "" && p.keysOver(f.Max) {
			return nil
		}
		if m.tenantFullOfTasks(p, 1, int64(len(op.Payload)), f) {
			return nil
		}
	case core.Invalid:
		if f.Reason == "ceiling" && slices.Contains(p.beyondCeilings(op), f.Field) {
			return nil
		}
	case core.TooLarge:
		if int64(len(op.Payload)) > cmp.Or(p.configOf(op.Queue).MaxPayload, defaults.MaxPayload) {
			return nil
		}
	}
	return fmt.Errorf("task %s could be made: refused with %T %w", op.ID, fact, fact)
}

// sameTask compares what producers sent, with defaults filled in.
func sameTask(a, b *core.TaskCreate) bool {
	x, y := *a, *b
	for _, c := range []*core.TaskCreate{&x, &y} {
		c.TaskKind = cmp.Or(c.TaskKind, c.Queue)
		c.ContentType = cmp.Or(c.ContentType, "application/json")
		c.Cost = max(c.Cost, 1)
		if len(c.Headers) == 0 {
			c.Headers = nil
		}
		if len(c.Labels) == 0 {
			c.Labels = nil
		}
		if len(c.After) == 0 {
			c.After = nil
		}
	}
	if !bytes.Equal(x.Payload, y.Payload) {
		return false
	}
	x.Payload, y.Payload = nil, nil
	return reflect.DeepEqual(x, y)
}
