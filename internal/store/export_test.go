package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// installed returns the state that a snapshot brings to a store of its own.
func installed(t *testing.T, fs vfs.FS, dir string, snap Snapshot) (m map[string]string, index uint64) {
	t.Helper()
	mem := vfs.NewMem()
	carry(t, fs, dir, mem, "in")
	s := mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, snap.Shard)
	must(t, sh.Install("in", snap))
	return read(t, sh)
}

func TestExportHoldsNothingButTheShard(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	for _, id := range []core.ShardID{8, 9, 10, 0xffff} {
		set(t, mustShard(t, s, id), uint64(id)+1, "a", fmt.Sprint(id))
	}
	must(t, mustShard(t, s, 10).Apply(20, func(tx *Txn) error { tx.DeleteRange(nil, nil); return nil }))
	for id, want := range map[core.ShardID]int{9: 2, 10: 0, 0xffff: 2} {
		dir := fmt.Sprint("out", id)
		snap, err := mustShard(t, s, id).Export(dir)
		must(t, err)
		index, _ := mustShard(t, s, id).Applied()
		if got, at := installed(t, mem, dir, snap); len(got) != want || at != index || snap.Keys != uint64(want) {
			t.Errorf("shard %d: %d keys at index %d, want %d at %d; %+v", id, len(got), at, want, index, snap)
		}
	}
}

func TestExportGoesOnInAnotherFileWhenOneIsFull(t *testing.T) {
	mem := vfs.NewMem()
	p := program(2000)
	snap := makeSnapshot(t, mem, "out", p, 4, 150)
	if n := len(snap.Files); n < 4 || n != len(files(t, mem, "out")) {
		t.Fatalf("%d files: %+v; there are %v", n, snap.Files, files(t, mem, "out"))
	}
	if got, at := installed(t, mem, "out", snap); at != 150 || !maps.Equal(got, p.stateAt(150)) {
		t.Errorf("%d keys at index %d", len(got), at)
	}
}

func TestExportIsRefusedWhereItMakesNoSense(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, Options{FS: mem, Manual: true})
	sh := mustShard(t, s, 0)
	if _, err := sh.Export("out"); err == nil {
		t.Error("a shard without a state was exported")
	}
	set(t, sh, 1, "a")
	must(t, mem.MkdirAll("used", 0o700))
	must(t, writeFile(NewFS(mem), "used/000001.sst", []byte("mine")))
	if _, err := sh.Export("used"); err == nil {
		t.Error("a directory in use was taken")
	}
	if got := bytesOf(t, mem, "used/000001.sst"); string(got) != "mine" {
		t.Errorf("the file there is now %q", got)
	}
	must(t, mem.MkdirAll("empty", 0o700))
	_, err := sh.Export("empty")
	must(t, err)
	mustClose(t, s)
	if _, err := sh.Export("late"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if got := append(files(t, mem, "out"), files(t, mem, "late")...); len(got) > 0 {
		t.Errorf("left are %v", got)
	}
}

func TestExportFailsOnAFullDiskAndLeavesNothing(t *testing.T) {
	disk := newQuotaFS(64 << 20)
	s := mustOpen(t, Options{FS: disk, Manual: true})
	defer mustClose(t, s)
	s.fileBytes = 32 << 10
	sh := mustShard(t, s, 0)
	for i := range uint64(100) {
		must(t, program(4000).apply(sh, i+1))
	}
	must(t, s.Flush())
	for _, left := range []int64{0, 20 << 10, 100 << 10} {
		disk.left.Store(left)
		if _, err := sh.Export("a/out"); !IsFull(err) {
			t.Errorf("with room for %d bytes: %v, want a full disk", left, err)
		}
		if _, err := disk.Stat("a/out"); err == nil {
			t.Errorf("with room for %d bytes: left are %v", left, files(t, disk, "a/out"))
		}
	}
	if s.err() != nil || s.Full() {
		t.Errorf("the store suffers from a failed export: %v, full %v", s.err(), s.Full())
	}
	disk.left.Store(64 << 20)
	_, err := sh.Export("a/out")
	must(t, err)
}

func TestExportAndInstallDoNotWaitForAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newQuotaFS(64 << 20)
		snap := makeSnapshot(t, disk.FS, "in", program(100), 0, 100)
		s := mustOpen(t, Options{FS: disk, Clock: newBubbleClock(), LayerBytes: 64 << 10, LayerAge: time.Second})
		sh := mustShard(t, s, 0)
		set(t, sh, 1, "a")
		must(t, s.Flush())
		disk.left.Store(0)
		set(t, sh, 2, "b")
		s.RequestFlush()
		time.Sleep(time.Second)
		synctest.Wait()
		if !s.Full() {
			t.Fatal("the disk is not full")
		}
		set(t, sh, 3, "c")
		time.Sleep(time.Minute) // a layer waits too, and the writer with it
		began := time.Now()
		if _, err := sh.Export("out"); !IsFull(err) {
			t.Errorf("export: %v", err)
		}
		if err := sh.Install("in", snap); !IsFull(err) {
			t.Errorf("install: %v", err)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("they waited for %v", waited)
		}
		if n := count(t, sh); n != 3 || len(files(t, disk, "out")) > 0 {
			t.Errorf("%d keys, files %v", n, files(t, disk, "out"))
		}
		disk.left.Store(64 << 20)
		time.Sleep(time.Minute)
		must(t, sh.Install("in", snap))
		if got, at := read(t, sh); at != 100 || !maps.Equal(got, program(100).stateAt(100)) {
			t.Errorf("%d keys at index %d", len(got), at)
		}
		_, err := sh.Export("out")
		must(t, err)
		mustClose(t, s)
	})
}

// longExport is an export of many files, which is held at its second.
func longExport(t *testing.T, held func(s *Store)) (disk *brokenFS, s *Store, err error) {
	t.Helper()
	disk = &brokenFS{FS: vfs.NewMem()}
	s = mustOpen(t, Options{FS: disk, Manual: true})
	s.fileBytes = 8 << 10
	sh := mustShard(t, s, 0)
	for i := range uint64(100) {
		must(t, program(2000).apply(sh, i+1))
	}
	disk.arm(func(op, name string) bool {
		if op == "create" && strings.HasSuffix(name, "out/000002.sst") {
			held(s)
		}
		return false
	})
	_, err = sh.Export("out")
	return disk, s, err
}

func TestExportGivesUpWhenTheStoreCloses(t *testing.T) {
	closed := make(chan error, 1)
	disk, _, err := longExport(t, func(s *Store) {
		go func() { closed <- s.Close() }()
		<-s.stop
	})
	if !errors.Is(err, ErrClosed) {
		t.Errorf("export: %v", err)
	}
	must(t, <-closed)
	if left := files(t, disk, "out"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestExportGivesUpWhenTheStoreFails(t *testing.T) {
	disk, s, err := longExport(t, func(s *Store) { s.fail(errBroken) })
	if !errors.Is(err, errBroken) {
		t.Errorf("export: %v", err)
	}
	mustClose(t, s)
	if left := files(t, disk, "out"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestExportThatCannotWriteLeavesNothingAndTheStoreGoesOn(t *testing.T) {
	for _, op := range []string{"create", "write", "sync"} {
		disk := &brokenFS{FS: vfs.NewMem()}
		s := mustOpen(t, Options{FS: disk, Manual: true})
		s.fileBytes = 8 << 10
		sh := mustShard(t, s, 0)
		for i := range uint64(60) {
			must(t, program(2000).apply(sh, i+1))
		}
		seen := 0
		disk.arm(func(o, name string) bool {
			if o != op || !strings.Contains(name, "out") {
				return false
			}
			seen++
			return seen == 3
		})
		if _, err := sh.Export("out"); !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", op, err)
		}
		disk.arm(nil)
		if _, err := disk.Stat("out"); err == nil {
			t.Errorf("%s: left are %v", op, files(t, disk, "out"))
		}
		must(t, program(2000).apply(sh, 61))
		must(t, s.Flush())
		mustClose(t, s)
	}
}

// While an export is written, the shard goes on by many entries and layers. What it holds is the state of its index.
func TestExportIsTheStateOfOneEntryWhileTheShardGoesOn(t *testing.T) {
	p := program(300)
	mem := vfs.NewMem()
	s := mustOpen(t, Options{FS: mem, LayerBytes: 64 << 10, LayerAge: time.Millisecond, MemoryBytes: 16 << 20})
	defer mustClose(t, s)
	s.fileBytes = 4 << 10
	sh := mustShard(t, s, 4)
	must(t, p.apply(sh, 1))
	more := make(chan struct{})
	applied := make(chan error, 1)
	go func() {
		var err error
		index := uint64(1)
		for range more {
			for range 300 {
				index++
				err = errors.Join(err, p.apply(sh, index))
			}
			s.RequestFlush()
		}
		applied <- err
	}()
	exports := 12
	if testing.Short() {
		exports = 3
	}
	seen := map[uint64]bool{}
	for i := range exports {
		dir := fmt.Sprint("out", i)
		more <- struct{}{}
		snap, err := sh.Export(dir)
		must(t, err)
		if got, at := installed(t, mem, dir, snap); at != snap.Index || !maps.Equal(got, p.stateAt(at)) {
			t.Errorf("export at %d holds %d keys at index %d, which are not its state", snap.Index, len(got), at)
		}
		seen[snap.Index] = true
	}
	close(more)
	must(t, <-applied)
	if len(seen) < 2 {
		t.Error("the shard did not go on: nothing was shown")
	}
}

// Power is cut before each change that an export makes to the disk. The shard is as it was, and what Export returned is
// durable.
func TestPowerCutDuringAnExportHarmsNothing(t *testing.T) {
	p := program(1000)
	mem := vfs.NewCrashableMem()
	disk := &brokenFS{FS: mem}
	s := mustOpen(t, Options{FS: disk, Manual: true})
	s.fileBytes = 4 << 10
	sh := mustShard(t, s, 4)
	for i := range uint64(100) {
		must(t, p.apply(sh, i+1))
		if i == 60 {
			must(t, s.Flush())
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var clones []*vfs.MemFS
	disk.arm(func(string, string) bool {
		cut := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng}
		clones = append(clones, mem.CrashClone(cut))
		return false
	})
	snap, err := sh.Export("out")
	must(t, err)
	disk.arm(nil)
	last := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	for _, fs := range append(clones, last) {
		s := mustOpen(t, Options{FS: fs, Manual: true})
		sh := mustShard(t, s, 4)
		if got, at := read(t, sh); at < 61 || !maps.Equal(got, p.stateAt(at)) {
			t.Errorf("%d keys at index %d are not its state", len(got), at)
		}
		if fs == last {
			must(t, sh.Verify("out", snap))
		}
		mustClose(t, s)
	}
	if len(clones) < 10 {
		t.Errorf("%d cuts: nothing was shown", len(clones))
	}
}

// A shard that is too large for a snapshot is not damaged.
func TestAnExportOfTooManyFilesNamesTheLimit(t *testing.T) {
	s := mustOpen(t, Options{FS: vfs.NewMem()})
	defer mustClose(t, s)
	s.fileBytes, s.mostFiles = 1, 3
	sh := mustShard(t, s, 4)
	put := func(index uint64, n int) {
		t.Helper()
		must(t, sh.Apply(index, func(tx *Txn) error {
			for i := range n {
				tx.Set(keys.KV(core.Partition{}, 1, []byte{byte(index), byte(i)}), []byte("v"))
			}
			return nil
		}))
	}
	put(1, 2)
	shown := 0
	snap, err := sh.ExportEach("fits", func(key, value []byte) error {
		if p, service, ok := keys.PartitionOf(key); !ok || p != (core.Partition{}) || service != keys.ServiceKV || string(value) != "v" {
			t.Errorf("key %x with value %q is shown", key, value)
		}
		shown++
		return nil
	})
	if err != nil || len(snap.Files) != 3 || shown != 2 {
		t.Errorf("%d files, %d keys are shown, %v", len(snap.Files), shown, err)
	}
	put(2, 1)
	_, err = sh.Export("too-large")
	if f, ok := errors.AsType[core.Exhausted](err); !ok || f.Limit != "snapshot_files" || f.Max != 3 || errors.As(err, new(*errs.Corruption)) {
		t.Errorf("one file more: %v", err)
	}
	refused := errors.New("refused")
	if _, err := sh.ExportEach("refused", func(_, _ []byte) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("what is shown the keys refuses: %v", err)
	}
	for _, dir := range []string{"too-large", "refused"} {
		if names, err := s.FS().List(dir); err == nil {
			t.Errorf("%v is left in %s", names, dir)
		}
	}
}
