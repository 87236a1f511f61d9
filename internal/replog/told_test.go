package replog_test

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// deliver gives one replica what another has sent it.
func deliver(from, to *replica) {
	for _, m := range from.out {
		if m.To == to.id {
			_ = to.core.Step(m.Data) // it may refuse a message of another term
		}
	}
	from.out = nil
}

// A leader that takes the vote from the other node loses power before it has written that this is committed, and loses an
// entry that it had sent. The other node must not know more than what the leader starts again with: it has the longer log,
// and would refuse its vote.
func TestTheLastVoterOfAShardLeadsAgainThoughItLostWhatItHadSent(t *testing.T) {
	one := openReplica(t, 1, []uint64{1, 2}, replogtest.NewDisk(), nil, 0)
	two := openReplica(t, 2, []uint64{1, 2}, replogtest.NewDisk(), nil, 0)
	rounds := func(n int, over func() bool) {
		for range n {
			if err := one.core.Tick(); err != nil {
				t.Fatal(err)
			}
			if err := two.core.Tick(); err != nil {
				t.Fatal(err)
			}
			one.settle()
			deliver(one, two)
			two.settle()
			deliver(two, one)
			if over() {
				return
			}
		}
		t.Fatalf("after %d rounds: %+v, %+v", n, one.core.Status(), two.core.Status())
	}
	if err := one.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	rounds(50, func() bool { return one.core.Status().Leading && one.core.Propose([]byte("a")) == nil })
	if err := one.core.Reconfigure(replog.RoleChange{Replica: 2, Role: replog.Learner}); err != nil {
		t.Fatal(err)
	}
	alone := func() bool { return slices.Equal(one.core.Conf().Voters, []uint64{1}) && !one.core.Conf().Joint() }
	for range 50 {
		deliver(two, one)
		if one.step(); alone() {
			break // that it is committed is known, and not durable
		}
		one.sync()
		deliver(one, two)
		two.settle()
	}
	if !alone() {
		t.Fatalf("the other votes still: %+v", one.core.Conf())
	}
	if err := one.core.Propose([]byte("sent and lost")); err != nil {
		t.Fatal(err)
	}
	for range 3 { // heartbeats tell what is committed
		if err := one.core.Tick(); err != nil {
			t.Fatal(err)
		}
		one.step()
		deliver(one, two)
		two.settle()
	}
	if one.core.Status().Last >= two.core.Status().Last+1 {
		t.Fatalf("the other has entries up to %d, the leader up to %d: this test shows nothing", two.core.Status().Last, one.core.Status().Last)
	}
	one = openReplica(t, 1, []uint64{1, 2}, one.disk.Crash(0, 1), nil, 0)
	rounds(500, func() bool { return one.core.Status().Leading && alone() && one.core.MayRead() })
	last := two.core.Status().Last
	if err := one.core.Propose([]byte("b")); err != nil {
		t.Fatal(err)
	}
	rounds(50, func() bool { return slices.Contains(two.applied, "b") && two.core.Status().Last > last })
	if !slices.Equal(one.applied, two.applied) {
		t.Errorf("one applied %v, the other %v", one.applied, two.applied)
	}
}
