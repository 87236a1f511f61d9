package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// leaseSink hands over what is assigned.
type leaseSink struct{ assigned chan core.Assigned }

func (s leaseSink) Assign(_ uint32, tasks []core.Assigned, _ core.At) bool {
	for _, a := range tasks {
		s.assigned <- a
	}
	return true
}

func (leaseSink) End(core.Fact)                                {}
func (leaseSink) LeaseLost(core.TaskHold, string)              {}
func (leaseSink) Cancel(core.TaskHold, string, core.ShardTime) {}
func (leaseSink) Available(uint32)                             {}
func (leaseSink) Room() bool                                   { return true }

// subscribed is a worker that waits for tasks of a queue.
func (l *long) subscribed(id byte, worker, queue string, slots uint32) chan core.Assigned {
	l.t.Helper()
	k := leaseSink{make(chan core.Assigned, 64)}
	ses, _, err := l.node.Session(l.t.Context(), l.ns, core.SessionSpec{ID: core.SessionID{id}, Worker: worker}, k)
	if err != nil {
		l.t.Fatal(err)
	}
	ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: queue}}, Slots: slots, Batch: 8})
	return k.assigned
}

// A queue at its limit costs no entries while workers wait for it, and the next task goes out when one ends.
func TestAQueueAtItsLimitWaitsWithoutEntries(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	l.must(&core.QueueSet{Queue: "q", IfVersion: -1, Config: core.QueueConfig{Lease: core.MaxCancelGrace, Share: core.QueueShare{Concurrency: 1}}})
	k := l.subscribed(1, "w", "q", 8)
	for i := range 3 {
		l.must(&core.TaskCreate{ID: taskID(i), Queue: "q"})
	}
	for i := range 3 {
		a := <-k
		if a.Task != taskID(i) {
			t.Fatalf("task %s came, want %s", a.Task, taskID(i))
		}
		l.must(&core.KVPut{Keyspace: "k", Key: []byte("x")}) // what a grant in the log would have done is done
		entries := l.log.Stats().Entries
		for range 20 {
			l.clock.Advance(time.Minute)
		}
		if got := l.log.Stats().Entries; got != entries {
			t.Errorf("%d entries were appended while the queue was at its limit", got-entries)
		}
		select {
		case a := <-k:
			t.Fatalf("task %s came beyond the limit", a.Task)
		default:
		}
		l.must(&core.TaskComplete{Task: a.Task, Token: a.Token})
	}
}

// A worker beyond the limit of workers is given tasks once another has none left.
func TestAWorkerBeyondTheLimitOfWorkersWaitsForAnother(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	l.must(&core.QueueSet{Queue: "q", IfVersion: -1, Config: core.QueueConfig{Share: core.QueueShare{MaxWorkers: 1}}})
	first := l.subscribed(1, "first", "q", 1)
	l.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	held := <-first
	second := l.subscribed(2, "second", "q", 1)
	l.must(&core.TaskCreate{ID: taskID(2), Queue: "q"})
	select {
	case <-second:
		t.Fatal("the second worker has a task")
	default:
	}
	l.must(&core.TaskComplete{Task: held.Task, Token: held.Token})
	if a := <-second; a.Task != taskID(2) { // the first has no free slot: its stream did not settle
		t.Errorf("task %s came", a.Task)
	}
}

// A rate lets the next task go when its time has come, without anything else happening.
func TestARateLetsTheNextTaskGoByItself(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	l.must(&core.QueueSet{Queue: "q", IfVersion: -1, Config: core.QueueConfig{Share: core.QueueShare{Rate: core.Rate{Limit: 1, Per: 60_000}}}})
	k := l.subscribed(1, "w", "q", 8)
	for i := range 2 {
		l.must(&core.TaskCreate{ID: taskID(i), Queue: "q", Lease: core.MaxCancelGrace})
	}
	<-k
	for {
		select {
		case a := <-k:
			if a.Task != taskID(1) {
				t.Errorf("task %s came", a.Task)
			}
			return
		default:
			l.clock.Advance(time.Second)
		}
	}
}
