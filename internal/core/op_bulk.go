package core

// A bulk job does one thing to every task that a filter finds. It is stored, and ticks do its work, so that it goes on after a change
// of leaders where it was. Entries before FormatOperate have none.

// Bounds of bulk jobs, each in one partition.
const (
	MaxBulkJobs     = 10             // that run
	MaxBulkKept     = 100            // that have ended
	MaxBulkRate     = 1_000_000      // tasks per second
	MaxBulkPatch    = 16 << 10       // bytes of a merge patch
	DefaultBulkRate = 1_000          // tasks per second
	BulkKept        = 24 * 3_600_000 // milliseconds for which a job is kept that has ended
)

// BulkAction is what a bulk job does to each task. Numbers are stored and never reused.
type BulkAction uint8

// The actions. Each meets the tasks of some states only: see States.
const (
	BulkCancel     BulkAction = 1 // as TaskCancel
	BulkRetry      BulkAction = 2 // as TaskRedrive
	BulkDelete     BulkAction = 3 // as TaskDelete
	BulkPrioritize BulkAction = 4 // as TaskUpdate of the priority
)

// States returns the states of the tasks that the action is about, in the order in which a job looks at them: a task that moves on
// while the job runs is met later rather than never.
func (a BulkAction) States() []State {
	switch a {
	case BulkCancel:
		return []State{Blocked, Scheduled, Ready, Running}
	case BulkRetry:
		return []State{Dead, Cancelled}
	case BulkDelete:
		return []State{Completed, Dead, Cancelled}
	case BulkPrioritize:
		return []State{Blocked, Scheduled, Ready}
	}
	return nil
}

// BulkStart begins a bulk job. A job of the same id that asks for the same is a replay; one that asks for something else is refused
// with AlreadyExists.
type BulkStart struct {
	ID       TaskID // of the job; it has the form of a task's
	Action   BulkAction
	Tasks    TaskFilter
	Priority uint8  // with BulkPrioritize: 0 to 9
	Force    bool   // with BulkCancel: as in TaskCancel
	Rate     uint32 // tasks per second, at most MaxBulkRate; 0 = DefaultBulkRate
	Reason   string // at most MaxReason bytes
	// Matched is how many tasks were counted before the start; Exact says that all were looked at.
	Matched uint64
	Exact   bool

	// The rest is of BulkRetry, from FormatShare on.

	ToQueue string // the queue that each task moves to; empty: it stays
	Patch   []byte // a merge patch (RFC 7396) of each payload, at most MaxBulkPatch bytes; nil: none
}

// HasShare reports whether the start says something that only entries from FormatShare on can say.
func (op *BulkStart) HasShare() bool {
	return op.ToQueue != "" || len(op.Patch) > 0 || !op.Tasks.Batch.IsZero()
}

// TaskFilter says which tasks a bulk job is about: those that have everything that it names.
type TaskFilter struct {
	Queue  string  // empty: any
	State  State   // 0: all that the action is about
	Kind   string  // empty: any
	Worker string  // that runs it, or completed it; empty: any
	Unique string  // the unique key it was created under; empty: any
	Labels []Label // all of them
	From   ShardTime
	To     ShardTime // created from From on, and before To, by the wall clocks; 0: no bound

	Fingerprint Fingerprint // of its last error; 0: any

	Batch TaskID // that they are of, from FormatShare on; zero: any, or none
}

// Query returns the list of the tasks of the filter.
func (f *TaskFilter) Query() ListQuery {
	return ListQuery{
		Queue: f.Queue, State: f.State, Kind: f.Kind, Worker: f.Worker, Unique: f.Unique, Labels: f.Labels, From: f.From, To: f.To,
		Fingerprint: f.Fingerprint, Batch: f.Batch,
	}
}

// BulkStop ends a bulk job before its end. What it did stays. One that has ended already is a replay.
type BulkStop struct{ ID TaskID }

// BulkState says how far a bulk job is. Numbers are stored and never reused.
type BulkState uint8

// The states of a bulk job.
const (
	BulkRunning BulkState = 1
	BulkDone    BulkState = 2
	BulkStopped BulkState = 3 // by BulkStop, or with its queue
)

// BulkJob is a bulk job in one partition.
type BulkJob struct {
	BulkStart
	By      string // principal that started it
	State   BulkState
	Started ShardTime
	Ended   ShardTime // 0: it runs
	Looked  uint64    // rows of indexes that were looked at
	Done    uint64    // tasks
	Refused []BulkRefused
	// ETA is when it will be done, by the wall clocks; it is told and not stored. 0: it is not known.
	ETA ShardTime
}

// BulkRefused counts the tasks that refused what a bulk job wanted, for one reason.
type BulkRefused struct {
	Code  string // that of the fact
	Count uint64
}

// BulkCount is what a bulk job would find, or a part of it.
type BulkCount struct {
	Count     uint64
	Inspected uint64    // rows that were looked at
	Oldest    ShardTime // creation of the oldest and the newest, by the wall clocks; 0: unknown, or none
	Newest    ShardTime
	Sample    []Task // the first ones, at most as many as were asked for
	Next      []byte // where to go on; nil: all was looked at
}

// Kind returns the op's number.
func (*BulkStart) Kind() OpKind { return OpBulkStart }

// Kind returns the op's number.
func (*BulkStop) Kind() OpKind { return OpBulkStop }
