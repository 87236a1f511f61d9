package core

// MaxKeysLooked bounds how many keys of a queue a list looks at that is not in the order of their names.
const MaxKeysLooked = 10_000

// QueueKey is a key of a queue that has tasks which have not ended, or for which something is set.
type QueueKey struct {
	Key                   string
	Tasks, Ready, Running uint64
	Settings              KeySettings
	Paused                QueuePaused // zero while its tasks are given out
	OldestReady           ShardTime   // 0: none is ready
	// WaitsFor is what holds its ready tasks up, a code of Why; empty: nothing of its own does.
	WaitsFor string
	Until    ShardTime // when its rate lets the next task go; 0: it holds nothing up
	HeldBy   []string  // the first MaxHolders tasks that hold it up
	// Owed is by how much, in cost by weight 1, it is behind the key that was served last; negative: ahead.
	Owed int64
	// Limit is how many of its tasks may run at once, by its own settings or by those of the queue; 0: there is no bound.
	Limit  int64
	Weight uint32 // its share among the keys that have tasks ready: at least 1
}

// KeyList is what a list of the keys of a queue tells of one partition.
type KeyList struct {
	Keys    []QueueKey
	Unkeyed QueueKey // the tasks without a key
	Use     QueueUse
	// All says that all keys were looked at. The rest is about those with tasks ready, of which the tasks without a key are one: how many
	// there are, how many of them something of their own holds up, and the sum of their weights.
	All           bool
	Waiting, Held int
	Weights       uint64
}

// QueueUse is how much of the limits of a queue is used in one partition.
type QueueUse struct {
	Running uint64 // tasks
	Rate    int64  // what began lately and counts against the burst of its rate, in cost
	Workers int    // that have tasks; 0 while their number is not limited
}

// KeyOrder is the order of a list of keys.
type KeyOrder uint8

// The orders.
const (
	KeysByName    KeyOrder = iota
	KeysByBacklog          // most ready tasks first
	KeysByOwed             // furthest behind its share first
	KeysByOldest           // longest ready first
)

// KeyQuery asks for keys of a queue.
type KeyQuery struct {
	Queue  string
	Prefix string
	After  string // by name: the page begins behind this one
	Order  KeyOrder
	Limit  int // at least 1
}
