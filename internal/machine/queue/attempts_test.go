package queue

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// attemptsOf reads what is known of the attempts of a task.
func (w *world) attemptsOf(id core.TaskID) core.AttemptList {
	w.t.Helper()
	list, ok, err := Attempts(w.tx, testPartition, id)
	if err != nil || !ok {
		w.t.Fatal(ok, err)
	}
	return list
}

// The last 20 attempts are kept; of those before them it is counted how they ended, through a redrive too, until the task goes.
func TestAttemptsThatAreNotKeptAreCounted(t *testing.T) {
	w := newWorld(t, Options{})
	id := idOf("a")
	w.do(&core.QueueSet{Queue: "mail", Config: core.QueueConfig{MaxAttempts: 1000, MaxCrashes: 1000, Retry: core.Retry{Backoff: core.BackoffFixed, Base: 1000}}})
	w.do(&core.TaskCreate{ID: id, Queue: "mail"})
	claim := func() core.Token {
		w.do(&core.Grant{N: 1, Worker: "w", Queues: []core.GrantQueue{{Name: "mail"}}})
		return w.lastToken()
	}
	for range 10 { // one each of failed, snoozed and crashed
		w.do(&core.TaskFail{Task: id, Token: claim()})
		w.advance(1000)
		w.do(&core.TaskSnooze{Task: id, Token: claim(), Delay: 10})
		w.advance(10)
		claim()
		w.advance(61_000)
		w.advance(1000)
		w.check()
	}
	want := []core.OutcomeCount{{Outcome: core.OutcomeFailed, Count: 4}, {Outcome: core.OutcomeCrashed, Count: 3}, {Outcome: core.OutcomeSnoozed, Count: 3}}
	if got := w.attemptsOf(id); len(got.Attempts) != keptAttempts || got.Attempts[0].Number != 11 || !slices.Equal(got.Older, want) {
		t.Fatalf("%d attempts, older %v, want %v", len(got.Attempts), got.Older, want)
	}
	// The one that completes it is known from the task itself, and so one more is not listed.
	w.do(&core.TaskFail{Task: id, Token: claim(), Fatal: true})
	w.do(&core.TaskRedrive{Task: id})
	w.do(&core.TaskComplete{Task: id, Token: claim()})
	w.check()
	want = []core.OutcomeCount{{Outcome: core.OutcomeFailed, Count: 4}, {Outcome: core.OutcomeCrashed, Count: 4}, {Outcome: core.OutcomeSnoozed, Count: 4}}
	if got := w.attemptsOf(id); len(got.Attempts) != keptAttempts || got.Attempts[0].Number != 13 || !slices.Equal(got.Older, want) {
		t.Fatalf("%d attempts, older %v, want %v", len(got.Attempts), got.Older, want)
	}
	w.do(&core.TaskDelete{Task: id})
	w.check()
	if _, ok, err := w.tx.Get(keys.AppendTaskAttempt(nil, testPartition, id, olderAttempts)); ok || err != nil {
		t.Error("the counts outlive the task:", ok, err)
	}
}

// An attempt tells when the task was ready for it, when its lease would have ended, and when the task was to run next.
func TestAnAttemptTellsTheTimesAroundIt(t *testing.T) {
	w := newWorld(t, Options{})
	id := idOf("a")
	w.do(&core.QueueSet{Queue: "mail", Config: core.QueueConfig{MaxDeliveries: 3, Retry: core.Retry{Backoff: core.BackoffFixed, Base: 5000}}})
	w.do(&core.TaskCreate{ID: id, Queue: "mail"})
	start := w.c.Stamp
	claim := func() core.Token {
		w.do(&core.Grant{N: 1, Worker: "w", Lease: 30_000, Queues: []core.GrantQueue{{Name: "mail"}}})
		return w.lastToken()
	}
	w.advance(100)
	token := claim()
	w.advance(200)
	w.do(&core.TaskFail{Task: id, Token: token})
	w.advance(5000)
	w.do(&core.TaskRelease{Task: id, Token: claim()})
	w.do(&core.TaskFail{Task: id, Token: claim()})
	got := w.attemptsOf(id)
	for i, want := range []core.Attempt{
		{ReadyAt: start, LeaseUntil: start + 30_100, RetryAt: start + 5300},
		{ReadyAt: start + 5300, LeaseUntil: start + 35_300},
		{ReadyAt: start + 5300, LeaseUntil: start + 35_300}, // the last delivery: the task is dead
	} {
		if a := got.Attempts[i]; a.ReadyAt != want.ReadyAt || a.LeaseUntil != want.LeaseUntil || a.RetryAt != want.RetryAt {
			t.Errorf("attempt %d: ready %s, lease until %s, retry %s", a.Number, since(a.ReadyAt), since(a.LeaseUntil), since(a.RetryAt))
		}
	}
	if len(got.Older) != 0 {
		t.Error("older", got.Older)
	}
}

// Attempts that a program of an older format did not count are of unknown outcome.
func TestAttemptsOfAnOlderFormatAreOfUnknownOutcome(t *testing.T) {
	w := newWorld(t, Options{})
	w.c.Format = core.FormatQueues
	id := idOf("a")
	w.do(&core.TaskCreate{ID: id, Queue: "mail"})
	snooze := func(n int) {
		for range n {
			w.do(&core.Grant{N: 1, Worker: "w", Queues: []core.GrantQueue{{Name: "mail"}}})
			w.do(&core.TaskSnooze{Task: id, Token: w.lastToken()})
		}
	}
	snooze(keptAttempts + 2)
	w.check()
	w.c.Format = core.FormatOperate
	snooze(1)
	w.check()
	want := []core.OutcomeCount{{Outcome: core.OutcomeNone, Count: 2}, {Outcome: core.OutcomeSnoozed, Count: 1}}
	if got := w.attemptsOf(id); !slices.Equal(got.Older, want) || got.Attempts[0].ReadyAt != 0 || got.Attempts[keptAttempts-1].ReadyAt == 0 {
		t.Errorf("older %v, want %v", got.Older, want)
	}
}
