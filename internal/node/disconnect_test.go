package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// TestAClientThatLeavesGivesBackWhatItHolds: a task that was on its way to it is ready again at once, and nothing counts against it. A
// stream that resumes the session meanwhile hears that the lease is lost.
func TestAClientThatLeavesGivesBackWhatItHolds(t *testing.T) {
	l := openLong(t, longOptions{node: Options{DisconnectGrace: 10 * time.Second}})
	defer l.close()
	k := newSink()
	ses, _ := l.session(1, k)
	ses.Subscribe(subscription("q", 2))
	l.must(&core.TaskCreate{ID: taskID(1), Queue: "q", Lease: 60_000})
	l.must(&core.TaskCreate{ID: taskID(2), Queue: "q", Lease: 60_000})
	a := k.take(2)
	l.must(&core.TaskComplete{Task: a[0].Task, Token: a[0].Token})
	ses.Drain()
	ses.Leave()
	if _, w := l.session(1, newSink(), core.TaskHold{Task: a[1].Task, Token: a[1].Token}); len(w.Lost) != 1 || len(w.Kept) != 0 {
		t.Errorf("resumed with %+v", w)
	}
	l.pass(time.Second)
	if x := l.task(a[0].Task); x.State != core.Completed {
		t.Errorf("the task that was completed is %v", x.State)
	}
	if x := l.task(a[1].Task); x.State != core.Ready || x.Crashes != 0 || x.Failures != 0 {
		t.Errorf("the task that was left is %v after %d crashes and %d failures", x.State, x.Crashes, x.Failures)
	}
}

// TestLeasesOfABrokenStreamEndAfterTheGrace: unless the session is resumed, or somebody renews a lease by any door, even where a
// renewal makes it no longer.
func TestLeasesOfABrokenStreamEndAfterTheGrace(t *testing.T) {
	const grace = 10 * time.Second
	renew := func(l *long, _ core.Session, a core.Assigned) {
		done := make(chan core.Proposed, 1)
		c := core.Commit{Partition: l.ns, Ops: []core.Op{&core.TaskRenew{Items: []core.TaskHold{{Task: a.Task, Token: a.Token}}, Extend: 1000}}}
		l.node.Propose(l.ns, []core.Commit{c}, func(p core.Proposed) { done <- p })
		l.pass(time.Second) // renewals wait for company
		if p := <-done; p.Err != nil || p.Results[0].Ops[0].Renewed[0].Lost {
			l.t.Errorf("renewal: %+v", p)
		}
	}
	for _, tc := range []struct {
		name      string
		grace     time.Duration
		maxRun    core.Millis
		kept      bool // the stream ended on purpose
		meanwhile func(l *long, ses core.Session, a core.Assigned)
		waits     time.Duration
		state     core.State
	}{
		{name: "before it is over", grace: grace, waits: grace - 200*time.Millisecond, state: core.Running},
		{name: "when it is over", grace: grace, waits: grace + 200*time.Millisecond, state: core.Ready},
		{name: "without a grace", waits: 30 * time.Second, state: core.Running},
		{name: "closed on purpose", grace: grace, kept: true, waits: 30 * time.Second, state: core.Running},
		{name: "renewed", grace: grace, waits: 30 * time.Second, state: core.Running, meanwhile: renew},
		{name: "renewed and no longer", grace: grace, maxRun: 50_000, waits: 30 * time.Second, state: core.Running, meanwhile: renew},
		{name: "resumed", grace: grace, waits: 30 * time.Second, state: core.Running, meanwhile: func(l *long, _ core.Session, a core.Assigned) {
			_, w := l.session(1, newSink(), core.TaskHold{Task: a.Task, Token: a.Token})
			if len(w.Kept) != 1 {
				l.t.Errorf("resumed with %+v", w)
			}
		}},
		{name: "resumed and broken", grace: grace, waits: grace + 200*time.Millisecond, state: core.Ready, meanwhile: func(l *long, old core.Session, _ core.Assigned) {
			ses, _ := l.session(1, newSink())
			old.Break() // its stream ends late
			l.pass(grace)
			ses.Break()
		}},
		{name: "completed", grace: grace, waits: 30 * time.Second, state: core.Completed, meanwhile: func(l *long, _ core.Session, a core.Assigned) {
			l.must(&core.TaskComplete{Task: a.Task, Token: a.Token})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := openLong(t, longOptions{node: Options{DisconnectGrace: tc.grace}})
			defer l.close()
			id := taskID(1)
			k := newSink()
			ses, _ := l.session(1, k)
			ses.Subscribe(subscription("q", 1))
			l.must(&core.TaskCreate{ID: id, Queue: "q", Lease: 60_000, MaxRun: tc.maxRun})
			a := k.take(1)[0]
			if tc.kept {
				ses.Close()
			} else {
				ses.Break()
			}
			l.pass(time.Second)
			if tc.meanwhile != nil {
				tc.meanwhile(l, ses, a)
				l.pass(time.Second)
			}
			for d := time.Second; d < tc.waits; d += time.Second {
				l.pass(min(time.Second, tc.waits-d))
			}
			task := l.task(id)
			if crashes := task.Crashes; task.State != tc.state || (crashes == 1) != (tc.state == core.Ready) {
				t.Errorf("the task is %v after %d crashes, want %v", task.State, crashes, tc.state)
			}
		})
	}
}
