package backup_test

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

// survivor is the data directory of a node of a cluster: its store is behind its log, by as many entries as the shard's
// number, and of its log all but the first entry are not known to be committed.
func survivor(t *testing.T) *replogtest.Disk {
	t.Helper()
	disk := replogtest.NewDisk()
	dir, err := store.OpenDir(disk, "data", env.NewSeededRand(1), time.UnixMilli(0))
	noErr(t, err)
	st, err := store.Open(store.Options{FS: disk.VFS(), Dir: "data/store"})
	noErr(t, err)
	log, err := replog.OpenLog(replog.LogOptions{FS: disk, Dir: "data/wal", SegmentBytes: 1 << 20})
	noErr(t, err)
	for id := range core.ShardID(shards) {
		noErr(t, replog.Bootstrap(log, id))
		b := wal.Batch{Shard: id, HardState: hardState(5, 2, 2)}
		entries := history(id)
		for i, e := range entries {
			b.Entries = append(b.Entries, wal.Entry{Index: uint64(i) + 2, Term: 5, Data: core.AppendEntry(nil, e)})
		}
		done := make(chan error, 1)
		b.Done = func(err error) { done <- err }
		noErr(t, log.Append(b))
		noErr(t, <-done)
		fill(t, st, id, entries[:len(entries)-int(id)])
	}
	noErr(t, st.Close())
	noErr(t, log.Close())
	noErr(t, env.SyncDir(disk, "data"))
	noErr(t, dir.Close())
	return disk
}

func hardState(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return b
}

func TestASurvivorKeepsAllOfItsLogAndSetsTheVotesAside(t *testing.T) {
	disk := survivor(t)
	before := tree(t, disk, "data")
	old, err := wal.Check(disk, "data/wal")
	noErr(t, err)
	stand, _, err := backup.Stand("data", restoreOptions(disk))
	noErr(t, err)
	if len(stand) != shards || stand[2] != (backup.Standing{Shard: 2, Stored: 2, Commit: 2, Last: 4, Term: 5}) {
		t.Errorf("it stands at %+v", stand)
	}
	if !same(before, tree(t, disk, "data")) {
		t.Error("looking at it changed it")
	}
	r, err := backup.Recover("data", shards, restoreOptions(disk))
	noErr(t, err)
	if len(r.Shards) != shards || r.Shards[1].Stored != 3 || r.Shards[1].Last != 4 || r.Shards[1].Begin != 5 {
		t.Errorf("recovered %+v", r)
	}
	disk = disk.Crash(0, 1)
	auditData(t, disk, "data")
	aside, err := wal.Check(disk, r.OldLog)
	noErr(t, err)
	if !reflect.DeepEqual(aside.Shards, old.Shards) {
		t.Errorf("the log that was set aside has %+v, it had %+v", aside.Shards, old.Shards)
	}
}

func TestASurvivorIsRecoveredFromWhereARecoveryEnded(t *testing.T) {
	disk := survivor(t)
	lost := errors.New("lost power")
	options := restoreOptions(disk)
	var cut []*replogtest.Disk
	options.Prepare = func(int) error {
		for keep := 0; keep <= 100; keep += 50 {
			cut = append(cut, disk.Crash(keep, uint64(keep)))
		}
		return lost
	}
	if _, err := backup.Recover("data", shards, options); !errors.Is(err, lost) {
		t.Fatalf("ended with %v", err)
	}
	for i, disk := range append(cut, disk) {
		var unfinished *store.UnfinishedError
		if _, err := store.ReadDir(disk, "data"); !errors.As(err, &unfinished) || !strings.Contains(err.Error(), "millrace cluster recover") {
			t.Errorf("cut %d: %v", i, err)
		}
		_, err := backup.Recover("data", shards, restoreOptions(disk))
		noErr(t, err)
		auditAgain(t, disk)
	}
}

// auditAgain is auditData for a directory whose history was broken off once or more.
func auditAgain(t *testing.T, disk *replogtest.Disk) {
	t.Helper()
	_, err := store.ReadDir(disk, "data")
	noErr(t, err)
	log, err := replog.OpenLog(replog.LogOptions{FS: disk, Dir: "data/wal", SegmentBytes: 1 << 20})
	noErr(t, err)
	defer func() { noErr(t, log.Close()) }()
	st, err := store.Open(store.Options{FS: disk.VFS(), Dir: "data/store"})
	noErr(t, err)
	defer func() { noErr(t, st.Close()) }()
	for id := range core.ShardID(shards) {
		sh, err := st.Shard(id)
		noErr(t, err)
		applied, _ := sh.Applied()
		state := log.State(id)
		if applied < 5 || state.CutIndex != applied || state.Last != applied || state.CutTerm < 6 {
			t.Errorf("shard %d has applied %d, its log goes on behind %d of term %d, up to %d", id, applied, state.CutIndex, state.CutTerm, state.Last)
		}
		noErr(t, sh.View(func(v core.View) error { auditTasks(t, v, id); return nil }))
	}
}

func TestALogThatDoesNotReachTheStateIsNotRecoveredFrom(t *testing.T) {
	disk := survivor(t)
	log, err := replog.OpenLog(replog.LogOptions{FS: disk, Dir: "data/wal", SegmentBytes: 1 << 20})
	noErr(t, err)
	noErr(t, replog.Reset(log, 2, 4, 5))
	noErr(t, log.Close())
	var c *errs.Corruption
	if _, err := backup.Recover("data", shards, restoreOptions(disk)); !errors.As(err, &c) {
		t.Errorf("a gap of two entries: %v", err)
	}
}

func TestADirectoryInUseIsNotRecovered(t *testing.T) {
	disk := survivor(t)
	dir, err := store.OpenDir(disk, "data", env.NewSeededRand(1), time.UnixMilli(0))
	noErr(t, err)
	defer func() { noErr(t, dir.Close()) }()
	before := tree(t, disk, "data")
	if _, err := backup.Recover("data", shards, restoreOptions(disk)); !errors.Is(err, store.ErrLocked) {
		t.Errorf("while a server runs: %v", err)
	}
	if !same(before, tree(t, disk, "data")) {
		t.Error("it was changed")
	}
	if _, err := backup.Recover("nowhere", shards, restoreOptions(disk)); !errors.Is(err, store.ErrNoData) {
		t.Errorf("where nothing is: %v", err)
	}
}
