package check

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/millrace/millrace/internal/core"
)

// club is the membership of a cluster as the documentation describes it: who has a seat, who is on the way to one or from
// one, and the one change that is under way.
type club struct {
	version uint64
	next    uint64          // replica id of the next member
	seats   map[uint64]seat // by replica id
	change  change
}

// seat is one member.
type seat struct {
	node        uint64
	role        core.MemberState
	name        string
	peer, doors string // doors: its edges, where they were told
	http        string
	store       core.StoreID
	token       core.JoinHash
	until       core.ShardTime
	rests       bool // it is to lead nothing
}

// change is the change of membership under way, or the last one.
type change struct {
	id       uint64
	kind     core.JobKind
	runs     bool
	undone   bool // it is being taken back
	comes    uint64
	goes     uint64
	stays    core.MemberState // what who comes was before
	learner  bool
	node     uint64 // that it is about, where that has no seat of the change yet
	deadline core.ShardTime
}

const (
	hour       = core.Millis(60 * 60 * 1000)
	tenMinutes = core.Millis(10 * 60 * 1000)
)

// copy returns a club that can be changed without changing c.
func (c *club) copy() *club {
	out := *c
	out.seats = make(map[uint64]seat, len(c.seats))
	for id, s := range c.seats {
		out.seats[id] = s
	}
	return &out
}

// of returns the newest replica of a node.
func (c *club) of(node uint64) (replica uint64, found bool) {
	for id, s := range c.seats {
		if s.node == node && id >= replica {
			replica, found = id, true
		}
	}
	return replica, found
}

func (c *club) with(role core.MemberState) (n int) {
	for _, s := range c.seats {
		if s.role == role {
			n++
		}
	}
	return n
}

func (c *club) assign(replica uint64, role core.MemberState) {
	if s, ok := c.seats[replica]; ok {
		s.role = role
		c.seats[replica] = s
	}
}

// memberOp judges an op of membership: what it must be answered follows from what was applied before.
func (m *Model) memberOp(op core.Op, a answer) error {
	old := m.club
	now := old.copy()
	same, refusal := m.judgeMember(now, op)
	if refusal != nil {
		if !reflect.DeepEqual(refusal, a.fact) {
			return fmt.Errorf("%T answered %s, expected to be refused with %s", op, a, named(refusal))
		}
		return nil
	}
	if a.fact != nil {
		return fmt.Errorf("%T was refused with %s", op, named(a.fact))
	}
	if !same {
		now.version++
		m.club = now
		m.change(func() { m.club = old })
	}
	if a.blind {
		return nil
	}
	if a.result.Replayed != same || a.result.Version != m.club.version {
		return fmt.Errorf("%T answered version %d, replayed=%v, expected %d, %v", op, a.result.Version, a.result.Replayed, m.club.version, same)
	}
	return nil
}

// judgeMember changes c as op says. same: it was so already.
func (m *Model) judgeMember(c *club, op core.Op) (same bool, refusal core.Fact) {
	switch op := op.(type) {
	case *core.MembersInit:
		if c.version > 0 {
			return true, nil
		}
		for _, x := range op.Members {
			c.seats[x.Replica] = seat{node: x.Node, role: x.State, name: x.Name, peer: x.Peer, doors: x.API, http: x.HTTP, store: x.Store}
			c.next = x.Replica + 1
		}
		return false, nil
	case *core.MemberStep:
		return false, m.stepMember(c, op)
	case *core.MemberChange:
		return m.askMember(c, op)
	}
	return false, nil
}

func (m *Model) askMember(c *club, op *core.MemberChange) (same bool, refusal core.Fact) {
	id, known := c.of(op.Node)
	s := c.seats[id]
	switch {
	case c.version == 0:
		return false, core.Unavailable{Reason: "no_directory"}
	case op.Do == core.MemberCancel:
		return false, m.cancelChange(c)
	case op.Do == core.MemberAdd:
		return false, m.addMember(c, op, known)
	case !known:
		return false, core.NotFound{Kind: "node", ID: strconv.FormatUint(op.Node, 10)}
	}
	switch op.Do {
	case core.MemberRegister:
		if s.store != (core.StoreID{}) || op.Store == (core.StoreID{}) {
			return true, nil
		}
		s.store = op.Store
		c.seats[id] = s
		return false, nil
	case core.MemberSet:
		next, refusal := c.told(s, op)
		c.seats[id] = next
		return next == s, refusal
	case core.MemberJoin:
		return m.joinMember(c, id, op)
	case core.MemberRejoin:
		return m.rejoinMember(c, id, op)
	case core.MemberDrain, core.MemberUndrain:
		return c.rest(id, op.Do == core.MemberDrain)
	case core.MemberRemove:
		return false, m.removeMember(c, id)
	case core.MemberReplace, core.MemberPromote:
		return false, m.seatLearner(c, id, op)
	}
	return false, core.Invalid{Field: "do", Reason: "unknown", Message: "not a change of membership"}
}

// rest has a voter or a learner lead nothing, or ends that. Some voter goes on.
func (c *club) rest(id uint64, rests bool) (same bool, refusal core.Fact) {
	s := c.seats[id]
	awake := 0
	for other, x := range c.seats {
		if other != id && x.role == core.MemberVoter && !x.rests {
			awake++
		}
	}
	if s.role != core.MemberVoter && s.role != core.MemberLearner {
		return false, core.WrongMembership{Reason: s.role.String(), Node: s.node}
	}
	if s.rests == rests {
		return true, nil
	}
	if rests && awake == 0 && s.role == core.MemberVoter {
		return false, core.WrongMembership{Reason: "nobody_leads", Node: s.node}
	}
	s.rests = rests
	c.seats[id] = s
	return false, nil
}

// told takes over what is said of a member.
func (c *club) told(s seat, op *core.MemberChange) (seat, core.Fact) {
	for _, other := range c.seats {
		if op.Peer != "" && other.peer == op.Peer && other.node != s.node {
			return s, core.AlreadyExists{Kind: "address", ID: op.Peer}
		}
	}
	for _, x := range []struct {
		into *string
		text string
	}{{&s.peer, op.Peer}, {&s.name, op.Name}, {&s.doors, op.API}, {&s.http, op.HTTP}} {
		if x.text != "" {
			*x.into = x.text
		}
	}
	return s, nil
}

// start begins a change, unless one runs.
func (m *Model) start(c *club, next change) core.Fact {
	if c.change.runs && !(c.comesBack() && (c.change.concerns(c, c.change.comes, next) || c.change.concerns(c, c.change.goes, next))) {
		return core.WrongMembership{Reason: "job_running", Node: c.about()}
	}
	next.id, next.runs, next.deadline = c.change.id+1, true, m.stamp.Add(hour)
	c.change = next
	return nil
}

// comesBack: the change was taken back, and whom it was about to take out of shards comes back into them.
func (c *club) comesBack() bool {
	return c.change.undone && c.change.kind != core.JobAdd && c.change.kind != core.JobRejoin
}

// concerns reports whether the change that is to follow is about the node that has a seat.
func (change) concerns(c *club, id uint64, next change) bool {
	s, there := c.seats[id]
	if !there {
		return false
	}
	if next.node != 0 {
		return next.node == s.node
	}
	return c.seats[next.comes].node == s.node
}

// about is the node that the change is about.
func (c *club) about() uint64 { return c.seats[c.change.comes].node }

// late: a deadline is over, but a term that has begun leaves ten minutes.
func (m *Model) late(deadline core.ShardTime) bool {
	return m.stamp >= deadline && m.stamp >= m.termStart.Add(tenMinutes)
}

func (m *Model) addMember(c *club, op *core.MemberChange, known bool) core.Fact {
	switch {
	case op.Node == 0:
		return core.Invalid{Field: "node", Reason: "zero", Message: "nodes are numbered from 1"}
	case known:
		return core.AlreadyExists{Kind: "node", ID: strconv.FormatUint(op.Node, 10)}
	case op.Peer == "":
		return core.Invalid{Field: "peer", Reason: "empty", Message: "the address for the other nodes is wanted"}
	case op.Token == core.JoinHash{}:
		return core.Invalid{Field: "token", Reason: "empty", Message: "the hash of a join token is wanted"}
	}
	s, refusal := c.told(seat{node: op.Node, role: core.MemberJoining, token: op.Token, until: m.stamp.Add(hour)}, &core.MemberChange{Peer: op.Peer, Name: op.Name})
	switch {
	case refusal != nil:
		return refusal
	case len(c.seats) >= core.MaxMembers:
		return core.Exhausted{Limit: "members", Max: core.MaxMembers}
	case op.Learner && c.with(core.MemberLearner) >= 4:
		return core.Exhausted{Limit: "learners", Max: 4}
	case !op.Learner && c.with(core.MemberVoter) >= 7:
		return core.Exhausted{Limit: "voters", Max: 7}
	}
	if refusal := m.start(c, change{kind: core.JobAdd, comes: c.next, learner: op.Learner, node: op.Node}); refusal != nil {
		return refusal
	}
	c.seats[c.next] = s
	c.next++
	return nil
}

func (m *Model) joinMember(c *club, id uint64, op *core.MemberChange) (same bool, refusal core.Fact) {
	s := c.seats[id]
	bad := func(reason, message string) (bool, core.Fact) {
		return false, core.Invalid{Field: "join_token", Reason: reason, Message: message}
	}
	switch {
	case op.Store == core.StoreID{}:
		return false, core.Invalid{Field: "store", Reason: "empty", Message: "the id of the data directory is wanted"}
	case s.token == core.JoinHash{}, s.token != op.Token:
		return bad("bad_token", "not the token of this node, or it was used")
	case s.role != core.MemberJoining && s.store == op.Store:
		return true, nil
	case s.role != core.MemberJoining:
		return bad("bad_token", "it was used")
	case m.late(s.until):
		return bad("expired", "its hour is over")
	}
	s.role, s.store = core.MemberCatchingUp, op.Store
	if s, refusal = c.told(s, op); refusal != nil {
		return false, refusal
	}
	c.seats[id] = s
	return false, nil
}

func (m *Model) rejoinMember(c *club, id uint64, op *core.MemberChange) (same bool, refusal core.Fact) {
	s := c.seats[id]
	switch {
	case op.Store == core.StoreID{}:
		return false, core.Invalid{Field: "store", Reason: "empty", Message: "the id of the data directory is wanted"}
	case op.Store == s.store:
		return true, nil
	case s.role != core.MemberVoter && s.role != core.MemberLearner:
		return false, core.WrongMembership{Reason: s.role.String(), Node: s.node}
	case s.role == core.MemberVoter && c.with(core.MemberVoter) < 2:
		return false, core.WrongMembership{Reason: "quorum_loss", Node: s.node}
	case len(c.seats) >= core.MaxMembers:
		return false, core.Exhausted{Limit: "members", Max: core.MaxMembers}
	}
	begun := change{kind: core.JobRejoin, comes: c.next, node: s.node, goes: id, stays: s.role, learner: s.role == core.MemberLearner}
	if refusal := m.start(c, begun); refusal != nil {
		return false, refusal
	}
	s.role, s.store, s.token, s.until = core.MemberCatchingUp, op.Store, core.JoinHash{}, 0
	if s, refusal = c.told(s, op); refusal != nil {
		return false, refusal
	}
	c.seats[c.next] = s
	c.next++
	return false, nil
}

func (m *Model) removeMember(c *club, id uint64) core.Fact {
	s := c.seats[id]
	voter := s.role == core.MemberVoter
	switch {
	case voter && c.with(core.MemberVoter) < 2:
		return core.WrongMembership{Reason: "quorum_loss", Node: s.node}
	case !voter && s.role != core.MemberLearner && !c.change.runs:
		return core.WrongMembership{Reason: s.role.String(), Node: s.node}
	}
	if refusal := m.start(c, change{kind: core.JobRemove, comes: id, stays: s.role}); refusal != nil {
		return refusal
	}
	c.assign(id, core.MemberRemoving)
	return nil
}

// seatLearner gives a learner a vote: that of the node that op names, or that of op.With in its place.
func (m *Model) seatLearner(c *club, id uint64, op *core.MemberChange) core.Fact {
	begun := change{kind: core.JobPromote, comes: id, stays: core.MemberLearner}
	if op.Do == core.MemberReplace {
		with, known := c.of(op.With)
		switch {
		case !known:
			return core.NotFound{Kind: "node", ID: strconv.FormatUint(op.With, 10)}
		case c.seats[id].role != core.MemberVoter:
			return core.WrongMembership{Reason: "not_voter", Node: op.Node}
		}
		begun.kind, begun.comes, begun.goes = core.JobReplace, with, id
	}
	learner := c.seats[begun.comes]
	switch {
	case learner.role != core.MemberLearner:
		return core.WrongMembership{Reason: "not_learner", Node: learner.node}
	case begun.goes == 0 && len(c.seats) >= core.MaxMembers:
		return core.Exhausted{Limit: "members", Max: core.MaxMembers}
	case begun.goes == 0 && c.with(core.MemberVoter) >= 7:
		return core.Exhausted{Limit: "voters", Max: 7}
	}
	if refusal := m.start(c, begun); refusal != nil {
		return refusal
	}
	c.assign(begun.comes, core.MemberPromoting)
	c.assign(begun.goes, core.MemberRemoving)
	return nil
}

// cancel takes the change back.
func (m *Model) cancelChange(c *club) core.Fact {
	switch {
	case !c.change.runs:
		return core.WrongMembership{Reason: "no_job"}
	case c.change.undone:
		return core.WrongMembership{Reason: "job_running", Node: c.about()}
	case c.replaced():
		return core.WrongMembership{Reason: "too_late", Node: c.about()}
	}
	m.takeBack(c)
	return nil
}

// replaced reports whether a node that lost its data has begun to take its own place: there is no way back to the other.
func (c *club) replaced() bool {
	s, there := c.seats[c.change.comes]
	return c.change.kind == core.JobRejoin && there && s.role != core.MemberCatchingUp
}

// undo brings the voters of before back. Who came leaves again, which ends the change if it was in no shard yet.
func (c *club) undo() {
	x := &c.change
	switch x.kind {
	case core.JobAdd, core.JobRejoin:
		c.assign(x.goes, x.stays)
		if c.seats[x.comes].role != core.MemberJoining {
			c.assign(x.comes, core.MemberRemoving)
			x.undone = true
			return
		}
		delete(c.seats, x.comes)
	case core.JobReplace:
		c.assign(x.goes, core.MemberVoter)
		c.assign(x.comes, core.MemberLearner)
	default:
		c.assign(x.comes, x.stays)
	}
	x.runs = false
}

// takeBack is undo, after which the shards have an hour to be again what they were.
func (m *Model) takeBack(c *club) {
	c.undo()
	if x := &c.change; x.kind != core.JobAdd && x.kind != core.JobRejoin {
		x.runs, x.undone, x.deadline = true, true, m.stamp.Add(hour)
	}
}

// stepMember: the shards are where they were wanted, or the time is over.
func (m *Model) stepMember(c *club, op *core.MemberStep) core.Fact {
	x := &c.change
	switch {
	case !x.runs || x.id != op.Job:
		return core.WrongMembership{Reason: "no_job"}
	case op.Version != c.version:
		return core.WrongMembership{Reason: "changed", Node: c.about()}
	case op.Fail && (x.undone && !c.comesBack() || !m.late(x.deadline)):
		return core.WrongMembership{Reason: "not_due", Node: c.about()}
	case c.comesBack(): // all is as it was, or the hour is over
		x.runs, x.undone = false, false
		return nil
	case op.Fail && c.replaced():
		return core.WrongMembership{Reason: "too_late", Node: c.about()}
	case op.Fail:
		m.takeBack(c)
		return nil
	}
	switch role := c.seats[x.comes].role; role {
	case core.MemberJoining:
		return core.WrongMembership{Reason: role.String(), Node: c.about()}
	case core.MemberCatchingUp:
		s := c.seats[x.comes]
		s.token, s.until, s.role = core.JoinHash{}, 0, core.MemberPromoting
		if x.learner {
			s.role = core.MemberLearner
		}
		c.seats[x.comes] = s
		c.assign(x.goes, core.MemberRemoving)
		x.runs = !x.learner || x.goes != 0
		return nil
	case core.MemberPromoting:
		c.assign(x.comes, core.MemberVoter)
	case core.MemberRemoving:
		delete(c.seats, x.comes)
	}
	if !x.undone {
		delete(c.seats, x.goes)
	}
	x.runs, x.undone = false, false
	return nil
}
