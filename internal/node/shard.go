package node

import (
	"sync/atomic"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// shard is this node's replica of one shard. Its state is divided by who may change it: the loop, other goroutines by way of the
// inbox, the applier, and what all may read. Parts with a lock of their own guard themselves. See DESIGN.md.
type shard struct {
	n     *Node
	id    core.ShardID
	store *store.Shard

	loop    loopState    // of the loop goroutine alone
	in      inbox        // what others leave for the loop
	applier applierState // of the applier goroutine, which others may read under its lock
	view    shardView    // what any goroutine may read

	// These parts guard themselves.
	disp     *dispatcher
	pending  pending
	points   points
	role     role
	clock    shardClock
	waits    waits
	rounds   rounds
	hashes   hashes
	standing standing
	snap     snapshots
	transfer transfer

	wake    chan struct{}    // holds one: the loop is to take a turn
	applyC  chan applierWork // from the loop to the applier
	advance notifier         // of changes of view.applied

	// mayLack is how many acknowledged entries a power cut may have taken from the log's end before this run.
	mayLack uint64
	// alone is set if this replica was the only one from the start on: it has no other replica to ask.
	alone atomic.Bool
}

// shardView is what any goroutine may read of a shard without a lock.
type shardView struct {
	// ready says that this replica leads and has applied an entry of its own term. It changes under role's lock.
	ready atomic.Bool
	// timers says that a Tick is proposed and not applied.
	timers atomic.Bool
	// more says that the last Tick left work that is due.
	more atomic.Bool
	// applied is the index of the last applied entry.
	applied atomic.Uint64
	// due is the shard time of the earliest timed work, after the last applied entry.
	due atomic.Int64
	// lastSeen is the stamp of the last applied entry.
	lastSeen atomic.Int64
	// shifted is what wall clocks show beyond shard time, in milliseconds, as applied.
	shifted atomic.Int64
	// fresh is a boot time: everything that was committed by then is applied here, as a majority confirmed.
	fresh atomic.Int64
	// leader is the node that leads, as far as this replica knows; 0: none.
	leader atomic.Uint64
	// safe is an index: every replica has all entries up to it.
	safe atomic.Uint64
	// conf is the configuration of the shard's log, as applied. The applier changes it.
	conf atomic.Pointer[replog.Conf]
	// reached lists the replicas that the leader heard of recently, in ascending order. The loop changes it.
	reached atomic.Pointer[[]uint64]
	// unled says that the replica had heard of no leader for a while at its last tick.
	unled atomic.Bool
}

func (s *shard) now() core.ShardTime {
	return s.clock.now(s.n.o.Clock.Boot())
}

func (s *shard) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// enqueue takes a proposal, or refuses it at once by calling done.
func (s *shard) enqueue(p *proposal, lazy bool) {
	if !s.view.ready.Load() {
		p.refuse(s.notLeading())
		return
	}
	if refuse := s.in.add(p, lazy, &s.n.o, s.refusal); refuse != nil {
		p.refuse(refuse)
		return
	}
	s.poke()
}

// refusal says why this replica takes no proposals, nil if it leads and serves.
func (s *shard) refusal() core.Fact {
	if s.view.ready.Load() {
		return nil
	}
	return s.notLeading()
}
