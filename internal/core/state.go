package core

import "fmt"

// State is where a task stands. Numbers are stored and on the wire; they are never reused.
type State uint8

// The states of a task. Blocked waits for other tasks, Scheduled for a time, Ready for a worker; the last three are
// terminal.
const (
	// Waits for other tasks.
	Blocked State = 1
	// Waits for its run_at, for the delay of a retry, or for the end of a snooze.
	Scheduled State = 2
	// Waits for a worker, in the order of its queue.
	Ready State = 3
	// One attempt holds a lease of it.
	Running State = 4
	// An attempt completed it.
	Completed State = 5
	// It ran out of attempts, crashes or deliveries, failed for good, or expired before it started.
	Dead State = 6
	// It was cancelled.
	Cancelled State = 7
)

// stateNames are the names by number. Number 0 has none: no task is in it.
var stateNames = [...]string{
	Blocked: "blocked", Scheduled: "scheduled", Ready: "ready", Running: "running",
	Completed: "completed", Dead: "dead", Cancelled: "cancelled",
}

// States lists every state in number order.
func States() []State {
	return []State{Blocked, Scheduled, Ready, Running, Completed, Dead, Cancelled}
}

// String returns the state in lower case.
func (s State) String() string {
	if s >= Blocked && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state_%d", uint8(s))
}

// ParseState reads what String prints.
func ParseState(name string) (State, bool) {
	for _, s := range States() {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// Terminal reports whether a task in s has ended.
func (s State) Terminal() bool { return s >= Completed }

// Outcome is how one attempt ended.
type Outcome uint8

// The outcomes of an attempt. Numbers are stored and on the wire.
const (
	OutcomeNone      Outcome = 0 // still running
	OutcomeCompleted Outcome = 1
	OutcomeFailed    Outcome = 2
	OutcomeTimeout   Outcome = 3 // max_run was over
	OutcomeCrashed   Outcome = 4 // its lease expired
	OutcomeSnoozed   Outcome = 5
	OutcomeReleased  Outcome = 6 // given back, or never delivered
	OutcomeCancelled Outcome = 7

	// Outcomes is how many there are.
	Outcomes = 8
)

// Valid reports whether o is an outcome that this source knows.
func (o Outcome) Valid() bool { return o < Outcomes }

// outcomeNames are the names by number.
var outcomeNames = [...]string{
	OutcomeNone: "none", OutcomeCompleted: "completed", OutcomeFailed: "failed", OutcomeTimeout: "timeout",
	OutcomeCrashed: "crashed", OutcomeSnoozed: "snoozed", OutcomeReleased: "released", OutcomeCancelled: "cancelled",
}

// String returns the outcome in lower case.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome_%d", uint8(o))
}

// Backoff is the shape of a retry policy. Numbers are stored and on the wire.
type Backoff uint8

// The shapes. Delays grow with the number n of the failure, from 1: fixed = base; linear = base*n; the others
// base*factor^(n-1); all end at max. Full jitter draws from 0 to that, equal jitter from half of it to all of it.
const (
	BackoffUnset       Backoff = 0 // the queue's, or the default
	BackoffFixed       Backoff = 1
	BackoffLinear      Backoff = 2
	BackoffExponential Backoff = 3
	BackoffFullJitter  Backoff = 4 // the default
	BackoffEqualJitter Backoff = 5
)

// Retry says how long a failed task waits for its next attempt. A zero field means the queue's value, or the default:
// full jitter, base 5 s, factor 2, max 15 min. FactorPercent is the factor times 100, because no float decides.
type Retry struct {
	Backoff Backoff
	// Delay after the first failure, before jitter.
	Base          Millis
	FactorPercent uint32 // 100 to 10000
	// No delay is longer than this.
	Max Millis
}

// IsZero reports whether r leaves everything to the queue.
func (r Retry) IsZero() bool { return r == Retry{} }

// TaskError is what a failed attempt reports: code at most 64 B, message 4 KiB, stack 16 KiB; longer is cut at a rune.
type TaskError struct {
	// What kind of error it is, for programs: at most 64 bytes.
	Code string
	// What happened, for people: at most 4 KiB.
	Message string
	// Where it happened: at most 16 KiB.
	Stack string
}

// Header is one of a task's headers.
type Header struct{ Name, Value string }

// Attempt is one delivery of a task.
type Attempt struct {
	// From 1, and one more with each delivery of the task.
	Number uint32
	// The name that the worker gave itself.
	Worker string
	// The session of the worker; zero for one without a session.
	Session SessionID
	Start   ShardTime
	End     ShardTime // 0 while running
	Outcome Outcome
	Error   TaskError
	Index   uint64 // of the entry that ended it
	// Fences the attempt: only who names this token settles it.
	Token Token
	// Fingerprint is that of its error; 0: it has none.
	Fingerprint Fingerprint
	// When the task was ready for it, when its lease would have ended at the last renewal, and when the task was to run next. 0: it is
	// not known, or the task did not wait for a time.
	ReadyAt, LeaseUntil, RetryAt ShardTime
}

// AttemptList is what is known of the attempts of a task.
type AttemptList struct {
	// Attempts are the last ones, oldest first.
	Attempts []Attempt
	// Older counts those before them by outcome, in the order of outcomes. OutcomeNone: it is not known how they ended.
	Older []OutcomeCount
}

// OutcomeCount is how many attempts ended in one way.
type OutcomeCount struct {
	Outcome Outcome
	Count   uint64
}

// Task is the whole of a task as a reader sees it.
type Task struct {
	ID    TaskID
	Queue string
	Kind  string
	State State
	// Why it waits or ended: delay, retry, snooze, cron; max_attempts, max_crashes, max_deliveries, fatal, expired, dependency.
	Reason  string
	Payload []byte
	// PayloadSize is how long the whole payload is, of a task of a list that has its first bytes.
	PayloadSize int

	ContentType string
	Headers     []Header
	// From 0 to 9.
	Priority uint8
	RunAt    ShardTime // when a scheduled task becomes ready; 0 otherwise
	// RunAt is what most wall clocks are to show, and not shard time.
	RunAtWall bool
	Unique    string   // the unique key it was created under; empty without
	Tag       string   // what places it; empty without
	Key       string   // the line of its queue that it waits in; empty without
	Cost      uint32   // what it weighs in shares, rates and limiters; 0 = 1
	Limiters  []string // that it names itself, sorted

	MaxAttempts   int32 // in force
	MaxCrashes    int32
	MaxDeliveries int32 // 0 = off
	Lease         Millis
	MaxRun        Millis // 0 = none

	Attempt uint32 // number of the last delivery; 0 before the first
	// How many attempts since the last redrive failed, lost their lease, or ended with a snooze.
	Failures uint32
	Crashes  uint32
	Snoozes  uint32
	// How often it was made ready after it had ended.
	Redrives  uint32
	CreatedAt ShardTime
	// When it last became ready.
	ReadyAt   ShardTime
	StartedAt ShardTime // of the last attempt
	// 0 until it has ended.
	FinishedAt ShardTime
	Creator    string // principal
	CreatedIdx uint64 // index of the entry that created it
	EndedIdx   uint64 // index of the entry that ended it; 0 before

	// The name of the worker that has it, or had it last.
	Worker     string
	LeaseUntil ShardTime // 0 unless running

	Result     []byte
	ResultType string
	// Tells an empty result from none.
	HasResult bool
	Error     TaskError // of the last failed attempt
	// Fingerprint is that of the last error, also where a lease was lost or the task expired; 0: there was none since the last redrive.
	Fingerprint Fingerprint

	Labels []Label // sorted by name
	// Most wall clocks show it when the task is dead unless it has started; 0 = never, or it has started.
	ExpiresAt ShardTime
	Cancel    CancelAsked // of a running or cancelled task
	Progress  Progress    // of the last attempt, where it told any

	// After are the tasks that it was made to wait for, and OnDepFailure is what follows when one of them is not completed.
	After        []AfterState
	OnDepFailure DepFailure
	Pending      uint32 // how many of After a blocked task waits for
	Dependents   uint32 // how many blocked tasks wait for this one

	Batch TaskID // that it was added to; zero: none
}

// AfterState is how a task stands that another one was made to wait for.
type AfterState struct {
	After
	// Waits says that the other one still waits for it.
	Waits bool
	// State is 0 where it is not there any more, and in lists.
	State State
}

// ContentSize is a number of bytes of a task's payload and of its result: how long they are, or how much of each is asked for.
type ContentSize struct{ Payload, Result int }

// QueueConfig rules a queue. A zero field means the default; Version counts changes, 0 for a queue that was never
// configured.
type QueueConfig struct {
	Version       uint64
	MaxAttempts   int32  // 5; 1 to 1000
	MaxCrashes    int32  // 10; 1 to 1000
	MaxDeliveries int32  // 1000; -1 = off; 1 to 1000000
	Lease         Millis // 60 s; 1 s to 24 h
	MaxRun        Millis // none
	Retry         Retry
	// In bytes; 1 MiB, which is also the most.
	MaxPayload int64
	Aging      Millis // 60 s; -1 = strict priority

	RetainCompleted Millis // 24 h; -1 = remove at the end
	RetainCancelled Millis // 24 h; -1
	RetainDead      Millis // 14 d; -1

	Limits QueueLimits // from FormatOperate on
	Share  QueueShare  // from FormatShare on
}

// Rate bounds how much begins in a time: tasks that cost Limit together in each Per, and Burst at once. The zero value bounds
// nothing.
type Rate struct {
	Limit int64  // 1 to MaxRate
	Per   Millis // 1 ms to 24 h
	Burst int64  // 0 = Limit; 1 to MaxRate
}

// Bounds of a queue's share.
const (
	MaxRate        = 1_000_000_000
	MaxRatePer     = 24 * 3_600_000
	MaxConcurrency = 1_000_000_000
	MaxWeight      = 1000
)

// KeySettings are what was set for one key of a queue. A zero field leaves it to the queue.
type KeySettings struct {
	Weight      uint32 // its share among the keys that have tasks ready; 0 = 1; at most MaxWeight
	Concurrency int64  // how many of its tasks run at once
	Rate        Rate   // how much of it begins in a time
}

// QueueShare says how a queue is shared between the keys of its tasks, and how much of it runs. The zero value: keys are served in
// turn, by their weights, and nothing is limited.
type QueueShare struct {
	NoFairness bool // the first of all tasks goes first, whatever its key
	Strict     bool // one task of a key runs at a time, and one that waits to be tried again holds up its key

	// How many tasks of the queue, and of each key, run at once; 0 = no bound.
	Concurrency    int64
	KeyConcurrency int64
	// How much of the queue, and of each key, begins in a time.
	Rate    Rate
	KeyRate Rate

	MaxWorkers int32  // how many workers have tasks of the queue at once; 0 = no bound
	DeadLetter string // the queue that a copy of a task that dies is made in; empty: none

	// Limiters are the names of limiters that each task of the queue needs room in besides its own, sorted; empty ones come last.
	Limiters [MaxLimiters]string
}

// QueueLimits are the bounds of a queue that operators set. A zero field means the default: it bounds nothing where no other
// default is named. A create beyond one of the ceilings is refused, and so is one beyond MaxTasks or MaxBytes.
type QueueLimits struct {
	// 30 s: for how long the holder of a cancelled task may go on; -1 = not at all; at most 24 h.
	CancelGrace Millis
	DefaultTTL  Millis // a task that names no expiry expires this long after its create
	MaxTasks    int64  // tasks that have not ended, per partition
	MaxBytes    int64  // payloads and results of all its tasks, per partition

	// The ceilings bound what a task asks for itself.
	CeilingAttempts   int32
	CeilingCrashes    int32
	CeilingDeliveries int32 // also refuses a task that turns its limit off
	CeilingLease      Millis
	CeilingMaxRun     Millis // also refuses a task that asks for none where the queue has one
	CeilingPriority   int32  // 1 to 9
}

// QueuePaused says since when, until when and why a queue gives out no tasks. The zero value: it does.
type QueuePaused struct {
	Since ShardTime // 0: it is not paused
	// Most wall clocks show it when the queue goes on by itself; 0 = when it is resumed.
	Until ShardTime
	By    string // principal
	// At most MaxReason bytes.
	Reason string
}

// CancelAsked says that the cancel of a task was asked for. The zero value: it was not.
type CancelAsked struct {
	At ShardTime // 0: it was not
	By string    // principal
	// At most MaxReason bytes.
	Reason string
	// The lease ended at once; its holder was not given time to stop.
	Force bool
	Until ShardTime // of a running task: when its lease ends at the latest; 0 otherwise
}

// NamespaceConfig rules one namespace. Version counts changes.
type NamespaceConfig struct {
	Version uint64
	// Queues and keyspaces must be made before use.
	NoAutoCreate bool
	RetainBytes  int64 // of terminal tasks, oldest removed first; 0 = 10 GiB
	CreateOnPush bool  // the first push to a repository makes it, by who may make one
	KeyBytes     int64 // of all keyspaces on disk, in all partitions together; 0 = no bound
	KeyRate      int64 // puts per second in all keyspaces, of all nodes together; 0 = no bound
	KeyByteRate  int64 // bytes of keys and values put per second, judged likewise
}

// QueueStats are a queue's counters, kept in Apply: always Created = sum of States + Purged.
type QueueStats struct {
	Queue  string
	States [8]uint64 // tasks now in each State, by its number
	// Tasks created ever.
	Created   uint64
	Purged    uint64 // removed after they ended
	Completed uint64 // ever; the next two likewise
	Failed    uint64 // failing attempts
	Crashed   uint64 // attempts whose lease expired
	Bytes     uint64 // payloads and results of the tasks there are
	// LettersLost counts the dead tasks, ever, of which there was no room for a copy in the queue of dead letters.
	LettersLost uint64
	// When the task became ready that has been ready longest; 0 when none is ready.
	OldestReady ShardTime
	Config      QueueConfig
	Paused      QueuePaused
}
