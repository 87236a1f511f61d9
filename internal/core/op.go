package core

// Op is one change to one service: one of the pointer types of this package.
type Op interface{ Kind() OpKind }

// Unique asks that at most one task of a queue exists under a key while its window lasts.
type Unique struct {
	Key     string // 1 to 256 B
	TTL     Millis // 0 = 24 h; at most 30 d
	Reject  bool   // refuse a second create; otherwise it is answered with the first task
	Request bool   // the key names a request (Idempotency-Key): such keys are a space of their own, from FormatQueues on

	// The rest is from FormatShare on.

	Until   UniqueUntil // what frees the key
	Replace bool        // a second create replaces payload and time of a task that has not started
}

// UniqueUntil says what frees a unique key. Numbers are stored.
type UniqueUntil uint8

// What frees a unique key.
const (
	UniqueTTL      UniqueUntil = 0 // its window ends
	UniqueStart    UniqueUntil = 1 // its task starts, or ends before that
	UniqueTerminal UniqueUntil = 2 // its task ends
)

// After is one task that another one waits for.
type After struct {
	Task     TaskID
	Terminal bool // its end is enough, however it ended; otherwise it must complete
}

// DepFailure says what becomes of a task when one that it waits for ends without being completed. Numbers are stored.
type DepFailure uint8

// What becomes of such a task.
const (
	DepHold   DepFailure = 0 // it waits on: a redrive of the other may complete it
	DepCancel DepFailure = 1 // it is cancelled
	DepRun    DepFailure = 2 // it no longer waits for the other
)

// TaskCreate makes a task, ready or scheduled. Same id and same content again is a replay.
type TaskCreate struct {
	ID            TaskID
	Queue         string
	TaskKind      string // empty = Queue
	Priority      uint8  // 0 to 9
	RunAt         ShardTime
	Delay         Millis // from the entry's stamp; RunAt wins
	MaxAttempts   int32  // 0 = the queue's, here and below
	MaxCrashes    int32
	MaxDeliveries int32 // -1 = off
	Lease         Millis
	MaxRun        Millis
	Retry         Retry
	Unique        Unique // without a key: none
	ContentType   string // empty = application/json
	Headers       []Header
	Payload       []byte
	Tag           string // at most 128 B: tasks with one tag share a partition

	// The rest is from FormatOperate on.

	// ExpiresAt is when most wall clocks show that the task is dead unless it has started; 0 = the queue's default, or never.
	ExpiresAt ShardTime
	// Labels are sorted by name.
	Labels []Label

	// The rest is from FormatShare on.

	// Key is the lane of the queue that the task waits in; at most MaxKey bytes.
	Key string
	// Cost is what the task weighs in shares and rates; 0 = 1; at most MaxCost.
	Cost uint32
	// Limiters are the names of limiters that the task needs room in, sorted; at most MaxLimiters.
	Limiters []string
	// After are the tasks of the partition that this one waits for, in order of their ids; at most MaxAfter.
	After []After
	// OnDepFailure says what follows when one of After ends without being completed.
	OnDepFailure DepFailure
	// Batch is the batch of the partition that the task is added to; zero: none.
	Batch TaskID
}

// Bounds of what a create says from FormatShare on.
const (
	MaxKey      = 128 // bytes
	MaxCost     = 1_000_000
	MaxLimiters = 4
	MaxAfter    = 100

	// MaxDependents bounds how many tasks wait for one at a time.
	MaxDependents = 10_000
)

// HasShare reports whether a create says something that only entries from FormatShare on can say.
func (op *TaskCreate) HasShare() bool { return op.sharesLane() || !op.Batch.IsZero() }

// sharesLane is HasShare without the batch.
func (op *TaskCreate) sharesLane() bool {
	return op.Key != "" || op.Cost != 0 || len(op.Limiters) > 0 || len(op.After) > 0 || op.OnDepFailure != DepHold ||
		op.Unique.Until != UniqueTTL || op.Unique.Replace
}

// TaskComplete ends the attempt that holds Token, with its result. The effects are the commit's other ops.
type TaskComplete struct {
	Task       TaskID
	Token      Token
	Result     []byte // at most 1 MiB; empty is allowed
	ResultType string // empty = application/json
}

// TaskFail reports a failed attempt.
type TaskFail struct {
	Task       TaskID
	Token      Token
	Fatal      bool
	HasRetry   bool // RetryAfter is set and wins over the policy; 0 = at once
	RetryAfter Millis
	Error      TaskError
}

// TaskSnooze gives a task back until a time, without a failure or a crash.
type TaskSnooze struct {
	Task  TaskID
	Token Token
	Until ShardTime // 0 = after Delay
	Delay Millis
}

// TaskRelease gives a task back to its old place; it counts only as a delivery. The leader uses it, with Undelivered,
// for a grant whose receiver is gone: from format 3 on that does not count as an attempt, unless its holder has reported.
type TaskRelease struct {
	Task        TaskID
	Token       Token
	Undelivered bool
}

// TaskHold names one lease: a task and its token.
type TaskHold struct {
	Task  TaskID
	Token Token
}

// TaskRenew extends leases to stamp + Extend, or by their own length when Extend is 0. It never shortens one. Each
// item is judged alone: the op itself is never refused.
type TaskRenew struct {
	Items  []TaskHold
	Extend Millis
}

// TaskDelete removes a terminal task.
type TaskDelete struct{ Task TaskID }

// TaskRunNow makes a scheduled task ready.
type TaskRunNow struct{ Task TaskID }

// QueueSet replaces a queue's configuration. It changes Version only when something changed.
type QueueSet struct {
	Queue     string
	Config    QueueConfig
	IfVersion int64 // -1 = any
}

// QueueDelete removes a queue with all its tasks, alone in its commit. Its name is free at once; what its tasks take on
// disk goes with the ticks that follow. Entries before FormatQueues have none.
type QueueDelete struct {
	Queue     string
	Purge     bool  // also with tasks that have not ended, which are cancelled
	IfVersion int64 // -1 = any
}

// GrantQueue is one queue of a grant.
type GrantQueue struct {
	Name string
	// Weight is the queue's share of a weighted grant, up to MaxWeight. 0: nothing that it gives moves its pass, so that of such
	// queues the first one that has a task is served.
	Weight uint32
	// Pass is how much the queue was served before a weighted grant: GrantStride/Weight for each task.
	Pass uint64
}

// GrantStride is what a task moves the pass of a queue of weight 1.
const GrantStride = 1 << 20

// Stride is what a task moves the queue's pass.
func (q *GrantQueue) Stride() uint64 {
	if q.Weight == 0 {
		return 0
	}
	return GrantStride / uint64(q.Weight)
}

// Grant gives the next ready tasks of Queues to a worker's free slots: at most N, one less for each of Settles whose lease
// is still held when the grant applies.
type Grant struct {
	Session SessionID
	Sub     uint32
	Worker  string
	Queues  []GrantQueue
	N       uint32
	Lease   Millis // 0 = the task's own
	Settles []TaskHold
	// Weighted serves the queue with the smallest pass next, the first of those that are equal; else they are served in turn. Entries
	// before FormatShare have none.
	Weighted bool
}

// Tick does the timed work that is due at the entry's stamp: leases, delays, retention, windows that end. At most Max
// steps; the rest stays due.
type Tick struct{ Max uint32 }

// TermStart is the first commit of a leader's term. No lease ends before its stamp + min(lease, 15 s).
type TermStart struct {
	Term   uint64
	Leader uint64 // replica id
}

// ClockShift says what most nodes' wall clocks show beyond shard time. Times that callers name are compared with the stamp
// plus Shift; what is counted from a stamp does not depend on it. Entries before FormatQueues have none.
type ClockShift struct{ Shift Millis } // negative: the wall clocks are behind shard time

// NamespaceCreate enters a namespace in the directory, and its tenant when that is new; creating one that exists is a
// replay. It belongs to the system partition of shard 0.
type NamespaceCreate struct {
	Tenant     string
	Name       string
	Partitions uint16 // 1 to 4096
	Shards     uint16 // over how many of the shards they are dealt out, from the first on; 0 is 1
	Max        int32  // refuses when the tenant has this many; 0 = DefaultNamespaces
}

// NamespaceSet replaces the configuration of the commit's namespace in the commit's partition.
type NamespaceSet struct {
	Config    NamespaceConfig
	IfVersion int64 // -1 = any
}

// KVPut stores a value under a key of a keyspace.
type KVPut struct {
	Keyspace string
	Key      []byte // 1 B to 16 KiB
	Value    []byte // at most 1.5 MiB
	HasRev   bool   // IfRev is a condition; 0 = the key is absent
	IfRev    uint64
	IfAbsent bool
	WantPrev bool // answer with the value before
}

// KVDelete removes a key.
type KVDelete struct {
	Keyspace string
	Key      []byte
	HasRev   bool
	IfRev    uint64
}

// Compare is how a check compares. Numbers are stored and on the wire.
type Compare uint8

// The comparisons. Exists and Absent take no operand.
const (
	CompareExists   Compare = 1
	CompareAbsent   Compare = 2
	CompareEqual    Compare = 3
	CompareNotEqual Compare = 4
	CompareLess     Compare = 5
	CompareGreater  Compare = 6
)

// Target is what a check compares.
type Target uint8

// The targets.
const (
	TargetRev   Target = 1
	TargetValue Target = 2
)

// KVCheck is a condition on a key: it changes nothing. An absent key has revision 0 and never equals, or is less or
// greater than, a value; it is not equal to every value.
type KVCheck struct {
	Keyspace string
	Key      []byte
	Target   Target // for Equal, NotEqual, Less, Greater
	Compare  Compare
	Rev      uint64
	Value    []byte
}

// Kind returns the op's number.
func (*TaskCreate) Kind() OpKind { return OpTaskCreate }

func (op *TaskCreate) task() TaskID { return op.ID }

// Kind returns the op's number.
func (*TaskComplete) Kind() OpKind { return OpTaskComplete }

func (op *TaskComplete) hold() TaskHold { return TaskHold{Task: op.Task, Token: op.Token} }

func (op *TaskComplete) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskFail) Kind() OpKind { return OpTaskFail }

func (op *TaskFail) hold() TaskHold { return TaskHold{Task: op.Task, Token: op.Token} }

func (op *TaskFail) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskSnooze) Kind() OpKind { return OpTaskSnooze }

func (op *TaskSnooze) hold() TaskHold { return TaskHold{Task: op.Task, Token: op.Token} }

func (op *TaskSnooze) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskRelease) Kind() OpKind { return OpTaskRelease }

func (op *TaskRelease) hold() TaskHold { return TaskHold{Task: op.Task, Token: op.Token} }

func (op *TaskRelease) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskRenew) Kind() OpKind { return OpTaskRenew }

// Kind returns the op's number.
func (*TaskDelete) Kind() OpKind { return OpTaskDelete }

func (op *TaskDelete) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskRunNow) Kind() OpKind { return OpTaskRunNow }

func (op *TaskRunNow) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*QueueSet) Kind() OpKind { return OpQueueSet }

// Kind returns the op's number.
func (*QueueDelete) Kind() OpKind { return OpQueueDelete }

// Kind returns the op's number.
func (*Grant) Kind() OpKind { return OpGrant }

// Kind returns the op's number.
func (*Tick) Kind() OpKind { return OpTick }

// Kind returns the op's number.
func (*TermStart) Kind() OpKind { return OpTermStart }

// Kind returns the op's number.
func (*ClockShift) Kind() OpKind { return OpClockShift }

// Kind returns the op's number.
func (*NamespaceCreate) Kind() OpKind { return OpNamespaceCreate }

// Kind returns the op's number.
func (*NamespaceSet) Kind() OpKind { return OpNamespaceSet }

// Kind returns the op's number.
func (*KVPut) Kind() OpKind { return OpKVPut }

func (op *KVPut) written() (string, []byte) { return op.Keyspace, op.Key }

func (op *KVPut) keys() KeysWritten {
	return KeysWritten{Keyspace: op.Keyspace, Writes: 1, Bytes: uint64(len(op.Key) + len(op.Value))}
}

func (op *KVPut) place(partitions int) (uint16, bool) { return PlaceKey(op.Key, partitions), true }

// Kind returns the op's number.
func (*KVDelete) Kind() OpKind { return OpKVDelete }

func (op *KVDelete) written() (string, []byte) { return op.Keyspace, op.Key }

func (op *KVDelete) keys() KeysWritten {
	return KeysWritten{Keyspace: op.Keyspace, Writes: 1, Bytes: uint64(len(op.Key))}
}

func (op *KVDelete) place(partitions int) (uint16, bool) { return PlaceKey(op.Key, partitions), true }

// Kind returns the op's number.
func (*KVCheck) Kind() OpKind { return OpKVCheck }

func (op *KVCheck) place(partitions int) (uint16, bool) { return PlaceKey(op.Key, partitions), true }
