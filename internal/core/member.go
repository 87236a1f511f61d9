package core

import (
	"fmt"
	"math"
)

// MemberState is what a member's replicas are, or are to become, in every shard. Numbers are stored and never reused.
type MemberState uint8

// The states. A member that is gone has none: it is not in the directory any more.
const (
	MemberJoining    MemberState = 1 // its node has yet to come with its token; in no shard
	MemberCatchingUp MemberState = 2 // a learner that is to become a voter
	MemberLearner    MemberState = 3 // a learner that stays one
	MemberPromoting  MemberState = 4 // becomes a voter, shard by shard
	MemberVoter      MemberState = 5
	MemberRemoving   MemberState = 6 // leaves, shard by shard
)

// memberStates are the names by number.
var memberStates = [...]string{
	MemberJoining: "joining", MemberCatchingUp: "catching_up", MemberLearner: "learner", MemberPromoting: "promoting",
	MemberVoter: "voter", MemberRemoving: "removing",
}

// String returns the state as operators see it.
func (s MemberState) String() string { return nameOf(memberStates[:], uint8(s)) }

// JobKind is what a change of membership is for. Numbers are stored and never reused.
type JobKind uint8

// The kinds of job.
const (
	JobAdd     JobKind = 1
	JobRemove  JobKind = 2
	JobReplace JobKind = 3 // a learner becomes a voter and another node leaves, in one step of each shard
	JobPromote JobKind = 4
	JobRejoin  JobKind = 5 // a node that lost its data comes back under a new replica id, and the old one leaves
)

// jobKinds are the names by number.
var jobKinds = [...]string{
	JobAdd: "add", JobRemove: "remove", JobReplace: "replace", JobPromote: "promote", JobRejoin: "rejoin",
}

// String returns the kind as operators see it.
func (k JobKind) String() string { return nameOf(jobKinds[:], uint8(k)) }

// JobState is how far a job is. Numbers are stored and never reused.
type JobState uint8

// The states of a job. All but JobRunning are final.
const (
	JobRunning   JobState = 1
	JobDone      JobState = 2
	JobFailed    JobState = 3
	JobCancelled JobState = 4
)

// jobStates are the names by number.
var jobStates = [...]string{JobRunning: "running", JobDone: "done", JobFailed: "failed", JobCancelled: "cancelled"}

// String returns the state as operators see it.
func (s JobState) String() string { return nameOf(jobStates[:], uint8(s)) }

// nameOf returns the name of a number, or its digits when this build knows no name for it.
func nameOf(names []string, n uint8) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return fmt.Sprintf("%d", n)
}

// StoreID names a data directory: 16 bytes, drawn when it was made. Zeros: not known.
type StoreID [16]byte

// JoinHash is the SHA-256 of a join token. Zeros: none.
type JoinHash [32]byte

// Member is one replica id, which its node's replicas have in every shard. A node that lost its data gets another one.
type Member struct {
	Replica    uint64 // given once, never again
	Node       uint64 // the node's number, which its certificate names
	Name       string // for people
	Peer       string // host:port for the other nodes
	API        string // host:port of its gRPC edge; empty: not known yet
	HTTP       string // host:port of its REST edge; empty: none
	State      MemberState
	Store      StoreID
	Token      JoinHash  // of the token that its node may join with
	TokenUntil ShardTime // and until when
	Drained    bool      // its node is to lead nothing that another can lead
}

// Job is the change of membership under way, or the last one.
type Job struct {
	ID       uint64 // from 1; 0: there was none yet
	Kind     JobKind
	State    JobState
	Node     uint64      // that it is about
	Replica  uint64      // of that node
	Old      uint64      // the replica that leaves for it; 0: none
	Was      MemberState // of Replica before, for a removal
	Learner  bool        // Replica is to stay a learner
	Ending   JobState    // not 0: it is being undone, and ends so
	Reason   string      // why it failed
	Started  ShardTime
	Deadline ShardTime // what is not done by then is undone
	Ended    ShardTime
}

// Directory is who the members of a cluster are: the same on all nodes, in the system partition of shard 0. The zero
// value is the membership that the nodes were started with, of which nothing was changed yet.
type Directory struct {
	Version uint64 // rises with every change; 0: there is no directory yet
	// The replica id that the next member gets: one below it that no member has is gone for good.
	Next    uint64
	Members []Member
	Job     Job
}

// Member returns the member of a replica id, or nil.
func (d *Directory) Member(replica uint64) *Member {
	for i := range d.Members {
		if d.Members[i].Replica == replica {
			return &d.Members[i]
		}
	}
	return nil
}

// OfNode returns the newest member that a node has, or nil.
func (d *Directory) OfNode(node uint64) (m *Member) {
	for i := range d.Members { // ascending by replica
		if d.Members[i].Node == node {
			m = &d.Members[i]
		}
	}
	return m
}

// Gone reports whether a replica id was a member's and no member has it any more.
func (d *Directory) Gone(replica uint64) bool {
	return d.Version > 0 && replica < d.Next && d.Member(replica) == nil
}

// Undoable reports whether the job under way can still be taken back. The return of a node that lost its data cannot, once
// shards put the new replica in the place of the old one: that is nowhere any more, and would be waited for for ever.
func (d *Directory) Undoable() bool {
	who := d.Member(d.Job.Replica)
	return d.Job.Kind != JobRejoin || who == nil || who.State == MemberCatchingUp
}

// Returning reports whether the job under way was taken back, and shards may still be without a replica that is to be in them
// again: until they have it, they have fewer voters than the directory says.
func (d *Directory) Returning() bool {
	j := &d.Job
	return j.State == JobRunning && j.Ending != 0 && (j.Kind == JobRemove || j.Kind == JobReplace || j.Kind == JobPromote)
}

// returns reports whether a node is one that a job that was taken back waits for.
func (d *Directory) returns(node uint64) bool {
	for _, replica := range []uint64{d.Job.Replica, d.Job.Old} {
		if m := d.Member(replica); m != nil && m.Node == node {
			return d.Returning()
		}
	}
	return false
}

// Busy reports whether the job under way keeps one about a node from beginning. One that was taken back gives way to what is
// done about the very node that it waits for: that may never come back.
func (d *Directory) Busy(node uint64) bool { return d.Job.State == JobRunning && !d.returns(node) }

// MembersInit makes the directory of a cluster that has none, of the nodes it was started with. It changes nothing where
// there is one.
type MembersInit struct{ Members []Member }

// MemberVerb says what a MemberChange asks for. Numbers are stored and never reused.
type MemberVerb uint8

// The verbs, each with the fields of MemberChange that it reads besides Node.
const (
	MemberAdd      MemberVerb = 1 // Name, Peer, Learner, Token: begins a job
	MemberJoin     MemberVerb = 2 // Token, Store, Name, Peer, API, HTTP: the node is there
	MemberRejoin   MemberVerb = 3 // Store, Name, Peer, API, HTTP: the node lost its data; begins a job
	MemberRemove   MemberVerb = 4 // begins a job
	MemberReplace  MemberVerb = 5 // With, the learner that takes its place: begins a job
	MemberPromote  MemberVerb = 6 // begins a job
	MemberSet      MemberVerb = 7 // Peer, API, HTTP: empty ones stay
	MemberCancel   MemberVerb = 8 // ends the job; Node is not read
	MemberRegister MemberVerb = 9 // Store: the data directory of a node, where none is known
	MemberDrain    MemberVerb = 10
	MemberUndrain  MemberVerb = 11
)

// MemberChange asks for a change of membership.
type MemberChange struct {
	Do      MemberVerb
	Node    uint64
	With    uint64
	Learner bool
	Name    string
	Peer    string
	API     string
	HTTP    string
	Store   StoreID
	Token   JoinHash
}

// MemberStep takes the running job a step on, once every shard is where the directory of that version wants it; with Fail
// it undoes the job, whose time is over.
type MemberStep struct {
	Job uint64
	// Version of the directory that the proposer saw: a step for another one is refused.
	Version uint64
	Fail    bool
}

// Kind returns the op's number.
func (*MembersInit) Kind() OpKind { return OpMembersInit }

// Kind returns the op's number.
func (*MemberChange) Kind() OpKind { return OpMemberChange }

// Kind returns the op's number.
func (*MemberStep) Kind() OpKind { return OpMemberStep }

// WrongMembership says that a change of membership does not fit how the cluster stands.
type WrongMembership struct {
	Reason string // snake_case: quorum_loss, not_learner, learner_behind, learner_late, job_running, no_job, not_joining, removing, too_late, nobody_leads
	Node   uint64
	Lag    uint64 // of learner_behind: entries
}

func (e WrongMembership) Error() string {
	switch e.Reason {
	case "quorum_loss":
		return fmt.Sprintf("quorum_loss: without node %d the nodes that are reached are not a majority", e.Node)
	case "learner_behind":
		if e.Lag == math.MaxUint64 {
			return fmt.Sprintf("learner_behind: node %d was not heard of lately", e.Node)
		}
		return fmt.Sprintf("learner_behind: node %d is %d entries behind", e.Node, e.Lag)
	case "learner_late":
		return fmt.Sprintf("learner_late: node %d lacks entries that are more than a second old", e.Node)
	case "job_running":
		return "job_running: another change of membership is under way"
	case "too_late":
		return fmt.Sprintf("too_late: node %d is taking the place of what it lost, which cannot be undone", e.Node)
	case "nobody_leads":
		return fmt.Sprintf("nobody_leads: without node %d there is no node that may lead", e.Node)
	case "no_job":
		return "no_job: no change of membership is under way"
	}
	return fmt.Sprintf("%s: node %d", e.Reason, e.Node)
}

// NotMoved says that a shard's leader stayed, and why, for operators. It is not a fact of Apply.
type NotMoved struct{ Why string }

func (e NotMoved) Error() string { return "not_moved: " + e.Why }
