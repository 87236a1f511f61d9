package node

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
)

// notLeading says why this node takes no proposal for the shard, and who does.
func (s *shard) notLeading() core.Fact {
	if leader := s.view.leader.Load(); leader != s.n.o.Replica {
		if m := s.n.who().member(leader); m != nil && m.API != "" {
			return core.NotLeader{Leader: m.API}
		}
	}
	return core.Unavailable{Reason: "no_leader"}
}

// served reports whether somebody takes proposals of the shard, as far as this node knows.
func (s *shard) served() bool {
	leader := s.view.leader.Load()
	return s.view.ready.Load() || leader != 0 && leader != s.n.o.Replica
}

// role is the term in which this replica leads; 0 = it does not.
type role struct {
	// Guards term, and changes of the shard's ready.
	mu sync.Mutex
	// The term; it changes when the loop sees another one.
	term uint64
}

// enterTerm notes a new term or leader. Nothing is served before the leader's first commit of its term is applied.
func (s *shard) enterTerm(st replog.Status) {
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	s.role.term = 0
	if st.Leading {
		s.role.term = st.Term
	}
	s.view.ready.Store(false)
}

// serve begins to serve a term whose first commit was applied, unless it is over already.
func (s *shard) serve(term uint64) bool {
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	if s.role.term != term {
		return false
	}
	s.view.ready.Store(true)
	s.n.moved.notify()
	return true
}

// Leads returns the term in which this node leads a shard, or 0, and whether it serves: it has applied the first commit of
// that term.
func (n *Node) Leads(shard core.ShardID) (term uint64, serves bool) {
	s := n.shards[shard]
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	return s.role.term, s.view.ready.Load()
}

// stepDown ends what only a leader's node may keep waiting. Proposals in the log may yet be applied under the next leader,
// so their outcome is unknown; streams and claims go where the leader is.
func (s *shard) stepDown() {
	s.abandon(core.Unavailable{Reason: "no_leader", Unknown: true})
	s.disp.stepDown(s.notLeading())
}

// abandon ends everything that waits: what was proposed is unknown, what was not is refused.
func (s *shard) abandon(why core.Unavailable) {
	for _, f := range s.pending.takeAll() {
		s.drop(f, why)
	}
	queue := s.in.drain()
	refused := why
	refused.Unknown = false
	for _, p := range queue {
		p.refuse(refused)
	}
}

// stepDown ends all sessions and claims of a shard that this node leads no more, and forgets what they waited for.
func (d *dispatcher) stepDown(why core.Fact) {
	d.mu.Lock()
	sessions := slices.SortedFunc(maps.Values(d.sessions), func(a, b *session) int {
		return slices.Compare(a.spec.ID[:], b.spec.ID[:])
	})
	for _, ses := range sessions {
		ses.end()
	}
	for _, c := range d.waitingClaims() {
		c.over = true
		c.end(claimed{err: why})
	}
	clear(d.releasing)
	d.graces.clear()
	d.mu.Unlock()
	for _, ses := range sessions {
		ses.sink.End(why)
	}
}

// spreadEvery is how long a node waits between attempts to lead a shard home, and spreadRest how long a shard
// stays with a leader at least.
const (
	spreadEvery = time.Second
	spreadRest  = 10 * time.Second
)

// home returns the replica that a shard is led by when all are well: shards are dealt out to the nodes in turn.
func (s *shard) home() uint64 {
	r, conf := s.n.who(), s.loop.core.Conf()
	voters := slices.DeleteFunc(r.voters(), func(id uint64) bool { return !slices.Contains(conf.Voters, id) || r.drained(id) })
	if len(voters) == 0 {
		return s.n.o.Replica
	}
	return voters[int(s.id)%len(voters)]
}

// spread hands the shard to the replica it is at home with, once that has all of the log.
func (s *shard) spread(now time.Duration) {
	if !s.loop.leading || !s.view.ready.Load() || now < s.loop.spreadAt || s.n.leaving.Load() {
		return
	}
	if !s.transfer.balances.Load() && (now < s.loop.settledAt+spreadRest || s.transfer.keeps.Load()) {
		return
	}
	home := s.home()
	if home == s.n.o.Replica || s.transfer.request.Load() != nil {
		return
	}
	last := s.loop.core.Status().Last
	for _, f := range s.loop.core.Followers() {
		// Checked with each tick: once a second, in the tick in which Raft counts its quorum, no follower is active.
		if f.Replica == home && f.Active && f.Match+1 >= last {
			s.loop.spreadAt = now + spreadEvery
			s.n.o.Logger.Info("leadership goes home", "shard", s.id, "to", home)
			s.ask(home, now+spreadTimeout)
		}
	}
}
