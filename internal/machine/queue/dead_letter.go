package queue

import (
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// A queue can name another one in which a copy of each of its tasks is made that dies, in the entry in which it dies. The task itself
// stays with the dead ones. Where there is no room for a copy the task dies all the same, and its queue counts what was left out.

const (
	// maxHeaders and maxHeaderBytes bound the headers of a copy as the edge bounds those of a create.
	maxHeaders     = 32
	maxHeaderBytes = 4 << 10
	// maxDeadError bounds the error that a copy tells, in bytes.
	maxDeadError = 1 << 10
	// maxLetterQueues is how many queues may follow each other by their dead letters, from the one that is set on.
	maxLetterQueues = 16
)

// checkDeadLetter refuses a queue of dead letters that leads back to the queue which names it: a task could die there without end.
func (m *Machine) checkDeadLetter(queue, to string) core.Fact {
	for range maxLetterQueues {
		switch l := m.lineOf(to); {
		case to == "":
			return nil
		case to == queue:
			return core.Invalid{Field: "config.dead_letter", Message: "must not lead back to the queue"}
		case l == nil:
			return nil
		default:
			to = l.config.Share.DeadLetter
		}
	}
	return core.Invalid{Field: "config.dead_letter", Message: "must not lead through more than 16 queues"}
}

// deadLetter makes the copy of a task that dies, if its queue wants one. rec is its record, with the reason; e is the last error.
func (m *Machine) deadLetter(tx core.Txn, c *core.ApplyContext, r *run, rec *record, e *core.TaskError) error {
	to := r.queue.config.Share.DeadLetter
	if to == "" {
		return nil
	}
	s, err := m.loadSpec(tx, r.id)
	if err != nil {
		return err
	}
	op := &core.TaskCreate{
		ID: core.DeadLetterID(r.id, rec.redrives), Queue: to, TaskKind: s.kindName(r.queue.name), Priority: rec.priority,
		Payload: s.payload, ContentType: string(s.contentType), Headers: deadHeaders(r, rec, s.headers, e), Labels: s.labels,
		Key: string(s.key), Tag: string(s.tag),
	}
	by := *c
	by.Principal = string(s.creator)
	made, err := m.makeCopy(tx, &by, op)
	if err == nil && !made {
		m.touch(r.queue)
		r.queue.lettersLost++
	}
	return err
}

// makeCopy makes a task as a create would, where there is room for it. It can have no higher priority than its queue allows.
func (m *Machine) makeCopy(tx core.Txn, c *core.ApplyContext, op *core.TaskCreate) (made bool, err error) {
	m.key = keys.AppendTaskState(m.key[:0], m.p, op.ID)
	if _, there, err := tx.Get(m.key); err != nil || there {
		return false, err
	}
	l := m.lineOf(op.Queue)
	if l != nil && l.config.Limits.CeilingPriority > 0 {
		op.Priority = uint8(min(int32(op.Priority), l.config.Limits.CeilingPriority))
	}
	if m.roomFor(c, l, op) != nil {
		return false, nil
	}
	payload, _ := appendSpec(m.room(specSize(c, op)), c, op)
	_, err = m.insert(tx, c, l, op, payload, 0, foundWindow{}, &dependencies{})
	return err == nil, err
}

// deadHeaders returns the headers of the copy of a task that dies: its own, and what says of which task it is a copy and why, as far
// as there is room.
func deadHeaders(r *run, rec *record, own []core.Header, e *core.TaskError) []core.Header {
	out := make([]core.Header, 0, len(own)+4)
	size := 0
	for _, h := range own {
		if !strings.HasPrefix(h.Name, core.HeaderDead) {
			out = append(out, h)
			size += len(h.Name) + len(h.Value)
		}
	}
	text := e.Message
	if e.Code != "" {
		text = strings.TrimSuffix(e.Code+": "+text, ": ")
	}
	for _, h := range [...]core.Header{
		{Name: core.HeaderDeadTask, Value: r.id.String()},
		{Name: core.HeaderDeadQueue, Value: r.queue.name},
		{Name: core.HeaderDeadReason, Value: rec.reason.String()},
		{Name: core.HeaderDeadError, Value: core.Cut(plainText(text), max(0, min(maxDeadError, maxHeaderBytes-size-len(core.HeaderDeadError))))},
	} {
		if n := len(h.Name) + len(h.Value); h.Value != "" && len(out) < maxHeaders && size+n <= maxHeaderBytes {
			out = append(out, h)
			size += n
		}
	}
	return out
}

// plainText returns a text with a space in the place of each control character, which no header may have.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
