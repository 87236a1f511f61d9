package auth

import (
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/env"
)

const (
	// AttemptsMinute is how many attempts to sign in may fail in a minute, from one address.
	AttemptsMinute = 10
	// LimitAttempts is the name of that limit.
	LimitAttempts = "sign_in_attempts"
	// attemptsFor is how long a failure counts, and attemptsFrom how many addresses are told apart; the others share one count.
	attemptsFor  = time.Minute
	attemptsFrom = 10_000
)

// Attempts bounds how often one address fails to sign in. It is safe for concurrent use.
type Attempts struct {
	clock env.Clock
	mu    sync.Mutex // guards from
	from  map[netip.Prefix]*attempts
}

// attempts are those of one address: when the first one was, and how many there were since.
type attempts struct {
	since time.Duration
	n     int
}

// NewAttempts returns a table without attempts.
func NewAttempts(clock env.Clock) *Attempts {
	return &Attempts{clock: clock, from: make(map[netip.Prefix]*attempts)}
}

// siteOf is what attempts are counted by: an address of IPv4, or the 64 bits of an address of IPv6 that one site has.
func siteOf(address string) netip.Prefix {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := at.Addr().Unmap(), 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// Begin counts an attempt before it is judged, so that attempts at once count too. ok is false where the address must wait.
func (a *Attempts) Begin(address string) (wait time.Duration, ok bool) {
	o, now := siteOf(address), a.clock.Boot()
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.from[o]
	if one == nil && len(a.from) >= attemptsFrom {
		for key, old := range a.from {
			if now-old.since >= attemptsFor {
				delete(a.from, key)
			}
		}
		if len(a.from) >= attemptsFrom {
			o = netip.Prefix{}
			one = a.from[o]
		}
	}
	if one == nil {
		one = new(attempts)
		a.from[o] = one
	}
	if one.n == 0 || now-one.since >= attemptsFor {
		*one = attempts{since: now}
	}
	if one.n >= AttemptsMinute {
		return attemptsFor - (now - one.since), false
	}
	one.n++
	return 0, true
}

// Succeeded takes an attempt back: only those that fail count.
func (a *Attempts) Succeeded(address string) {
	o := siteOf(address)
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.from[o]
	if one == nil {
		one = a.from[netip.Prefix{}] // where those beyond the bound are counted
	}
	if one != nil && one.n > 0 {
		one.n--
	}
}
