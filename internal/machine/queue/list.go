package queue

import (
	"cmp"
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// Limits of one page of a list. They bound the time for which one read holds its view.
const (
	// MaxListed is a number of tasks.
	MaxListed = 1_000
	// MaxInspected is a number of rows of an index, of which only some may be of the queue.
	MaxInspected = 10_000
)

// List reads a page of tasks. Where the index is that of a queue's state, the order is:
//
//   - blocked ones by id, which is about that of their creation,
//   - ready ones by priority and then by ready time,
//   - scheduled ones by due time as most wall clocks show it now, shift beyond shard time,
//   - running ones by token,
//   - ended ones by end.
//
// Results are left out, and of payloads all but the first bytes that are asked for. A page may have fewer tasks than asked for, and even none, and
// still a cursor: the end is where there is no cursor. A queue that is unknown has no tasks. The
// error is a core.Fact when the query is at fault.
func List(v core.View, p core.Partition, q core.ListQuery, shift core.Millis) (core.TaskPage, error) {
	return list(v, p, q, shift, MaxInspected)
}

// list is List with a bound of the rows that are looked at, which tests make small.
func list(v core.View, p core.Partition, q core.ListQuery, shift core.Millis, inspect int) (page core.TaskPage, err error) {
	if q.Limit < 1 {
		return page, core.Invalid{Field: "limit", Message: "is at least 1"}
	}
	if q.Limit > MaxListed {
		return page, core.TooLarge{Field: "limit", Limit: "list_limit", Max: MaxListed}
	}
	if q.State > core.Cancelled {
		return page, core.Invalid{Field: "state", Message: "is not a state of a task"}
	}
	k := newPicker(v, p, &q, shift)
	if q.Before != (core.TaskEnd{}) && (q.Queue == "" || !q.State.Terminal() || !q.Desc || len(q.Cursor) > 0 || q.Picky()) {
		return page, badCursor
	}
	var number uint32
	if q.Queue != "" {
		value, ok, err := v.Get(keys.AppendQueueConfig(nil, p, q.Queue))
		if err != nil || !ok {
			return page, err
		}
		row, err := decodeConfig(value)
		if err != nil {
			return page, err
		}
		number = row.number
		k.number = number
	}
	if q.Unique != "" && q.Queue != "" {
		return k.byUnique()
	}
	var ids []core.TaskID
	switch {
	case len(q.Labels) > 0 || !q.Batch.IsZero() || q.State == 0 || q.Queue == "" || q.State == core.Scheduled && q.Desc:
		return k.byTask(inspect)
	case !q.Picky():
	default:
		return k.byState(inspect)
	}
	q.Before.At = q.Before.At.Add(-shift)
	if q.State == core.Scheduled {
		ids, page.Next, err = listScheduled(v, p, q, number, shift, inspect)
	} else {
		ids, page.Next, err = listIDs(v, p, q, number, inspect)
	}
	if err != nil {
		return page, err
	}
	page.Tasks, page.Inspected = make([]core.Task, 0, len(ids)), len(ids)
	for _, id := range ids {
		t, ok, err := k.pick(id)
		if err != nil {
			return page, err
		}
		if ok {
			page.Tasks = append(page.Tasks, t)
		}
	}
	if page.Next != nil && len(ids) > 0 && q.State.Terminal() {
		page.Reached, err = k.reached(ids[len(ids)-1], true)
	}
	return page, err
}

// listIDs reads the ids of a page from the index of a state, and the cursor after it; nil: the list
// is at its end.
func listIDs(v core.View, p core.Partition, q core.ListQuery, number uint32, inspect int) (ids []core.TaskID, next []byte, err error) {
	from, to := listRange(p, q.State, number)
	if from == nil {
		return nil, nil, nil // no task is ever in such a state
	}
	if len(q.Cursor) > 0 {
		at := cursorKey(p, q, number, from, to)
		switch {
		case at == nil:
			return nil, nil, badCursor
		case q.Desc:
			to = keys.QueueAt(p, q.Cursor[6:])
		default:
			from = at
		}
	}
	if q.Before.ID != (core.TaskID{}) {
		to = keys.AppendTerminal(nil, p, number, q.State, q.Before.At, q.Before.ID)
	}
	if q.State.Terminal() {
		c, err := readCounters(v, p, number)
		if err != nil {
			return nil, nil, err
		}
		if swept := c.sweep(q.State); !swept.id.IsZero() {
			if first := swept.after(p, number, q.State); keys.Compare(from, first) < 0 {
				from = first // what is before was removed
			}
		}
		if to != nil && keys.Compare(from, to) >= 0 {
			return nil, nil, nil
		}
	}
	var bad error
	seen := 0
	var last []byte
	scan := v.Scan
	if q.Desc {
		scan = v.ScanBack
	}
	err = scan(from, to, func(key, value []byte) bool {
		if len(ids) == q.Limit || seen == inspect {
			next = appendCursor(q, number, last)
			return false
		}
		seen++
		last = append(last[:0], key...)
		id, of, err := listRow(q.State, key, value)
		if err != nil {
			bad = err
			return false
		}
		if of == 0 || of == number {
			ids = append(ids, id)
		}
		return true
	})
	return ids, next, cmp.Or(err, bad)
}

var badCursor = core.Invalid{Field: "cursor", Reason: "bad_cursor", Message: "is not one of this list"}

// listRange bounds the index of a state, except that of scheduled tasks, which have two indexes. The index of
// running tasks is shared by all queues. from is nil for a state that no task is ever in.
func listRange(p core.Partition, s core.State, number uint32) (from, to []byte) {
	switch s {
	case core.Blocked:
		return keys.BlockedRange(p, number)
	case core.Ready:
		return keys.ReadyRange(p, number)
	case core.Running:
		return keys.RunningRange(p)
	case core.Completed, core.Dead, core.Cancelled:
		return keys.TerminalRange(p, number, s, minTime)
	}
	return nil, nil
}

// listRow reads the task in a row of a state's index, and the number of its queue where queues
// share the index; 0 where they do not. A row of another kind has a number that no queue has.
func listRow(s core.State, key, value []byte) (id core.TaskID, number uint32, err error) {
	switch s {
	case core.Blocked:
		id, _ = keys.DecodeBlocked(key)
		return id, 0, nil
	case core.Ready:
		return toID(value), 0, nil
	case core.Scheduled:
		_, id, number, err = timerOf(key, value)
		return id, number, err
	case core.Running:
		c, err := decodeCarried(value)
		return c.task, c.queue, err
	default:
		_, id, _ = keys.DecodeTerminal(key)
		return id, 0, nil
	}
}

// timerOf reads a row of either index of timers: when it is due, the task that becomes ready then,
// and the number of the task's queue. A row of another kind has a number that no queue has.
func timerOf(key, value []byte) (at core.ShardTime, id core.TaskID, number uint32, err error) {
	at, id, ok := keys.DecodeWallTimer(key)
	if !ok {
		due, kind, rest, ok := keys.DecodeTimer(key)
		if !ok || kind != keys.TimerScheduled {
			return due, id, ^uint32(0), nil
		}
		at, id = due, toID(rest)
	}
	r := reader{b: value}
	number = r.u32()
	return at, id, number, r.done("timer")
}

// A cursor is its form, the state and queue of the list, and the part of the last key below the
// partition. The cursor of scheduled tasks has a form of its own; this form, which went through the
// timer index alone, is still read for them.
const cursorForm byte = 1

// cursorBack is the form of the cursor of a list that goes back, and cursorTasks that of one by task or by label: whether it goes
// back, and the part of the last key below the partition.
const (
	cursorBack  byte = 3
	cursorTasks byte = 4
)

// appendCursor makes the cursor after a key.
func appendCursor(q core.ListQuery, number uint32, key []byte) []byte {
	form := cursorForm
	if q.Desc {
		form = cursorBack
	}
	b := binary.BigEndian.AppendUint32([]byte{form, byte(q.State)}, number)
	return append(b, keys.QueueTail(key)...)
}

// cursorKey returns where a list goes on, or nil when the cursor is not of this list.
func cursorKey(p core.Partition, q core.ListQuery, number uint32, from, to []byte) []byte {
	c := q.Cursor
	form := cursorForm
	if q.Desc {
		form = cursorBack
	}
	if len(c) < 7 || c[0] != form || c[1] != byte(q.State) || binary.BigEndian.Uint32(c[2:]) != number {
		return nil
	}
	key := keys.QueueAfter(p, c[6:])
	if keys.Compare(key, from) < 0 || to != nil && keys.Compare(key, to) >= 0 {
		return nil
	}
	return key
}
