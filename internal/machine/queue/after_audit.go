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
		value, ok, err := a.v.Get(keys.AppendAfter(nil, a.p, on.Task, id))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		found++
		row, err := decodeAfterRow(value)
		if err != nil {
			return err
		}
		if row.terminal != on.Terminal || row.onDep != s.onDep || row.place > a.meta.seq {
			a.find("row of task %s, which waits for task %s, differs from its records", id, on.Task)
		}
	}
	if found != rec.pending || rec.pending == 0 {
		a.find("task %s waits for %d tasks, and has %d rows", id, rec.pending, found)
	}
	return a.has(keys.AppendBlocked(nil, a.p, rec.queue, id), "row of blocked task %s", id)
}

// dependents checks how many tasks wait for one.
func (a *audit) dependents(id core.TaskID, rec *record) error {
	if rec.dependents == 0 && rec.only.IsZero() {
		return nil
	}
	found, only := uint32(0), false
	from, to := keys.AfterRange(a.p, id)
	err := core.ScanRows(a.v, from, to, func(key, value []byte) (bool, error) {
		row, err := decodeAfterRow(value)
		if row.place >= rec.since {
			_, waits, _ := keys.DecodeAfter(key)
			found, only = found+1, waits == rec.only
		}
		return true, err
	})
	if !rec.only.IsZero() && (found != 1 || !only) {
		a.find("task %s is to be the only one that waits for task %s", rec.only, id)
	}
	if found != rec.dependents {
		a.find("%d tasks wait for task %s, and its record says %d", found, id, rec.dependents)
	}
	return err
}
