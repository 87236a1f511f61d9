package apitest

import (
	"context"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// Session answers as a test has set.
func (n *Node) Session(_ context.Context, p core.Partition, s core.SessionSpec, sink core.Sink) (core.Session, core.Welcome, error) {
	n.step()
	n.reach(p)
	ses := &Session{n: n, Part: p, Spec: s, Sink: sink}
	n.Mu.Lock()
	n.Sessions = append(n.Sessions, ses)
	w := n.Welcome
	n.Mu.Unlock()
	n.Opened <- ses
	return ses, w, nil
}

// Session records what a stream asks of its session.
type Session struct {
	n    *Node
	Part core.Partition
	Spec core.SessionSpec
	Sink core.Sink

	Mu      sync.Mutex
	Subs    []core.Subscription
	slots   []uint32
	Holds   []core.TaskHold
	Settled []core.TaskHold
	drained bool
	closed  bool
	broke   bool // Break was called
	left    bool // Leave was called
}

// Subscribe notes that it was called.
func (s *Session) Subscribe(sub core.Subscription) {
	s.n.step()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Subs = append(s.Subs, sub)
}

// Slots notes that it was called.
func (s *Session) Slots(_, free uint32) {
	s.n.step()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.slots = append(s.slots, free)
}

// Settle notes that it was called.
func (s *Session) Settle(p core.Partition, commits []core.Commit, holds []core.TaskHold, done func(core.Proposed)) {
	s.n.step()
	s.Mu.Lock()
	s.Settled = append(s.Settled, holds...)
	s.Mu.Unlock()
	s.n.Propose(p, commits, done)
}

// Held are the leases of the session.
func (s *Session) Held() []core.TaskHold {
	s.n.step()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Holds
}

// Drain notes that it was called.
func (s *Session) Drain() {
	s.n.step()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.drained = true
}

// Close notes that it was called.
func (s *Session) Close() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.closed = true
}

// Leave notes that it was called.
func (s *Session) Leave() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.closed, s.left = true, true
}

// Left reports whether the session ended by Leave.
func (s *Session) Left() bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.left
}

// Break notes that it was called.
func (s *Session) Break() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.closed, s.broke = true, true
}

// Broken reports whether the session ended by Break.
func (s *Session) Broken() bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.broke
}

// State is what the session was told.
func (s *Session) State() (subs int, drained, closed bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return len(s.Subs), s.drained, s.closed
}
