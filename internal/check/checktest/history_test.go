package checktest

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// written is a log that a test writes as a replica does.
type written struct {
	t   *testing.T
	dir string
	log *wal.Log
}

func newWritten(t *testing.T) *written {
	t.Helper()
	w := &written{t: t, dir: filepath.Join(t.TempDir(), "wal")}
	var err error
	w.log, err = wal.Open(wal.Options{FS: replogtest.System(), Dir: w.dir, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := replog.Bootstrap(w.log, 0); err != nil {
		t.Fatal(err)
	}
	return w
}

// entries appends from to to of a term, each saying who wrote it, with what is known to be committed.
func (w *written) entries(from, to, term, commit uint64) {
	w.t.Helper()
	var hard []byte
	for _, word := range []uint64{term, 0, commit} {
		hard = binary.BigEndian.AppendUint64(hard, word)
	}
	b := wal.Batch{HardState: hard}
	for i := from; i <= to; i++ {
		b.Entries = append(b.Entries, wal.Entry{Index: i, Term: term, Data: fmt.Appendf(nil, "%d of %d", i, term)})
	}
	done := make(chan error, 1)
	b.Done = func(err error) { done <- err }
	if err := w.log.Append(b); err != nil {
		w.t.Fatal(err)
	}
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
}

func (w *written) snapshot(index, term uint64) {
	w.t.Helper()
	if err := replog.Reset(w.log, 0, index, term); err != nil {
		w.t.Fatal(err)
	}
}

func (w *written) read() *Part {
	w.t.Helper()
	if err := w.log.Close(); err != nil {
		w.t.Fatal(err)
	}
	p, err := ReadPart(0, filepath.Join(w.dir, "none"), w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func texts(log []LogEntry) (out []string) {
	for _, e := range log {
		out = append(out, string(e.Data))
	}
	return out
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestOfALogBeforeASnapshotOnlyWhatWasKnownToBeCommittedCounts(t *testing.T) {
	w := newWritten(t)
	w.entries(2, 6, 2, 3)
	w.entries(5, 7, 4, 4) // replaces two that were never acknowledged
	w.snapshot(20, 5)
	w.entries(21, 22, 5, 20)
	p := w.read()
	want(t, "entries", texts(p.Log), "2 of 2", "3 of 2", "4 of 2", "21 of 5", "22 of 5")
	if !slices.Equal(p.Snapshots, []uint64{20}) || p.Begun() != 20 {
		t.Errorf("snapshots %v", p.Snapshots)
	}
	if begun := newWritten(t).read(); begun.Begun() != 0 || len(begun.Log) > 0 {
		t.Errorf("a log that just began has %+v", begun)
	}
}

func TestAHistoryIsWhatAllLogsHaveTogether(t *testing.T) {
	w := newWritten(t)
	w.entries(2, 4, 2, 3)
	w.snapshot(8, 3)
	w.entries(9, 11, 3, 9)
	behind := w.read()
	w = newWritten(t)
	w.entries(2, 3, 2, 2)
	w.entries(4, 9, 3, 9)
	ahead := w.read()

	log, err := History([]*Part{behind, ahead}, []uint64{11, 9}, 11)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "together", texts(log), "2 of 2", "3 of 2", "4 of 3", "5 of 3", "6 of 3", "7 of 3", "8 of 3", "9 of 3", "10 of 3", "11 of 3")
	if _, err := History([]*Part{behind}, []uint64{11}, 11); err == nil {
		t.Error("a hole that no replica fills is a history")
	}
	if _, err := History([]*Part{behind, ahead}, []uint64{11, 7}, 11); err == nil {
		t.Error("an entry that its replica had not applied fills a hole")
	}
	if _, err := History([]*Part{behind, ahead}, []uint64{11, 9}, 12); err == nil {
		t.Error("a history ends early")
	}
}

func TestAReplicaMayStandWhereItsSnapshotEnds(t *testing.T) {
	log := someLog(20)
	whole, err := ReplayCalls(log, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := []Replica{
		{Node: "a", Log: log, Applied: 20, Hash: whole.Hash},
		{Node: "b", Log: log[:5], Begun: 20, Applied: 20, Hash: whole.Hash},
	}
	if r := Replicas(all, whole); !r.OK() || r.Counts["equal_index"] != 2 {
		t.Errorf("behind a snapshot: %s", r)
	}
	all[1].Begun = 19
	if r := Replicas(all, whole); !r.Broke("log") {
		t.Errorf("an entry that is in no log is not missed: %s", r)
	}
}
