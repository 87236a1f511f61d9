package queue

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// Every stored value starts with a byte that names its form. Forms are stored: a number is never
// given another meaning. A new form of a record gets a new number, and the old one is still read.
const (
	formTask byte = 1 // state record of a task
	// formTombstone is what is kept of a task that is gone, under the key of its state record.
	formTombstone byte = 2
	// What never changes about a task, and its payload.
	formPayload byte = 3
	// Counters of a queue.
	formCounters byte = 4
	// Number and configuration of a queue, by its name.
	formConfig byte = 5
	// Counters of the partition.
	formMeta byte = 6
	// Row of a running task.
	formRunning byte = 7
	// Row of an ended task, in the index of its state.
	formTerminal byte = 8
	// Window of a unique key.
	formUnique byte = 9
	// An attempt that has ended.
	formAttempt byte = 10
	// A result that is too long for the state record.
	formResult byte = 11
	// Window of a unique key that is stored by its queue's number.
	formWindow byte = 12
	// A queue that was removed and still has rows.
	formRemoved byte = 13
	// formMetaGone is the partition's counters where queues have gone. Without such queues formMeta
	// is written, which older programs read.
	formMetaGone byte = 14
	// formConfigMore is a queue with limits, or one that is paused. Without either formConfig is written, which older programs
	// read.
	formConfigMore byte = 15
	// Who asked for the cancel of a task.
	formCancel byte = 16
	// What the holders of a task told of their work, and the lines of one report.
	formReport byte = 20
	formLog    byte = 21
	// A group of errors of a queue, and what is known of all groups of a queue.
	formErrorGroup byte = 22
	formErrors     byte = 23
	// What a completion did besides.
	formEffects byte = 24
	// A bulk job.
	formBulk byte = 25
	// An attempt that has ended, with the times around it, and how many older attempts of a task ended in which way.
	formAttemptTimes byte = 26
	formOlder        byte = 27
	// The state record of a task that has something of core.FormatShare. Without that formTask is written, which older programs
	// read.
	formTaskShare byte = 28
	// Window of a unique key that the start or the end of its task frees. Without that formWindow is written.
	formWindowFreed byte = 45
	// What is kept of a create that replaced what an earlier one had asked for.
	formReplaced byte = 46
	// Counters of a queue that could not copy each of its dead tasks. Without that formCounters is written.
	formCountersMore byte = 47
	// A bulk job that moves tasks to another queue, or changes their payloads. Without either formBulk is written.
	formBulkMore byte = 48
	// formConfigShare is a queue that says how it is shared. Without that one of the older forms is written.
	formConfigShare byte = 29
	// How far a queue is shared out, and the tasks of one key.
	formShare byte = 30
	formLane  byte = 31
	// A task that waits for another one, under the key of both, and the timer by which those are told who wait for a task that has ended.
	formAfter      byte = 40
	formAfterTimer byte = 41
	// What the partition was told of its tenant's tasks.
	formTenantQuota byte = 50
	// A cron without its template, which stands alone as core.AppendTemplate writes it, and one run of a cron.
	formCron    byte = 35
	formCronRun byte = 36
	// What never changes about a batch, what changes, and how many batches there are.
	formBatch       byte = 37
	formBatchCounts byte = 38
	formBatches     byte = 39
	// A bulk job about the tasks of a batch. Without one of the older forms is written.
	formBulkBatch byte = 49
	// A limiter.
	formLimiter byte = 51
)

// putUint and putInt append a varint, putFixed 8 bytes in big-endian order. Fixed fields are for
// hashes and sort keys, of which a varint would be longer.
func putUint(b []byte, v uint64) []byte  { return binary.AppendUvarint(b, v) }
func putInt(b []byte, v int64) []byte    { return binary.AppendVarint(b, v) }
func putFixed(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }

// putString appends a length and the bytes.
func putString(b []byte, s string) []byte {
	return append(putUint(b, uint64(len(s))), s...)
}

// reader takes fields from the front of a value. The first one that does not fit sets bad, and all
// after it are zero, so that a decoder checks once, at its end.
type reader struct {
	// What was not taken yet.
	b []byte
	// A field did not fit, or the form was another one. It stays set.
	bad bool
}

// read begins a value of a form. A value of another form is bad.
func read(b []byte, form byte) reader {
	if len(b) == 0 || b[0] != form {
		return reader{bad: true}
	}
	return reader{b: b[1:]}
}

// fail ends the reading: all that follows is zero.
func (r *reader) fail() { r.b, r.bad = nil, true }

// uint takes a varint.
func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// int takes a varint with a sign.
func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// fixed takes 8 bytes, big-endian.
func (r *reader) fixed() uint64 {
	if len(r.b) < 8 {
		r.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// byte takes one byte.
func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// bytes takes n bytes. They are a part of the value, not a copy.
func (r *reader) bytes(n uint64) []byte {
	if uint64(len(r.b)) < n {
		r.fail()
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

// string takes a length and as many bytes, and copies them. id takes the 16 bytes of a task's id.
func (r *reader) string() string  { return string(r.bytes(r.uint())) }
func (r *reader) id() core.TaskID { return toID(r.bytes(16)) }
func (r *reader) u32() uint32 {
	v := r.uint()
	if v > math.MaxUint32 {
		r.fail()
		return 0
	}
	return uint32(v)
}

// session takes the 16 bytes of a session's id.
func (r *reader) session() (s core.SessionID) {
	copy(s[:], r.bytes(16))
	return s
}

// toID makes a task id of 16 bytes; missing ones are zero.
func toID(b []byte) (id core.TaskID) {
	copy(id[:], b)
	return id
}

// done reports corruption unless every byte was read and every field fitted. what names the record.
func (r *reader) done(what string) error {
	if r.bad || len(r.b) != 0 {
		return errs.Corruptf("%s record makes no sense", what)
	}
	return nil
}

// counters are those of one queue, stored as one record. created is always the sum of states plus purged.
type counters struct {
	// states has the number of tasks in each core.State, by its number; index 0 is not used.
	states [8]uint64
	// created and purged count tasks, ever.
	created, purged uint64
	// completed, failed and crashed count attempts, ever: they never fall.
	completed, failed, crashed uint64
	// bytes is the length of the payloads and results there are.
	bytes uint64
	// ended is what ended tasks take: their part of bytes, and endedExtra for each.
	ended uint64

	// lettersLost counts dead tasks of which no copy was made though the queue wants one, ever.
	lettersLost uint64

	// sweeps has the sweep of each terminal state, from completed on.
	sweeps [3]sweep
}

// sweep is up to where retention has removed the ended tasks of a queue in one state: all that
// ended before at, or at the same time with an id that is not above id. Their rows and state
// records stay until their ids are forgotten. The zero sweep has removed none.
type sweep struct {
	// Ended times up to this one are covered, as far as id says.
	at core.ShardTime
	id core.TaskID
}

// covers says whether a task that ended at a time was removed.
func (s *sweep) covers(at core.ShardTime, id core.TaskID) bool {
	if s.id.IsZero() {
		return false
	}
	return at < s.at || at == s.at && bytes.Compare(id[:], s.id[:]) <= 0
}

// sweep returns up to where tasks of a terminal state were removed.
func (c *counters) sweep(s core.State) *sweep { return &c.sweeps[s-core.Completed] }

// fields lists the numbers in the order in which they are stored. The unused state 0 comes last.
func (c *counters) fields() [15]*uint64 {
	return [...]*uint64{
		&c.states[1], &c.states[2], &c.states[3], &c.states[4], &c.states[5], &c.states[6], &c.states[7],
		&c.created, &c.purged, &c.completed, &c.failed, &c.crashed, &c.bytes, &c.ended, &c.states[0],
	}
}

// appendCounters writes the numbers, a byte that says which states have a sweep, and those sweeps.
func appendCounters(b []byte, c *counters) []byte {
	form := formCounters
	if c.lettersLost > 0 {
		form = formCountersMore
	}
	b = append(b, form)
	for _, f := range c.fields() {
		b = putUint(b, *f)
	}
	// Bit i is that of sweeps[i].
	var some byte
	for i := range c.sweeps {
		if !c.sweeps[i].id.IsZero() {
			some |= 1 << i
		}
	}
	b = append(b, some)
	for _, u := range c.sweeps {
		if !u.id.IsZero() {
			b = append(putInt(b, int64(u.at)), u.id[:]...)
		}
	}
	if form == formCountersMore {
		b = putUint(b, c.lettersLost)
	}
	return b
}

// decodeCounters reads what appendCounters wrote.
func decodeCounters(b []byte) (c counters, err error) {
	form := formCounters
	if len(b) > 0 && b[0] == formCountersMore {
		form = formCountersMore
	}
	r := read(b, form)
	for _, f := range c.fields() {
		*f = r.uint()
	}
	some := r.byte()
	for i := range c.sweeps {
		if some&(1<<i) != 0 {
			c.sweeps[i] = sweep{core.ShardTime(r.int()), r.id()}
		}
	}
	if form == formCountersMore {
		c.lettersLost = r.uint()
	}
	return c, r.done("counters")
}

// meta are the counters of the whole partition, stored as one record.
type meta struct {
	// token is the one that was issued last. It is above every token of the partition.
	token uint64
	// seq is the last place that was given in any queue of the partition.
	seq uint64
	// queues is how many queues were made so far. Numbers run from 1, and none is given again.
	queues uint32
	// grants counts grants that gave something. The next one starts at that place among its queues,
	// so that none is always served last.
	grants uint64
	// gone sums up the queues that are gone.
	gone gone
}

// gone are the counters of the queues that are gone, added up. All tasks that they created were
// purged, so created stands for both.
type gone struct{ created, completed, failed, crashed uint64 }

// appendMeta writes the counters of the partition, in the older form as long as no queue has gone.
func appendMeta(b []byte, m meta) []byte {
	form := formMeta
	if m.gone != (gone{}) {
		form = formMetaGone
	}
	b = putUint(putUint(append(b, form), m.token), m.seq)
	b = putUint(putUint(b, uint64(m.queues)), m.grants)
	if form == formMeta {
		return b
	}
	b = putUint(putUint(b, m.gone.created), m.gone.completed)
	return putUint(putUint(b, m.gone.failed), m.gone.crashed)
}

// decodeMeta reads either form.
func decodeMeta(b []byte) (m meta, err error) {
	form := formMeta
	if len(b) > 0 && b[0] == formMetaGone {
		form = formMetaGone
	}
	r := read(b, form)
	m.token, m.seq, m.queues, m.grants = r.uint(), r.uint(), r.u32(), r.uint()
	if form == formMetaGone {
		m.gone = gone{created: r.uint(), completed: r.uint(), failed: r.uint(), crashed: r.uint()}
	}
	return m, r.done("partition counters")
}

// queueRow is what is stored of a queue under its name.
type queueRow struct {
	// Number of the queue, by which its rows and its tasks name it.
	number uint32
	// With zeros where the queue leaves a field to the default.
	config core.QueueConfig
	// Zero while the queue gives out tasks.
	paused core.QueuePaused
}

// appendConfig writes a queue's number, the version of its configuration, the configuration, and whether it is paused.
// New fields need a new form.
func appendConfig(b []byte, row *queueRow) []byte {
	c, form := &row.config, formConfig
	if c.Limits != (core.QueueLimits{}) || row.paused != (core.QueuePaused{}) {
		form = formConfigMore
	}
	if c.Share != (core.QueueShare{}) {
		form = formConfigShare
	}
	b = putUint(append(b, form), uint64(row.number))
	b = putUint(b, c.Version)
	b = putInt(putInt(putInt(b, int64(c.MaxAttempts)), int64(c.MaxCrashes)), int64(c.MaxDeliveries))
	b = putInt(putInt(b, int64(c.Lease)), int64(c.MaxRun))
	b = appendRetry(b, c.Retry)
	b = putInt(putInt(b, c.MaxPayload), int64(c.Aging))
	b = putInt(putInt(putInt(b, int64(c.RetainCompleted)), int64(c.RetainCancelled)), int64(c.RetainDead))
	if form == formConfig {
		return b
	}
	l := &c.Limits
	b = putInt(putInt(putInt(putInt(b, int64(l.CancelGrace)), int64(l.DefaultTTL)), l.MaxTasks), l.MaxBytes)
	b = putInt(putInt(putInt(b, int64(l.CeilingAttempts)), int64(l.CeilingCrashes)), int64(l.CeilingDeliveries))
	b = putInt(putInt(putInt(b, int64(l.CeilingLease)), int64(l.CeilingMaxRun)), int64(l.CeilingPriority))
	p := &row.paused
	b = putString(putString(putInt(putInt(b, int64(p.Since)), int64(p.Until)), p.By), p.Reason)
	if form == formConfigShare {
		b = appendQueueShare(b, &c.Share)
	}
	return b
}

// appendQueueShare writes how a queue is shared, zeros too.
func appendQueueShare(b []byte, s *core.QueueShare) []byte {
	var flags byte
	if s.NoFairness {
		flags |= 1
	}
	if s.Strict {
		flags |= 2
	}
	limiters := s.LimiterNames()
	if len(limiters) > 0 {
		flags |= 4
	}
	b = putInt(putInt(append(b, flags), s.Concurrency), s.KeyConcurrency)
	b = appendRate(appendRate(b, s.Rate), s.KeyRate)
	b = putString(putInt(b, int64(s.MaxWorkers)), s.DeadLetter)
	if len(limiters) > 0 {
		b = putUint(b, uint64(len(limiters)))
		for _, name := range limiters {
			b = putString(b, name)
		}
	}
	return b
}

// appendRate writes a rate in full.
func appendRate(b []byte, r core.Rate) []byte {
	return putInt(putInt(putInt(b, r.Limit), int64(r.Per)), r.Burst)
}

// queueShare reads what appendQueueShare wrote.
func (r *reader) queueShare() (s core.QueueShare) {
	flags := r.byte()
	s.NoFairness, s.Strict = flags&1 != 0, flags&2 != 0
	s.Concurrency, s.KeyConcurrency = r.int(), r.int()
	s.Rate, s.KeyRate = r.rate(), r.rate()
	s.MaxWorkers, s.DeadLetter = int32(r.int()), r.string()
	if flags&4 != 0 {
		n := r.uint()
		if n == 0 || n > core.MaxLimiters {
			r.fail()
			return s
		}
		for i := range n {
			s.Limiters[i] = r.string()
		}
	}
	return s
}

// rate reads what appendRate wrote.
func (r *reader) rate() core.Rate {
	return core.Rate{Limit: r.int(), Per: core.Millis(r.int()), Burst: r.int()}
}

// decodeConfig reads each of the forms.
func decodeConfig(b []byte) (row queueRow, err error) {
	form := formConfig
	if len(b) > 0 && (b[0] == formConfigMore || b[0] == formConfigShare) {
		form = b[0]
	}
	r := read(b, form)
	c := &row.config
	row.number, c.Version = r.u32(), r.uint()
	c.MaxAttempts, c.MaxCrashes, c.MaxDeliveries = int32(r.int()), int32(r.int()), int32(r.int())
	c.Lease, c.MaxRun = core.Millis(r.int()), core.Millis(r.int())
	c.Retry = r.retry()
	c.MaxPayload, c.Aging = r.int(), core.Millis(r.int())
	c.RetainCompleted, c.RetainCancelled = core.Millis(r.int()), core.Millis(r.int())
	c.RetainDead = core.Millis(r.int())
	if form != formConfig {
		l := &c.Limits
		l.CancelGrace, l.DefaultTTL, l.MaxTasks, l.MaxBytes = core.Millis(r.int()), core.Millis(r.int()), r.int(), r.int()
		l.CeilingAttempts, l.CeilingCrashes, l.CeilingDeliveries = int32(r.int()), int32(r.int()), int32(r.int())
		l.CeilingLease, l.CeilingMaxRun, l.CeilingPriority = core.Millis(r.int()), core.Millis(r.int()), int32(r.int())
		p := &row.paused
		p.Since, p.Until, p.By, p.Reason = core.ShardTime(r.int()), core.ShardTime(r.int()), r.string(), r.string()
	}
	if form == formConfigShare {
		c.Share = r.queueShare()
	}
	return row, r.done("queue")
}

// appendCancel writes who asked for the cancel of a task, when and why. When the lease of a running task ends is in its state
// record.
func appendCancel(b []byte, c *core.CancelAsked) []byte {
	var force byte
	if c.Force {
		force = 1
	}
	return putString(putString(append(putInt(append(b, formCancel), int64(c.At)), force), c.By), c.Reason)
}

// decodeCancel reads what appendCancel wrote. Until is not in it.
func decodeCancel(b []byte) (c core.CancelAsked, err error) {
	r := read(b, formCancel)
	c.At, c.Force = core.ShardTime(r.int()), r.byte() != 0
	c.By, c.Reason = r.string(), r.string()
	return c, r.done("cancel")
}

// appendRetry writes a policy in full, zeros too. Its form is that of the records around it.
func appendRetry(b []byte, y core.Retry) []byte {
	b = putInt(append(b, byte(y.Backoff)), int64(y.Base))
	return putInt(putUint(b, uint64(y.FactorPercent)), int64(y.Max))
}

// retry takes a policy for retries.
func (r *reader) retry() core.Retry {
	return core.Retry{
		Backoff: core.Backoff(r.byte()), Base: core.Millis(r.int()),
		FactorPercent: r.u32(), Max: core.Millis(r.int()),
	}
}

// window is the record of a unique key: from the create that opened it until its end, a create with
// the same key makes no task.
type window struct {
	// task is the task that opened it, which may be gone by now.
	task core.TaskID
	// Stamp from which on the key is free again.
	until core.ShardTime
	// hash is that of what its task was created with (hashes.asked), or of the payload alone where
	// the window is stored by number.
	hash uint64
	// frees says what frees the key before its end.
	frees core.UniqueUntil
}

// appendWindow writes a window under one of its two forms. In formWindow, what frees the key makes it one of formWindowFreed.
func appendWindow(b []byte, form byte, w window) []byte {
	if w.frees != core.UniqueTTL {
		b = append(b, formWindowFreed, byte(w.frees))
	} else {
		b = append(b, form)
	}
	b = append(b, w.task[:]...)
	return putFixed(putInt(b, int64(w.until)), w.hash)
}

// decodeWindow reads a window of the form that its key tells.
func decodeWindow(b []byte, form byte) (w window, err error) {
	freed := form == formWindow && len(b) > 0 && b[0] == formWindowFreed
	if freed {
		form = formWindowFreed
	}
	r := read(b, form)
	if freed {
		w.frees = core.UniqueUntil(r.byte())
	}
	w.task, w.until, w.hash = r.id(), core.ShardTime(r.int()), r.fixed()
	return w, r.done("unique key")
}

// removed is a queue that was removed while it had rows. It is stored under the queue's number
// until the sweep has come to its end.
type removed struct {
	// The name that it had: another queue may have it by now.
	name string
	// cursor is the tail of the last key that was read of the index which is being searched for the
	// queue's tasks; nil: none was read yet.
	cursor []byte
}

// appendRemoved writes the name and the cursor; no cursor and an empty one are the same.
func appendRemoved(b []byte, d *removed) []byte {
	return putString(putString(append(b, formRemoved), d.name), string(d.cursor))
}

// decodeRemoved reads what appendRemoved wrote. The cursor is a copy.
func decodeRemoved(b []byte) (d removed, err error) {
	r := read(b, formRemoved)
	d.name = r.string()
	if cursor := r.string(); cursor != "" {
		d.cursor = []byte(cursor)
	}
	return d, r.done("removed queue")
}

// ended is what the terminal index holds of a task, so that its removal reads nothing else.
type ended struct {
	// Number of its last attempt: as many records of attempts, at most keptAttempts, are to be deleted.
	attempt uint32
	// bytes is the length of payload and result.
	bytes uint64
	// ownResult says that the result has a record of its own, and longHolder that the worker's name has.
	ownResult  bool
	longHolder bool
	// labels says that the task has labels, and cancel that there is a record of who cancelled it.
	labels bool
	cancel bool
	// effects says that there is a record of what its completion did besides.
	effects bool
	// reported says that there is a record of what its holders told of their work.
	reported bool
	// batch says that it is of a batch.
	batch bool
}

// endedExtra is what an ended task takes beyond payload and result: its records, keys and index
// row, rounded up. It counts when there are too many bytes of ended tasks; without it tasks of a
// few bytes would fill a disk.
const endedExtra = 256

// size is what the task counts for among the bytes of ended tasks.
func (e *ended) size() uint64 { return e.bytes + endedExtra }

// The flags of an ended task. They are stored.
const (
	// The result has a record of its own.
	endedResult byte = 1 << iota
	// The name of the worker has.
	endedHolder
	// The task has labels.
	endedLabels
	// There is a record of who cancelled it.
	endedCancel
	// There is a record of its effects.
	endedEffects
	// There is a record of what its holders told.
	endedReported
	// It is of a batch, whose number is in the state record.
	endedBatch
)

// appendEnded writes the row of an ended task.
func appendEnded(b []byte, e ended) []byte {
	var flags byte
	if e.ownResult {
		flags |= endedResult
	}
	if e.longHolder {
		flags |= endedHolder
	}
	if e.labels {
		flags |= endedLabels
	}
	if e.cancel {
		flags |= endedCancel
	}
	if e.effects {
		flags |= endedEffects
	}
	if e.reported {
		flags |= endedReported
	}
	if e.batch {
		flags |= endedBatch
	}
	return putUint(putUint(append(b, formTerminal, flags), uint64(e.attempt)), e.bytes)
}

// decodeEnded reads what appendEnded wrote.
func decodeEnded(b []byte) (e ended, err error) {
	r := read(b, formTerminal)
	flags := r.byte()
	e.ownResult, e.longHolder = flags&endedResult != 0, flags&endedHolder != 0
	e.labels, e.cancel, e.effects = flags&endedLabels != 0, flags&endedCancel != 0, flags&endedEffects != 0
	e.reported, e.batch = flags&endedReported != 0, flags&endedBatch != 0
	e.attempt, e.bytes = r.u32(), r.uint()
	return e, r.done("ended task")
}

// appendAttempt writes the record of an attempt, whose number is in the key.
func appendAttempt(b []byte, a *core.Attempt) []byte {
	form := formAttempt
	if a.ReadyAt != 0 {
		form = formAttemptTimes
	}
	b = append(b, form, byte(a.Outcome))
	if form == formAttemptTimes {
		retry := core.ShardTime(0)
		if a.RetryAt != 0 {
			retry = a.RetryAt - a.End
		}
		b = putUint(putInt(putInt(b, int64(a.Start-a.ReadyAt)), int64(a.LeaseUntil-a.Start)), uint64(retry))
	}
	b = putString(b, a.Worker)
	b = append(b, a.Session[:]...)
	b = putInt(putInt(b, int64(a.Start)), int64(a.End))
	b = putUint(putUint(b, a.Index), uint64(a.Token))
	return putString(putString(putString(b, a.Error.Code), a.Error.Message), a.Error.Stack)
}

// decodeAttempt reads what appendAttempt wrote. The number is in the key.
func decodeAttempt(b []byte) (a core.Attempt, err error) {
	times := len(b) > 0 && b[0] == formAttemptTimes
	form := formAttempt
	if times {
		form = formAttemptTimes
	}
	r := read(b, form)
	if a.Outcome = core.Outcome(r.byte()); !a.Outcome.Valid() {
		return a, errs.Corruptf("attempt has outcome %d", a.Outcome)
	}
	var waited, lease, retry core.ShardTime
	if times {
		waited, lease, retry = core.ShardTime(r.int()), core.ShardTime(r.int()), core.ShardTime(r.uint())
	}
	a.Worker, a.Session = r.string(), r.session()
	a.Start, a.End = core.ShardTime(r.int()), core.ShardTime(r.int())
	a.Index, a.Token = r.uint(), core.Token(r.uint())
	a.Error = core.TaskError{Code: r.string(), Message: r.string(), Stack: r.string()}
	if times {
		a.ReadyAt, a.LeaseUntil = a.Start-waited, a.Start+lease
		if retry != 0 {
			a.RetryAt = a.End + retry
		}
	}
	return a, r.done("attempt")
}

// olderAttempts is the number under which the counts of a task's attempts stand whose own records are gone. Attempts begin at 1.
const olderAttempts = 0

// outcomes counts attempts by core.Outcome; those of OutcomeNone are of unknown outcome.
type outcomes [core.Outcomes]uint64

// appendOlder writes the counts of older attempts: pairs of outcome and count, in order.
func appendOlder(b []byte, o *outcomes) []byte {
	b = append(b, formOlder)
	for i, n := range o {
		if n > 0 {
			b = putUint(append(b, byte(i)), n)
		}
	}
	return b
}

// decodeOlder reads what appendOlder wrote.
func decodeOlder(b []byte) (o outcomes, err error) {
	r := read(b, formOlder)
	for last := -1; len(r.b) > 0; {
		i := int(r.byte())
		n := r.uint()
		if i <= last || i >= len(o) || n == 0 {
			return o, errs.Corruptf("counts of older attempts make no sense")
		}
		o[i], last = n, i
	}
	return o, r.done("older attempts")
}

// appendResult writes a result with its content type; an empty type means JSON. The result is all
// that follows, without a length.
func appendResult(b []byte, kind string, result []byte) []byte {
	return append(putString(append(b, formResult), kind), result...)
}

// decodeResult reads a result record; what it returns points into b.
func decodeResult(b []byte) (kind, result []byte, err error) {
	r := read(b, formResult)
	kind = r.bytes(r.uint())
	if r.bad {
		return nil, nil, errs.Corruptf("result record makes no sense")
	}
	return kind, r.b, nil
}

// hash is the hash of contents and unique keys. It is stored, so it is never another function.
func hash(b []byte) uint64 { return xxhash.Sum64(b) }
