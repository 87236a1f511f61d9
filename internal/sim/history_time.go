package sim

import (
	"time"

	"github.com/millrace/millrace/internal/core"
)

// led is a term in which a host leads a shard, as the host itself saw it last.
type led struct {
	term   uint64
	serves bool
}

type leaderKey struct {
	shard core.ShardID
	term  uint64
}

// leadership is one leader's term.
type leadership struct {
	host   uint64
	boot   time.Duration  // its boot clock when it was first seen to lead
	stamp  core.ShardTime // of the term's first commit
	opened bool
}

// lead takes in whether a host leads a shard: one does in a term, and it serves only when it has applied all that was ever
// acknowledged.
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

// clockSlack is how far a right clock may be ahead of the true time, and a step of shard time with it: clocks agree within a
// second, and drift for as long as anything is wrong.
const clockSlack core.Millis = 3000

// checkTime holds the stamp of an entry that was applied for the first time to the clocks there are: shard time never falls,
// within a term it runs with the leader's boot clock, and at the start of one it steps forward only to a time that most
// clocks show.
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
