package node

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
)

// rounds find out, for reads on any replica, what index a linearizable read must wait for: the leader's commit index,
// confirmed by a majority. One round is under way at a time and serves all reads that came before it began.
type rounds struct {
	// Guards the fields below.
	mu sync.Mutex
	// Reads that came since the round under way began: they are for the next one.
	waiting []*readWait
	// Reads that the round under way answers.
	asked []*readWait
	// Name of that round; empty = none. Each attempt has its own.
	name string
	// Boot time at which the round under way is asked again.
	retry time.Duration
	// Number of the last round. It begins at random, so that no answer to an earlier run of this node ends a round of
	// this.
	number uint64
}

// readWait is one read. index is buffered, and closed without a value when the node stops.
type readWait struct{ index chan uint64 }

// roundRetry is after what time a round that had no answer is asked again: the message was lost, or the leader is gone.
const roundRetry = 300 * time.Millisecond

// add takes a read in for the next round.
func (r *rounds) add() *readWait {
	w := &readWait{index: make(chan uint64, 1)}
	r.mu.Lock()
	r.waiting = append(r.waiting, w)
	r.mu.Unlock()
	return w
}

// drop forgets a read that waits no more.
func (r *rounds) drop(w *readWait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range []*[]*readWait{&r.waiting, &r.asked} {
		for i, other := range *list {
			if other == w {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				return
			}
		}
	}
}

// next returns the name of a round to begin, or an empty one.
func (r *rounds) next(now time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.name != "" && now < r.retry || len(r.waiting)+len(r.asked) == 0 {
		return ""
	}
	r.asked, r.waiting = append(r.asked, r.waiting...), nil
	r.number++
	r.name, r.retry = string(binary.BigEndian.AppendUint64(nil, r.number)), now+roundRetry
	return r.name
}

// wanted reports whether a read waits for a round.
func (r *rounds) wanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)+len(r.asked) > 0
}

// due returns when the loop must look again; false = it need not.
func (r *rounds) due() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retry, r.name != "" && len(r.waiting)+len(r.asked) > 0
}

// end takes the answers of rounds in.
func (r *rounds) end(states []replog.ReadState) {
	if len(states) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, st := range states {
		if r.name == "" || st.Context != r.name {
			continue // an attempt that was given up: it began before reads that have joined since
		}
		for _, w := range r.asked {
			w.index <- st.Index
		}
		r.asked, r.name = nil, ""
	}
}

// Reading begins a linearizable read and does not wait: may reports whether this replica shows, by now, everything that was
// acknowledged before the call.
func (n *Node) Reading(p core.Partition) (may func() bool, err error) {
	s, err := n.shardOf(p)
	if err != nil {
		return nil, err
	}
	if s.alone.Load() {
		return s.view.ready.Load, nil
	}
	w := s.rounds.add()
	s.poke()
	var index uint64
	return func() bool {
		select {
		case index = <-w.index:
		default:
		}
		return index > 0 && s.view.applied.Load() >= index
	}, nil
}

// confirm waits for the index that a linearizable read needs.
func (s *shard) confirm(ctx context.Context, timer <-chan time.Time) (uint64, core.Fact) {
	w := s.rounds.add()
	s.poke()
	select {
	case index := <-w.index:
		return index, nil
	case <-timer:
		s.rounds.drop(w)
		return 0, s.unreached()
	case <-ctx.Done():
		s.rounds.drop(w)
		return 0, core.DeadlineExceeded{}
	case <-s.n.stopping:
		s.rounds.drop(w)
		return 0, core.Unavailable{Reason: "stopping"}
	}
}

// confirmLead waits until a majority has confirmed that this replica leads, and it shows everything that was acknowledged before the call.
// It ends as soon as the replica leads no more. Without a majority it ends after Options.ReadWait, as where there is no leader.
func (s *shard) confirmLead(ctx context.Context) error {
	if s.alone.Load() {
		return nil
	}
	timer := s.n.o.Clock.NewTimer(s.n.o.ReadWait)
	defer timer.Stop()
	w := s.rounds.add()
	defer s.rounds.drop(w)
	s.poke()
	for index := uint64(0); ; {
		moved, advanced := s.n.moved.wait(), s.advance.wait()
		switch {
		case !s.view.ready.Load() || s.view.leader.Load() != s.n.o.Replica: // the second changes first, and that is what moved tells
			return s.notLeading()
		case index > 0 && s.view.applied.Load() >= index:
			return nil
		}
		select {
		case index = <-w.index:
		case <-moved:
		case <-advanced:
		case <-timer.C():
			return core.Unavailable{Reason: "no_leader"}
		case <-ctx.Done():
			return core.DeadlineExceeded{}
		case <-s.n.stopping:
			return core.Unavailable{Reason: "stopping"}
		}
	}
}

// unreached says why a read found no leader to confirm it in time.
func (s *shard) unreached() core.Fact {
	if s.view.leader.Load() == 0 {
		return core.Unavailable{Reason: "no_leader"}
	}
	return core.DeadlineExceeded{}
}
