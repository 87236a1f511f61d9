package check

import (
	"github.com/millrace/millrace/internal/core"
)

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
	case *core.TaskStop:
		return op.Task, op.Token, core.OutcomeCancelled, true
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
		taken := t.might(func(s *standing) bool { return s.live(token) && m.takesBack(t, s, op) })
		set(m, t.past, token, settledAs{outcome: outcome, attempt: t.may[0].deliveries, taken: taken})
	}
	return m.move(p, t, a, func(s standing) []step {
		lost := step{fact: core.LeaseLost{Task: id, Given: token}}
		switch {
		case s.gone && !s.known:
			return []step{{fact: core.NotFound{Kind: "task"}}}
		case s.live(token):
			if _, ok := op.(*core.TaskStop); ok {
				return m.stop(p, t, s)
			}
			if _, ok := op.(*core.TaskComplete); ok {
				s.cancel = core.CancelAsked{}
			}
			if m.takesBack(t, &s, op) {
				s.deliveries--
				return []step{{next: s.ready()}}
			}
			return m.cancelled(p, t, s, m.endAttempt(p, t, s, op))
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

// takesBack: a grant that did not reach its worker does not count as an attempt: its number is given again. A worker that reported was reached.
func (m *Model) takesBack(t *task, s *standing, op core.Op) bool {
	r, ok := op.(*core.TaskRelease)
	return ok && r.Undelivered && m.rules >= core.FormatOperate && s.cancel.At == 0 && t.told.attempt != s.deliveries
}

// replays tells whether a settle under a token that is not live may be answered as a replay, and whether as lost.
func (t *task) replays(s standing, token core.Token, outcome core.Outcome) (replay, lose bool) {
	if token == s.token && s.last != core.OutcomeNone && !s.live(token) {
		return s.last == outcome, s.last != outcome
	}
	was, ok := t.past[token]
	if !ok || was.outcome != outcome {
		return false, true
	}
	if was.taken {
		return token == s.token, token != s.token
	}
	return true, was.unsure || token != s.token && (s.gone || s.deliveries >= was.attempt+keepAttempts)
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
		due, wall := op.Until, m.rules >= core.FormatQueues
		if due == 0 {
			due, wall = m.stamp.Add(op.Delay), false
		}
		return m.waitBy(p, t, s, due, due, wall)
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

// wait: scheduled between two shard times, or ready when that has come; dead if the deliveries are used up.
func (m *Model) wait(p *part, t *task, s standing, earliest, latest core.ShardTime) []step {
	return m.waitBy(p, t, s, earliest, latest, false)
}

// waitBy is wait by shard time or by the wall clocks.
func (m *Model) waitBy(p *part, t *task, s standing, earliest, latest core.ShardTime, wall bool) []step {
	if p.settings(t).deliveriesOver(s.deliveries - s.base) {
		return m.end(p, t, s, core.Dead)
	}
	later := s
	later.state, later.earliest, later.latest, later.wall = core.Scheduled, earliest, latest, wall
	steps := []step{{next: later}}
	if earliest <= m.now(wall) {
		steps = append(steps, step{next: s.ready()})
	}
	return steps
}

func (m *Model) readyAgain(p *part, t *task, s standing) []step {
	if p.settings(t).deliveriesOver(s.deliveries - s.base) {
		return m.end(p, t, s, core.Dead)
	}
	return []step{{next: s.ready()}}
}

// ready is the same task waiting for a worker.
func (s standing) ready() standing {
	s.state, s.earliest, s.latest, s.wall = core.Ready, 0, 0, false
	return s
}

// end: terminal, and at once removed where the queue keeps nothing.
func (m *Model) end(p *part, t *task, s standing, state core.State) []step {
	s.state, s.ended, s.expires, s.cancel.Until, s.fresh, s.frees = state, m.stamp, 0, 0, false, core.UniqueTTL
	if s.pending != (awaited{}) {
		s.pending, s = awaited{}, s.timeless()
	}
	steps := []step{{next: s}}
	if p.retain(t, state) <= 0 {
		s.gone, s.known = true, true
		steps = []step{steps[0], {next: s}}
	}
	return steps
}
