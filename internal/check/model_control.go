package check

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// defaultCancelGrace is for how long the holder of a task may go on when the queue says nothing.
const defaultCancelGrace = core.Millis(30_000)

// content is what an edit of a task changes. The create itself is kept too: it tells a repetition of the create.
type content struct {
	payload     []byte
	contentType string
	priority    uint8
	labels      []core.Label
}

func contentOf(op *core.TaskCreate) content {
	return content{op.Payload, cmp.Or(op.ContentType, "application/json"), op.Priority, op.Labels}
}

// sameContent compares what is read back of a task with c.
func (c *content) sameContent(got *core.Task) error {
	switch {
	case !bytes.Equal(got.Payload, c.payload):
		return fmt.Errorf("payload of %d bytes, it is of %d bytes", len(got.Payload), len(c.payload))
	case got.ContentType != c.contentType:
		return fmt.Errorf("content type %q, it is %q", got.ContentType, c.contentType)
	case got.Priority != c.priority:
		return fmt.Errorf("priority %d, it is %d", got.Priority, c.priority)
	case !slices.Equal(got.Labels, c.labels):
		return fmt.Errorf("labels %v, they are %v", got.Labels, c.labels)
	}
	return nil
}

// operates reports whether an op, or what it says, is of core.FormatOperate.
func operates(op core.Op) bool {
	switch op := op.(type) {
	case *core.TaskCancel, *core.TaskStop, *core.TaskRedrive, *core.TaskForceRelease, *core.TaskUpdate, *core.QueuePause, *core.SessionLost, *core.TaskReport, *core.BulkStart, *core.BulkStop:
		return true
	case *core.TaskCreate:
		return op.ExpiresAt != 0 || len(op.Labels) > 0
	case *core.QueueSet:
		return op.Config.Limits != (core.QueueLimits{})
	}
	return false
}

func tooEarly(a answer) bool {
	f, ok := a.fact.(core.Invalid)
	return ok && f.Reason == "not_supported"
}

// judgeTooEarly wants a refusal of what entries of the format at hand do not have. Another ground to refuse the op may come first.
func (m *Model) judgeTooEarly(op core.Op, a answer) error {
	if tooEarly(a) {
		return nil
	}
	return fmt.Errorf("%T in an entry of format %d: answered %s", op, m.rules, a)
}

// control judges the ops by which a task is operated. TaskStop, which its holder sends, is a settle.
func (m *Model) control(p *part, c *core.Commit, op core.Op, a answer) error {
	id, _ := taskOf(op)
	t := p.tasks[id]
	if t == nil {
		return unknownTask(id, a)
	}
	var steps func(standing) []step
	switch op := op.(type) {
	case *core.TaskCancel:
		steps = func(s standing) []step { return m.cancel(p, t, s, op, c.Principal) }
	case *core.TaskRedrive:
		if f, ok := a.fact.(core.Exhausted); ok {
			return m.redriveFull(p, t, f)
		}
		if names := t.create.Limiters; p.limitersRefuse(t.create.Queue, names, a.fact) {
			if !m.keep(p, t, canRedrive) {
				return fmt.Errorf("redrive of task %s was refused with %w; it may be %+v", t.id, a.fact, t.may)
			}
			return nil
		} else if err := p.limitersFit(t.create.Queue, names); err != nil && a.fact == nil {
			return fmt.Errorf("task %s was redriven: %w", t.id, err)
		}
		steps = func(s standing) []step { return m.redrive(p, t, s, a) }
	case *core.TaskForceRelease:
		steps = func(s standing) []step { return m.forceRelease(p, t, s, op) }
	case *core.TaskUpdate:
		return m.update(p, t, op, a)
	}
	return m.move(p, t, a, func(s standing) []step {
		if s.gone {
			return []step{{fact: core.NotFound{Kind: "task"}}}
		}
		return steps(s)
	})
}

func wrongState(t *task, s standing) []step {
	return []step{{fact: core.WrongState{Task: t.id, State: s.state}}}
}

// cutReason is a reason as it is kept.
func cutReason(reason string) string {
	if len(reason) > core.MaxReason {
		reason = strings.ToValidUTF8(reason[:core.MaxReason], "")
	}
	return reason
}

// cancel: what waits is cancelled at once. A running task keeps its holder for cancel_grace, unless by force.
func (m *Model) cancel(p *part, t *task, s standing, op *core.TaskCancel, by string) []step {
	asked := core.CancelAsked{At: m.stamp, By: by, Reason: cutReason(op.Reason), Force: op.Force}
	grace := cmp.Or(p.configOf(t.create.Queue).Limits.CancelGrace, defaultCancelGrace)
	switch {
	case s.state == core.Cancelled:
		return []step{{replayed: true}}
	case s.state.Terminal():
		return wrongState(t, s)
	case s.state != core.Running:
		s.cancel = asked
		return m.end(p, t, s, core.Cancelled)
	case s.cancel.At != 0 && !op.Force:
		return []step{{replayed: true}}
	case op.Force || grace < 0:
		if s.cancel.At == 0 { // else it is known who asked first
			s.cancel = asked
			s.cancel.Force = true
		}
		s.last = core.OutcomeCancelled
		return m.end(p, t, s, core.Cancelled)
	}
	s.cancel = asked
	s.cancel.Until = m.stamp.Add(grace)
	return []step{{next: s}}
}

// cancelled turns the end of an attempt into the end of its task, if its cancel was asked for: only a completion wins. What the
// attempt counts stays counted.
func (m *Model) cancelled(p *part, t *task, s standing, steps []step) []step {
	if s.cancel.At == 0 {
		return steps
	}
	var out []step
	for _, st := range steps {
		end := s
		end.failures, end.crashes, end.snoozes, end.last = st.next.failures, st.next.crashes, st.next.snoozes, st.next.last
		out = append(out, m.end(p, t, end, core.Cancelled)...)
	}
	return out
}

// stop: the holder confirms a cancel that was asked for.
func (m *Model) stop(p *part, t *task, s standing) []step {
	if s.cancel.At == 0 {
		return wrongState(t, s)
	}
	return m.end(p, t, s, core.Cancelled)
}

// redrive: counts begin again, attempts and their numbers go on. The task does not expire any more.
func (m *Model) redrive(p *part, t *task, s standing, a answer) []step {
	if s.state != core.Dead && s.state != core.Cancelled {
		return wrongState(t, s)
	}
	most := p.configOf(t.create.Queue).Limits.MaxTasks
	if least, _ := p.waiting(t.create.Queue); a.fact == nil && most > 0 && least >= most {
		return nil
	}
	if a.fact == nil && m.roomInTenant(p, 1, 0) != nil {
		return nil
	}
	return []step{{next: s.redriven()}}
}

// redriven is the same task ready again after its end.
func (s standing) redriven() standing {
	s.failures, s.crashes, s.snoozes, s.base = 0, 0, 0, s.deliveries
	s.redrives++
	s.cancel, s.ended, s.lapsed = core.CancelAsked{}, 0, false
	return s.ready()
}

// canRedrive reports whether a task ended so that it may be made ready.
func canRedrive(s *standing) bool {
	return !s.gone && (s.state == core.Dead || s.state == core.Cancelled)
}

// redriveFull judges that a queue has no room for a task that is to be made ready.
func (m *Model) redriveFull(p *part, t *task, f core.Exhausted) error {
	byTenant := m.tenantFullOfTasks(p, 1, 0, f)
	if err := p.noRoom(t.create.Queue, 0, f); err != nil && !byTenant {
		return err
	}
	if !byTenant && f.Limit != "max_tasks" || !m.keep(p, t, canRedrive) {
		return fmt.Errorf("redrive of task %s was refused with %w; it may be %+v", t.id, f, t.may)
	}
	return nil
}

// forceRelease: back to its old place, the token is good no more.
func (m *Model) forceRelease(p *part, t *task, s standing, op *core.TaskForceRelease) []step {
	if s.state != core.Running || op.Attempt != 0 && op.Attempt != s.deliveries {
		return wrongState(t, s)
	}
	s.last = core.OutcomeReleased
	return m.cancelled(p, t, s, m.readyAgain(p, t, s))
}

// update judges an edit of a task that waits, or is dead.
func (m *Model) update(p *part, t *task, op *core.TaskUpdate, a answer) error {
	if a.fact != nil {
		if err := m.editRefused(p, t, op, a.fact); err == nil {
			return nil
		}
	}
	if bad := misfitsOfUpdate(op); len(bad) > 0 && !ofState(a.fact) {
		return judgeMisfit(op, bad, a)
	}
	err := m.move(p, t, a, func(s standing) []step {
		dead := s.state == core.Dead
		switch {
		case s.gone:
			return []step{{fact: core.NotFound{Kind: "task"}}}
		case s.state != core.Ready && s.state != core.Scheduled && s.state != core.Blocked && !dead:
			return wrongState(t, s)
		case a.fact != nil || op.HasRunAt && dead || op.HasExpiry && (dead || s.deliveries > 0):
			return nil
		}
		if op.HasPriority || op.HasRunAt {
			s.fresh = false
		}
		if op.HasExpiry {
			s.expires = op.ExpiresAt
		}
		if !op.HasRunAt {
			return []step{{next: s}}
		}
		due, wall := op.RunAt, true
		if due == 0 {
			due, wall = m.stamp.Add(op.Delay), false
		}
		if s.state == core.Blocked {
			if s = s.timeless(); due > m.now(wall) {
				s.earliest, s.latest, s.wall = due, due, wall
			}
			return []step{{next: s}}
		}
		if due <= m.now(wall) {
			return []step{{next: s.ready()}}
		}
		s.state, s.earliest, s.latest, s.wall = core.Scheduled, due, due, wall
		return []step{{next: s}}
	})
	if err != nil || a.fact != nil {
		return err
	}
	if err := p.editAllowed(t, op); err != nil {
		return err
	}
	if op.HasPayload {
		if err := m.roomInTenant(p, 0, int64(len(op.Payload))-int64(len(t.now.payload))); err != nil {
			return fmt.Errorf("task %s: %w", t.id, err)
		}
	}
	was := t.now
	m.change(func() { t.now = was })
	if op.HasPriority {
		t.now.priority = op.Priority
		m.setPerhaps(t, nil)
	}
	if op.HasPayload {
		t.now.payload, t.now.contentType = op.Payload, cmp.Or(op.ContentType, "application/json")
	}
	if op.HasLabels {
		t.now.labels = op.Labels
		m.relabelled(p, t)
	}
	return nil
}

// ofState reports whether a refusal is by the state of a task.
func ofState(fact core.Fact) bool {
	switch fact.(type) {
	case core.NotFound, core.WrongState:
		return true
	}
	return false
}

// editAllowed judges that an edit which was applied is within the limits of the queue.
func (p *part) editAllowed(t *task, op *core.TaskUpdate) error {
	c := p.configOf(t.create.Queue)
	if most := int64(c.Limits.CeilingPriority); op.HasPriority && most > 0 && int64(op.Priority) > most {
		return fmt.Errorf("task %s was given priority %d of %d", t.id, op.Priority, most)
	}
	if !op.HasPayload {
		return nil
	}
	n := int64(len(op.Payload))
	if n > cmp.Or(c.MaxPayload, defaults.MaxPayload) {
		return fmt.Errorf("task %s was given a payload of %d bytes, more than its queue allows", t.id, n)
	}
	more := n - int64(len(t.now.payload))
	if least, _ := p.held(t.create.Queue); more > 0 && c.Limits.MaxBytes > 0 && least+more > c.Limits.MaxBytes {
		return fmt.Errorf("task %s was given %d bytes more, and queue %s has %d bytes of %d", t.id, more, t.create.Queue, least, c.Limits.MaxBytes)
	}
	return nil
}

// editRefused judges a refusal of what an edit says. The state of the task is judged apart.
func (m *Model) editRefused(p *part, t *task, op *core.TaskUpdate, fact core.Fact) error {
	waits := func(s *standing) bool {
		return !s.gone && (s.state == core.Blocked || s.state == core.Ready || s.state == core.Scheduled || s.state == core.Dead)
	}
	var is func(*standing) bool
	switch f := fact.(type) {
	case core.Invalid:
		switch {
		case f.Field == "run_at" && op.HasRunAt:
			is = func(s *standing) bool { return s.state == core.Dead }
		case f.Field == "priority" && f.Reason == "ceiling" && op.HasPriority && int64(op.Priority) > int64(p.configOf(t.create.Queue).Limits.CeilingPriority):
			is = waits
		case f.Field == "expires_at" && op.HasExpiry:
			is = func(s *standing) bool { return s.state == core.Dead || s.deliveries > 0 }
		}
	case core.Exhausted:
		if more := int64(len(op.Payload)) - int64(len(t.now.payload)); op.HasPayload && f.Limit == "max_bytes" && more > 0 && p.noRoom(t.create.Queue, more, f) == nil {
			is = waits
		} else if op.HasPayload && m.tenantFullOfTasks(p, 0, more, f) {
			is = waits
		}
	case core.TooLarge:
		if f.Limit == "max_payload" && op.HasPayload && int64(len(op.Payload)) > cmp.Or(p.configOf(t.create.Queue).MaxPayload, defaults.MaxPayload) {
			is = waits
		}
	}
	if is == nil || !m.keep(p, t, func(s *standing) bool { return waits(s) && is(s) }) {
		return fmt.Errorf("an edit of task %s was refused with %w", t.id, fact)
	}
	return nil
}
