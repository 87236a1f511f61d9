package core

// The ops of this file are how people and programs operate a queue that runs. Entries before FormatOperate have none.

// Bounds of what these ops say.
const (
	MaxReason      = 256 // bytes of why a task was cancelled, or a queue paused; longer is cut at a rune
	MaxLabels      = 16  // of one task
	MaxLabelName   = 63  // bytes
	MaxLabelValue  = 128 // bytes
	MaxCancelGrace = 24 * 3_600_000
)

// Label is a name and a value by which a task is found. A task has at most MaxLabels, with different names, sorted by name.
type Label struct{ Name, Value string }

// TaskCancel cancels a task that has not ended. One that waits is cancelled at once. The holder of one that runs is asked to
// stop; its lease ends as cancelled when the queue's cancel_grace is over, and whatever else ends the attempt, except its
// completion, cancels the task too. With Force the lease ends at once. A task that is cancelled, or whose cancel was asked for,
// is a replay, except that Force still ends the lease.
type TaskCancel struct {
	Task   TaskID
	Reason string // at most MaxReason bytes
	Force  bool
}

// TaskStop is how the holder of an attempt confirms a cancel that was asked for: the task is cancelled. Without such a request it
// is refused with WrongState.
type TaskStop struct {
	Task  TaskID
	Token Token
	Error TaskError // what the attempt reports; may be empty
}

// TaskRedrive makes a dead or cancelled task ready. Its failures, crashes, snoozes and deliveries count from 0 again; its attempts
// stay, and their numbers go on.
type TaskRedrive struct{ Task TaskID }

// TaskForceRelease takes a running task from its holder and puts it back to its old place. It counts only as a delivery.
type TaskForceRelease struct {
	Task    TaskID
	Attempt uint32 // refused with WrongState unless this attempt runs; 0 = any
}

// TaskUpdate changes a task that waits, or that is dead. What it leaves out stays. Of a dead task it may change payload, priority
// and labels.
type TaskUpdate struct {
	Task        TaskID
	HasPriority bool
	Priority    uint8 // 0 to 9
	HasRunAt    bool  // the task becomes ready at RunAt, or, when that is 0, after Delay: at once when that time has come
	RunAt       ShardTime
	Delay       Millis
	HasPayload  bool
	Payload     []byte
	ContentType string // of Payload, empty = application/json; or without Payload, of the one there is
	HasLabels   bool   // Labels replace those there were
	Labels      []Label
	HasExpiry   bool
	ExpiresAt   ShardTime // as in TaskCreate; 0 = does not expire
}

// QueuePause stops grants of a queue's tasks, or lets them go on. Running tasks are not touched, and delays come due. Pausing a
// paused queue replaces until when and why.
type QueuePause struct {
	Queue  string
	Resume bool
	Make   bool      // make the queue where there is none: it is one of a namespace of several partitions, and is there in another
	Until  ShardTime // most wall clocks show it when the queue goes on by itself; 0 = when it is resumed
	Reason string    // at most MaxReason bytes
}

// Kind returns the op's number.
func (*TaskCancel) Kind() OpKind { return OpTaskCancel }

func (op *TaskCancel) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskStop) Kind() OpKind { return OpTaskStop }

func (op *TaskStop) hold() TaskHold { return TaskHold{Task: op.Task, Token: op.Token} }

func (op *TaskStop) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskRedrive) Kind() OpKind { return OpTaskRedrive }

func (op *TaskRedrive) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskForceRelease) Kind() OpKind { return OpTaskForceRelease }

func (op *TaskForceRelease) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*TaskUpdate) Kind() OpKind { return OpTaskUpdate }

func (op *TaskUpdate) task() TaskID { return op.Task }

// Kind returns the op's number.
func (*QueuePause) Kind() OpKind { return OpQueuePause }
