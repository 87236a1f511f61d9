package check

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// task is one id that was created, with every standing that the answers so far allow.
type task struct {
	id      core.TaskID
	create  core.TaskCreate
	creator string
	index   uint64
	at      core.ShardTime
	result  int64 // bytes
	may     []standing
	past    map[core.Token]settledAs // attempts that their holder ended
}

type settledAs struct {
	outcome core.Outcome
	attempt uint32
}

// keepAttempts is how many attempts a task that is kept remembers; a removed one remembers its last token alone.
const keepAttempts = 20

// standing is where a task may stand.
type standing struct {
	state core.State
	token core.Token // of the last grant
	until core.ShardTime
	lease core.Millis
	limit core.ShardTime // max_run of this attempt; Never without
	// earliest and latest bound the time at which a scheduled task is due.
	earliest, latest core.ShardTime

	deliveries, failures, crashes, snoozes uint32

	session core.SessionID
	ended   core.ShardTime
	gone    bool // removed after it ended
	known   bool // gone, but its id is still answered for
	fresh   bool // ready since its creation, never delivered
}

func (s *standing) live(token core.Token) bool { return s.state == core.Running && s.token == token }

// keep drops the standings for which is is false; it reports false, and keeps all, when none is left.
func (m *Model) keep(p *part, t *task, is func(*standing) bool) bool {
	left := slices.DeleteFunc(slices.Clone(t.may), func(s standing) bool { return !is(&s) })
	if len(left) == 0 {
		return false
	}
	m.stand(p, t, left)
	return true
}

func (t *task) sure(is func(*standing) bool) bool {
	return !slices.ContainsFunc(t.may, func(s standing) bool { return !is(&s) })
}

func (t *task) might(is func(*standing) bool) bool {
	return slices.ContainsFunc(t.may, func(s standing) bool { return is(&s) })
}

// forgettable reports whether nothing may be known of the task any more.
func (t *task) forgettable(now core.ShardTime) bool {
	return t.might(func(s *standing) bool { return s.gone && (!s.known || now >= s.ended.Add(keepIdentity)) })
}

// answer is what an op was seen to answer: a result, a fact, or nothing, when a later op of the commit was refused.
type answer struct {
	result *core.OpResult
	fact   core.Fact
	blind  bool
}

// step is one way in which an op can end from one standing.
type step struct {
	fact     core.Fact // refused; the standing stays
	replayed bool      // nothing changes
	next     standing
}

// explains reports whether the step could have been answered so.
func (s step) explains(a answer) bool {
	switch {
	case a.blind:
		return s.fact == nil
	case a.fact != nil:
		return s.fact != nil && alike(s.fact, a.fact)
	case s.fact != nil || s.replayed != a.result.Replayed:
		return false
	}
	return s.replayed || a.result.State == 0 || a.result.State == s.next.state
}

// alike compares facts; how an unknown thing is called back to the caller is the edge's matter.
func alike(want, got core.Fact) bool {
	if w, ok := want.(core.NotFound); ok {
		g, ok := got.(core.NotFound)
		return ok && w.Kind == g.Kind
	}
	return reflect.DeepEqual(want, got)
}

// move keeps the steps that explain the answer and puts the task where they lead.
func (m *Model) move(p *part, t *task, a answer, steps func(standing) []step) error {
	var next []standing
	var tried []string
	for _, s := range t.may {
		for _, st := range steps(s) {
			tried = append(tried, st.String())
			if !st.explains(a) {
				continue
			}
			if st.fact != nil || st.replayed {
				st.next = s
			}
			if !slices.Contains(next, st.next) {
				next = append(next, st.next)
			}
		}
	}
	if len(next) == 0 {
		return fmt.Errorf("task %s: answered %s; allowed: %v", t.id, a, tried)
	}
	m.stand(p, t, next)
	return nil
}

// stand replaces a task's standings, to be taken back with the commit.
func (m *Model) stand(p *part, t *task, next []standing) {
	old, timed := t.may, p.timed[t.id]
	m.change(func() {
		t.may = old
		p.setTimed(t.id, timed)
	})
	t.may = next
	p.setTimed(t.id, t.might(func(s *standing) bool {
		return s.state == core.Running || s.state == core.Scheduled
	}))
}

func (p *part) setTimed(id core.TaskID, timed bool) {
	if timed {
		p.timed[id] = true
	} else {
		delete(p.timed, id)
	}
}

func (a answer) String() string {
	switch {
	case a.blind:
		return "applied"
	case a.fact != nil:
		return fmt.Sprintf("%T(%v)", a.fact, a.fact)
	}
	return fmt.Sprintf("applied, replayed=%v, state=%v", a.result.Replayed, a.result.State)
}

func (s step) String() string {
	switch {
	case s.fact != nil:
		return fmt.Sprintf("%T(%v)", s.fact, s.fact)
	case s.replayed:
		return "replayed"
	}
	return s.next.state.String()
}

// op judges one op of a commit. before is the largest revision of earlier commits.
func (m *Model) op(p *part, c *core.Commit, op core.Op, a answer, before uint64) error {
	if a.result != nil && a.result.Kind != 0 && a.result.Kind != op.Kind() {
		return fmt.Errorf("answer is of kind %d, op of kind %d", a.result.Kind, op.Kind())
	}
	if _, _, _, ok := settleOf(op); ok {
		return m.settle(p, op, a)
	}
	switch op := op.(type) {
	case *core.TaskCreate:
		return m.create(p, c, op, a)
	case *core.TaskDelete:
		return m.remove(p, op.Task, a)
	case *core.TaskRunNow:
		return m.runNow(p, op.Task, a)
	case *core.TaskRenew:
		return m.renew(p, op, a)
	case *core.Grant:
		return m.grant(p, op, a)
	case *core.Tick:
		return m.tick(op, a)
	case *core.TermStart:
		m.termStart = m.stamp
		return m.applied(op, a)
	case *core.QueueSet:
		return m.queueSet(p, op, a)
	case *core.NamespaceSet:
		return m.namespaceSet(p, op, a)
	case *core.NamespaceCreate:
		return m.namespaceCreate(op, a)
	}
	return m.kvOp(p, op, a, before)
}

func (m *Model) applied(op core.Op, a answer) error {
	if a.fact != nil {
		return fmt.Errorf("%T was refused with %w", op, a.fact)
	}
	return nil
}

// settleOf returns what a settle names and how it ends the attempt.
func settleOf(op core.Op) (core.TaskID, core.Token, core.Outcome, bool) {
	switch op := op.(type) {
	case *core.TaskComplete:
		return op.Task, op.Token, core.OutcomeCompleted, true
	case *core.TaskFail:
		return op.Task, op.Token, core.OutcomeFailed, true
	case *core.TaskSnooze:
		return op.Task, op.Token, core.OutcomeSnoozed, true
	case *core.TaskRelease:
		return op.Task, op.Token, core.OutcomeReleased, true
	}
	return core.TaskID{}, 0, 0, false
}

// settle judges the end of an attempt by its holder.
func (m *Model) settle(p *part, op core.Op, a answer) error {
	id, token, outcome, _ := settleOf(op)
	t := p.tasks[id]
	if t == nil {
		return unknownTask(id, a)
	}
	if t.might(func(s *standing) bool { return s.live(token) }) && a.fact == nil {
		set(m, t.past, token, settledAs{outcome, t.may[0].deliveries})
	}
	return m.move(p, t, a, func(s standing) []step {
		lost := step{fact: core.LeaseLost{Task: id, Given: token}}
		switch {
		case s.gone && !s.known:
			return []step{{fact: core.NotFound{Kind: "task"}}}
		case s.live(token):
			return m.endAttempt(p, t, s, op)
		}
		var steps []step
		replay, lose := t.replays(s, token, outcome)
		if replay {
			steps = append(steps, step{replayed: true})
		}
		if lose {
			steps = append(steps, lost)
		}
		return m.forgotten(s, steps)
	})
}

// replays tells whether a settle under a token that is not live may be answered as a replay, and whether as lost.
func (t *task) replays(s standing, token core.Token, outcome core.Outcome) (replay, lose bool) {
	was, ok := t.past[token]
	if !ok || was.outcome != outcome {
		return false, true
	}
	return true, token != s.token && (s.gone || s.deliveries >= was.attempt+keepAttempts)
}

// forgotten adds, to what a known id answers, what an unknown one does, once the id may be forgotten.
func (m *Model) forgotten(s standing, steps []step) []step {
	if s.gone && m.stamp >= s.ended.Add(keepIdentity) {
		return append(steps, step{fact: core.NotFound{Kind: "task"}})
	}
	return steps
}

// endAttempt lists where a task may stand after its holder settled.
func (m *Model) endAttempt(p *part, t *task, s standing, op core.Op) []step {
	switch op := op.(type) {
	case *core.TaskComplete:
		t.result = max(t.result, int64(len(op.Result)))
		return m.end(p, t, s, core.Completed)
	case *core.TaskFail:
		return m.failed(p, t, s, op)
	case *core.TaskSnooze:
		s.snoozes++
		due := op.Until
		if due == 0 {
			due = m.stamp.Add(op.Delay)
		}
		return m.wait(p, t, s, due, due)
	}
	return m.readyAgain(p, t, s)
}

func (m *Model) failed(p *part, t *task, s standing, op *core.TaskFail) []step {
	s.failures++
	if op.Fatal || s.failures >= uint32(p.settings(t).MaxAttempts) {
		return m.end(p, t, s, core.Dead)
	}
	if op.HasRetry {
		due := m.stamp.Add(op.RetryAfter)
		return m.wait(p, t, s, due, due)
	}
	lo, hi := p.settings(t).backoff(s.failures)
	return m.wait(p, t, s, m.stamp.Add(lo), m.stamp.Add(hi))
}

// wait: scheduled between two times, or ready when that has come; dead if the deliveries are used up.
func (m *Model) wait(p *part, t *task, s standing, earliest, latest core.ShardTime) []step {
	if p.settings(t).deliveriesOver(s.deliveries) {
		return m.end(p, t, s, core.Dead)
	}
	later := s
	later.state, later.earliest, later.latest = core.Scheduled, earliest, latest
	steps := []step{{next: later}}
	if earliest <= m.stamp {
		steps = append(steps, step{next: s.ready()})
	}
	return steps
}

func (m *Model) readyAgain(p *part, t *task, s standing) []step {
	if p.settings(t).deliveriesOver(s.deliveries) {
		return m.end(p, t, s, core.Dead)
	}
	return []step{{next: s.ready()}}
}

// ready is the same task waiting for a worker.
func (s standing) ready() standing {
	s.state, s.earliest, s.latest = core.Ready, 0, 0
	return s
}

// end: terminal, and at once removed where the queue keeps nothing.
func (m *Model) end(p *part, t *task, s standing, state core.State) []step {
	s.state, s.ended = state, m.stamp
	steps := []step{{next: s}}
	if p.retain(t, state) <= 0 {
		s.gone, s.known = true, true
		steps = []step{steps[0], {next: s}}
	}
	return steps
}

// remove judges the removal of a terminal task.
func (m *Model) remove(p *part, id core.TaskID, a answer) error {
	t := p.tasks[id]
	if t == nil {
		return unknownTask(id, a)
	}
	return m.move(p, t, anyState(a), func(s standing) []step {
		switch {
		case s.gone:
			return []step{{fact: core.NotFound{Kind: "task"}}}
		case !s.state.Terminal():
			return []step{{fact: core.WrongState{Task: id, State: s.state}}}
		}
		s.gone, s.known = true, true
		return []step{{next: s}}
	})
}

// runNow judges that a scheduled task becomes ready.
func (m *Model) runNow(p *part, id core.TaskID, a answer) error {
	t := p.tasks[id]
	if t == nil {
		return unknownTask(id, a)
	}
	return m.move(p, t, a, func(s standing) []step {
		switch {
		case s.gone:
			return []step{{fact: core.NotFound{Kind: "task"}}}
		case s.state != core.Scheduled:
			return []step{{fact: core.WrongState{Task: id, State: s.state}}}
		}
		return []step{{next: s.ready()}}
	})
}

func unknownTask(id core.TaskID, a answer) error {
	if f, ok := a.fact.(core.NotFound); ok && f.Kind == "task" {
		return nil
	}
	return fmt.Errorf("task %s is unknown: answered %s", id, a)
}

// anyState leaves out the state of an answer, where it is not documented.
func anyState(a answer) answer {
	if a.result == nil {
		return a
	}
	r := *a.result
	r.State = 0
	a.result = &r
	return a
}

// renew judges each lease of a heartbeat alone.
func (m *Model) renew(p *part, op *core.TaskRenew, a answer) error {
	if err := m.applied(op, a); err != nil || a.blind {
		return err
	}
	if len(a.result.Renewed) != len(op.Items) {
		return fmt.Errorf("%d answers for %d renewals", len(a.result.Renewed), len(op.Items))
	}
	for i, item := range op.Items {
		got, t := a.result.Renewed[i], p.tasks[item.Task]
		if t == nil {
			if !got.Lost {
				return fmt.Errorf("renewals[%d]: task %s is unknown and its lease was renewed", i, item.Task)
			}
			continue
		}
		var next []standing
		for _, s := range t.may {
			if s.live(item.Token) == got.Lost {
				continue
			}
			if !got.Lost {
				extend := op.Extend
				if extend == 0 {
					extend = s.lease
				}
				s.until = min(max(s.until, m.stamp.Add(extend)), max(s.until, s.limit))
				if s.until != got.Until {
					continue
				}
			}
			next = append(next, s)
		}
		if len(next) == 0 {
			return fmt.Errorf("renewals[%d]: task %s token %d answered %+v, its standings are %+v", i, item.Task, item.Token, got, t.may)
		}
		m.stand(p, t, next)
	}
	return nil
}
