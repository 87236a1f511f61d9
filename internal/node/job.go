package node

import (
	"context"
	"encoding/binary"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// The leader of shard 0 takes the job in the directory a step on when the leaders of all shards say that their
// configurations are what the directory of that version wants, and undoes it when its time is over.

// reportFresh is how old a shard's word may be.
const reportFresh = 3 * time.Second

// maxReportLags bounds the learners of one report.
const maxReportLags = core.MaxMembers

// jobs is what the leader of shard 0 knows of the shards, for the job.
type jobs struct {
	// Guards the fields below.
	mu sync.Mutex
	// The last word of each shard's leader.
	reports map[core.ShardID]confReport

	// A step is proposed and not answered.
	asked atomic.Bool
}

// confReport is how a shard stands.
type confReport struct {
	// Version of the directory that the shard's leader goes by.
	version uint64
	// The shard's configuration is what that directory wants.
	settled bool
	// How far each learner is behind, by replica; one that was not heard of is not in it.
	lags map[uint64]learnerLag
	// Boot time at which it came: what is older than reportFresh counts for nothing.
	at time.Duration
}

// takeConf takes a report of a shard's leader in: version (8 bytes), whether it is settled (1), and for each learner its
// replica and how many entries it is behind (8 each), with the highest bit set where it lacks what is older than nearTime.
func (n *Node) takeConf(shard core.ShardID, b []byte) {
	if len(b) < 9 || (len(b)-9)%16 != 0 || (len(b)-9)/16 > maxReportLags {
		return
	}
	r := confReport{version: binary.BigEndian.Uint64(b), settled: b[8] == 1, lags: make(map[uint64]learnerLag), at: n.o.Clock.Boot()}
	for b = b[9:]; len(b) > 0; b = b[16:] {
		r.lags[binary.BigEndian.Uint64(b)] = decodeLag(binary.BigEndian.Uint64(b[8:]))
	}
	n.jobs.mu.Lock()
	defer n.jobs.mu.Unlock()
	if n.jobs.reports == nil {
		n.jobs.reports = make(map[core.ShardID]confReport)
	}
	n.jobs.reports[shard] = r
}

// tickJob takes the running job on, on the leader of shard 0, with each tick.
func (n *Node) tickJob(now time.Duration) {
	d := n.who().dir
	j := d.Job
	if j.State != core.JobRunning || n.jobs.asked.Load() {
		return
	}
	step := &core.MemberStep{Job: j.ID, Version: d.Version}
	switch {
	case (j.Ending == 0 && d.Undoable() || d.Returning()) && n.shards[0].late(j.Deadline):
		step.Fail = true
	case !n.allSettled(&d, now):
		return
	}
	n.jobs.asked.Store(true)
	n.Propose(systemPartition, []core.Commit{{Principal: "millrace", Ops: []core.Op{step}}}, func(core.Proposed) {
		n.jobs.asked.Store(false) // what was refused, or is not known, is looked at again
	})
}

// late reports whether the time of a job is over.
func (s *shard) late(deadline core.ShardTime) bool {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	return s.now() >= s.applier.machine.JobDue(deadline)
}

// allSettled reports whether the job may go on: every shard is where this directory wants it, and a learner that is to
// become a voter is near enough in all.
func (n *Node) allSettled(d *core.Directory, now time.Duration) bool {
	who := d.Member(d.Job.Replica)
	if who == nil || who.State == core.MemberJoining {
		return false
	}
	n.jobs.mu.Lock()
	defer n.jobs.mu.Unlock()
	for i := range n.shards {
		r, ok := n.jobs.reports[core.ShardID(i)]
		if !ok || r.version != d.Version || !r.settled || now-r.at > reportFresh {
			return false
		}
		if lag, known := r.lags[who.Replica]; who.State == core.MemberCatchingUp && (!known || !n.caughtUp(lag)) {
			return false
		}
	}
	return true
}

// lag returns how far a learner is behind, in the shard where that is most; the largest number when it is unknown.
func (n *Node) lag(replica uint64) (most learnerLag) {
	now := n.o.Clock.Boot()
	n.jobs.mu.Lock()
	defer n.jobs.mu.Unlock()
	for i := range n.shards {
		r, ok := n.jobs.reports[core.ShardID(i)]
		lag, known := r.lags[replica]
		if !ok || !known || now-r.at > reportFresh {
			return learnerLag{entries: math.MaxUint64}
		}
		most.entries, most.late = max(most.entries, lag.entries), most.late || lag.late
	}
	return most
}

// ChangeMember asks for a change of membership and returns the directory that it led to. This node leads shard 0, or is
// only asked for what needs no judgement of who is reached. Errors: core.NotLeader; core.WrongMembership, core.NotFound,
// core.AlreadyExists, core.Exhausted, core.Invalid, core.TooLarge; core.Unavailable and core.DeadlineExceeded.
func (n *Node) ChangeMember(ctx context.Context, op *core.MemberChange) (core.Directory, error) {
	if n.o.Network == nil {
		return core.Directory{}, core.Unavailable{Reason: "no_cluster"}
	}
	if err := n.ensureDirectory(ctx); err != nil {
		return core.Directory{}, err
	}
	if why := n.mayChange(op); why != nil {
		return core.Directory{}, why
	}
	version, err := n.proposeMember(ctx, op)
	if err != nil {
		return core.Directory{}, err
	}
	if !n.waitFor(ctx, func() bool { return n.who().dir.Version >= version }) {
		return core.Directory{}, core.DeadlineExceeded{Unknown: true}
	}
	return n.who().dir, nil
}

// ProposeMembers judges an op of membership at the node that leads shard 0, and proposes it; done is called exactly once.
// It is ChangeMember for a caller that does not wait: with Options.Manual nothing may.
func (n *Node) ProposeMembers(op core.Op, done func(core.Proposed)) {
	if change, ok := op.(*core.MemberChange); ok {
		if why := n.mayChange(change); why != nil {
			done(core.Proposed{Err: why})
			return
		}
	}
	n.Propose(systemPartition, []core.Commit{{Principal: "millrace", Ops: []core.Op{op}}}, done)
}

// ReadMembers returns the directory of members as it is now. Errors: core.Unavailable, core.DeadlineExceeded.
func (n *Node) ReadMembers(ctx context.Context) (core.Directory, error) {
	if err := n.shards[0].barrier(ctx, core.ReadOptions{}); err != nil {
		return core.Directory{}, err
	}
	return n.who().dir, nil
}

// proposeMember proposes an op of membership to the leader of shard 0, and returns the version it led to.
func (n *Node) proposeMember(ctx context.Context, op core.Op) (version uint64, err error) {
	p := n.Forward(ctx, systemPartition, []core.Commit{{Principal: "millrace", Ops: []core.Op{op}}})
	switch {
	case p.Err != nil:
		return 0, p.Err
	case len(p.Results) != 1:
		return 0, core.Unavailable{Reason: "no_leader", Unknown: true}
	case p.Results[0].Refusal != nil:
		return 0, p.Results[0].Refusal.Fact
	}
	return p.Results[0].Ops[0].Version, nil
}

// ensureDirectory makes the directory of a cluster that has none.
func (n *Node) ensureDirectory(ctx context.Context) error {
	r := n.who()
	if r.dir.Version > 0 || n.o.Joining {
		return nil
	}
	version, err := n.proposeMember(ctx, &core.MembersInit{Members: r.list})
	if err != nil {
		return err
	}
	if !n.waitFor(ctx, func() bool { return n.who().dir.Version >= version }) {
		return core.DeadlineExceeded{Unknown: true}
	}
	return nil
}

// mayChange judges what depends on who is reached, which no entry can say.
func (n *Node) mayChange(op *core.MemberChange) core.Fact {
	s, r := n.shards[0], n.who()
	switch op.Do {
	case core.MemberRemove, core.MemberReplace, core.MemberRejoin, core.MemberPromote:
	default:
		return nil
	}
	if !s.view.ready.Load() {
		return s.notLeading()
	}
	who := r.dir.OfNode(op.Node)
	if who == nil {
		return core.NotFound{Kind: "node", ID: strconv.FormatUint(op.Node, 10)}
	}
	learner := who
	if op.Do == core.MemberReplace {
		if learner = r.dir.OfNode(op.With); learner == nil {
			return core.NotFound{Kind: "node", ID: strconv.FormatUint(op.With, 10)}
		}
	}
	if (op.Do == core.MemberPromote || op.Do == core.MemberReplace) && learner.State == core.MemberLearner {
		switch lag := n.lag(learner.Replica); {
		case lag.entries > n.o.NearEntries:
			return core.WrongMembership{Reason: "learner_behind", Node: learner.Node, Lag: lag.entries}
		case lag.late:
			return core.WrongMembership{Reason: "learner_late", Node: learner.Node}
		}
	}
	if op.Do == core.MemberRemove && who.State == core.MemberVoter && !n.majorityWithout(r, who.Replica) {
		return core.WrongMembership{Reason: "quorum_loss", Node: op.Node}
	}
	return nil
}

// majorityWithout reports whether the voters that are reached, a replica left out, are a majority of those that stay.
func (n *Node) majorityWithout(r *roster, replica uint64) bool {
	reached := n.shards[0].view.reached.Load()
	network, knows := n.o.Network.(reacher)
	live, all := 0, 0
	for _, id := range r.voters() {
		if id == replica {
			continue
		}
		all++
		if reached != nil && contains(*reached, id) && (id == n.o.Replica || !knows || network.Reaches(r.nodeOf(id))) {
			live++
		}
	}
	return 2*live > all
}

// contains reports whether a list has an id.
func contains(ids []uint64, id uint64) bool {
	for _, other := range ids {
		if other == id {
			return true
		}
	}
	return false
}

// registerEvery is how often a node whose data directory is not in the directory of members tries to have it there.
const registerEvery = time.Second

// register has the directory of members know this node's data directory, so that the node is recognised when it comes
// without it.
func (n *Node) register() {
	defer n.upkeep.Done()
	for {
		timer := n.o.Clock.NewTimer(registerEvery)
		select {
		case <-timer.C():
		case <-n.stopping:
			timer.Stop()
			return
		}
		if m := n.who().dir.Member(n.o.Replica); m != nil && m.Store != (core.StoreID{}) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), forwardPatience)
		if err := n.ensureDirectory(ctx); err == nil {
			_, err = n.proposeMember(ctx, &core.MemberChange{Do: core.MemberRegister, Node: n.o.Node, Store: n.o.StoreID})
			if err != nil {
				n.o.Logger.Debug("data directory is not registered yet", "error", err)
			}
		}
		cancel()
	}
}
