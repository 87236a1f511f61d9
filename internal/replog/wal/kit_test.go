package wal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/wal"

// small is a log that is stepped by hand, in segments of 4 KiB.
func small(fsys env.FS) wal.Options {
	return wal.Options{FS: fsys, Dir: dir, Clock: &replogtest.HandClock{}, SegmentBytes: 4 << 10, CacheBytes: 1, Manual: true}
}

func open(t testing.TB, o wal.Options) *wal.Log {
	t.Helper()
	l, err := wal.Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l
}

// entries returns entries first..last of a term, whose data tells which they are.
func entries(s core.ShardID, first, last, term uint64, size int) []wal.Entry {
	var out []wal.Entry
	for i := first; i <= last; i++ {
		out = append(out, wal.Entry{Index: i, Term: term, Kind: byte(i % 3), Data: content(s, i, term, size)})
	}
	return out
}

func content(s core.ShardID, index, term uint64, size int) []byte {
	b := fmt.Appendf(nil, "shard %d entry %d term %d ", s, index, term)
	for len(b) < size {
		b = append(b, byte(uint64(len(b))*131+index*31+term))
	}
	return b
}

func hardState(term, commit uint64) []byte {
	return fmt.Appendf(nil, "term %d commit %d", term, commit)
}

// put appends one batch and steps until it is done.
func put(t testing.TB, l *wal.Log, b wal.Batch) {
	t.Helper()
	if err := tryPut(l, b); err != nil {
		t.Fatalf("append: %v", err)
	}
}

var errWaits = errors.New("the batch still waits")

func tryPut(l *wal.Log, b wal.Batch) error {
	end := errWaits
	b.Done = func(err error) { end = err }
	if err := l.Append(b); err != nil {
		return err
	}
	l.Step()
	return end
}

// all reads every entry of a shard.
func all(t testing.TB, l *wal.Log, s core.ShardID) []wal.Entry {
	t.Helper()
	st := l.State(s)
	var out []wal.Entry
	for lo := st.First; lo <= st.Last; {
		es, err := l.Entries(s, lo, st.Last+1, math.MaxUint64)
		if err != nil {
			t.Fatalf("read entries of shard %d from %d: %v", s, lo, err)
		}
		out = append(out, es...)
		lo += uint64(len(es))
	}
	return out
}

func sameEntries(a, b []wal.Entry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Index != b[i].Index || a[i].Term != b[i].Term || a[i].Kind != b[i].Kind || !bytes.Equal(a[i].Data, b[i].Data) {
			return false
		}
	}
	return true
}

// model is what a log should hold of its shards.
type model map[core.ShardID]*modelShard

type modelShard struct {
	hard         []byte
	cut, cutTerm uint64
	entries      []wal.Entry
}

func (m model) shard(s core.ShardID) *modelShard {
	if m[s] == nil {
		m[s] = &modelShard{}
	}
	return m[s]
}

func (m model) clone() model {
	out := model{}
	for id, s := range m {
		c := *s
		c.entries = append([]wal.Entry{}, s.entries...)
		out[id] = &c
	}
	return out
}

func (s *modelShard) last() uint64 { return s.cut + uint64(len(s.entries)) }

func (s *modelShard) put(b wal.Batch) {
	if len(b.Entries) > 0 {
		s.entries = append(s.entries[:b.Entries[0].Index-s.cut-1:b.Entries[0].Index-s.cut-1], b.Entries...)
	}
	if b.HardState != nil {
		s.hard = b.HardState
	}
}

func (s *modelShard) cutTo(i uint64) {
	if i > s.cut {
		s.cutTerm = s.entries[i-s.cut-1].Term
		s.entries, s.cut = s.entries[i-s.cut:], i
	}
}

// diff says how a log differs from the model. cuts false lets the log's cuts be lower.
func (m model) diff(t testing.TB, l *wal.Log, cuts bool) string {
	t.Helper()
	for id, s := range m {
		st := l.State(id)
		if st.Last != s.last() {
			return fmt.Sprintf("shard %d ends at %d, want %d", id, st.Last, s.last())
		}
		if !bytes.Equal(st.HardState, s.hard) || (st.HardState == nil) != (s.hard == nil) {
			return fmt.Sprintf("shard %d has hard state %q, want %q", id, st.HardState, s.hard)
		}
		if st.CutIndex > s.cut || cuts && (st.CutIndex != s.cut || st.CutTerm != s.cutTerm) {
			return fmt.Sprintf("shard %d is cut at %d term %d, want %d term %d", id, st.CutIndex, st.CutTerm, s.cut, s.cutTerm)
		}
		got := all(t, l, id)
		if !sameEntries(got[len(got)-len(s.entries):], s.entries) {
			return fmt.Sprintf("entries of shard %d differ", id)
		}
	}
	return ""
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
