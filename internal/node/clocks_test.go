package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// A shard that began in 1970 would run into all its deadlines when a later term finds the clocks agreed.
func TestANewShardBeginsAtATimeThatMostClocksShow(t *testing.T) {
	c := newCluster(t, 3, Options{})
	c.wires.lost = peerClock
	c.startAll(func(_ uint64, fs env.FS) env.FS { return fs })
	ctx := within(t, 20*time.Second)
	c.until(ctx, "no node leads", func() bool {
		term, _ := c.rigs[1].node.Leads(0)
		other, _ := c.rigs[2].node.Leads(0)
		third, _ := c.rigs[3].node.Leads(0)
		return term+other+third > 0
	})
	begun, turns := c.rigs[1].node.o.Clock.Boot(), 0
	c.until(ctx, "time stands still", func() bool { // what must not happen has no event
		turns++
		return turns > 100 && c.rigs[1].node.o.Clock.Boot() > begun+200*time.Millisecond
	})
	for id, r := range c.rigs {
		if _, serves := r.node.Leads(0); serves {
			t.Errorf("node %d serves a new shard, and knows no clock but its own", id)
		}
	}
	c.wires.mu.Lock()
	c.wires.lost = 0
	c.wires.mu.Unlock()
	before := core.ShardTimeOf(time.Now().Add(-time.Minute))
	if at := c.leader(ctx, 0, 0).node.shards[0].now(); at < before {
		t.Errorf("the shard begins at %d, the clocks show %d and more", at, before)
	}
}

func TestATermBeginsAtTheClocksTimeOrTheLast(t *testing.T) {
	for _, row := range []struct {
		last, wall core.ShardTime
		agree      bool
		waited     time.Duration
		at         core.ShardTime
		known      bool
	}{
		{last: 500, wall: 900, agree: true, at: 900, known: true},
		{last: 500, wall: 900, at: 500, known: true},
		{last: 0, wall: 900, agree: true, at: 900, known: true},
		{last: 0, wall: 900, waited: firstTimeWait - 1, at: 900},
		{last: 0, wall: 900, waited: firstTimeWait, at: 900, known: true},
	} {
		if at, known := begins(row.last, row.wall, row.agree, row.waited); known != row.known || known && at != row.at {
			t.Errorf("%+v: %d, %v", row, at, known)
		}
	}
}

// Who is being removed votes until it is: the node that stays does not make a majority by itself, nor with nodes that are gone or never
// voted.
func TestOnlyTheClocksOfNodesThatVoteAreCounted(t *testing.T) {
	n := &Node{o: Options{Replica: 1, Node: 1, Clock: env.SystemClock{}}}
	own := core.Member{Replica: n.o.Replica, Node: n.o.Node, State: core.MemberVoter}
	member := func(replica uint64, state core.MemberState) core.Member {
		return core.Member{Replica: replica, Node: replica, State: state}
	}
	for _, c := range []struct {
		name  string
		list  []core.Member
		heard []uint64
		want  bool
	}{
		{"alone", []core.Member{own}, nil, true},
		{"the other one is being removed", []core.Member{own, member(2, core.MemberRemoving)}, nil, false},
		{"the other one is being removed, and agrees", []core.Member{own, member(2, core.MemberRemoving)}, []uint64{2}, true},
		{"one of two others agrees", []core.Member{own, member(2, core.MemberVoter), member(3, core.MemberVoter)}, []uint64{3}, true},
		{"those that agree were removed", []core.Member{own, member(2, core.MemberVoter), member(3, core.MemberVoter)}, []uint64{4, 5}, false},
		{"a learner agrees", []core.Member{own, member(2, core.MemberVoter), member(3, core.MemberLearner)}, []uint64{3}, false},
	} {
		n.roster.Store(&roster{list: c.list})
		heard := &clocks{of: make(map[uint64]clockSample)}
		for _, replica := range c.heard {
			heard.of[replica] = clockSample{wall: n.o.Clock.Wall(), at: n.o.Clock.Boot()}
		}
		if got := heard.agree(n); got != c.want {
			t.Errorf("%s: most agree: %v, want %v", c.name, got, c.want)
		}
	}
}
