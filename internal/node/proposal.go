package node

import (
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// proposal is commits that arrived together and are answered together.
type proposal struct {
	// All of one partition, in the order in which they are applied.
	commits []core.Commit
	// Upper bound of their size in an entry.
	bytes int
	// Called exactly once, on any goroutine.
	done func(core.Proposed)
	// What it settles; set for the settles of a session.
	settles *settling
}

// refuse ends a proposal that was in no entry. What it was to settle is held still, and takes its slots back.
func (p *proposal) refuse(why core.Fact) {
	if p.settles != nil {
		d := p.settles.session.d
		d.mu.Lock()
		p.settles.session.unsettle(p.settles.holds)
		d.mu.Unlock()
	}
	p.done(core.Proposed{Err: why})
}

// inflight is one entry that was proposed and not yet applied.
type inflight struct {
	// The entry as it was encoded; nothing changes it any more.
	entry *core.Entry
	// In the order of their commits in the entry.
	proposals []*proposal
	// One per Grant commit, after all proposals' commits.
	grants []*grant
	// Ready tasks that the entry's creates may add.
	creates []creating
	// A ClockShift goes before all else.
	shifts bool
	// A TermStart goes before the tick.
	stood bool
	// A Tick goes behind the proposals' commits.
	tick bool
	// How long the applier took for the entry, without its answers.
	took time.Duration
	// The commits of sessions that were lost, behind the tick's.
	lost []core.Commit
	// How many slots of crons are done, behind the lost sessions and before the grants.
	crons int
	// Set if it holds the first commit of this term.
	term uint64
}

// first returns where in the entry the proposals' commits begin.
func (f *inflight) first() int {
	if f.shifts {
		return 1
	}
	return 0
}

// pending holds the entries that this replica proposed in this run of the node and that are not applied yet. The loop adds
// them; the applier takes them.
type pending struct {
	// Guards bySeq.
	mu sync.Mutex
	// By the sequence number of the entry.
	bySeq map[uint64]*inflight
}

// add enters an entry before it is proposed, so that the applier finds it however soon it is applied.
func (p *pending) add(seq uint64, f *inflight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bySeq == nil {
		p.bySeq = make(map[uint64]*inflight)
	}
	p.bySeq[seq] = f
}

// take removes and returns the entry with a sequence number; nil if it is not here.
func (p *pending) take(seq uint64) *inflight {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.bySeq[seq]
	delete(p.bySeq, seq)
	return f
}

// takeAll removes and returns all entries, in the order in which they were proposed.
func (p *pending) takeAll() []*inflight {
	p.mu.Lock()
	bySeq := p.bySeq
	p.bySeq = nil
	p.mu.Unlock()
	out := make([]*inflight, 0, len(bySeq))
	for _, seq := range sortedKeys(bySeq) {
		out = append(out, bySeq[seq])
	}
	return out
}

// len is how many entries are proposed and not applied.
func (p *pending) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.bySeq)
}
