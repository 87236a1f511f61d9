package queue

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// cursorScheduled is the form of the cursor of a list of scheduled tasks. State and queue of the
// list come first. Then follow, for the timer index and for that of timers by wall clock, the
// length and the part below the partition of the last key that was taken.
const cursorScheduled byte = 2

// timers is one of the two indexes of timers, as a list of scheduled tasks goes through it: a
// window of rows that were read, from which the list takes the first.
type timers struct {
	from, to []byte
	// back is what is taken from its due times to get shard time.
	back core.Millis
	// tail is the part of the key of the last row that was taken; empty: none was.
	tail []byte
	// rows were read and not yet taken.
	rows []timerAt
	// more says that there are rows behind those.
	more bool
}

// timerAt is one row: due in shard time, the task, its queue, and the part of the key for a cursor.
type timerAt struct {
	// When it is due by shard time, and the task.
	due core.ShardTime
	id  core.TaskID
	//
	of   uint32
	tail []byte
}

// read takes in up to limit rows, of all queues: the index does not tell them apart.
func (x *timers) read(v core.View, limit int) error {
	return core.ScanRows(v, x.from, x.to, func(key, value []byte) (bool, error) {
		if len(x.rows) == limit {
			x.more = true
			return false, nil
		}
		at, id, number, err := timerOf(key, value)
		x.rows = append(x.rows, timerAt{at.Add(-x.back), id, number, append([]byte{}, keys.QueueTail(key)...)})
		return true, err
	})
}

// listScheduled reads a page of a queue's scheduled tasks from both indexes, in the order of their due times.
// It merges the two, as far as both were read, and stops where a row that was not read may come first.
func listScheduled(v core.View, p core.Partition, q core.ListQuery, number uint32, shift core.Millis, inspect int) (ids []core.TaskID, next []byte, err error) {
	var of [2]timers
	of[0].from, of[0].to = keys.TimerRangeAll(p, minTime)
	of[1].from, of[1].to = keys.WallTimerRangeAll(p, minTime)
	of[1].back = shift
	if len(q.Cursor) > 0 && !seekScheduled(p, q, number, &of) {
		return nil, nil, badCursor
	}
	if err := of[1].read(v, max(inspect/2, 1)); err != nil {
		return nil, nil, err
	}
	if err := of[0].read(v, max(inspect-len(of[1].rows), 1)); err != nil {
		return nil, nil, err
	}
	for {
		x := firstDue(&of)
		switch {
		case x == nil && !of[0].more && !of[1].more:
			return ids, nil, nil
		case x == nil || len(ids) == q.Limit:
			return ids, scheduledCursor(q, number, &of), nil
		}
		row := x.rows[0]
		x.rows, x.tail = x.rows[1:], row.tail
		if row.of == number {
			ids = append(ids, row.id)
		}
	}
}

// firstDue returns the index whose next row is due first. nil: there is no row, or one that was not
// read may come first.
func firstDue(of *[2]timers) *timers {
	var first *timers
	for i := range of {
		switch x := &of[i]; {
		case len(x.rows) == 0 && x.more:
			return nil
		case len(x.rows) > 0 && (first == nil || x.rows[0].due < first.rows[0].due):
			first = x
		}
	}
	return first
}

// scheduledCursor makes the cursor after the rows that were taken of both indexes.
func scheduledCursor(q core.ListQuery, number uint32, of *[2]timers) []byte {
	b := binary.BigEndian.AppendUint32([]byte{cursorScheduled, byte(q.State)}, number)
	for i := range of {
		b = append(binary.AppendUvarint(b, uint64(len(of[i].tail))), of[i].tail...)
	}
	return b
}

// seekScheduled sets where a list goes on in both indexes, and reports whether the cursor is one of this list.
func seekScheduled(p core.Partition, q core.ListQuery, number uint32, of *[2]timers) bool {
	c := q.Cursor
	if len(c) > 0 && c[0] == cursorForm {
		of[0].from = cursorKey(p, q, number, of[0].from, of[0].to)
		return of[0].from != nil
	}
	if len(c) < 6 || c[0] != cursorScheduled || c[1] != byte(q.State) || binary.BigEndian.Uint32(c[2:]) != number {
		return false
	}
	r := reader{b: c[6:]}
	for i := range of {
		x := &of[i]
		if x.tail = r.bytes(r.uint()); len(x.tail) == 0 {
			continue
		}
		next := keys.QueueAfter(p, x.tail)
		if keys.Compare(next, x.from) < 0 || keys.Compare(next, x.to) >= 0 {
			return false
		}
		x.from = next
	}
	return r.done("cursor") == nil
}
