package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env/envtest"
)

// lifecycles creates, gives out and ends total tasks in rounds between which time passes, so that retention removes what
// ended while more is made. Some fail or crash on their way, every third one dies, some have unique keys.
func (l *long) lifecycles(name string, first, total, round int, between time.Duration) {
	l.t.Helper()
	for from := 0; from < total; from += round {
		n := min(round, total-from)
		l.createAll(n, func(i int) *core.TaskCreate {
			c := &core.TaskCreate{
				ID: taskID(first + from + i), Queue: name, Payload: fmt.Appendf(nil, `{"n":%d}`, from+i),
				Retry: core.Retry{Backoff: core.BackoffFixed, Base: 1000},
			}
			if i%10 == 0 {
				c.Unique = core.Unique{Key: fmt.Sprintf("u%d", first+from+i), TTL: 1_800_000}
			}
			return c
		})
		tasks := l.claimUpTo(name, n)
		if len(tasks) != n {
			l.t.Fatalf("%d of %d tasks are given out", len(tasks), n)
		}
		l.batches(n, 500, func(i int) core.Commit {
			a := tasks[i]
			switch {
			case i%7 == 0: // comes back after a second
				return core.Commit{Ops: []core.Op{&core.TaskFail{Task: a.Task, Token: a.Token, Error: core.TaskError{Code: "again"}}}}
			case i%11 == 0: // its worker is killed
				return core.Commit{}
			}
			return core.Commit{Ops: []core.Op{ending(a, i)}}
		}, l.applied)
		l.pass(2 * time.Minute) // the leases of those whose workers were killed are over
		again := l.claimUpTo(name, n)
		l.batches(len(again), 500, func(i int) core.Commit { return core.Commit{Ops: []core.Op{ending(again[i], i)}} }, l.applied)
		l.pass(between)
	}
}

func TestAfterRetentionALifecycleLeavesNothing(t *testing.T) {
	l := openLong(t, longOptions{layer: 1 << 20})
	defer l.close()
	l.configure("q", core.QueueConfig{RetainCompleted: 3_600_000, RetainDead: 2 * 3_600_000})
	const warm = 100
	l.lifecycles("q", 0, warm, warm, time.Hour)
	l.pass(3 * time.Hour)
	baseline := l.keyCount()
	total := shorter(100_000)
	l.lifecycles("q", warm, total, total/10, 5*time.Minute)
	if got := l.keyCount(); got < baseline+total {
		t.Fatalf("%d keys while ended tasks are kept: nothing was there to be removed", got)
	}
	l.audit()
	l.pass(3 * time.Hour)
	st := l.stats("q")
	if st.Created != uint64(warm+total) || st.Purged != st.Created || st.Bytes != 0 {
		t.Errorf("after retention: %+v", st)
	}
	if got := l.keyCount(); got != baseline {
		t.Errorf("%d keys more than before", got-baseline)
	}
	l.audit()
}

// TestAfterRetentionTheDiskIsAsBefore measures what the files take, on a real disk.
func TestAfterRetentionTheDiskIsAsBefore(t *testing.T) {
	total := largeCount(t)
	l := openLong(t, longOptions{dir: t.TempDir(), clock: envtest.NewClock(time.UnixMilli(1_700_000_000_000))})
	defer l.close()
	l.configure("q", core.QueueConfig{RetainCompleted: 3_600_000, RetainDead: 2 * 3_600_000})
	cycle := func(first, n int) (most, after uint64) {
		const rounds = 20
		for i := range rounds {
			l.lifecycles("q", first+i*n/rounds, n/rounds, n/rounds, 10*time.Minute)
			most = max(most, l.diskBytes())
		}
		l.pass(3 * time.Hour)
		// What is removed leaves the files as they are rewritten, in the background, and these go a little later.
		for began := time.Now(); l.diskBytes() > 1<<20 && time.Since(began) < 20*time.Second; {
			if err := l.store.Flush(); err != nil {
				t.Fatal(err)
			}
			l.pass(time.Second)
			<-time.After(50 * time.Millisecond)
		}
		return most, l.diskBytes()
	}
	_, baseline := cycle(0, total/10)
	most, after := cycle(total, total)
	t.Logf("%d lifecycles: store %d KiB before, at most %d KiB, %d KiB after retention; log %d KiB",
		total, baseline>>10, most>>10, after>>10, l.log.Stats().SegmentBytes>>10)
	const slack = 8 << 20 // one round of files of the database
	if float64(after) > 1.2*float64(baseline)+slack {
		t.Errorf("the store takes %d KiB, took %d KiB before", after>>10, baseline>>10)
	}
	l.audit()
}

func (l *long) diskBytes() uint64 { return l.store.Stats().DiskBytes }
