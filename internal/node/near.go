package node

import "time"

// A learner becomes a voter when it is near in every shard: at most Options.NearEntries behind, and with everything that its
// leader had a second ago. Otherwise a voter more could mean waiting for it with every entry.

// nearTime is how old at most what a learner lacks may be.
const nearTime = time.Second

// mark is where a log ended at a time.
type mark struct {
	at   time.Duration // boot time
	last uint64
}

// marks are where the log of a leader ended, with each tick. The first is of nearTime ago, or of the time when the leader began
// to look, if that is later.
type marks []mark

func (m marks) note(now time.Duration, last uint64) marks {
	m = append(m, mark{now, last})
	for len(m) > 1 && m[1].at <= now-nearTime {
		m = m[1:]
	}
	return m
}

// late reports whether who has a log up to match lacks what is older than nearTime.
func (m marks) late(match uint64) bool { return len(m) > 0 && match < m[0].last }

// learnerLag is how far a learner is behind.
type learnerLag struct {
	entries uint64
	late    bool // it lacks what is older than nearTime
}

// near reports whether a learner may become a voter.
func (n *Node) near(l learnerLag) bool { return l.entries <= n.o.NearEntries && !l.late }

// lagLate is the bit that says so in a report.
const lagLate = 1 << 63

func (l learnerLag) encode() uint64 {
	if l.late {
		return l.entries | lagLate
	}
	return l.entries
}

func decodeLag(n uint64) learnerLag { return learnerLag{entries: n &^ lagLate, late: n&lagLate != 0} }

// lags returns how far each learner is behind that was heard of lately.
func (s *shard) lags() map[uint64]learnerLag {
	out := make(map[uint64]learnerLag)
	last, now := s.core.Status().Last, s.n.o.Clock.Boot()
	for _, f := range s.core.Followers() {
		if at, ok := s.heard[f.Replica]; f.Learner && ok && now-at < heardFor {
			out[f.Replica] = learnerLag{entries: last - min(last, f.Match), late: s.marks.late(f.Match)}
		}
	}
	return out
}
