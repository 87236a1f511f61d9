package replog

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/replog/wal"
)

// Config of one replica. A zero field means its default where one is named.
type Config struct {
	Shard   core.ShardID
	Replica uint64   // this replica's id, never 0 and never reused
	Conf    Conf     // the configuration at index Applied; without any replica: Voters, or none if there are none
	Voters  []uint64 // what the shard begins with
	Applied uint64   // durably applied index of the store; entries up to it are not handed out again
	Log     *Log
	Logger  *slog.Logger
	May     func(from uint64) bool // whether messages of a replica are taken; nil: all are
	Head    []byte                 // begins every message, for what carries them; Step takes what follows it

	ElectionTicks       int    // ticks without a leader before an election, up to twice as many; default 10
	HeartbeatTicks      int    // default 1
	MaxUncommittedBytes uint64 // proposals beyond it are refused; default 64 MiB
	MaxApplyBytes       uint64 // entries handed out to be applied and not yet done; default 8 MiB
}

func (c Config) withDefaults() Config {
	c.ElectionTicks = cmp.Or(c.ElectionTicks, 10)
	c.HeartbeatTicks = cmp.Or(c.HeartbeatTicks, 1)
	c.MaxUncommittedBytes = cmp.Or(c.MaxUncommittedBytes, 64<<20)
	c.MaxApplyBytes = cmp.Or(c.MaxApplyBytes, 8<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// ErrNotLeader says that this replica does not lead its shard, so it takes no proposals.
var ErrNotLeader = errors.New("not the leader of the shard")

// ErrLogFull says that too many bytes are proposed and not yet committed.
var ErrLogFull = errors.New("too many uncommitted bytes")

// Entry is one committed entry to apply. Data is empty for the entry that opens a term.
type Entry struct {
	Index, Term uint64
	Conf        bool // Data changes the configuration: Conf.After says what it leads to
	Data        []byte
}

// Append is one write to the log. After it is durable, and after every Append handed out before it, the caller passes
// it to AppendDone. Submit writes it; when it is Empty there is nothing to write, only that order to keep.
type Append struct {
	snapshot  *pb.SnapshotMetadata // the log restarts behind it; nil: it goes on
	restarted bool                 // it has restarted
	hard      []byte
	entries   []wal.Entry
	// responses are the messages that wait until this is durable: answers to peers, and to this
	// replica itself.
	responses []*pb.Message
	commit    uint64 // of hard
}

// Empty reports whether there is nothing to write.
func (a *Append) Empty() bool { return a.snapshot == nil && a.hard == nil && len(a.entries) == 0 }

// Snapshot returns the index of the snapshot that takes the place of the state and of the log, and whether there is one.
// The state must be that of the snapshot, durably, before the Append is submitted.
func (a *Append) Snapshot() (index uint64, ok bool) { return a.snapshot.GetIndex(), a.snapshot != nil }

// Len returns how many entries are to be written.
func (a *Append) Len() int { return len(a.entries) }

// Apply is a run of committed entries. After applying them, in order, the caller passes it to ApplyDone.
type Apply struct {
	Entries   []Entry
	responses []*pb.Message
}

// ReadState says that a read asked for with Context may be served once Index is applied.
type ReadState struct {
	Index   uint64
	Context string
}

// Message is one Raft message for a peer's replica, encoded, after Config.Head.
type Message struct {
	To       uint64
	Bulk     bool // it carries entries or answers one that does; others must not wait behind it
	Snapshot bool // it offers a snapshot: SnapshotFailed tells when that was in vain
	Data     []byte
}

// Output is what a step produced. Nil or empty parts need nothing.
type Output struct {
	Append   *Append
	Apply    *Apply
	Messages []Message
	Reads    []ReadState
}

// Status is what a replica knows of its shard.
type Status struct {
	Term    uint64
	Leader  uint64 // 0 = unknown
	Leading bool
	Commit  uint64
	Last    uint64
	Single  bool // this replica is the only voter
	Alone   bool // and the only replica
}

// Core is one replica of one shard.
type Core struct {
	cfg  Config
	rn   *raft.RawNode
	st   *storage
	conf Conf
	// out are messages that waited for an append, until the next Take.
	out []Message
	// hard is the newest hard state that the Raft library has handed out, written or not.
	hard *pb.HardState
	// written is the newest term and vote handed to the log.
	writtenTerm, writtenVote uint64
	// last is the last index that was handed to the log.
	last uint64
	// changes are the changes of the configuration that must not be reported yet; see told.go.
	changes changes
	offered *Offer // message of a peer that Restore takes in later
	// ticks counts the calls of Tick, and sent has what each replica was sent last; see beats.go.
	ticks uint64
	sent  map[uint64]sentTo
	news  news // what followers are told a little later; see news.go
}

// New starts a replica on what its log holds. A log that ends before what the store has durably applied has lost
// acknowledged entries: that is corruption.
func New(c Config) (*Core, error) {
	c = c.withDefaults()
	st, err := newStorage(c)
	if err != nil {
		return nil, err
	}
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        c.Replica,
		ElectionTick:              c.ElectionTicks,
		HeartbeatTick:             c.HeartbeatTicks,
		Storage:                   st,
		Applied:                   c.Applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  c.MaxApplyBytes,
		MaxUncommittedEntriesSize: c.MaxUncommittedBytes,
		MaxInflightMsgs:           256,
		CheckQuorum:               true,
		PreVote:                   true,
		Logger:                    raftLogger{c.Logger.With("shard", c.Shard, "replica", c.Replica)},
		DisableProposalForwarding: true, // a leader stamps what it proposes
		StepDownOnRemoval:         true,
	})
	if err != nil {
		return nil, fmt.Errorf("start replica %d of shard %d: %w", c.Replica, c.Shard, err)
	}
	k := &Core{cfg: c, rn: rn, st: st, hard: st.hard, conf: st.conf}
	k.writtenTerm, k.writtenVote = st.hard.GetTerm(), st.hard.GetVote()
	k.last, _ = st.LastIndex()
	if err := k.changes.load(st); err != nil {
		return nil, fmt.Errorf("start replica %d of shard %d: %w", c.Replica, c.Shard, err)
	}
	return k, nil
}

// Tick advances the replica's clock by one tick. A leader that has not heard from a majority for the election timeout steps
// down. Others may still hear it, though it hears no replica, and would wait for the timeout once more. So it asks the voter
// with the longest log to stand for election at once.
func (k *Core) Tick() error {
	k.ticks++
	was, heir := k.rn.BasicStatus(), k.heir()
	k.rn.Tick()
	if heir == 0 || k.rn.BasicStatus().RaftState == raft.StateLeader {
		return nil
	}
	return k.send(&pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: &k.cfg.Replica, To: &heir, Term: new(was.GetTerm())})
}

// heir is the voter, other than the leader itself, that the leader knows to have the longest log. It is 0 if this replica
// does not lead, or is the only one.
func (k *Core) heir() (id uint64) {
	if k.conf.only(k.cfg.Replica) || k.rn.BasicStatus().RaftState != raft.StateLeader {
		return 0
	}
	var match uint64
	k.rn.WithProgress(func(other uint64, _ raft.ProgressType, p tracker.Progress) {
		if other == k.cfg.Replica || p.IsLearner {
			return
		}
		if id == 0 || p.Match > match || p.Match == match && other < id {
			id, match = other, p.Match
		}
	})
	return id
}

// Campaign starts an election at once: for a single voter, which needs no other vote.
func (k *Core) Campaign() error { return k.rn.Campaign() }

// Step takes a message from a peer's replica. An error means that the message made no sense here and changed nothing.
func (k *Core) Step(data []byte) error {
	m := new(pb.Message)
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("decode peer message: %w", err)
	}
	switch from := m.GetFrom(); {
	case m.GetTo() != k.cfg.Replica:
		return fmt.Errorf("peer message is for replica %d, this is %d", m.GetTo(), k.cfg.Replica)
	case from == 0 || from == k.cfg.Replica || k.cfg.May != nil && !k.cfg.May(from):
		return fmt.Errorf("peer message is from replica %d, which is not a peer", from)
	}
	for _, e := range m.GetEntries() {
		if t := e.GetType(); t != pb.EntryNormal && t != pb.EntryConfChangeV2 {
			return fmt.Errorf("peer message has an entry of type %d", e.GetType())
		}
	}
	if k.holdOffer(m) || m.GetType() == pb.MsgReadIndex && !k.MayRead() { // the reader asks again
		return nil
	}
	if err := k.rn.Step(m); err != nil {
		return fmt.Errorf("step peer message: %w", err)
	}
	return nil
}

// Propose puts data into the log, which keeps it: the caller changes it no more. ErrNotLeader and ErrLogFull refuse it.
func (k *Core) Propose(data []byte) error {
	err := k.rn.Propose(data)
	if errors.Is(err, raft.ErrProposalDropped) {
		if b := k.rn.BasicStatus(); b.RaftState != raft.StateLeader || b.LeadTransferee != 0 {
			return ErrNotLeader
		}
		return ErrLogFull
	}
	return err
}

// AppendDone tells that a is durable.
func (k *Core) AppendDone(a *Append) error {
	k.changes.durable(a.commit)
	for _, m := range a.responses {
		if m.GetTo() != k.cfg.Replica {
			if err := k.send(m); err != nil {
				return err
			}
			continue
		}
		// The configuration may be without this replica by now: then what it has counts for nothing.
		if err := k.rn.Step(m); err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) {
			return fmt.Errorf("step own append response: %w", err)
		}
	}
	return nil
}

// ApplyDone tells that a is applied.
func (k *Core) ApplyDone(a *Apply) error {
	if err := k.adopt(a.Entries); err != nil {
		return err
	}
	for _, m := range a.responses {
		if err := k.rn.Step(m); err != nil {
			return fmt.Errorf("step own apply response: %w", err)
		}
	}
	return nil
}

// Ready reports whether there is output to take.
func (k *Core) Ready() bool { return len(k.out) > 0 || k.rn.HasReady() }

// Take returns the output of the steps since it was last called.
func (k *Core) Take() (Output, error) {
	out := Output{Messages: k.out}
	k.out = nil
	if !k.rn.HasReady() {
		return out, nil
	}
	rd := k.rn.Ready()
	for _, r := range rd.ReadStates {
		out.Reads = append(out.Reads, ReadState{Index: r.Index, Context: string(r.RequestCtx)})
	}
	var asks []*pb.Message
	for i, m := range rd.Messages {
		if tellsLess(m, rd.Messages[i+1:]) {
			continue
		}
		if m.GetType() == pb.MsgVote {
			asks = append(asks, m)
			continue
		}
		switch m.GetTo() {
		case raft.LocalAppendThread:
			out.Append = k.append(m)
		case raft.LocalApplyThread:
			a, err := k.apply(m)
			if err != nil {
				return out, err
			}
			out.Apply = a
		default:
			if k.later(m) {
				continue
			}
			if err := k.send(m); err != nil {
				return out, err
			}
		}
	}
	if len(asks) > 0 {
		out.Append = after(out.Append, asks)
	}
	out.Messages, k.out = append(out.Messages, k.out...), nil
	return out, nil
}

// after has messages wait until a is durable; nil: until what was handed out before is. A candidate asks for votes so: the library sends its
// questions at once, and counts the answers of others before its own vote is durable. If it led by these and lost power then, it would
// come back without its term and vote, ask for the same term again, get the votes of those that gave them before, and lead the term
// twice, with two entries at one index.
func after(a *Append, wait []*pb.Message) *Append {
	if a == nil {
		a = new(Append)
	}
	a.responses = append(a.responses, wait...)
	return a
}

// Status returns what the replica knows.
func (k *Core) Status() Status {
	b := k.rn.BasicStatus()
	return Status{
		Term: b.GetTerm(), Leader: b.Lead, Leading: b.RaftState == raft.StateLeader, Commit: b.GetCommit(),
		Last: k.last, Single: k.conf.only(k.cfg.Replica), Alone: k.conf.only(k.cfg.Replica) && len(k.conf.Learners) == 0,
	}
}

// append turns a storage message into a write. A commit index that moved alone is not written unless it tells of a change of
// the configuration: it rides with the next entries, and a replica that lost it finds it again (R3 bounds how far back it
// starts).
func (k *Core) append(m *pb.Message) *Append {
	a := &Append{responses: m.GetResponses()}
	if snap := m.GetSnapshot().GetMetadata(); snap.GetIndex() > 0 {
		a.snapshot, k.last = snap, snap.GetIndex()
		k.conf = confOf(snap.GetConfState(), snap.GetIndex())
		k.st.conf = k.conf
	}
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		k.hard = &pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	for _, e := range m.GetEntries() {
		a.entries = append(a.entries, wal.Entry{
			Index: e.GetIndex(), Term: e.GetTerm(), Kind: byte(e.GetType()), Data: e.GetData(),
		})
		k.last = e.GetIndex()
	}
	k.changes.appended(m.GetEntries())
	changed := k.hard.GetTerm() != k.writtenTerm || k.hard.GetVote() != k.writtenVote
	if changed || a.snapshot != nil || len(a.entries) > 0 || k.changes.due(k.hard.GetCommit()) {
		a.hard, a.commit = encodeHardState(k.hard), k.hard.GetCommit()
		k.writtenTerm, k.writtenVote = k.hard.GetTerm(), k.hard.GetVote()
	}
	return a
}

// apply turns a storage message into entries to be applied.
func (k *Core) apply(m *pb.Message) (*Apply, error) {
	a := &Apply{responses: m.GetResponses(), Entries: make([]Entry, 0, len(m.GetEntries()))}
	for _, e := range m.GetEntries() {
		conf := e.GetType() == pb.EntryConfChangeV2
		if e.GetType() != pb.EntryNormal && !conf {
			return nil, errs.Corruptf("entry %d of shard %d has unknown type %d", e.GetIndex(), k.cfg.Shard, e.GetType())
		}
		a.Entries = append(a.Entries, Entry{Index: e.GetIndex(), Term: e.GetTerm(), Conf: conf, Data: e.GetData()})
	}
	return a, nil
}

// send encodes a message for a peer, unless it repeats one.
func (k *Core) send(m *pb.Message) error {
	if k.repeats(m) {
		return nil
	}
	k.changes.hold(m)
	k.news.tells(m)
	data, err := proto.MarshalOptions{}.MarshalAppend(slices.Clip(k.cfg.Head), m) // clipped, so that it is copied
	if err != nil {
		return fmt.Errorf("encode peer message: %w", err)
	}
	t := m.GetType()
	k.out = append(k.out, Message{
		To: m.GetTo(), Bulk: t == pb.MsgApp || t == pb.MsgAppResp || t == pb.MsgSnap, Snapshot: t == pb.MsgSnap, Data: data,
	})
	return nil
}

// Unreachable tells that messages to a replica are being lost, so that what it is sent is probed again.
func (k *Core) Unreachable(replica uint64) { k.rn.ReportUnreachable(replica) }

// Transfer asks another voter to lead. Proposals are dropped until it does, or until an election's time has passed.
func (k *Core) Transfer(to uint64) { k.rn.TransferLeader(to) }

// Transferring reports whether a transfer is under way.
func (k *Core) Transferring() bool { return k.rn.BasicStatus().LeadTransferee != 0 }

// Progress is what a leader knows of another replica.
type Progress struct {
	Replica uint64
	Learner bool
	Match   uint64 // it has durably all entries up to here
	Active  bool   // it was heard of lately
}

// Followers returns what a leader knows of the other replicas, by replica; nil for a replica that does not lead.
func (k *Core) Followers() []Progress {
	if k.rn.BasicStatus().RaftState != raft.StateLeader {
		return nil
	}
	var out []Progress
	k.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id != k.cfg.Replica {
			out = append(out, Progress{Replica: id, Learner: p.IsLearner, Match: p.Match, Active: p.RecentActive})
		}
	})
	slices.SortFunc(out, func(a, b Progress) int { return cmp.Compare(a.Replica, b.Replica) })
	return out
}
