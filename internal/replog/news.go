package replog

import (
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// When an entry is committed, the Raft library tells each follower so at once, in a message of its own, and each answers it. The next
// entry tells it too. So this news waits a little for that entry: where entries follow each other, one costs a leader and a follower one
// message and one answer, not two. It is as if the network took a little longer, which Raft allows of any message.
//
// News of a change of the configuration does not wait: a replica that the change removes may be gone when the news is sent, and those that
// remain need its vote as long as they do not know of the change.

// news is what a leader has not told its followers yet, by replica.
type news struct {
	waiting map[uint64]*pb.Message
	told    map[uint64]uint64 // the highest commit index that each replica was told in this term
	term    uint64
}

// later keeps a message that tells a follower nothing but how far entries are committed, and reports whether it did.
func (k *Core) later(m *pb.Message) bool {
	if m.GetType() != pb.MsgApp || len(m.GetEntries()) > 0 {
		return false
	}
	n := &k.news
	if term := m.GetTerm(); n.term != term {
		*n = news{waiting: map[uint64]*pb.Message{}, told: map[uint64]uint64{}, term: term}
	}
	told, known := n.told[m.GetTo()]
	if !known || m.GetCommit() <= told || k.changes.newest > told {
		return false
	}
	// One that is probed is asked for an answer by this.
	follows := false
	k.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		follows = follows || id == m.GetTo() && p.State == tracker.StateReplicate
	})
	if follows {
		n.waiting[m.GetTo()] = m
	}
	return follows
}

// tells notes what a message that is sent tells of commits. What waits and says no more is moot.
func (n *news) tells(m *pb.Message) {
	if !tellsCommit(m) || m.GetTerm() != n.term {
		return
	}
	to, commit := m.GetTo(), m.GetCommit()
	n.told[to] = max(n.told[to], commit)
	if w := n.waiting[to]; w != nil && w.GetCommit() <= commit {
		delete(n.waiting, to)
	}
}

// HasNews reports whether followers are not told yet how far entries are committed.
func (k *Core) HasNews() bool { return len(k.news.waiting) > 0 }

// TellNews tells them.
func (k *Core) TellNews() error {
	for _, to := range slices.Sorted(maps.Keys(k.news.waiting)) {
		m := k.news.waiting[to]
		delete(k.news.waiting, to)
		if err := k.send(m); err != nil {
			return err
		}
	}
	return nil
}
