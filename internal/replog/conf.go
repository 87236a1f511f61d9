package replog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/internal/errs"
)

// Conf is which replicas a shard's log has, all lists ascending. While Outgoing is not empty the configuration is joint:
// majorities of both Voters and Outgoing decide. It changes by entries of the log, and is stored with the state that
// those lead to: the one at the applied index is always the one that Raft goes on from.
type Conf struct {
	Index        uint64 // of the entry that said so; 0: the shard began with it
	Voters       []uint64
	Outgoing     []uint64 // voters of before, of a joint one
	Learners     []uint64
	LearnersNext []uint64 // voters of before that stay as learners
	AutoLeave    bool     // a joint one ends by itself
}

// Joint reports whether two majorities decide.
func (c Conf) Joint() bool { return len(c.Outgoing) > 0 }

// Votes reports whether a replica is a voter, of either majority.
func (c Conf) Votes(replica uint64) bool {
	return slices.Contains(c.Voters, replica) || slices.Contains(c.Outgoing, replica)
}

// Learns reports whether a replica is a learner.
func (c Conf) Learns(replica uint64) bool { return slices.Contains(c.Learners, replica) }

// Has reports whether a replica is one of the shard's.
func (c Conf) Has(replica uint64) bool { return c.Votes(replica) || c.Learns(replica) }

// only reports whether a replica is the only voter. There may be learners besides it.
func (c Conf) only(replica uint64) bool {
	return len(c.Voters) == 1 && c.Voters[0] == replica && !c.Joint()
}

// Replicas lists all replicas, ascending.
func (c Conf) Replicas() []uint64 {
	out := slices.Concat(c.Voters, c.Outgoing, c.Learners)
	slices.Sort(out)
	return slices.Compact(out)
}

// confFormat is the first byte of a stored configuration.
const confFormat = 1

// maxConfReplicas bounds each list of a configuration.
const maxConfReplicas = 64

// Append appends the stored form of c to dst.
func (c Conf) Append(dst []byte) []byte {
	dst = append(dst, confFormat)
	dst = binary.AppendUvarint(dst, c.Index)
	if c.AutoLeave {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	for _, list := range [][]uint64{c.Voters, c.Outgoing, c.Learners, c.LearnersNext} {
		dst = binary.AppendUvarint(dst, uint64(len(list)))
		for _, id := range list {
			dst = binary.AppendUvarint(dst, id)
		}
	}
	return dst
}

// DecodeConf reads what Append wrote, and nothing else.
func DecodeConf(b []byte) (c Conf, err error) {
	whole := b
	bad := func() (Conf, error) { return Conf{}, errs.Corruptf("configuration of a shard %x", whole) }
	uint := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || n > 1 && b[n-1] == 0 {
			err = errs.Corruptf("configuration of a shard %x", whole)
			b = nil
			return 0
		}
		b = b[n:]
		return v
	}
	if len(b) < 3 || b[0] != confFormat {
		return bad()
	}
	b = b[1:]
	c.Index = uint()
	if len(b) == 0 || b[0] > 1 {
		return bad()
	}
	c.AutoLeave, b = b[0] == 1, b[1:]
	for _, list := range []*[]uint64{&c.Voters, &c.Outgoing, &c.Learners, &c.LearnersNext} {
		n := uint()
		if n > maxConfReplicas {
			return bad()
		}
		for last := uint64(0); n > 0 && err == nil; n-- {
			id := uint()
			if id <= last {
				return bad()
			}
			*list, last = append(*list, id), id
		}
	}
	if err != nil || len(b) > 0 {
		return bad()
	}
	return c, nil
}

// state returns c in the form of the Raft library.
func (c Conf) state() *pb.ConfState {
	return &pb.ConfState{
		Voters: c.Voters, VotersOutgoing: c.Outgoing, Learners: c.Learners, LearnersNext: c.LearnersNext,
		AutoLeave: new(c.AutoLeave),
	}
}

// confOf returns a configuration of the Raft library in this package's form, its lists sorted.
func confOf(s *pb.ConfState, index uint64) Conf {
	sorted := func(ids []uint64) []uint64 {
		ids = slices.Clone(ids)
		slices.Sort(ids)
		return ids
	}
	return Conf{
		Index: index, Voters: sorted(s.GetVoters()), Outgoing: sorted(s.GetVotersOutgoing()), Learners: sorted(s.GetLearners()),
		LearnersNext: sorted(s.GetLearnersNext()), AutoLeave: s.GetAutoLeave(),
	}
}

// After returns what the change of an entry, which is its data, makes of c.
func (c Conf) After(index uint64, change []byte) (Conf, error) {
	cc := new(pb.ConfChangeV2)
	if err := proto.Unmarshal(change, cc); err != nil {
		return c, errs.Corruptf("change of a configuration in entry %d: %v", index, err)
	}
	t := tracker.MakeProgressTracker(1, 0)
	var err error
	if t.Config, t.Progress, err = confchange.Restore(confchange.Changer{Tracker: t}, c.state()); err != nil {
		return c, errs.Corruptf("configuration at entry %d: %v", c.Index, err)
	}
	changer := confchange.Changer{Tracker: t}
	if cc.LeaveJoint() {
		t.Config, t.Progress, err = changer.LeaveJoint()
	} else if autoLeave, joint := cc.EnterJoint(); joint {
		t.Config, t.Progress, err = changer.EnterJoint(autoLeave, cc.Changes...)
	} else {
		t.Config, t.Progress, err = changer.Simple(cc.Changes...)
	}
	if err != nil {
		return c, errs.Corruptf("change of the configuration in entry %d: %v", index, err)
	}
	return confOf(t.ConfState(), index), nil
}

// KindConf is the kind, in the log, of an entry that changes the configuration.
const KindConf = byte(pb.EntryConfChangeV2)

// ConfAfterChange returns the configuration that the change of an entry leads to, without the one before; false when
// the entry does not say, as one that ends a joint configuration. It is for readers of a log from its beginning.
func ConfAfterChange(index uint64, change []byte) (Conf, bool, error) {
	cc := new(pb.ConfChangeV2)
	if err := proto.Unmarshal(change, cc); err != nil {
		return Conf{}, false, errs.Corruptf("change of a configuration in entry %d: %v", index, err)
	}
	if len(cc.GetContext()) == 0 {
		return Conf{}, false, nil
	}
	c, err := DecodeConf(cc.GetContext())
	c.Index = index
	return c, err == nil, err
}

// Role is what a replica is to be.
type Role uint8

// The roles.
const (
	Voter   Role = 1
	Learner Role = 2
	Absent  Role = 3
)

// RoleChange gives a replica a role.
type RoleChange struct {
	Replica uint64
	Role    Role
}

// ErrConfBusy says that the change before is not applied yet, or not ended.
var ErrConfBusy = errors.New("another change of the configuration is under way")

// Conf returns the configuration that the replica goes by.
func (k *Core) Conf() Conf { return k.conf }

// Reconfigure puts a change of the configuration into the log: of one voter at a time, or of several by a joint
// configuration that ends by itself. ErrNotLeader, ErrConfBusy and ErrLogFull refuse it; and it has to be looked
// whether it was taken: Raft drops one that comes too early.
func (k *Core) Reconfigure(changes ...RoleChange) error {
	if k.rn.BasicStatus().RaftState != raft.StateLeader {
		return ErrNotLeader
	}
	if k.conf.Joint() {
		return ErrConfBusy
	}
	cc := &pb.ConfChangeV2{}
	for _, c := range changes {
		kind := pb.ConfChangeAddNode
		switch c.Role {
		case Learner:
			kind = pb.ConfChangeAddLearnerNode
		case Absent:
			kind = pb.ConfChangeRemoveNode
		}
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(c.Replica)})
	}
	data, err := proto.Marshal(cc)
	if err != nil {
		return fmt.Errorf("encode change of the configuration: %w", err)
	}
	next, err := k.conf.After(0, data)
	if err != nil {
		return fmt.Errorf("change the configuration: %w", err)
	}
	cc.Context = next.Append(nil)
	err = k.rn.ProposeConfChange(cc)
	if errors.Is(err, raft.ErrProposalDropped) {
		if b := k.rn.BasicStatus(); b.RaftState != raft.StateLeader || b.LeadTransferee != 0 {
			return ErrNotLeader
		}
		return ErrLogFull
	}
	return err
}

// adopt takes the changes of applied entries over, before Raft learns that they are applied. The
// library and Conf.After must come to the same: Conf.After is what readers of a log go by.
func (k *Core) adopt(entries []Entry) error {
	for _, e := range entries {
		if !e.Conf {
			continue
		}
		next, err := k.conf.After(e.Index, e.Data)
		if err != nil {
			return err
		}
		cc := new(pb.ConfChangeV2)
		if err := proto.Unmarshal(e.Data, cc); err != nil {
			return errs.Corruptf("change of a configuration in entry %d: %v", e.Index, err)
		}
		got := confOf(k.rn.ApplyConfChange(cc), e.Index)
		if errs.Invariants {
			_ = errs.Assertf(slices.Equal(got.Voters, next.Voters) && slices.Equal(got.Learners, next.Learners) &&
				slices.Equal(got.Outgoing, next.Outgoing), "configuration %+v of entry %d, %+v expected", got, e.Index, next)
		}
		k.conf, k.st.conf = got, got
	}
	return nil
}
