package queue

import (
	"cmp"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// laneName names a lane of a partition; lane 0 is that of a queue's tasks without a key.
type laneName struct {
	queue uint32
	lane  uint64
}

// laneCount is what a lane counts, and how many there are.
type laneCount struct{ tasks, ready, running uint32 }

// compareLanes orders lanes by queue, and then by number.
func compareLanes(a, b laneName) int {
	return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.lane, b.lane))
}

// shareRow takes in the share of a queue, or one of its lanes.
func (a *audit) shareRow(row keys.QueueRow, value []byte) error {
	if row.Record == keys.RecordShare {
		s, plain, err := decodeShareRecord(value)
		a.shares[row.Queue] = s.made
		if err != nil {
			return err
		}
		a.lanes[laneName{row.Queue, 0}] = laneCount{plain.tasks, plain.ready, plain.running}
		return a.holder(laneName{row.Queue, 0}, &plain)
	}
	ln, err := decodeLaneRecord(value)
	if err != nil {
		return err
	}
	name := laneName{row.Queue, ln.number}
	if made, ok := a.shares[row.Queue]; !ok || ln.number == 0 || ln.number > made {
		a.find("lane %d of queue number %d, which has made %d", ln.number, row.Queue, made)
	}
	if _, twice := a.lanes[name]; twice {
		a.find("two keys of queue number %d have lane %d", row.Queue, ln.number)
	}
	a.lanes[name] = laneCount{ln.tasks, ln.ready, ln.running}
	if ln.named {
		delete(a.limiters.lanes, name)
	}
	return a.holder(name, &ln)
}

// holder compares what a lane says of the task that holds it with the task.
func (a *audit) holder(name laneName, ln *laneState) error {
	if ln.hold == nil {
		return nil
	}
	rec, ok, err := storedRecord(a.v, keys.AppendTaskState(nil, a.p, ln.hold.task), ln.hold.task)
	switch {
	case err != nil:
		return err
	case !ok || !isLive(rec.state) || rec.queue != name.queue || rec.lane != name.lane:
		a.find("lane %d of queue number %d is held by task %s, which is not one of its tasks", name.lane, name.queue, ln.hold.task)
	case (rec.state == core.Ready) != ln.hold.ready:
		a.find("lane %d of queue number %d is held by task %s, which is %s, ready: %v", name.lane, name.queue, ln.hold.task, rec.state, ln.hold.ready)
	}
	return nil
}

// inLane counts a task that has not ended.
func (a *audit) inLane(rec *record) {
	if !isLive(rec.state) {
		return
	}
	name := laneName{rec.queue, rec.lane}
	c := a.foundLanes[name]
	c.tasks++
	switch rec.state {
	case core.Ready:
		c.ready++
	case core.Running:
		c.running++
	}
	a.foundLanes[name] = c
}

// finishLanes compares what the lanes count with the tasks they have. A queue that was removed has no lanes any more, though the records
// of its tasks name some; one that is not shared does not count its tasks without a key by themselves.
func (a *audit) finishLanes() {
	for _, name := range slices.SortedFunc(maps.Keys(a.lanes), compareLanes) {
		if a.lanes[name] != a.foundLanes[name] {
			a.find("lane %d of queue number %d counts %+v, and has %+v", name.lane, name.queue, a.lanes[name], a.foundLanes[name])
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(a.foundLanes), compareLanes) {
		if _, ok := a.lanes[name]; !ok && name.lane != 0 && !a.removed[name.queue] {
			a.find("%+v tasks of queue number %d name lane %d, which is not there", a.foundLanes[name], name.queue, name.lane)
		}
	}
}
