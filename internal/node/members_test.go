package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// ticket is the hash of the token that nodes of these tests join with.
var ticket = core.JoinHash{1}

// boss returns the node that leads shard 0.
func (c *cluster) boss(ctx context.Context) *Node { return c.leader(ctx, 0, 0).node }

// ask changes the membership at the node that leads shard 0, wherever that goes meanwhile.
func (c *cluster) ask(ctx context.Context, op *core.MemberChange) (core.Directory, error) {
	c.t.Helper()
	for {
		d, err := c.boss(ctx).ChangeMember(ctx, op)
		if _, ok := errors.AsType[core.NotLeader](err); ok && ctx.Err() == nil {
			continue
		}
		if u, ok := errors.AsType[core.Unavailable](err); ok && !u.Unknown && ctx.Err() == nil {
			continue
		}
		return d, err
	}
}

// over waits for the end of the job under way.
func (c *cluster) over(ctx context.Context) core.Directory {
	c.t.Helper()
	var d core.Directory
	c.until(ctx, "the job does not end", func() bool {
		d = c.boss(ctx).Members()
		return d.Job.State != core.JobRunning
	})
	return d
}

// join starts a node that the directory waits for, as serve --join does.
func (c *cluster) join(ctx context.Context, node uint64, disk *replogtest.Disk) core.Directory {
	c.t.Helper()
	d, err := c.ask(ctx, &core.MemberChange{Do: core.MemberJoin, Node: node, Token: ticket, Store: core.StoreID{byte(node)}, API: fmt.Sprint("n", node)})
	if err != nil {
		c.t.Fatalf("node %d joins: %v", node, err)
	}
	c.disks[node] = disk
	c.startJoined(node, d)
	return d
}

// startJoined starts a node that is in the directory, with a disk that has or has not seen that.
func (c *cluster) startJoined(node uint64, d core.Directory) {
	c.t.Helper()
	o := c.o
	o.PeersVersion = d.Version
	o.Node, o.Replica, o.Joining, o.Address, o.Network = node, d.OfNode(node).Replica, true, fmt.Sprint("n", node), plug{c.wires, node}
	o.TickEvery = 20 * time.Millisecond
	for _, m := range d.Members {
		if m.Node != node {
			o.Peers = append(o.Peers, Peer{Replica: m.Replica, Node: m.Node, Address: m.API})
		}
	}
	r, err := startRig(c.t, rigOptions{disk: c.disks[node], clock: c.o.Clock, node: o})
	if err != nil {
		c.t.Fatalf("node %d: %v", node, err)
	}
	r.ns = c.ns
	c.rigs[node] = r
	c.wires.mu.Lock()
	c.wires.nodes[node] = r.node
	c.wires.mu.Unlock()
}

// grow adds a node and waits until it is what it is to be.
func (c *cluster) grow(ctx context.Context, node uint64, learner bool) core.Directory {
	c.t.Helper()
	_, err := c.ask(ctx, &core.MemberChange{Do: core.MemberAdd, Node: node, Peer: fmt.Sprint("p", node), Token: ticket, Learner: learner})
	if err != nil {
		c.t.Fatalf("add node %d: %v", node, err)
	}
	c.join(ctx, node, replogtest.NewDisk())
	d := c.over(ctx)
	if d.Job.State != core.JobDone {
		c.t.Fatalf("node %d was not added: %+v", node, d.Job)
	}
	return d
}

// voters waits until the configuration of every shard, on every node that is in it, is of these nodes.
func (c *cluster) votersAre(ctx context.Context, nodes ...uint64) {
	c.t.Helper()
	c.until(ctx, fmt.Sprintf("the voters are not nodes %v", nodes), func() bool {
		for _, id := range nodes {
			n := c.rigs[id].node
			for _, st := range n.Standings() {
				var got []uint64
				for _, replica := range st.Conf.Voters {
					got = append(got, n.who().nodeOf(replica))
				}
				slices.Sort(got)
				if st.Conf.Joint() || !slices.Equal(got, nodes) {
					return false
				}
			}
		}
		return true
	})
}

func putKey(key string) *core.KVPut {
	return &core.KVPut{Keyspace: "keys", Key: []byte(key), Value: []byte("v")}
}

// load writes keys, one after the other, until it is stopped; stop returns those that were acknowledged.
func (c *cluster) load(ctx context.Context) (stop func() []string) {
	quit, done := make(chan struct{}), make(chan []string, 1)
	go func() {
		var acked []string
		for i := 0; ; i++ {
			select {
			case <-quit:
				done <- acked
				return
			default:
			}
			key := fmt.Sprint("k", i)
			for ctx.Err() == nil {
				n := c.anyNode()
				if _, known, err := n.FindNamespace("acme", "default"); !known || err != nil {
					continue // it is about to be told
				}
				if p := n.Forward(ctx, c.ns, []core.Commit{{Partition: c.ns, Ops: []core.Op{putKey(key)}}}); p.Err == nil {
					acked = append(acked, key)
					break
				}
			}
		}
	}()
	return func() []string { close(quit); return <-done }
}

// anyNode returns a node that runs.
func (c *cluster) anyNode() *Node {
	c.wires.mu.Lock()
	defer c.wires.mu.Unlock()
	best := uint64(0)
	for id := range c.wires.nodes {
		best = max(best, id)
	}
	return c.wires.nodes[best]
}

// has holds a node's own state to keys that were acknowledged.
func (c *cluster) has(ctx context.Context, node uint64, keys []string) {
	c.t.Helper()
	r := c.rigs[node]
	c.until(ctx, fmt.Sprintf("node %d does not know the namespace", node), func() bool {
		_, ok, err := r.node.FindNamespace("acme", "default")
		return err == nil && ok
	})
	for i, key := range keys { // the first read brings the node up to date
		if k, _, err := r.node.Key(ctx, c.ns, "keys", []byte(key), core.ReadOptions{Stale: i > 0}); err != nil || k.Rev == 0 {
			c.t.Fatalf("node %d: key %s: revision %d, %v", node, key, k.Rev, err)
		}
	}
}

func TestOneNodeGrowsToThreeAndShrinksUnderLoad(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 1, Options{Shards: 2})
	stop := c.load(ctx)
	c.grow(ctx, 2, false)
	d := c.grow(ctx, 3, false)
	c.votersAre(ctx, 1, 2, 3)
	for i, m := range d.Members {
		if m.Replica != uint64(i+1) || m.Node != uint64(i+1) || m.State != core.MemberVoter {
			t.Errorf("member %+v", m)
		}
	}
	if _, err := c.ask(ctx, &core.MemberChange{Do: core.MemberRemove, Node: 1}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-c.rigs[1].node.Fatal():
		if gone, ok := errors.AsType[*RemovedError](err); !ok || gone.Node != 1 {
			t.Errorf("the removed node ended with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("the removed node serves on")
	}
	c.stop(1)
	if d := c.over(ctx); d.Job.State != core.JobDone || d.OfNode(1) != nil || !d.Gone(1) {
		t.Errorf("after the removal: %+v", d)
	}
	c.votersAre(ctx, 2, 3)
	keys := stop()
	t.Logf("%d keys", len(keys))
	c.has(ctx, 2, keys)
	c.has(ctx, 3, keys)
	if len(keys) == 0 {
		t.Error("nothing was written meanwhile")
	}
}

func TestReplaceTakesOneInAndOneOutInOneStep(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 3, Options{})
	d := c.grow(ctx, 4, true)
	if m := d.OfNode(4); m.State != core.MemberLearner {
		t.Fatalf("node 4 is %+v", m)
	}
	for {
		_, err := c.ask(ctx, &core.MemberChange{Do: core.MemberReplace, Node: 2, With: 4})
		if behind, ok := errors.AsType[core.WrongMembership](err); ok && behind.Reason == "learner_behind" {
			continue // until its leader has heard of it
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if d := c.over(ctx); d.Job.State != core.JobDone {
		t.Fatalf("%+v", d.Job)
	}
	c.votersAre(ctx, 1, 3, 4)
}

func TestNodeWithoutItsDataComesBackUnderAnotherReplica(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 3, Options{})
	c.commit(ctx, 0, putKey("before"))
	c.stop(3)
	d, err := c.ask(ctx, &core.MemberChange{Do: core.MemberRejoin, Node: 3, Store: core.StoreID{9}})
	if err != nil {
		t.Fatal(err)
	}
	c.disks[3] = replogtest.NewDisk()
	c.startJoined(3, d)
	if d = c.over(ctx); d.Job.State != core.JobDone || d.OfNode(3).Replica != 4 || !d.Gone(3) {
		t.Fatalf("%+v", d)
	}
	c.votersAre(ctx, 1, 2, 3)
	c.has(ctx, 3, []string{"before"})
	c.stop(3)
	c.startJoined(3, d) // and starts again with what it has
	c.votersAre(ctx, 1, 2, 3)
	c.has(ctx, 3, []string{"before"})
}

func TestRemovalThatWouldLoseTheMajorityChangesNothing(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 3, Options{})
	lead := c.leader(ctx, 0, 0).node
	var away, other uint64
	for id := uint64(1); id <= 3; id++ {
		switch {
		case id == lead.Replica():
		case away == 0:
			away = id
		default:
			other = id
		}
	}
	if err := lead.ensureDirectory(ctx); err != nil {
		t.Fatal(err)
	}
	c.stop(away)
	var lost core.WrongMembership
	c.until(ctx, "a removal is not refused", func() bool {
		reached := lead.shards[0].view.reached.Load()
		return reached != nil && !contains(*reached, away)
	})
	before := lead.Members()
	_, err := lead.ChangeMember(ctx, &core.MemberChange{Do: core.MemberRemove, Node: other})
	if !errors.As(err, &lost) || lost.Reason != "quorum_loss" {
		t.Errorf("removal: %v", err)
	}
	if after := lead.Members(); after.Version != before.Version {
		t.Errorf("the refused removal changed %+v to %+v", before, after)
	}
	if _, err := lead.ChangeMember(ctx, &core.MemberChange{Do: core.MemberRemove, Node: away}); err != nil {
		t.Errorf("removal of the node that is gone: %v", err)
	}
	if d := c.over(ctx); d.Job.State != core.JobDone {
		t.Errorf("%+v", d.Job)
	}
}

func TestLastVoterIsNotRemoved(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 1, Options{})
	_, err := c.ask(ctx, &core.MemberChange{Do: core.MemberRemove, Node: 1})
	if lost, ok := errors.AsType[core.WrongMembership](err); !ok || lost.Reason != "quorum_loss" {
		t.Errorf("removal of the only node: %v", err)
	}
}

func TestCancelledAddLeavesTheOldSet(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 3, Options{})
	if _, err := c.ask(ctx, &core.MemberChange{Do: core.MemberAdd, Node: 4, Peer: "p4", Token: ticket}); err != nil {
		t.Fatal(err)
	}
	// It came, and does not run: the job waits for it only as long as the operator does.
	if _, err := c.ask(ctx, &core.MemberChange{Do: core.MemberJoin, Node: 4, Token: ticket, Store: core.StoreID{4}}); err != nil {
		t.Fatal(err)
	}
	c.until(ctx, "the learner does not come", func() bool { return c.boss(ctx).Standings()[0].Conf.Learns(4) })
	if _, err := c.ask(ctx, &core.MemberChange{Do: core.MemberCancel}); err != nil {
		t.Fatal(err)
	}
	d := c.over(ctx)
	if d.Job.State != core.JobCancelled || d.OfNode(4) != nil {
		t.Errorf("%+v", d)
	}
	if conf := c.boss(ctx).Standings()[0].Conf; len(conf.Learners) > 0 || len(conf.Voters) != 3 {
		t.Errorf("configuration %+v", conf)
	}
}

func TestACancelledRemovalEndsWhenAllShardsHaveTheVoterAgain(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 3, Options{Shards: 2})
	left := func() bool { // some shard is without the node
		for shard := range 2 {
			if conf := c.leader(ctx, shard, 0).node.Standings()[shard].Conf; !conf.Votes(3) {
				return true
			}
		}
		return false
	}
	c.until(ctx, "the nodes are not heard of", func() bool {
		_, err := c.ask(ctx, &core.MemberChange{Do: core.MemberRemove, Node: 3})
		return err == nil
	})
	c.until(ctx, "no shard lets it go", left)
	if _, err := c.ask(ctx, &core.MemberChange{Do: core.MemberCancel}); err != nil {
		t.Skipf("it was gone before it was taken back: %v", err)
	}
	if d := c.over(ctx); d.Job.State != core.JobCancelled || d.Job.Reason != "" {
		t.Errorf("job %+v", d.Job)
	}
	if left() {
		t.Error("the job has ended, and a shard is without the node")
	}
}

func TestNextLeaderTakesTheJobOver(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 3, Options{})
	if _, err := c.ask(ctx, &core.MemberChange{Do: core.MemberAdd, Node: 4, Peer: "p4", Token: ticket}); err != nil {
		t.Fatal(err)
	}
	lead := c.boss(ctx).Replica()
	c.join(ctx, 4, replogtest.NewDisk())
	c.stop(lead)
	if d := c.over(ctx); d.Job.State != core.JobDone || d.OfNode(4).State != core.MemberVoter {
		t.Errorf("%+v", d)
	}
}

func TestTheOnlyVoterIsReplaced(t *testing.T) {
	ctx := within(t, time.Minute)
	c := openCluster(t, 1, Options{Shards: 2})
	stop := c.load(ctx)
	c.grow(ctx, 2, true)
	for {
		_, err := c.ask(ctx, &core.MemberChange{Do: core.MemberReplace, Node: 1, With: 2})
		if w, behind := errors.AsType[core.WrongMembership](err); behind && w.Reason == "learner_behind" && ctx.Err() == nil {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	select {
	case <-c.rigs[1].node.Fatal():
	case <-ctx.Done():
		t.Fatal("the node that was replaced serves on")
	}
	c.stop(1)
	c.votersAre(ctx, 2)
	c.has(ctx, 2, stop())
}
