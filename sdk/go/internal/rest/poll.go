package rest

import (
	"errors"
	"time"
)

// restPoll is how long a request asks the server to wait. Proxies cut what is silent for too long, each after a time of
// its own; a server may allow less than this client asks for.
type restPoll struct{ wait time.Duration }

const (
	pollWait = 25 * time.Second // below the half minute after which some proxies cut
	// Below that a request says nothing about what cuts it.
	pollLeast = time.Second
)

// newRESTPoll begins with the longest wait.
func newRESTPoll() *restPoll { return &restPoll{pollWait} }

// missed takes the error of a request that waited, and took so long. It reports true when the wait was the reason: it
// is shorter now, and the request may be made again at once.
func (p *restPoll) missed(err error, took time.Duration) bool {
	f, ok := errors.AsType[*Fault](err)
	if !ok || f.wire == nil {
		return false
	}
	switch most := time.Duration(f.wire.GetMax()) * time.Millisecond; {
	// The server names the longest wait that it allows.
	case f.origin == byServer:
		waits := f.wire.GetLimit() == "claim_wait_ms" || f.wire.GetLimit() == "result_wait_ms"
		if !waits || most >= p.wait {
			return false
		}
		p.wait = most
		return true
	// What never left, or ended at once or in time, was not cut for being silent.
	case !f.left() || took < 2*pollLeast || took >= p.wait:
		return false
	}
	p.wait = max(took/2, pollLeast)
	return true
}
