package commit

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// stepJob takes the running job a step on: every shard is where the directory wants it.
func (m *Machine) stepJob(d *core.Directory, op *core.MemberStep) core.Fact {
	j := &d.Job
	switch {
	case j.State != core.JobRunning || j.ID != op.Job:
		return core.WrongMembership{Reason: "no_job"}
	case d.Version != op.Version:
		return core.WrongMembership{Reason: "changed", Node: j.Node}
	case op.Fail && (m.clock.stamp < m.JobDue(j.Deadline) || j.Ending != 0 && !d.Returning()):
		return core.WrongMembership{Reason: "not_due", Node: j.Node}
	case op.Fail && d.Returning():
		j.Reason = "not_back"
		endJob(d, j.Ending, m.clock.stamp)
		return nil
	case op.Fail && !d.Undoable():
		return core.WrongMembership{Reason: "too_late", Node: j.Node}
	case op.Fail:
		j.Reason = "deadline"
		undoJob(d, core.JobFailed, m.clock.stamp)
		return nil
	}
	if d.Returning() {
		endJob(d, j.Ending, m.clock.stamp)
		return nil
	}
	who := d.Member(j.Replica)
	if who == nil {
		return core.WrongMembership{Reason: "changed", Node: j.Node}
	}
	switch who.State {
	case core.MemberCatchingUp:
		return caughtUp(d, who, m.clock.stamp)
	case core.MemberPromoting:
		who.State = core.MemberVoter
		forget(d, j.Old)
		endJob(d, core.JobDone, m.clock.stamp)
	case core.MemberRemoving:
		forget(d, j.Replica)
		if j.Ending != 0 {
			endJob(d, j.Ending, m.clock.stamp)
		} else {
			endJob(d, core.JobDone, m.clock.stamp)
		}
	case core.MemberLearner: // the one whose place it took has left
		forget(d, j.Old)
		endJob(d, core.JobDone, m.clock.stamp)
	default:
		return core.WrongMembership{Reason: who.State.String(), Node: who.Node}
	}
	return nil
}

// caughtUp goes on from a learner that has all of the logs.
func caughtUp(d *core.Directory, who *core.Member, stamp core.ShardTime) core.Fact {
	j := &d.Job
	// The join token has served, and is forgotten.
	who.Token, who.TokenUntil = core.JoinHash{}, 0
	old := d.Member(j.Old)
	if old != nil {
		old.State = core.MemberRemoving
	}
	switch {
	case !j.Learner:
		who.State = core.MemberPromoting
	case old != nil:
		who.State = core.MemberLearner // and the old one leaves
	default:
		who.State = core.MemberLearner
		endJob(d, core.JobDone, stamp)
	}
	return nil
}

// cancelJob takes the running job back at the request of an operator, as long as it can be undone.
func cancelJob(d *core.Directory, stamp core.ShardTime) core.Fact {
	switch j := &d.Job; {
	case j.State != core.JobRunning:
		return core.WrongMembership{Reason: "no_job"}
	case j.Ending != 0:
		return core.WrongMembership{Reason: "job_running", Node: j.Node}
	case !d.Undoable():
		return core.WrongMembership{Reason: "too_late", Node: j.Node}
	}
	undoJob(d, core.JobCancelled, stamp)
	return nil
}

// undoJob brings the set of voters back that was there before. Who came with the job leaves again, and who was leaving comes
// back: that takes time in the shards, and the job goes on until they are done, or for as long as a job may take.
func undoJob(d *core.Directory, ending core.JobState, stamp core.ShardTime) {
	j := &d.Job
	who, old := d.Member(j.Replica), d.Member(j.Old)
	switch j.Kind {
	// Who came with the job leaves; a node that never came is forgotten at once.
	case core.JobAdd, core.JobRejoin:
		if old != nil {
			old.State = j.Was
		}
		if who != nil && who.State == core.MemberJoining {
			forget(d, who.Replica)
			endJob(d, ending, stamp)
			return
		}
		if who != nil {
			who.State, j.Ending = core.MemberRemoving, ending
			return
		}
		endJob(d, ending, stamp)
	default:
		// The members take their states from before the job, and the shards follow.
		if who != nil {
			who.State = j.Was
		}
		if old != nil {
			old.State = core.MemberVoter
		}
		j.Ending, j.Deadline = ending, stamp.Add(jobTime)
	}
}

// endJob ends the job. It stays in the directory, to be read, until the next one begins.
func endJob(d *core.Directory, state core.JobState, stamp core.ShardTime) {
	d.Job.State, d.Job.Ended, d.Job.Ending = state, stamp, 0
}

// forget takes a replica out of the directory. Its id is not given again.
func forget(d *core.Directory, replica uint64) {
	d.Members = slices.DeleteFunc(d.Members, func(m core.Member) bool { return m.Replica == replica })
}
