package queue

import (
	"bytes"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// bulkWalk finds the tasks that a bulk job is about: in the indexes of the states of its action where it names a queue, by its
// batch, by its first label, or among all tasks of the partition. Each index is a leg of the walk.
type bulkWalk struct {
	picker
	action core.BulkAction
	// priority is what BulkPrioritize sets; tasks that have it are left out.
	priority uint8
	// before leaves out tasks that were created, or ended, after it.
	before core.ShardTime
	legs   []bulkLeg
}

// bulkLeg is a range of an index.
type bulkLeg struct {
	from, to []byte
	// number begins its cursors. It is that of the leg in a walk without the blocked tasks, which older programs make.
	number byte
	// task reads the task of a row.
	task func(key, value []byte) (core.TaskID, error)
	// ended says that it is the index of ended tasks.
	ended bool
}

// newBulkWalk begins a walk. of has the numbers of the queue and the batch that the filter names. m is that of the entry which
// is applied; nil: v is read alone.
func newBulkWalk(v core.View, p core.Partition, op *core.BulkStart, of bulkScope, shift core.Millis, before core.ShardTime, m *Machine) *bulkWalk {
	q := op.Tasks.Query()
	w := &bulkWalk{picker: *newPicker(v, p, &q, shift), action: op.Action, priority: op.Priority, before: before}
	w.number, w.m = of.number, m
	switch {
	case of.batch != 0:
		from, to := keys.BatchTaskRange(p, of.batch)
		w.legs = []bulkLeg{{from: from, to: to, task: rowOf(keys.DecodeBatchTask)}}
	case len(op.Tasks.Labels) > 0:
		from, to := keys.LabelRange(p, op.Tasks.Labels[0].Name, op.Tasks.Labels[0].Value)
		w.legs = []bulkLeg{{from: from, to: to, task: rowOf(keys.DecodeLabel)}}
	case of.number == 0:
		from, to := keys.TaskStateRange(p)
		w.legs = []bulkLeg{{from: from, to: to, task: rowOf(keys.DecodeTaskState)}}
	default:
		for _, s := range op.Action.States() {
			if op.Tasks.State == 0 || op.Tasks.State == s {
				w.addState(s)
			}
		}
	}
	return w
}

// addState adds the index of a state, or both indexes of scheduled tasks.
func (w *bulkWalk) addState(s core.State) {
	number := byte(len(w.legs))
	if n := len(w.legs); n > 0 && w.legs[0].number == legBlocked {
		number = byte(n - 1)
	}
	row := func(key, value []byte) (core.TaskID, error) {
		id, _, err := listRow(s, key, value)
		return id, err
	}
	if s == core.Scheduled {
		from, to := keys.TimerRangeAll(w.p, minTime)
		w.legs = append(w.legs, bulkLeg{number: number, from: from, to: to, task: row})
		from, to = keys.WallTimerRangeAll(w.p, minTime)
		w.legs = append(w.legs, bulkLeg{number: number + 1, from: from, to: to, task: row})
		return
	}
	if s == core.Blocked {
		number = legBlocked
	}
	from, to := listRange(w.p, s, w.number)
	if s.Terminal() {
		// What ended later is not what was meant, and an index by end needs no look at it.
		_, end := keys.TerminalRange(w.p, w.number, s, minTime)
		to = end
		if w.before < core.Never {
			to, _ = keys.TerminalRange(w.p, w.number, s, w.before+1)
		}
	}
	w.legs = append(w.legs, bulkLeg{number: number, from: from, to: to, task: row, ended: s.Terminal()})
}

// legBlocked is the number of the leg of blocked tasks, which comes first.
const legBlocked byte = 0xff

// bulkRow is a row that a walk came to.
type bulkRow struct {
	task core.TaskID
	// after is the cursor with which the walk goes on after the row.
	after []byte
	// ended is the value of a row of the index of ended tasks; nil: the row is of another index.
	ended []byte
}

// next returns the next rows, at most n of them, from a cursor on; nil: from the first row. end says that there are no more. A cursor
// is the number of a leg, and the part of a row's key below the partition.
func (w *bulkWalk) next(cursor []byte, n int) (rows []bulkRow, end bool, err error) {
	leg := 0
	if len(cursor) > 0 {
		if leg = slices.IndexFunc(w.legs, func(l bulkLeg) bool { return l.number == cursor[0] }); leg < 0 {
			return nil, false, badCursor
		}
	}
	for ; leg < len(w.legs); leg++ {
		l := &w.legs[leg]
		from := l.from
		if len(cursor) > 1 {
			if from = keys.QueueAfter(w.p, cursor[1:]); keys.Compare(from, l.from) < 0 {
				return nil, false, badCursor
			}
		}
		cursor = nil
		if keys.Compare(from, l.to) >= 0 {
			continue
		}
		full := false
		err := core.ScanRows(w.v, from, l.to, func(key, value []byte) (bool, error) {
			if full = len(rows) == n; full {
				return false, nil
			}
			id, err := l.task(key, value)
			row := bulkRow{task: id, after: append([]byte{l.number}, keys.QueueTail(key)...)}
			if l.ended {
				row.ended = bytes.Clone(value)
			}
			rows = append(rows, row)
			return true, err
		})
		if full || err != nil {
			return rows, false, err
		}
	}
	return rows, true, nil
}

// match reads the record of a task, and reports whether it is one of those that the job is about. A row of the timer index may be of
// something else, whose id has no record.
func (w *bulkWalk) match(id core.TaskID) (rec record, ok bool, err error) {
	rec, ok, err = w.record(id)
	switch {
	case err != nil || !ok:
		return rec, false, err
	case !slices.Contains(w.action.States(), rec.state):
		return rec, false, nil
	case rec.state.Terminal() && rec.endedAt > w.before:
		return rec, false, nil
	case w.action == core.BulkPrioritize && rec.priority == w.priority:
		return rec, false, nil
	case rec.state.Terminal() && w.number != 0 && !w.q.Picky():
		return rec, true, nil // it ended before, so it was created before
	}
	s, _, ok, err := w.picker.match(id, &rec)
	return rec, ok && s.createdAt <= w.before, err
}

// CountBulk counts what a bulk job would find, looking at up to rows rows from a cursor on, and reads the first tasks, up to sample.
// The error is a core.Fact when the request is at fault.
func CountBulk(v core.View, p core.Partition, op *core.BulkStart, shift core.Millis, cursor []byte, rows, sample int) (c core.BulkCount, err error) {
	number, ok, err := numberOf(v, p, op.Tasks.Queue)
	if err != nil || !ok {
		return c, err
	}
	of := bulkScope{number: number}
	if !op.Tasks.Batch.IsZero() {
		if of.batch, ok, err = batchNumber(v, p, op.Tasks.Batch); err != nil || !ok {
			return c, err
		}
	}
	w := newBulkWalk(v, p, op, of, shift, core.Never, nil)
	found, end, err := w.next(cursor, rows)
	if err != nil {
		return c, err
	}
	c.Inspected = uint64(len(found))
	if n := len(found); n > 0 && !end {
		c.Next = found[n-1].after
	}
	for _, r := range found {
		id := r.task
		_, ok, err := w.match(id)
		if err != nil {
			return c, err
		}
		if !ok {
			continue
		}
		c.Count++
		at := core.ShardTime(id.Millis())
		if c.Oldest == 0 || at < c.Oldest {
			c.Oldest = at
		}
		c.Newest = max(c.Newest, at)
		if len(c.Sample) < sample {
			t, ok, err := w.pick(id)
			if err != nil {
				return c, err
			}
			if ok {
				c.Sample = append(c.Sample, t)
			}
		}
	}
	return c, nil
}

// numberOf reads the number of a queue; 0 for the empty name. ok is false where the queue is not there.
func numberOf(v core.View, p core.Partition, name string) (number uint32, ok bool, err error) {
	if name == "" {
		return 0, true, nil
	}
	value, ok, err := v.Get(keys.AppendQueueConfig(nil, p, name))
	if err != nil || !ok {
		return 0, false, err
	}
	row, err := decodeConfig(value)
	return row.number, err == nil, err
}

// Bulks reads the bulk jobs of a partition, those that ended too, by id.
func Bulks(v core.View, p core.Partition) (out []core.BulkJob, err error) {
	from, to := keys.BulkRange(p)
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		j, err := decodeBulk(bytes.Clone(value))
		if err != nil {
			return false, err
		}
		row, ok := keys.DecodeQueue(key)
		if !ok || row.Task != j.ID {
			return false, errs.Corruptf("bulk job %s is stored under %x", j.ID, key)
		}
		out = append(out, j.BulkJob)
		return true, nil
	})
	return out, err
}
