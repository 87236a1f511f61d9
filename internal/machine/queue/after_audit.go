package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// waitRow counts a row of a task that waits for another one, or of the index of blocked tasks.
func (a *audit) waitRow(record keys.QueueRecord) {
	if record == keys.RecordBlocked {
		a.indexRows[core.Blocked]++
	} else {
		a.afterRows++
	}
}

// blocked checks that a blocked task has its row in the index, and as many rows by those that it waits for as its record says.
func (a *audit) blocked(id core.TaskID, rec *record, s *spec) error {
	a.waits += int(rec.pending)
	found := uint32(0)
	for _, on := range s.after {
		row, ok, err := a.afterRow(on.Task, id)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		found++
		if row.terminal != on.Terminal || row.onDep != s.onDep || row.place > a.meta.seq {
			a.find("row of task %s, which waits for task %s, differs from its records", id, on.Task)
		}
	}
	if found != rec.pending || rec.pending == 0 {
		a.find("task %s waits for %d tasks, and has %d rows", id, rec.pending, found)
	}
	return a.has(keys.AppendBlocked(nil, a.p, rec.queue, id), "row of blocked task %s", id)
}

// afterRow reads the row of a task that waits for another one: it has a key of its own, or is part of the record of the other.
func (a *audit) afterRow(of, waits core.TaskID) (row afterRow, ok bool, err error) {
	value, ok, err := a.v.Get(keys.AppendAfter(nil, a.p, of, waits))
	if err != nil {
		return row, false, err
	}
	if ok {
		row, err = decodeAfterRow(value)
		return row, true, err
	}
	rec, ok, err := readRecord(a.v, a.p, of)
	if err != nil || !ok || rec.only.waits != waits {
		return row, false, err
	}
	return rec.only.row(rec.since), true, nil
}

// dependents checks how many tasks wait for one.
func (a *audit) dependents(id core.TaskID, rec *record) error {
	if rec.dependents == 0 && rec.only.isZero() {
		return nil
	}
	found := uint32(0)
	from, to := keys.AfterRange(a.p, id)
	err := core.ScanRows(a.v, from, to, func(_, value []byte) (bool, error) {
		row, err := decodeAfterRow(value)
		if row.place >= rec.since {
			found++
		}
		return true, err
	})
	if !rec.only.isZero() {
		if rec.state.Terminal() || found > 0 {
			a.find("task %s has a row in the record of task %s, which ended or for which others wait too", rec.only.waits, id)
		}
		found++
		a.afterRows++
	}
	if found != rec.dependents {
		a.find("%d tasks wait for task %s, and its record says %d", found, id, rec.dependents)
	}
	return err
}
