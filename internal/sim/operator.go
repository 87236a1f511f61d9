package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Operators change the membership as the cluster runs: nodes are added, removed, replaced and promoted, and now and then a
// change is cancelled.

// operate plans the next change of membership, which plans the one after it, until the world is
// healthy.
func (w *world) operate() {
	if w.plan.Spares == 0 {
		return
	}
	w.after(w.between(w.plan.ChangeEvery/4, w.plan.ChangeEvery), "operate", 0, func() {
		if w.healthy {
			return
		}
		w.change()
		w.operate()
	})
}

// givesUp is how long operators wait after the last fault before they cancel a change that does not
// end.
const givesUp = 20 * time.Second

// tidy cancels a change that does not end, again and again.
func (w *world) tidy() {
	if w.plan.Spares == 0 {
		return
	}
	w.after(givesUp, "tidy", 0, func() {
		w.tidy()
		for _, h := range w.hosts {
			if h.node != nil && h.terms[0].serves && h.node.Members().Job.State == core.JobRunning {
				op := &core.MemberChange{Do: core.MemberCancel}
				h.node.ProposeMembers(op, func(p core.Proposed) { w.changed(op, p) })
				h.kick()
			}
		}
	})
}

// change asks the node that leads shard 0 for one change. The first one makes the directory.
func (w *world) change() {
	for _, h := range w.hosts {
		if h.node == nil || h.paused || !h.terms[0].serves {
			continue
		}
		var op core.Op
		if d := h.node.Members(); d.Version == 0 {
			op = &core.MembersInit{Members: d.Members}
		} else if change := w.someChange(&d); change != nil {
			op = change
		} else {
			return
		}
		h.node.ProposeMembers(op, func(p core.Proposed) { w.changed(op, p) })
		h.kick()
		return
	}
}

// changed records the outcome of a change that was asked for.
func (w *world) changed(op core.Op, p core.Proposed) {
	change, ok := op.(*core.MemberChange)
	if !ok {
		return
	}
	w.note("%s of %d: %v", changeNames[change.Do], change.Node, whyNot(p))
	if whyNot(p) != nil {
		return
	}
	w.struck[changeNames[change.Do]]++
}

// whyNot returns why a proposal did not happen, or is not known to have happened; nil if it has.
func whyNot(p core.Proposed) core.Fact {
	if p.Err == nil && p.Results[0].Refusal != nil {
		return p.Results[0].Refusal.Fact
	}
	return p.Err
}

// invite makes the host that the directory waits for join. It does not matter whether the operator
// who added it was told.
func (w *world) invite(d *core.Directory) {
	m := d.Member(d.Job.Replica)
	if d.Job.State != core.JobRunning || m == nil || m.State != core.MemberJoining {
		return
	}
	h, token := w.host(m.Node), m.Token
	w.after(w.between(0, 500*time.Millisecond), "invite", h.id, func() {
		if h.outside {
			h.outside, h.token = false, token
			h.seek()
		}
	})
}

// changeNames are the names of changes in results.
var changeNames = map[core.MemberVerb]string{
	core.MemberAdd: "add", core.MemberRemove: "remove", core.MemberReplace: "replace", core.MemberPromote: "promote",
	core.MemberCancel: "cancel",
}

// someChange draws a change that fits the members; nil if there is none. While a change runs, the
// only one is to cancel it.
func (w *world) someChange(d *core.Directory) *core.MemberChange {
	if d.Job.State == core.JobRunning {
		if w.chance(80) {
			return &core.MemberChange{Do: core.MemberCancel}
		}
		return nil
	}
	var learners, voters, spares []uint64
	for i := range d.Members {
		switch m := &d.Members[i]; m.State {
		case core.MemberLearner:
			learners = append(learners, m.Node)
		case core.MemberVoter:
			voters = append(voters, m.Node)
		}
	}
	for _, h := range w.hosts {
		if h.outside && !slices.Contains(learners, h.id) && !slices.Contains(voters, h.id) {
			spares = append(spares, h.id)
		}
	}
	some := func(list []uint64) uint64 { return list[w.rng.IntN(len(list))] }
	switch n := w.rng.IntN(10); {
	case n < 4 && len(spares) > 0 || len(voters) == 1 && len(spares) > 0:
		w.tokens++
		return &core.MemberChange{
			Do: core.MemberAdd, Node: some(spares), Peer: "p" + address(w.tokens), Learner: w.chance(350),
			Token: core.JoinHash{1, byte(w.tokens >> 8), byte(w.tokens)},
		}
	case n < 7 && len(learners) > 0:
		if w.chance(400) {
			return &core.MemberChange{Do: core.MemberPromote, Node: some(learners)}
		}
		return &core.MemberChange{Do: core.MemberReplace, Node: some(voters), With: some(learners)}
	case n < 8 && len(learners) > 0:
		return &core.MemberChange{Do: core.MemberRemove, Node: some(learners)}
	case len(voters) > 1:
		return &core.MemberChange{Do: core.MemberRemove, Node: some(voters)}
	}
	return nil
}
