package node

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// indexSink notes with which entry tasks were assigned.
type indexSink struct {
	mu      sync.Mutex // guards index
	index   map[core.TaskID]uint64
	arrived chan core.TaskID
}

func newIndexSink() *indexSink {
	return &indexSink{index: make(map[core.TaskID]uint64), arrived: make(chan core.TaskID, 4096)}
}

func (s *indexSink) Assign(_ uint32, tasks []core.Assigned, at core.At) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range tasks {
		s.index[a.Task] = at.Index
		s.arrived <- a.Task
	}
	return true
}

func (s *indexSink) End(core.Fact) {}

func (s *indexSink) LeaseLost(core.TaskHold, string) {}

func (s *indexSink) Cancel(core.TaskHold, string, core.ShardTime) {}
func (s *indexSink) Available(uint32)                             {}
func (s *indexSink) Room() bool                                   { return true }

func TestAWorkerThatWaitedForHoursGetsATaskWithTheEntryThatMakesIt(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	k := newIndexSink()
	ses, _, err := l.node.Session(t.Context(), l.ns, core.SessionSpec{ID: core.SessionID{1}, Worker: "w"}, k)
	if err != nil {
		t.Fatal(err)
	}
	ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: "other"}, {Name: "q"}}, Slots: 2, Batch: 8})
	type answer struct {
		tasks []core.Assigned
		at    core.At
		err   error
	}
	claimed := make(chan answer, 1)
	go func() {
		var a answer
		a.tasks, a.at, a.err = l.node.Claim(t.Context(), l.ns, core.ClaimSpec{
			Queues: []core.GrantQueue{{Name: "unary"}}, Max: 4, Wait: 24 * 3_600_000, Worker: "u",
		})
		claimed <- a
	}()
	for l.waitingClaims() == 0 {
		l.must(&core.KVPut{Keyspace: "k", Key: []byte("x")})
	}
	entries := l.log.Stats().Entries
	for range 120 {
		l.clock.Advance(time.Minute)
	}
	if got := l.log.Stats().Entries; got != entries {
		t.Errorf("%d entries were appended while nothing happened", got-entries)
	}
	made := func(id core.TaskID, queue string) uint64 {
		p := l.propose(core.Commit{Ops: []core.Op{&core.TaskCreate{ID: id, Queue: queue}}})
		if p.Err != nil || p.Results[0].Refusal != nil {
			t.Fatalf("create: %+v", p)
		}
		return p.At.Index
	}
	index := made(taskID(1), "q")
	if got := <-k.arrived; got != taskID(1) || k.index[got] != index {
		t.Errorf("task %s, made by entry %d, is assigned by entry %d", got, index, k.index[got])
	}
	index = made(taskID(2), "unary")
	if a := <-claimed; a.err != nil || len(a.tasks) != 1 || a.at.Index != index {
		t.Errorf("a claim that waited for a task made by entry %d is answered with %+v", index, a)
	}
	if got := l.log.Stats().Entries; got != entries+2 {
		t.Errorf("%d entries for two tasks", got-entries)
	}
}

func (l *long) waitingClaims() int {
	d := l.node.shards[0].disp
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims
}

func TestAnIdleNodeAppendsNothingAndWakesOnlyToTick(t *testing.T) {
	clock := newLoopClock()
	l := openLong(t, longOptions{clock: clock, node: Options{TickEvery: loopTick}})
	defer l.close()
	for i := range 1000 {
		ses, _, err := l.node.Session(t.Context(), l.ns, core.SessionSpec{
			ID: core.SessionID{byte(i), byte(i >> 8), 1}, Worker: "w",
		}, newSink())
		if err != nil {
			t.Fatal(err)
		}
		ses.Subscribe(core.Subscription{
			Sub: 1, Queues: []core.GrantQueue{{Name: "shared"}, {Name: taskID(i).String()}}, Slots: 16, Batch: 16,
		})
	}
	// One task far away: a timer that is not due must not wake anybody either.
	p := l.propose(core.Commit{Ops: []core.Op{&core.TaskCreate{ID: taskID(1), Queue: "later", Delay: 24 * 3_600_000}}})
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	for l.node.Status().AppliedIndex < p.At.Index { // the answer comes before the status tells
		runtime.Gosched()
	}
	clock.step(loopTick)
	clock.step(loopTick)
	entries, index, wakes := l.log.Stats().Entries, l.node.Status().AppliedIndex, clock.wakes.Load()
	const ticks = 2000
	for range ticks {
		clock.step(loopTick)
	}
	if got := l.log.Stats().Entries; got != entries {
		t.Errorf("%d entries were appended", got-entries)
	}
	if got := l.node.Status().AppliedIndex; got != index {
		t.Errorf("%d entries were applied", got-index)
	}
	if got := clock.wakes.Load() - wakes; got > ticks {
		t.Errorf("the loop woke %d times in %d ticks", got, ticks)
	}
}
