package githttp

import (
	"errors"
	"os"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// pace holds one direction of a request to a least rate: each RateBytes must pass within Idle. Only
// the time counts for which this side waits for the client, by the clock that never falls. One that
// is too slow holds a program of git that others wait for, so its transfer ends. There is one for
// what comes in and one for what goes out; each belongs to the goroutine that moves the bytes.
type pace struct {
	s      *Server
	waited time.Duration // since moved was 0
	moved  int64         // bytes
	all    int64         // bytes, since the beginning
	slow   bool          // it was too slow: nothing passes any more
}

// limitRate is the name of the least rate.
const limitRate = "git_rate"

// pass has move wait for the client until a deadline of the wall clock, and counts what it has
// moved. Time that this side needs for its own work is between the calls, and does not count.
func (p *pace) pass(deadline func(time.Time), move func() (int, error)) (int, error) {
	if p.slow {
		return 0, p.error()
	}
	deadline(p.s.o.Clock.Wall().Add(p.s.l.Idle - p.waited)) // a connection that cannot be timed is not a socket's
	from := p.s.o.Clock.Boot()
	n, err := move()
	p.all += int64(n)
	p.waited += p.s.o.Clock.Boot() - from
	if p.moved += int64(n); p.moved >= p.s.l.RateBytes {
		p.moved, p.waited = 0, 0
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || err == nil && p.waited >= p.s.l.Idle {
		p.slow = true
		return n, p.error()
	}
	return n, err
}

// error is what ends a transfer that is too slow.
func (p *pace) error() error { return core.Exhausted{Limit: limitRate, Max: p.s.l.RateBytes} }
