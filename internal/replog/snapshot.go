package replog

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/wal"
)

// How a replica gets a state instead of entries that the leader's log no longer has: the leader is asked for a snapshot
// (SnapshotWanted), makes one and keeps it (Keep), and offers it in a message, whose Data says what it is made of. The
// receiver does not take the message in at once: it shows the Offer, its owner fetches the state, and only then calls
// Restore. Until that has led to an acknowledgement, or SnapshotFailed was called, the leader sends that replica no entries.

// Offer is a snapshot that the leader From offers.
type Offer struct {
	From        uint64
	Index, Term uint64 // of the last entry that the state holds
	Data        []byte // as given to Keep

	msg *pb.Message
}

// Offered returns an offer that came since it was last called, or nil. A later offer replaces one that was not taken.
func (k *Core) Offered() *Offer {
	o := k.offered
	k.offered = nil
	return o
}

// holdOffer holds a message back if it offers a snapshot that this replica could use. Another is Raft's to answer.
func (k *Core) holdOffer(m *pb.Message) bool {
	meta := m.GetSnapshot().GetMetadata()
	b := k.rn.BasicStatus()
	if m.GetType() != pb.MsgSnap || m.GetTerm() < b.GetTerm() || meta.GetIndex() <= b.GetCommit() {
		return false
	}
	k.offered = &Offer{From: m.GetFrom(), Index: meta.GetIndex(), Term: meta.GetTerm(), Data: m.GetSnapshot().GetData(), msg: m}
	return true
}

// Restore takes in an offer whose state is at hand, and returns what follows, as Take does: its Append has the snapshot, unless the
// replica no longer needs it, or its sender is no longer believed. Only the Raft library knows that: the log of this replica may lead there
// by entries that are not durable yet.
func (k *Core) Restore(o *Offer) (Output, error) {
	if err := k.rn.Step(o.msg); err != nil {
		return Output{}, fmt.Errorf("step offer of a snapshot: %w", err)
	}
	return k.Take()
}

// SnapshotWanted reports whether a follower has been found, since it was last called, to need a snapshot that is not kept.
func (k *Core) SnapshotWanted() bool {
	wanted := k.st.wanted
	k.st.wanted = false
	return wanted
}

// Keep has followers that need it offered the state at (index, term), whose configuration is conf and which data
// describes. The log must keep the entries behind it.
func (k *Core) Keep(index, term uint64, conf Conf, data []byte) {
	k.st.wanted = false // it was asked for while it was made
	k.st.snapshot = &pb.Snapshot{Data: data, Metadata: &pb.SnapshotMetadata{
		Index: new(index), Term: new(term), ConfState: conf.state(),
	}}
}

// Forget ends Keep: the snapshot is not offered any more.
func (k *Core) Forget() { k.st.snapshot = nil }

// SnapshotFailed tells that a follower did not get the snapshot it was offered, so that it is looked at again.
func (k *Core) SnapshotFailed(replica uint64) { k.rn.ReportSnapshot(replica, raft.SnapshotFailure) }

// FinishRestore restarts the log of a shard behind (index, term), durably. It is for a state that was replaced by a process
// that ended before it replaced the log. What the replica has promised stays: its term, and its vote.
func FinishRestore(log *wal.Log, shard core.ShardID, index, term uint64) error {
	st := log.State(shard)
	if st.CutIndex >= index {
		return nil
	}
	hard := &pb.HardState{}
	if st.HardState != nil {
		var err error
		if hard, err = decodeHardState(st.HardState); err != nil {
			return fmt.Errorf("hard state of shard %d: %w", shard, err)
		}
	}
	if hard.GetTerm() < term {
		hard.Term, hard.Vote = new(term), new(uint64(0))
	}
	hard.Commit = new(index)
	return reset(log, shard, index, term, hard)
}
