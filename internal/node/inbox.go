package node

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
)

// inbox is what other goroutines leave for the loop of a shard. Each of them pokes the loop afterwards.
type inbox struct {
	// Guards all fields.
	mu sync.Mutex
	// queue holds the proposals that wait for an entry, in the order in which they came. Besides those of the shard itself they are
	// of one tenant; while those of several wait, they are in fair and queue is empty.
	queue []*proposal
	// tenant is the one of queue; 0: all are of the shard itself.
	tenant core.TenantID
	// fair is nil while at most one tenant waits.
	fair *fair
	// weights are those of tenants that have one.
	weights map[core.TenantID]int64
	// commits is how many commits the proposals of queue, or of fair, have.
	commits int
	// lazy holds renewals. They wait for other proposals to share an entry with, for RenewEvery at most.
	lazy []*proposal
	// lazyAt is the boot time at which the first of lazy came.
	lazyAt time.Duration
	// bytes of the proposals of queue, fair and lazy.
	bytes int64
	// closed is set when the loop ends: nothing is taken any more.
	closed bool

	// What the loop takes at its next step.
	arrived

	// messageBytes is the size of the messages of peers.
	messageBytes int
	// dropped counts messages of peers for which there was no room.
	dropped uint64
}

// arrived is what the loop takes out of its inbox at each step.
type arrived struct {
	// Appends that the log has finished, or failed.
	appends []appendDone
	// Runs of entries that the applier has applied.
	applies []*replog.Apply
	// State of another replica that was put in place of this one's.
	installed *installing
	// Messages of peers, in the order in which they came.
	messages []peerMessage
}

// appendDone is an append that the log has finished.
type appendDone struct {
	// The append, as the loop waits for it.
	w *appendWait
	// Why it failed; the node ends then.
	err error
}

// add takes a proposal, or says why there is no room for it. Refusal says whether this replica has stopped to lead. It is asked
// under the lock: a loop that steps down later finds the proposal.
func (in *inbox) add(p *proposal, lazy bool, o *Options, refusal func() core.Fact) core.Fact {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return core.Unavailable{Reason: "stopping"}
	}
	if refuse := refusal(); refuse != nil {
		return refuse
	}
	if refuse := in.full(p, o); refuse != nil {
		return refuse
	}
	in.bytes += int64(p.bytes)
	if lazy {
		if len(in.lazy) == 0 {
			in.lazyAt = o.Clock.Boot()
		}
		in.lazy = append(in.lazy, p)
	} else {
		in.push(p)
	}
	return nil
}

// full says why there is no room for a proposal. While those of one tenant wait, the bounds are those of the shard; another tenant
// always finds room next to it. The lock is held.
func (in *inbox) full(p *proposal, o *Options) core.Fact {
	switch {
	case in.fair != nil:
		return in.fair.refusal(p, in.fair.waiting+len(in.lazy), o.QueueProposals, in.bytes, o.QueueBytes)
	case in.tenant != 0 && p.tenant() != 0 && p.tenant() != in.tenant:
		return nil
	case len(in.queue)+len(in.lazy) >= o.QueueProposals:
		return core.Unavailable{Reason: "overload", Limit: "proposals"}
	case in.bytes+int64(p.bytes) > o.QueueBytes:
		return core.Unavailable{Reason: "overload", Limit: "proposal_bytes"}
	}
	return nil
}

// push adds a proposal behind those that wait. The lock is held.
func (in *inbox) push(p *proposal) {
	in.commits += len(p.commits)
	if in.fair != nil {
		in.fair.push(p)
		return
	}
	switch t := p.tenant(); {
	case t == 0 || t == in.tenant:
	case in.tenant == 0:
		in.tenant = t
	default:
		in.fair = &fair{weights: in.weights}
		for _, had := range in.queue {
			in.fair.push(had)
		}
		in.fair.push(p)
		in.queue, in.tenant = nil, 0
		return
	}
	in.queue = append(in.queue, p)
}

// receive takes a message of a peer. It is dropped if the messages that wait take max bytes, or if the loop has ended: Raft sends
// again what matters. It reports whether the message was taken.
func (in *inbox) receive(m peerMessage, max int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed || len(in.messages) > 0 && int64(in.messageBytes+len(m.msg)) > max {
		in.dropped++
		return false
	}
	in.messages = append(in.messages, m)
	in.messageBytes += len(m.msg)
	return true
}

// appended leaves an append that the log has finished or failed.
func (in *inbox) appended(w *appendWait, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.appends = append(in.appends, appendDone{w, err})
}

// applied leaves a run of entries that the applier has applied.
func (in *inbox) applied(a *replog.Apply) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.applies = append(in.applies, a)
}

// install leaves a state that was exchanged; there is one at a time.
func (in *inbox) install(i *installing) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.installed = i
}

// weigh takes over the weights of tenants, which nothing changes any more.
func (in *inbox) weigh(weights map[core.TenantID]int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.weights = weights
	if in.fair != nil {
		in.fair.weights = weights
	}
}

// take removes and returns all but the proposals.
func (in *inbox) take() arrived {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.arrived
	in.arrived, in.messageBytes = arrived{}, 0
	return a
}

// waiting returns how many commits wait for an entry, without renewals.
func (in *inbox) waiting() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.commits
}

// renewalsAt returns the boot time at which renewals wait no longer for company; false if none waits.
func (in *inbox) renewalsAt(every time.Duration) (at time.Duration, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.lazyAt + every, len(in.lazy) > 0
}

// hurry lets renewals that wait for company wait no longer.
func (in *inbox) hurry(o *Options) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lazyAt = o.Clock.Boot() - o.RenewEvery
}

// gather removes and returns proposals for one entry, up to an entry's size, and their commits: in order, or as fair has it. Renewals
// join when another proposal makes an entry anyway, or when they have waited long enough.
func (in *inbox) gather(o *Options) ([]*proposal, []core.Commit) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.lazy) > 0 && (in.commits > 0 || o.Clock.Boot() >= in.lazyAt+o.RenewEvery) {
		for _, p := range in.lazy {
			in.push(p)
		}
		in.lazy = nil
	}
	proposals, count := in.some(o)
	if len(proposals) == 0 {
		return nil, nil
	}
	in.commits -= count
	commits := make([]core.Commit, 0, count+grantRoom)
	for _, p := range proposals {
		commits = append(commits, p.commits...)
	}
	return proposals, commits
}

// some removes and returns the proposals of one entry, and how many commits they have. The lock is held.
func (in *inbox) some(o *Options) (proposals []*proposal, count int) {
	if f := in.fair; f != nil {
		had := f.bytes
		proposals, count = f.gather(o.EntryBytes, o.EntryCommits)
		in.bytes -= had - f.bytes
		if !f.several() { // in the order that they would have gone in
			in.fair, in.tenant = nil, 0
			for _, p := range f.drain() {
				in.commits -= len(p.commits)
				in.push(p)
			}
		}
		return proposals, count
	}
	size, n := 0, 0
	for n < len(in.queue) {
		p := in.queue[n]
		if n > 0 && (size+p.bytes > o.EntryBytes || count+len(p.commits) > o.EntryCommits) {
			break
		}
		size += p.bytes
		in.bytes -= int64(p.bytes)
		count += len(p.commits)
		n++
	}
	if n == 0 {
		return nil, 0
	}
	proposals = slices.Clone(in.queue[:n])
	clear(in.queue[:n])
	in.queue = in.queue[n:]
	if len(in.queue) == 0 {
		in.queue, in.tenant = nil, 0
	}
	return proposals, count
}

// drain removes and returns all proposals.
func (in *inbox) drain() []*proposal {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := append(in.queue, in.lazy...)
	if in.fair != nil {
		all = append(all, in.fair.drain()...)
	}
	in.queue, in.lazy, in.fair, in.tenant, in.bytes, in.commits = nil, nil, nil, 0, 0, 0
	return all
}

// close refuses everything that comes from here on.
func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
}

// stats writes what waits.
func (in *inbox) stats(st *ShardStats) {
	in.mu.Lock()
	defer in.mu.Unlock()
	st.Proposals, st.ProposalBytes = len(in.queue)+len(in.lazy), in.bytes
	if in.fair != nil {
		st.Proposals += in.fair.waiting
	}
	st.InboxBytes, st.InboxDropped = in.messageBytes, in.dropped
}
