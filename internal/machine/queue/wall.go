package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Times that callers name (run_at of a create, until of a snooze) are what the wall clocks will
// show. Times that are counted from a stamp (a delay, a wait before a retry) are shard time, which
// no step of a wall clock moves. Scheduled tasks of the first kind lie in the index of timers by
// wall clock, those of the second in the timer index; the record says where.

// due is when a task becomes ready: when most wall clocks show at, or, without wall, at that shard time.
type due struct {
	// A wall time with wall, else a shard time.
	at core.ShardTime
	// Which of the two indexes of timers has the task.
	wall bool
}

// after is when d has passed since the entry, at most maxDelay.
func after(c *core.ApplyContext, d core.Millis) due {
	return due{at: c.Stamp.Add(min(max(d, 0), maxDelay))}
}

// named is the time that a caller names. How far away that is depends on clocks that may be wrong,
// so it is not cut: the edge refuses a time that is too far. Entries before core.FormatQueues take
// it as shard time, at most maxDelay after the entry.
func named(c *core.ApplyContext, at core.ShardTime) due {
	if c.Format >= core.FormatQueues {
		return due{at, true}
	}
	return due{at: min(at, c.Stamp.Add(maxDelay))}
}

// now is the time of the entry: what most wall clocks show then, or shard time.
func now(c *core.ApplyContext, wall bool) core.ShardTime {
	if wall {
		return c.Stamp.Add(c.Shift)
	}
	return c.Stamp
}

// waits says whether due is still to come at this entry.
func waits(c *core.ApplyContext, d due) bool { return d.at > now(c, d.wall) }

// shard is d as a shard time, by what the wall clocks show now.
func (d due) shard(c *core.ApplyContext) core.ShardTime {
	if d.wall {
		return d.at.Add(-c.Shift)
	}
	return d.at
}

// wallDue is the earliest shard time at which the first timer by wall clock is due, by what the
// wall clocks show now; core.Never without such a timer. A step of the wall clocks moves it.
func (m *Machine) wallDue() core.ShardTime {
	if m.wall == core.Never {
		return core.Never
	}
	return m.wall.Add(-m.shift)
}

// expiryDue is the earliest shard time at which a task expires, as wallDue.
func (m *Machine) expiryDue() core.ShardTime {
	if m.expiry == core.Never {
		return core.Never
	}
	return m.expiry.Add(-m.shift)
}

// tickWall makes the tasks ready whose timers by wall clock are due, in order, up to budget. Their
// ready time is converted to shard time by the shift of this entry.
func (m *Machine) tickWall(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	type row struct {
		at  core.ShardTime
		id  core.TaskID
		key []byte
	}
	var rows []row
	from, to := keys.WallTimerRange(m.p, m.wall, now(c, true)+1)
	err = core.ScanRows(tx, m.passed.wall.from(from), to, func(key, _ []byte) (bool, error) {
		if len(rows) == budget {
			return false, nil
		}
		at, id, ok := keys.DecodeWallTimer(key)
		if !ok {
			return false, errs.Corruptf("row of the index of timers by wall clock makes no sense")
		}
		rows = append(rows, row{at, id, m.mem.own(key)})
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	done := m.wall
	if len(rows) > 0 {
		m.passed.wall.past(rows[len(rows)-1].key)
	}
	for _, r := range rows {
		if err := m.fireScheduled(tx, c, r.key, r.id, r.at.Add(-c.Shift)); err != nil {
			return 0, err
		}
		done = r.at
	}
	return len(rows), m.seekWall(tx, done)
}

// seekWall finds when the first timer by wall clock is due, given that none is due before from.
func (m *Machine) seekWall(v core.View, from core.ShardTime) error {
	m.wall = core.Never
	lo, hi := keys.WallTimerRangeAll(m.p, from)
	return core.ScanRows(v, m.passed.wall.from(lo), hi, func(key, _ []byte) (bool, error) {
		at, _, ok := keys.DecodeWallTimer(key)
		if !ok {
			return false, errs.Corruptf("row of the index of timers by wall clock makes no sense")
		}
		m.wall = at
		return false, nil
	})
}
