package node

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Who the members are is replicated: the directory on shard 0, of which every node has a replica. Until that was changed
// for the first time, and before a node that was taken in has it, members are those that the node was started with.
//
// Replicas and nodes have different numbers: a node that lost its data comes back under another replica id. Inside this
// package everything goes by replica; messages travel by node, and who operates the cluster speaks of nodes.

// roster is who the members are, as this node has applied it. It does not change.
type roster struct {
	// The directory; its version is 0 where there is none.
	dir core.Directory
	// All members, this node too, ascending by replica.
	list []core.Member
	// A node told it that was no member: the same version from elsewhere takes its place.
	told bool
}

// startRoster returns the members that the node was started with.
func startRoster(o *Options) *roster {
	own := core.Member{
		Replica: o.Replica, Node: o.Node, Name: o.Name, Peer: o.PeerAddress, API: o.Address, HTTP: o.HTTP, State: core.MemberVoter,
	}
	if o.Joining {
		own.State = core.MemberCatchingUp
	}
	r := &roster{list: []core.Member{own}}
	for _, p := range o.Peers {
		r.list = append(r.list, core.Member{
			Replica: p.Replica, Node: p.node(), Name: p.Name, Peer: p.Peer, API: p.Address, HTTP: p.HTTP, State: core.MemberVoter,
		})
	}
	slices.SortFunc(r.list, func(a, b core.Member) int { return int(a.Replica) - int(b.Replica) })
	return r
}

// member returns the member of a replica, or nil.
func (r *roster) member(replica uint64) *core.Member {
	for i := range r.list {
		if r.list[i].Replica == replica {
			return &r.list[i]
		}
	}
	return nil
}

// replicaOf returns the newest replica of a node; 0: it is not a member.
func (r *roster) replicaOf(node uint64) (replica uint64) {
	for i := range r.list {
		if r.list[i].Node == node {
			replica = r.list[i].Replica
		}
	}
	return replica
}

// nodeOf returns the node of a replica, or the replica's own number when it does not belong to a member.
func (r *roster) nodeOf(replica uint64) uint64 {
	if m := r.member(replica); m != nil {
		return m.Node
	}
	return replica
}

// voters lists the replicas that vote and are to stay, ascending.
func (r *roster) voters() (out []uint64) {
	for i := range r.list {
		if r.list[i].State == core.MemberVoter {
			out = append(out, r.list[i].Replica)
		}
	}
	return out
}

// drained reports whether a replica is to lead nothing, and another voter may.
func (r *roster) drained(replica uint64) bool {
	m := r.member(replica)
	if m == nil || !m.Drained {
		return false
	}
	return slices.ContainsFunc(r.list, func(o core.Member) bool { return o.State == core.MemberVoter && !o.Drained })
}

// who returns the members as this node knows them now. The value does not change: who needs one state of affairs
// reads it once.
func (n *Node) who() *roster { return n.roster.Load() }

// others calls do for every other replica's member.
func (n *Node) others(do func(*core.Member)) {
	r := n.who()
	for i := range r.list {
		if r.list[i].Replica != n.o.Replica {
			do(&r.list[i])
		}
	}
}

// hasOthers reports whether there are other members.
func (n *Node) hasOthers() (has bool) {
	n.others(func(*core.Member) { has = true })
	return has
}

// send sends a message to a replica of a shard, or drops it and reports false.
func (n *Node) send(to uint64, shard core.ShardID, class Class, msg []byte) bool {
	m := n.who().member(to)
	return m != nil && m.Node != n.o.Node && n.o.Network.Send(m.Node, shard, class, msg)
}

// Members returns the directory of members as this node has it. Without one its version is 0, and it lists the members
// that the node was started with.
func (n *Node) Members() core.Directory {
	r := n.who()
	d := r.dir
	d.Members = r.list
	return d
}

// Replica returns the id of this node's replicas.
func (n *Node) Replica() uint64 { return n.o.Replica }

// RemovedError says that a node was taken out of its cluster. It never serves again with the data that it has.
type RemovedError struct{ Node, Replica uint64 }

// Error names the node.
func (e *RemovedError) Error() string {
	return fmt.Sprintf("node %d, replica %d, was removed from its cluster", e.Node, e.Replica)
}

// goodbyeFor is for how long who was removed is told so, by each member; afterwards it is refused, and told why.
const goodbyeFor = 5 * time.Second

// goodbye is a replica that was removed a moment ago.
type goodbye struct {
	node, replica uint64
	// Boot time until which it is told.
	until time.Duration
}

// learn takes over a directory that is committed: shard 0's replica has applied it, here or at another member, whom this
// node asked. It may be newer than what this replica has applied: who the members are is only where messages go and what a
// leader works towards, and no node leads shard 0 and has not applied what is committed.
func (n *Node) learn(d core.Directory) { n.goBy(&roster{dir: d, list: d.Members}) }

// goBy is learn for a roster of a directory.
func (n *Node) goBy(r *roster) {
	n.learning.Lock()
	defer n.learning.Unlock()
	old, d := n.who(), &r.dir
	if d.Version < max(old.dir.Version, n.o.PeersVersion) || d.Version == old.dir.Version && !(old.told && !r.told) {
		return
	}
	n.roster.Store(r)
	now := n.o.Clock.Boot()
	n.leaves.Lock()
	for i := range old.list {
		m := &old.list[i]
		// A data directory that was made before PeersVersion was kept goes by directories from before it joined: who is not in them
		// yet was not removed.
		if d.Gone(m.Replica) && m.Replica != n.o.Replica {
			n.goodbyes = append(n.goodbyes, goodbye{m.Node, m.Replica, now + goodbyeFor})
		}
	}
	n.leaves.Unlock()
	if d.Gone(n.o.Replica) {
		n.leave()
		return
	}
	n.announce()
	n.moved.notify() // addresses of leaders may be others
}

// askMembers asks the other members for a newer directory, when it is time, while no leader of shard 0 is known, or that
// leader was not heard for long. A learner holds no elections, and follows its last leader for ever.
func (s *shard) askMembers(now time.Duration) {
	led := s.view.leader.Load() != 0 && (s.loop.leading || now < s.loop.ledAt+heardFor)
	s.view.unled.Store(!led)
	if led || now < s.loop.askedAt+reportEvery {
		return
	}
	s.loop.askedAt = now
	msg := binary.BigEndian.AppendUint64([]byte{peerMembersAsk}, s.n.who().dir.Version)
	s.n.others(func(m *core.Member) { s.n.send(m.Replica, s.id, Control, msg) })
}

// tellMembers answers askMembers.
func (n *Node) tellMembers(to uint64, b []byte) {
	if r := n.who(); len(b) == 8 && r.dir.Version > binary.BigEndian.Uint64(b) {
		n.send(to, 0, Control, core.AppendDirectory([]byte{peerMembers}, &r.dir))
	}
}

// takeMembers takes in the directory of a member. One that cannot be read is logged and passed over.
func (n *Node) takeMembers(b []byte) {
	d, err := core.DecodeDirectory(b)
	if err != nil {
		n.o.Logger.Warn("directory of members of a peer", "error", err)
		return
	}
	n.learn(d)
}

// Introduce takes in the stored form of a directory of members from a node that this one does not know as a member, and uses it
// if it is newer than this node's. The sender has a certificate of the cluster, but may have been removed since. So it is heard
// only while this node hears of no leader. What it says redirects no client, and does not make this node leave a shard.
// Errors: core.ErrMalformed.
func (n *Node) Introduce(directory []byte) error {
	d, err := core.DecodeDirectory(directory)
	if err != nil || !n.shards[0].view.unled.Load() || d.Gone(n.o.Replica) {
		return err
	}
	known := n.who()
	for i := range d.Members {
		m := &d.Members[i]
		m.API, m.HTTP = "", ""
		if k := known.member(m.Replica); k != nil && k.Node == m.Node {
			m.API, m.HTTP = k.API, k.HTTP
		}
	}
	n.goBy(&roster{dir: d, list: d.Members, told: true})
	return nil
}

// announce tells the owner of the network who is to be reached: the members, and for a moment those that were removed.
func (n *Node) announce() {
	if n.o.OnMembers == nil {
		return
	}
	n.announcing.Lock() // so that the last word is that of the newest roster
	defer n.announcing.Unlock()
	r := n.who()
	list := slices.Clone(r.list)
	n.leaves.Lock()
	for _, g := range n.goodbyes {
		if r.replicaOf(g.node) == 0 {
			list = append(list, core.Member{Node: g.node, Replica: g.replica})
		}
	}
	n.leaves.Unlock()
	n.o.OnMembers(list)
}

// sayGoodbye tells those that were removed, with each tick for a while.
func (n *Node) sayGoodbye(now time.Duration) {
	n.leaves.Lock()
	list := slices.Clone(n.goodbyes)
	n.goodbyes = slices.DeleteFunc(n.goodbyes, func(g goodbye) bool { return now >= g.until })
	ended := len(n.goodbyes) < len(list)
	n.leaves.Unlock()
	for _, g := range list {
		n.o.Network.Send(g.node, 0, Control, binary.BigEndian.AppendUint64([]byte{peerGone}, g.replica))
	}
	if ended {
		n.announce()
	}
}

// takeGone takes a member's word that this replica was removed: members say so only of ids that no member has any more.
func (n *Node) takeGone(b []byte) {
	if len(b) == 8 && binary.BigEndian.Uint64(b) == n.o.Replica {
		n.leave()
	}
}

// leave ends a node that was removed.
func (n *Node) leave() {
	n.leaveOnce.Do(func() { // several members tell it, again and again
		if n.o.OnRemoved != nil {
			n.o.OnRemoved()
		}
	})
	n.fail(&RemovedError{Node: n.o.Node, Replica: n.o.Replica})
}

// Removed tells the node that a member refused it because its replica was removed.
func (n *Node) Removed() { n.leave() }

// Gone reports whether a replica was removed, as far as this node knows.
func (n *Node) Gone(replica uint64) bool {
	d := n.who().dir
	return d.Gone(replica)
}
