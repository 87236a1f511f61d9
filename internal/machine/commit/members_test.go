package commit

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// club is a machine of shard 0 that changes of membership are tried on.
type club struct {
	t     *testing.T
	tx    *machinetest.Txn
	m     *Machine
	index uint64
	stamp core.ShardTime
}

func newClub(t *testing.T, nodes ...uint64) *club {
	c := &club{t: t, tx: machinetest.NewTxn(), m: New(Options{}), stamp: 1000}
	if err := c.m.Open(c.tx); err != nil {
		t.Fatal(err)
	}
	op := &core.MembersInit{}
	for _, n := range nodes {
		op.Members = append(op.Members, core.Member{Replica: n, Node: n, Peer: peerOf(n), State: core.MemberVoter})
	}
	c.ok(op)
	return c
}

func peerOf(node uint64) string { return fmt.Sprint("p", node) }

// apply applies one op, and compares the machine with one opened from what is stored.
func (c *club) apply(op core.Op) core.Fact {
	c.t.Helper()
	c.index++
	applied, err := c.m.Apply(c.tx, c.index, &core.Entry{Format: 1, Stamp: c.stamp, Commits: []core.Commit{{Ops: []core.Op{op}}}})
	if err != nil {
		c.t.Fatal(err)
	}
	anew := New(Options{})
	if err := anew.Open(c.tx); err != nil {
		c.t.Fatal(err)
	}
	if !reflect.DeepEqual(anew.members, c.m.members) {
		c.t.Fatalf("stored %+v, in memory %+v", anew.members, c.m.members)
	}
	if r := applied.Results[0].Refusal; r != nil {
		return r.Fact
	}
	return nil
}

func (c *club) ok(op core.Op) {
	c.t.Helper()
	if fact := c.apply(op); fact != nil {
		c.t.Fatalf("%+v was refused: %v", op, fact)
	}
}

func (c *club) refused(op core.Op, want core.Fact) {
	c.t.Helper()
	before := c.m.Members()
	if got := c.apply(op); !reflect.DeepEqual(got, want) {
		c.t.Errorf("%+v: %#v, want %#v", op, got, want)
	}
	if !reflect.DeepEqual(c.m.Members(), before) {
		c.t.Errorf("a refused change changed %+v to %+v", before, c.m.Members())
	}
}

func (c *club) step() {
	c.t.Helper()
	d := c.m.Members()
	c.ok(&core.MemberStep{Job: d.Job.ID, Version: d.Version})
}

// want holds the directory to states by replica, and the job to its state.
func (c *club) want(job core.JobState, states map[uint64]core.MemberState) {
	c.t.Helper()
	d, got := c.m.Members(), map[uint64]core.MemberState{}
	for _, m := range d.Members {
		got[m.Replica] = m.State
	}
	if d.Job.State != job || !reflect.DeepEqual(got, states) {
		c.t.Errorf("job %s (%s), members %v; want %s, %v", d.Job.State, d.Job.Reason, got, job, states)
	}
}

var (
	ticket = core.JoinHash{1}
	disk   = core.StoreID{7}
)

func add(node uint64, learner bool) *core.MemberChange {
	return &core.MemberChange{Do: core.MemberAdd, Node: node, Peer: peerOf(node), Token: ticket, Learner: learner}
}

func join(node uint64, store core.StoreID) *core.MemberChange {
	return &core.MemberChange{Do: core.MemberJoin, Node: node, Token: ticket, Store: store}
}

func TestNodeJoinsAsALearnerAndBecomesAVoter(t *testing.T) {
	c := newClub(t, 1)
	c.ok(add(2, false))
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberJoining})
	c.refused(add(3, false), core.WrongMembership{Reason: "job_running", Node: 2})
	c.refused(&core.MemberChange{Do: core.MemberJoin, Node: 2, Token: core.JoinHash{9}, Store: disk},
		core.Invalid{Field: "join_token", Reason: "bad_token", Message: "not the token of this node, or it was used"})
	c.ok(join(2, disk))
	c.ok(join(2, disk)) // its answer was lost
	c.refused(join(2, core.StoreID{8}), core.Invalid{Field: "join_token", Reason: "bad_token", Message: "it was used"})
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberCatchingUp})
	c.step()
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberPromoting})
	c.step()
	c.want(core.JobDone, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter})
	c.refused(join(2, disk), core.Invalid{Field: "join_token", Reason: "bad_token", Message: "not the token of this node, or it was used"})
}

func TestJoinTokenHoldsForAnHour(t *testing.T) {
	c := newClub(t, 1)
	c.ok(add(2, false))
	c.stamp += 60 * 60 * 1000
	c.refused(join(2, disk), core.Invalid{Field: "join_token", Reason: "expired", Message: "its hour is over"})
	d := c.m.Members()
	c.ok(&core.MemberStep{Job: d.Job.ID, Version: d.Version, Fail: true})
	c.want(core.JobFailed, map[uint64]core.MemberState{1: core.MemberVoter})
}

func TestReplicaIDsAreNeverGivenAgain(t *testing.T) {
	c := newClub(t, 1, 2, 3)
	for want := uint64(4); want < 8; want++ {
		c.ok(add(4, false))
		if m := c.m.members.OfNode(4); m.Replica != want {
			t.Fatalf("node 4 is replica %d, want %d", m.Replica, want)
		}
		c.ok(&core.MemberChange{Do: core.MemberCancel})
		if d := c.m.Members(); !d.Gone(want) {
			t.Errorf("replica %d is not gone", want)
		}
	}
}

func TestRemovalLeavesAtLeastOneVoter(t *testing.T) {
	c := newClub(t, 1, 2)
	c.ok(&core.MemberChange{Do: core.MemberRemove, Node: 2})
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberRemoving})
	c.step()
	c.want(core.JobDone, map[uint64]core.MemberState{1: core.MemberVoter})
	c.refused(&core.MemberChange{Do: core.MemberRemove, Node: 1}, core.WrongMembership{Reason: "quorum_loss", Node: 1})
	c.refused(&core.MemberChange{Do: core.MemberRemove, Node: 2}, core.NotFound{Kind: "node", ID: "2"})
}

func TestReplaceWantsALearner(t *testing.T) {
	c := newClub(t, 1, 2, 3)
	swap := &core.MemberChange{Do: core.MemberReplace, Node: 2, With: 4}
	c.refused(swap, core.NotFound{Kind: "node", ID: "4"})
	c.ok(add(4, true))
	c.refused(swap, core.WrongMembership{Reason: "not_learner", Node: 4})
	c.ok(join(4, disk))
	c.step()
	c.want(core.JobDone, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberVoter, 4: core.MemberLearner})
	c.ok(swap)
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberRemoving, 3: core.MemberVoter, 4: core.MemberPromoting})
	c.ok(&core.MemberChange{Do: core.MemberCancel})
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberVoter, 4: core.MemberLearner})
	c.step()
	c.want(core.JobCancelled, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberVoter, 4: core.MemberLearner})
	c.ok(swap)
	c.step()
	c.want(core.JobDone, map[uint64]core.MemberState{1: core.MemberVoter, 3: core.MemberVoter, 4: core.MemberVoter})
}

func TestNodeThatLostItsDataComesBackUnderAnotherReplica(t *testing.T) {
	c := newClub(t, 1, 2, 3)
	c.ok(&core.MemberChange{Do: core.MemberRegister, Node: 3, Store: disk})
	back := &core.MemberChange{Do: core.MemberRejoin, Node: 3, Store: core.StoreID{8}}
	c.ok(&core.MemberChange{Do: core.MemberRejoin, Node: 3, Store: disk}) // it lost nothing
	c.want(0, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberVoter})
	c.ok(back)
	c.ok(back)
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberVoter, 4: core.MemberCatchingUp})
	c.step()
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberRemoving, 4: core.MemberPromoting})
	c.refused(&core.MemberChange{Do: core.MemberCancel}, core.WrongMembership{Reason: "too_late", Node: 3})
	c.step()
	c.want(core.JobDone, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 4: core.MemberVoter})
	if m := c.m.members.OfNode(3); m.Replica != 4 || m.Peer != peerOf(3) {
		t.Errorf("node 3 is %+v", m)
	}
}

func TestCancelledAddLeavesTheShardsFirst(t *testing.T) {
	c := newClub(t, 1, 2, 3)
	c.ok(add(4, false))
	c.ok(join(4, disk))
	c.step()
	c.ok(&core.MemberChange{Do: core.MemberCancel})
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberVoter, 4: core.MemberRemoving})
	c.refused(&core.MemberChange{Do: core.MemberCancel}, core.WrongMembership{Reason: "job_running", Node: 4})
	c.step()
	c.want(core.JobCancelled, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberVoter})
}

func TestStepOfAnotherVersionChangesNothing(t *testing.T) {
	c := newClub(t, 1, 2)
	c.ok(&core.MemberChange{Do: core.MemberRemove, Node: 2})
	d := c.m.Members()
	c.ok(&core.MemberChange{Do: core.MemberSet, Node: 1, Peer: "elsewhere"})
	c.refused(&core.MemberStep{Job: d.Job.ID, Version: d.Version}, core.WrongMembership{Reason: "changed", Node: 2})
	c.refused(&core.MemberStep{Job: d.Job.ID, Version: d.Version + 1, Fail: true}, core.WrongMembership{Reason: "not_due", Node: 2})
	c.refused(&core.MemberStep{Job: d.Job.ID + 1, Version: d.Version + 1}, core.WrongMembership{Reason: "no_job"})
}

func TestMembershipIsBounded(t *testing.T) {
	c := newClub(t, 1)
	for n := uint64(2); n <= 5; n++ {
		c.ok(add(n, true))
		c.ok(join(n, core.StoreID{byte(n)}))
		c.step()
	}
	c.refused(add(6, true), core.Exhausted{Limit: "learners", Max: 4})
	c.refused(add(2, false), core.AlreadyExists{Kind: "node", ID: "2"})
	a := add(6, false)
	a.Peer = peerOf(2)
	c.refused(a, core.AlreadyExists{Kind: "address", ID: peerOf(2)})
	c.refused(&core.MemberChange{Do: core.MemberPromote, Node: 1}, core.WrongMembership{Reason: "not_learner", Node: 1})
}

func TestAClusterGrowsToSevenVoters(t *testing.T) {
	full := core.Exhausted{Limit: "voters", Max: 7}
	seven := newClub(t, 1, 2, 3, 4, 5, 6, 7)
	seven.refused(add(8, false), full)
	seven.ok(add(8, true))
	seven.ok(join(8, disk))
	seven.step()
	seven.refused(&core.MemberChange{Do: core.MemberPromote, Node: 8}, full)
	seven.ok(&core.MemberChange{Do: core.MemberReplace, Node: 7, With: 8})

	six := newClub(t, 1, 2, 3, 4, 5, 6)
	six.ok(add(7, false))
	eight := newClub(t, 1, 2, 3, 4, 5, 6, 7, 8) // as it was started
	eight.refused(add(9, false), full)
}

func TestMembershipStandsAloneInShard0(t *testing.T) {
	c := newClub(t, 1)
	other := New(Options{Shard: 1})
	if err := other.Open(machinetest.NewTxn()); err != nil {
		t.Fatal(err)
	}
	applied, err := other.Apply(machinetest.NewTxn(), 1, &core.Entry{Format: 1, Stamp: 1, Commits: []core.Commit{{Ops: []core.Op{&core.MembersInit{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[core.WrongPartition](applied.Results[0].Refusal.Fact); !ok {
		t.Errorf("in shard 1: %v", applied.Results[0].Refusal)
	}
	applied, err = c.m.Apply(c.tx, 9, &core.Entry{Format: 1, Stamp: 1000, Commits: []core.Commit{{Ops: []core.Op{add(2, false), add(3, false)}}}})
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := errors.AsType[core.Invalid](applied.Results[0].Refusal.Fact); !ok || f.Reason != "not_alone" {
		t.Errorf("two together: %v", applied.Results[0].Refusal)
	}
}

func TestADrainedMemberLeavesSomebodyWhoMayLead(t *testing.T) {
	c := newClub(t, 1, 2)
	drain := func(node uint64) *core.MemberChange { return &core.MemberChange{Do: core.MemberDrain, Node: node} }
	c.ok(drain(1))
	version := c.m.members.Version
	c.ok(drain(1))
	if d := c.m.Members(); d.Version != version || !d.Members[0].Drained {
		t.Errorf("drained twice: %+v", d)
	}
	c.refused(drain(2), core.WrongMembership{Reason: "nobody_leads", Node: 2})
	c.refused(drain(7), core.NotFound{Kind: "node", ID: "7"})
	c.ok(&core.MemberChange{Do: core.MemberUndrain, Node: 1})
	c.ok(drain(2))
	if d := c.m.Members(); d.Members[0].Drained || !d.Members[1].Drained {
		t.Errorf("members %+v", d.Members)
	}
	c.ok(&core.MemberChange{Do: core.MemberRemove, Node: 2})
	c.refused(drain(2), core.WrongMembership{Reason: "removing", Node: 2})
}
