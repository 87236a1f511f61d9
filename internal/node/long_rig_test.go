package node

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/env/envtest"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// long is a rig for histories that are long in virtual time, or large: its clock moves only when a test says so, and it
// can be closed and opened again on the same disk.
type long struct {
	*rig
	clock *envtest.Clock // nil on the machine's clock
	o     longOptions
}

// longOptions of a long rig. The zero value is a disk in memory on virtual time, with the store's own sizes.
type longOptions struct {
	dir   string    // on the real disk, on the machine's clock; empty = in memory, on virtual time
	layer int64     // a layer is written out at this size; default the store's
	clock env.Clock // instead of the above
	node  Options
}

func openLong(t testing.TB, o longOptions) *long {
	t.Helper()
	l := &long{o: o}
	switch clock := o.clock.(type) {
	case *loopClock:
		l.clock = clock.Clock
	case *envtest.Clock:
		l.clock = clock
	default:
		if o.dir != "" {
			l.o.clock = env.SystemClock{}
			break
		}
		l.clock = envtest.NewClock(time.UnixMilli(1_700_000_000_000))
		l.o.clock = l.clock
	}
	l.open(t, replogtest.NewDisk())
	return l
}

// restart ends the node as a clean stop does, and opens it again.
func (l *long) restart() {
	l.t.Helper()
	l.close()
	l.open(l.t, l.disk)
}

func (l *long) open(t testing.TB, disk *replogtest.Disk) {
	t.Helper()
	l.rig = &rig{t: t, disk: disk}
	fs, vfs, dir := disk.FS, disk.VFS(), "data"
	if l.o.dir != "" {
		fs, vfs, dir = store.NewFS(store.SystemFS()), store.SystemFS(), l.o.dir
	}
	for _, d := range []string{"store", "wal"} {
		if err := fs.MkdirAll(filepath.Join(dir, d)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if l.store, err = store.Open(store.Options{
		FS: vfs, Dir: filepath.Join(dir, "store"), Clock: l.o.clock, LayerBytes: l.o.layer,
	}); err != nil {
		t.Fatal(err)
	}
	segment := int64(256 << 10) // the disk in memory copies a file at every sync
	if l.o.dir != "" {
		segment = 0 // the default
	}
	if l.log, err = replog.OpenLog(replog.LogOptions{
		FS: fs, Clock: l.o.clock, Dir: filepath.Join(dir, "wal"), SegmentBytes: segment,
	}); err != nil {
		t.Fatal(err)
	}
	n := l.o.node
	n.Dir, n.FS, n.Clock, n.Log, n.Store, n.Rand = dir, fs, l.o.clock, l.log, l.store, env.NewSeededRand(rand.Uint64())
	if n.PauseAfter == 0 {
		n.PauseAfter = jumpsOn
	}
	if l.node, err = Open(n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.node.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	info, err := l.node.Namespace(ctx, "acme", "default", true)
	if err != nil {
		t.Fatal(err)
	}
	l.ns = info.Partitions[0].Partition
}

// pass lets virtual time go on by d and does all that comes due.
func (l *long) pass(d time.Duration) {
	l.t.Helper()
	l.clock.Advance(d)
	l.workOff()
}

// workOff does the timed work that is due: each entry takes as much of it as a tick may do.
func (l *long) workOff() {
	l.t.Helper()
	s := l.node.shards[0]
	for {
		if p := l.propose(core.Commit{}); p.Err != nil {
			l.t.Fatalf("proposal: %v", p.Err)
		}
		if !s.view.timers.Load() && !s.view.more.Load() && core.ShardTime(s.view.due.Load()) > s.now() &&
			!s.view.firing.Load() && core.ShardTime(s.view.crons.Load()) > s.now() {
			return
		}
	}
}

func (l *long) now() core.ShardTime { return l.node.Now(l.ns) }

// batches proposes n commits, size of them at a time and a few proposals ahead, and waits for all results.
func (l *long) batches(n, size int, commit func(i int) core.Commit, check func(i int, r core.Result)) {
	l.t.Helper()
	ahead := make(chan struct{}, 8)
	for from := 0; from < n; from += size {
		commits := make([]core.Commit, min(size, n-from))
		for i := range commits {
			commits[i] = commit(from + i)
			commits[i].Partition, commits[i].Principal = l.ns, "test"
		}
		ahead <- struct{}{}
		l.node.Propose(l.ns, commits, func(p core.Proposed) {
			defer func() { <-ahead }()
			if p.Err != nil {
				l.t.Errorf("proposal of %d commits from %d: %v", len(commits), from, p.Err)
				return
			}
			for i := range p.Results {
				check(from+i, p.Results[i])
			}
		})
	}
	for range cap(ahead) {
		ahead <- struct{}{}
	}
}

// applied is a check of batches: no commit may be refused.
func (l *long) applied(i int, r core.Result) {
	if r.Refusal != nil {
		l.t.Errorf("commit %d is refused: %v", i, r.Refusal.Fact)
	}
}

// createAll makes the tasks numbered from 0, in order.
func (l *long) createAll(n int, create func(i int) *core.TaskCreate) {
	l.t.Helper()
	l.batches(n, 500, func(i int) core.Commit { return core.Commit{Ops: []core.Op{create(i)}} }, l.applied)
}

// claimUpTo takes n ready tasks, or all there are when there are fewer.
func (l *long) claimUpTo(name string, n int) []core.Assigned {
	l.t.Helper()
	out := make([]core.Assigned, 0, n)
	for len(out) < n {
		tasks := l.claim(name, uint32(min(n-len(out), 128)), 0)
		if len(tasks) == 0 {
			break
		}
		out = append(out, tasks...)
	}
	return out
}

// completeAll completes tasks with a result.
func (l *long) completeAll(tasks []core.Assigned, result []byte) {
	l.t.Helper()
	l.batches(len(tasks), 500, func(i int) core.Commit {
		return core.Commit{Ops: []core.Op{&core.TaskComplete{Task: tasks[i].Task, Token: tasks[i].Token, Result: result}}}
	}, l.applied)
}

func (l *long) configure(name string, c core.QueueConfig) {
	l.t.Helper()
	l.must(&core.QueueSet{Queue: name, Config: c, IfVersion: -1})
}

func (l *long) stats(name string) core.QueueStats {
	l.t.Helper()
	st, _, err := l.node.Queue(l.t.Context(), l.ns, name, core.ReadOptions{})
	if err != nil {
		l.t.Fatalf("read queue %s: %v", name, err)
	}
	return st
}

func (l *long) task(id core.TaskID) core.Task {
	l.t.Helper()
	task, _, err := l.node.Task(l.t.Context(), l.ns, id, core.ReadOptions{})
	if err != nil {
		l.t.Fatalf("read task %s: %v", id, err)
	}
	return task
}

// audit reads all that the queue has stored: rows that contradict each other, counters that differ from a recount.
func (l *long) audit() {
	l.t.Helper()
	err := l.node.shards[0].store.View(func(v core.View) error {
		findings, err := queue.Audit(v, l.ns)
		for _, f := range findings {
			l.t.Errorf("audit: %s", f)
		}
		return err
	})
	if err != nil {
		l.t.Fatalf("audit: %v", err)
	}
}

// keyCount is how many keys the shard has stored.
func (l *long) keyCount() (n int) {
	l.t.Helper()
	err := l.node.shards[0].store.View(func(v core.View) error {
		return v.Scan(nil, nil, func([]byte, []byte) bool { n++; return true })
	})
	if err != nil {
		l.t.Fatalf("count keys: %v", err)
	}
	return n
}

// largeCount is the size that MILLRACE_LARGE asks for: 1 means a million. It skips the test when nothing is asked for.
func largeCount(t testing.TB) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("MILLRACE_LARGE"))
	switch {
	case err != nil || n <= 0:
		t.Skip("takes minutes: set MILLRACE_LARGE=1 for a million tasks, or to their number")
	case n == 1:
		return 1_000_000
	}
	return n
}

// shorter divides a count under -short, and where the race detector watches.
func shorter(n int) int {
	if testing.Short() || underRace {
		return max(n/10, 1)
	}
	return n
}
