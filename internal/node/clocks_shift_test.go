package node

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/env/envtest"
)

// TestNamedTimesFollowACorrectedClock: the clock is wrong when the server starts, and is corrected then. What callers name is by
// the right clock, whether they came before the correction or after it, and a start in between changes nothing.
func TestNamedTimesFollowACorrectedClock(t *testing.T) {
	right := time.UnixMilli(1_700_000_000_000)
	for _, tc := range []struct {
		name  string
		wrong time.Duration // by how much the clock is ahead at the start
	}{
		{"an hour behind", -time.Hour},
		{"a day ahead", 24 * time.Hour},
		{"two seconds behind", -2 * time.Second},
		{"two seconds ahead", 2 * time.Second},
		{"at 1970", -time.Duration(right.UnixNano())},
		{"ten years ahead", 10 * 366 * 24 * time.Hour},
	} {
		for _, restarts := range []int{0, 2} {
			t.Run(tc.name, func(t *testing.T) {
				clock := envtest.NewClock(right.Add(tc.wrong))
				l := openLong(t, longOptions{clock: clock})
				defer func() { l.close() }()
				at := func(d time.Duration) core.ShardTime { return core.ShardTimeOf(right.Add(d)) }
				before, after, snoozed, soon := taskID(1), taskID(2), taskID(3), taskID(4)
				l.must(&core.TaskCreate{ID: before, Queue: "before", RunAt: at(2 * time.Hour)})
				was := l.task(before).State
				if want := map[bool]core.State{true: core.Ready, false: core.Scheduled}[tc.wrong >= 2*time.Hour]; was != want {
					t.Errorf("by the wrong clock the task is %v, want %v", was, want)
				}
				clock.StepWall(-tc.wrong)
				l.must(&core.TaskCreate{ID: after, Queue: "after", RunAt: at(2 * time.Hour)}) // the first that comes after it
				l.must(&core.TaskCreate{ID: soon, Queue: "soon", RunAt: at(3 * time.Second)})
				l.must(&core.TaskCreate{ID: snoozed, Queue: "snoozed"})
				a := l.holdOne("snoozed")
				l.must(&core.TaskSnooze{Task: a.Task, Token: a.Token, Until: at(2 * time.Hour)})
				for range restarts {
					l.restart()
				}
				states := func(passed time.Duration, want map[core.TaskID]core.State) {
					t.Helper()
					for id, state := range want {
						if got := l.task(id).State; got != state {
							t.Errorf("after %v task %s is %v, want %v", passed, id, got, state)
						}
					}
				}
				l.workOff()
				states(0, map[core.TaskID]core.State{before: was, after: core.Scheduled, snoozed: core.Scheduled, soon: core.Scheduled})
				l.pass(3 * time.Second)
				states(3*time.Second, map[core.TaskID]core.State{before: was, after: core.Scheduled, snoozed: core.Scheduled, soon: core.Ready})
				l.pass(2*time.Hour - 3*time.Second - time.Millisecond)
				states(2*time.Hour-time.Millisecond, map[core.TaskID]core.State{before: was, after: core.Scheduled, snoozed: core.Scheduled})
				l.pass(time.Millisecond)
				states(2*time.Hour, map[core.TaskID]core.State{before: core.Ready, after: core.Ready, snoozed: core.Ready})
				l.audit()
			})
		}
	}
}

// TestAStepOfTheWallClockMovesNothingThatIsCounted: leases, delays, waits before a retry, windows of unique keys and retention are
// counted from when they began.
func TestAStepOfTheWallClockMovesNothingThatIsCounted(t *testing.T) {
	for _, step := range []time.Duration{1500 * time.Millisecond, time.Hour, -time.Hour, 400 * 24 * time.Hour, -400 * 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			l := openLong(t, longOptions{})
			defer func() { l.close() }()
			l.configure("done", core.QueueConfig{RetainCompleted: 60_000})
			l.must(&core.TaskCreate{ID: taskID(1), Queue: "done"})
			a := l.holdOne("done")
			l.must(&core.TaskComplete{Task: a.Task, Token: a.Token})
			l.must(&core.TaskCreate{ID: taskID(2), Queue: "lease", Lease: 60_000})
			l.holdOne("lease")
			l.must(&core.TaskCreate{ID: taskID(3), Queue: "delay", Delay: 60_000})
			l.must(&core.TaskCreate{ID: taskID(4), Queue: "retry"})
			a = l.holdOne("retry")
			l.must(&core.TaskFail{Task: a.Task, Token: a.Token, HasRetry: true, RetryAfter: 60_000})
			l.must(&core.TaskCreate{ID: taskID(5), Queue: "unique", Unique: core.Unique{Key: "k", TTL: 60_000}})
			again := &core.TaskCreate{ID: taskID(6), Queue: "unique", Unique: core.Unique{Key: "k", TTL: 60_000}}
			l.clock.StepWall(step)
			l.pass(60*time.Second - time.Millisecond)
			for id, want := range map[core.TaskID]core.State{taskID(1): core.Completed, taskID(2): core.Running, taskID(3): core.Scheduled, taskID(4): core.Scheduled} {
				if got := l.task(id).State; got != want {
					t.Errorf("a millisecond too early task %s is %v, want %v", id, got, want)
				}
			}
			if r := l.must(again); !r.Ops[0].Replayed {
				t.Error("the window of a unique key is over a millisecond too early")
			}
			l.pass(time.Millisecond)
			for id, want := range map[core.TaskID]core.State{taskID(2): core.Ready, taskID(3): core.Ready, taskID(4): core.Ready} {
				if got := l.task(id).State; got != want {
					t.Errorf("when its time is over task %s is %v, want %v", id, got, want)
				}
			}
			if r := l.must(again); r.Ops[0].Replayed {
				t.Error("the window of a unique key is not over when its time is")
			}
			if got := l.stats("done"); got.Purged != 1 {
				t.Errorf("%d tasks were removed when their time was over, want 1", got.Purged)
			}
		})
	}
}

// TestTimesAreShownAsTheWallClocksShowThem: after a correction, also those of before it, over restarts; and run_at as it was named.
func TestTimesAreShownAsTheWallClocksShowThem(t *testing.T) {
	right := time.UnixMilli(1_700_000_000_000)
	for _, wrong := range []time.Duration{-time.Hour, 24 * time.Hour, 0} {
		t.Run(wrong.String(), func(t *testing.T) {
			clock := envtest.NewClock(right.Add(wrong))
			l := openLong(t, longOptions{clock: clock})
			defer func() { l.close() }()
			at := func(d time.Duration) core.ShardTime { return core.ShardTimeOf(right.Add(d)) }
			l.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
			l.must(&core.TaskCreate{ID: taskID(2), Queue: "delay", Delay: 3_600_000})
			clock.StepWall(-wrong)
			l.pass(time.Second)
			l.must(&core.TaskCreate{ID: taskID(3), Queue: "named", RunAt: at(2 * time.Hour)})
			ctx := within(t, time.Minute)
			if q, _, err := l.node.Queue(ctx, l.ns, "q", core.ReadOptions{}); err != nil || q.OldestReady != at(0) {
				t.Errorf("the oldest task is ready since %d, %v; want %d", q.OldestReady, err, at(0))
			}
			if qs, _, err := l.node.Queues(ctx, l.ns, "p", 1, core.ReadOptions{}); err != nil || len(qs) != 1 || qs[0].OldestReady != at(0) {
				t.Errorf("queues %+v, %v", qs, err)
			}
			a := l.holdOne("q")
			if a.CreatedAt != at(0) {
				t.Errorf("a worker is told that its task was created at %d, want %d", a.CreatedAt, at(0))
			}
			l.restart()
			now := at(time.Second)
			if got := l.task(taskID(1)); got.CreatedAt != at(0) || got.ReadyAt != at(0) || got.StartedAt != now || got.LeaseUntil != now.Add(60_000) || got.FinishedAt != 0 {
				t.Errorf("the running task has %+v", got)
			}
			if got := l.task(taskID(2)); got.RunAt != at(time.Hour) {
				t.Errorf("a delay of an hour ends at %d, want %d", got.RunAt, at(time.Hour))
			}
			if got := l.task(taskID(3)); got.RunAt != at(2*time.Hour) || got.CreatedAt != now {
				t.Errorf("the task for two hours from then has %+v", got)
			}
			l.must(&core.TaskComplete{Task: a.Task, Token: a.Token})
			page, _, err := l.node.Tasks(ctx, l.ns, core.ListQuery{Queue: "q", State: core.Completed, Limit: 1})
			if err != nil || len(page.Tasks) != 1 || page.Tasks[0].FinishedAt != now {
				t.Errorf("completed tasks %+v, %v", page.Tasks, err)
			}
			list, _, err := l.node.Attempts(ctx, l.ns, taskID(1), core.ReadOptions{})
			if err != nil || len(list.Attempts) != 1 || list.Attempts[0].Start != now || list.Attempts[0].End != now || list.Attempts[0].ReadyAt != at(0) {
				t.Errorf("attempts %+v, %v", list, err)
			}
		})
	}
}

// TestTheFirstFormatIsNotToldOfWallClocks: members whose programs do not know the op would stop.
func TestTheFirstFormatIsNotToldOfWallClocks(t *testing.T) {
	l := openLong(t, longOptions{})
	l.close() // its loop would tell the shard too
	l.clock.StepWall(time.Hour)
	for format, want := range map[uint16]bool{core.FormatFirst: false, core.FormatQueues: true} {
		l.node.format.Store(uint32(format))
		if op, ok := l.node.shards[0].clockShift(); ok != want || ok && op.Shift != 3_600_000 {
			t.Errorf("format %d: the shard is told %+v, %v; want %v", format, op, ok, want)
		}
	}
}

// offClock is a clock whose wall time a test steps.
type offClock struct {
	env.Clock
	off atomic.Int64
}

func (c *offClock) Wall() time.Time { return c.Clock.Wall().Add(time.Duration(c.off.Load())) }

// TestOneWrongClockOfThreeMovesNothing: neither that of the leader nor that of another node; two of three do.
func TestOneWrongClockOfThreeMovesNothing(t *testing.T) {
	c := newCluster(t, 3, Options{})
	clocks := map[uint64]*offClock{}
	for id := uint64(1); id <= 3; id++ {
		clocks[id] = &offClock{Clock: env.SystemClock{}}
	}
	c.clock = func(id uint64) env.Clock { return clocks[id] }
	c.startAll(func(_ uint64, fs env.FS) env.FS { return fs })
	ctx := within(t, 60*time.Second)
	info, err := c.leader(ctx, 0, 0).node.Namespace(ctx, "acme", "default", true)
	if err != nil {
		t.Fatal(err)
	}
	c.ns = info.Partitions[0].Partition
	for i, phase := range []struct {
		leader, other time.Duration // by how much their clocks are ahead
		agree         bool          // the leader with most
		want          core.State    // of a task for two hours from now
	}{
		{agree: true, want: core.Scheduled},
		{other: -24 * time.Hour, agree: true, want: core.Scheduled},
		{leader: 24 * time.Hour, want: core.Scheduled},
		{leader: 24 * time.Hour, other: 24 * time.Hour, agree: true, want: core.Ready},
		{agree: true, want: core.Scheduled},
	} {
		lead := c.leader(ctx, 0, 0)
		id := lead.node.o.Replica
		for of, clock := range clocks {
			clock.off.Store(int64(map[uint64]time.Duration{id: phase.leader, id%3 + 1: phase.other}[of]))
		}
		c.until(ctx, "the leader has not heard what time it is", func() bool { return lead.node.clocks.agree(lead.node) == phase.agree })
		c.commit(ctx, 0, &core.TaskCreate{ID: taskID(i), Queue: "q", RunAt: core.ShardTimeOf(time.Now().Add(2 * time.Hour))})
		task, _, err := lead.node.Task(ctx, c.ns, taskID(i), core.ReadOptions{})
		if err != nil || task.State != phase.want {
			t.Errorf("phase %d: a task for two hours from now is %v, %v; want %v", i, task.State, err, phase.want)
		}
	}
}
