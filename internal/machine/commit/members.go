package commit

import (
	"slices"
	"strconv"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// The directory of members lies in one row of the system partition of shard 0. It says what the configuration of every
// shard's log is to be; the leaders of the shards bring it about, and the leader of shard 0 takes the job on when they
// have. One job runs at a time.

const (
	// How many voters the members who are added may make; more only wait for each other. A cluster may begin with
	// more.
	maxVoters = 7
	// maxLearners bounds the members that stay learners.
	maxLearners = 4
	// jobTime is how long a job may take, and a join token holds.
	jobTime core.Millis = 60 * 60 * 1000
	// jobGrace is what is left of that at least when a term begins: shard time may step forward by any amount then.
	jobGrace core.Millis = 10 * 60 * 1000
	// maxMemberText bounds a name and an address.
	maxMemberText = 255
)

// JobDue returns when the running job, or a token, whose time ends at deadline is out of time.
func (m *Machine) JobDue(deadline core.ShardTime) core.ShardTime {
	return max(deadline, m.clock.termStart.Add(jobGrace))
}

// Members returns the directory. Nothing in it changes any more: a change makes another one.
func (m *Machine) Members() core.Directory { return m.members }

// ReadMembers reads the directory of members from a View of shard 0.
func ReadMembers(v core.View) (core.Directory, error) { return readMembers(v) }

// readMembers reads the row; the zero directory where there is none.
func readMembers(v core.View) (core.Directory, error) {
	row, ok, err := v.Get(keys.Members())
	if err != nil || !ok {
		return core.Directory{}, err
	}
	d, err := core.DecodeDirectory(row)
	if err != nil {
		return d, errs.Corruptf("directory of members: %v", err)
	}
	return d, nil
}

// inspectMembers keeps an op of membership alone in its commit, in the system partition of shard 0.
func (m *Machine) inspectMembers(c *core.Commit, op int) *core.Refusal {
	switch {
	case c.Partition != (core.Partition{}) || m.o.Shard != 0:
		return strays(op)
	case len(c.Ops) != 1 || c.RequestID != (core.RequestID{}) || c.Session != (core.SessionID{}):
		return notAlone(op, "a change of membership stands alone")
	}
	return nil
}

// changeMembers applies an op of membership. A refused one has changed nothing.
func (m *Machine) changeMembers(op core.Op) (core.OpResult, core.Fact, error) {
	// The change is made to a copy: who has Members keeps what it has.
	d := m.members
	d.Members = slices.Clone(d.Members)
	var fact core.Fact
	same := false
	switch op := op.(type) {
	case *core.MembersInit:
		same, fact = initMembers(&d, op)
	case *core.MemberChange:
		same, fact = m.changeMember(&d, op)
	case *core.MemberStep:
		fact = m.stepJob(&d, op)
	}
	switch {
	case fact != nil:
		return core.OpResult{}, fact, nil
	case same:
		return core.OpResult{Replayed: true, Version: m.members.Version}, nil, nil
	}
	d.Version++
	m.members = d
	// The version rises with each change, so that conditions on it see every one.
	m.tx.Set(keys.Members(), core.AppendDirectory(nil, &d))
	return core.OpResult{Version: d.Version}, nil, nil
}

// initMembers makes the directory of a cluster that has none. same: there is one already.
func initMembers(d *core.Directory, op *core.MembersInit) (same bool, fact core.Fact) {
	if d.Version > 0 {
		return true, nil
	}
	if len(op.Members) == 0 || len(op.Members) > core.MaxMembers {
		return false, core.Invalid{Field: "members", Reason: "out_of_range", Message: "a cluster has 1 to " + strconv.Itoa(core.MaxMembers) + " members"}
	}
	// Replica ids must rise: the next one that is given is above all of them.
	var last uint64
	for _, m := range op.Members {
		switch {
		case m.Replica <= last || m.Node == 0:
			return false, core.Invalid{Field: "members", Reason: "bad_id", Message: "replica ids rise from 1"}
		case m.State != core.MemberVoter || m.Token != core.JoinHash{}:
			return false, core.Invalid{Field: "members", Reason: "bad_state", Message: "who is there from the beginning votes"}
		}
		if fact := checkMemberTexts(m.Name, m.Peer, m.API, m.HTTP); fact != nil {
			return false, fact
		}
		last = m.Replica
	}
	d.Members, d.Next = slices.Clone(op.Members), last+1
	return false, nil
}

// checkMemberTexts refuses texts that are too long: name, peer, api and http, in this order.
func checkMemberTexts(texts ...string) core.Fact {
	for i, field := range []string{"name", "peer", "api", "http"} {
		if len(texts[i]) > maxMemberText {
			return core.TooLarge{Field: field, Limit: "member_text", Max: maxMemberText}
		}
	}
	return nil
}

// changeMember judges a request. same: everything is so already.
func (m *Machine) changeMember(d *core.Directory, op *core.MemberChange) (same bool, fact core.Fact) {
	if fact := checkMemberTexts(op.Name, op.Peer, op.API, op.HTTP); fact != nil {
		return false, fact
	}
	if d.Version == 0 {
		return false, core.Unavailable{Reason: "no_directory"}
	}
	stamp := m.clock.stamp
	if op.Do == core.MemberCancel {
		return false, cancelJob(d, stamp)
	}
	if op.Do == core.MemberAdd {
		return false, addMember(d, op, stamp)
	}
	who := d.OfNode(op.Node)
	if who == nil {
		return false, core.NotFound{Kind: "node", ID: strconv.FormatUint(op.Node, 10)}
	}
	switch op.Do {
	case core.MemberJoin:
		return joinMember(d, who, op, stamp >= m.JobDue(who.TokenUntil))
	case core.MemberRejoin:
		return rejoinMember(d, who, op, stamp)
	case core.MemberSet:
		return setMember(d, who, op)
	case core.MemberRegister:
		if who.Store != (core.StoreID{}) || op.Store == (core.StoreID{}) {
			return true, nil
		}
		who.Store = op.Store
		return false, nil
	case core.MemberDrain, core.MemberUndrain:
		return drainMember(d, who, op.Do == core.MemberDrain)
	case core.MemberRemove:
		return false, removeMember(d, who, stamp)
	case core.MemberReplace:
		return false, replaceMember(d, who, op, stamp)
	case core.MemberPromote:
		return false, promoteMember(d, who, stamp)
	}
	return false, core.Invalid{Field: "do", Reason: "unknown", Message: "not a change of membership"}
}

// begin begins a job, unless one runs.
func begin(d *core.Directory, stamp core.ShardTime, j core.Job) core.Fact {
	if d.Busy(j.Node) {
		return core.WrongMembership{Reason: "job_running", Node: d.Job.Node}
	}
	j.ID, j.State, j.Started, j.Deadline = d.Job.ID+1, core.JobRunning, stamp, stamp.Add(jobTime)
	d.Job = j
	return nil
}

// count returns how many members are in one of the states.
func count(d *core.Directory, states ...core.MemberState) (n int) {
	for i := range d.Members {
		if slices.Contains(states, d.Members[i].State) {
			n++
		}
	}
	return n
}

// room refuses one member more than there may be.
func room(d *core.Directory, learner bool) core.Fact {
	switch {
	case len(d.Members) >= core.MaxMembers:
		return core.Exhausted{Limit: "members", Max: core.MaxMembers}
	case learner && count(d, core.MemberLearner) >= maxLearners:
		return core.Exhausted{Limit: "learners", Max: maxLearners}
	case !learner && count(d, core.MemberVoter) >= maxVoters:
		return core.Exhausted{Limit: "voters", Max: maxVoters}
	}
	return nil
}

// taken refuses an address of another node's.
func taken(d *core.Directory, node uint64, peer string) core.Fact {
	for i := range d.Members {
		if d.Members[i].Node != node && d.Members[i].Peer == peer {
			return core.AlreadyExists{Kind: "address", ID: peer}
		}
	}
	return nil
}

// addMember enters a node under the next replica id, which it may join with a token. The job begins here, and waits
// for the node.
func addMember(d *core.Directory, op *core.MemberChange, stamp core.ShardTime) core.Fact {
	switch {
	case op.Node == 0:
		return core.Invalid{Field: "node", Reason: "zero", Message: "nodes are numbered from 1"}
	case d.OfNode(op.Node) != nil:
		return core.AlreadyExists{Kind: "node", ID: strconv.FormatUint(op.Node, 10)}
	case op.Peer == "":
		return core.Invalid{Field: "peer", Reason: "empty", Message: "the address for the other nodes is wanted"}
	case op.Token == core.JoinHash{}:
		return core.Invalid{Field: "token", Reason: "empty", Message: "the hash of a join token is wanted"}
	}
	if fact := taken(d, op.Node, op.Peer); fact != nil {
		return fact
	}
	if fact := room(d, op.Learner); fact != nil {
		return fact
	}
	if fact := begin(d, stamp, core.Job{Kind: core.JobAdd, Node: op.Node, Replica: d.Next, Learner: op.Learner}); fact != nil {
		return fact
	}
	d.Members = append(d.Members, core.Member{
		Replica: d.Next, Node: op.Node, Name: op.Name, Peer: op.Peer, State: core.MemberJoining, Token: op.Token,
		TokenUntil: stamp.Add(jobTime),
	})
	d.Next++
	return nil
}

// joinMember takes a node in that shows its token. The same data directory may come again with it: its answer was lost.
func joinMember(d *core.Directory, who *core.Member, op *core.MemberChange, late bool) (same bool, fact core.Fact) {
	switch {
	case op.Store == core.StoreID{}:
		return false, core.Invalid{Field: "store", Reason: "empty", Message: "the id of the data directory is wanted"}
	case who.Token == core.JoinHash{} || who.Token != op.Token:
		return false, core.Invalid{Field: "join_token", Reason: "bad_token", Message: "not the token of this node, or it was used"}
	// The same data directory came before with this token: its answer was lost.
	case who.State != core.MemberJoining && who.Store == op.Store:
		return true, nil
	case who.State != core.MemberJoining:
		return false, core.Invalid{Field: "join_token", Reason: "bad_token", Message: "it was used"}
	case late:
		return false, core.Invalid{Field: "join_token", Reason: "expired", Message: "its hour is over"}
	}
	// From here on the leaders of the shards take the node in as a learner.
	who.State, who.Store = core.MemberCatchingUp, op.Store
	return false, describe(d, who, op)
}

// describe takes over what a node says of itself.
func describe(d *core.Directory, who *core.Member, op *core.MemberChange) core.Fact {
	if op.Peer != "" {
		if fact := taken(d, who.Node, op.Peer); fact != nil {
			return fact
		}
		who.Peer = op.Peer
	}
	if op.Name != "" {
		who.Name = op.Name
	}
	if op.API != "" {
		who.API = op.API
	}
	if op.HTTP != "" {
		who.HTTP = op.HTTP
	}
	return nil
}

// rejoinMember gives a node whose data is lost another replica id; the old one leaves when the new one has caught up.
func rejoinMember(d *core.Directory, who *core.Member, op *core.MemberChange, stamp core.ShardTime) (same bool, fact core.Fact) {
	switch {
	case op.Store == core.StoreID{}:
		return false, core.Invalid{Field: "store", Reason: "empty", Message: "the id of the data directory is wanted"}
	case who.Store == op.Store:
		return true, nil
	case who.State != core.MemberVoter && who.State != core.MemberLearner:
		return false, core.WrongMembership{Reason: who.State.String(), Node: who.Node}
	case who.State == core.MemberVoter && count(d, core.MemberVoter) == 1:
		return false, core.WrongMembership{Reason: "quorum_loss", Node: who.Node}
	case len(d.Members) >= core.MaxMembers:
		return false, core.Exhausted{Limit: "members", Max: core.MaxMembers}
	}
	// The old replica stays as it is until the new one has caught up.
	old := *who
	fact = begin(d, stamp, core.Job{
		Kind: core.JobRejoin, Node: old.Node, Replica: d.Next, Old: old.Replica, Was: old.State, Learner: old.State == core.MemberLearner,
	})
	if fact != nil {
		return false, fact
	}
	anew := old
	anew.Replica, anew.State, anew.Store, anew.Token, anew.TokenUntil = d.Next, core.MemberCatchingUp, op.Store, core.JoinHash{}, 0
	d.Members = append(d.Members, anew)
	d.Next++
	return false, describe(d, &d.Members[len(d.Members)-1], op)
}

// setMember takes over addresses and a name; empty ones stay. same: nothing was changed.
func setMember(d *core.Directory, who *core.Member, op *core.MemberChange) (same bool, fact core.Fact) {
	old := *who
	if fact := describe(d, who, &core.MemberChange{Peer: op.Peer, API: op.API, HTTP: op.HTTP, Name: op.Name}); fact != nil {
		return false, fact
	}
	return *who == old, nil
}

// removeMember begins the job by which a member leaves. The last voter stays.
func removeMember(d *core.Directory, who *core.Member, stamp core.ShardTime) core.Fact {
	switch {
	case who.State == core.MemberVoter && count(d, core.MemberVoter) == 1:
		return core.WrongMembership{Reason: "quorum_loss", Node: who.Node}
	case who.State != core.MemberVoter && who.State != core.MemberLearner:
		if d.Job.State == core.JobRunning {
			return core.WrongMembership{Reason: "job_running", Node: d.Job.Node}
		}
		return core.WrongMembership{Reason: who.State.String(), Node: who.Node}
	}
	if fact := begin(d, stamp, core.Job{Kind: core.JobRemove, Node: who.Node, Replica: who.Replica, Was: who.State}); fact != nil {
		return fact
	}
	who.State = core.MemberRemoving
	return nil
}

// replaceMember begins the job by which a learner takes the place of a voter.
func replaceMember(d *core.Directory, who *core.Member, op *core.MemberChange, stamp core.ShardTime) core.Fact {
	with := d.OfNode(op.With)
	switch {
	case with == nil:
		return core.NotFound{Kind: "node", ID: strconv.FormatUint(op.With, 10)}
	case who.State != core.MemberVoter:
		return core.WrongMembership{Reason: "not_voter", Node: who.Node}
	case with.State != core.MemberLearner:
		return core.WrongMembership{Reason: "not_learner", Node: with.Node}
	}
	fact := begin(d, stamp, core.Job{
		Kind: core.JobReplace, Node: with.Node, Replica: with.Replica, Old: who.Replica, Was: core.MemberLearner,
	})
	if fact != nil {
		return fact
	}
	// Both move at once: each shard changes them in one step.
	with.State, who.State = core.MemberPromoting, core.MemberRemoving
	return nil
}

// promoteMember begins the job by which a learner becomes a voter.
func promoteMember(d *core.Directory, who *core.Member, stamp core.ShardTime) core.Fact {
	if who.State != core.MemberLearner {
		return core.WrongMembership{Reason: "not_learner", Node: who.Node}
	}
	if fact := room(d, false); fact != nil {
		return fact
	}
	if fact := begin(d, stamp, core.Job{Kind: core.JobPromote, Node: who.Node, Replica: who.Replica, Was: who.State}); fact != nil {
		return fact
	}
	who.State = core.MemberPromoting
	return nil
}
