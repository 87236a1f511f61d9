package queue

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// Audit reads everything that a partition's queue has stored and returns what contradicts what, at
// most the first 100 findings. It checks that each task is in exactly one index, each row of an
// index has its task, counters equal a recount, and tokens and places are not above the partition's
// counters. It takes no memory for tasks, some for each key that has tasks, and a read or two for each task.
func Audit(v core.View, p core.Partition) (findings []string, err error) {
	a := &audit{
		v: v, p: p, queues: map[uint32]*counted{},
		shares: map[uint32]uint64{}, lanes: map[laneName]laneCount{}, foundLanes: map[laneName]laneCount{}, removed: map[uint32]bool{},
		batches: batchAudit{rows: map[uint64]batchRow{}, found: map[uint64]batchRow{}},
	}
	if err := a.begin(); err != nil {
		return nil, err
	}
	from, to := keys.QueueRange(p)
	var bad error
	err = v.Scan(from, to, func(key, value []byte) bool {
		bad = a.row(key, value)
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	if err == nil {
		a.finish()
	}
	return a.findings, err
}

// audit is one pass of Audit. Rows are looked at in the order of their keys. Those of an index are
// only counted; each task is followed from its state record to the rows that it must have. Equal
// counts then prove that no index has a row too many.
type audit struct {
	// What is audited: one partition of one view.
	v    core.View
	p    core.Partition
	meta meta
	// queues has the stored and the recounted counters of each queue, by number.
	queues map[uint32]*counted
	// shares has the last number of a lane of each queue that is shared, lanes what each lane counts, and foundLanes what it has.
	shares            map[uint32]uint64
	lanes, foundLanes map[laneName]laneCount
	// removed are the queues that were removed and are not swept yet.
	removed map[uint32]bool
	// limiters is what is known of limiters.
	limiters auditLimiters
	// At most 100, each a sentence.
	findings []string

	// The numbers of records that state records say there are.
	tasks, results, holders, attempts, older int
	tombstones, windows                      int
	cancels, expiries, labels                int
	effects                                  int
	cronRuns                                 int
	reports, logs, checkpoints               int
	errors                                   int
	waits                                    int
	// The numbers of rows that were seen.
	payloadRows, resultRows, holderRows int
	attemptRows, olderRows              int
	timerRows                           [5]int
	wallRows                            int
	cancelRows, expiryRows, labelRows   int
	effectRows                          int
	reportRows, logRows, checkpointRows int
	errorTimers                         int
	afterRows                           int
	cronRows, templateRows, runRows     int
	batches                             batchAudit
	// indexRows counts rows of indexes, by state.
	indexRows [8]int
	// indexed counts tasks that must have such a row, by state.
	indexed [8]int
}

// counted is one queue: whether a record names it, its stored counters, and what was found.
type counted struct {
	// A row of configuration or a removed queue has the number.
	named bool
	// The counters that are stored, and the same counted from the rows.
	stored counters
	found  counters
	// What is known of its groups of errors, and the same counted from the rows.
	errors, foundErrors errorState
}

// find notes a finding, up to the limit.
func (a *audit) find(format string, args ...any) {
	if len(a.findings) < 100 {
		a.findings = append(a.findings, fmt.Sprintf(format, args...))
	}
}

// begin reads the partition's counters and those of every queue. An empty partition has neither,
// and no finding.
func (a *audit) begin() error {
	value, ok, err := a.v.Get(keys.AppendQueueMeta(nil, a.p))
	if err != nil || !ok {
		return err
	}
	if a.meta, err = decodeMeta(value); err != nil {
		return err
	}
	from, to := keys.QueueCountersRange(a.p)
	return core.ScanRows(a.v, from, to, func(key, value []byte) (bool, error) {
		row, ok := keys.DecodeQueue(key)
		if !ok || row.Queue > a.meta.queues {
			a.find("counters of queue number %d of %d", row.Queue, a.meta.queues)
			return true, nil
		}
		c, err := decodeCounters(value)
		a.queues[row.Queue] = &counted{stored: c}
		return true, err
	})
}

// row looks at one stored row. What follows from a state record is looked up there; of the rows of
// indexes it is then enough to count them.
func (a *audit) row(key, value []byte) error {
	row, ok := keys.DecodeQueue(key)
	if !ok {
		a.find("unknown row %x", key)
		return nil
	}
	switch row.Record {
	case keys.RecordTaskPayload:
		a.payloadRows++
	case keys.RecordTaskResult:
		a.resultRows++
	case keys.RecordTaskHolder:
		a.holderRows++
	case keys.RecordTaskAttempt:
		if keys.DecodeTaskAttempt(key) == olderAttempts {
			a.olderRows++
		} else {
			a.attemptRows++
		}
	case keys.RecordAfter, keys.RecordBlocked:
		a.waitRow(row.Record)
	case keys.RecordReady:
		a.indexRows[core.Ready]++
	case keys.RecordRunning:
		a.indexRows[core.Running]++
	case keys.RecordTerminal:
		a.terminalRow(core.State(row.State))
	case keys.RecordTimer:
		a.timerRow(key)
	case keys.RecordWallTimer:
		a.wallRows++
	case keys.RecordTaskCancel:
		a.cancelRows++
	case keys.RecordExpiry:
		a.expiryRows++
	case keys.RecordLabel:
		a.labelRows++
	case keys.RecordErrorGroup, keys.RecordErrors:
		return a.errorRow(row, value)
	case keys.RecordTaskEffects:
		a.effectRows++
	case keys.RecordTaskReport, keys.RecordTaskLog, keys.RecordCheckpoint:
		a.reportRow(row.Record)
	case keys.RecordTenantQuota:
		return auditQuota(value)
	case keys.RecordBulk:
		return a.bulkRow(row, value)
	case keys.RecordCron, keys.RecordCronTemplate, keys.RecordCronRun:
		return a.cronRow(row, value)
	case keys.RecordBatch, keys.RecordBatchCounts, keys.RecordBatchTask, keys.RecordBatchEnd, keys.RecordBatches:
		return a.batchRow(row, value)
	case keys.RecordQueueConfig:
		return a.configRow(row.Name, value)
	case keys.RecordLimiter:
		return a.limiters.row(row.Name, value)
	case keys.RecordRemoved:
		a.removed[row.Queue] = true
		if q := a.queues[row.Queue]; q == nil || q.named {
			a.find("queue number %d of %d was removed, and has a name or no counters", row.Queue, a.meta.queues)
		} else {
			q.named = true
		}
	case keys.RecordShare, keys.RecordLane:
		return a.shareRow(row, value)
	case keys.RecordUnique:
		return a.window(value, formUnique, func(due core.ShardTime) []byte {
			return keys.AppendUniqueTimer(nil, a.p, due, row.Queue, row.Name)
		})
	case keys.RecordWindow:
		return a.window(value, formWindow, func(due core.ShardTime) []byte {
			return keys.AppendWindowTimerOf(nil, a.p, due, keys.WindowTail(key))
		})
	case keys.RecordTaskState:
		return a.state(row.Task, value)
	}
	return nil
}

// configRow checks that the configuration of a queue names a queue that no other one names.
func (a *audit) configRow(name string, value []byte) error {
	of, err := decodeConfig(value)
	a.limiters.queue(&of)
	if q := a.queues[of.number]; err == nil && (q == nil || q.named) {
		a.find("queue %q has number %d of %d", name, of.number, a.meta.queues)
	} else if err == nil {
		q.named = true
	}
	return err
}

// terminalRow counts a row of the index of ended tasks.
func (a *audit) terminalRow(s core.State) {
	if s.Terminal() && s <= core.Cancelled {
		a.indexRows[s]++
	} else {
		a.find("row of the index of ended tasks for state %d", s)
	}
}

// bulkRow checks that a bulk job is stored under its id.
func (a *audit) bulkRow(row keys.QueueRow, value []byte) error {
	j, err := decodeBulk(value)
	if err == nil && j.ID != row.Task {
		a.find("bulk job %s is stored under %s", j.ID, row.Task)
	}
	return err
}

// timerRow counts a row of the index of timers.
func (a *audit) timerRow(key []byte) {
	switch _, kind, _, ok := keys.DecodeTimer(key); {
	case ok && kind == keys.TimerErrors:
		a.errorTimers++
	case ok && kind == keys.TimerAfter: // its task may be gone
	case ok && kind == keys.TimerBatch:
		a.batches.timers++
	case ok && kind >= 1 && int(kind) < len(a.timerRows):
		a.timerRows[kind]++
	default:
		a.find("unknown timer %x", key)
	}
}

// has notes a finding unless a key is stored. what says what is missing.
func (a *audit) has(key []byte, what string, args ...any) error {
	_, ok, err := a.v.Get(key)
	if err == nil && !ok {
		a.find("missing: "+what, args...)
	}
	return err
}

// window checks that the window of a unique key goes: with its task, or by a timer.
func (a *audit) window(value []byte, form byte, timer func(due core.ShardTime) []byte) error {
	w, err := decodeWindow(value, form)
	if err != nil {
		return err
	}
	if w.frees != core.UniqueTTL {
		rec, ok, err := storedRecord(a.v, keys.AppendTaskState(nil, a.p, w.task), w.task)
		if err != nil {
			return err
		}
		if !ok || !rec.frees {
			a.find("a unique key is held by task %s, which does not free it", w.task)
		}
	}
	if !w.timed() {
		return nil
	}
	a.windows++
	key := timer(w.until)
	return a.has(key, "timer %x of a unique key", key)
}

// state checks a state record, or the tombstone in its place. A task that retention removed has
// only its record and its row in the index of ended tasks left.
func (a *audit) state(id core.TaskID, value []byte) error {
	if isReplaced(value) {
		p, err := decodeReplaced(value)
		if err != nil {
			return err
		}
		a.tombstones++
		return a.has(keys.AppendTaskTimer(nil, a.p, p.until, keys.TimerTombstone, id), "timer of create %s, which replaced another", id)
	}
	if isTombstone(value) {
		t, err := decodeTombstone(value)
		if err != nil {
			return err
		}
		a.tombstones++
		a.below(id, t.token, 0)
		return a.has(keys.AppendTaskTimer(nil, a.p, t.until, keys.TimerTombstone, id), "timer of removed task %s", id)
	}
	rec, err := decodeRecord(value)
	if err != nil {
		return err
	}
	q := a.queues[rec.queue]
	if q == nil {
		a.find("task %s is of queue number %d of %d", id, rec.queue, a.meta.queues)
		return nil
	}
	a.below(id, rec.token, rec.seq)
	if rec.state.Terminal() && q.stored.sweep(rec.state).covers(rec.endedAt, id) {
		a.indexed[rec.state]++
		return a.has(keys.AppendTerminal(nil, a.p, rec.queue, rec.state, rec.endedAt, id), "row of removed task %s", id)
	}
	s, err := a.spec(id)
	if err != nil {
		return err
	}
	bytes := uint64(len(s.payload))
	result, err := a.result(id, &rec)
	if err != nil {
		return err
	}
	bytes += result
	if rec.longHolder {
		a.holders++
		if err := a.has(keys.AppendTaskHolder(nil, a.p, id), "worker of task %s", id); err != nil {
			return err
		}
	}
	if err := a.extras(id, &rec, &s); err != nil {
		return err
	}
	if err := a.dependents(id, &rec); err != nil {
		return err
	}
	if err := a.batchOf(id, &rec); err != nil {
		return err
	}
	told, err := a.told(id, &rec)
	if err != nil {
		return err
	}
	bytes += told
	a.tasks++
	a.indexed[rec.state]++
	a.inLane(&rec)
	a.limiters.task(&rec, &s, !q.named) // the rows of configurations came before
	if err := a.attemptsOf(id, &rec); err != nil {
		return err
	}
	q.found.states[rec.state]++
	q.found.bytes += bytes
	if rec.state.Terminal() {
		q.found.ended += bytes + endedExtra
	}
	return a.index(id, &rec, &s, bytes)
}

// result returns the size of a task's result, and counts those that stand in a row of their own.
func (a *audit) result(id core.TaskID, rec *record) (uint64, error) {
	if !rec.hasResult {
		return 0, nil
	}
	if rec.result == nil {
		a.results++
	}
	value, err := readResult(a.v, a.p, id, rec)
	if err != nil {
		return 0, err
	}
	_, result, err := decodeResult(value)
	return uint64(len(result)), err
}

// extras checks the rows that only some tasks have: who asked for a cancel, the expiry, and one for each label.
func (a *audit) extras(id core.TaskID, rec *record, s *spec) error {
	if rec.cancelUntil != 0 || rec.hasCancel {
		a.cancels++
		if err := a.has(keys.AppendTaskCancel(nil, a.p, id), "cancel of task %s", id); err != nil {
			return err
		}
	}
	if rec.expiresAt != 0 {
		a.expiries++
		if err := a.has(keys.AppendExpiry(nil, a.p, rec.expiresAt, id), "expiry of task %s", id); err != nil {
			return err
		}
	}
	if rec.frees && (rec.state.Terminal() || s.until == core.UniqueTTL || s.until == core.UniqueStart && rec.state == core.Running) {
		a.find("task %s is %s and is to free its unique key", id, rec.state)
	}
	for _, l := range s.labels {
		a.labels++
		if err := a.has(keys.AppendLabel(nil, a.p, l.Name, l.Value, id), "label %q of task %s", l.Name, id); err != nil {
			return err
		}
	}
	return nil
}

// reportRow counts a row of what the holders of a task told.
func (a *audit) reportRow(record keys.QueueRecord) {
	switch record {
	case keys.RecordTaskReport:
		a.reportRows++
	case keys.RecordTaskLog:
		a.logRows++
	default:
		a.checkpointRows++
	}
}

// told checks what the holders of a task told, and returns what it counts for.
func (a *audit) told(id core.TaskID, rec *record) (uint64, error) {
	if !rec.reported {
		return 0, nil
	}
	a.reports++
	t, err := readTold(a.v, a.p, id)
	if err != nil {
		return 0, err
	}
	a.logs += int(t.chunks)
	if t.hasCheckpoint {
		a.checkpoints++
		value, err := must(a.v, keys.AppendCheckpoint(nil, a.p, id), "checkpoint of task %s", id)
		if err != nil {
			return 0, err
		}
		if uint64(len(value)) != t.checkpoint {
			a.find("the checkpoint of task %s has %d bytes, and its record says %d", id, len(value), t.checkpoint)
		}
	}
	log, _, err := Log(a.v, a.p, id, 0, 0, core.MaxLogLines+core.MaxReportLines)
	size := uint64(0)
	for _, line := range log.Lines {
		size += uint64(len(line.Text)) + lineExtra
	}
	if err == nil && (uint64(len(log.Lines)) != t.next-t.first || size != t.lineBytes || len(log.Lines) > 0 && log.Lines[0].Number != t.first) {
		a.find("task %s counts lines %d to %d of %d bytes, and has %d of %d", id, t.first, t.next, t.lineBytes, len(log.Lines), size)
	}
	return t.bytes(), err
}

// spec reads the payload record of a task.
func (a *audit) spec(id core.TaskID) (s spec, err error) {
	return storedSpec(a.v, keys.AppendTaskPayload(nil, a.p, id), id)
}

// attemptsOf counts the attempts of a task that have a record: all but the one that the state record holds, at most those that are
// kept. Of the others it checks that not more were counted than there were: programs of an older format counted none.
func (a *audit) attemptsOf(id core.TaskID, rec *record) error {
	n := int(rec.attempt)
	if rec.held() {
		n-- // it is in the state record
	}
	a.attempts += min(n, keptAttempts)
	if n <= keptAttempts {
		return nil
	}
	value, ok, err := a.v.Get(keys.AppendTaskAttempt(nil, a.p, id, olderAttempts))
	if err != nil || !ok {
		return err
	}
	a.older++
	counts, err := decodeOlder(value)
	if err != nil {
		return err
	}
	if counted := counts.sum(); counted > uint64(n-keptAttempts) {
		a.find("task %s counts %d attempts that are not kept, of %d", id, counted, n-keptAttempts)
	}
	return nil
}

// below checks that a task's token and place were issued.
func (a *audit) below(id core.TaskID, token core.Token, seq uint64) {
	if uint64(token) > a.meta.token || seq > a.meta.seq {
		a.find("task %s has token %d of %d and place %d of %d", id, token, a.meta.token, seq, a.meta.seq)
	}
}

// index checks that a task has the row that its state says, with the content that follows from its
// records. bytes is the length of its payload and result.
func (a *audit) index(id core.TaskID, rec *record, s *spec, bytes uint64) error {
	switch {
	case rec.state == core.Blocked:
		return a.blocked(id, rec, s)
	case rec.state == core.Ready:
		return a.has(keys.AppendPlace(nil, a.p, rec.queue, rec.lane, rec.sort, rec.seq), "place of ready task %s", id)
	case rec.state == core.Scheduled:
		return a.has(appendTaskTimer(nil, a.p, id, rec), "timer of task %s", id)
	case rec.state == core.Running:
		value, err := must(a.v, keys.AppendRunning(nil, a.p, rec.token), "row of running task %s", id)
		if err != nil {
			return err
		}
		c, err := decodeCarried(value)
		if err == nil && (c != carried{id, rec.queue, s.content, uint64(len(s.payload)), s.settings, len(s.labels) > 0}) {
			a.find("row of running task %s differs from its records", id)
		}
		return err
	case rec.state.Terminal():
		value, err := must(a.v, keys.AppendTerminal(nil, a.p, rec.queue, rec.state, rec.endedAt, id), "row of ended task %s", id)
		if err != nil {
			return err
		}
		e, err := decodeEnded(value)
		if e.effects {
			a.effects++
		}
		if err == nil && (e != ended{rec.attempt, bytes, rec.hasResult && rec.result == nil, rec.longHolder, len(s.labels) > 0, rec.hasCancel, e.effects, rec.reported, rec.batch != 0}) {
			a.find("row of ended task %s differs from its records", id)
		}
		if err == nil && rec.content != s.content {
			a.find("ended task %s has the content %x, and its payload record %x", id, rec.content, s.content)
		}
		return err
	}
	a.find("task %s is %s", id, rec.state)
	return nil
}

// finish compares what was counted: each queue's counters with its tasks, and each index's rows
// with the tasks that must have one.
func (a *audit) finish() {
	for _, n := range slices.Sorted(maps.Keys(a.queues)) {
		q := a.queues[n]
		if !q.named {
			a.find("queue number %d has no name", n)
		}
		a.compareErrors(n, q)
		sum := q.stored.purged
		for s := range q.found.states {
			sum += q.stored.states[s]
			if q.stored.states[s] != q.found.states[s] {
				a.find("queue number %d counts %d tasks %s, and has %d", n, q.stored.states[s], core.State(s), q.found.states[s])
			}
		}
		if sum != q.stored.created {
			a.find("queue number %d created %d tasks, and has or purged %d", n, q.stored.created, sum)
		}
		if q.stored.bytes != q.found.bytes || q.stored.ended != q.found.ended {
			a.find("queue number %d counts %d bytes and %d of ended tasks, and has %d and %d",
				n, q.stored.bytes, q.stored.ended, q.found.bytes, q.found.ended)
		}
	}
	a.finishLanes()
	a.finishBatches()
	a.finishLimiters()
	a.indexRows[core.Scheduled] = a.timerRows[keys.TimerScheduled] + a.wallRows
	for s := range a.indexRows {
		if a.indexRows[s] != a.indexed[s] {
			a.find("the index of tasks %s has %d rows for %d tasks", core.State(s), a.indexRows[s], a.indexed[s])
		}
	}
	for _, c := range [...]struct {
		what       string
		rows, want int
	}{
		{"payloads", a.payloadRows, a.tasks},
		{"results", a.resultRows, a.results},
		{"workers", a.holderRows, a.holders},
		{"attempts", a.attemptRows, a.attempts},
		{"counts of older attempts", a.olderRows, a.older},
		{"cancels", a.cancelRows, a.cancels},
		{"expiries", a.expiryRows, a.expiries},
		{"labels", a.labelRows, a.labels},
		{"lists of effects", a.effectRows, a.effects},
		{"records of reports", a.reportRows, a.reports},
		{"rows of logs", a.logRows, a.logs},
		{"checkpoints", a.checkpointRows, a.checkpoints},
		{"rows of tasks that wait", a.afterRows, a.waits},
		{"templates of crons", a.templateRows, a.cronRows},
		{"runs of crons", a.runRows, a.cronRuns},
		{"timers of groups of errors", a.errorTimers, a.errors},
		{"timers of removed tasks", a.timerRows[keys.TimerTombstone], a.tombstones},
		{"timers of unique keys", a.timerRows[keys.TimerUnique] + a.timerRows[keys.TimerWindow], a.windows},
	} {
		if c.rows != c.want {
			a.find("%d %s for %d", c.rows, c.what, c.want)
		}
	}
}
