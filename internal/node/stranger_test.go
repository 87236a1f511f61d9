package node

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// openDirectory is three nodes with a directory of members, and the one that leads.
func openDirectory(t *testing.T) (ctx context.Context, c *cluster, lead *Node) {
	t.Helper()
	ctx = within(t, time.Minute)
	c = openCluster(t, 3, Options{})
	lead = c.boss(ctx)
	if err := lead.ensureDirectory(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, c, lead
}

// TestTheWordOfANodeThatIsNoMemberIsHeardOnlyWithoutALeader: such a node may have been removed, and sends no client anywhere.
func TestTheWordOfANodeThatIsNoMemberIsHeardOnlyWithoutALeader(t *testing.T) {
	ctx, c, lead := openDirectory(t)
	told := func(n *Node) core.Directory {
		d := n.Members()
		d.Version += 10
		d.Members = append([]core.Member(nil), d.Members...)
		for i := range d.Members {
			d.Members[i].API, d.Members[i].HTTP = "stranger.example:1", "stranger.example:2"
		}
		d.Members = append(d.Members, core.Member{Replica: d.Next, Node: 9, Peer: "h:1", API: "stranger.example:1", State: core.MemberLearner})
		d.Next++
		return d
	}
	introduce := func(n *Node, d core.Directory) {
		t.Helper()
		if err := n.Introduce(core.AppendDirectory(nil, &d)); err != nil {
			t.Fatal(err)
		}
	}
	c.until(ctx, "it knows that it leads", func() bool { return !lead.shards[0].view.unled.Load() }) // told with a tick
	before := lead.Members()
	if introduce(lead, told(lead)); lead.Members().Version != before.Version {
		t.Error("a leader goes by the word of a stranger")
	}
	for id := uint64(1); id <= 3; id++ {
		if id != lead.Replica() {
			c.stop(id)
		}
	}
	c.until(ctx, "it leads on though it is alone", func() bool { return lead.shards[0].view.unled.Load() })
	gone := before
	gone.Version, gone.Next, gone.Members = before.Version+5, before.Next, nil
	if introduce(lead, gone); lead.Members().Version != before.Version {
		t.Error("a stranger's word has a node leave its cluster")
	}
	introduce(lead, told(lead))
	now := lead.Members()
	if now.Version != before.Version+10 || now.OfNode(9) == nil || now.OfNode(9).Peer != "h:1" {
		t.Fatalf("a node that hears of no leader knows %+v", now)
	}
	for i, m := range now.Members {
		want := core.Member{}
		if i < len(before.Members) {
			want = before.Members[i]
		}
		if m.API != want.API || m.HTTP != want.HTTP {
			t.Errorf("node %d has addresses %q and %q for clients, want %q and %q", m.Node, m.API, m.HTTP, want.API, want.HTTP)
		}
	}
	same := told(lead)
	same.Version = now.Version
	lead.learn(same) // a member has it, or this replica has applied it
	now = lead.Members()
	if m := now.OfNode(9); m.API != "stranger.example:1" {
		t.Errorf("the same directory of a member gives %+v", m)
	}
}

// A node that joins is told the members, and then applies directories from before: one that is not in them was not removed.
func TestANewerMemberThanADirectoryIsNotTakenForRemoved(t *testing.T) {
	_, _, lead := openDirectory(t)
	d := lead.Members()
	newer := core.Member{Replica: d.Next, Node: 9, Peer: "h:1"}
	start := func() { lead.roster.Store(&roster{list: append(append([]core.Member(nil), d.Members...), newer)}) }
	told := func() (replicas []uint64) {
		lead.leaves.Lock()
		defer lead.leaves.Unlock()
		for _, g := range lead.goodbyes {
			replicas = append(replicas, g.replica)
		}
		return replicas
	}
	start()
	if lead.learn(d); len(told()) > 0 {
		t.Errorf("replicas %d are told that they were removed", told())
	}
	start()
	d.Version, d.Next = d.Version+1, d.Next+1
	if lead.learn(d); !slices.Equal(told(), []uint64{newer.Replica}) {
		t.Errorf("replicas %d are told that they were removed, want %d", told(), newer.Replica)
	}
}

// A node that joins applies directories from before it, which lack members that it must reach.
func TestANodeThatJoinedGoesByNoDirectoryFromBefore(t *testing.T) {
	_, _, lead := openDirectory(t)
	d := lead.Members()
	older := d
	older.Version, older.Members = d.Version-1, d.Members[:1]
	lead.o.PeersVersion = d.Version
	start := &roster{list: d.Members}
	lead.roster.Store(start)
	if lead.learn(older); lead.who() != start {
		t.Errorf("it goes by version %d, of before it joined", lead.Members().Version)
	}
	if lead.learn(d); lead.Members().Version != d.Version {
		t.Errorf("it goes by version %d, want %d", lead.Members().Version, d.Version)
	}
}

func TestAReplicaProposesOfItsOwnNodeAlone(t *testing.T) {
	_, _, lead := openDirectory(t)
	other, own := uint64(0), uint64(0)
	for id := uint64(1); id <= 3; id++ {
		if id != lead.Replica() {
			other, own = own, id
		}
	}
	for _, do := range []core.MemberVerb{core.MemberSet, core.MemberRegister} {
		for node, speaks := range map[uint64]bool{own: false, other: true, lead.Replica(): true, 0: true, 99: true} {
			commit := core.Commit{Ops: []core.Op{&core.MemberChange{Do: do, Node: node}}}
			if got := lead.speaksForAnother(own, &commit); got != speaks {
				t.Errorf("verb %d: replica %d of node %d: %v, want %v", do, own, node, got, speaks)
			}
		}
	}
	for _, do := range []core.MemberVerb{core.MemberAdd, core.MemberRemove, core.MemberDrain, core.MemberCancel} { // an operator asked its node
		commit := core.Commit{Ops: []core.Op{&core.MemberChange{Do: do, Node: other}}}
		if lead.speaksForAnother(own, &commit) {
			t.Errorf("verb %d is refused", do)
		}
	}
}
