package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// reason says why a task waits or ended. Numbers are stored: none is given another meaning.
type reason byte

const (
	// Nothing holds it back, or it was completed or cancelled.
	reasonNone reason = 0
	// It was created with a delay or for a time.
	reasonDelay reason = 1
	// It failed, and waits for the next attempt.
	reasonRetry reason = 2
	// Its worker gave it back until a time.
	reasonSnooze reason = 3
	// A cron made it, and it waits for its part of the jitter.
	reasonCron reason = 4
	// Too many attempts failed, too many leases expired, or it was given out too often.
	reasonMaxAttempts   reason = 5
	reasonMaxCrashes    reason = 6
	reasonMaxDeliveries reason = 7
	// A worker reported that no retry can help.
	reasonFatal reason = 8
	// Its expiry came before its first delivery.
	reasonExpired reason = 9
	// A task that it waited for was not completed.
	reasonDependency reason = 10
)

// reasonNames are the names that clients see.
var reasonNames = [...]string{
	reasonNone: "", reasonDelay: "delay", reasonRetry: "retry", reasonSnooze: "snooze", reasonCron: "cron",
	reasonMaxAttempts: "max_attempts", reasonMaxCrashes: "max_crashes", reasonMaxDeliveries: "max_deliveries",
	reasonFatal: "fatal", reasonExpired: "expired", reasonDependency: "dependency",
}

// String returns the name that clients see; "unknown" for a number of a newer build.
func (r reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

// record is what changes about a task, rewritten by each transition. It takes at most 120 bytes stored, and a
// small result. Which fields are stored depends on the state; the others are zero after a read.
type record struct {
	// The state, which says what else is stored.
	state core.State
	// outcome is that of the last delivery; none before the first one and while running.
	outcome core.Outcome
	// Why it waits or ended.
	reason reason
	// From 0 to 9.
	priority uint8
	// The task has a result, in the record or under a key of its own.
	hasResult bool
	// longHolder says that the worker's name has a record of its own.
	longHolder bool
	// queue is the number of its queue.
	queue uint32
	// lane is the number of the lane of its key; 0: the task has no key.
	lane uint64
	// cost is what it weighs in shares and rates; 0: 1.
	cost uint32
	// frees says that its start, or its end, is to free the unique key that it was created under.
	frees bool
	// dependents is how many tasks wait for it: each has a row, whose place in the sequence of the partition is since or later. Rows with
	// earlier places are of a task that had the same id before.
	dependents uint32
	//
	since uint64
	// only is the row of the one task that waits for it. Tasks that have ended, and those for which several wait, have none.
	only onlyDependent
	// pending is how many tasks a blocked one waits for.
	pending uint32
	// batch is the number of the batch that it was added to; 0: none.
	batch uint64

	// token is the one that was issued last for the task; 0 before the first delivery.
	token core.Token
	// attempt counts deliveries; failures, crashes and snoozes count how those since the last redrive ended.
	attempt  uint32
	failures uint32
	crashes  uint32
	snoozes  uint32
	// redrives counts redrives, and base is what attempt was at the last one: deliveries are limited from there on.
	redrives uint32
	//
	base uint32
	// When it became ready last. The last delivery and the end are stored as differences to it.
	readyAt core.ShardTime
	// startedAt is the start of the last delivery.
	startedAt core.ShardTime

	// runAt is, for a scheduled task, when it becomes ready; for a blocked one, before when it does not (0: at once).
	runAt core.ShardTime
	// wall says that runAt is what most wall clocks are to show then, and not a shard time.
	wall bool
	// sort and seq are the place in the queue, of ready and running tasks: a released task goes back to it.
	sort, seq uint64
	// session and worker hold the task, or completed it. worker is empty with longHolder.
	session core.SessionID
	//
	worker string
	// lease is what one renewal is worth, leaseUntil the deadline, and runEnd when max_run is over
	// (0: never), all of a running task.
	lease core.Millis
	//
	leaseUntil core.ShardTime
	//
	runEnd core.ShardTime
	// cancelUntil is, for a running task whose cancel was asked for, when its lease ends at the latest; 0: it was not.
	cancelUntil core.ShardTime
	// expiresAt is, for a task that waits and was never delivered, the wall time at which it is dead; 0: it does not expire.
	expiresAt core.ShardTime
	// reported says that its holders told of their work: there is a record of that.
	reported bool
	// hasCancel says that a cancelled task has a record of who cancelled it.
	hasCancel bool
	// endedAt and endedIdx are the stamp and the log index of the end, of an ended task.
	endedAt core.ShardTime
	//
	endedIdx uint64
	// content is the hash of what an ended task was created with. It outlives the payload.
	content uint64
	// result is the result record of a completed task when it is small; it then has no key of its
	// own. nil: there is none, or it is not small.
	result []byte
}

// The flags of a record, above four bits of priority. They are stored. Flags that no state has both of share a bit: a session and a
// wall time; a result in the record of a completed task, the expiry of one that waits, and the cancel of one that runs or is
// cancelled.
const (
	// There is a result, in the record or under a key of its own.
	recordResult byte = 1 << (4 + iota)
	// The name of the worker has a record of its own.
	recordHolder
	// The holder is a session, whose id follows.
	recordSession
	// The result record is the rest of the record.
	recordInline

	// The due time of a scheduled or blocked task is a wall time.
	recordWall = recordSession
	// A task that waits has an expiry.
	recordExpiry = recordInline
	// A running task has the end of its cancel's grace, or a cancelled one a record of who cancelled it.
	recordCancel = recordInline
)

// The flags of what a record of formTaskShare has besides, in a byte of their own. They are stored.
const (
	// The number of a lane.
	shareLane byte = 1 << 0
	// How many tasks wait for it, and since which place.
	shareDependents byte = 1 << 1
	// How many tasks it waits for: it is blocked.
	sharePending byte = 1 << 2
	// The start of the task, or its end, frees its unique key. Nothing of it follows.
	shareFrees byte = 1 << 3
	// What the task costs, which is not 1.
	shareCost byte = 1 << 4
	// The number of its batch.
	shareBatch byte = 1 << 5
	// The one task that waits for it.
	shareOnly byte = 1 << 7
)

// share has the flags of what only formTaskShare can say.
func (s *record) share() (f byte) {
	if s.lane != 0 {
		f |= shareLane
	}
	if s.frees {
		f |= shareFrees
	}
	if s.dependents != 0 {
		f |= shareDependents
	}
	if s.state == core.Blocked {
		f |= sharePending
	}
	if s.cost > 1 {
		f |= shareCost
	}
	if s.batch != 0 {
		f |= shareBatch
	}
	if !s.only.isZero() {
		f |= shareOnly
	}
	return f
}

// recordReported is the bit between those of the state and those of the outcome: there is a record of what the holders told.
const recordReported byte = 1 << 3

// waiting says whether the task was not given out, or was given back.
func (s *record) waiting() bool { return s.state >= core.Blocked && s.state <= core.Ready }

// deliveries counts the deliveries since the last redrive.
func (s *record) deliveries() uint32 { return s.attempt - s.base }

// held says whether the record names the holder of the last delivery.
func (s *record) held() bool { return s.state == core.Running || s.state == core.Completed }

// timed says whether the record has a time at which the task becomes ready, or before which it does not.
func (s *record) timed() bool { return s.state == core.Scheduled || s.state == core.Blocked }

// placed says whether the task has a place in its queue, or will go back to it.
func (s *record) placed() bool { return s.state == core.Ready || s.state == core.Running }

// appendHead writes the form, what each record begins with, and the queue, with what only formTaskShare can say.
func (s *record) appendHead(b []byte, so, flags byte) []byte {
	share := s.share()
	if share == 0 {
		return putUint(append(b, formTask, so, byte(s.reason), flags), uint64(s.queue))
	}
	b = putUint(append(b, formTaskShare, so, byte(s.reason), flags, share), uint64(s.queue))
	if share&shareLane != 0 {
		b = putUint(b, s.lane)
	}
	if share&shareDependents != 0 {
		b = putUint(putUint(b, uint64(s.dependents)), s.since)
	}
	if share&sharePending != 0 {
		b = putUint(b, uint64(s.pending))
	}
	if share&shareCost != 0 {
		b = putUint(b, uint64(s.cost))
	}
	if share&shareBatch != 0 {
		b = putUint(b, s.batch)
	}
	if share&shareOnly != 0 {
		b = append(append(b, s.only.waits[:]...), s.only.how)
	}
	return b
}

// appendRecord writes the fields that the state has. Times are stored as differences to times
// before them, which are short.
func appendRecord(b []byte, s *record) []byte {
	flags := s.priority & 15
	if s.hasResult {
		flags |= recordResult
	}
	if s.longHolder {
		flags |= recordHolder
	}
	switch {
	case s.result != nil:
		flags |= recordInline
	case s.waiting() && s.expiresAt != 0:
		flags |= recordExpiry
	case s.state == core.Running && s.cancelUntil != 0, s.state == core.Cancelled && s.hasCancel:
		flags |= recordCancel
	}
	if s.held() && s.session != (core.SessionID{}) {
		flags |= recordSession
	}
	if s.timed() && s.wall {
		flags |= recordWall
	}
	so := byte(s.state) | byte(s.outcome)<<4
	if s.reported {
		so |= recordReported
	}
	b = s.appendHead(b, so, flags)
	b = putUint(b, uint64(s.token))
	b = putUint(putUint(b, uint64(s.attempt)), uint64(s.failures))
	b = putUint(putUint(putUint(b, uint64(s.crashes)), uint64(s.snoozes)), uint64(s.redrives))
	if s.redrives > 0 {
		b = putUint(b, uint64(s.base))
	}
	b = putInt(b, int64(s.readyAt))
	if s.attempt > 0 {
		b = putInt(b, int64(s.startedAt-s.readyAt))
	}
	if s.timed() {
		b = putInt(b, int64(s.runAt))
	}
	if s.placed() {
		b = putUint(putFixed(b, s.sort), s.seq)
	}
	if s.held() {
		if flags&recordSession != 0 {
			b = append(b, s.session[:]...)
		}
		if s.longHolder {
			b = putUint(b, 0)
		} else {
			b = putString(b, s.worker)
		}
	}
	if s.state == core.Running {
		b = putUint(b, uint64(s.lease))
		b = putInt(b, int64(s.leaseUntil-s.startedAt))
		end := core.ShardTime(0)
		if s.runEnd != 0 {
			end = s.runEnd - s.startedAt
		}
		b = putInt(b, int64(end))
		if flags&recordCancel != 0 {
			b = putInt(b, int64(s.cancelUntil-s.startedAt))
		}
	}
	if s.waiting() && flags&recordExpiry != 0 {
		b = putInt(b, int64(s.expiresAt))
	}
	if s.state.Terminal() {
		b = putFixed(putUint(putInt(b, int64(s.endedAt-s.readyAt)), s.endedIdx), s.content)
	}
	return append(b, s.result...)
}

// readShare reads what only formTaskShare can say, by its flags.
func (s *record) readShare(r *reader, share byte) {
	s.frees = share&shareFrees != 0
	if share&shareLane != 0 {
		s.lane = r.uint()
	}
	if share&shareDependents != 0 {
		s.dependents, s.since = r.u32(), r.uint()
	}
	if share&sharePending != 0 {
		s.pending = r.u32()
	}
	if share&shareCost != 0 {
		s.cost = r.u32()
	}
	if share&shareBatch != 0 {
		s.batch = r.uint()
	}
	if share&shareOnly != 0 {
		s.only.waits, s.only.how = r.id(), r.byte()
	}
}

// decodeRecord reads what appendRecord wrote, in the same order. What the state does not have stays zero.
func decodeRecord(b []byte) (s record, err error) {
	form := formTask
	if len(b) > 0 && b[0] == formTaskShare {
		form = formTaskShare
	}
	r := read(b, form)
	so := r.byte()
	s.state, s.outcome, s.reported = core.State(so&7), core.Outcome(so>>4), so&recordReported != 0
	s.reason = reason(r.byte())
	flags := r.byte()
	s.priority = flags & 15
	s.hasResult, s.longHolder = flags&recordResult != 0, flags&recordHolder != 0
	var share byte
	if form == formTaskShare {
		share = r.byte()
	}
	s.queue = r.u32()
	s.readShare(&r, share)
	s.token = core.Token(r.uint())
	s.attempt, s.failures = r.u32(), r.u32()
	s.crashes, s.snoozes, s.redrives = r.u32(), r.u32(), r.u32()
	if s.redrives > 0 {
		s.base = r.u32()
	}
	s.readyAt = core.ShardTime(r.int())
	if s.attempt > 0 {
		s.startedAt = s.readyAt + core.ShardTime(r.int())
	}
	if s.timed() {
		s.runAt, s.wall = core.ShardTime(r.int()), flags&recordWall != 0
	}
	if s.placed() {
		s.sort, s.seq = r.fixed(), r.uint()
	}
	if s.held() {
		if flags&recordSession != 0 {
			s.session = r.session()
		}
		s.worker = r.string()
	}
	if s.state == core.Running {
		s.lease = core.Millis(r.uint())
		s.leaseUntil = s.startedAt + core.ShardTime(r.int())
		if end := core.ShardTime(r.int()); end != 0 {
			s.runEnd = s.startedAt + end
		}
		if flags&recordCancel != 0 {
			s.cancelUntil = s.startedAt + core.ShardTime(r.int())
		}
	}
	if s.waiting() && flags&recordExpiry != 0 {
		s.expiresAt = core.ShardTime(r.int())
	}
	s.hasCancel = s.state == core.Cancelled && flags&recordCancel != 0
	if s.state.Terminal() {
		s.endedAt, s.endedIdx, s.content = s.readyAt+core.ShardTime(r.int()), r.uint(), r.fixed()
	}
	if s.state < core.Blocked || s.state > core.Cancelled {
		return s, errs.Corruptf("task record has state %d", s.state)
	}
	if s.state == core.Blocked != (share&sharePending != 0) {
		return s, errs.Corruptf("task record has state %d, and says how many tasks it waits for: %v", s.state, share&sharePending != 0)
	}
	if flags&recordInline != 0 && !r.bad {
		switch {
		case s.state == core.Completed && s.hasResult:
			s.result, r.b = r.b, nil
		case s.state == core.Completed || s.state == core.Dead:
			return s, errs.Corruptf("task record has a result, and state %d", s.state)
		}
	}
	return s, r.done("task")
}

// tombstone is what is kept for a while of a task that was deleted, or that its queue does not
// keep, so that a repeated create or settle is known for what it is. A task that retention removed
// keeps its record for that.
type tombstone struct {
	// The state that it ended in, and how its last delivery ended.
	state   core.State
	outcome core.Outcome
	// The token that a repeated settle must have.
	token core.Token
	// content is the hash of what it was created with.
	content uint64
	// until is when it is deleted, by a timer.
	until core.ShardTime
}

// appendTombstone writes a tombstone, with its own form under the key of a state record.
func appendTombstone(b []byte, t tombstone) []byte {
	b = append(b, formTombstone, byte(t.state)|byte(t.outcome)<<4)
	return putInt(putFixed(putUint(b, uint64(t.token)), t.content), int64(t.until))
}

// decodeTombstone reads what appendTombstone wrote.
func decodeTombstone(b []byte) (t tombstone, err error) {
	r := read(b, formTombstone)
	so := r.byte()
	t.state, t.outcome = core.State(so&15), core.Outcome(so>>4)
	t.token, t.content, t.until = core.Token(r.uint()), r.fixed(), core.ShardTime(r.int())
	return t, r.done("removed task")
}

// replaced is what is kept of a create that replaced what an earlier one had asked for, under the key that a state record of its id
// would have: the create may be repeated, and is then answered as it was.
type replaced struct {
	// The task of the earlier create.
	task core.TaskID
	// content is the hash of what the create asked for.
	content uint64
	// until is when it is deleted, by the timer of a tombstone.
	until core.ShardTime
}

// appendReplaced writes what is kept of such a create.
func appendReplaced(b []byte, p replaced) []byte {
	b = append(append(b, formReplaced), p.task[:]...)
	return putInt(putFixed(b, p.content), int64(p.until))
}

// decodeReplaced reads what appendReplaced wrote.
func decodeReplaced(b []byte) (p replaced, err error) {
	r := read(b, formReplaced)
	p.task, p.content, p.until = r.id(), r.fixed(), core.ShardTime(r.int())
	return p, r.done("create that replaced another")
}

// isReplaced reports whether a value under the key of a state record is that of a create which replaced another.
func isReplaced(b []byte) bool { return len(b) > 0 && b[0] == formReplaced }

// isTombstone reports whether a value under the key of a state record is a tombstone.
func isTombstone(b []byte) bool { return len(b) > 0 && b[0] == formTombstone }

// isNoTask reports whether a value under the key of a state record is not that of a task: a tombstone, or a create that replaced
// another.
func isNoTask(b []byte) bool { return isTombstone(b) || isReplaced(b) }
