package transport

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// Why the keeper ends connections.
var (
	errSilent  = errors.New("nothing was heard for too long")
	errTooSlow = errors.New("it took too long")
	errCrowded = errors.New("too many connections are greeting at once")
)

// keep sends pings and ends what takes too long: silent connections, attempts, greetings. It counts
// time by its own rounds, so that one in which this process did not run ends nothing that its peers
// kept alive. A process that was suspended, or had no processor, counts two rounds at most for that
// time.
func (t *Transport) keep() {
	tick := max(t.o.IdleTimeout/6, time.Millisecond)
	timer := t.o.Clock.NewTimer(tick)
	defer timer.Stop()
	last := t.o.Clock.Boot()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-timer.C():
		}
		now := t.o.Clock.Boot()
		passed := min(max(now-last, 0), 2*tick)
		last = now
		t.pending.pass(passed)
		for _, p := range t.peerList() {
			p.keep(passed)
			for _, l := range p.links {
				l.ping()
			}
		}
		timer.Reset(tick)
	}
}

// keep ends the peer's connections on which nothing moved for too long. A connection with messages
// must bring something within the idle timeout, since the other side sends or answers pings; where
// large messages may keep it busy, within the stall timeout. A stream may be silent for as long as
// the peer is heard on any connection, unless a write of it is stuck.
func (p *peer) keep(passed time.Duration) {
	o := &p.t.o
	all := p.all()
	p.silent += passed
	for _, c := range all {
		n := c.moved()
		if n != c.seen || c.busy.Load() {
			c.seen = n
			c.still.Store(0)
			p.silent = 0
		} else {
			c.still.Add(int64(passed))
		}
	}
	for _, c := range all {
		limit := o.IdleTimeout
		switch {
		case c.isDead():
			p.leave(c) // a stream that broke and that its user still holds
			continue
		case c.class.carriesBytes() && !c.wire.writing.Load():
			if p.silent < o.StallTimeout {
				continue // a reader may wait as long as the peer lives
			}
			limit = o.StallTimeout
		case c.class.carriesBytes(), c.class == Parts, c.class == Bulk && c.outbound:
			limit = o.StallTimeout // the peer may be busy with what it was sent, or the link with a part
		}
		if time.Duration(c.still.Load()) >= limit {
			c.close(errSilent)
		}
	}
}

// attempt is a connection that is being made.
type attempt struct {
	// accepted is the connection's wire; nil: this node dials.
	accepted *wire
	// host is that of the dialling side.
	host string
	// member says that a peer is known to be at the host.
	member bool
	// age is for how long it has lasted, by the keeper's rounds.
	age    time.Duration
	limit  time.Duration
	cancel func(error)
}

// pending holds the connections that are being made, and bounds those that strangers make.
type pending struct {
	// most is how many accepted ones may speak: from where peers are, and again from elsewhere.
	most int

	mu       sync.Mutex // guards the fields below
	closed   bool
	attempts []*attempt // oldest first
	// accepts is how many of the attempts were accepted.
	accepts int
	// evicted counts those that were closed for want of room.
	evicted uint64
	// limit is the time for a greeting.
	limit time.Duration
}

// enter notes an attempt that cancel ends when it takes longer than limit.
func (p *pending) enter(limit time.Duration, cancel func(error)) *attempt {
	a := &attempt{limit: limit, cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(a)
	return a
}

// add notes an attempt, or ends it at once if the transport has ended. mu is held.
func (p *pending) add(a *attempt) {
	if p.closed {
		a.cancel(ErrClosed)
	}
	p.attempts = append(p.attempts, a)
}

// silentShare is the part of the time for a greeting in which its first byte must come.
const silentShare = 4

// silentPerGreeting is how many accepted connections may have said nothing yet, for each that may be greeting. An
// honest peer speaks at once, so silent ones are closed first, and soon; and they cost little.
const silentPerGreeting = 4

// spoke says whether the other side has sent anything.
func (a *attempt) spoke() bool { return a.accepted.reads.Load() > 0 }

// accepted notes a connection that is to greet, or returns nil: there is no room for it. Addresses where a peer is known to be
// have places of their own, as many as all others together, so that strangers from elsewhere do not keep peers out. Beyond a bound
// the host that has the most connections gives one up. Of those that say nothing that is the oldest: an honest peer has spoken by
// then. Of those that speak it is the newest; but at the address of a peer, which cannot be told from a stranger there, the
// oldest, as a greeting takes milliseconds.
func (p *pending) accepted(c *conn, host string, member bool) *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	var silent, speaking []*attempt // oldest first
	for _, a := range p.attempts {
		switch {
		case a.accepted == nil || a.member != member:
		case a.spoke():
			speaking = append(speaking, a)
		default:
			silent = append(silent, a)
		}
	}
	if len(silent) >= p.most*silentPerGreeting {
		p.evict(ofHost(silent, crowdedHost(silent, host))[0])
	}
	if len(speaking) >= p.most {
		crowded := crowdedHost(speaking, host)
		switch theirs := ofHost(speaking, crowded); {
		case member:
			p.evict(theirs[0])
		case crowded == host:
			p.evicted++
			return nil
		default:
			p.evict(theirs[len(theirs)-1])
		}
	}
	a := &attempt{accepted: c.wire, host: host, member: member, limit: p.limit, cancel: c.close}
	p.accepts++
	p.add(a)
	return a
}

// crowdedHost returns the host with the most attempts, of those with equally many that of the newcomer.
func crowdedHost(attempts []*attempt, newcomer string) string {
	counts := make(map[string]int)
	for _, a := range attempts {
		counts[a.host]++
	}
	most := newcomer
	for _, a := range attempts {
		if counts[a.host] > counts[most] {
			most = a.host
		}
	}
	return most
}

// ofHost returns the attempts of a host, in the order in which they came.
func ofHost(attempts []*attempt, host string) (out []*attempt) {
	for _, a := range attempts {
		if a.host == host {
			out = append(out, a)
		}
	}
	return out
}

// evict ends an accepted attempt for want of room. mu is held.
func (p *pending) evict(a *attempt) {
	p.attempts = slices.DeleteFunc(p.attempts, func(other *attempt) bool { return other == a })
	p.accepts--
	p.evicted++
	a.cancel(errCrowded)
}

// leave forgets an attempt that has come to an end.
func (p *pending) leave(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.attempts, a); i >= 0 {
		p.attempts = slices.Delete(p.attempts, i, i+1)
		if a.accepted != nil {
			p.accepts--
		}
	}
}

// pass ends attempts that took too long. Those that have said nothing have a part of the time only.
func (p *pending) pass(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.attempts {
		limit := a.limit
		if a.accepted != nil && !a.spoke() {
			limit /= silentShare
		}
		if a.age += d; a.age >= limit {
			a.cancel(errTooSlow)
		}
	}
}

// cancelAll ends all attempts, also those to come.
func (p *pending) cancelAll(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, a := range p.attempts {
		a.cancel(why)
	}
}

// counts returns how many accepted connections are greeting now, and how many were closed for want
// of room.
func (p *pending) counts() (accepts int, evicted uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepts, p.evicted
}

// A note of one kind about one peer is logged once in noteEvery: attempts repeat. Strangers cannot fill the table.
const (
	noteEvery = 10 * time.Second
	maxNotes  = 256
)

// note is what is logged once in a while: one kind of thing about one peer.
type note struct {
	kind   string
	peer   NodeID
	reason Reason
}

// notes remembers what was logged lately. When it is full it starts over, so that some things are
// logged more often, and nothing is lost.
type notes struct {
	clock env.Clock
	mu    sync.Mutex // guards last
	last  map[note]time.Duration
}

// newNotes returns notes without a memory.
func newNotes(clock env.Clock) notes {
	return notes{clock: clock, last: make(map[note]time.Duration)}
}

// fresh says whether to log.
func (n *notes) fresh(kind string, peer NodeID, reason Reason) bool {
	now := n.clock.Boot()
	n.mu.Lock()
	defer n.mu.Unlock()
	key := note{kind, peer, reason}
	if last, ok := n.last[key]; ok && now-last < noteEvery {
		return false
	}
	if len(n.last) >= maxNotes {
		clear(n.last)
	}
	n.last[key] = now
	return true
}
