package refs

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// write applies an edit that was judged: the ref, its log, and the logs of the symbolic refs that
// point to it. HEAD has its log even when the change did not come through it, as in git.
func (t *transaction) write(e *edit, c *core.RefChange) error {
	if e.what == changeNone {
		return nil
	}
	t.wrote = true
	entry := t.logEntry(c)
	entry.Old, entry.New = e.old, e.new
	next := e.next
	fresh := t.number(&next, e.cur, e.exists)
	links := e.links
	if e.name == t.currentHead() && !slices.ContainsFunc(links, func(l link) bool { return l.name == "HEAD" }) {
		if head, ok, err := t.get("HEAD"); err != nil {
			return err
		} else if ok {
			links = append(links, link{"HEAD", head})
		}
	}
	for _, l := range links {
		r := l.row
		// A link keeps what it points to: it gets a revision and a record, and nothing else.
		fresh := t.number(&r, l.row, true)
		t.tx.Set(keys.Ref(t.m.p, t.repo.ID, l.name), r.append(nil))
		t.log(l.name, &r, fresh, &entry)
	}
	if e.name == "HEAD" {
		t.head, t.headSet = next.target, true
	}
	entry.OldTarget, entry.NewTarget = e.cur.target, next.target
	key := keys.Ref(t.m.p, t.repo.ID, e.name)
	if e.what == changeDelete {
		t.tx.Delete(key)
		t.log(e.name, &next, fresh, &entry)
		// The log of a ref that is gone stays for deletedDays.
		t.m.arm(t.tx, logDue(t.c.Stamp, deletedDays), t.repo.ID, e.name)
		t.created--
		return t.grow(e.name, -1)
	}
	t.tx.Set(key, next.append(nil))
	t.log(e.name, &next, fresh, &entry)
	if e.what == changeCreate {
		t.created++
		return t.grow(e.name, 1)
	}
	return nil
}

// number gives a row its revision and the number of its next log record. fresh says that this is
// the first record since the ref was made.
func (t *transaction) number(next *row, cur row, exists bool) (fresh bool) {
	next.rev = t.rev
	// Numbers start at the revision, so those of an earlier ref with the same name are smaller, and
	// the new log does not show the old one's records as its own.
	if !exists || cur.seq == 0 { // numbers never exceed revisions: those of an earlier ref of the name are smaller
		next.first, next.seq = t.rev, t.rev
		return true
	}
	next.first, next.seq = cur.first, cur.seq+1
	return false
}

// logRoom is about how many bytes a record takes in addition to its texts.
const logRoom = 96

// log writes a record, drops the one that is too many, and for the first record enters when the log
// is looked at.
func (t *transaction) log(name string, r *row, fresh bool, entry *core.RefLog) {
	t.tx.Set(keys.RefLog(t.m.p, t.repo.ID, name, r.seq), core.AppendRefLog(make([]byte, 0, logRoom+len(entry.Principal)+len(entry.Message)), entry))
	if fresh {
		t.m.arm(t.tx, logDue(t.c.Stamp, t.repo.Config.ReflogDays), t.repo.ID, name)
	}
	// One record too many at most: each change drops one.
	if most := uint64(t.repo.Config.ReflogMax); r.seq-r.first >= most {
		t.tx.Delete(keys.RefLog(t.m.p, t.repo.ID, name, r.seq-most))
	}
}

// logEntry returns what all records of a change have in common. A task as the cause wins over a
// push, and that over the request.
func (t *transaction) logEntry(c *core.RefChange) core.RefLog {
	entry := core.RefLog{
		Principal: t.c.Principal, Cause: core.CauseRequest, Request: t.request, Message: c.Message, Stamp: t.c.Stamp,
		Index: t.c.Index, Rev: t.rev,
	}
	if entry.Message == "" {
		entry.Message = t.op.Message
	}
	switch {
	case !t.task.Task.IsZero():
		entry.Cause, entry.Task, entry.Token = core.CauseTask, t.task.Task, t.task.Token
	case t.op.Push != core.RequestID{}:
		entry.Cause, entry.Request = core.CausePush, t.op.Push
	}
	return entry
}
