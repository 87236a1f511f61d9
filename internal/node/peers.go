package node

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/replog"
)

// Network carries messages to the replicas of this node's shards on other nodes.
type Network interface {
	// Send takes a message for a node's replica of a shard, or drops it: it does not wait. msg is not changed afterwards. It
	// reports false when the message was dropped.
	Send(to uint64, shard core.ShardID, class Class, msg []byte) bool
}

// Class says which of the connections to a node a message takes. What is of one class neither waits for what is of another nor
// takes its room, and may overtake it.
type Class uint8

// The classes.
const (
	// Small messages of which a late one is useless: heartbeats, questions, reports.
	Control Class = iota
	// Entries of the log, and what answers them.
	Bulk
	// Parts of snapshots.
	Parts
)

// Peer is another node.
type Peer struct {
	// Number of its replica in every shard; the peers of a node have different ones.
	Replica uint64
	// Where clients reach its native API, for those who are sent there.
	Address string
	// The number that messages travel by; 0: the number of the replica.
	Node uint64
	// Its name, for people.
	Name string
	// Peer and HTTP are where its peers, and clients of its REST edge, reach it: for the directory of members.
	Peer, HTTP string
}

// node is the number that messages to the peer travel by.
func (p *Peer) node() uint64 { return cmp.Or(p.Node, p.Replica) }

// The first byte of a message between replicas.
const (
	peerRaft byte = 1 // the rest is a message of the Raft library
	// peerReport is what a leader tells each second: the index that all replicas have durably (8 bytes, big-endian), an
	// index and the apply hash there (8 each, zeros for none).
	peerReport byte = 2
	// peerClock is the wall clock of the sender in Unix milliseconds (8 bytes), and what it answers: the receiver's own
	// boot clock as it was sent (8 bytes of nanoseconds, zero in a question).
	peerClock byte = 3
	// peerAsk is commits that the sender cannot propose itself: a number of its own (8 bytes), and an entry with them.
	peerAsk byte = 4
	// peerAnswer is how they ended: that number, and what appendProposed makes of it.
	peerAnswer byte = 5
	// peerSnapshotAsk asks the leader for a part of its snapshot: a place in it.
	peerSnapshotAsk byte = 6
	// peerSnapshotPart is that part: the place, and the bytes there.
	peerSnapshotPart byte = 7
	// peerConf is what the leader of a shard tells that of shard 0 of its configuration (takeConf).
	peerConf byte = 8
	// peerGone tells a removed node so: the replica (8 bytes) that no member has any more.
	peerGone byte = 9
	// peerMembersAsk asks for a directory of members that is newer than a version (8 bytes), and peerMembers is one. Who was
	// away while others came may know none of those that lead now, and takes nothing from strangers: it asks whom it knows.
	peerMembersAsk byte = 10
	peerMembers    byte = 11
	// peerRatesUsed tells the leader of shard 0 what its sender took of rates, and peerRatesShared is the answer: see internal/rate.
	peerRatesUsed   byte = 12
	peerRatesShared byte = 13
	// peerStreams tells how many streams tenants have at the sender: see tenant_streams.go.
	peerStreams byte = 26
	// peerWorkersAsk asks for the workers of a namespace, or makes one quiet, and peerWorkers is the answer: see workers_peers.go.
	peerWorkersAsk byte = 24
	peerWorkers    byte = 25
)

// peerMessage is a message of a replica that waits in the inbox of a shard.
type peerMessage struct {
	// The replica that sent it, as the network vouches for it.
	from uint64
	// Its first byte says what it is; there is at least that.
	msg []byte
}

// Receive takes a message that another node sent. msg is the node's from here on.
func (n *Node) Receive(node uint64, shard core.ShardID, msg []byte) {
	from := n.who().replicaOf(node)
	if int(shard) >= len(n.shards) || len(msg) == 0 || from == 0 || node == n.o.Node {
		return
	}
	s := n.shards[shard]
	switch msg[0] {
	case peerConf:
		n.takeConf(shard, msg[1:])
		return
	case peerGone:
		n.takeGone(msg[1:])
		return
	case peerMembersAsk:
		n.tellMembers(from, msg[1:])
		return
	case peerMembers:
		n.takeMembers(msg[1:])
		return
	case peerClock:
		n.clocks.take(n, from, msg[1:])
		return
	case peerAsk:
		s.takeAsk(from, msg[1:])
		return
	case peerAnswer:
		n.takeAnswer(from, msg[1:])
		return
	case peerRatesUsed:
		n.takeUsed(from, msg[1:])
		return
	case peerRatesShared:
		n.takeShared(from, msg[1:])
		return
	case peerStreams:
		n.takeStreams(from, msg[1:])
		return
	case peerWorkersAsk:
		n.later(func() { n.takeWorkersAsk(from, msg[1:]) })
		return
	case peerWorkers:
		n.takeWorkers(from, msg[1:])
		return
	case peerSnapshotAsk:
		if s.snap.serving.Load() != nil {
			n.later(func() { s.serveAsk(from, msg[1:]) })
		}
		return
	case peerSnapshotPart:
		if s.snap.fetching.Load() && len(msg) <= maxPartMessage {
			n.later(func() { s.takePart(from, msg[1:]) })
		}
		return
	}
	if s.in.receive(peerMessage{from, msg}, s.n.o.InboxBytes) {
		s.poke()
	}
}

// Spoke reports whether Raft messages of a node's replica have come since the start: it may have voted, or acknowledged entries.
func (n *Node) Spoke(node uint64) bool {
	_, spoke := n.spoke.Load(n.who().replicaOf(node))
	return spoke
}

// takeMessages gives the log what peers sent.
func (s *shard) takeMessages(in []peerMessage) {
	moot := mootBeats(in)
	for i, m := range in {
		switch kind, rest := m.msg[0], m.msg[1:]; kind {
		case peerRaft:
			if moot[i] {
				continue
			}
			if _, known := s.n.spoke.Load(m.from); !known {
				s.n.spoke.Store(m.from, true)
			}
			if err := s.loop.core.Step(rest); err != nil {
				s.n.o.Logger.Debug("message of a peer", "shard", s.id, "from", m.from, "error", err)
			}
			if o := s.loop.core.Offered(); o != nil {
				s.takeOffer(o)
			}
		case peerReport:
			s.takeReport(m.from, rest)
		}
	}
	s.hear(in)
	leader := s.loop.core.Status().Leader
	if slices.ContainsFunc(in, func(m peerMessage) bool { return m.from == leader }) {
		s.loop.ledAt = s.n.o.Clock.Boot()
	}
}

// mootBeats finds messages of the log that say nothing which a later one does not say.
func mootBeats(in []peerMessage) map[int]bool {
	if len(in) < replog.Crowd {
		return nil
	}
	of := make([][]byte, len(in))
	for i, m := range in {
		if m.msg[0] == peerRaft {
			of[i] = m.msg[1:]
		}
	}
	return replog.Moot(of)
}

// send hands messages of the log to the network.
func (s *shard) send(out []replog.Message) {
	for _, m := range out {
		class := Control
		if m.Bulk {
			class = Bulk
		}
		sent := s.n.send(m.To, s.id, class, m.Data)
		switch {
		case m.Snapshot && sent:
			if s.snap.offers != nil {
				s.snap.offers[m.To] = s.n.o.Clock.Boot()
			}
		case m.Snapshot:
			s.loop.core.SnapshotFailed(m.To)
		case !sent:
			s.loop.core.Unreachable(m.To)
		}
	}
}

// reportEvery is how often a leader tells its followers what it knows of all of them. Each apply hash that they are to compare is
// told at once, so that a replica whose state is wrong goes on for no more than hashEvery entries.
const reportEvery = time.Second

// hashEvery is how far apart the indexes are at which replicas compare their apply hashes.
const hashEvery = 1024

// report is when a leader tells its followers how much of the log all have, and its apply hash.
type report struct {
	// Boot time of the next one.
	next time.Duration
	// Index of the apply hash that was told last.
	hashed uint64
}

// hashAt is the apply hash of a state, and the index of the entry that it is the state after; index 0: none.
type hashAt struct{ index, hash uint64 }

// sendReport tells the followers, when it is time.
func (s *shard) sendReport(now time.Duration) {
	if !s.loop.leading {
		return
	}
	h := s.hashes.last()
	if now < s.loop.report.next && h.index <= s.loop.report.hashed {
		return
	}
	s.loop.report.next = now + reportEvery
	followers := s.loop.core.Followers()
	if len(followers)+1 < len(s.loop.core.Conf().Replicas()) {
		return // this very tick has ended its leadership: nothing is known of the others
	}
	safe := s.view.applied.Load()
	for _, f := range followers {
		safe = min(safe, f.Match)
	}
	s.view.safe.Store(max(safe, s.view.safe.Load()))
	s.loop.report.hashed = h.index
	msg := append(make([]byte, 0, 25), peerReport)
	msg = binary.BigEndian.AppendUint64(msg, safe)
	msg = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(msg, h.index), h.hash)
	for _, f := range followers {
		s.n.send(f.Replica, s.id, Control, msg)
	}
}

// takeReport takes in what the leader tells: up to where all replicas have the log, and its apply hash. What another
// replica sends is passed over.
func (s *shard) takeReport(from uint64, b []byte) {
	if st := s.loop.core.Status(); len(b) != 24 || st.Leader != from {
		return
	}
	s.view.safe.Store(max(binary.BigEndian.Uint64(b), s.view.safe.Load()))
	if h := (hashAt{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}); h.index > 0 {
		s.hashes.expect(h)
	}
}

// checkHashes ends the node when this replica's state is not the leader's.
func (s *shard) checkHashes() error {
	if want, got, differ := s.hashes.compare(); differ {
		return errs.Corruptf("replica differs from its leader: apply hash %016x at entry %d, the leader has %016x", got, want.index, want.hash)
	}
	return nil
}
