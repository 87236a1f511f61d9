package node

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// stopClock is a clock whose boot time can be stopped. Raft's ticks stop with it, so that no election begins because of
// time.
type stopClock struct {
	env.SystemClock
	at atomic.Int64 // 0: it runs
}

func (c *stopClock) Boot() time.Duration {
	if at := c.at.Load(); at != 0 {
		return time.Duration(at)
	}
	return c.SystemClock.Boot()
}

func (c *stopClock) stop() { c.at.Store(int64(c.SystemClock.Boot())) }

// pass lets a stopped clock go on by a span.
func (c *stopClock) pass(d time.Duration) {
	if at := c.at.Load(); at > 0 {
		c.at.CompareAndSwap(at, at+int64(d))
	}
}

// stopped opens a cluster whose ticks have stopped, once it has a leader that has heard of all others since.
func stopped(t *testing.T, shards int) (*cluster, *rig) {
	t.Helper()
	clock := &stopClock{}
	c := openCluster(t, 3, Options{Clock: clock, TickEvery: 50 * time.Millisecond, Shards: shards})
	ctx := within(t, 30*time.Second)
	for {
		lead := c.commit(ctx, 0, &core.TaskCreate{ID: taskID(0), Queue: "q"})
		c.known(ctx)
		c.settled(0)
		clock.stop()
		if c.agree(lead) {
			c.commit(ctx, 0, &core.TaskCreate{ID: taskID(0), Queue: "q"})
			return c, lead
		}
		clock.at.Store(0) // it was stopped in the middle of an election
	}
}

// agree reports whether all nodes take one for the leader of shard 0, in the term in which it serves.
func (c *cluster) agree(lead *rig) bool {
	id := lead.node.o.Replica
	term, serves := lead.node.Leads(0)
	for _, r := range c.rigs {
		if st := r.node.Standings()[0]; st.Leader != id || st.Term != term {
			return false
		}
	}
	return serves
}

func TestAHandOverWaitsForNoElectionTimeoutAndLeavesNothingInDoubt(t *testing.T) {
	c, lead := stopped(t, 1)
	ctx := within(t, 30*time.Second)
	var writers sync.WaitGroup
	var made, refused atomic.Int64
	began := make(chan struct{}, 8)
	for w := range cap(began) {
		writers.Go(func() {
			for i := 0; ; i++ {
				id := taskID(1000*(w+1) + i)
				done := make(chan core.Proposed, 1)
				lead.node.Propose(c.ns, []core.Commit{{Partition: c.ns, Principal: "p", Ops: []core.Op{&core.TaskCreate{ID: id, Queue: "q"}}}},
					func(p core.Proposed) { done <- p })
				p := <-done
				if u, ok := errors.AsType[core.Unavailable](p.Err); ok && u.Unknown {
					t.Errorf("task %d of writer %d is left in doubt: %v", i, w, p.Err)
				}
				if p.Err != nil {
					refused.Add(1)
					return
				}
				if made.Add(1); i == 0 {
					began <- struct{}{}
				}
			}
		})
	}
	for range cap(began) {
		<-began
	}
	if n := lead.node.HandOver(ctx); n != 0 {
		t.Fatalf("%d shards stayed", n)
	}
	writers.Wait()
	next := c.leader(ctx, 0, lead.node.o.Replica)
	if next == lead {
		t.Fatal("the same node leads")
	}
	if got, want := next.node.shards[0].standing.term.Load(), lead.node.shards[0].standing.term.Load(); got != want {
		t.Errorf("the next leader has term %d, the last %d", got, want)
	}
	c.settled(0)
	t.Logf("%d tasks made before, %d refused", made.Load(), refused.Load())
}

func TestAllShardsOfALeavingNodeGoElsewhereAndNoneComesBack(t *testing.T) {
	c := openCluster(t, 3, Options{Shards: 4, TickEvery: 50 * time.Millisecond})
	ctx := within(t, 60*time.Second)
	leaving := c.rigs[1].node
	if n := leaving.HandOver(ctx); n != 0 {
		t.Fatalf("%d shards stayed", n)
	}
	for shard := range core.ShardID(4) {
		lead := c.leader(ctx, int(shard), 1)
		if err := lead.node.Transfer(ctx, shard, 1); err != nil && !isNotLeading(err) {
			t.Errorf("shard %d: %v", shard, err)
		}
		c.until(ctx, "the leaving node keeps a shard", func() bool {
			for id, r := range c.rigs {
				if _, serves := r.node.Leads(shard); serves && id != 1 {
					return true
				}
			}
			return false
		})
	}
}

func TestNodesThatAllLeaveServeBetweenTheirHandOvers(t *testing.T) {
	c, _ := stopped(t, 1)
	ctx := within(t, 30*time.Second)
	for id, r := range c.rigs {
		if n := r.node.HandOver(ctx); n != 0 {
			t.Fatalf("node %d: %d shards stayed", id, n)
		}
	}
	create := func() *rig { return c.commit(ctx, 0, &core.TaskCreate{ID: taskID(1), Queue: "q"}) }
	lead := create()
	term, _ := lead.node.Leads(0)
	for range 100 {
		next := create()
		if now, _ := next.node.Leads(0); next != lead || now != term {
			t.Fatalf("node %d leads in term %d, want node %d in term %d", next.node.o.Replica, now, lead.node.o.Replica, term)
		}
	}
	lead.node.o.Clock.(*stopClock).pass(transferPause)
	create() // it wakes the leader
	c.until(ctx, "the leader keeps the shard", func() bool {
		now, _ := lead.node.Leads(0)
		return now != term
	})
	create()
}

func isNotLeading(err error) bool {
	_, ok := errors.AsType[core.NotLeader](err)
	_, gone := errors.AsType[core.Unavailable](err)
	return ok || gone
}

func TestLeadershipMovesToTheNodeThatIsNamed(t *testing.T) {
	c, lead := stopped(t, 1)
	ctx := within(t, 30*time.Second)
	for range 4 {
		var to uint64
		for id, r := range c.rigs {
			if r != lead {
				to = id
			}
		}
		if err := lead.node.Transfer(ctx, 0, to); err != nil {
			t.Fatal(err)
		}
		if next := c.leader(ctx, 0, lead.node.o.Replica); next.node.o.Replica != to {
			t.Fatalf("node %d leads, want %d", next.node.o.Replica, to)
		}
		lead = c.commit(ctx, 0, &core.KVPut{Keyspace: "s", Key: []byte("k"), Value: []byte(fmt.Sprint(to))})
	}
	c.settled(0)
	for _, st := range lead.node.Standings() {
		if st.Leader != lead.node.o.Replica || !st.Serves || st.Applied == 0 || st.Commit < st.Applied || st.Last < st.Commit || st.Changes == 0 {
			t.Errorf("the leader's standing: %+v", st)
		}
	}
	for _, c := range []struct {
		shard core.ShardID
		to    uint64
	}{{9, 1}, {0, 9}, {0, 0}} {
		if err := lead.node.Transfer(ctx, c.shard, c.to); !isInvalid(err) {
			t.Errorf("shard %d to node %d: %v", c.shard, c.to, err)
		}
	}
	for _, r := range c.rigs {
		if r != lead && !isNotLeading(r.node.Transfer(ctx, 0, lead.node.o.Replica)) {
			t.Errorf("node %d moves what it does not lead", r.node.o.Replica)
		}
	}
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[core.Invalid](err)
	return ok
}

func TestALeaderThatReachesNobodyGivesUpAndServesOn(t *testing.T) {
	c, lead := stopped(t, 1)
	id := lead.node.o.Replica
	c.wires.alone(id, true)
	to := id%3 + 1
	err := lead.node.Transfer(within(t, 30*time.Second), 0, to)
	if u, ok := errors.AsType[core.Unavailable](err); !ok || u.Reason != "node_unreached" {
		t.Errorf("to a node that is not reached: %v", err)
	}
	if n := lead.node.HandOver(within(t, 30*time.Second)); n != 1 {
		t.Errorf("%d shards stayed, want 1", n)
	}
	c.wires.alone(id, false)
	c.commit(within(t, 30*time.Second), 0, &core.TaskCreate{ID: taskID(1), Queue: "q"})
}

func TestAShardThatWasMovedOnPurposeDoesNotGoHome(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("shards come home slowly")
	}
	clock := &leapClock{}
	c := openCluster(t, 3, Options{Clock: clock, Shards: 4, TickEvery: patient.TickEvery})
	ctx := within(t, 60*time.Second)
	leads := func(shard core.ShardID, node uint64) func() bool {
		return func() bool {
			_, serves := c.rigs[node].node.Leads(shard)
			return serves
		}
	}
	clock.leap.Store(int64(2 * spreadRest))
	for _, shard := range []core.ShardID{0, 3} { // both are at home with node 1
		c.until(ctx, "node 1 does not lead what is at home with it", leads(shard, 1))
		if err := c.rigs[1].node.Transfer(ctx, shard, 2); err != nil {
			t.Fatal(err)
		}
		c.until(ctx, "node 2 does not lead", leads(shard, 2))
		if shard == 0 {
			c.rigs[2].node.Keep(shard)
		}
	}
	clock.leap.Store(int64(4 * spreadRest))
	c.until(ctx, "the shard that is not kept did not go home", leads(3, 1))
	if !leads(0, 2)() {
		t.Error("the shard that is to be kept went home")
	}
}

// leapClock is a clock whose boot time a test moves on.
type leapClock struct {
	env.SystemClock
	leap atomic.Int64
}

func (c *leapClock) Boot() time.Duration { return c.SystemClock.Boot() + time.Duration(c.leap.Load()) }
