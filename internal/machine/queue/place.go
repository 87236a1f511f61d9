package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// sortKey places a task among the ready ones of its queue: smaller goes first. With aging it is the ready time less
// priority * aging, so that waiting makes up for priority; strictly, all of a priority come before all of the next.
// Rows keep the key they were written with when a queue's aging changes.
func sortKey(ready core.ShardTime, priority uint8, aging core.Millis) uint64 {
	at := uint64(max(ready, 0))
	if aging <= strictAging {
		return uint64(maxPriority-min(priority, maxPriority))<<48 | min(at, 1<<48-1)
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

// enqueue makes a task ready with a new place in its queue, and leaves the record to the caller.
func (m *Machine) enqueue(tx core.Txn, l *line, id core.TaskID, rec *record, from core.State, ready core.ShardTime) {
	m.meta.seq++
	rec.sort, rec.seq, rec.readyAt = sortKey(ready, rec.priority, l.aging()), m.meta.seq, ready
	rec.reason = reasonNone
	m.enter(tx, l, id, rec, from)
}

// enter makes a task ready at the place its record has.
func (m *Machine) enter(tx core.Txn, l *line, id core.TaskID, rec *record, from core.State) {
	rec.state = core.Ready
	m.key = keys.AppendReady(m.key[:0], m.p, l.number, rec.sort, rec.seq)
	tx.Insert(m.mem.own(m.key), m.mem.own(id[:]))
	m.pushHead(l, head{rec.sort, rec.seq, id})
	m.move(l, from, core.Ready)
	m.wake(l)
}

// schedule makes a task wait until due, and leaves the record to the caller.
func (m *Machine) schedule(tx core.Txn, l *line, id core.TaskID, rec *record, from core.State, due core.ShardTime) {
	rec.state, rec.runAt = core.Scheduled, due
	m.key = keys.AppendTaskTimer(m.key[:0], m.p, due, keys.TimerScheduled, id)
	m.setTimer(tx, due, putUint(m.value[:0], uint64(l.number)))
	m.move(l, from, core.Scheduled)
}

// setTimer stores the timer row whose key was put together, due at due.
func (m *Machine) setTimer(tx core.Txn, due core.ShardTime, value []byte) {
	tx.Insert(m.mem.own(m.key), m.mem.own(value))
	m.timer = min(m.timer, due)
}

// must reads a record that another one says is there.
func must(v core.View, key []byte, what string, args ...any) ([]byte, error) {
	value, ok, err := v.Get(key)
	if err == nil && !ok {
		err = errs.Corruptf("missing: "+what, args...)
	}
	return value, err
}

func loadHolder(v core.View, p core.Partition, id core.TaskID) (string, error) {
	value, err := must(v, keys.AppendTaskHolder(nil, p, id), "worker of task %s", id)
	return string(value), err
}
