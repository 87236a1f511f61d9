package node

import "time"

// Bounds of how long a part of a snapshot is waited for before it is asked for once more.
const (
	// A part is waited for at least this long, however fast the one before it came.
	awaitLeast = time.Second
	awaitFirst = 4 * time.Second // while it is not known how fast the link is
	// At most this long: within the time after which a leader that sends nothing is given up.
	awaitMost = leaderSilence * 4 / 5
)

// await says when a part of a snapshot is to be asked for again. Over a narrow link a part takes long and is not lost: asked for
// again too early it comes twice, what is behind it comes later and is asked for twice as well, and in the end the link carries
// little else than copies. So it waits for twice as long as the part before took, and each time longer.
type await struct {
	// How long the part is waited for: twice what the part before it took.
	wait time.Duration
	// It was asked for and has not come.
	asked bool
	// Boot times when the part was asked for: for the first time, and for the last.
	first, last time.Duration
}

// newAwait returns an await for the first part of a snapshot.
func newAwait() await { return await{wait: awaitFirst} }

// ask notes that the part was asked for.
func (a *await) ask(now time.Duration) {
	if !a.asked {
		a.asked, a.first = true, now
	}
	a.last = now
}

// due reports whether the part is to be asked for: for the first time, or again.
func (a *await) due(now time.Duration) bool {
	return !a.asked || now-a.last >= min(max(a.wait, a.last-a.first), awaitMost)
}

// came notes that the part came; the next one has not been asked for.
func (a *await) came(now time.Duration) {
	a.wait = min(max(2*(now-a.first), awaitLeast), awaitMost)
	a.asked = false
}
