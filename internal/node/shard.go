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
	// The node that it is of, whose options and roster it goes by.
	n  *Node
	id core.ShardID
	// Its state. Only the applier writes it.
	store *store.Shard

	// Of the loop goroutine alone.
	loop loopState
	// What others leave for the loop.
	in inbox
	// Of the applier goroutine, which others may read under its lock.
	applier applierState
	// What any goroutine may read.
	view shardView

	// These parts guard themselves.
	disp *dispatcher
	// Entries that this replica proposed and that are not applied.
	pending pending
	// Collections and their indexes.
	points points
	// Whether this replica leads, and in which term.
	role role
	// Shard time, while this replica leads.
	clock shardClock
	// Callers that wait for the end of a task.
	waits waits
	// Reads that wait until a majority confirms the leader.
	rounds rounds
	// Hashes of the state, compared between replicas.
	hashes hashes
	// What the log last said of itself, for other goroutines.
	standing standing
	// Snapshots that are made, offered, fetched and installed.
	snap snapshots
	// The transfer of leadership under way.
	transfer transfer

	// Holds one: the loop is to take a turn.
	wake chan struct{}
	// What the loop gives to the applier; the loop closes it at its end.
	applyC chan applierWork
	// applying is how much of that the applier has not done. It stays above zero after a failure.
	applying atomic.Int64
	// Tells of changes of view.applied.
	advance notifier

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
	// timerCost is what each timer cost the applier, in nanoseconds, in the last Tick that left work.
	timerCost atomic.Int64
	// applied is the index of the last applied entry.
	applied atomic.Uint64
	// due is the shard time of the earliest timed work, after the last applied entry.
	due atomic.Int64
	// crons is the shard time at which something of a cron is due, likewise; firing says that slots of crons are proposed and not
	// applied, and cronsAt is a boot time before which none is proposed.
	crons   atomic.Int64
	firing  atomic.Bool
	cronsAt atomic.Int64
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
	// pace is how many entries it applies per second.
	pace entryPace
}

// now is shard time, as this replica reckons it. Only a leader's time decides anything.
func (s *shard) now() core.ShardTime {
	return s.clock.now(s.n.o.Clock.Boot())
}

// saw notes the stamp of the last applied entry.
func (s *shard) saw(stamp core.ShardTime) {
	s.view.lastSeen.Store(int64(stamp))
	s.clock.saw(stamp, s.n.o.Clock.Boot())
}

// poke has the loop take a turn soon. It never waits: a turn that is asked for and not begun will see this change
// too.
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
