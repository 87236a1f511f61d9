package sim

import (
	"time"

	"github.com/millrace/millrace/internal/core"
)

// led is how a host last saw itself as leader of a shard: the term, 0 if it does not lead, and
// whether it serves.
type led struct {
	term   uint64
	serves bool
}

// leaderKey names a term of a shard, which has at most one leader.
type leaderKey struct {
	shard core.ShardID
	term  uint64
}

// leadership is one leader's term.
type leadership struct {
	host uint64
	// The leader's boot clock when it was first seen to lead.
	boot time.Duration
	// The stamp of the term's first commit, set when opened is.
	stamp  core.ShardTime
	opened bool
}

// lead records whether a host leads a shard. A term has one leader, and a leader serves only when
// it has applied everything that was ever acknowledged.
func (h *host) lead(shard core.ShardID) {
	l := h.w.ledger
	term, serves := h.node.Leads(shard)
	if h.terms[shard] == (led{term, serves}) {
		return
	}
	h.terms[shard] = led{term, serves}
	if term == 0 {
		return
	}
	k := leaderKey{shard, term}
	switch was := l.leaders[k]; {
	case was == nil:
		h.w.note("leader %d of %d in %d", h.id, shard, term)
		l.leaders[k] = &leadership{host: h.id, boot: h.clock.Boot()}
		l.newest[shard] = max(l.newest[shard], term)
	case was.host != h.id:
		h.w.violate("hosts %d and %d both lead shard %d in term %d", was.host, h.id, shard, term)
	}
	if sh, err := h.state.Shard(shard); err == nil && serves && term == l.newest[shard] {
		if index, _ := sh.Applied(); index < l.top[shard] {
			h.w.violate("host %d serves shard %d in term %d at entry %d, and entry %d was acknowledged", h.id, shard, term, index, l.top[shard])
		}
	}
}

// clockSlack is how far a right clock may be ahead of the true time, and so how far shard time may
// step with it. Clocks agree within a second, and drift while a fault lasts.
const clockSlack core.Millis = 3000

// checkTime compares the stamp of a new entry with the clocks. Shard time never falls. Within a
// term it goes no faster than the leader's boot clock. At the start of a term it steps forward only
// to a time that most clocks show.
func (y *history) checkTime(w *world, shard core.ShardID, term uint64, e *core.Entry) {
	last := y.stamps[shard]
	if e.Stamp < last {
		w.violate("shard %d: shard time falls from %d to %d", shard, last, e.Stamp)
	}
	y.stamps[shard] = e.Stamp
	l := w.ledger.leaders[leaderKey{shard, term}]
	if l == nil {
		return
	}
	if !l.opened {
		l.opened, l.stamp = true, e.Stamp
		if core.Millis(e.Stamp-last).Duration() >= time.Minute {
			w.ledger.age() // a term that no majority confirmed the time to, and days that are caught up with now
		}
		if e.Stamp > last && e.Stamp > w.shardTime().Add(clockSlack) && len(w.hosts) > 1 {
			w.violate("shard %d: term %d steps %v beyond the time that most clocks show", shard, term, core.Millis(e.Stamp-w.shardTime()).Duration())
		}
		return
	}
	if ran := w.host(l.host).clock.Boot() - l.boot; core.Millis(e.Stamp-l.stamp).Duration() > ran+time.Millisecond {
		w.violate("shard %d: shard time went on by %v in term %d, whose leader's clock went on by %v", shard, core.Millis(e.Stamp-l.stamp).Duration(), term, ran)
	}
}
