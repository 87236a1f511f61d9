package refs

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A name whose log has records has at least one row in the time index, for when the oldest of them
// is too old. It counts whole days, so that a busy ref is looked at once a day. Each look drops
// what is too old and enters the next row.

const (
	// dayMillis is a day, in milliseconds.
	dayMillis core.Millis = 24 * 60 * 60 * 1000
	// deletedDays is how many days the log of a deleted ref stays.
	deletedDays = 30
)

// logDue is when a record with that stamp is looked at: at the end of the day on which it has become too old.
func logDue(stamp core.ShardTime, days int32) core.ShardTime {
	day := stamp / core.ShardTime(dayMillis)
	return (day + 1 + core.ShardTime(days)) * core.ShardTime(dayMillis)
}

// Tick does at most limit steps of the work that is due, and reports whether some is left. A step
// looks at one log, or removes one repository. used is how many changes it made.
func (m *Machine) Tick(tx core.Txn, c *core.ApplyContext, limit uint32) (used uint32, more bool, err error) {
	counter := &core.ChangeCounter{Txn: tx}
	more, err = m.tick(counter, c.Stamp, limit)
	return counter.Changes, more, err
}

// tick reads the rows that are due, deletes each, and does what it is for. What follows from one
// enters a new row.
func (m *Machine) tick(tx core.Txn, stamp core.ShardTime, limit uint32) (more bool, err error) {
	// dueRow is one row of the time index: when, which repository, and the ref; an empty name is the repository
	// itself.
	type dueRow struct {
		due  core.ShardTime
		id   core.RepoID
		name string
	}
	var rows []dueRow
	from, to := keys.RefsDue(m.p, stamp)
	err = core.ScanRows(tx, from, to, func(key, _ []byte) (bool, error) {
		due, id, name, ok := keys.RefDueOf(key)
		if !ok {
			return false, errs.Corruptf("time index of refs: key %x", key)
		}
		// One row beyond the limit is enough to know that there is more.
		if uint32(len(rows)) == limit {
			more = true
			return false, nil
		}
		rows = append(rows, dueRow{due, id, string(name)})
		return true, nil
	})
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		// The row goes first: what it is for may enter a new one at the same time.
		tx.Delete(keys.RefDue(m.p, r.due, r.id, r.name))
		if r.name == "" {
			err = m.purge(tx, stamp, r.id)
		} else {
			err = m.trim(tx, stamp, r.id, r.name)
		}
		if err != nil {
			return false, err
		}
	}
	return more, m.findDue(tx)
}

// purge removes a repository that was deleted long enough ago, with all its rows as one range. One
// that was brought back, or deleted again later, is left alone.
func (m *Machine) purge(tx core.Txn, stamp core.ShardTime, id core.RepoID) error {
	info, ok, err := readRepo(tx, m.p, id)
	if err != nil || !ok || info.DeletedAt == 0 || info.DeletedAt.Add(keepDeleted) > stamp {
		return err
	}
	n, err := m.count(tx)
	if err != nil {
		return err
	}
	// Every repository with a record was counted when it was made.
	if n == 0 {
		return errs.Corruptf("repository %s of %s is not counted", id, m.p)
	}
	m.setCount(tx, n-1)
	tx.Delete(keys.RepoDeleted(m.p, info.Name, id))
	tx.DeleteRange(keys.RepoRange(m.p, id))
	return nil
}

// trim drops the records of a log that are too old, and enters when to look again.
//
// Records are read from the newest to the oldest, so the first one that is too old ends the search
// and all behind it go as one range. A log that keeps records is looked at again when its oldest is
// too old, and that of a deleted ref when its last record, the deletion, is.
func (m *Machine) trim(tx core.Txn, stamp core.ShardTime, id core.RepoID, name string) error {
	info, ok, err := readRepo(tx, m.p, id)
	if err != nil || !ok { // the repository is gone, with all its logs
		return err
	}
	days := info.Config.WithDefaults().ReflogDays
	_, exists, err := tx.Get(keys.Ref(m.p, id, name))
	if err != nil {
		return err
	}
	var cut []byte // the first key that is too old
	// The stamps of the newest record and of the oldest one that stays.
	newest, oldest := core.Never, core.Never
	from, to := keys.RefLogs(m.p, id, name, ^uint64(0))
	err = core.ScanRows(tx, from, to, func(key, value []byte) (bool, error) {
		entry, err := core.DecodeRefLog(value)
		if err != nil {
			return false, errs.Corruptf("log of %q of repository %s: %v", name, id, err)
		}
		keep := days
		if newest == core.Never {
			if newest = entry.Stamp; !exists { // it is that of the deletion
				keep = min(keep, deletedDays)
			}
		}
		if logDue(entry.Stamp, keep) <= stamp {
			cut = append([]byte(nil), key...)
			return false, nil
		}
		oldest = entry.Stamp
		return true, nil
	})
	if err != nil {
		return err
	}
	if cut != nil {
		tx.DeleteRange(cut, to)
	}
	// A log with nothing left is not looked at again.
	if oldest < core.Never {
		due := logDue(oldest, days)
		if !exists {
			due = min(due, logDue(newest, deletedDays))
		}
		m.arm(tx, due, id, name)
	}
	return nil
}
