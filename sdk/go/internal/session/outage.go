package session

import (
	"log/slog"
	"sync"
	"time"
)

// lostAfter is how long a server is out of reach before the client's log tells of it: less is a restart, or another leader.
const lostAfter = time.Second

// outage tells the client's log once when the server is lost, and once when it is back: a worker waits for as long as that takes,
// and does not do so in silence.
type outage struct {
	mu sync.Mutex // guards the fields below
	// since is when the first try failed; zero: the last one did not.
	since time.Time
	// told says that the log was told of this outage.
	told bool
}

// failed takes in that a try to reach the server failed.
func (o *outage) failed(log *slog.Logger, address string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
	}
	if o.told || now.Sub(o.since) < lostAfter {
		return
	}
	o.told = true
	log.Warn("the server is not reached; the client goes on trying", "address", address, "error", err)
}

// over takes in that the server was reached.
func (o *outage) over(log *slog.Logger, address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told {
		log.Info("the server is reached again", "address", address, "after", time.Since(o.since).Round(100*time.Millisecond))
	}
	o.since, o.told = time.Time{}, false
}
