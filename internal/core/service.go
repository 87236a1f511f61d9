package core

import "errors"

// What a node offers to its edges, in types that both know.

// ReadOptions say how fresh a read must be. The zero value is linearizable.
type ReadOptions struct {
	MinIndex uint64 // wait until this index of the partition's shard is applied
	Stale    bool   // read what this node has applied, without asking a majority
	MaxStale Millis // with Stale: ask a majority when that may be older; 0 = however old it is
	// Elsewhere says that MinIndex may be of another partition: where it is past the newest index, that one is waited for.
	Elsewhere bool
}

// A read whose MinIndex is past the newest index of the log is Invalid, with this field and reason: no node gave such an index.
const (
	FieldMinIndex      = "min_index"
	ReasonIndexUnknown = "index_unknown"
)

// KeyRead is what a key held when it was read.
type KeyRead struct {
	Value  []byte
	Rev    uint64    // 0: the key, or its keyspace, is absent
	Writer *TaskHold // of the last write; nil: none was kept
}

// KeyRange asks for the keys of a keyspace from From up to, without it, To, of which an empty one is the end; or for those
// that begin with Prefix.
type KeyRange struct {
	Keyspace         string
	From, To, Prefix []byte
	Incarnation      uint32 // NotFound unless the keyspace is still this one; 0 = any
	Desc             bool   // the last key first
	// Keys that have Delimiter behind their first Behind bytes are shown as one, up to it. Empty: none are.
	Delimiter []byte
	Behind    int
	Head      int // at most that many bytes of each value; 0: all
}

// KeyPair is a key as a range shows it. Its slices are copies.
type KeyPair struct {
	Key   []byte
	Value []byte
	Rev   uint64
	// Writer is the lease under which the key was written last; nil: none was kept.
	Writer *TaskHold
	Size   int  // of the whole value
	Many   bool // it stands for all keys of the range that begin with Key, which ends with the delimiter
}

// KeyCursor reads a range as it was at one instant. It is for one goroutine, and must be closed.
type KeyCursor interface {
	// Incarnation is that of the keyspace; 0: there is none, and so no key.
	Incarnation() uint32
	// Next returns further keys in the order of the range: at most items, and no more once they take more than bytes; none at the end.
	// Values are nil unless they are asked for.
	Next(items, bytes int, values bool) ([]KeyPair, error)
	Close() error
}

// ListQuery asks for a page of tasks. It says, by what it names, which index is read and so the order: the tasks with its first
// label, about in order of their creation; those of a queue in a state, in the order of that state's index; else all of the
// partition, about in order of their creation.
type ListQuery struct {
	Read   ReadOptions
	Queue  string // empty: any
	State  State  // 0: any
	Desc   bool   // the last ones first
	Limit  int    // 1 to 1000
	Cursor []byte // opaque, from the page before; nil for the first
	// Before is where the list of the ended tasks of a queue begins that has the last ones first: with those that ended before it. It
	// and Cursor are mutually exclusive. The zero value: at the last one.
	Before TaskEnd
	Head   int // first bytes of each payload that are read; 0: none

	// The rest is asked of each task that the index has.

	Kind   string    // empty: any
	Worker string    // that runs it, or completed it; empty: any
	Unique string    // the unique key it was created under; empty: any
	Labels []Label   // all of them
	From   ShardTime // created at or after; 0: ever. From and To are times of the wall clocks
	To     ShardTime // created before; 0: ever

	Fingerprint Fingerprint // of its last error; 0: any
	Batch       TaskID      // that it is of; zero: any, or none
}

// Picky reports whether the query asks more of a task than a queue and a state.
func (q *ListQuery) Picky() bool {
	return q.Kind != "" || q.Worker != "" || q.Unique != "" || len(q.Labels) > 0 || q.From != 0 || q.To != 0 || q.Fingerprint != 0 ||
		!q.Batch.IsZero()
}

// TaskEnd is a place among ended tasks: those that ended at one time are ordered by their ids.
type TaskEnd struct {
	At ShardTime // of the wall clocks
	ID TaskID
}

// TaskPage is a page of tasks, without payloads and results. It may be short, and even empty, and still have a cursor: the list ends
// where there is none.
type TaskPage struct {
	Tasks     []Task
	Next      []byte // cursor; nil at the end
	Inspected int    // rows that were looked at
	// Reached is how far the page came where there are more: end of the last task that was looked at in a list in the order of ends, its
	// creation in one in that order. 0: the list is at its end, or in another order, or that task is gone.
	Reached ShardTime
}

// ClaimSpec is one unary claim.
type ClaimSpec struct {
	Queues []GrantQueue // 1 to 64
	Strict bool         // a queue is served when those before it in Queues have nothing
	Max    uint32       // 1 to 128
	Lease  Millis       // 0 = each task's own
	Wait   Millis       // how long to wait for a task; 0 = not at all
	Worker string
}

// ErrClaimEnded is the cause of a context whose claim is answered as if its wait were over: its caller asked for that.
var ErrClaimEnded = errors.New("the claim was ended")

// SessionSpec opens or resumes a stream's session.
type SessionSpec struct {
	ID        SessionID
	Worker    string
	Principal string
	Held      []TaskHold // leases that the client holds
	Host      string     // this and the next two are told, and decide nothing
	SDK       string     // name and version of the client library
	Kinds     []string   // that the client has handlers for
	// Reaches says which queues the client may work on; nil: all. Of others the session has no lease.
	Reaches func(queue string) bool
}

// Welcome is what a session finds when it opens.
type Welcome struct {
	Kept       []TaskHold     // of those held: still leased to this session
	Lost       []TaskHold     // of those held: no longer
	AppliedSeq uint64         // highest commit sequence applied for the session
	Cancelled  []CancelWanted // leases of the session whose holder is to stop, until times of the wall clocks
	At         At
}

// Subscription asks for tasks of some queues to be pushed to a session.
type Subscription struct {
	Sub    uint32
	Queues []GrantQueue // 1 to 64
	Strict bool         // a queue is served when those before it in Queues have nothing
	Slots  uint32       // the window: most tasks assigned and not settled; 0 to 4096
	Batch  uint32       // most tasks in one assignment; 1 to 128
	Lease  Millis       // 0 = each task's own
}

// Sink receives what a node pushes to a session. Its methods do not block and may be called from any goroutine.
type Sink interface {
	// Assign hands tasks over. It reports false when the stream is gone: the node then releases them.
	Assign(sub uint32, tasks []Assigned, at At) bool
	// LeaseLost tells that a lease of the session was ended by the leader.
	LeaseLost(hold TaskHold, reason string)
	// Cancel asks the holder of a lease of the session to stop: the lease ends at until at the latest. It may come again.
	Cancel(hold TaskHold, reason string, until ShardTime)
	// Room reports whether the stream's send buffer has room: tasks are granted only then.
	Room() bool
	// Available says that a subscription without slots could have tasks, which no other takes. It is told once each time that the
	// window becomes 0. It must not block.
	Available(sub uint32)
	// End tells that the node serves the session no more, because another node leads its shard. What was proposed is
	// answered before; leases stay until the session is opened again, there, or they expire.
	End(why Fact)
}

// Session is a node's side of one open stream.
type Session interface {
	// Subscribe adds a subscription, or replaces the one of that number.
	Subscribe(s Subscription)
	// Slots sets the window of a subscription: the most tasks assigned and not settled.
	Slots(sub, window uint32)
	// Settle proposes commits that each end the attempt of the hold at the same position; the slots are free at once,
	// so that the next grant rides in the same entry. done as in a proposal.
	Settle(p Partition, commits []Commit, holds []TaskHold, done func(Proposed))
	// Held lists the leases of the session.
	Held() []TaskHold
	// Drain stops grants for good.
	Drain()
	// Close ends the stream's side; the leases stay until they are resumed or expire.
	Close()
	// Leave is Close for a client that asked for no more tasks and then ended its side: what it holds still, such as tasks that were on
	// their way to it, goes back to its queue.
	Leave()
	// Break is Close for a stream that broke: leases that are neither resumed nor renewed within the disconnect grace end as crashes.
	Break()
}

// Proposed is the end of one proposal, which comes exactly once: results, or the fact that none are known.
type Proposed struct {
	Results []Result // one per commit; nil with Err
	At      At
	Err     Fact // Unavailable or DeadlineExceeded, perhaps unknown; Exhausted; NotLeader
}

// NodeStatus tells what a node is and what it has done since it started.
type NodeStatus struct {
	Node           string
	Durability     string // fsync or none
	Shards         int
	AppliedIndex   uint64 // of shard 0
	Fsyncs         uint64
	LogBytes       uint64
	Entries        uint64
	StoreMutations uint64
	StartedMillis  int64 // Unix milliseconds
	DiskFull       bool
}
