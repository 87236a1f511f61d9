package node

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

func TestEveryNodeMakesNamespacesOfManyPartitions(t *testing.T) {
	c := openCluster(t, 3, Options{TickEvery: patient.TickEvery, Shards: 4})
	ctx := within(t, 30*time.Second)
	for id, r := range c.rigs {
		name := []string{"", "a", "b", "c"}[id]
		info, replayed, err := r.node.CreateNamespace(ctx, "acme", name, 6)
		if err != nil || replayed || len(info.Partitions) != 6 {
			t.Fatalf("node %d: %+v, replayed %v, %v", id, info, replayed, err)
		}
		shards := make(map[core.ShardID]int)
		for _, p := range info.Partitions {
			shards[p.Shard]++
		}
		if len(shards) != 4 {
			t.Errorf("node %d: six partitions lie on shards %v, want all four", id, shards)
		}
		if _, replayed, err := r.node.CreateNamespace(ctx, "acme", name, 6); err != nil || !replayed {
			t.Errorf("node %d: made again: replayed %v, %v", id, replayed, err)
		}
		var exists core.AlreadyExists
		if _, _, err := r.node.CreateNamespace(ctx, "acme", name, 5); !errors.As(err, &exists) {
			t.Errorf("node %d: made again with five partitions: %v", id, err)
		}
	}
	var invalid core.Invalid
	if _, _, err := c.rigs[1].node.CreateNamespace(ctx, "acme", "huge", 4097); !errors.As(err, &invalid) || invalid.Field != "partitions" {
		t.Errorf("4,097 partitions: %v", err)
	}
}

func TestProposalsAreForwardedToWhoeverLeads(t *testing.T) {
	c := openCluster(t, 3, Options{TickEvery: patient.TickEvery, Shards: 4})
	ctx := within(t, 30*time.Second)
	info, _, err := c.rigs[2].node.CreateNamespace(ctx, "acme", "wide", 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.rigs {
		c.until(ctx, "the namespace is not known everywhere", func() bool {
			_, ok, err := r.node.FindNamespace("acme", "wide")
			return ok && err == nil
		})
	}
	n := 0
	for id, r := range c.rigs {
		for _, p := range info.Partitions {
			op := &core.TaskCreate{ID: taskID(n).WithPartition(p.Partition.Index), Queue: "q", Tag: "t"}
			n++
			commits := []core.Commit{
				{Partition: p.Partition, Ops: []core.Op{op}},
				{Partition: p.Partition, Ops: []core.Op{&core.TaskComplete{Task: op.ID, Token: 77}}},
			}
			got := r.node.Forward(ctx, p.Partition, commits)
			if got.Err != nil || len(got.Results) != 2 || got.At.Index == 0 || got.At.Partition != p.Partition.Index || got.At.Stamp == 0 {
				t.Fatalf("node %d, partition %s: %+v", id, p.Partition, got)
			}
			if ops := got.Results[0].Ops; len(ops) != 1 || ops[0].Task != op.ID {
				t.Errorf("node %d, partition %s: the create is answered %+v", id, p.Partition, got.Results[0])
			}
			if f := got.Results[1].Refusal; f == nil || f.Op != 0 || f.Fact != (core.LeaseLost{Task: op.ID, Given: 77}) {
				t.Errorf("node %d, partition %s: a lease that no worker holds is answered %+v", id, p.Partition, f)
			}
			for other, r := range c.rigs {
				task, _, err := r.node.Task(ctx, p.Partition, op.ID, core.ReadOptions{})
				if err != nil || task.Tag != "t" {
					t.Errorf("node %d does not show what was forwarded by %d: %+v, %v", other, id, task, err)
				}
				if !r.node.Backlog(p.Partition, []core.GrantQueue{{Name: "other"}, {Name: "q"}}) || r.node.Backlog(p.Partition, []core.GrantQueue{{Name: "other"}}) {
					t.Errorf("node %d does not tell which queues of partition %s have ready tasks", other, p.Partition)
				}
			}
		}
	}
}

// A claim of any partition waits at one node, which the others find by its name. A node that does not answer leaves it unknown.
func TestANamedClaimIsEndedFromAnyNode(t *testing.T) {
	c := openCluster(t, 3, Options{TickEvery: patient.TickEvery, Shards: 3})
	ctx := within(t, 30*time.Second)
	info, _, err := c.rigs[2].node.CreateNamespace(ctx, "acme", "wide", 6)
	if err != nil {
		t.Fatal(err)
	}
	name := core.RequestID{1}
	ns, other := info.Partitions[0].Partition, info.Partitions[0].Partition
	other.Namespace++
	var last uint64 // that led a partition
	for asked, r := range c.rigs {
		var leaders []uint64
		c.until(ctx, "a partition has no leader", func() bool {
			if _, ok, err := r.node.FindNamespace("acme", "wide"); err != nil || !ok {
				return false
			}
			var missing bool
			leaders, missing = r.node.leadersOf(info.Partitions)
			return !missing
		})
		for _, at := range leaders {
			last = at
			claim, end := context.WithCancelCause(ctx)
			elsewhere, endElsewhere := context.WithCancelCause(ctx)
			done := c.rigs[at].node.NameClaim(ns, name, end)
			doneElsewhere := c.rigs[at].node.NameClaim(other, name, endElsewhere)
			if found, err := r.node.EndClaim(ctx, info.Partitions, name); !found || err != nil || !errors.Is(context.Cause(claim), core.ErrClaimEnded) {
				t.Errorf("node %d ends the claim at node %d: %v, %v; it ended with %v", asked, at, found, err, context.Cause(claim))
			}
			if elsewhere.Err() != nil {
				t.Error("the claim of another namespace is ended too")
			}
			done()
			doneElsewhere()
			if found, err := r.node.EndClaim(ctx, info.Partitions, name); found || err != nil {
				t.Errorf("node %d ends no claim: %v, %v", asked, found, err)
			}
		}
	}
	c.wires.alone(last, true)
	var gone core.Unavailable
	if found, err := c.rigs[last%3+1].node.EndClaim(ctx, info.Partitions, name); found || !errors.As(err, &gone) {
		t.Errorf("while a leader is cut off: %v, %v", found, err)
	}
}

// A forwarded proposal ends though its leader vanishes: it may have been applied.
func TestAForwardedProposalEndsWhenItsLeaderIsGone(t *testing.T) {
	t.Parallel()
	c := openCluster(t, 3, patient)
	ctx := within(t, 30*time.Second)
	lead := c.leader(ctx, 0, 0).node.o.Replica
	c.known(ctx)
	follower := c.rigs[lead%3+1]
	_, here, known := follower.node.Leader(c.ns)
	if here || !known {
		t.Fatalf("a follower thinks that it leads: here %v, known %v", here, known)
	}
	c.wires.alone(lead, true)
	p := follower.node.Forward(ctx, c.ns, []core.Commit{{Partition: c.ns, Ops: []core.Op{&core.TaskCreate{ID: taskID(1), Queue: "q"}}}})
	var gone core.Unavailable
	if p.Err != nil && !errors.As(p.Err, &gone) {
		t.Errorf("with its leader cut off, the proposal ended with %v", p.Err)
	}
	c.wires.alone(lead, false)
	short, cancel := context.WithTimeout(ctx, 0)
	defer cancel()
	if p := follower.node.Forward(short, c.ns, []core.Commit{{Partition: c.ns, Ops: []core.Op{&core.TaskCreate{ID: taskID(2), Queue: "q"}}}}); p.Err == nil {
		t.Error("a proposal of a caller that is gone succeeds")
	}
}

func TestAnswersOfProposalsComeThroughWhole(t *testing.T) {
	for _, want := range []core.Proposed{
		{At: core.At{Partition: 3, Index: 9, Stamp: 1_700_000_000_000}, Results: []core.Result{
			{Index: 9, Ops: []core.OpResult{{Kind: core.OpKVPut, Rev: 4}}},
			{Refusal: &core.Refusal{Op: -1, Fact: core.LeaseLost{Given: 3}}},
		}},
		{Err: core.NotLeader{Leader: "n2"}},
		{Err: core.Unavailable{Reason: "overload", Limit: "proposals"}},
	} {
		b := appendProposed(nil, &want)
		got, err := decodeProposed(b)
		if err != nil || len(got.Results) != len(want.Results) || got.Err != want.Err || got.At != want.At {
			t.Errorf("%+v arrives as %+v, %v", want, got, err)
		}
		for i := range want.Results {
			if x, y := core.AppendResult(nil, &want.Results[i]), core.AppendResult(nil, &got.Results[i]); string(x) != string(y) {
				t.Errorf("result %d arrives as %+v, want %+v", i, got.Results[i], want.Results[i])
			}
		}
		for n := range b { // cut off anywhere: what is left may be fewer whole results, never a panic
			_, _ = decodeProposed(b[:n])
		}
	}
}

func TestAnAnswerIsTakenOnlyFromWhoWasAskedAndOnlyByTheRunThatAsked(t *testing.T) {
	c := openCluster(t, 1, Options{})
	n := c.rigs[1].node
	if n.forwards.last == 0 || n.workersAsks.last == 0 {
		t.Error("numbers of questions start again with each run")
	}
	id, answer := n.forwards.begin(2)
	msg := appendProposed(binary.BigEndian.AppendUint64(nil, id), &core.Proposed{Results: []core.Result{{}}})
	n.takeAnswer(3, msg)
	n.takeAnswer(2, append(binary.BigEndian.AppendUint64(nil, id-1), msg[8:]...))
	select {
	case p := <-answer:
		t.Errorf("taken from another: %+v", p)
	default:
	}
	n.takeAnswer(2, msg)
	select {
	case p := <-answer:
		if len(p.Results) != 1 {
			t.Errorf("arrived as %+v", p)
		}
	default:
		t.Error("the answer did not arrive")
	}
	n.takeAnswer(2, msg) // again: no caller waits
}

// Commits that are acceptable each by itself may be more together than the log takes in one entry.
func TestABatchLargerThanAnEntryIsTaken(t *testing.T) {
	c := openCluster(t, 3, patient)
	ctx := within(t, 60*time.Second)
	lead := c.leader(ctx, 0, 0)
	c.known(ctx)
	payload := make([]byte, 1<<20)
	n := 0
	batch := func() (commits []core.Commit) {
		for range 7 {
			commits = append(commits, core.Commit{Partition: c.ns, Ops: []core.Op{&core.TaskCreate{ID: taskID(n), Queue: "q", Payload: payload}}})
			n++
		}
		return commits
	}
	for id, r := range c.rigs {
		if r.ns = c.ns; r != lead && id != lead.node.o.Replica%3+1 {
			continue // one follower is enough
		}
		var p core.Proposed
		if r == lead {
			p = r.propose(batch()...)
		} else {
			p = r.node.Forward(ctx, c.ns, batch())
		}
		if p.Err != nil || len(p.Results) != 7 {
			t.Fatalf("node %d: %d results, %v", id, len(p.Results), p.Err)
		}
		for i, res := range p.Results {
			if res.Refusal != nil {
				t.Errorf("node %d, commit %d: %v", id, i, res.Refusal.Fact)
			}
		}
	}
	c.settled(0)
}
