package queue

import (
	"reflect"
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

// TestAnUndeliveredGrantIsNoAttempt gives tasks back that their workers never got: what is known of them is as before, and the next
// attempt has the number that this one had. One whose holder reported was delivered, and counts.
func TestAnUndeliveredGrantIsNoAttempt(t *testing.T) {
	w := newWorld(t, Options{})
	id := idOf("a")
	w.do(&core.QueueSet{Queue: "q", Config: core.QueueConfig{MaxDeliveries: 2}})
	w.do(&core.TaskCreate{ID: id, Queue: "q"})
	claim := func(attempt uint32) core.Token {
		w.c.Stamp = w.c.Stamp.Add(100)
		given := w.do(&core.Grant{N: 1, Worker: "a worker with a name that is too long to stand in the record", Queues: []core.GrantQueue{{Name: "q"}}}).res.Assigned
		if len(given) != 1 || given[0].Attempt != attempt {
			t.Fatalf("given %+v, want attempt %d", given, attempt)
		}
		return given[0].Token
	}
	back := func(token core.Token) outcome {
		return w.do(&core.TaskRelease{Task: id, Token: token, Undelivered: true})
	}
	show := func() core.Task {
		task, ok, err := Task(w.tx, testPartition, id)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return task
	}
	for range 3 { // more than there may be deliveries
		before := show()
		first := claim(1)
		if o := back(first); o.fact != nil || o.res.State != core.Ready || len(o.lost) != 1 {
			t.Fatalf("given back: %+v", o)
		}
		if o := back(first); o.fact != nil || !o.res.Replayed {
			t.Fatalf("given back again: %+v", o)
		}
		if after := show(); !reflect.DeepEqual(after, before) {
			t.Fatalf("the task is %+v, was %+v", after, before)
		}
	}
	failed := claim(1)
	w.do(&core.TaskFail{Task: id, Token: failed, HasRetry: true, Error: core.TaskError{Code: "E"}})
	before, attempts := show(), w.attemptsOf(id)
	if o := back(claim(2)); o.fact != nil {
		t.Fatal(o.fact)
	}
	if after := show(); !reflect.DeepEqual(after, before) {
		t.Fatalf("the task is %+v, was %+v", after, before)
	}
	if after := w.attemptsOf(id); !reflect.DeepEqual(after, attempts) {
		t.Fatalf("the attempts are %+v, were %+v", after, attempts)
	}
	told := claim(2)
	w.do(&core.TaskReport{Task: id, Token: told, Number: 1, HasProgress: true, Percent: 7})
	if o := back(told); o.fact != nil || o.res.State != core.Dead {
		t.Fatalf("the second delivery of two, given back: %+v", o)
	}
}

// TestAnUndeliveredGrantCountsInOlderEntries has the entries applied that programs of an older format wrote.
func TestAnUndeliveredGrantCountsInOlderEntries(t *testing.T) {
	w := newWorld(t, Options{})
	w.c.Format = core.FormatQueues
	id := idOf("a")
	w.do(&core.TaskCreate{ID: id, Queue: "q"})
	for want := range uint32(3) {
		given := w.do(claimOp(1, "q")).res.Assigned
		if len(given) != 1 || given[0].Attempt != want+1 {
			t.Fatalf("given %+v, want attempt %d", given, want+1)
		}
		w.do(&core.TaskRelease{Task: id, Token: given[0].Token, Undelivered: true})
	}
}
