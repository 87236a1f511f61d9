package check

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// grantBytes of payload may end a grant early.
const grantBytes = 4 << 20

// grant judges which tasks a worker was given: ready ones of the queues asked for, under rising tokens, at most as many
// as there are slots, and no fewer than slots and ready tasks allow.
func (m *Model) grant(p *part, op *core.Grant, a answer) error {
	if err := m.applied(op, a); err != nil || a.blind {
		return err
	}
	least, most := m.slots(p, op)
	least, most = m.mayRun(p, least, most)
	if n := uint32(len(a.result.Assigned)); n > most {
		return fmt.Errorf("%d tasks for %d slots", n, most)
	}
	given := 0
	passes := make([]uint64, len(op.Queues))
	for i := range passes {
		passes[i] = op.Queues[i].Pass
	}
	for i := range a.result.Assigned {
		given += len(a.result.Assigned[i].Payload) + len(a.result.Assigned[i].Checkpoint)
		if op.Weighted {
			if err := m.weighed(p, op, passes, &a.result.Assigned[i]); err != nil {
				return fmt.Errorf("assigned[%d]: %w", i, err)
			}
		}
		if err := m.assigned(p, op, &a.result.Assigned[i]); err != nil {
			return fmt.Errorf("assigned[%d]: %w", i, err)
		}
	}
	if uint32(len(a.result.Assigned)) >= least || given >= grantBytes {
		return nil
	}
	if id, ok := m.readyIn(p, op.Queues, op.Worker); ok {
		return fmt.Errorf("%d tasks for %d slots, but task %s is ready", len(a.result.Assigned), least, id)
	}
	return nil
}

// slots bounds how many tasks may be given: a settle that counted on a slot and left its lease takes it back.
func (m *Model) slots(p *part, op *core.Grant) (least, most uint32) {
	least, most = op.N, op.N
	for _, hold := range op.Settles {
		t := p.tasks[hold.Task]
		if t == nil {
			continue
		}
		live := func(s *standing) bool { return s.live(hold.Token) }
		if t.might(live) && least > 0 {
			least--
		}
		if t.sure(live) && most > 0 {
			most--
		}
	}
	return least, most
}

// readyIn finds a task of some queues that is certainly ready for a worker.
func (m *Model) readyIn(p *part, queues []core.GrantQueue, worker string) (core.TaskID, bool) {
	for id, t := range p.tasks {
		asked := slices.ContainsFunc(queues, func(q core.GrantQueue) bool { return q.Name == t.create.Queue })
		if asked && !p.stops(t.create.Queue) && t.sure(func(s *standing) bool { return s.state == core.Ready }) && !m.mayWait(p, t, worker) {
			return id, true
		}
	}
	return core.TaskID{}, false
}

// weighed judges the queue of a task that a weighted grant gives next: each queue that was served less, or as much and is named before
// it, has nothing. passes are those of the grant's queues, and move.
func (m *Model) weighed(p *part, op *core.Grant, passes []uint64, got *core.Assigned) error {
	at := slices.IndexFunc(op.Queues, func(q core.GrantQueue) bool { return q.Name == got.Queue })
	if at < 0 {
		return fmt.Errorf("task %s is of queue %s, which was not asked for", got.Task, got.Queue)
	}
	for i, q := range op.Queues {
		if i == at || passes[i] > passes[at] || passes[i] == passes[at] && i > at {
			continue
		}
		if id, ok := m.readyIn(p, op.Queues[i:i+1], op.Worker); ok {
			return fmt.Errorf("task %s of queue %s went before task %s of queue %s, which was served less", got.Task, got.Queue, id, q.Name)
		}
	}
	if w := uint64(op.Queues[at].Weight); w > 0 {
		passes[at] += core.GrantStride / w
	}
	return nil
}

func (m *Model) assigned(p *part, op *core.Grant, got *core.Assigned) error {
	t := p.tasks[got.Task]
	if t == nil {
		return fmt.Errorf("task %s is unknown", got.Task)
	}
	if got.Token <= p.token {
		return fmt.Errorf("task %s: token %d is not above %d", got.Task, got.Token, p.token)
	}
	if !slices.ContainsFunc(op.Queues, func(q core.GrantQueue) bool { return q.Name == t.create.Queue }) {
		return fmt.Errorf("task %s is of queue %s, which was not asked for", got.Task, t.create.Queue)
	}
	if err := m.gives(p, t.create.Queue); err != nil {
		return fmt.Errorf("task %s: %w", got.Task, err)
	}
	if err := m.begins(p, t, op.Worker); err != nil {
		return fmt.Errorf("task %s: %w", got.Task, err)
	}
	if err := cmp.Or(sameContent(t, got), sameCheckpoint(t, got)); err != nil {
		return fmt.Errorf("task %s: %w", got.Task, err)
	}
	if err := p.inTurn(m, t); err != nil {
		return err
	}
	set := p.settings(t)
	lease := cmp.Or(op.Lease, set.Lease)
	var next []standing
	for _, s := range t.may {
		if s.state != core.Ready || got.Attempt != s.deliveries+1 || got.Failures != s.failures || got.Crashes != s.crashes {
			continue
		}
		if s.last != core.OutcomeNone {
			m.pastOf(t, s)
		}
		s.last, s.expires = core.OutcomeNone, 0
		if s.frees == core.UniqueStart {
			s.frees = core.UniqueTTL
		}
		s.state, s.fresh, s.token, s.session, s.lease = core.Running, false, got.Token, op.Session, lease
		s.deliveries++
		s.limit, s.given = core.Never, m.stamp
		if set.MaxRun > 0 {
			s.limit = m.stamp.Add(set.MaxRun)
		}
		if s.until = min(m.stamp.Add(lease), s.limit); s.until != got.LeaseUntil {
			continue
		}
		next = append(next, s)
	}
	if len(next) == 0 {
		return fmt.Errorf("task %s (attempt %d, failures %d, crashes %d, lease until %d) stands as %+v",
			got.Task, got.Attempt, got.Failures, got.Crashes, got.LeaseUntil, t.may)
	}
	old := p.token
	m.change(func() { p.token = old })
	p.token = got.Token
	m.stand(p, t, next)
	return nil
}

func sameContent(t *task, got *core.Assigned) error {
	c := &t.create
	if t.isLoose() {
		got := *got
		got.Payload, got.ContentType, got.Priority = t.now.payload, t.now.contentType, t.now.priority
		return sameContent(&task{create: *c, now: t.now, at: got.CreatedAt, letter: &letter{task: t.letter.task, queue: t.letter.queue}}, &got)
	}
	switch {
	case got.Queue != c.Queue || got.Kind != cmp.Or(c.TaskKind, c.Queue):
		return fmt.Errorf("queue %q kind %q, made as %q %q", got.Queue, got.Kind, c.Queue, c.TaskKind)
	case !bytes.Equal(got.Payload, t.now.payload):
		return fmt.Errorf("payload of %d bytes differs from the one it has", len(got.Payload))
	case got.ContentType != t.now.contentType:
		return fmt.Errorf("content type %q, it is %q", got.ContentType, t.now.contentType)
	case !t.sameHeaders(got.Headers):
		return fmt.Errorf("headers %v, made with %v", got.Headers, c.Headers)
	case got.Priority != t.priorityOf(got.Priority):
		return fmt.Errorf("priority %d, it is %d", got.Priority, t.now.priority)
	case got.CreatedAt != t.at && (t.letter == nil && !t.follows || got.CreatedAt < t.at):
		return fmt.Errorf("created at %d, was at %d", got.CreatedAt, t.at)
	}
	return nil
}

// pastOf remembers how the attempt of the last token ended, when another one begins.
func (m *Model) pastOf(t *task, s standing) {
	unsure := !t.sure(func(o *standing) bool { return o.token == s.token && o.last == s.last })
	set(m, t.past, s.token, settledAs{outcome: s.last, attempt: s.deliveries, unsure: unsure})
}

// inTurn judges that among tasks of one queue, key and priority that were never delivered, the oldest goes first.
func (p *part) inTurn(m *Model, t *task) error {
	if t.create.Priority > 9 || !t.might(func(s *standing) bool { return s.fresh }) {
		return nil
	}
	if t.might(func(s *standing) bool { return s.state == core.Ready && !s.fresh }) {
		return nil // a bulk job may have moved it
	}
	fresh := p.queues[t.create.Queue].fresh
	for line := fresh[placeOf(t)]; len(line) > 0; {
		first := line[0]
		if !first.sure(func(s *standing) bool { return s.fresh }) || first == t {
			line = line[1:]
			set(m, fresh, placeOf(t), line)
			if first == t {
				return nil
			}
			continue
		}
		return fmt.Errorf("task %s went before task %s, which is older in queue %s", t.id, first.id, t.create.Queue)
	}
	return nil
}

// tick judges timed work. What is due may have been done; when the answer says that nothing is left, it has been.
func (m *Model) tick(op *core.Tick, a answer) error {
	if err := m.applied(op, a); err != nil {
		return err
	}
	all := a.result != nil && !a.result.More
	for _, p := range m.partitions() {
		m.batchesTicked(p) // what a timer makes may leave no room for copies of dead tasks
		if len(p.bulks) > 0 {
			for _, t := range p.tasks {
				m.tickTask(p, t, all)
			}
			m.bulksTicked(p, all)
		} else {
			for _, id := range slices.Collect(maps.Keys(p.timed)) {
				m.due(p, p.tasks[id], all)
			}
		}
		m.goOn(p, all)
		m.keysGoOn(p, all)
		m.swept(p, all)
		m.retention(p)
		m.batchesTicked(p)
	}
	return nil
}

// due adds the standings that a task's timers lead to.
func (m *Model) due(p *part, t *task, all bool) {
	var next []standing
	add := func(s standing) {
		if !slices.Contains(next, s) {
			next = append(next, s)
		}
	}
	for _, s := range t.may {
		may, must, after := m.timer(p, t, s)
		if !may || !must || !all {
			add(s)
		}
		if may {
			for _, st := range after {
				add(st.next)
				if m.mayLapse(st.next) { // both timers may come in one tick
					add(m.lapse(p, t, st.next)[0].next)
				}
			}
		}
	}
	m.stand(p, t, next)
}

// timer tells whether a standing's timer may have come, must have come, and what follows.
func (m *Model) timer(p *part, t *task, s standing) (may, must bool, after []step) {
	switch {
	case m.mayLapse(s):
		after = m.lapse(p, t, s)
		if s.state == core.Scheduled && s.earliest <= m.now(s.wall) {
			after = append(after, step{next: s.ready()})
		}
		return true, true, after
	case s.state == core.Running && s.cancel.At != 0:
		return m.cancelTimers(p, t, s)
	}
	return m.timers(p, t, s)
}

// timers is timer for a task without expiry, whose cancel was not asked for.
func (m *Model) timers(p *part, t *task, s standing) (may, must bool, after []step) {
	switch {
	case s.state == core.Scheduled:
		now := m.now(s.wall)
		may, must = s.earliest <= now, s.latest <= now
		return may, must, []step{{next: s.ready()}}
	case s.state == core.Running && s.limit <= m.stamp:
		must = m.stamp >= m.termStart.Add(min(s.lease, longestGrace)) || m.rules >= core.FormatQueues && s.given >= m.termStart
		return true, must, append(m.failed(p, t, s, &core.TaskFail{}), m.expired(p, t, s)...)
	case s.state == core.Running && s.until <= m.stamp && m.stamp >= m.termStart.Add(min(s.lease, longestGrace)):
		return true, true, m.expired(p, t, s)
	}
	return false, false, nil
}

// mayLapse reports whether a task's expiry has come before its first delivery.
func (m *Model) mayLapse(s standing) bool {
	return (s.state == core.Ready || s.state == core.Scheduled || s.state == core.Blocked) && s.deliveries == 0 && s.expires != 0 && s.expires <= m.now(true)
}

// lapse: dead, as no worker took it in time.
func (m *Model) lapse(p *part, t *task, s standing) []step {
	s.lapsed = true
	return m.end(p, t, s, core.Dead)
}

// cancelTimers: whatever ends the attempt, its lease, max_run, or the grace of the cancel, the task is cancelled.
func (m *Model) cancelTimers(p *part, t *task, s standing) (may, must bool, after []step) {
	may, must, after = m.timers(p, t, s)
	after = m.cancelled(p, t, s, after)
	if s.cancel.Until <= m.stamp { // it waits for no new term; a lease that was over by then may count as a crash
		if may, must = true, true; s.until <= m.stamp {
			after = append(after, m.cancelled(p, t, s, m.expired(p, t, s))...)
		}
		s.last = core.OutcomeCancelled
		after = append(after, m.end(p, t, s, core.Cancelled)...)
	}
	return may, must, after
}

// expired: a crash. The first one is ready at once, later ones wait like failures.
func (m *Model) expired(p *part, t *task, s standing) []step {
	s.crashes++
	set := p.settings(t)
	if s.crashes >= uint32(set.MaxCrashes) {
		return m.end(p, t, s, core.Dead)
	}
	if s.crashes == 1 {
		return m.readyAgain(p, t, s)
	}
	_, hi := set.backoff(s.crashes)
	lo, _ := set.backoff(s.crashes - 1)
	return m.wait(p, t, s, m.stamp.Add(lo), m.stamp.Add(hi))
}

// retention lets terminal tasks go whose time is over, or whose bytes are beyond the namespace's. Only terminal ones.
func (m *Model) retention(p *part) {
	full := p.endedBytes() > cmp.Or(p.config.RetainBytes, defaultRetain)
	for _, t := range p.tasks {
		var gone []standing
		for _, s := range t.may {
			if s.gone || !s.state.Terminal() || !full && m.stamp < s.ended.Add(p.retain(t, s.state)) {
				continue
			}
			s.gone, s.known = true, true
			if !slices.Contains(t.may, s) {
				gone = append(gone, s)
			}
		}
		if len(gone) > 0 {
			m.stand(p, t, append(slices.Clone(t.may), gone...))
		}
	}
}

// endedBytes bounds from above what terminal tasks hold.
func (p *part) endedBytes() int64 {
	var sum int64
	for _, t := range p.tasks {
		if t.might(func(s *standing) bool { return s.state.Terminal() && !s.gone }) {
			sum += int64(len(t.now.payload)) + t.result + t.told.most + 1024
		}
	}
	return sum
}
