package node

import "time"

// A learner becomes a voter when it has caught up in every shard: it is at most Options.NearEntries behind, and has everything that
// its leader had a second ago. Otherwise the new voter could delay every entry.

// nearTime bounds the age of what a learner may lack.
const nearTime = time.Second

// mark is the last index of a log at a time.
type mark struct {
	at time.Duration // boot time
	// Index of the last entry then.
	last uint64
}

// marks has the last index of a leader's log at each tick of the last nearTime, oldest first; fewer when it has led for less.
type marks []mark

// note adds the end of the log now. Of the marks that are at least nearTime old it keeps the newest.
func (m marks) note(now time.Duration, last uint64) marks {
	m = append(m, mark{now, last})
	for len(m) > 1 && m[1].at <= now-nearTime {
		m = m[1:]
	}
	return m
}

// late reports whether a replica with the log up to match lacks entries that are older than nearTime.
func (m marks) late(match uint64) bool { return len(m) > 0 && match < m[0].last }

// learnerLag is how far a learner is behind.
type learnerLag struct {
	// How many entries of the leader's log it lacks.
	entries uint64
	// It lacks entries that are older than nearTime.
	late bool
}

// caughtUp reports whether a learner may become a voter.
func (n *Node) caughtUp(l learnerLag) bool { return l.entries <= n.o.NearEntries && !l.late }

// lagLate is the bit of a report that says learnerLag.late.
const lagLate = 1 << 63

// encode returns the lag as reports carry it. A number of entries never needs the highest bit.
func (l learnerLag) encode() uint64 {
	if l.late {
		return l.entries | lagLate
	}
	return l.entries
}

// decodeLag reads what encode returned.
func decodeLag(n uint64) learnerLag { return learnerLag{entries: n &^ lagLate, late: n&lagLate != 0} }

// lags returns how far behind each learner is that sent a message within heardFor.
func (s *shard) lags() map[uint64]learnerLag {
	out := make(map[uint64]learnerLag)
	last, now := s.loop.core.Status().Last, s.n.o.Clock.Boot()
	for _, f := range s.loop.core.Followers() {
		if at, ok := s.loop.heard[f.Replica]; f.Learner && ok && now-at < heardFor {
			out[f.Replica] = learnerLag{entries: last - min(last, f.Match), late: s.loop.marks.late(f.Match)}
		}
	}
	return out
}
