package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// reason says why a task waits or ended. Numbers are stored and never reused.
type reason byte

const (
	reasonNone          reason = 0
	reasonDelay         reason = 1
	reasonRetry         reason = 2
	reasonSnooze        reason = 3
	reasonCron          reason = 4 // reserved
	reasonMaxAttempts   reason = 5
	reasonMaxCrashes    reason = 6
	reasonMaxDeliveries reason = 7
	reasonFatal         reason = 8
)

var reasonNames = [...]string{
	reasonNone: "", reasonDelay: "delay", reasonRetry: "retry", reasonSnooze: "snooze", reasonCron: "cron",
	reasonMaxAttempts: "max_attempts", reasonMaxCrashes: "max_crashes", reasonMaxDeliveries: "max_deliveries",
	reasonFatal: "fatal",
}

func (r reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

// record is what changes about a task, rewritten by each transition: at most 120 bytes stored, and a small result.
type record struct {
	state      core.State
	outcome    core.Outcome // of the last delivery; none before the first and while running
	reason     reason
	priority   uint8
	hasResult  bool
	longHolder bool // the worker's name has a record of its own
	queue      uint32

	token     core.Token // last issued for the task; 0 before the first delivery
	attempt   uint32
	failures  uint32
	crashes   uint32
	snoozes   uint32
	redrives  uint32 // reserved
	readyAt   core.ShardTime
	startedAt core.ShardTime // of the last delivery

	runAt      core.ShardTime // scheduled: when it becomes ready
	wall       bool           // scheduled: runAt is what most wall clocks are to show, and no shard time
	sort, seq  uint64         // ready and running: its place in the queue
	session    core.SessionID // running and completed
	worker     string         // likewise; empty with longHolder
	lease      core.Millis    // running: what one renewal is worth
	leaseUntil core.ShardTime // running
	runEnd     core.ShardTime // running: when max_run is over; 0 = never
	endedAt    core.ShardTime // terminal
	endedIdx   uint64         // terminal
	content    uint64         // terminal: hash of what it was created with, which outlives the payload
	result     []byte         // completed: the result record when it is small, which then has no key of its own; else nil
}

const (
	recordResult byte = 1 << (4 + iota)
	recordHolder
	recordSession
	recordInline

	recordWall = recordSession // of a scheduled task, which has no session
)

// held says whether the record names the holder of the last delivery.
func (s *record) held() bool { return s.state == core.Running || s.state == core.Completed }

// placed says whether the task has a place in its queue, or will go back to it.
func (s *record) placed() bool { return s.state == core.Ready || s.state == core.Running }

func appendRecord(b []byte, s *record) []byte {
	flags := s.priority & 15
	if s.hasResult {
		flags |= recordResult
	}
	if s.longHolder {
		flags |= recordHolder
	}
	if s.result != nil {
		flags |= recordInline
	}
	if s.held() && s.session != (core.SessionID{}) {
		flags |= recordSession
	}
	if s.state == core.Scheduled && s.wall {
		flags |= recordWall
	}
	b = append(b, formTask, byte(s.state)|byte(s.outcome)<<4, byte(s.reason), flags)
	b = putUint(b, uint64(s.queue))
	b = putUint(b, uint64(s.token))
	b = putUint(putUint(b, uint64(s.attempt)), uint64(s.failures))
	b = putUint(putUint(putUint(b, uint64(s.crashes)), uint64(s.snoozes)), uint64(s.redrives))
	b = putInt(b, int64(s.readyAt))
	if s.attempt > 0 {
		b = putInt(b, int64(s.startedAt-s.readyAt))
	}
	if s.state == core.Scheduled {
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
	}
	if s.state.Terminal() {
		b = putFixed(putUint(putInt(b, int64(s.endedAt-s.readyAt)), s.endedIdx), s.content)
	}
	return append(b, s.result...)
}

func decodeRecord(b []byte) (s record, err error) {
	r := read(b, formTask)
	so := r.byte()
	s.state, s.outcome = core.State(so&15), core.Outcome(so>>4)
	s.reason = reason(r.byte())
	flags := r.byte()
	s.priority = flags & 15
	s.hasResult, s.longHolder = flags&recordResult != 0, flags&recordHolder != 0
	s.queue, s.token = r.u32(), core.Token(r.uint())
	s.attempt, s.failures = r.u32(), r.u32()
	s.crashes, s.snoozes, s.redrives = r.u32(), r.u32(), r.u32()
	s.readyAt = core.ShardTime(r.int())
	if s.attempt > 0 {
		s.startedAt = s.readyAt + core.ShardTime(r.int())
	}
	if s.state == core.Scheduled {
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
	}
	if s.state.Terminal() {
		s.endedAt, s.endedIdx, s.content = s.readyAt+core.ShardTime(r.int()), r.uint(), r.fixed()
	}
	if s.state < core.Blocked || s.state > core.Cancelled {
		return s, errs.Corruptf("task record has state %d", s.state)
	}
	if flags&recordInline != 0 && !r.bad {
		s.result, r.b = r.b, nil
		if s.state != core.Completed || !s.hasResult {
			return s, errs.Corruptf("task record has a result, and state %d", s.state)
		}
	}
	return s, r.done("task")
}

// tombstone is what is kept of a task that was deleted, or not kept at all, soon after its end, so that a repeated
// create or settle is known for what it is. A task that retention removed keeps its record for that.
type tombstone struct {
	state   core.State
	outcome core.Outcome
	token   core.Token
	content uint64 // hash of what it was created with
	until   core.ShardTime
}

func appendTombstone(b []byte, t tombstone) []byte {
	b = append(b, formTombstone, byte(t.state)|byte(t.outcome)<<4)
	return putInt(putFixed(putUint(b, uint64(t.token)), t.content), int64(t.until))
}

func decodeTombstone(b []byte) (t tombstone, err error) {
	r := read(b, formTombstone)
	so := r.byte()
	t.state, t.outcome = core.State(so&15), core.Outcome(so>>4)
	t.token, t.content, t.until = core.Token(r.uint()), r.fixed(), core.ShardTime(r.int())
	return t, r.done("removed task")
}

func isTombstone(b []byte) bool { return len(b) > 0 && b[0] == formTombstone }
