package core

// KeySet replaces what was set for one key of a queue: its weight and limits, and whether it is paused. Entries before FormatShare
// have none. What is all zero leaves the key to the queue. The queue must be there.
type KeySet struct {
	Queue string
	Key   string // 1 to MaxKey bytes
	// Settings replace those there were, unless KeepSettings is set.
	Settings     KeySettings
	KeepSettings bool
	// Pause says what becomes of the key's pause.
	Pause  KeyPause
	Until  ShardTime // most wall clocks show it when a paused key goes on by itself; 0 = when it is resumed
	Reason string    // at most MaxReason bytes
}

// KeyPause says what becomes of the pause of a key. Numbers are stored.
type KeyPause uint8

// What becomes of a pause.
const (
	KeyPauseKeep KeyPause = 0
	KeyPauseStop KeyPause = 1 // the key's tasks are no longer given out
	KeyPauseGoOn KeyPause = 2 // they are
)

// MaxKeySettings is how many keys of a queue may have something set.
const MaxKeySettings = 10_000

// Kind returns the op's number.
func (*KeySet) Kind() OpKind { return OpKeySet }
