package queue

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A sort key from format 2 on has three parts: the bit classSort, nine less the priority from
// classShift on, and the ready time below. Keys of entries before format 2 are smaller, so that
// their tasks come first in the index.
const (
	// The high bit: the key is of format 2 or later.
	classSort = uint64(1) << 63
	// The priority lies above this many bits, the ready time below.
	classShift = 48
)

// placeKey is the sort key of a task in the index of ready tasks, from format 2 on.
func placeKey(ready core.ShardTime, priority uint8) uint64 {
	return classSort | sortKey(ready, priority, strictAging)
}

// readyOf returns the ready time in such a key.
func readyOf(sort uint64) core.ShardTime { return core.ShardTime(sort & (1<<classShift - 1)) }

// sortKey ranks a task among the ready ones of its queue: smaller goes first. With aging it is the
// ready time less priority × aging, so that waiting makes up for priority; strictly, all of a
// priority come before all of the next. Entries before format 2 stored it as the sort key. From
// then on it is computed when a task is served, by the aging of that moment.
func sortKey(ready core.ShardTime, priority uint8, aging core.Millis) uint64 {
	at := uint64(max(ready, 0))
	if aging <= strictAging {
		return uint64(maxPriority-min(priority, maxPriority))<<classShift | min(at, 1<<classShift-1)
	}
	var ahead uint64
	if priority > 0 {
		ahead = uint64(min(aging, core.Millis(core.Never)/maxPriority)) * uint64(priority)
	}
	if ahead >= at {
		return 0
	}
	return at - ahead
}

// enqueue makes a task ready with a new place in its queue, from the state from. The caller writes the record.
func (m *Machine) enqueue(tx core.Txn, ln *lane, id core.TaskID, rec *record, from core.State, ready core.ShardTime) {
	m.takePlace(ln.queue, rec, ready)
	rec.reason = reasonNone
	m.enter(tx, ln, id, rec, from)
}

// takePlace gives a record the next place in its queue, for a task that is ready from a time on.
// seq breaks ties, and is unique in the partition.
func (m *Machine) takePlace(l *queueState, rec *record, ready core.ShardTime) {
	m.meta.seq++
	rec.seq, rec.readyAt = m.meta.seq, ready
	if m.format >= core.FormatQueues {
		rec.sort = placeKey(ready, rec.priority)
	} else {
		rec.sort = sortKey(ready, rec.priority, l.aging())
	}
}

// enter makes a task ready at the place that its record has. The order matters: the head is pushed
// before the task is counted as ready.
func (m *Machine) enter(tx core.Txn, ln *lane, id core.TaskID, rec *record, from core.State) {
	rec.state = core.Ready
	m.insertPlace(tx, ln, id, rec)
	m.pushHead(ln, head{sort: rec.sort, seq: rec.seq, id: id, cost: rec.cost})
	m.move(ln, from, core.Ready)
	ln.holderIsReady(id, true)
	m.wake(ln.queue)
}

// insertPlace writes the row of a ready task in the index of ready tasks: its id, and what it costs where that is not 1.
func (m *Machine) insertPlace(tx core.Txn, ln *lane, id core.TaskID, rec *record) {
	m.key = keys.AppendPlace(m.key[:0], m.p, ln.queue.number, ln.number, rec.sort, rec.seq)
	m.value = append(m.value[:0], id[:]...)
	if rec.cost > 1 {
		m.value = putUint(m.value, uint64(rec.cost))
	}
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
}

// deletePlace deletes the row of insertPlace.
func (m *Machine) deletePlace(tx core.Txn, ln *lane, sort, seq uint64) {
	m.key = keys.AppendPlace(m.key[:0], m.p, ln.queue.number, ln.number, sort, seq)
	tx.Delete(m.mem.own(m.key))
}

// fresh is a ready task that the entry being applied has created, or that waited for others until then. Its row in the ready index is
// written at the entry's end, unless a grant of the same entry has taken it by then: most tasks of
// a queue for which workers wait never get a row.
type fresh struct {
	// The lane that it is ready in.
	lane *lane
	// Its state record.
	rec record
	// Its id.
	id core.TaskID
	// payload is the payload record, which the store has already; nil: it is read from there.
	payload []byte
	// It left the ready state in the entry that created it, and gets no row in the ready index.
	taken bool
}

// admit is enqueue for a task that is being created, or waits for others no longer: it becomes a fresh one, without a row. from is the
// state that it was in; 0: it is new.
func (m *Machine) admit(ln *lane, id core.TaskID, rec *record, payload []byte, from core.State, ready core.ShardTime) {
	m.takePlace(ln.queue, rec, ready)
	rec.state, rec.reason = core.Ready, reasonNone
	m.fresh = append(m.fresh, fresh{lane: ln, rec: *rec, id: id, payload: payload})
	m.pushHead(ln, m.freshHead(len(m.fresh)-1))
	m.move(ln, from, core.Ready)
	m.wake(ln.queue)
}

// freshHead is the head of fresh task i in this entry.
func (m *Machine) freshHead(i int) head {
	f := &m.fresh[i]
	return head{sort: f.rec.sort, seq: f.rec.seq, id: f.id, fresh: int32(i + 1), epoch: m.epoch, cost: f.rec.cost}
}

// freshOf returns the fresh task that a head names, or nil for a head whose records are stored.
func (m *Machine) freshOf(h head) *fresh {
	if h.fresh == 0 || h.epoch != m.epoch {
		return nil
	}
	return &m.fresh[h.fresh-1]
}

// mergeFresh adds a lane's fresh tasks of a class to its heads, which were just read from the
// index. Those that come before what was read are all taken: they were heads before.
func (m *Machine) mergeFresh(ln *lane, h *headList, class int) {
	if len(m.fresh) == 0 {
		return
	}
	for i := range m.fresh {
		if f := &m.fresh[i]; f.lane == ln && !f.taken && classOf(f.rec.sort) == class {
			h.rows = append(h.rows, m.freshHead(i))
		}
	}
	slices.SortFunc(h.rows, compareHeads)
	if most := m.headsOf(ln); len(h.rows) > most {
		h.rows, h.more = h.rows[:most], true
	}
}

// settleFresh writes the rows of the fresh tasks that are still ready, and begins the next epoch.
// The list keeps its memory up to keptFresh.
func (m *Machine) settleFresh(tx core.Txn) {
	for i := range m.fresh {
		f := &m.fresh[i]
		if f.taken {
			continue
		}
		m.insertPlace(tx, f.lane, f.id, &f.rec)
	}
	clear(m.fresh)
	m.fresh = m.fresh[:0]
	if cap(m.fresh) > keptFresh {
		m.fresh = nil
	}
	m.epoch++
}

// takeFresh takes a task out of the fresh ones; false if it is not one of them.
func (m *Machine) takeFresh(id core.TaskID) bool {
	for i := range m.fresh {
		if f := &m.fresh[i]; f.id == id && !f.taken {
			f.taken = true
			m.log.took(i)
			return true
		}
	}
	return false
}

// settleOf writes the rows of a queue's fresh tasks now, for a sweep that looks for them before the entry ends.
func (m *Machine) settleOf(tx core.Txn, l *queueState) {
	for i := range m.fresh {
		f := &m.fresh[i]
		if f.lane.queue != l || f.taken {
			continue
		}
		f.taken = true
		m.log.took(i)
		m.insertPlace(tx, f.lane, f.id, &f.rec)
	}
}

// keptFresh bounds the memory of that list which is kept from one entry to the next, in tasks.
const keptFresh = 4096

// schedule makes a task wait until due, in the index of timers that fits: by shard time, or by wall
// clock. The caller writes the record.
func (m *Machine) schedule(tx core.Txn, ln *lane, id core.TaskID, rec *record, from core.State, due due) {
	rec.state, rec.runAt, rec.wall = core.Scheduled, due.at, due.wall
	m.value = putUint(m.value[:0], uint64(ln.queue.number))
	m.taskTimer(id, rec)
	if due.wall {
		tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
		m.wall = min(m.wall, due.at)
		m.passed.wall.insert(m.key)
	} else {
		m.setTimer(tx, due.at, m.value)
	}
	m.move(ln, from, core.Scheduled)
}

// taskTimer puts the key of a scheduled task's timer together in m.key.
func (m *Machine) taskTimer(id core.TaskID, rec *record) {
	m.key = appendTaskTimer(m.key[:0], m.p, id, rec)
}

// appendTaskTimer appends the key of a scheduled task's timer, in the index that its record names.
func appendTaskTimer(dst []byte, p core.Partition, id core.TaskID, rec *record) []byte {
	if rec.wall {
		return keys.AppendWallTimer(dst, p, rec.runAt, id)
	}
	return keys.AppendTaskTimer(dst, p, rec.runAt, keys.TimerScheduled, id)
}

// setTimer stores the timer row whose key is in m.key, due at due, and keeps the lower bound of the
// index right.
func (m *Machine) setTimer(tx core.Txn, due core.ShardTime, value []byte) {
	tx.Insert(m.mem.own(m.key), m.mem.own(value))
	m.timer = min(m.timer, due)
	m.passed.timer.insert(m.key)
}

// must reads a record that another one says is there. Its absence means that the store is damaged.
func must(v core.View, key []byte, what string, args ...any) ([]byte, error) {
	value, ok, err := v.Get(key)
	if err == nil && !ok {
		err = errs.Corruptf("missing: "+what, args...)
	}
	return value, err
}

// loadHolder reads the name of a worker that has a record of its own.
func loadHolder(v core.View, p core.Partition, id core.TaskID) (string, error) {
	value, err := must(v, keys.AppendTaskHolder(nil, p, id), "worker of task %s", id)
	return string(value), err
}
