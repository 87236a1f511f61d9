package commit

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestACancelledRemovalGoesOnUntilAllShardsHaveTheNodeAgain(t *testing.T) {
	c := newClub(t, 1, 2, 3)
	all := map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberVoter, 3: core.MemberVoter}
	remove := &core.MemberChange{Do: core.MemberRemove, Node: 2}
	c.ok(remove)
	c.ok(&core.MemberChange{Do: core.MemberCancel})
	c.want(core.JobRunning, all)
	busy := core.WrongMembership{Reason: "job_running", Node: 2}
	c.refused(&core.MemberChange{Do: core.MemberRemove, Node: 3}, busy)
	c.refused(add(4, false), busy)
	c.refused(&core.MemberChange{Do: core.MemberCancel}, busy)
	d := c.m.Members()
	c.refused(&core.MemberStep{Job: d.Job.ID, Version: d.Version, Fail: true}, core.WrongMembership{Reason: "not_due", Node: 2})
	c.step()
	c.want(core.JobCancelled, all)

	c.ok(remove)
	c.ok(&core.MemberChange{Do: core.MemberCancel})
	c.ok(remove) // it does not come back: there is no need to wait for it
	c.want(core.JobRunning, map[uint64]core.MemberState{1: core.MemberVoter, 2: core.MemberRemoving, 3: core.MemberVoter})
	c.step()
	c.want(core.JobDone, map[uint64]core.MemberState{1: core.MemberVoter, 3: core.MemberVoter})
}

func TestANodeThatDoesNotComeBackIsWaitedForAnHour(t *testing.T) {
	c := newClub(t, 1, 2, 3)
	c.ok(&core.MemberChange{Do: core.MemberRemove, Node: 2})
	c.stamp = c.stamp.Add(jobTime - 1)
	c.ok(&core.MemberChange{Do: core.MemberCancel})
	c.stamp = c.stamp.Add(jobTime)
	d := c.m.Members()
	c.ok(&core.MemberStep{Job: d.Job.ID, Version: d.Version, Fail: true})
	if d = c.m.Members(); d.Job.State != core.JobCancelled || d.Job.Reason != "not_back" || d.Member(2).State != core.MemberVoter {
		t.Errorf("it ended as %+v", d.Job)
	}
}

func TestANodeThatLosesItsDataWhileItComesBackDoesSoUnderAnotherReplica(t *testing.T) {
	c := newClub(t, 1, 2, 3)
	c.ok(&core.MemberChange{Do: core.MemberRegister, Node: 2, Store: disk})
	c.ok(&core.MemberChange{Do: core.MemberRemove, Node: 2})
	c.ok(&core.MemberChange{Do: core.MemberCancel})
	c.ok(&core.MemberChange{Do: core.MemberRejoin, Node: 2, Store: core.StoreID{8}})
	if d := c.m.Members(); d.Job.Kind != core.JobRejoin || d.OfNode(2).Replica != 4 {
		t.Errorf("job %+v, node 2 is %+v", d.Job, d.OfNode(2))
	}
}
