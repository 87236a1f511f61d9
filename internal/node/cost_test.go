package node

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// slotsSink counts what a session has in flight.
type slotsSink struct {
	sink
	slots int
	t     *testing.T
	most  int // ever in flight
	now   int
}

func (s *slotsSink) Assign(sub uint32, tasks []core.Assigned, at core.At) bool {
	s.mu.Lock()
	s.now += len(tasks)
	s.most = max(s.most, s.now)
	if s.now > s.slots {
		s.t.Errorf("%d tasks in flight, with %d slots", s.now, s.slots)
	}
	s.mu.Unlock()
	return s.sink.Assign(sub, tasks, at)
}

// takeAll returns what has arrived, at most n, and counts it as settled: the slots are free once the settle is received.
func (s *slotsSink) takeAll(n int) []core.Assigned {
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks := s.tasks[:min(n, len(s.tasks)):min(n, len(s.tasks))]
	s.tasks = s.tasks[len(tasks):]
	if len(s.tasks) > 0 {
		s.poke()
	}
	s.now -= len(tasks)
	return tasks
}

// TestWhatABatchedRunCosts counts what cycles through sessions write and log. The bounds are the documented ones.
func TestWhatABatchedRunCosts(t *testing.T) {
	const payload, result, workers, slots = 100, 20, 4, 128
	total := shorter(48_000)
	l := openLong(t, longOptions{})
	defer l.close()
	l.must(&core.TaskCreate{ID: taskID(1 << 40), Queue: "warm"})
	sinks, sessions := make([]*slotsSink, workers), make([]core.Session, workers)
	for w := range workers {
		sinks[w] = &slotsSink{sink: sink{moved: make(chan struct{}, 1)}, slots: slots, t: t}
		ses, _, err := l.node.Session(t.Context(), l.ns, core.SessionSpec{ID: core.SessionID{byte(w + 1)}, Worker: "worker"}, sinks[w])
		if err != nil {
			t.Fatal(err)
		}
		ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: "q"}}, Slots: slots, Batch: 32})
		sessions[w] = ses
	}
	before := l.node.Status()
	var running, settled sync.WaitGroup
	settled.Add(total)
	stop := make(chan struct{})
	for w, k := range sinks {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-k.moved:
				}
				tasks := k.takeAll(32)
				commits, holds := make([]core.Commit, len(tasks)), make([]core.TaskHold, len(tasks))
				for i, a := range tasks {
					commits[i] = core.Commit{Partition: l.ns, Principal: "test", Ops: []core.Op{
						&core.TaskComplete{Task: a.Task, Token: a.Token, Result: make([]byte, result)},
					}}
					holds[i] = core.TaskHold{Task: a.Task, Token: a.Token}
				}
				if len(tasks) > 0 {
					sessions[w].Settle(l.ns, commits, holds, func(p core.Proposed) {
						for i := range tasks {
							if p.Err != nil || p.Results[i].Refusal != nil {
								t.Errorf("settle: %+v", p)
							}
							settled.Done()
						}
					})
				}
			}
		})
	}
	l.batches(total, 8, func(i int) core.Commit {
		return core.Commit{Ops: []core.Op{&core.TaskCreate{ID: taskID(i), Queue: "q", Payload: make([]byte, payload)}}}
	}, l.applied)
	settled.Wait()
	close(stop)
	running.Wait()
	if err := l.store.Flush(); err != nil {
		t.Fatal(err)
	}
	after := l.node.Status()
	per := func(n uint64) float64 { return float64(n) / float64(total) }
	writes, logged := per(after.StoreMutations-before.StoreMutations), per(after.LogBytes-before.LogBytes)
	entries := per(after.Entries - before.Entries)
	var most []int
	for _, k := range sinks {
		most = append(most, k.most)
	}
	t.Logf("per cycle of %d: %.2f changes of the store, %d+%d B of payload and result in %.0f B of log, %.4f entries; in flight at most %d of %d",
		total, writes, payload, result, logged, entries, slices.Max(most), slots)
	if writes > 5 {
		t.Errorf("%.2f changes of the store for one cycle", writes)
	}
	if logged > payload+result+350 {
		t.Errorf("%.0f B of log for a cycle with %d B of payload and result", logged, payload+result)
	}
	l.audit()
}

// TestSettlesReadNothingFromTheDatabase counts the blocks that the database is asked for, with all that is held written
// out. Completions ask for none. A settle that is repeated must look, which shows that looking would be seen.
func TestSettlesReadNothingFromTheDatabase(t *testing.T) {
	if errs.Invariants {
		t.Skip("with invariants the store looks for every key that is inserted")
	}
	const total = 2000
	l := openLong(t, longOptions{})
	defer func() { l.close() }()
	l.createAll(total, func(i int) *core.TaskCreate {
		return &core.TaskCreate{ID: taskID(i), Queue: "q", Payload: make([]byte, 300), Lease: 86_400_000}
	})
	held := l.claimUpTo("q", total)
	l.restart() // nothing is left in memory but what is opened with
	blocks := func() uint64 { st := l.store.Stats(); return st.CacheHits + st.CacheMisses }
	settle := func() uint64 {
		before := blocks()
		l.batches(total, 200, func(i int) core.Commit { return core.Commit{Ops: []core.Op{ending(held[i], i)}} }, l.applied)
		return blocks() - before
	}
	first := settle()
	l.restart()
	again := settle()
	t.Logf("%d settles ask for %d blocks, their repetition for %d", total, first, again)
	// One that fails reads what it was created with, once: its error is grouped by its kind, which a restart leaves on the disk.
	fails := uint64(0)
	for i := range total {
		if endState(i) == core.Dead {
			fails++
		}
	}
	if first > fails+total/20 { // a few for what an entry reads once, such as a row of a timer index
		t.Errorf("%d settles ask the database for %d blocks", total, first)
	}
	if again < total {
		t.Errorf("%d repeated settles ask for %d blocks: reads are not seen", total, again)
	}
}

// TestASubscriptionThatIsReplacedKeepsItsWindow asks again for the same slots while grants are in the log.
func TestASubscriptionThatIsReplacedKeepsItsWindow(t *testing.T) {
	const slots, total = 16, 4000
	l := openLong(t, longOptions{})
	defer l.close()
	k := &slotsSink{sink: sink{moved: make(chan struct{}, 1)}, slots: slots, t: t}
	ses, _, err := l.node.Session(t.Context(), l.ns, core.SessionSpec{ID: core.SessionID{1}, Worker: "worker"}, k)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() {
		ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: "q"}}, Slots: slots, Batch: 8})
	}
	ask()
	made := make(chan struct{})
	go func() {
		defer close(made)
		l.batches(total, 8, func(i int) core.Commit {
			return core.Commit{Ops: []core.Op{&core.TaskCreate{ID: taskID(i), Queue: "q"}}}
		}, l.applied)
	}()
	stop := make(chan struct{})
	var asking, settled sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-l.node.shards[0].advance.wait(): // the next entry is being made, or is in the log
				ask()
			}
		}
	})
	for done := 0; done < total; {
		<-k.moved
		tasks := k.takeAll(8)
		if len(tasks) == 0 {
			continue
		}
		done += len(tasks)
		commits, holds := make([]core.Commit, len(tasks)), make([]core.TaskHold, len(tasks))
		for i, a := range tasks {
			commits[i] = complete(a)
			commits[i].Partition = l.ns
			holds[i] = core.TaskHold{Task: a.Task, Token: a.Token}
		}
		settled.Add(1)
		ses.Settle(l.ns, commits, holds, func(core.Proposed) { settled.Done() })
	}
	settled.Wait()
	close(stop)
	l.must(&core.KVPut{Keyspace: "k", Key: []byte("x")}) // one more entry, for the one who asks
	asking.Wait()
	<-made
	if st := l.stats("q"); st.Completed != total {
		t.Errorf("%d of %d tasks are completed", st.Completed, total)
	}
}

// TestStreamsOfOneSessionThatTakeTurnsLoseNoSlot lets streams of one session replace each other while settles and grants
// of the one before are in the log: no slot may stay taken by a task that ended, and none be given twice.
func TestStreamsOfOneSessionThatTakeTurnsLoseNoSlot(t *testing.T) {
	const slots, total, streams = 8, 2000, 60
	l := openLong(t, longOptions{})
	defer l.close()
	made := make(chan struct{})
	go func() {
		defer close(made)
		l.batches(total, 4, func(i int) core.Commit {
			return core.Commit{Ops: []core.Op{&core.TaskCreate{ID: taskID(i), Queue: "q", Lease: 86_400_000}}}
		}, l.applied)
	}()
	var completed atomic.Uint64
	var settled sync.WaitGroup
	for n := range streams {
		k := &slotsSink{sink: sink{moved: make(chan struct{}, 1)}, slots: slots, t: t}
		ses, w, err := l.node.Session(t.Context(), l.ns, core.SessionSpec{ID: core.SessionID{1}, Worker: "worker"}, k)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Kept)+len(w.Lost) > 0 {
			t.Errorf("a stream that says it holds nothing is told %+v", w)
		}
		ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: "q"}}, Slots: slots, Batch: 8})
		for range 1 + n%5 {
			<-k.moved
			tasks := k.takeAll(8)
			commits, holds := make([]core.Commit, len(tasks)), make([]core.TaskHold, len(tasks))
			for i, a := range tasks {
				commits[i] = complete(a)
				commits[i].Partition = l.ns
				holds[i] = core.TaskHold{Task: a.Task, Token: a.Token}
			}
			if len(tasks) == 0 {
				break
			}
			settled.Add(1)
			ses.Settle(l.ns, commits, holds, func(p core.Proposed) {
				defer settled.Done()
				for _, r := range p.Results {
					if r.Refusal == nil && !r.Replayed { // one may be assigned again while its settle is in the log
						completed.Add(1)
					}
				}
			})
		}
		ses.Close() // with the last settle, and the grant that it allows, in the log
	}
	settled.Wait()
	<-made
	l.workOff()
	if st := l.stats("q"); st.Completed != completed.Load() || st.Created != total || st.Crashed != 0 {
		t.Errorf("%d completions were acknowledged: %+v", completed.Load(), st)
	}
	l.audit()
}
