package auth

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// tellEvery is how often the refusals of one origin are logged: the first at once, those that follow as a number.
const tellEvery = time.Minute

// maxOrigins bounds how many origins of each reason are told apart, and so the lines of a minute. Further ones are told together.
const maxOrigins = 100

// otherOrigins stands for all origins beyond maxOrigins.
const otherOrigins = "others"

// Reason is why a token was refused.
type Reason uint8

// Reasons. A token that was removed or has expired was valid once, so its holder is known.
const (
	Unknown Reason = iota
	Removed
	Expired
	reasons
)

// String returns the reason as logs and metrics have it.
func (r Reason) String() string { return [reasons]string{"unknown", "removed", "expired"}[r] }

// origin is what refusals are counted by: the address of the client for unknown tokens, the holder for those that were valid once.
type origin struct {
	reason Reason
	who    string
}

// Refusals counts tokens that were refused, and logs them without flooding the log: an old token that is still used, and a client
// that guesses, are seen by an operator. It is safe for concurrent use.
type Refusals struct {
	log    *slog.Logger
	clock  env.Clock
	counts [reasons]atomic.Uint64
	mu     sync.Mutex         // guards seen and known
	seen   map[origin]*untold // of the last minute
	known  [reasons]int       // origins in seen
	stop   func()
}

// untold are the refusals of one origin since its last line.
type untold struct {
	n    uint64
	from string // address of the last one
}

// NewRefusals begins to log refusals, until Close.
func NewRefusals(log *slog.Logger, clock env.Clock) *Refusals {
	r := &Refusals{log: log, clock: clock, seen: make(map[origin]*untold)}
	r.stop = env.Every(clock, tellEvery, r.tell)
	return r
}

// Close tells what was not told yet, and ends that.
func (r *Refusals) Close() {
	r.stop()
	r.tell()
}

// Count returns how many tokens were refused for a reason.
func (r *Refusals) Count(why Reason) uint64 { return r.counts[why].Load() }

// Each calls f with every reason.
func (r *Refusals) Each(f func(why Reason, n uint64)) {
	for why := range reasons {
		f(why, r.Count(why))
	}
}

// Note takes note of a token that was refused. who is whose it was, as far as that is known; from is the client's address.
func (r *Refusals) Note(who Principal, from string) {
	o := origin{Unknown, from}
	if at, err := netip.ParseAddrPort(from); err == nil {
		o.who = at.Addr().String()
	}
	if who.Tenant != "" {
		o.reason, o.who = Removed, who.Name+" of tenant "+who.Tenant
		if !who.live(r.clock.Wall()) {
			o.reason = Expired
		}
	}
	r.counts[o.reason].Add(1)
	if r.first(o, from) {
		r.line(o, from, 1)
	}
}

// first counts a refusal, and reports whether it is the first one of its origin since a while.
func (r *Refusals) first(o origin, from string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.seen[o]
	if u == nil && r.known[o.reason] >= maxOrigins {
		o.who = otherOrigins
		u = r.seen[o]
	}
	if u == nil {
		r.seen[o] = new(untold)
		r.known[o.reason]++
		return true
	}
	u.n++
	u.from = from
	return false
}

// tell logs what came since the last line of each origin, and forgets origins from which nothing came.
func (r *Refusals) tell() {
	for o, u := range r.take() {
		r.line(o, u.from, u.n)
	}
}

// take returns what is to be told, and counts from 0 again.
func (r *Refusals) take() map[origin]untold {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[origin]untold)
	for o, u := range r.seen {
		if u.n == 0 {
			delete(r.seen, o)
			r.known[o.reason]--
			continue
		}
		out[o] = *u
		u.n = 0
	}
	return out
}

func (r *Refusals) line(o origin, from string, n uint64) {
	if o.reason == Unknown {
		r.log.Warn("auth: a token that is not known is refused", "from", o.who, "refusals", n)
		return
	}
	r.log.Warn("auth: a token that is not valid any more is refused", "reason", o.reason, "token_of", o.who, "from", from, "refusals", n)
}
