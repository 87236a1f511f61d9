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
}

// KeyOrder is the order of a list of keys.
type KeyOrder uint8

// The orders.
const (
	KeysByName    KeyOrder = iota
	KeysByBacklog          // most ready tasks first
	KeysByOwed             // furthest behind its share first
)

// KeyQuery asks for keys of a queue.
type KeyQuery struct {
	Queue  string
	Prefix string
	After  string // by name: the page begins behind this one
	Order  KeyOrder
	Limit  int // at least 1
}
