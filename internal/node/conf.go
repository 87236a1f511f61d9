package node

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// The configuration of a shard's log is stored with the state, by the entry that changes it. A shard's leader brings it to
// what the directory of members wants, and tells the leader of shard 0 how far it is: that needs no memory, so that any
// leader of either goes on where the one before was.

const (
	// confRetry is after how long a change of the configuration that has not come is proposed again.
	confRetry = time.Second
	// heardFor is for how long a replica counts as reached after it was heard of: longer than Raft's count of its quorum.
	heardFor = 3 * time.Second
)

// readConf returns the configuration that is stored with the state of a shard, or the one that it began with.
func (n *Node) readConf(st *store.Shard) (conf replog.Conf, err error) {
	err = st.View(func(v core.View) error {
		row, ok, err := v.Get(keys.ShardConf())
		if err != nil || !ok {
			return err
		}
		conf, err = replog.DecodeConf(row)
		return err
	})
	if err != nil || len(conf.Voters) > 0 || n.o.Joining {
		return conf, err
	}
	return replog.Conf{Voters: n.begun()}, nil
}

// begun lists the replicas that the cluster began with, ascending.
func (n *Node) begun() []uint64 {
	out := []uint64{n.o.Replica}
	for _, p := range n.o.Peers {
		out = append(out, p.Replica)
	}
	slices.Sort(out)
	return out
}

// applyConf applies an entry that changes the configuration.
func (s *shard) applyConf(e replog.Entry) error {
	next, err := s.view.conf.Load().After(e.Index, e.Data)
	if err != nil {
		return err
	}
	err = s.store.Apply(e.Index, func(tx *store.Txn) error {
		tx.Set(keys.ShardConf(), next.Append(nil))
		return nil
	})
	if err != nil {
		return err
	}
	s.view.conf.Store(&next)
	s.noteHash(e.Index)
	s.publish(e.Index)
	return nil
}

// reconfigured looks, in the loop, what a configuration that Raft goes by from now on means to the shard.
func (s *shard) reconfigured() {
	conf := s.loop.core.Conf()
	if conf.Index == s.loop.confIndex {
		return
	}
	s.loop.confIndex, s.loop.confAt = conf.Index, 0
	s.n.o.Logger.Info("configuration of a shard", "shard", s.id, "voters", conf.Voters, "outgoing", conf.Outgoing, "learners", conf.Learners)
	if !s.loop.core.Status().Alone {
		s.alone.Store(false)
	}
	if k := s.snap.serving.Load(); k != nil && !covers(k.conf, conf) {
		s.dropSnapshot(k) // who came since takes none that does not know it
	}
}

// covers reports whether a has all replicas of b.
func covers(a, b replog.Conf) bool {
	return !slices.ContainsFunc(b.Replicas(), func(id uint64) bool { return !a.Has(id) })
}

// tickMembers does, with each tick, what members that come and go ask of a shard.
func (s *shard) tickMembers(now time.Duration) error {
	if s.id == 0 {
		s.n.sayGoodbye(now)
	}
	r := s.n.who()
	if r.dir.Version == 0 {
		return nil
	}
	if !s.loop.leading || !s.view.ready.Load() {
		clear(s.loop.heard)
		s.loop.marks = nil
		return nil
	}
	s.loop.marks = s.loop.marks.note(now, s.loop.core.Status().Last)
	s.listen(now)
	changes := s.wanted(r)
	if len(changes) > 0 && now >= s.loop.confAt {
		if err := s.reconfigure(r, changes, now); err != nil {
			return err
		}
	}
	settled := !s.loop.core.Conf().Joint() && !slices.ContainsFunc(changes, func(c replog.RoleChange) bool { return r.awaits(c.Replica) })
	if r.dir.Job.State == core.JobRunning {
		settled = settled && s.confirmed()
	}
	s.reportConf(r, settled, now)
	if s.id == 0 {
		s.n.tickJob(now)
	}
	return nil
}

// confCheck follows whether most voters know durably that the configuration is committed. Only the loop uses it.
type confCheck struct {
	// Term of the check, and index of the configuration that is checked.
	term, conf uint64
	// The check ends when an entry with a higher index than this is committed.
	behind uint64
	// An entry behind that index must still be proposed.
	wanted bool
}

// confirmed reports whether most voters know durably that the configuration is committed. Only then may removed members stop:
// a voter that lost that knowledge in a power cut would need their votes. The leader has applied the configuration, so each voter
// that stores an entry proposed from now on also stores that the configuration is committed. Once such an entry is committed, most
// voters know.
func (s *shard) confirmed() bool {
	st, c := s.loop.core.Status(), &s.loop.confCheck
	if index := s.loop.core.Conf().Index; c.term != st.Term || c.conf != index {
		*c = confCheck{term: st.Term, conf: index, behind: st.Last, wanted: true}
	}
	return s.view.applied.Load() > c.behind
}

// hear notes, as the leader, of whom messages came.
func (s *shard) hear(in []peerMessage) {
	if !s.loop.leading || len(in) == 0 {
		return
	}
	if s.loop.heard == nil {
		s.loop.heard = make(map[uint64]time.Duration)
	}
	now := s.n.o.Clock.Boot()
	for _, m := range in {
		s.loop.heard[m.from] = now
	}
}

// listen publishes which replicas are heard of.
func (s *shard) listen(now time.Duration) {
	reached := []uint64{s.n.o.Replica}
	for id, at := range s.loop.heard {
		if now-at >= heardFor {
			delete(s.loop.heard, id)
			continue
		}
		reached = append(reached, id)
	}
	slices.Sort(reached)
	s.view.reached.Store(&reached)
}

// wanted returns what is to be changed for the configuration to be what the directory says.
func (s *shard) wanted(r *roster) (out []replog.RoleChange) {
	conf := s.loop.core.Conf()
	if conf.Joint() {
		return nil // it ends by itself
	}
	for _, id := range conf.Replicas() {
		if m := r.member(id); m == nil || m.State == core.MemberRemoving || m.State == core.MemberJoining {
			out = append(out, replog.RoleChange{Replica: id, Role: replog.Absent})
		}
	}
	for i := range r.list {
		m := &r.list[i]
		switch m.State {
		case core.MemberCatchingUp, core.MemberLearner:
			if !conf.Learns(m.Replica) {
				out = append(out, replog.RoleChange{Replica: m.Replica, Role: replog.Learner})
			}
		case core.MemberPromoting, core.MemberVoter:
			if !conf.Votes(m.Replica) {
				out = append(out, replog.RoleChange{Replica: m.Replica, Role: replog.Voter})
			}
		}
	}
	return out
}

// awaits reports whether the job under way is about a replica. A member that has its final role in the directory does not
// count, even if some shard does not have it in that role yet: it may be down for long. It counts when the job brings it back.
func (r *roster) awaits(replica uint64) bool {
	m := r.member(replica)
	return m == nil || replica == r.dir.Job.Replica || r.dir.Returning() && replica == r.dir.Job.Old || m.State != core.MemberVoter && m.State != core.MemberLearner
}

// reconfigure proposes what of the changes can be: a voter to be is a learner first, and near enough; who leaves for it
// leaves in the same step; and a leader that leaves has another lead before.
func (s *shard) reconfigure(r *roster, changes []replog.RoleChange, now time.Duration) error {
	conf, job := s.loop.core.Conf(), r.dir.Job
	if term := s.loop.core.Status().Term; s.loop.wantedConf.term != term || s.loop.wantedConf.version != r.dir.Version {
		s.loop.wantedConf = wantedConf{term, r.dir.Version, now}
	}
	lags := s.lags()
	var out []replog.RoleChange
	waits := false
	for _, c := range changes {
		lag, known := lags[c.Replica]
		switch {
		case c.Role != replog.Voter:
		case !conf.Learns(c.Replica):
			c.Role, waits = replog.Learner, true
		case !known || !s.n.caughtUp(lag) || !s.answers(c.Replica):
			waits = true
			continue
		}
		out = append(out, c)
	}
	if waits && job.State == core.JobRunning && job.Ending == 0 && job.Old != 0 {
		out = slices.DeleteFunc(out, func(c replog.RoleChange) bool { return c.Replica == job.Old })
	}
	if waits { // who is to vote no more, as it is taken back, votes until who votes instead is near enough
		out = slices.DeleteFunc(out, func(c replog.RoleChange) bool { return c.Role == replog.Learner && conf.Votes(c.Replica) })
	}
	own := func(c replog.RoleChange) bool {
		return c.Replica == s.n.o.Replica && c.Role != replog.Voter && conf.Votes(c.Replica)
	}
	if slices.ContainsFunc(out, own) {
		if s.mayFollow(r) {
			if s.transfer.request.Load() == nil {
				s.ask(0, now+spreadTimeout)
			}
			return nil
		}
		// No other replica votes yet: the successor of this one becomes a second voter, and leads before this one leaves.
		out = slices.DeleteFunc(out, own)
	}
	if len(out) == 0 || !s.outlives(out) {
		return nil
	}
	s.loop.confAt = now + confRetry
	err := s.loop.core.Reconfigure(out...)
	switch {
	case err == nil, errors.Is(err, replog.ErrNotLeader), errors.Is(err, replog.ErrConfBusy), errors.Is(err, replog.ErrLogFull):
		return nil
	}
	return err
}

// wantedConf says since when the leader of a term knows the version of the directory that asks for another configuration.
type wantedConf struct {
	// Term of the leader, and version of the directory.
	term, version uint64
	since         time.Duration // boot time
}

// answers reports whether a replica was heard of since a change is wanted: what was heard before says nothing of a disk that
// was lost meanwhile, and the change may make its vote indispensable.
func (s *shard) answers(replica uint64) bool {
	at, heard := s.loop.heard[replica]
	return replica == s.n.o.Replica || heard && at > s.loop.wantedConf.since
}

// outlives reports whether the voters that answer are a majority of those that changes leave. Between the request of a
// change, which was held to who was heard of then, and its entry others may have gone: then it waits, for them or for its
// deadline.
func (s *shard) outlives(changes []replog.RoleChange) bool {
	voters := slices.Clone(s.loop.core.Conf().Voters)
	for _, c := range changes {
		voters = slices.DeleteFunc(voters, func(id uint64) bool { return id == c.Replica })
		if c.Role == replog.Voter {
			voters = append(voters, c.Replica)
		}
	}
	live := 0
	for _, id := range voters {
		if s.answers(id) {
			live++
		}
	}
	return 2*live > len(voters)
}

// mayFollow reports whether another voter stays that can lead after this one.
func (s *shard) mayFollow(r *roster) bool {
	return slices.ContainsFunc(s.loop.core.Conf().Voters, func(id uint64) bool {
		m := r.member(id)
		return id != s.n.o.Replica && m != nil && m.State != core.MemberRemoving
	})
}

// reportConf tells the leader of shard 0 how this shard stands, while somebody waits for that.
func (s *shard) reportConf(r *roster, settled bool, now time.Duration) {
	lags := s.lags()
	if r.dir.Job.State != core.JobRunning && len(lags) == 0 && settled {
		return
	}
	msg := binary.BigEndian.AppendUint64([]byte{peerConf}, r.dir.Version)
	if settled {
		msg = append(msg, 1)
	} else {
		msg = append(msg, 0)
	}
	for _, id := range sortedKeys(lags) {
		msg = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(msg, id), lags[id].encode())
	}
	if to := s.n.shards[0].view.leader.Load(); to == s.n.o.Replica {
		s.n.takeConf(s.id, msg[1:])
	} else if to != 0 {
		s.n.send(to, s.id, Control, msg)
	}
}
