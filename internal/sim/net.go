package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/node"
)

// wire is a host's end of the network. It is the node's Network.
type wire struct{ h *host }

// Send plans the arrival of a message, or loses it, or repeats it. It first checks what the message
// promises. A message from a removed replica, or from a node that the receiver does not know, is
// handled as the transport does.
func (n wire) Send(to uint64, shard core.ShardID, _ node.Class, msg []byte) bool {
	w, from, replica := n.h.w, n.h.id, n.h.replica
	b := append([]byte(nil), msg...)
	_, _ = w.trace.Write(b)
	n.h.checkClaims(shard, b)
	copies := 1
	if !w.healthy {
		switch {
		case w.chance(w.plan.Drop):
			copies = 0
		case w.chance(w.plan.Repeat):
			copies = 2
		}
	}
	for range copies {
		w.after(w.delay(), "message", to, func() {
			t := w.host(to)
			if w.isCut(from, to) || t.node == nil {
				return
			}
			t.whenAwake(func() {
				if t.node.Gone(replica) {
					n.refused(to, replica)
					return
				}
				if !knows(t, from) {
					n.introduced(to)
					return
				}
				t.node.Receive(from, shard, append([]byte(nil), b...))
				t.kick()
			})
		})
	}
	return copies > 0 || w.chance(500) // what is lost is not always noticed
}

// refused tells a node that was removed, and does not know it, why a member accepts nothing from
// it.
func (n wire) refused(by, replica uint64) {
	h := n.h
	h.w.after(h.w.delay(), "refused", h.id, func() {
		if h.node != nil && h.replica == replica && !h.w.isCut(by, h.id) {
			h.node.Removed()
			h.kick()
		}
	})
}

// knows reports whether a node is a member as far as host t knows.
func knows(t *host, node uint64) bool {
	return slices.ContainsFunc(t.node.Members().Members, func(m core.Member) bool { return m.Node == node })
}

// introduced makes a host that accepted nothing from an unknown node ask that node for the members,
// as the transport allows.
func (n wire) introduced(by uint64) {
	h, w := n.h, n.h.w
	w.after(w.delay(), "introduced", by, func() {
		t := w.host(by)
		if h.node == nil || t.node == nil || w.isCut(by, h.id) || w.isCut(h.id, by) {
			return
		}
		d := h.node.Members()
		if err := t.node.Introduce(core.AppendDirectory(nil, &d)); err != nil {
			w.violate("the directory of host %d is none to host %d: %v", h.id, by, err)
		}
		t.kick()
	})
}

// Reaches reports whether another host runs and messages to it arrive.
func (n wire) Reaches(to uint64) bool { return !n.h.w.isCut(n.h.id, to) && n.h.w.host(to).node != nil }

// isCut reports whether a fault cuts the wire from one host to another.
func (w *world) isCut(from, to uint64) bool { return w.cut[[2]uint64{from, to}] > 0 }

// delay draws how long a message travels: usually little, sometimes so long that later messages
// overtake it.
func (w *world) delay() time.Duration {
	if !w.healthy && w.chance(w.plan.Slow) {
		return w.between(20*time.Millisecond, 600*time.Millisecond)
	}
	return w.between(50*time.Microsecond, 2*time.Millisecond)
}

// part cuts the wire in one direction for d. Cuts of several faults add up.
func (w *world) part(from, to uint64, d time.Duration) {
	if from == to {
		return
	}
	k := [2]uint64{from, to}
	w.cut[k]++
	w.after(d, "join", 0, func() {
		if w.cut[k] > 0 { // it heals all at once in the end
			w.cut[k]--
		}
	})
}

// partBoth cuts both wires between two hosts.
func (w *world) partBoth(a, b uint64, d time.Duration) {
	w.part(a, b, d)
	w.part(b, a, d)
}
