package replog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/replog/wal"
)

// storage shows a shard's part of the log to the Raft library.
type storage struct {
	cfg Config
	// hard is the hard state that the log held at the start, with a commit index of Applied at
	// least.
	hard *pb.HardState
	// conf is the configuration that the replica goes by now.
	conf Conf
	// snapshot is what a follower gets that is behind the log's first entry; nil: none is at hand, and wanted is set when
	// one is asked for.
	snapshot *pb.Snapshot
	wanted   bool
}

// newStorage reads what the log holds of the shard, and refuses a log that ends before what the
// store has applied, or before what was committed.
func newStorage(c Config) (*storage, error) {
	s := &storage{cfg: c, hard: &pb.HardState{}, conf: c.Conf}
	if len(c.Conf.Voters) == 0 {
		s.conf = Conf{Voters: slices.Sorted(slices.Values(c.Voters))}
	}
	state := c.Log.State(c.Shard)
	if state.HardState != nil {
		h, err := decodeHardState(state.HardState)
		if err != nil {
			return nil, fmt.Errorf("hard state of shard %d: %w", c.Shard, err)
		}
		s.hard = h
	}
	last := state.CutIndex
	if state.Last > last {
		last = state.Last
	}
	if last < c.Applied {
		return nil, errs.Corruptf("log of shard %d ends at %d, but %d is applied", c.Shard, last, c.Applied)
	}
	if s.hard.GetCommit() < c.Applied {
		s.hard.Commit = new(c.Applied)
	}
	if s.hard.GetCommit() > last {
		return nil, errs.Corruptf("log of shard %d ends at %d, but %d is committed", c.Shard, last, s.hard.GetCommit())
	}
	return s, nil
}

// InitialState returns the hard state and the configuration at the applied index.
func (s *storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return s.hard, s.conf.state(), nil
}

// Entries returns entries [lo, hi) up to maxSize bytes, at least one.
func (s *storage) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	in, err := s.cfg.Log.Entries(s.cfg.Shard, lo, hi, maxSize)
	if err != nil {
		return nil, storageError(err)
	}
	out := make([]*pb.Entry, len(in))
	for i, e := range in {
		out[i] = &pb.Entry{Index: new(e.Index), Term: new(e.Term), Type: pb.EntryType(e.Kind).Enum(), Data: e.Data}
	}
	return out, nil
}

// Term returns the term of entry i, the cut included.
func (s *storage) Term(i uint64) (uint64, error) {
	t, err := s.cfg.Log.Term(s.cfg.Shard, i)
	return t, storageError(err)
}

// LastIndex returns the last durable index, or the cut when nothing follows it.
func (s *storage) LastIndex() (uint64, error) {
	st := s.cfg.Log.State(s.cfg.Shard)
	return max(st.CutIndex, st.Last), nil
}

// FirstIndex returns the index after the cut.
func (s *storage) FirstIndex() (uint64, error) {
	return s.cfg.Log.State(s.cfg.Shard).CutIndex + 1, nil
}

// Snapshot returns the snapshot at hand. Without one that the log goes on from it notes that one is wanted.
func (s *storage) Snapshot() (*pb.Snapshot, error) {
	if first, _ := s.FirstIndex(); s.snapshot != nil && s.snapshot.GetMetadata().GetIndex()+1 >= first {
		return s.snapshot, nil
	}
	s.wanted = true
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}

// storageError turns errors of the log into those that the Raft library knows.
func storageError(err error) error {
	switch {
	case errors.Is(err, wal.ErrCompacted):
		return raft.ErrCompacted
	case errors.Is(err, wal.ErrUnavailable):
		return raft.ErrUnavailable
	}
	return err
}

// hardStateLen is the length of an encoded hard state: term, vote and commit, eight bytes each, big-endian.
const hardStateLen = 24

// encodeHardState returns the stored form of a hard state.
func encodeHardState(h *pb.HardState) []byte {
	b := make([]byte, 0, hardStateLen)
	b = binary.BigEndian.AppendUint64(b, h.GetTerm())
	b = binary.BigEndian.AppendUint64(b, h.GetVote())
	return binary.BigEndian.AppendUint64(b, h.GetCommit())
}

// decodeHardState reads it.
func decodeHardState(b []byte) (*pb.HardState, error) {
	if len(b) != hardStateLen {
		return nil, errs.Corruptf("hard state of %d bytes", len(b))
	}
	return &pb.HardState{
		Term:   new(binary.BigEndian.Uint64(b)),
		Vote:   new(binary.BigEndian.Uint64(b[8:])),
		Commit: new(binary.BigEndian.Uint64(b[16:])),
	}, nil
}

// raftLogger gives the Raft library's log to ours. Its fatal and panic calls mean that an invariant broke.
type raftLogger struct{ l *slog.Logger }

// broken ends the process before anything wrong is acknowledged.
func (raftLogger) broken(what string) {
	panic("raft: " + what) // the library does not go on after this call, and neither may anything else
}

func (r raftLogger) Debug(v ...any)              { r.l.Debug(fmt.Sprint(v...)) }
func (r raftLogger) Debugf(f string, v ...any)   { r.l.Debug(fmt.Sprintf(f, v...)) }
func (r raftLogger) Error(v ...any)              { r.l.Error(fmt.Sprint(v...)) }
func (r raftLogger) Errorf(f string, v ...any)   { r.l.Error(fmt.Sprintf(f, v...)) }
func (r raftLogger) Info(v ...any)               { r.l.Debug(fmt.Sprint(v...)) }
func (r raftLogger) Infof(f string, v ...any)    { r.l.Debug(fmt.Sprintf(f, v...)) }
func (r raftLogger) Warning(v ...any)            { r.l.Warn(fmt.Sprint(v...)) }
func (r raftLogger) Warningf(f string, v ...any) { r.l.Warn(fmt.Sprintf(f, v...)) }
func (r raftLogger) Fatal(v ...any)              { r.broken(fmt.Sprint(v...)) }
func (r raftLogger) Fatalf(f string, v ...any)   { r.broken(fmt.Sprintf(f, v...)) }
func (r raftLogger) Panic(v ...any)              { r.broken(fmt.Sprint(v...)) }
func (r raftLogger) Panicf(f string, v ...any)   { r.broken(fmt.Sprintf(f, v...)) }
