package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// holdOne gives out the only ready task of a queue.
func (l *long) holdOne(name string) core.Assigned {
	l.t.Helper()
	tasks := l.claim(name, 8, 0)
	if len(tasks) != 1 {
		l.t.Fatalf("%d tasks are given out, want 1", len(tasks))
	}
	return tasks[0]
}

// toDue lets time go on until a scheduled task is due, and not a millisecond longer.
func (l *long) toDue(id core.TaskID) {
	l.t.Helper()
	if task := l.task(id); task.State == core.Scheduled {
		l.pass(core.Millis(task.RunAt - l.now()).Duration())
	}
}

func fail(a core.Assigned) *core.TaskFail {
	return &core.TaskFail{Task: a.Task, Token: a.Token, Error: core.TaskError{Code: "boom"}}
}

func TestATaskHasExactlyItsAttemptsWhateverElseHappensToIt(t *testing.T) {
	l := openLong(t, longOptions{})
	defer func() { l.close() }()
	for attempts := int32(1); attempts <= 8; attempts++ {
		name := fmt.Sprintf("q%d", attempts)
		id := taskID(int(attempts))
		l.must(&core.TaskCreate{ID: id, Queue: name, MaxAttempts: attempts, MaxCrashes: attempts + 1, Lease: 30_000})
		failed, crashed, given := int32(0), int32(0), int32(0)
		for failed < attempts {
			a := l.holdOne(name)
			given++
			if a.Attempt != uint32(given) || a.Failures != uint32(failed) || a.Crashes != uint32(crashed) || a.MaxAttempts != attempts {
				t.Fatalf("delivery %d after %d failures and %d crashes is %+v", given, failed, crashed, a)
			}
			switch given % 4 {
			case 1:
				if crashed < attempts { // the worker is killed
					crashed++
					l.pass(31 * time.Second)
					break
				}
				fallthrough
			default:
				failed++
				l.must(fail(a))
			case 2:
				l.must(&core.TaskSnooze{Task: a.Task, Token: a.Token, Delay: 1000})
			case 3:
				l.must(&core.TaskRelease{Task: a.Task, Token: a.Token})
			}
			if given == 5 {
				l.restart()
				l.pass(16 * time.Second)
			}
			l.toDue(id)
		}
		task := l.task(id)
		if task.State != core.Dead || task.Reason != "max_attempts" || task.Failures != uint32(attempts) ||
			task.Crashes != uint32(crashed) || task.Attempt != uint32(given) || task.Error.Code != "boom" {
			t.Errorf("after %d failures and %d crashes: %+v", failed, crashed, task)
		}
		l.pass(time.Hour)
		if got := l.claim(name, 8, 0); len(got) != 0 {
			t.Errorf("a dead task is given out: %+v", got)
		}
		if st := l.stats(name); st.Failed != uint64(attempts) || st.Crashed != uint64(crashed) {
			t.Errorf("counted %d failures and %d crashes, were %d and %d", st.Failed, st.Crashed, attempts, crashed)
		}
	}
	l.audit()
}

func TestCrashesEndATaskAtTheirOwnLimit(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	id := taskID(1)
	l.must(&core.TaskCreate{ID: id, Queue: "q", MaxAttempts: 1, MaxCrashes: 4, Lease: 20_000})
	for crashes := uint32(1); crashes <= 4; crashes++ {
		if a := l.holdOne("q"); a.Failures != 0 || a.Crashes != crashes-1 {
			t.Fatalf("delivery %d: %+v", crashes, a)
		}
		l.pass(20 * time.Second)
		task := l.task(id)
		if task.Crashes != crashes || task.Failures != 0 {
			t.Fatalf("after %d crashes: %+v", crashes, task)
		}
		if first := task.State == core.Ready && crashes == 1; crashes < 4 && !first {
			checkWait(t, task, l.now(), core.Retry{Backoff: core.BackoffFullJitter, Base: 5000, FactorPercent: 200, Max: 900_000}, crashes-1)
		}
		l.toDue(id)
	}
	if task := l.task(id); task.State != core.Dead || task.Reason != "max_crashes" {
		t.Errorf("at the end: %+v", task)
	}
}

// checkWait checks that task waits as policy r says after its n-th failure, at now.
func checkWait(t *testing.T, task core.Task, now core.ShardTime, r core.Retry, n uint32) core.Millis {
	t.Helper()
	most := r.Base
	for i := uint32(1); i < n && most < r.Max; i++ {
		switch r.Backoff {
		case core.BackoffFixed:
		case core.BackoffLinear:
			most += r.Base
		default:
			most = most * core.Millis(r.FactorPercent) / 100
		}
	}
	most = min(most, r.Max)
	least := most
	switch r.Backoff {
	case core.BackoffFullJitter:
		least = 0
	case core.BackoffEqualJitter:
		least = most / 2
	}
	wait := core.Millis(0)
	if task.State == core.Scheduled {
		wait = core.Millis(task.RunAt - now)
	}
	if wait < least || wait > most || task.State == core.Ready && least > 0 {
		t.Errorf("policy %+v, failure %d: %s, waits %d ms, want %d to %d", r, n, task.State, wait, least, most)
	}
	return wait
}

func TestRetriesWaitWithinTheBoundsOfTheirPolicy(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	const tasks, failures = 40, 9
	for k, backoff := range []core.Backoff{
		core.BackoffFixed, core.BackoffLinear, core.BackoffExponential, core.BackoffFullJitter, core.BackoffEqualJitter,
	} {
		policy := core.Retry{Backoff: backoff, Base: 2000, FactorPercent: 300, Max: 600_000}
		name := fmt.Sprintf("q%d", k)
		l.configure(name, core.QueueConfig{Retry: policy, MaxAttempts: 100, Lease: 86_400_000})
		l.createAll(tasks, func(i int) *core.TaskCreate { return &core.TaskCreate{ID: taskID(k*1000 + i), Queue: name} })
		for n := uint32(1); n <= failures; n++ {
			held := l.claimUpTo(name, tasks)
			if len(held) != tasks {
				t.Fatalf("%d of %d tasks are given out for failure %d", len(held), tasks, n)
			}
			waits := make(map[core.Millis]bool)
			now := l.now()
			l.batches(tasks, tasks, func(i int) core.Commit { return core.Commit{Ops: []core.Op{fail(held[i])}} }, l.applied)
			for _, a := range held {
				waits[checkWait(t, l.task(a.Task), now, policy, n)] = true
			}
			if jitter := backoff >= core.BackoffFullJitter; jitter != (len(waits) > 1) {
				t.Errorf("policy %d, failure %d: %d different waits of %d", backoff, n, len(waits), tasks)
			}
			l.pass(11 * time.Minute)
		}
	}
	id := taskID(9999)
	l.must(&core.TaskCreate{ID: id, Queue: "after"})
	f := fail(l.holdOne("after"))
	f.HasRetry = true
	l.must(f)
	f = fail(l.holdOne("after")) // 0 means at once
	f.HasRetry, f.RetryAfter = true, 7000
	l.must(f)
	if task := l.task(id); task.State != core.Scheduled || task.RunAt != l.now().Add(7000) {
		t.Errorf("asked to retry after 7 s: %+v", task)
	}
	l.audit()
}
