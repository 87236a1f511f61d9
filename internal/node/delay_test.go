package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// TestDelaysOfDaysSurviveRestartsAndComeDueInTime lets days go by in uneven steps, with a restart at some of them. What
// can be claimed must at each step be exactly what is due.
func TestDelaysOfDaysSurviveRestartsAndComeDueInTime(t *testing.T) {
	l := openLong(t, longOptions{layer: 64 << 10})
	defer func() { l.close() }()
	const day = 24 * time.Hour
	total := shorter(3000)
	begin := l.now()
	due := make([]core.ShardTime, total)
	l.createAll(total, func(i int) *core.TaskCreate {
		// spread over ten days, half of them said as a time; one in fifty at 25 h sharp
		delay := core.Millis(i+1) * core.Millis(10*day/time.Millisecond) / core.Millis(total)
		if i%50 == 0 {
			delay = core.MillisOf(25 * time.Hour)
		}
		due[i] = begin.Add(delay)
		c := &core.TaskCreate{ID: taskID(i), Queue: "q", RunAt: due[i], Lease: 86_400_000}
		if i%2 == 0 {
			c.RunAt, c.Delay = 0, delay
		}
		return c
	})
	claimed := make(map[core.TaskID]bool)
	step := []time.Duration{time.Hour, 13 * time.Minute, 5 * time.Hour, time.Millisecond, 9*time.Hour + 59*time.Minute}
	passed := time.Duration(0)
	claim := func() {
		t.Helper()
		tasks := l.claimUpTo("q", total)
		for _, a := range tasks {
			claimed[a.Task] = true
		}
		l.completeAll(tasks, nil)
		now := l.now()
		for i, at := range due {
			if claimed[taskID(i)] != (at <= now) {
				t.Fatalf("after %v task %d, due at %d, is given out: %v; it is %d", passed, i, at, claimed[taskID(i)], now)
			}
		}
	}
	go1 := func(d time.Duration) {
		t.Helper()
		l.pass(d)
		passed += d
		claim()
	}
	for i := 0; passed < 24*time.Hour; i++ {
		go1(min(step[i%len(step)], 25*time.Hour-time.Millisecond-passed))
		if i%3 == 0 {
			l.restart()
		}
	}
	go1(25*time.Hour - time.Millisecond - passed)
	if claimed[taskID(0)] {
		t.Error("a task is given out a millisecond before it is due")
	}
	go1(time.Millisecond)
	if !claimed[taskID(0)] {
		t.Error("a task is not given out when it is due")
	}
	for i := 0; passed < 10*day+time.Hour; i++ {
		go1(step[i%len(step)])
		if i%7 == 0 {
			l.restart()
		}
	}
	if st := l.stats("q"); len(claimed) != total || st.States[core.Scheduled] != 0 || st.Created != uint64(total) {
		t.Errorf("%d of %d tasks were given out, %+v", len(claimed), total, st)
	}
	l.audit()
}

// TestAWaitingWorkerGetsADelayedTaskByTheTimerAlone has no call but the clock's: no client wakes the shard.
func TestAWaitingWorkerGetsADelayedTaskByTheTimerAlone(t *testing.T) {
	clock := newLoopClock()
	l := openLong(t, longOptions{clock: clock, node: Options{TickEvery: loopTick}})
	defer l.close()
	k := newSink()
	ses, _ := l.session(1, k)
	ses.Subscribe(subscription("q", 4))
	due := l.now().Add(25 * 3_600_000)
	l.must(&core.TaskCreate{ID: taskID(1), Queue: "q", RunAt: due})
	entries := l.log.Stats().Entries
	left := func() time.Duration { return core.Millis(due - l.now()).Duration() }
	for left() > time.Hour {
		clock.step(time.Hour)
	}
	for left() > loopTick {
		clock.step(min(loopTick, left()-time.Millisecond))
	}
	if got := l.log.Stats().Entries; got != entries || len(k.moved) > 0 {
		t.Fatalf("%v before it was due: %d entries, %d assignments", left(), got-entries, len(k.moved))
	}
	clock.step(left())
	k.take(1)
	if got := l.log.Stats().Entries; got != entries+2 {
		t.Errorf("%d entries, want one that makes the task ready and one that gives it out", got-entries)
	}
}

func TestNothingThatHasNotEndedIsRemovedInAMonth(t *testing.T) {
	l := openLong(t, longOptions{layer: 64 << 10})
	defer func() { l.close() }()
	l.must(&core.NamespaceSet{Config: core.NamespaceConfig{RetainBytes: 100 << 10}, IfVersion: -1})
	l.configure("q", core.QueueConfig{RetainCompleted: 3_600_000, RetainDead: 7_200_000, Aging: -1})
	const each = 300
	const month = core.Millis(31 * 24 * 3_600_000)
	l.createAll(4*each, func(i int) *core.TaskCreate {
		c := &core.TaskCreate{ID: taskID(i), Queue: "q", Payload: make([]byte, 200), MaxCrashes: 1000, MaxDeliveries: -1}
		switch i / each {
		case 0: // given out, and held by a worker that renews
			c.Priority = 9
			c.Lease = 12 * 3_600_000
		case 1: // ends in the first hour
			c.Priority = 8
		case 2: // waits for a worker
		case 3: // waits for its time
			c.Delay = 2 * month
		}
		return c
	})
	held := l.claimUpTo("q", each)
	ended := l.claimUpTo("q", each)
	inOrder(t, append(append([]core.Assigned{}, held...), ended...), 0)
	l.batches(each, 100, func(i int) core.Commit { return core.Commit{Ops: []core.Op{ending(ended[i], i)}} }, l.applied)
	items := make([]core.TaskHold, each)
	for i, a := range held {
		items[i] = core.TaskHold{Task: a.Task, Token: a.Token}
	}
	for hours := 0; hours < 31*24; hours += 6 {
		l.pass(6 * time.Hour)
		// renewals alone would wait for company, which the clock does not let come
		renewed := l.must(&core.TaskRenew{Items: items}, &core.KVPut{Keyspace: "k", Key: []byte("x")})
		for i, r := range renewed.Ops[0].Renewed {
			if r.Lost {
				t.Fatalf("after %d hours the renewed lease of task %d is lost", hours, i)
			}
		}
		if hours%120 == 0 {
			l.restart()
		}
		st := l.stats("q")
		if st.States[core.Running] != each || st.States[core.Ready] != each || st.States[core.Scheduled] != each {
			t.Fatalf("after %d hours: %+v", hours, st)
		}
		if hours >= 6 && st.Purged != each {
			t.Fatalf("after %d hours %d of %d ended tasks are removed", hours, st.Purged, each)
		}
	}
	for i := range 4 * each {
		_, _, err := l.node.Task(t.Context(), l.ns, taskID(i), core.ReadOptions{})
		if gone := i/each == 1; (err != nil) != gone {
			t.Fatalf("task %d after a month: %v", i, err)
		}
	}
	l.audit()
}
