package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/core"
)

func TestSnapshotTakesTheWholeStateToAnotherStore(t *testing.T) {
	p := program(100)
	from := vfs.NewMem()
	a := mustOpen(t, Options{FS: from, Manual: true})
	defer mustClose(t, a)
	to := vfs.NewMem()
	b := mustOpen(t, Options{FS: to, Manual: true})
	defer mustClose(t, b)
	source, target := mustShard(t, a, 4), mustShard(t, b, 4)
	for i := uint64(1); i <= 300; i++ {
		must(t, p.apply(source, i))
		if i%50 == 0 {
			must(t, source.WriteLayer())
		}
		if i%90 == 0 {
			must(t, a.Flush())
		}
	}
	for _, sh := range []*Shard{mustShard(t, a, 3), mustShard(t, a, 5), mustShard(t, b, 3), mustShard(t, b, 5)} {
		set(t, sh, 7, "neighbour", fmt.Sprint(sh.id))
	}
	for i := uint64(1); i <= 100; i++ {
		must(t, target.Apply(i, func(tx *Txn) error {
			tx.Set(key(fmt.Sprint("old", i)), []byte("old"))
			return nil
		}))
		if i == 50 {
			must(t, b.Flush())
		}
		if i == 80 {
			must(t, target.WriteLayer())
		}
	}
	snap, err := source.Export("out")
	must(t, err)
	index, hash, n, err := source.ScanHash()
	must(t, err)
	if snap.Shard != 4 || snap.Index != index || snap.Content != hash || snap.Keys != uint64(n) {
		t.Errorf("snapshot is %+v; want index %d, content %x, %d keys", snap, index, hash, n)
	}
	carry(t, from, "out", to, "in")
	must(t, target.Install("in", snap))
	want := p.stateAt(300)
	if got, at := read(t, target); at != 300 || !maps.Equal(got, want) {
		t.Errorf("%d keys at index %d, want %d at 300", len(got), at, len(want))
	}
	_, wantHash := source.Applied()
	if index, hash := target.Applied(); index != 300 || hash != wantHash || target.Durable() != 300 {
		t.Errorf("applied %d with hash %x, durable %d; want 300, %x, 300", index, hash, target.Durable(), wantHash)
	}
	for i := uint64(301); i <= 350; i++ {
		must(t, p.apply(source, i))
		must(t, p.apply(target, i))
	}
	_, x := source.Applied()
	if _, y := target.Applied(); x != y {
		t.Error("the log goes on to another hash")
	}
	for _, id := range []core.ShardID{3, 5} {
		if got, at := read(t, mustShard(t, b, id)); len(got) != 2 || at != 7 {
			t.Errorf("neighbouring shard %d has %d keys at index %d", id, len(got), at)
		}
	}
}

func TestSnapshotThatIsNotForTheShardIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	p := program(100)
	s := mustOpen(t, Options{FS: mem, Manual: true})
	sh := mustShard(t, s, 4)
	for i := uint64(1); i <= 50; i++ {
		must(t, p.apply(sh, i))
	}
	for dir, c := range map[string]struct {
		id    core.ShardID
		index uint64
	}{"other": {5, 100}, "same": {4, 50}, "older": {4, 49}} {
		if err := sh.Install(dir, makeSnapshot(t, mem, dir, p, c.id, c.index)); err == nil {
			t.Errorf("%s: a snapshot of shard %d at %d was taken", dir, c.id, c.index)
		}
	}
	goesOn(t, sh, p, 50)
	newer := makeSnapshot(t, mem, "newer", p, 4, 60)
	broken := errors.New("planned")
	if err := sh.Apply(52, func(*Txn) error { return broken }); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if err := sh.Install("newer", newer); !errors.Is(err, broken) {
		t.Errorf("a shard that has stopped took a snapshot: %v", err)
	}
	mustClose(t, s)
	if err := sh.Install("newer", newer); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := sh.Verify("newer", newer); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// What a shard remembers of its database, so that it need not ask, is not true of another state.
func TestNothingThatWasLearntOfTheOldStateOutlivesIt(t *testing.T) {
	mem := vfs.NewMem()
	source := mustOpen(t, Options{FS: mem, Dir: "source", Manual: true})
	defer mustClose(t, source)
	from := mustShard(t, source, 0)
	set(t, from, 10, "a", "m", "z")
	snap, err := from.Export("out")
	must(t, err)

	s := mustOpen(t, Options{FS: mem, Manual: true})
	sh := mustShard(t, s, 0)
	set(t, sh, 1, "a", "b", "m")
	must(t, sh.WriteLayer())
	must(t, sh.Apply(2, func(tx *Txn) error {
		tx.Delete(key("m"))
		tx.Insert(key("x"), []byte("fresh"))
		_, ok, err := tx.Get(key("y")) // it learns that b is the last one stored
		if ok {
			t.Error("there is a key that was never set")
		}
		return err
	}))
	must(t, sh.Install("out", snap))
	must(t, sh.Apply(11, func(tx *Txn) error {
		for name, want := range map[string]bool{"a": true, "b": false, "m": true, "x": false, "z": true} {
			if _, ok, err := tx.Get(key(name)); ok != want || err != nil {
				t.Errorf("key %s: %v, %v; want %v", name, ok, err, want)
			}
		}
		tx.Delete(key("m")) // it must reach the database
		tx.Insert(key("x"), []byte("new"))
		tx.Delete(key("z"))
		return nil
	}))
	must(t, s.Flush())
	mustClose(t, s)
	s = mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	got, at := read(t, mustShard(t, s, 0))
	if want := map[string]string{string(key("a")): "a", string(key("x")): "new"}; at != 11 || !maps.Equal(got, want) {
		t.Errorf("found %q at index %d", got, at)
	}
}

func TestCheckAndRestartFindTheInstalledState(t *testing.T) {
	p := program(2000)
	mem := vfs.NewMem()
	snap := makeSnapshot(t, mem, "in", p, 4, 200)
	s := mustOpen(t, Options{FS: mem, Manual: true})
	for i := uint64(1); i <= 90; i++ {
		must(t, program(500).apply(mustShard(t, s, 4), i))
	}
	must(t, s.Flush())
	set(t, mustShard(t, s, 3), 1, "a")
	must(t, mustShard(t, s, 4).Install("in", snap))
	mustClose(t, s)
	r, err := Check(Options{FS: mem, Dir: "db"})
	must(t, err)
	if len(r.Shards) != 2 || r.Shards[0].Keys != 1 {
		t.Fatalf("report is %+v", r)
	}
	if c := r.Shards[1]; c.Index != 200 || c.ApplyHash != snap.Hash || c.ContentHash != snap.Content || uint64(c.Keys) != snap.Keys {
		t.Errorf("got %+v, want %+v", c, snap)
	}
	s = mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 4)
	if got, at := read(t, sh); at != 200 || !maps.Equal(got, p.stateAt(200)) || sh.Durable() != 200 {
		t.Errorf("%d keys at index %d, durable %d", len(got), at, sh.Durable())
	}
}

// contents returns the content hash of what a program leaves, by index.
func contents(t *testing.T, p program, last uint64) []uint64 {
	t.Helper()
	s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 4)
	out := make([]uint64, last+1)
	for i := uint64(1); i <= last; i++ {
		must(t, p.apply(sh, i))
		if i%100 == 0 {
			must(t, sh.WriteLayer())
		}
		must(t, sh.View(func(v core.View) (err error) {
			out[i], err = contentOf(v)
			return err
		}))
	}
	return out
}

func contentOf(v core.View) (uint64, error) {
	var c content
	err := v.Scan(nil, nil, func(k, v []byte) bool { c.add(k, v); return true })
	return c.hash, err
}

// watcher reads a shard while its applier works, and checks what it sees against the content hash of each index.
type watcher struct {
	s    *Store
	sh   *Shard
	want []uint64
	stop chan struct{}
	wait sync.WaitGroup
	seen atomic.Int64
}

// watch repeats look until the watcher is stopped.
func (w *watcher) watch(t *testing.T, look func(n int) error) {
	w.wait.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-w.stop:
				return
			default:
			}
			if err := look(n); err != nil {
				t.Error(err)
				return
			}
			w.seen.Add(1)
		}
	})
}

func (w *watcher) is(what string, index, content uint64) error {
	if content != w.want[index] {
		return fmt.Errorf("%s at index %d shows content %x, want %x", what, index, content, w.want[index])
	}
	return nil
}

func (w *watcher) view(int) error {
	return w.sh.ViewAt(func(v core.View, index uint64) error {
		probe := key(fmt.Sprintf("k%03d", index%60))
		before, _, err := v.Get(probe)
		if err != nil {
			return err
		}
		got, err := contentOf(v)
		if err != nil {
			return err
		}
		after, _, err := v.Get(probe)
		if string(before) != string(after) {
			return errors.New("one view shows two values of a key")
		}
		return errors.Join(err, w.is("a view", index, got))
	})
}

func (w *watcher) scanHash(int) error {
	index, hash, _, err := w.sh.ScanHash()
	return errors.Join(err, w.is("a scan", index, hash))
}

func (w *watcher) export(n int) error {
	if index, _ := w.sh.Applied(); index == 0 {
		return nil
	}
	dir := fmt.Sprint("export", n)
	snap, err := w.sh.Export(dir)
	if err == nil {
		err = w.is("an export", snap.Index, snap.Content)
	}
	return errors.Join(err, w.s.o.FS.RemoveAll(dir))
}

// durable never falls, and is never ahead of what is applied.
func (w *watcher) durable() func(int) error {
	var last uint64
	return func(int) error {
		now := w.sh.Durable()
		if applied, _ := w.sh.Applied(); now < last || now > applied {
			return fmt.Errorf("durable is %d after %d, and %d is applied", now, last, applied)
		}
		last = now
		return nil
	}
}

// States are exchanged while the shard is read in every way, while another shard writes, and while memory tables are
// flushed and files compacted.
func TestReadersSeeAllOldOrAllNewWhileStatesAreExchanged(t *testing.T) {
	p := program(400)
	last := uint64(500)
	if testing.Short() {
		last = 200
	}
	mem := vfs.NewMem()
	s := mustOpen(t, Options{FS: mem, LayerBytes: 64 << 10, LayerAge: time.Millisecond, MemoryBytes: 16 << 20})
	defer mustClose(t, s)
	s.fileBytes = 8 << 10
	w := &watcher{s: s, sh: mustShard(t, s, 4), want: contents(t, p, last), stop: make(chan struct{})}
	other := mustShard(t, s, 5)
	w.watch(t, w.view)
	w.watch(t, w.scanHash)
	w.watch(t, w.export)
	w.watch(t, w.durable())
	w.watch(t, func(n int) error {
		s.RequestFlush()
		return p.apply(other, uint64(n)+1)
	})
	index := uint64(0)
	for at := uint64(100); at <= last; at += 100 {
		for ; index < at-40; index++ {
			must(t, p.apply(w.sh, index+1))
		}
		for seen := w.seen.Load(); w.seen.Load() < seen+5; {
			runtime.Gosched()
		}
		dir := fmt.Sprint("in", at)
		snap := makeSnapshot(t, mem, dir, p, 4, at)
		must(t, w.sh.Install(dir, snap))
		if index = at; w.sh.Durable() != at {
			t.Errorf("durable is %d after a snapshot of %d", w.sh.Durable(), at)
		}
	}
	close(w.stop)
	w.wait.Wait()
	must(t, s.Flush())
	if got, at := read(t, w.sh); at != last || !maps.Equal(got, p.stateAt(last)) {
		t.Errorf("%d keys at index %d", len(got), at)
	}
	if got, at := read(t, other); !maps.Equal(got, p.stateAt(at)) {
		t.Errorf("the other shard has %d keys at index %d, which are not its state", len(got), at)
	}
}

// Power is cut before each change that an exchange makes to the disk, and after it.
func TestPowerCutDuringAnInstallLeavesAllOldOrAllNew(t *testing.T) {
	rounds := uint64(4)
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		cutInstall(t, rand.New(rand.NewPCG(round, 7)), int(round))
	}
}

func cutInstall(t *testing.T, rng *rand.Rand, round int) {
	before, after := program(700), program(2000)
	mem := vfs.NewCrashableMem()
	snap := makeSnapshot(t, mem, "in", after, 4, 200)
	disk := &brokenFS{FS: mem}
	s := mustOpen(t, Options{FS: disk, Manual: true})
	sh, other := mustShard(t, s, 4), mustShard(t, s, 5)
	set(t, other, 3, "mine", "too")
	for i := uint64(1); i <= 60; i++ {
		must(t, before.apply(sh, i))
		if i == 30 && round > 0 {
			must(t, s.Flush())
		}
		if i == 50 && round > 1 {
			must(t, sh.WriteLayer())
		}
	}
	var clones []*vfs.MemFS
	cut := func() {
		kept := []int{0, 50, 100}[rng.IntN(3)]
		clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}))
	}
	durable := sh.Durable()
	disk.arm(func(string, string) bool { cut(); return false })
	must(t, sh.Install("in", snap))
	disk.arm(nil)
	during := len(clones)
	for range 5 {
		cut()
	}
	mustClose(t, s)
	news := 0
	for i, fs := range clones {
		s := mustOpen(t, Options{FS: fs, Manual: true})
		got, at := read(t, mustShard(t, s, 4))
		want := after.stateAt(200)
		if at != 200 {
			want = before.stateAt(at)
		} else {
			news++
		}
		if at < durable || at > 60 && at != 200 || i >= during && at != 200 || !maps.Equal(got, want) {
			t.Errorf("cut %d of %d: %d keys at index %d", i, during, len(got), at)
		}
		if n, at := read(t, mustShard(t, s, 5)); at != 0 && len(n) != 2 || at == 0 && (len(n) != 0 || round > 0) {
			t.Errorf("cut %d: the other shard has %d keys at index %d", i, len(n), at)
		}
		mustClose(t, s)
	}
	if during < 10 || news == len(clones) {
		t.Errorf("%d cuts, %d of them found the new state: nothing was shown", len(clones), news)
	}
}

func TestInstalledStateIsDurableThoughNobodySyncedItsFiles(t *testing.T) {
	p := program(2000)
	mem := vfs.NewCrashableMem()
	snap := makeSnapshot(t, mem, "synced", p, 4, 100)
	must(t, mem.MkdirAll("in", 0o700))
	for _, file := range snap.Files {
		f, err := mem.Create("in/"+file.Name, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = f.Write(bytesOf(t, mem, "synced/"+file.Name))
		must(t, errors.Join(err, f.Close()))
	}
	s := mustOpen(t, Options{FS: mem, Manual: true})
	must(t, mustShard(t, s, 4).Install("in", snap))
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	s = mustOpen(t, Options{FS: crashed, Manual: true})
	defer mustClose(t, s)
	if got, at := read(t, mustShard(t, s, 4)); at != 100 || !maps.Equal(got, p.stateAt(100)) {
		t.Errorf("%d keys at index %d", len(got), at)
	}
}

func TestInstallOnAFullDiskIsAnErrorAndChangesNothing(t *testing.T) {
	p := program(2000)
	disk := newQuotaFS(64 << 20)
	snap := makeSnapshot(t, disk.FS, "in", p, 4, 100)
	s := mustOpen(t, Options{FS: disk, Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 4)
	must(t, p.apply(sh, 1))
	must(t, s.Flush())
	disk.left.Store(1000)
	if err := sh.Install("in", snap); !IsFull(err) {
		t.Errorf("%v, want a full disk", err)
	}
	disk.left.Store(64 << 20)
	goesOn(t, sh, p, 1)
	if got := files(t, disk, "in"); len(got) != len(snap.Files) {
		t.Errorf("left are %v", got)
	}
	must(t, sh.Install("in", snap))
}

func TestFileThatCannotBeLinkedForWantOfRoomIsAnErrorAndChangesNothing(t *testing.T) {
	p := program(2000)
	disk := &brokenFS{FS: vfs.NewMem(), with: &errno{syscall.ENOSPC}}
	snap := makeSnapshot(t, disk.FS, "in", p, 4, 100)
	s := mustOpen(t, Options{FS: disk, Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 4)
	must(t, p.apply(sh, 1))
	must(t, s.Flush())
	tables := len(files(t, disk, "db"))
	links := 0
	disk.arm(func(op, _ string) bool {
		if op == "link" {
			links++
		}
		return op == "link" && links == 2
	})
	if err := sh.Install("in", snap); !IsFull(err) {
		t.Errorf("%v, want a full disk", err)
	}
	disk.arm(nil)
	if got := files(t, disk, "db"); len(got) != tables {
		t.Errorf("there were %d files, and are %v", tables, got)
	}
	goesOn(t, sh, p, 1)
	must(t, sh.Install("in", snap))
	if got, at := read(t, sh); at != 100 || !maps.Equal(got, p.stateAt(100)) {
		t.Errorf("%d keys at index %d", len(got), at)
	}
}

func TestInstallThatCannotWriteEndsTheUseOfTheStoreAndLeavesAWholeState(t *testing.T) {
	for _, c := range []struct{ op, file string }{{"link", ".sst"}, {"sync", "db"}, {"write", "MANIFEST"}, {"sync", "MANIFEST"}} {
		t.Run(c.op+" "+c.file, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := program(2000)
				mem := vfs.NewMem()
				snap := makeSnapshot(t, mem, "in", p, 4, 100)
				disk := &brokenFS{FS: mem}
				s := mustOpen(t, Options{FS: disk, Clock: newBubbleClock(), Manual: true})
				sh := mustShard(t, s, 4)
				must(t, p.apply(sh, 1))
				must(t, s.Flush())
				must(t, p.apply(sh, 2))
				linked := false
				disk.arm(func(op, name string) bool {
					linked = linked || op == "link"
					return linked && op == c.op && strings.Contains(name, c.file)
				})
				if err := sh.Install("in", snap); err == nil {
					t.Error("a broken disk took a snapshot")
				}
				if err := <-s.Err(); err == nil {
					t.Error("no reason was delivered")
				}
				disk.arm(nil)
				if got, at := read(t, sh); at != 2 || !maps.Equal(got, p.stateAt(2)) {
					t.Errorf("readers see %d keys at index %d", len(got), at)
				}
				mustClose(t, s)
				s = mustOpen(t, Options{FS: mem, Clock: newBubbleClock(), Manual: true})
				defer mustClose(t, s)
				if got, at := read(t, mustShard(t, s, 4)); at != 1 && at != 100 || !maps.Equal(got, p.stateAt(at)) {
					t.Errorf("after a restart there are %d keys at index %d", len(got), at)
				}
			})
		})
	}
}
