package core

// MaxSessions is how many sessions of a worker are told: it has one for each partition.
const MaxSessions = 16

// Worker is a worker as the nodes know it that lead the partitions it takes tasks of: a session with subscriptions, or a caller of
// claims. It is soft state of theirs: it is told, and of all that is here only Quiet decides anything. Times are those of wall clocks.
type Worker struct {
	ID string // as it calls itself; the name of its token where it does not
	// Sessions are those of its streams, sorted, the first MaxSessions; none: a caller of claims.
	Sessions []SessionID
	Host     string
	SDK      string   // name and version of its client library
	Queues   []string // that it takes tasks of, sorted; of a caller of claims, those of the last one
	Kinds    []string // that it has handlers for, as it says itself: the first of them, together at most MaxWorkerKinds bytes
	Slots    int      // most tasks that it takes at a time; of a caller of claims, of the last one
	Running  int      // tasks whose leases it has
	// OldestLease is when the oldest attempt began that it runs; 0 = it runs none.
	OldestLease ShardTime
	Since       ShardTime // when it was first heard of by these nodes; 0 = it only has leases
	Seen        ShardTime // when it was heard of last; 0 as well
	Nodes       []string  // names of the nodes that know it, sorted
	Quiet       bool      // it is given no further tasks
}

const (
	// MaxWorkerKinds bounds the names of a worker's kinds that are kept, in bytes.
	MaxWorkerKinds = 4 << 10
	// kindsTold is how many kinds a client library tells of at most.
	kindsTold = 1000
)

// Handles reports whether a worker may have a handler for a kind: one that names no kinds may have any, and of one that names more
// than were kept it is not known.
func (w *Worker) Handles(kind string) bool {
	size := 0
	for _, k := range w.Kinds {
		if k == kind {
			return true
		}
		size += len(k)
	}
	return size == 0 || size+MaxName > MaxWorkerKinds || len(w.Kinds) >= kindsTold
}
