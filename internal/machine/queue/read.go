package queue

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Task reads one task with payload and result from a view, without a Machine. It is not there when
// its id is unknown, or known only because it was removed a moment ago.
func Task(v core.View, p core.Partition, id core.TaskID) (core.Task, bool, error) {
	t, _, ok, err := TaskUpTo(v, p, id, core.ContentSize{Payload: math.MaxInt, Result: math.MaxInt})
	return t, ok, err
}

// TaskUpTo is Task with at most that many bytes (most) of the payload and of the result; size is how long they are as a whole. What is
// not asked for is not copied.
func TaskUpTo(v core.View, p core.Partition, id core.TaskID, most core.ContentSize) (t core.Task, size core.ContentSize, ok bool, err error) {
	rec, ok, err := readRecord(v, p, id)
	if err != nil || !ok {
		return core.Task{}, size, false, err
	}
	s, l, ok, err := readSpec(v, p, id, rec.queue)
	if err != nil || !ok {
		return core.Task{}, size, false, err
	}
	t, err = readTask(v, p, id, &rec, &s, l)
	if err != nil {
		return core.Task{}, size, false, err
	}
	if err := readAfter(v, p, &t); err != nil {
		return core.Task{}, size, false, err
	}
	size.Payload = len(s.payload)
	t.Payload = bytes.Clone(s.payload[:min(size.Payload, most.Payload)])
	if rec.hasResult {
		value, err := readResult(v, p, id, &rec)
		if err != nil {
			return core.Task{}, size, false, err
		}
		kind, result, err := decodeResult(value)
		if err != nil {
			return core.Task{}, size, false, err
		}
		size.Result = len(result)
		t.Result, t.ResultType = bytes.Clone(result[:min(size.Result, most.Result)]), typeName(kind)
	}
	return t, size, true, nil
}

// Assigned returns what the worker of a running task was given. It is not there when the task does not run.
func Assigned(v core.View, p core.Partition, id core.TaskID) (core.Assigned, bool, error) {
	rec, ok, err := readRecord(v, p, id)
	if err != nil || !ok || rec.state != core.Running {
		return core.Assigned{}, false, err
	}
	s, l, ok, err := readSpec(v, p, id, rec.queue)
	if err != nil || !ok {
		return core.Assigned{}, false, err
	}
	a := assigned(id, &rec, &s, l)
	tellMore(&a, &rec, &s, l)
	a.Checkpoint, err = checkpointOf(v, p, id, &rec)
	return a, err == nil, err
}

// Attempts reads the last attempts of a task, at most keptAttempts, oldest first, and how many before them ended in which way. The
// one that runs, and the one that completed the task, are part of its state record.
func Attempts(v core.View, p core.Partition, id core.TaskID) (list core.AttemptList, ok bool, err error) {
	rec, ok, err := readRecord(v, p, id)
	if err != nil || !ok {
		return list, false, err
	}
	s, l, ok, err := readSpec(v, p, id, rec.queue)
	if err != nil || !ok {
		return list, false, err
	}
	out, err := readAttempts(v, p, id, rec.attempt)
	if err != nil {
		return list, false, err
	}
	for i := range out {
		out[i].Fingerprint = fingerprintOfAttempt(s.kindName(l.name), &out[i])
	}
	if rec.held() {
		if rec.worker, err = readWorker(v, p, id, &rec); err != nil {
			return list, false, err
		}
		out = append(out, core.Attempt{
			Number: rec.attempt, Worker: rec.worker, Session: rec.session, Start: rec.startedAt, End: rec.endedAt,
			Outcome: rec.outcome, Index: rec.endedIdx, Token: rec.token, ReadyAt: rec.readyAt, LeaseUntil: rec.leaseUntil,
		})
	}
	list.Attempts = out[max(0, len(out)-keptAttempts):]
	if int(rec.attempt) > len(list.Attempts) {
		older, err := readOlder(v, p, id)
		if err != nil {
			return list, false, err
		}
		for _, a := range out[:len(out)-len(list.Attempts)] {
			older[a.Outcome]++
		}
		list.Older = older.list(uint64(rec.attempt) - uint64(len(list.Attempts)))
	}
	return list, true, nil
}

// readOlder reads how many attempts of a task whose records are gone ended in which way.
func readOlder(v core.View, p core.Partition, id core.TaskID) (o outcomes, err error) {
	value, ok, err := v.Get(keys.AppendTaskAttempt(nil, p, id, olderAttempts))
	if err != nil || !ok {
		return o, err
	}
	return decodeOlder(value)
}

// sum is how many attempts were counted.
func (o *outcomes) sum() (n uint64) {
	for _, of := range o {
		n += of
	}
	return n
}

// list lists the counts that are not 0. Of all attempts, those that were not counted are of unknown outcome.
func (o *outcomes) list(all uint64) (list []core.OutcomeCount) {
	if counted := o.sum(); all > counted {
		o[core.OutcomeNone] += all - counted
	}
	for i, n := range o {
		if n > 0 {
			list = append(list, core.OutcomeCount{Outcome: core.Outcome(i), Count: n})
		}
	}
	return list
}

// Held returns the running tasks of a session in order of token, with Task, Token, Attempt, Queue
// and LeaseUntil of each. A worker that reconnects compares them with its own.
func (m *Machine) Held(s core.SessionID) []core.Assigned {
	var out []core.Assigned
	for r := m.sessions[s]; r != nil; r = r.next {
		if r.queue.removed {
			continue
		}
		out = append(out, core.Assigned{
			Task: r.id, Token: r.rec.token, Attempt: r.rec.attempt, Queue: r.queue.name, LeaseUntil: r.rec.leaseUntil,
		})
	}
	slices.SortFunc(out, func(a, b core.Assigned) int { return cmp.Compare(a.Token, b.Token) })
	return out
}

// Stats reads a queue's counters and configuration. OldestReady is the ready time of the task that has been
// ready longest. Of those whose place an entry before format 2 made, only the first is looked at.
func Stats(v core.View, p core.Partition, queue string) (core.QueueStats, bool, error) {
	value, ok, err := v.Get(keys.AppendQueueConfig(nil, p, queue))
	if err != nil || !ok {
		return core.QueueStats{}, false, err
	}
	row, err := decodeConfig(value)
	if err != nil {
		return core.QueueStats{}, false, err
	}
	s, err := readStats(v, p, queue, &row)
	return s, err == nil, err
}

// Queues reads the counters of up to limit queues whose names follow after, in order of name.
func Queues(v core.View, p core.Partition, after string, limit int) ([]core.QueueStats, error) {
	type found struct {
		name string
		row  queueRow
	}
	var rows []found
	var bad error
	from, to := keys.QueueConfigRange(p)
	if after != "" {
		from = keys.AppendQueueConfig(nil, p, after+"\x00")
	}
	err := v.Scan(from, to, func(key, value []byte) bool {
		if len(rows) >= limit {
			return false
		}
		row, err := decodeConfig(value)
		if err != nil {
			bad = err
			return false
		}
		rows = append(rows, found{keys.DecodeQueueConfig(key), row})
		return true
	})
	if err = cmp.Or(err, bad); err != nil {
		return nil, err
	}
	out := make([]core.QueueStats, len(rows))
	for i := range rows {
		if out[i], err = readStats(v, p, rows[i].name, &rows[i].row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readStats reads the counters of a queue whose configuration was read.
func readStats(v core.View, p core.Partition, name string, row *queueRow) (s core.QueueStats, err error) {
	c, err := readCounters(v, p, row.number)
	if err != nil {
		return s, err
	}
	s = core.QueueStats{
		Queue: name, States: c.states, Created: c.created, Purged: c.purged, Completed: c.completed,
		Failed: c.failed, Crashed: c.crashed, Bytes: c.bytes, Config: row.config, Paused: row.paused, LettersLost: c.lettersLost,
	}
	if c.states[core.Ready] > 0 {
		s.OldestReady, err = oldestOfLanes(v, p, row.number)
	}
	return s, err
}

// maxLooked bounds how many lanes of keys are looked at for the oldest ready task of a queue.
const maxLooked = 1000

// oldestOfLanes is oldestReady over the tasks without a key and those of the first maxLooked keys.
func oldestOfLanes(v core.View, p core.Partition, number uint32) (oldest core.ShardTime, err error) {
	if oldest, err = oldestReady(v, p, number, 0); err != nil {
		return oldest, err
	}
	if _, shared, err := v.Get(keys.AppendShare(nil, p, number)); err != nil || !shared {
		return oldest, err
	}
	var lanes []uint64
	from, to := keys.LaneRange(p, number)
	if err := core.ScanRows(v, from, to, func(_, value []byte) (bool, error) {
		ln, err := decodeLaneRecord(value)
		if ln.ready > 0 {
			lanes = append(lanes, ln.number)
		}
		return len(lanes) < maxLooked, err
	}); err != nil {
		return oldest, err
	}
	for _, lane := range lanes {
		at, err := oldestReady(v, p, number, lane)
		if err != nil {
			return oldest, err
		}
		oldest = min(oldest, at)
	}
	return oldest, nil
}

// oldestReady reads the ready time of the first task of each class of a lane, and returns the earliest.
// Within a class of a priority the first one has been ready longest.
func oldestReady(v core.View, p core.Partition, number uint32, lane uint64) (oldest core.ShardTime, err error) {
	oldest = core.Never
	for c := 0; c < classes && err == nil; c++ {
		var id core.TaskID
		from, _ := classRange(p, number, lane, c)
		_, to := classRange(p, number, lane, classes-1)
		c = classes
		err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
			_, sort, _, ok := keys.DecodePlace(key)
			if !ok {
				return false, errs.Corruptf("row of the index of ready tasks makes no sense")
			}
			if c, id = classOf(sort), toID(value); c > 0 {
				oldest = min(oldest, readyOf(sort))
			}
			return false, nil
		})
		if c == 0 && err == nil {
			var rec record
			rec, _, err = readRecord(v, p, id)
			oldest = min(oldest, rec.readyAt)
		}
	}
	return oldest, err
}

// readRecord is loadRecord from what is stored alone. The removal of its queue is seen by readSpec.
func readRecord(v core.View, p core.Partition, id core.TaskID) (rec record, ok bool, err error) {
	rec, ok, err = storedRecord(v, keys.AppendTaskState(nil, p, id), id)
	if err != nil || !ok {
		return rec, false, err
	}
	if rec.state.Terminal() {
		c, err := readCounters(v, p, rec.queue)
		if err != nil || c.sweep(rec.state).covers(rec.endedAt, id) {
			return record{}, false, err
		}
	}
	return rec, true, nil
}

// readCounters reads the counters of a queue by number. Every queue has them.
func readCounters(v core.View, p core.Partition, number uint32) (c counters, err error) {
	value, err := must(v, keys.AppendQueueCounters(nil, p, number), "counters of queue number %d", number)
	if err != nil {
		return c, err
	}
	return decodeCounters(value)
}

// readResult reads the result record of a task that has one, wherever it lies.
func readResult(v core.View, p core.Partition, id core.TaskID, rec *record) ([]byte, error) {
	if rec.result != nil {
		return rec.result, nil
	}
	return must(v, keys.AppendTaskResult(nil, p, id), "result of task %s", id)
}

// storedSpec reads the payload record of a task that has one.
func storedSpec(v core.View, key []byte, id core.TaskID) (spec, error) {
	value, err := must(v, key, "payload of task %s", id)
	if err != nil {
		return spec{}, err
	}
	return decodeSpec(value)
}

// loadSpec is storedSpec of a task of the partition.
func (m *Machine) loadSpec(v core.View, id core.TaskID) (spec, error) {
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, id)
	return storedSpec(v, m.key, id)
}

// readSpec reads what never changes about a task, and the configuration of its queue, whose number its record
// has. ok is false when the queue was removed, so that its name stands for another queue or for none.
func readSpec(v core.View, p core.Partition, id core.TaskID, number uint32) (s spec, l *queueState, ok bool, err error) {
	if s, err = storedSpec(v, keys.AppendTaskPayload(nil, p, id), id); err != nil {
		return s, nil, false, err
	}
	name := string(s.queue)
	value, ok, err := v.Get(keys.AppendQueueConfig(nil, p, name))
	if err != nil || !ok {
		return s, nil, false, err
	}
	row, err := decodeConfig(value)
	return s, &queueState{number: number, name: name, config: row.config}, row.number == number, err
}

// readWorker reads the name of the worker in a record, wherever it lies.
func readWorker(v core.View, p core.Partition, id core.TaskID, rec *record) (string, error) {
	if rec.longHolder {
		return loadHolder(v, p, id)
	}
	return rec.worker, nil
}

// loadCancel reads who asked for the cancel of a task for which there is such a record.
func loadCancel(v core.View, p core.Partition, id core.TaskID) (core.CancelAsked, error) {
	value, err := must(v, keys.AppendTaskCancel(nil, p, id), "cancel of task %s", id)
	if err != nil {
		return core.CancelAsked{}, err
	}
	return decodeCancel(value)
}

// readAttempts reads the records of the attempts of a task that has had n, oldest first.
func readAttempts(v core.View, p core.Partition, id core.TaskID, n uint32) (out []core.Attempt, err error) {
	if n == 0 {
		return nil, nil
	}
	var bad error
	from, to := keys.TaskAttemptRange(p, id)
	err = v.Scan(from, to, func(key, value []byte) bool {
		a, err := decodeAttempt(value)
		if err != nil {
			bad = err
			return false
		}
		a.Number = keys.DecodeTaskAttempt(key)
		out = append(out, a)
		return true
	})
	return out, cmp.Or(err, bad)
}

// readTask puts a task together from its records, without payload and result. The error is that of
// the last attempt that failed.
func readTask(v core.View, p core.Partition, id core.TaskID, rec *record, s *spec, l *queueState) (t core.Task, err error) {
	t = core.Task{
		ID: id, Queue: l.name, Kind: s.kindName(l.name), State: rec.state, Reason: rec.reason.String(),
		ContentType: s.typeName(), Headers: s.headers, Priority: rec.priority, Unique: string(s.unique), Tag: string(s.tag),
		MaxAttempts: l.maxAttempts(&s.settings), MaxCrashes: l.maxCrashes(&s.settings),
		MaxDeliveries: l.maxDeliveries(&s.settings), Lease: l.lease(&s.settings), MaxRun: l.maxRun(&s.settings),
		Attempt: rec.attempt, Failures: rec.failures, Crashes: rec.crashes, Snoozes: rec.snoozes,
		Redrives: rec.redrives, CreatedAt: s.createdAt, ReadyAt: rec.readyAt, StartedAt: rec.startedAt,
		FinishedAt: rec.endedAt, RunAt: rec.runAt, RunAtWall: rec.wall, Creator: string(s.creator), CreatedIdx: s.createdIdx,
		Key: string(s.key), Cost: s.cost, Limiters: s.limiters, EndedIdx: rec.endedIdx, LeaseUntil: rec.leaseUntil, HasResult: rec.hasResult, Labels: s.labels, ExpiresAt: rec.expiresAt,
		OnDepFailure: s.onDep, Pending: rec.pending, Dependents: rec.dependents, Batch: s.batch,
	}
	for _, a := range s.after {
		t.After = append(t.After, core.AfterState{After: a})
	}
	if rec.cancelUntil != 0 || rec.hasCancel {
		if t.Cancel, err = loadCancel(v, p, id); err != nil {
			return t, err
		}
		t.Cancel.Until = rec.cancelUntil
	}
	if t.Progress, err = progressOf(v, p, id, rec); err != nil {
		return t, err
	}
	if rec.held() {
		if t.Worker, err = readWorker(v, p, id, rec); err != nil {
			return t, err
		}
	}
	if rec.state == core.Running {
		t.Lease = rec.lease
	}
	if rec.failures == 0 {
		t.Fingerprint, err = lastFingerprint(v, p, id, rec, t.Kind)
		return t, err
	}
	past, err := readAttempts(v, p, id, rec.attempt)
	for _, a := range slices.Backward(past) {
		if t.Fingerprint == 0 {
			t.Fingerprint = fingerprintOfAttempt(t.Kind, &a)
		}
		if a.Outcome == core.OutcomeFailed || a.Outcome == core.OutcomeTimeout {
			t.Error = a.Error
			break
		}
	}
	return t, err
}
