package queue

import (
	"bytes"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// picker decides which of the tasks that an index has are of a list, and reads these. It is for one page.
type picker struct {
	v     core.View
	p     core.Partition
	q     *core.ListQuery
	shift core.Millis
	// number is that of the query's queue; 0: it names none.
	number uint32
	// m has queues and their counters as the entry that is applied has them so far; nil: v has them.
	m *Machine
	// queues has the queues that tasks were of so far, by name; nil for one that is not there. swept has their counters, by number.
	queues map[string]*queueState
	swept  map[uint32]*counters
}

func newPicker(v core.View, p core.Partition, q *core.ListQuery, shift core.Millis) *picker {
	return &picker{v: v, p: p, q: q, shift: shift, queues: map[string]*queueState{}, swept: map[uint32]*counters{}}
}

// pick reads a task, and reports whether it is there and what the query asks for.
func (k *picker) pick(id core.TaskID) (t core.Task, ok bool, err error) {
	rec, ok, err := k.record(id)
	if err != nil || !ok {
		return t, false, err
	}
	s, l, ok, err := k.match(id, &rec)
	if err != nil || !ok {
		return t, false, err
	}
	t, err = readTask(k.v, k.p, id, &rec, s, l)
	if k.q.Head > 0 {
		t.Payload, t.PayloadSize = bytes.Clone(s.payload[:min(len(s.payload), k.q.Head)]), len(s.payload)
	}
	return t, err == nil, err
}

// reached is the end of a task, or else its creation; 0: it is not there any more.
func (k *picker) reached(id core.TaskID, end bool) (core.ShardTime, error) {
	rec, ok, err := storedRecord(k.v, keys.AppendTaskState(nil, k.p, id), id)
	if err != nil || !ok || end {
		return rec.endedAt, err
	}
	s, err := storedSpec(k.v, keys.AppendTaskPayload(nil, k.p, id), id)
	return s.createdAt, err
}

// record reads the state record of a task, and reports whether the task is there and has the query's queue and state.
func (k *picker) record(id core.TaskID) (rec record, ok bool, err error) {
	rec, ok, err = storedRecord(k.v, keys.AppendTaskState(nil, k.p, id), id)
	switch {
	case err != nil || !ok:
		return rec, false, err
	case k.number != 0 && rec.queue != k.number || k.q.State != 0 && rec.state != k.q.State:
		return rec, false, nil
	}
	if rec.state.Terminal() {
		c, err := k.countersOf(rec.queue)
		if err != nil || c.sweep(rec.state).covers(rec.endedAt, id) {
			return rec, false, err
		}
	}
	return rec, true, nil
}

// match reads what was sent of a task that is there, and reports whether it is what the query asks for beyond queue and state.
func (k *picker) match(id core.TaskID, rec *record) (s *spec, l *queueState, ok bool, err error) {
	if k.q.Worker != "" {
		if !rec.held() {
			return nil, nil, false, nil
		}
		worker, err := readWorker(k.v, k.p, id, rec)
		if err != nil || worker != k.q.Worker {
			return nil, nil, false, err
		}
	}
	was, err := storedSpec(k.v, keys.AppendTaskPayload(nil, k.p, id), id)
	if err != nil {
		return nil, nil, false, err
	}
	l, err = k.queueOf(string(was.queue))
	if err != nil || l == nil || l.number != rec.queue || !k.wants(&was, l) {
		return nil, nil, false, err
	}
	if k.q.Fingerprint != 0 {
		fp, err := lastFingerprint(k.v, k.p, id, rec, was.kindName(l.name))
		if err != nil || fp != k.q.Fingerprint {
			return nil, nil, false, err
		}
	}
	return &was, l, true, nil
}

// wants reports whether a payload record is what the query asks for.
func (k *picker) wants(s *spec, l *queueState) bool {
	q := k.q
	created := s.createdAt.Add(k.shift)
	if q.Kind != "" && s.kindName(l.name) != q.Kind || q.Unique != "" && string(s.unique) != q.Unique ||
		q.From != 0 && created < q.From || q.To != 0 && created >= q.To || !q.Batch.IsZero() && s.batch != q.Batch {
		return false
	}
	for _, want := range q.Labels {
		if !hasLabel(s.labels, want) {
			return false
		}
	}
	return true
}

func hasLabel(labels []core.Label, want core.Label) bool {
	for _, l := range labels {
		if l == want {
			return true
		}
	}
	return false
}

// queueOf reads the queue of a name, once for each; nil: there is none.
func (k *picker) queueOf(name string) (*queueState, error) {
	if k.m != nil {
		return k.m.names[name], nil
	}
	if l, ok := k.queues[name]; ok {
		return l, nil
	}
	value, ok, err := k.v.Get(keys.AppendQueueConfig(nil, k.p, name))
	if err != nil {
		return nil, err
	}
	var l *queueState
	if ok {
		row, err := decodeConfig(value)
		if err != nil {
			return nil, err
		}
		l = &queueState{number: row.number, name: name, config: row.config}
	}
	k.queues[name] = l
	return l, nil
}

// countersOf reads the counters of a queue, once for each.
func (k *picker) countersOf(number uint32) (*counters, error) {
	if k.m != nil {
		l, err := k.m.lineAt(number)
		if err != nil {
			return nil, err
		}
		return &l.counters, nil
	}
	if c := k.swept[number]; c != nil {
		return c, nil
	}
	c, err := readCounters(k.v, k.p, number)
	if err != nil {
		return nil, err
	}
	k.swept[number] = &c
	return &c, nil
}

// byUnique answers with the task whose unique key is reserved in the query's queue, if it is what the query asks for.
func (k *picker) byUnique() (page core.TaskPage, err error) {
	value, ok, err := k.v.Get(keys.AppendWindow(nil, k.p, k.q.Queue, keys.SpaceUnique, k.q.Unique))
	if err != nil || !ok {
		return page, err
	}
	w, err := decodeWindow(value, formWindow)
	if err != nil {
		return page, err
	}
	page.Inspected = 1
	t, ok, err := k.pick(w.task)
	if ok {
		page.Tasks = []core.Task{t}
	}
	return page, err
}

// byTask goes through the tasks of the query's batch, those with its first label, or all of the partition.
func (k *picker) byTask(inspect int) (core.TaskPage, error) {
	if !k.q.Batch.IsZero() {
		number, ok, err := batchNumber(k.v, k.p, k.q.Batch)
		if err != nil || !ok {
			return core.TaskPage{}, err
		}
		from, to := keys.BatchTaskRange(k.p, number)
		return k.walk(from, to, inspect, cursorTasks, rowOf(keys.DecodeBatchTask))
	}
	if len(k.q.Labels) > 0 {
		from, to := keys.LabelRange(k.p, k.q.Labels[0].Name, k.q.Labels[0].Value)
		return k.walk(from, to, inspect, cursorTasks, rowOf(keys.DecodeLabel))
	}
	from, to := keys.TaskStateRange(k.p)
	return k.walk(from, to, inspect, cursorTasks, rowOf(keys.DecodeTaskState))
}

// rowOf reads the task of a row from its key.
func rowOf(decode func(key []byte) (core.TaskID, bool)) func(key, value []byte) (core.TaskID, error) {
	return func(key, _ []byte) (core.TaskID, error) {
		id, ok := decode(key)
		if !ok {
			return id, errs.Corruptf("row %x of an index of tasks makes no sense", key)
		}
		return id, nil
	}
}

// byState goes through the tasks of the query's queue in its state, by the index of that state, and asks more of each.
func (k *picker) byState(inspect int) (core.TaskPage, error) {
	if k.q.State == core.Scheduled {
		return k.byTask(inspect)
	}
	from, to := listRange(k.p, k.q.State, k.number)
	if from == nil {
		return core.TaskPage{}, nil
	}
	return k.walk(from, to, inspect, byte(k.q.State)<<4|cursorTasks, func(key, value []byte) (core.TaskID, error) {
		id, _, err := listRow(k.q.State, key, value)
		return id, err
	})
}

// walk goes through an index, forward or back, and picks from it until the page is full or as many rows were looked at as it may.
// The cursor has the form of the walk.
func (k *picker) walk(from, to []byte, inspect int, form byte, taskOf func(key, value []byte) (core.TaskID, error)) (page core.TaskPage, err error) {
	head := []byte{form, 0}
	if k.q.Desc {
		head[1] = 1
	}
	if c := k.q.Cursor; len(c) > 0 {
		if !bytes.HasPrefix(c, head) {
			return page, badCursor
		}
		at := keys.QueueAt(k.p, c[len(head):])
		if keys.Compare(at, from) < 0 || to != nil && keys.Compare(at, to) >= 0 {
			return page, badCursor
		}
		if k.q.Desc {
			to = at
		} else {
			from = keys.QueueAfter(k.p, c[len(head):])
		}
	}
	scan := k.v.Scan
	if k.q.Desc {
		scan = k.v.ScanBack
	}
	var bad error
	var last []byte
	var id core.TaskID
	err = scan(from, to, func(key, value []byte) bool {
		if len(page.Tasks) == k.q.Limit || page.Inspected == inspect {
			page.Next = append(head, last...)
			return false
		}
		page.Inspected++
		last = append(last[:0], keys.QueueTail(key)...)
		if id, bad = taskOf(key, value); bad != nil {
			return false
		}
		var t core.Task
		var ok bool
		if t, ok, bad = k.pick(id); ok {
			page.Tasks = append(page.Tasks, t)
		}
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	if end := k.byEnd(); err == nil && page.Next != nil && (end || form == cursorTasks) {
		page.Reached, err = k.reached(id, end)
	}
	return page, err
}

// byEnd reports whether the list is in the order of ends.
func (k *picker) byEnd() bool {
	return k.q.State.Terminal() && k.q.Queue != "" && len(k.q.Labels) == 0 && k.q.Batch.IsZero()
}
