package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/env"
)

// starvedFS is a disk on which each open fails so often before it succeeds, as in a process with too many open files.
type starvedFS struct {
	vfs.FS
	with error
	each int // failures of each open; negative: all fail

	mu     sync.Mutex     // guards the fields below
	failed map[string]int // failures by what was done
	tries  map[string]int // of one open, by what is done and the name
}

func newStarvedFS(with error, each int) *starvedFS {
	return &starvedFS{FS: vfs.NewMem(), with: with, each: each, failed: make(map[string]int), tries: make(map[string]int)}
}

func (f *starvedFS) set(each int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.each = each
}

func (f *starvedFS) try(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := op + " " + name
	if f.each < 0 || f.tries[key] < f.each {
		f.tries[key]++
		f.failed[op]++
		return fmt.Errorf("open %s: %w", name, f.with)
	}
	f.tries[key] = 0
	return nil
}

func (f *starvedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.try("create", name); err != nil {
		return nil, err
	}
	return f.FS.Create(name, c)
}

func (f *starvedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := f.try("open", name); err != nil {
		return nil, err
	}
	return f.FS.Open(name, opts...)
}

func (f *starvedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := f.try("write", name); err != nil {
		return nil, err
	}
	return f.FS.OpenReadWrite(name, c, opts...)
}

func (f *starvedFS) OpenDir(name string) (vfs.File, error) {
	if err := f.try("directory", name); err != nil {
		return nil, err
	}
	return f.FS.OpenDir(name)
}

func (f *starvedFS) List(name string) ([]string, error) {
	if err := f.try("list", name); err != nil {
		return nil, err
	}
	return f.FS.List(name)
}

func (f *starvedFS) Lock(name string) (io.Closer, error) {
	if err := f.try("lock", name); err != nil {
		return nil, err
	}
	return f.FS.Lock(name)
}

// hastyClock has timers that fire at once. The database holds locks while it opens files, for which a bubble would not let time
// pass.
type hastyClock struct{ env.SystemClock }

func (c hastyClock) NewTimer(time.Duration) env.Timer { return c.SystemClock.NewTimer(0) }

// lifeOf is what a store does that opens files: it is made, written, exported, given a snapshot, closed and opened again.
func lifeOf(t *testing.T, d *Descriptors) {
	t.Helper()
	fs := d.FS(0)
	s := mustOpen(t, Options{FS: fs})
	sh := mustShard(t, s, 0)
	for i := range uint64(30) {
		must(t, sh.Apply(i+1, func(tx *Txn) error {
			tx.Set(key(fmt.Sprint("k", i)), filler(int(i), 1<<10))
			return nil
		}))
		must(t, s.Flush())
	}
	snap, err := sh.Export("out")
	must(t, err)
	other := mustOpen(t, Options{FS: fs, Dir: "other"})
	must(t, mustShard(t, other, 0).Install("out", snap))
	mustClose(t, other)
	mustClose(t, s)
	s = mustOpen(t, Options{FS: fs})
	if n := count(t, mustShard(t, s, 0)); n != 30 {
		t.Errorf("%d keys are left of 30", n)
	}
	if err := s.err(); err != nil {
		t.Errorf("the store has failed: %v", err)
	}
	mustClose(t, s)
	files := NewFS(fs)
	dir, err := OpenDir(files, "data", env.NewSeededRand(1), time.Now())
	must(t, err)
	must(t, dir.Close())
}

func TestOpensWaitWhileTooManyFilesAreOpen(t *testing.T) {
	for _, with := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, &errno{syscall.EMFILE}} {
		disk := newStarvedFS(with, 3)
		d := NewDescriptors(disk, hastyClock{}, slog.New(slog.DiscardHandler))
		lifeOf(t, d)
		for _, op := range []string{"create", "open", "directory", "list", "lock"} {
			if disk.failed[op] == 0 {
				t.Errorf("%v: nothing of kind %s was tried: %v", with, op, disk.failed)
			}
		}
		if d.Waits() == 0 || d.Short() {
			t.Errorf("%v: %d waits, short %v", with, d.Waits(), d.Short())
		}
	}
}

// While opens wait the store serves what is in memory and says what it waits for; it goes on by itself.
func TestAStoreServesWhileItsOpensWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newStarvedFS(syscall.EMFILE, 0)
		var log strings.Builder
		d := NewDescriptors(disk, newBubbleClock(), slog.New(slog.NewTextHandler(&log, nil)))
		s := mustOpen(t, Options{FS: d.FS(0), Clock: newBubbleClock()})
		sh := mustShard(t, s, 0)
		set(t, sh, 1, "a")
		disk.set(-1)
		flushed := make(chan error, 1)
		go func() { flushed <- s.Flush() }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if !d.Short() || s.err() != nil {
			t.Errorf("short %v, error %v", d.Short(), s.err())
		}
		set(t, sh, 2, "b")
		if n := count(t, sh); n != 2 {
			t.Errorf("%d keys, want 2", n)
		}
		if lines := strings.Count(log.String(), "too many open files: what opens one waits"); lines == 0 || lines > 400 {
			t.Errorf("the log says so %d times in an hour", lines)
		}
		disk.set(0)
		must(t, <-flushed)
		if d.Short() {
			t.Error("it still waits")
		}
		mustClose(t, s)
	})
}

func TestOpensWithABoundAndAfterStopReturnTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDescriptors(newStarvedFS(syscall.EMFILE, -1), newBubbleClock(), slog.New(slog.DiscardHandler))
		began := time.Now()
		if _, err := NewFS(d.FS(2 * time.Second)).Open("f"); !env.NoDescriptors(err) {
			t.Errorf("with a bound: %v", err)
		}
		if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("a bound of 2 s took %v", took)
		}
		go func() {
			time.Sleep(time.Minute)
			d.Stop()
		}()
		if _, err := NewFS(d.FS(0)).Create("f"); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("after Stop: %v", err)
		}
		if err := NewFS(d.FS(0)).Remove("f"); env.NoDescriptors(err) {
			t.Errorf("what opens nothing: %v", err)
		}
	})
}
