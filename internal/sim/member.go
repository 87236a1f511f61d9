package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// nearEntries is how far a learner may be behind to become a voter in a simulated cluster, whose logs are short.
const nearEntries = 8

// membership is a host's place in the cluster: what its data directory remembers, and whether the
// cluster wants it.
type membership struct {
	// Its replica id; 0: the disk is empty, and the host does not know its id yet.
	replica uint64
	// It joined a running cluster, so its logs begin with snapshots.
	joined bool
	// The members at the time when it joined, and the version of that directory.
	members []core.Member
	version uint64
	// Its replica was removed. It never starts again with this disk.
	removed bool
	// It is a spare: neither a member nor about to become one.
	outside bool
	// The id of its disk.
	store core.StoreID
	// What it joins with; zero: it comes back without its disk.
	token core.JoinHash
	// Number of its newest question for a place. Answers to earlier ones are ignored.
	query uint64
}

// newStoreID draws the id of a new disk.
func (w *world) newStoreID() (id core.StoreID) {
	for i := range id {
		id[i] = byte(w.rng.Uint32())
	}
	return id
}

// peers lists the other members in the form in which a node is told at its start.
func (h *host) peers() (out []node.Peer) {
	if h.joined {
		for _, m := range h.members {
			if m.Node != h.id {
				out = append(out, node.Peer{Replica: m.Replica, Node: m.Node, Address: m.API})
			}
		}
		return out
	}
	for id := uint64(1); id <= uint64(h.w.plan.Nodes); id++ {
		if id != h.id {
			out = append(out, node.Peer{Replica: id, Address: address(id)})
		}
	}
	return out
}

// clear gives a host that does not run a new, empty disk.
func (h *host) clear() {
	w := h.w
	h.life++
	h.disk, h.data, h.log = replogtest.NewSectors(), replogtest.NewDisk(), nil
	h.membership = membership{store: w.newStoreID()}
	h.applied, h.logs = nil, nil
}

// leave ends a node that was removed. Its disk is cleared later, and then it may be added again.
func (h *host) leave() {
	w := h.w
	h.check()
	if h.replica < w.members.Next && w.members.Member(h.replica) != nil {
		w.violate("host %d leaves, and its replica %d was not removed", h.id, h.replica)
	}
	w.note("host %d leaves", h.id)
	h.release()
	h.removed = true
	w.after(w.between(100*time.Millisecond, 2*time.Second), "clear", h.id, h.sweep)
}

// sweep clears the disk of a host that was removed. If the node is still a member, under another
// replica, it looks for its place.
func (h *host) sweep() {
	w := h.w
	w.lose(h)
	h.clear()
	if w.members.OfNode(h.id) == nil {
		h.outside = true
		return
	}
	h.seek()
}

// lose records that a host's disk is gone. What its replica had is remembered for has and ends.
func (w *world) lose(h *host) {
	if h.replica == 0 {
		return
	}
	if r := w.replicas[h.replica]; r != nil {
		r.lost = true
		for i := range r.logs {
			r.logs[i].cut = h.log.State(core.ShardID(i)).CutIndex
		}
	}
}

// loseDisk destroys the disk of a host, if the cluster can survive that: all members have their
// disks, at least three vote, and no change of membership is under way or being undone.
func (w *world) loseDisk(h *host) bool {
	m := w.members.Member(h.replica)
	switch {
	case w.members.Version == 0 || w.settled() != "" || h.replica == 0 || h.removed || h.outside || m == nil:
		return false
	case m.State != core.MemberVoter && m.State != core.MemberLearner || len(w.voters()) < 3 && m.State == core.MemberVoter:
		return false
	}
	for i := range w.members.Members {
		if o := w.holder(w.members.Members[i].Replica); o == nil || o.replica == 0 || o.removed {
			return false // one is lost already
		}
	}
	w.note("host %d loses its disk", h.id)
	if h.node != nil {
		h.check()
		h.release()
	}
	w.lose(h)
	h.clear()
	w.after(w.between(50*time.Millisecond, time.Second), "seek", h.id, h.seek)
	return true
}

// voters lists the replicas that vote and are to stay, in the order of the directory.
func (w *world) voters() (out []uint64) {
	for i := range w.members.Members {
		if m := &w.members.Members[i]; m.State == core.MemberVoter {
			out = append(out, m.Replica)
		}
	}
	return out
}

// placed lists the hosts that are members by the directory; without a directory, all that are not
// spares.
func (w *world) placed() (out []*host) {
	for _, h := range w.hosts {
		if !h.outside && !h.removed && (w.members.Version == 0 || w.members.OfNode(h.id) != nil) {
			out = append(out, h)
		}
	}
	return out
}

// inside returns host id, or the next one after it that is not a spare.
func (w *world) inside(id uint64) uint64 {
	for range w.hosts {
		if !w.host(id).outside {
			return id
		}
		id = 1 + id%uint64(len(w.hosts))
	}
	return id
}

// holder returns the host that has the disk of a replica; nil if there is none.
func (w *world) holder(replica uint64) *host {
	for _, h := range w.hosts {
		if h.replica == replica && replica != 0 {
			return h
		}
	}
	return nil
}

// seek makes a host without a place ask a host for one, usually the leader of shard 0, and again
// until it is told. The question and the answer may be lost.
func (h *host) seek() {
	w := h.w
	if h.node != nil || h.replica != 0 || h.outside || w.over() {
		return
	}
	h.query++
	query, life := h.query, h.life
	mine := func() bool { return h.query == query && h.life == life && h.replica == 0 && !h.outside }
	again := func() {
		if mine() {
			h.seek()
		}
	}
	to := w.hosts[w.rng.IntN(len(w.hosts))]
	for _, o := range w.hosts { // mostly the one that leads
		if o.node != nil && o.terms[0].serves && !w.chance(200) {
			to = o
		}
	}
	w.after(patience, "patience", 0, again)
	op := core.MemberChange{Do: core.MemberJoin, Node: h.id, Token: h.token, Store: h.store, API: address(h.id)}
	if h.token == (core.JoinHash{}) {
		op.Do = core.MemberRejoin
	}
	w.after(w.delay(), "place", to.id, func() {
		if to == h || to.node == nil || w.isCut(h.id, to.id) || !w.healthy && w.chance(w.plan.Drop) {
			return
		}
		to.whenAwake(func() {
			asked := op
			to.node.ProposeMembers(&asked, func(p core.Proposed) {
				w.after(w.delay(), "placed", h.id, func() {
					if !mine() || w.isCut(to.id, h.id) || !w.healthy && w.chance(w.plan.Drop) {
						return
					}
					h.placed(to, p, again)
				})
			})
			to.kick()
		})
	})
}

// placed takes the answer to seek. The host starts when the host that it asked knows the members
// with it. If the cluster does not want it any more, it becomes a spare.
func (h *host) placed(from *host, p core.Proposed, again func()) {
	w := h.w
	later := func() { w.after(w.between(20*time.Millisecond, 200*time.Millisecond), "seek", h.id, again) }
	if why := whyNot(p); why != nil {
		w.note("host %d is not placed: %v", h.id, why)
		_, unknown := errors.AsType[core.NotFound](why)
		_, wrong := errors.AsType[core.Invalid](why)
		if unknown || wrong { // it was cancelled, or removed meanwhile
			h.outside = true
			w.invite(&w.members)
			return
		}
		later()
		return
	}
	if from.node == nil || from.node.Members().Version < p.Results[0].Ops[0].Version {
		later()
		return
	}
	d := from.node.Members()
	m := d.OfNode(h.id)
	if m == nil || m.Store != h.store {
		later()
		return
	}
	w.note("host %d is replica %d", h.id, m.Replica)
	h.replica, h.joined, h.members, h.version, h.token = m.Replica, true, slices.Clone(d.Members), d.Version, core.JoinHash{}
	h.start()
}
