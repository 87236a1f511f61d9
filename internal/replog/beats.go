package replog

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Answers to heartbeats come in crowds when a link that stood still carries on: a leader sends a heartbeat for each round of
// reads, hundreds in a second. Each answer of a replica that is behind makes the leader send it all that it lacks, up to a
// megabyte, once more; a thousand of them keep it from leading for seconds. Two bounds prevent that: of a crowd only the last
// counts, and what was just sent is not sent again before the next tick.

// beatBytes is more than what a heartbeat or the answer to one takes.
const beatBytes = 64

// Crowd is how many messages must have come together for Moot to be worth a look.
const Crowd = 8

// Moot finds, among messages of peers that came together, heartbeats and answers to them that a later one of the same sender and
// term makes moot: that one says all that they say. It returns their places; nil when there are none. An entry that is nil is no
// message.
func Moot(messages [][]byte) map[int]bool {
	type kind struct {
		from, term uint64
		t          pb.MessageType
	}
	type seen struct{ beat, read bool } // after this place: any, one that confirms a round of reads
	later := map[kind]seen{}
	var moot map[int]bool
	for i := len(messages) - 1; i >= 0; i-- {
		if n := len(messages[i]); n == 0 || n > beatBytes {
			continue
		}
		m := new(pb.Message)
		if proto.Unmarshal(messages[i], m) != nil {
			continue
		}
		if t := m.GetType(); t != pb.MsgHeartbeat && t != pb.MsgHeartbeatResp {
			continue
		}
		k := kind{m.GetFrom(), m.GetTerm(), m.GetType()}
		after, reads := later[k], len(m.GetContext()) > 0
		if after.read || after.beat && !reads {
			if moot == nil {
				moot = map[int]bool{}
			}
			moot[i] = true
		}
		later[k] = seen{true, after.read || reads}
	}
	return moot
}

// sentTo is the entries that a replica was sent last. Two messages of a leader with equal values
// carry the same entries.
type sentTo struct{ term, index, last, tick uint64 }

// repeats reports whether a message has the same entries as the one before to the same replica, in the same tick. What is lost
// meanwhile is sent again in the next.
func (k *Core) repeats(m *pb.Message) bool {
	entries := m.GetEntries()
	if m.GetType() != pb.MsgApp || len(entries) == 0 {
		return false
	}
	now := sentTo{m.GetTerm(), m.GetIndex(), entries[len(entries)-1].GetIndex(), k.ticks}
	if k.sent[m.GetTo()] == now {
		return true
	}
	if k.sent == nil {
		k.sent = map[uint64]sentTo{}
	}
	k.sent[m.GetTo()] = now
	return false
}

// tellsLess reports whether a message tells a replica only how far entries are committed, and one of those behind it tells that
// too, with entries that follow where this one ends. So an entry that is proposed when the one before it is committed costs one
// message and one answer, not two.
func tellsLess(m *pb.Message, behind []*pb.Message) bool {
	if m.GetType() != pb.MsgApp || len(m.GetEntries()) > 0 {
		return false
	}
	return slices.ContainsFunc(behind, func(o *pb.Message) bool {
		return o.GetType() == pb.MsgApp && o.GetTo() == m.GetTo() && o.GetTerm() == m.GetTerm() &&
			o.GetIndex() == m.GetIndex() && o.GetCommit() >= m.GetCommit()
	})
}
