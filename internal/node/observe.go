package node

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// appliedEntry is an entry that was just applied, as observers see it. It is the applier's, and valid while an observer is called.
type appliedEntry struct {
	// The results and events of the entry.
	core.Applied
	// Index of the entry in the log.
	index uint64
	// The entry, with all of its commits.
	entry *core.Entry
	// What waits for the entry; nil for one of another proposer.
	own *inflight
}

// at is where what the entry did in a partition stands.
func (a *appliedEntry) at(p core.Partition) core.At {
	return core.At{Partition: p.Index, Index: a.index, Stamp: a.entry.Stamp}
}

// observer is a reader of what entries do. The applier calls its functions for each entry, those of all observers in the order in
// which they were registered; one that is nil is not called. They run one after the other with the applier, so each bounds how
// fast the shard applies entries: what may wait is handed to a goroutine of the observer's own.
type observer struct {
	// Name of the observer, for errors.
	name string
	// held is called while the machine is held, so that the machine and the entry are of one instant. It may take the locks that
	// come after machineMu (DESIGN.md), and must not wait.
	held func(a *appliedEntry)
	// before is called when the machine is let go, and before reads see the entry. An error ends the node.
	before func(a *appliedEntry) error
	// after is called when reads see the entry and its own proposals are answered.
	after func(a *appliedEntry)
}

// observe registers an observer. It is called while the shard is made.
func (s *shard) observe(o observer) { s.applier.observers = append(s.applier.observers, o) }

// observeApply registers the readers of applied entries. Each is told in this order.
func (s *shard) observeApply() {
	s.observe(observer{name: "hashes", held: func(a *appliedEntry) { s.noteHash(a.index) }})
	s.observe(s.clockObserver())
	s.observe(s.points.observer(s))
	s.observe(s.disp.observer())
	s.observe(s.n.namespaceObserver())
	if s.id == 0 {
		s.observe(s.n.memberObserver(s))
	}
	s.observe(s.waits.observer())
}

// tellHeld tells observers of an entry while the machine is held.
func (s *shard) tellHeld(a *appliedEntry) {
	for i := range s.applier.observers {
		if fn := s.applier.observers[i].held; fn != nil {
			fn(a)
		}
	}
}

// tellBefore tells observers of an entry before it is published.
func (s *shard) tellBefore(a *appliedEntry) error {
	for i := range s.applier.observers {
		if fn := s.applier.observers[i].before; fn != nil {
			if err := fn(a); err != nil {
				return fmt.Errorf("%s: %w", s.applier.observers[i].name, err)
			}
		}
	}
	return nil
}

// tellAfter tells observers of an entry after it was published.
func (s *shard) tellAfter(a *appliedEntry) {
	for i := range s.applier.observers {
		if fn := s.applier.observers[i].after; fn != nil {
			fn(a)
		}
	}
}

// clockObserver keeps at hand, for other goroutines, what the machine knows of time.
func (s *shard) clockObserver() observer {
	return observer{name: "clock", held: func(a *appliedEntry) {
		s.view.due.Store(int64(s.applier.machine.Due()))
		s.view.crons.Store(int64(s.applier.machine.CronDue()))
		s.saw(a.entry.Stamp)
		s.view.shifted.Store(int64(s.applier.machine.Shift()))
	}}
}

// memberObserver learns, on shard 0, who the members are and which format the cluster has.
func (n *Node) memberObserver(s *shard) observer {
	var members core.Directory
	var format uint16
	return observer{
		name: "members",
		held: func(*appliedEntry) { members, format = s.applier.machine.Members(), s.applier.machine.Format() },
		before: func(*appliedEntry) error {
			if err := n.takeFormat(format); err != nil {
				return err
			}
			n.learn(members)
			return nil
		},
	}
}
