package node

import "time"

// How long what waits is held while an entry before it is not committed, where there are other voters. Decision 0018 has the figures.
const (
	// holdShort is that on a network where a commit never takes less than slowCommit: entries follow each other there before
	// their answers come.
	holdShort = 2 * time.Millisecond
	// holdLong is that on a faster one. What waits could not be committed before the entry on its way anyhow, so it is late by
	// no more than slowCommit for it; and answers that take longer than usual mean that processors are busy, which larger
	// entries help.
	holdLong = 20 * time.Millisecond
	// slowCommit tells the two networks apart: a commit that takes longer is slow.
	slowCommit = 4 * time.Millisecond
	// paceWindow is the window of the estimate: the fastest commit of this window and the previous one.
	paceWindow = 5 * time.Second
	// paceOpen bounds the entries whose commit is timed.
	paceOpen = 64
)

// pace is how fast entries that this replica proposes are committed. The loop's. The SDK estimates answers to its frames in the same
// way (sdk/go/internal/transport/ack_pace.go).
type pace struct {
	// Entries that are proposed and not committed, in order; at most paceOpen.
	open []timedEntry
	// The fastest commit of this window; 0: nothing was committed in it.
	least time.Duration
	// The fastest commit of the window before; 0: nothing was committed in it.
	before time.Duration
	// Boot time when the window began.
	windowAt time.Duration
}

// timedEntry is an entry whose commit is waited for.
type timedEntry struct {
	// Its index in the log.
	index uint64
	// Boot time at which it was proposed.
	at time.Duration
}

// proposed takes note of an entry.
func (p *pace) proposed(index uint64, now time.Duration) {
	if len(p.open) < paceOpen {
		p.open = append(p.open, timedEntry{index, now})
	}
}

// committed takes note of how far the log is committed.
func (p *pace) committed(index uint64, now time.Duration) {
	n := 0
	for ; n < len(p.open) && p.open[n].index <= index; n++ {
		if d := max(now-p.open[n].at, 1); p.least == 0 || d < p.least {
			p.least = d
		}
	}
	p.open = append(p.open[:0], p.open[n:]...)
	if now >= p.windowAt+paceWindow {
		p.windowAt, p.before, p.least = now, p.least, 0
	}
}

// hold returns for how long what waits is held.
func (p *pace) hold() time.Duration {
	least := p.least
	if least == 0 || p.before > 0 && p.before < least {
		least = p.before
	}
	if least > 0 && least < slowCommit {
		return holdLong
	}
	return holdShort
}
