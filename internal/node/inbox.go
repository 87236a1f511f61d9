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
	// queue holds the proposals that wait for an entry, in the order in which they came.
	queue []*proposal
	// commits is how many commits the proposals of queue have.
	commits int
	// lazy holds renewals. They wait for other proposals to share an entry with, for RenewEvery at most.
	lazy []*proposal
	// lazyAt is the boot time at which the first of lazy came.
	lazyAt time.Duration
	// bytes of the proposals of queue and lazy.
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
	switch {
	case len(in.queue)+len(in.lazy) >= o.QueueProposals:
		return core.Unavailable{Reason: "overload", Limit: "proposals"}
	case in.bytes+int64(p.bytes) > o.QueueBytes:
		return core.Unavailable{Reason: "overload", Limit: "proposal_bytes"}
	}
	in.bytes += int64(p.bytes)
	if lazy {
		if len(in.lazy) == 0 {
			in.lazyAt = o.Clock.Boot()
		}
		in.lazy = append(in.lazy, p)
	} else {
		in.queue = append(in.queue, p)
		in.commits += len(p.commits)
	}
	return nil
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

// gather removes and returns proposals for one entry, in order and up to an entry's size, and their commits. Renewals join
// when another proposal makes an entry anyway, or when they have waited long enough.
func (in *inbox) gather(o *Options) ([]*proposal, []core.Commit) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.lazy) > 0 && (len(in.queue) > 0 || o.Clock.Boot() >= in.lazyAt+o.RenewEvery) {
		for _, p := range in.lazy {
			in.commits += len(p.commits)
		}
		in.queue = append(in.queue, in.lazy...)
		in.lazy = nil
	}
	size, n, count := 0, 0, 0
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
		return nil, nil
	}
	in.commits -= count
	proposals := slices.Clone(in.queue[:n])
	commits := make([]core.Commit, 0, count+grantRoom)
	for _, p := range proposals {
		commits = append(commits, p.commits...)
	}
	clear(in.queue[:n])
	in.queue = in.queue[n:]
	if len(in.queue) == 0 {
		in.queue = nil
	}
	return proposals, commits
}

// drain removes and returns all proposals.
func (in *inbox) drain() []*proposal {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := append(in.queue, in.lazy...)
	in.queue, in.lazy, in.bytes, in.commits = nil, nil, 0, 0
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
	st.InboxBytes, st.InboxDropped = in.messageBytes, in.dropped
}
