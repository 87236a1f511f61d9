package core

import "encoding/binary"

// A batch is a set of tasks of one partition that are counted together. It takes tasks while it is open; when it was sealed and all
// its tasks have ended, Apply makes the tasks that were named at its opening. Entries before FormatShare have no batches.

// Bounds of batches, each of one partition where nothing else is said.
const (
	MaxBatches      = 10_000             // that have not finished
	MaxBatchesKept  = 10_000             // that have finished; the oldest goes first
	MaxBatchTasks   = 1_000_000          // of one batch
	BatchKept       = 7 * 24 * 3_600_000 // milliseconds for which a batch is kept that has finished
	BatchRetryFirst = 1_000              // milliseconds after which a follow-up is tried again that was refused
	BatchRetryMax   = 60_000             // milliseconds that lie between two tries at most
)

// HeaderBatch is the header of a follow-up that has the id of its batch.
const HeaderBatch = "millrace-batch"

// BatchState says how far a batch is. Numbers are stored and never reused.
type BatchState uint8

// The states of a batch.
const (
	BatchIsOpen     BatchState = 1 // it takes tasks
	BatchSealed     BatchState = 2 // it takes none, and some have not ended
	BatchCancelling BatchState = 3 // its cancel was asked for, and some have not ended
	BatchFinished   BatchState = 4 // it takes none, and all had ended
)

// batchStates are the names that clients see.
var batchStates = [...]string{BatchIsOpen: "open", BatchSealed: "sealed", BatchCancelling: "cancelling", BatchFinished: "finished"}

// String returns the name that clients see.
func (s BatchState) String() string {
	if int(s) < len(batchStates) && s > 0 {
		return batchStates[s]
	}
	return "unknown"
}

// BatchOpen makes a batch. One of the same id that was opened with the same is a replay; one that was opened with something else is
// refused with AlreadyExists.
type BatchOpen struct {
	ID     TaskID  // of the batch; it has the form of a task's, and its partition
	Labels []Label // sorted by name; as those of a task
	// The follow-ups: what is made when the batch finishes, and what is made then if each of its tasks was completed. nil: none. They
	// have no id, time, unique key, expiry, batch, and wait for no tasks.
	OnDone    *TaskCreate
	OnSuccess *TaskCreate
}

// BatchSeal says that a batch gets no more tasks. Of one that gets none already it is a replay.
type BatchSeal struct{ ID TaskID }

// BatchCancel seals a batch and starts a bulk job that cancels its tasks. Of one whose cancel was asked for it is a replay; one that
// has finished is refused with WrongBatch.
type BatchCancel struct {
	ID     TaskID
	Reason string // at most MaxReason bytes
	Rate   uint32 // tasks per second, as in BulkStart
	Force  bool   // as in TaskCancel
}

// BatchCounts counts the tasks of a batch by what became of them. Tasks that were removed after their end stay counted.
type BatchCounts struct{ Total, Waiting, Running, Completed, Dead, Cancelled uint64 }

// Batch is a batch as it is stored.
type Batch struct {
	BatchOpen
	Number uint64 // its place among those of its partition: rising in the order in which they were opened
	State  BatchState
	Counts BatchCounts

	By       string    // principal that opened it
	Opened   ShardTime // stamps
	Sealed   ShardTime // 0: it takes tasks
	Finished ShardTime // 0: it did not

	Cancel CancelAsked // its time is 0 when none was asked for

	// The tasks that were made; zero: none.
	DoneTask    TaskID
	SuccessTask TaskID
	// RefusedCode and RefusedMessage are why a follow-up could not be made when that was tried last; it is tried again. Empty: each was.
	RefusedCode    string
	RefusedMessage string
}

// WrongBatch says that an op does not apply to the state that a batch is in, and names that state.
type WrongBatch struct {
	Batch TaskID
	State BatchState
}

// FollowUpID returns the id of a task that a batch makes: another one for each time that a batch of the id was opened, by the index of
// that entry. It has the partition and the time of the batch's own id.
func FollowUpID(batch TaskID, opened uint64, success bool) TaskID {
	a, b := binary.BigEndian.Uint64(batch[:8]), binary.BigEndian.Uint64(batch[8:])
	n := opened << 1
	if success {
		n |= 1
	}
	h := mix(mix(mix(a^0x62617463)^b) ^ n)
	var random [9]byte
	binary.BigEndian.PutUint64(random[:8], h)
	random[8] = byte(mix(h)) & 0x0f
	return NewTaskID(batch.Millis(), batch.Partition(), random)
}

// BatchJobID returns the id of the bulk job that cancels the tasks of a batch.
func BatchJobID(batch TaskID, opened uint64) TaskID {
	return FollowUpID(FollowUpID(batch, opened, false), opened, false)
}

// BatchOf returns the batch that an op opens or changes, or adds a task to, if it is about one.
func BatchOf(op Op) (id TaskID, ok bool) {
	switch op := op.(type) {
	case *TaskCreate:
		return op.Batch, !op.Batch.IsZero()
	case *BatchOpen:
		return op.ID, true
	case *BatchSeal:
		return op.ID, true
	case *BatchCancel:
		return op.ID, true
	}
	return TaskID{}, false
}

// Kind returns the op's number.
func (*BatchOpen) Kind() OpKind { return OpBatchOpen }

// Kind returns the op's number.
func (*BatchSeal) Kind() OpKind { return OpBatchSeal }

// Kind returns the op's number.
func (*BatchCancel) Kind() OpKind { return OpBatchCancel }
