package queue

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A task may wait for others: it is blocked until each of them has completed, or has ended where that is enough. Each pair has a row under
// the key of both, as long as one waits for the other. The record of the one that waits counts its rows, and so does that of the one that
// it waits for. So a task without dependents ends without a look at any row, and the end of the last dependency is the one that counts
// down to zero. The row of a single dependent of a task that has not ended is part of that task's record (onlyDependent), so that a chain
// of tasks has no rows of its own. All this is of format 4.

// toldPerTick bounds the rows of dependents that a tick acts on. An entry acts on Options.Told of them; the rest is due at once: ticks go
// on with it.
const toldPerTick = 1_000

// mostReleased is up to how many fresh tasks a task that waits for others no longer becomes one: it is looked for among them.
const mostReleased = 256

// afterRow is how one task waits for another.
type afterRow struct {
	// The end of the other is enough, however it ended.
	terminal bool
	// What follows when the other is not completed, and that is not enough.
	onDep core.DepFailure
	// place is that of the row in the sequence of the partition.
	place uint64
}

// how returns the row without its place.
func (a *afterRow) how() byte { return boolByte(a.terminal) | byte(a.onDep)<<1 }

// onlyDependent is the row of the one task that waits for another, within the record of that. Its place is the record's since.
type onlyDependent struct {
	// The task that waits; zero: there is none, or there are several, whose rows have keys of their own.
	waits core.TaskID
	how   byte
}

// isZero reports whether there is none.
func (o *onlyDependent) isZero() bool { return o.waits.IsZero() }

// row returns it as a row at a place.
func (o *onlyDependent) row(place uint64) afterRow {
	return afterRow{terminal: o.how&1 != 0, onDep: core.DepFailure(o.how >> 1), place: place}
}

// verdict is what the state of a task means for one that waits for it.
type verdict byte

const (
	// It waits: the other has not ended, or it is held.
	verdictWait verdict = iota
	// It waits for this one no longer.
	verdictGo
	// It is cancelled.
	verdictCancel
)

// verdict judges the state of the task that is waited for.
func (a *afterRow) verdict(s core.State) verdict {
	switch {
	case !s.Terminal():
		return verdictWait
	case s == core.Completed || a.terminal || a.onDep == core.DepRun:
		return verdictGo
	case a.onDep == core.DepCancel:
		return verdictCancel
	}
	return verdictWait
}

// dependency is a task that a new one is to wait for.
type dependency struct {
	id  core.TaskID
	rec record
	row afterRow
}

// dependencies are what a create says of other tasks, as it was found.
type dependencies struct {
	// Those that it waits for.
	on []dependency
	// The batch that it is added to; nil: none.
	batch *batch
	// The first of those whose end cancels it, and how that ended; zero: there is none.
	failed      core.TaskID
	failedState core.State
}

// blocks reports whether the new task waits, or is cancelled.
func (d *dependencies) blocks() bool { return len(d.on) > 0 || !d.failed.IsZero() }

// checkAfter refuses what no create may say of the tasks that it waits for.
func checkAfter(op *core.TaskCreate) core.Fact {
	switch {
	case len(op.After) > core.MaxAfter:
		return core.TooLarge{Field: "after", Limit: "after", Max: core.MaxAfter}
	case op.OnDepFailure > core.DepRun:
		return core.Invalid{Field: "on_dep_failure", Message: "must be hold, cancel or run"}
	case len(op.After) == 0 && op.OnDepFailure != core.DepHold:
		return core.Invalid{Field: "on_dep_failure", Message: "must not be set without after"}
	}
	for i, a := range op.After {
		switch {
		case a.Task == op.ID:
			return core.Invalid{Field: "after", Message: "must not name the task itself"}
		case i > 0 && bytes.Compare(op.After[i-1].Task[:], a.Task[:]) >= 0:
			return core.Invalid{Field: "after", Message: "must be sorted by id, and have each id once"}
		}
	}
	return nil
}

// findAfter reads the tasks that a create names. One that was removed counts while its id is known, if it ended as the new task wants.
func (m *Machine) findAfter(v core.View, op *core.TaskCreate) (d dependencies, fact core.Fact, err error) {
	for _, a := range op.After {
		rec, state, there, err := m.findDependency(v, a.Task)
		if err != nil {
			return d, nil, err
		}
		row := afterRow{terminal: a.Terminal, onDep: op.OnDepFailure}
		how := row.verdict(state)
		switch {
		case state == 0 || !there && how != verdictGo:
			return d, core.NotFound{Kind: "task", ID: a.Task.String()}, nil
		case how == verdictCancel && d.failed.IsZero():
			d.failed, d.failedState = a.Task, state
		case how == verdictWait && rec.dependents >= core.MaxDependents:
			return d, core.Exhausted{Limit: "dependents", Max: core.MaxDependents}, nil
		case how == verdictWait:
			d.on = append(d.on, dependency{a.Task, rec, row})
		}
	}
	return d, nil, nil
}

// findDependency reads a task that another one is to wait for. there is false for one that was removed, whose state is how it ended;
// 0: nothing is known of the id.
func (m *Machine) findDependency(v core.View, id core.TaskID) (rec record, state core.State, there bool, err error) {
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	value, ok, err := v.Get(m.key)
	switch {
	case err != nil || !ok || isReplaced(value):
		return rec, 0, false, err
	case isTombstone(value):
		t, err := decodeTombstone(value)
		return rec, t.state, false, err
	}
	if rec, err = decodeRecord(value); err != nil {
		return rec, 0, false, fmt.Errorf("load task %s: %w", id, err)
	}
	l, err := m.lineAt(rec.queue)
	if err != nil {
		return rec, 0, false, err
	}
	if state, err = m.stateOf(&rec); err != nil {
		return rec, 0, false, err
	}
	return rec, state, !l.removed && !(state.Terminal() && l.sweep(state).covers(rec.endedAt, id)), nil
}

// block makes a new task wait for others. A time that its create names is kept for later. The caller writes the record.
func (m *Machine) block(tx core.Txn, c *core.ApplyContext, ln *lane, id core.TaskID, rec *record, d *dependencies, due due) {
	rec.state, rec.pending = core.Blocked, uint32(len(d.on))
	if waits(c, due) {
		rec.runAt, rec.wall = due.at, due.wall
	}
	m.key = keys.AppendBlocked(m.key[:0], m.p, ln.queue.number, id)
	tx.Insert(m.mem.own(m.key), nil)
	m.move(ln, 0, core.Blocked)
	for i := range d.on {
		on := &d.on[i]
		m.meta.seq++
		on.row.place = m.meta.seq
		if on.rec.dependents == 0 {
			on.rec.since = on.row.place
		}
		if on.rec.dependents == 0 && !on.rec.state.Terminal() {
			on.rec.only = onlyDependent{id, on.row.how()}
		} else {
			m.insertOnly(tx, on.id, &on.rec.only, on.rec.since)
			on.rec.only = onlyDependent{}
			m.insertAfter(tx, on.id, id, &on.row)
		}
		on.rec.dependents++
		m.saveDependents(tx, on.id, &on.rec)
	}
}

// insertAfter stores the row of a task that waits for another one under a key of its own.
func (m *Machine) insertAfter(tx core.Txn, of, waits core.TaskID, row *afterRow) {
	m.key = keys.AppendAfter(m.key[:0], m.p, of, waits)
	m.value = appendAfterRow(m.value[:0], row)
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
}

// insertOnly gives a row that was part of the record of a task a key of its own. The caller takes it out of the record.
func (m *Machine) insertOnly(tx core.Txn, of core.TaskID, o *onlyDependent, place uint64) {
	if !o.isZero() {
		row := o.row(place)
		m.insertAfter(tx, of, o.waits, &row)
	}
}

// saveDependents stores how many tasks wait for one, of whose record rec is what is stored.
func (m *Machine) saveDependents(tx core.Txn, id core.TaskID, rec *record) {
	switch rec.state {
	case core.Running:
		if r := m.runs[id]; r != nil {
			m.log.run(r, runRenewed)
			r.rec.dependents, r.rec.since, r.rec.only = rec.dependents, rec.since, rec.only
			m.saveRecord(tx, id, &r.rec)
			return
		}
	case core.Ready:
		for i := range m.fresh {
			if f := &m.fresh[i]; f.id == id && !f.taken {
				m.log.refreshed(i, &f.rec)
				f.rec.dependents, f.rec.since, f.rec.only = rec.dependents, rec.since, rec.only
			}
		}
	}
	m.saveRecord(tx, id, rec)
}

// dropDependent counts a task less among those that wait for another one, whose row had this place. The other may be gone.
func (m *Machine) dropDependent(tx core.Txn, of core.TaskID, place uint64) error {
	m.key = keys.AppendTaskState(m.key[:0], m.p, of)
	rec, ok, err := storedRecord(tx, m.key, of)
	if err != nil || !ok || rec.dependents == 0 || place < rec.since {
		return err
	}
	m.countDown(&rec, 1)
	m.saveDependents(tx, of, &rec)
	return nil
}

// countDown takes n from the tasks that wait for one.
func (m *Machine) countDown(rec *record, n uint32) {
	if rec.dependents -= min(n, rec.dependents); rec.dependents == 0 {
		rec.since, rec.only = 0, onlyDependent{}
	}
}

// dropOnly drops the row of a task that waits for another one where it is part of that one's record, or of its end, whose dependents are
// still to be told. It reports whether there was one.
func (m *Machine) dropOnly(tx core.Txn, of, waits core.TaskID) (bool, error) {
	for i := range m.endings {
		if e := &m.endings[i]; e.id == of && e.only.waits == waits {
			e.only = onlyDependent{}
			return true, m.dropDependent(tx, of, e.since) // of a task that completed it is not counted any more
		}
	}
	m.key = keys.AppendTaskState(m.key[:0], m.p, of)
	rec, ok, err := storedRecord(tx, m.key, of)
	if err != nil || !ok || rec.only.waits != waits {
		return false, err
	}
	m.countDown(&rec, 1)
	m.saveDependents(tx, of, &rec)
	return true, nil
}

// leaveBlocked is leave for a blocked task: it goes with all its rows. after are the tasks that it was made to wait for.
func (m *Machine) leaveBlocked(tx core.Txn, l *queueState, id core.TaskID, rec *record, after []core.After) (*lane, error) {
	ln, err := m.laneOf(l, rec)
	if err != nil {
		return nil, err
	}
	rec.runAt, rec.wall = 0, false
	m.move(ln, core.Blocked, 0)
	return ln, m.unblock(tx, l, id, rec, after)
}

// unblock takes a task out of the index of blocked ones, with all its rows. after are the tasks that it was made to wait for. The caller
// counts it in another state, and writes the record.
func (m *Machine) unblock(tx core.Txn, l *queueState, id core.TaskID, rec *record, after []core.After) error {
	m.key = keys.AppendBlocked(m.key[:0], m.p, l.number, id)
	tx.Delete(m.mem.own(m.key))
	for i := 0; i < len(after) && rec.pending > 0; i++ {
		dropped, err := m.dropAfter(tx, after[i].Task, id)
		if err != nil {
			return err
		}
		if dropped {
			m.told++
			rec.pending--
		}
	}
	if rec.pending > 0 {
		return errs.Corruptf("task %s waits for %d tasks more than it has rows", id, rec.pending)
	}
	return nil
}

// dropAfter drops the row of a task that waits for another one, wherever it is. It reports whether there was one.
func (m *Machine) dropAfter(tx core.Txn, of, waits core.TaskID) (bool, error) {
	m.key = keys.AppendAfter(m.key[:0], m.p, of, waits)
	key := m.mem.own(m.key)
	value, ok, err := tx.Get(key)
	switch {
	case err != nil:
		return false, err
	case !ok:
		return m.dropOnly(tx, of, waits)
	}
	row, err := decodeAfterRow(value)
	if err != nil {
		return false, err
	}
	tx.Delete(key)
	return true, m.dropDependent(tx, of, row.place)
}

// ending is a task that ended while others waited for it.
type ending struct {
	// The task, and how it ended.
	id    core.TaskID
	state core.State
	// since and place bound the places of the rows of those that waited for it when it ended.
	since, place uint64
	// The row of the one that waited for it, where it was part of the record.
	only onlyDependent
}

// noteEnd notes that a task ends for which others, or the run of a cron, may wait, and which its batch counts. rec has its terminal
// state. Tasks are told at the end of the op or tick.
func (m *Machine) noteEnd(id core.TaskID, rec *record) {
	m.noteCron(id)
	if rec.batch != 0 {
		m.moveInBatch(rec.batch, core.Ready, rec.state)
	}
	if rec.dependents == 0 {
		return
	}
	m.endings = append(m.endings, ending{id, rec.state, rec.since, m.meta.seq, rec.only})
	rec.only = onlyDependent{}
	if rec.state == core.Completed { // none of the rows stays
		rec.dependents, rec.since = 0, 0
	}
}

// tellDependents does what the ends of tasks mean for those that wait for them. That may end further tasks. What it acts on is bounded
// for the entry: most counts from its beginning.
func (m *Machine) tellDependents(tx core.Txn, c *core.ApplyContext, most int) error {
	for i := 0; i < len(m.endings); i++ {
		e := m.endings[i]
		m.endings[i].only = onlyDependent{} // it is told now, or has a key of its own
		done := false
		if m.told < most {
			var err error
			if done, err = m.tell(tx, c, &e, most); err != nil {
				return fmt.Errorf("tell those that wait for task %s: %w", e.id, err)
			}
		} else {
			m.insertOnly(tx, e.id, &e.only, e.since)
		}
		if !done {
			m.key = keys.AppendAfterTimer(m.key[:0], m.p, c.Stamp, e.id, e.place)
			m.value = appendAfterTimer(m.value[:0], &e)
			tx.Set(m.mem.own(m.key), m.mem.own(m.value))
			m.timer = min(m.timer, c.Stamp)
			m.passed.timer.insert(m.key)
		}
	}
	m.endings = emptied(m.endings)
	return nil
}

// fireAfter notes the end of a task again whose dependents were not all told.
func (m *Machine) fireAfter(rest, value []byte) error {
	e, err := decodeAfterTimer(value)
	var ok bool
	if e.id, e.place, ok = keys.DecodeAfterTimer(rest); err == nil && !ok {
		err = errs.Corruptf("timer of a task that others wait for makes no sense")
	}
	m.endings = append(m.endings, e)
	return err
}

// toldRow is a row that is acted on: the task that waits, and what becomes of it.
type toldRow struct {
	waits core.TaskID
	how   verdict
}

// tell acts on the rows of one task that has ended, and reports whether it came to their end.
func (m *Machine) tell(tx core.Txn, c *core.ApplyContext, e *ending, most int) (done bool, err error) {
	n := 0
	if e.only.isZero() {
		n, done, err = m.tellRows(tx, c, e, most)
	} else {
		n, err = m.tellOnly(tx, c, e)
		done = true
	}
	if err != nil || n == 0 || e.state == core.Completed {
		return done, err
	}
	m.key = keys.AppendTaskState(m.key[:0], m.p, e.id)
	rec, ok, err := storedRecord(tx, m.key, e.id)
	if err != nil || !ok || rec.dependents == 0 || rec.since != e.since {
		return done, err
	}
	m.countDown(&rec, uint32(n))
	m.saveDependents(tx, e.id, &rec)
	return done, nil
}

// tellOnly acts on the row that was part of the record of a task, and returns how many tasks wait for that one no longer. One that goes on
// waiting gets a key of its own: the record of a task that has ended may be removed before.
func (m *Machine) tellOnly(tx core.Txn, c *core.ApplyContext, e *ending) (n int, err error) {
	row := e.only.row(e.since)
	how := row.verdict(e.state)
	if how == verdictWait {
		m.insertAfter(tx, e.id, e.only.waits, &row)
		return 0, nil
	}
	return 1, m.tellOne(tx, c, e, toldRow{e.only.waits, how})
}

// tellRows acts on the rows that have keys of their own, and returns how many.
func (m *Machine) tellRows(tx core.Txn, c *core.ApplyContext, e *ending, most int) (n int, done bool, err error) {
	rows, done, err := m.dependentsOf(tx, e, most-m.told)
	if err != nil {
		return 0, false, err
	}
	for _, row := range rows {
		if m.told >= most {
			return n, false, nil
		}
		m.key = keys.AppendAfter(m.key[:0], m.p, e.id, row.waits)
		tx.Delete(m.mem.own(m.key))
		if err := m.tellOne(tx, c, e, row); err != nil {
			return n, false, err
		}
		n++
	}
	return n, done, nil
}

// dependentsOf returns up to most of the rows that the end of a task acts on, and reports whether these are all.
func (m *Machine) dependentsOf(v core.View, e *ending, most int) (rows []toldRow, all bool, err error) {
	all = true
	from, to := keys.AfterRange(m.p, e.id)
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		_, waits, ok := keys.DecodeAfter(key)
		if !ok {
			return false, errs.Corruptf("row of a task that waits for another one makes no sense")
		}
		row, err := decodeAfterRow(value)
		if err != nil || row.place < e.since || row.place > e.place {
			return true, err
		}
		if how := row.verdict(e.state); how != verdictWait {
			if all = len(rows) < most; all {
				rows = append(rows, toldRow{waits, how})
			}
		}
		return all, nil
	})
	return rows, all, err
}

// tellOne does what the end of a task means for one that waits for it, whose row was dropped: it waits for others still, or goes, or is
// cancelled. Where its queue was removed, it is cancelled with that.
func (m *Machine) tellOne(tx core.Txn, c *core.ApplyContext, e *ending, row toldRow) error {
	m.told++
	m.key = keys.AppendTaskState(m.key[:0], m.p, row.waits)
	rec, ok, err := storedRecord(tx, m.key, row.waits)
	switch {
	case err != nil:
		return err
	case !ok || rec.state != core.Blocked || rec.pending == 0:
		return errs.Corruptf("task %s is to wait and does not", row.waits)
	}
	l, err := m.lineAt(rec.queue)
	if err != nil {
		return err
	}
	rec.pending--
	switch {
	case l.removed:
		m.saveRecord(tx, row.waits, &rec)
		m.touch(l)
		return m.cancelRemoved(tx, c, l, row.waits, core.Blocked)
	case row.how == verdictCancel:
		return m.cancelDependent(tx, c, l, row.waits, &rec, e.id, e.state)
	case rec.pending > 0:
		m.saveRecord(tx, row.waits, &rec)
		return nil
	}
	return m.release(tx, c, l, row.waits, &rec)
}

// release lets a blocked task go that waits for no other one: it is ready, or scheduled where its time is still to come.
func (m *Machine) release(tx core.Txn, c *core.ApplyContext, l *queueState, id core.TaskID, rec *record) error {
	at := due{rec.runAt, rec.wall}
	rec.runAt, rec.wall = 0, false
	ln, err := m.laneOf(l, rec)
	if err != nil {
		return err
	}
	if err := m.unblock(tx, l, id, rec, nil); err != nil {
		return err
	}
	switch {
	case at.at != 0 && waits(c, at):
		rec.reason = reasonDelay
		m.schedule(tx, ln, id, rec, core.Blocked, at)
	case len(m.fresh) < mostReleased: // a grant of the entry often takes it
		m.admit(ln, id, rec, nil, core.Blocked, c.Stamp)
	default:
		m.enqueue(tx, ln, id, rec, core.Blocked, c.Stamp)
	}
	m.saveRecord(tx, id, rec)
	return nil
}

// cancelDependent cancels a blocked task because another one was not completed.
func (m *Machine) cancelDependent(tx core.Txn, c *core.ApplyContext, l *queueState, id core.TaskID, rec *record, of core.TaskID, how core.State) error {
	m.saveCancel(tx, id, &core.CancelAsked{At: c.Stamp, Reason: fmt.Sprintf("task %s, which it waited for, is %s", of, how)})
	rec.hasCancel, rec.reason = true, reasonDependency
	return m.endWaiting(tx, c, l, id, rec, core.Cancelled)
}

// failNew cancels a task that was just created, since one that it names was not completed.
func (m *Machine) failNew(tx core.Txn, c *core.ApplyContext, l *queueState, id core.TaskID, d *dependencies) error {
	rec, err := m.mustRecord(tx, id, core.Blocked)
	if err != nil {
		return err
	}
	return m.cancelDependent(tx, c, l, id, &rec, d.failed, d.failedState)
}

// appendAfterRow writes how one task waits for another.
func appendAfterRow(b []byte, a *afterRow) []byte {
	return putUint(append(b, formAfter, a.how()), a.place)
}

// decodeAfterRow reads what appendAfterRow wrote.
func decodeAfterRow(b []byte) (a afterRow, err error) {
	r := read(b, formAfter)
	o := onlyDependent{how: r.byte()}
	a = o.row(r.uint())
	if a.onDep > core.DepRun {
		return a, errs.Corruptf("a task waits for another one in way %d", o.how)
	}
	return a, r.done("task that waits for another one")
}

// appendAfterTimer writes how a task ended whose dependents are to be told, and since which place they waited. The rest is in the key.
func appendAfterTimer(b []byte, e *ending) []byte {
	return putUint(append(b, formAfterTimer, byte(e.state)), e.since)
}

// decodeAfterTimer reads what appendAfterTimer wrote.
func decodeAfterTimer(b []byte) (e ending, err error) {
	r := read(b, formAfterTimer)
	e.state, e.since = core.State(r.byte()), r.uint()
	if err := r.done("timer of a task that others wait for"); err != nil {
		return e, err
	}
	if !e.state.Terminal() {
		return e, errs.Corruptf("a task that others wait for ended in state %d", e.state)
	}
	return e, nil
}
