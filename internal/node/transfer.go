package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
)

// How leadership moves: a shard's leader holds back new proposals, waits until all that is in its log is applied and
// answered and the heir has it durably, and asks the heir to campaign at once. So nothing that was proposed is left in
// doubt, no client waits for an election's timeout, and what was held back is refused as not proposed.
//
// A leader whose own disk does not answer goes on sending heartbeats, so no other replica would ever campaign, though nothing
// is acknowledged any more: it hands its shards over without that wait.
const (
	// transferHold bounds how long proposals are held back in one attempt; it covers the time in which Raft gives a transfer up.
	transferHold = 2 * time.Second
	// transferPause is the time between two attempts, and between the beginning of a lead that is not to stay and the first
	// attempt. Proposals go through in it.
	transferPause = 200 * time.Millisecond
	// transferLag is how many entries the new leader may be behind when proposals begin to be held back: what is in flight.
	transferLag = 64
	// transferPoll is how often a caller that waits for a transfer polls.
	transferPoll = 5 * time.Millisecond
	// diskPatience is how long the log may wait for its disk before this node leads nothing any more. It is longer than a
	// disk takes that is only busy.
	diskPatience = 2 * time.Second
	// spreadTimeout bounds an attempt to move a shard to its home node.
	spreadTimeout = 5 * time.Second
)

// reacher is a Network that knows which nodes it has a connection to.
type reacher interface{ Reaches(to uint64) bool }

// transferRequest asks that another replica leads a shard.
type transferRequest struct {
	// The replica that is to lead; 0: any that is ready.
	to uint64
	// Boot time at which it is given up.
	until time.Duration
}

// transfer is what a leader's loop remembers of a transfer under way. What is not atomic is the loop's.
type transfer struct {
	// What was asked for; nil: leadership stays. The loop forgets it, or who asked.
	request atomic.Pointer[transferRequest]
	// 1 plus the replica of the request when no candidate can be reached; 0: one can.
	alone atomic.Uint64
	// An operator wants this node to lead the shard: it does not move home by itself.
	keeps atomic.Bool
	// An operator wants it to move home now.
	balances atomic.Bool

	// Proposals are held back.
	holding bool
	// Boot time when holding began.
	since time.Duration
	// No attempt is made before this boot time.
	rest time.Duration
	// The last replica that was asked to take over and did not; 0: none.
	tried uint64
}

// standing is what a shard's loop last saw of its log, for others to read.
type standing struct{ term, commit, last, changes atomic.Uint64 }

// note keeps what the log says of itself.
func (s *shard) note(st replog.Status) {
	s.standing.term.Store(st.Term)
	s.standing.commit.Store(st.Commit)
	s.standing.last.Store(st.Last)
	old := s.view.leader.Swap(st.Leader)
	if old == st.Leader {
		return
	}
	s.n.moved.notify()
	if st.Leader != 0 {
		s.standing.changes.Add(1)
	}
}

// moves takes leadership that is to move a step on, and reports whether proposals are held back meanwhile.
func (s *shard) moves(st replog.Status) bool {
	m, now := &s.transfer, s.n.o.Clock.Boot()
	r := m.request.Load()
	hangs := s.n.o.Log.Writing() >= diskPatience
	if hangs || s.n.leadsNothing() {
		r = &transferRequest{until: now + 1}
	}
	switch {
	case s.loop.core.Transferring(): // Raft takes no proposal meanwhile
		m.holding = true
		return true
	case r == nil:
		m.holding = false
		return false
	case now >= r.until:
		m.request.CompareAndSwap(r, nil)
		m.holding = false
		return false
	case m.holding && now >= m.since+transferHold:
		m.holding, m.rest = false, now+transferPause
		return false
	case now < m.rest:
		return false
	}
	heir := s.heir(r.to, st.Last)
	if heir.Replica == 0 {
		m.holding = false
		return false
	}
	if !m.holding {
		m.holding, m.since = true, now
	}
	// What the own disk does not take is not applied here either: it is left in doubt, rather than wait for that disk.
	if (hangs || s.view.applied.Load() >= st.Last) && heir.Match >= st.Last {
		s.n.o.Logger.Info("leadership moves", "shard", s.id, "to", heir.Replica, "disk_hangs", hangs)
		m.tried = heir.Replica
		s.loop.core.Transfer(heir.Replica)
	}
	return true
}

// heir returns the replica that leadership moves to: the one that is wanted, or the one that has most of the log. It must
// be heard of, and have nearly all. One that did not take over is taken again only if there is no other.
func (s *shard) heir(to, last uint64) (best replog.Progress) {
	reached, knows := s.n.o.Network.(reacher)
	alone := 1 + to
	who := s.n.who()
	for _, f := range s.loop.core.Followers() {
		m := who.member(f.Replica)
		if f.Learner || m == nil || m.State == core.MemberRemoving || m.Drained && to == 0 && !s.n.leaving.Load() {
			continue
		}
		reachable := f.Active
		if knows {
			reachable = reached.Reaches(m.Node)
		}
		if !reachable || to != 0 && f.Replica != to {
			continue
		}
		alone = 0
		switch again := f.Replica == s.transfer.tried; {
		case !f.Active || f.Match+transferLag < last: // it may yet be heard of, and catch up
		case best.Replica == 0, best.Replica == s.transfer.tried, f.Match > best.Match && !again:
			best = f
		}
	}
	s.transfer.alone.Store(alone)
	return best
}

// moved forgets a move, when this replica begins or ceases to lead. One that begins while its node is to lead nothing leads for
// transferPause: where that holds for all nodes, they would else hand over to each other without serving in between.
func (s *shard) moved(leading bool) {
	m := &s.transfer
	m.holding, m.rest, m.tried = false, 0, 0
	if leading && s.n.leadsNothing() {
		m.rest = s.n.o.Clock.Boot() + transferPause
	}
	m.request.Store(nil)
	m.alone.Store(0)
	m.balances.Store(false)
	if !leading {
		m.keeps.Store(false)
	}
}

// leadsNothing reports whether this node is to lead no shard: it is about to stop, or an operator has drained it.
func (n *Node) leadsNothing() bool { return n.leaving.Load() || n.who().drained(n.o.Replica) }

// ask asks for the shard's leadership to move.
func (s *shard) ask(to uint64, until time.Duration) *transferRequest {
	r := &transferRequest{to: to, until: until}
	s.transfer.request.Store(r)
	s.poke()
	return r
}

// leads reports whether this replica leads, serving or not.
func (s *shard) leads() bool {
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	return s.role.term != 0
}

// elsewhere reports whether another node leads, as far as this one knows.
func (s *shard) elsewhere() bool {
	leader := s.view.leader.Load()
	return leader != 0 && leader != s.n.o.Replica && !s.leads()
}

// HandOver moves the leadership of every shard that this node leads to other nodes, and from here on keeps none that it
// is given: for a node that is about to stop. It returns when others lead, as soon as it is known that no node can, and
// when ctx ends, with the number of shards that stayed.
func (n *Node) HandOver(ctx context.Context) (stayed int) {
	if !n.hasOthers() {
		return 0
	}
	n.leaving.Store(true)
	var led []*shard
	for _, s := range n.shards {
		if s.leads() {
			led = append(led, s)
			s.transfer.alone.Store(0)
			s.poke()
		}
	}
	for _, s := range led {
		n.waitFor(ctx, func() bool { return s.elsewhere() || s.transfer.alone.Load() == 1 || !n.reaches() })
		if !s.elsewhere() {
			stayed++
		}
	}
	return stayed
}

// Transfer moves the leadership of a shard that this node leads to another node, and returns when that leads. Errors:
// core.Invalid for a shard or a node that there is not, core.NotLeader and core.Unavailable when this node does not lead,
// core.Unavailable when the other is not reached, does not catch up before ctx ends, or gives it back.
func (n *Node) Transfer(ctx context.Context, shard core.ShardID, node uint64) error {
	to := n.who().replicaOf(node)
	switch {
	case int(shard) >= len(n.shards):
		return core.Invalid{Field: "shard", Message: "there is no such shard"}
	case to == 0:
		return core.Invalid{Field: "to", Message: "there is no such node"}
	case n.who().drained(to):
		return core.Invalid{Field: "to", Message: "the node is drained"}
	}
	s := n.shards[shard]
	switch {
	case !s.view.ready.Load():
		return s.notLeading()
	case to == n.o.Replica:
		return nil
	}
	until := n.o.Clock.Boot() + time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		until = n.o.Clock.Boot() + deadline.Sub(n.o.Clock.Wall())
	}
	s.transfer.alone.Store(0)
	r := s.ask(to, until)
	n.waitFor(ctx, func() bool {
		return s.elsewhere() || s.transfer.alone.Load() == 1+to || s.transfer.request.Load() != r && s.leads()
	})
	switch unreached := s.transfer.alone.Load() == 1+to; {
	case s.view.leader.Load() == to:
		return nil
	case s.elsewhere():
		return s.notLeading()
	default:
		s.transfer.request.CompareAndSwap(r, nil)
		if unreached {
			return core.Unavailable{Reason: "node_unreached"}
		}
		return core.Unavailable{Reason: "not_taken_over"}
	}
}

// reaches reports whether this node has a connection to any other, or cannot tell.
func (n *Node) reaches() bool {
	reached, knows := n.o.Network.(reacher)
	if !knows {
		return true
	}
	any := false
	n.others(func(m *core.Member) { any = any || reached.Reaches(m.Node) })
	return any
}

// Keep has a shard stay with this node once it leads it, instead of going home: until it leads it no more.
func (n *Node) Keep(shard core.ShardID) {
	if int(shard) < len(n.shards) {
		n.shards[shard].transfer.keeps.Store(true)
	}
}

// Balance has the shards that this node leads go home now, also those that an operator had moved here.
func (n *Node) Balance() {
	for _, s := range n.shards {
		s.transfer.keeps.Store(false)
		s.transfer.balances.Store(true)
		s.poke()
	}
}

// waitFor waits until is holds. It returns false when ctx ended first, or the node stopped.
func (n *Node) waitFor(ctx context.Context, is func() bool) bool {
	for !is() {
		timer := n.o.Clock.NewTimer(transferPoll)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return is()
		case <-n.stopping:
			timer.Stop()
			return is()
		}
		timer.Stop()
	}
	return true
}

// Standing is how a shard stands on this node.
type Standing struct {
	// Number of the shard.
	Shard core.ShardID
	// Node that leads, as far as this one knows; 0: none.
	Leader uint64
	// This node leads and serves.
	Serves bool
	// The term that the log has seen last.
	Term uint64
	// Index up to which the log is known here to be committed.
	Commit uint64
	// Index of the last applied entry.
	Applied uint64
	// First index of the log: what was before is cut off.
	First uint64
	// Last index of the log.
	Last uint64
	// Changes of who leads, seen since the start.
	Changes uint64
	// Index up to which the state survives a power cut without the log.
	Durable uint64
	// Entries applied per second in about the last 10 s; negative: not known.
	Pace float64
	// The configuration as applied here, by replica.
	Conf replog.Conf
}

// Standings tells how every shard stands on this node, by number.
func (n *Node) Standings() []Standing {
	out := make([]Standing, len(n.shards))
	for i, s := range n.shards {
		out[i] = s.stand()
	}
	return out
}

// stand reads how the shard stands, from any goroutine.
func (s *shard) stand() Standing {
	applied := s.view.applied.Load() // first: it is never ahead of what is committed
	return Standing{
		First: s.n.o.Log.State(s.id).First, Shard: s.id, Leader: s.n.who().nodeOf(s.view.leader.Load()), Conf: *s.view.conf.Load(), Serves: s.view.ready.Load(), Term: s.standing.term.Load(), Applied: applied,
		Commit: max(s.standing.commit.Load(), applied), Last: max(s.standing.last.Load(), applied), Changes: s.standing.changes.Load(),
		Durable: s.store.Durable(), Pace: float64(s.view.pace.milli.Load()) / 1000,
	}
}
