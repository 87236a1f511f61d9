package checktest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// randomMemberOp draws an op of membership over few nodes, tokens and directories, so that they meet.
func randomMemberOp(r *rand.Rand, d core.Directory) core.Op {
	node := func() uint64 { return uint64(r.IntN(6)) }
	switch r.IntN(12) {
	case 0:
		return &core.MembersInit{Members: []core.Member{
			{Replica: 1, Node: 1, Peer: "p1", State: core.MemberVoter}, {Replica: 2, Node: 2, Peer: "p2", State: core.MemberVoter},
		}}
	case 1, 2, 3, 4:
		s := &core.MemberStep{Job: d.Job.ID, Version: d.Version, Fail: r.IntN(6) == 0}
		if r.IntN(8) == 0 {
			s.Version--
		}
		if r.IntN(8) == 0 {
			s.Job++
		}
		return s
	}
	op := &core.MemberChange{
		Do: core.MemberVerb(1 + r.IntN(11)), Node: node(), With: node(), Learner: r.IntN(2) == 0,
		Token: core.JoinHash{byte(min(r.IntN(8), 1))}, Store: core.StoreID{byte(r.IntN(3))},
	}
	for _, m := range d.Members { // what is of learners is seldom right by chance
		switch {
		case m.State == core.MemberLearner && op.Do == core.MemberReplace && r.IntN(2) == 0:
			op.Node, op.With = d.Members[0].Node, m.Node
		case m.State == core.MemberLearner && op.Do == core.MemberPromote && r.IntN(2) == 0,
			m.State == core.MemberJoining && op.Do == core.MemberJoin:
			op.Node = m.Node
		}
	}
	if r.IntN(2) == 0 {
		op.Peer = fmt.Sprint("p", node())
	}
	if r.IntN(4) == 0 {
		op.API, op.HTTP, op.Name = "a", "h", "n"
	}
	return op
}

func TestTheModelAllowsWhatMembershipAnswers(t *testing.T) {
	applied := map[string]int{}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		tx, model, m := machinetest.NewTxn(), check.NewModel(), commit.New(commit.Options{})
		if err := m.Open(tx); err != nil {
			t.Fatal(err)
		}
		stamp := core.ShardTime(1)
		for index := uint64(1); index <= 600; index++ {
			switch r.IntN(40) {
			case 0:
				stamp = stamp.Add(60 * 60 * 1000)
			default:
				stamp = stamp.Add(core.Millis(r.IntN(60_000)))
			}
			var op core.Op = &core.TermStart{Term: index, Leader: 1}
			if r.IntN(30) > 0 {
				op = randomMemberOp(r, m.Members())
			}
			e := &core.Entry{Format: 1, Stamp: stamp, Commits: []core.Commit{{Ops: []core.Op{op}}}}
			a, err := m.Apply(tx, index, e)
			if err != nil {
				t.Fatal(err)
			}
			if err := model.Judge(index, e, a.Results); err != nil {
				t.Fatalf("seed %d: %+v on %+v: %v", seed, op, m.Members(), err)
			}
			if c, ok := op.(*core.MemberChange); ok && a.Results[0].Refusal == nil {
				applied[fmt.Sprint(c.Do)]++
			}
			d := m.Members()
			voters := 0
			for _, x := range d.Members {
				if x.State == core.MemberVoter || x.State == core.MemberRemoving {
					voters++
				}
			}
			if d.Version > 0 && voters == 0 {
				t.Fatalf("seed %d: no member votes in %+v", seed, d)
			}
		}
	}
	for verb := core.MemberAdd; verb <= core.MemberRegister; verb++ {
		if applied[fmt.Sprint(verb)] == 0 {
			t.Errorf("verb %d was never applied: %v", verb, applied)
		}
	}
}
