package retry

import "time"

// Unled is what is known of nodes that know of no leader, one after the other. That is so for a second or two while one is
// elected, and for as long as it lasts at a node that the others do not reach. It is for one goroutine at a time.
type Unled struct {
	at          string    // address of the node that was asked last
	since, last time.Time // of the first and the last such answer of that node
	left        int       // nodes in a row
}

const (
	unledFor    = 300 * time.Millisecond // a node is given, while not all of them have been asked
	unledForMax = 5 * time.Second
	unledApart  = 2 * Max // between two such answers, those before are forgotten
)

// Leave notes that a node knows of no leader, and reports whether it is to be left for the next of all nodes.
func (u *Unled) Leave(at string, nodes int, now time.Time) bool {
	switch {
	case nodes < 2:
		return false
	case now.Sub(u.last) > unledApart:
		*u = Unled{at: at, since: now}
	case at != u.at:
		u.at, u.since = at, now
	}
	u.last = now
	if now.Sub(u.since) < min(unledFor<<min(u.left/nodes, 8), unledForMax) {
		return false
	}
	u.left++
	u.since = now
	return true
}
