package node

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env/envtest"
)

func TestTaskAndItsKeyCommitTogetherAndSurviveARestart(t *testing.T) {
	r := openRig(t, rigOptions{})
	id := taskID(1)
	r.must(&core.TaskCreate{ID: id, Queue: "thumbs", Payload: []byte(`{"n":1}`)})
	tasks := r.claim("thumbs", 1, 0)
	if len(tasks) != 1 || tasks[0].Task != id || string(tasks[0].Payload) != `{"n":1}` {
		t.Fatalf("claimed %+v", tasks)
	}
	p := r.propose(core.Commit{Ops: []core.Op{
		&core.TaskComplete{Task: id, Token: tasks[0].Token + 1, Result: []byte("x")},
		&core.KVPut{Keyspace: "thumbs", Key: []byte("7"), Value: []byte("stale")},
	}})
	if _, ok := p.Results[0].Refusal.Fact.(core.LeaseLost); !ok {
		t.Fatalf("a wrong token got %+v", p.Results[0])
	}
	if v, ok := r.key("thumbs", "7"); ok {
		t.Fatalf("the refused effect is visible: %q", v)
	}
	r.must(
		&core.TaskComplete{Task: id, Token: tasks[0].Token, Result: []byte("done")},
		&core.KVPut{Keyspace: "thumbs", Key: []byte("7"), Value: []byte("png")},
	)
	check := func() {
		t.Helper()
		task, _, err := r.node.Task(t.Context(), r.ns, id, core.ReadOptions{})
		if err != nil || task.State != core.Completed || string(task.Result) != "done" {
			t.Fatalf("task is %+v, %v", task, err)
		}
		if v, ok := r.key("thumbs", "7"); !ok || v != "png" {
			t.Fatalf("key is %q, %v", v, ok)
		}
	}
	check()
	r.close()
	r = openRig(t, rigOptions{disk: r.disk})
	defer r.close()
	check()
}

func TestAWaiterIsWokenByTheEnd(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	id := taskID(1)
	r.must(&core.TaskCreate{ID: id, Queue: "q"})
	got := make(chan core.State, 1)
	go func() {
		task, _, err := r.node.Wait(context.Background(), r.ns, id)
		if err != nil {
			t.Error(err)
		}
		got <- task.State
	}()
	a := r.claim("q", 1, 0)[0]
	r.must(&core.TaskComplete{Task: id, Token: a.Token})
	if s := <-got; s != core.Completed {
		t.Fatalf("woken with %v", s)
	}
}

// sink is a stream's side of a session, in memory.
type sink struct {
	mu    sync.Mutex // guards the fields below
	tasks []core.Assigned
	lost  []core.TaskHold
	gone  bool
	moved chan struct{}

	cancelled []core.TaskHold
	available int // how often it was told of tasks
}

func newSink() *sink { return &sink{moved: make(chan struct{}, 1)} }

func (s *sink) poke() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

func (s *sink) Assign(_ uint32, tasks []core.Assigned, _ core.At) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	s.tasks = append(s.tasks, tasks...)
	s.poke()
	return true
}

func (s *sink) End(core.Fact) {}

func (s *sink) LeaseLost(h core.TaskHold, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, h)
	s.poke()
}

func (s *sink) Cancel(h core.TaskHold, _ string, _ core.ShardTime) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled = append(s.cancelled, h)
	s.poke()
}

func (s *sink) Room() bool { return true }

func (s *sink) Available(uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.available++
	s.poke()
}

// told waits until it was told of tasks n times.
func (s *sink) told(n int) {
	for {
		s.mu.Lock()
		got := s.available
		s.mu.Unlock()
		if got >= n {
			return
		}
		<-s.moved
	}
}

// tells is how often it was told of tasks.
func (s *sink) tells() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.available
}

// take waits until n tasks have arrived and returns them.
func (s *sink) take(n int) []core.Assigned {
	for {
		s.mu.Lock()
		if len(s.tasks) >= n {
			out := s.tasks[:n:n]
			s.tasks = s.tasks[n:]
			s.mu.Unlock()
			return out
		}
		s.mu.Unlock()
		<-s.moved
	}
}

// cancels waits until the client was asked to stop n attempts.
func (s *sink) cancels(n int) []core.TaskHold {
	for {
		s.mu.Lock()
		out := s.cancelled
		s.mu.Unlock()
		if len(out) >= n {
			return out
		}
		<-s.moved
	}
}

func (r *rig) session(id byte, k *sink, held ...core.TaskHold) (core.Session, core.Welcome) {
	r.t.Helper()
	ses, w, err := r.node.Session(r.t.Context(), r.ns, core.SessionSpec{
		ID: core.SessionID{id}, Worker: "w" + strconv.Itoa(int(id)), Held: held,
	}, k)
	if err != nil {
		r.t.Fatalf("session: %v", err)
	}
	return ses, w
}

func subscription(queue string, slots uint32) core.Subscription {
	return core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: queue, Weight: 1}}, Slots: slots, Batch: 16}
}

func complete(a core.Assigned, effects ...core.Op) core.Commit {
	return core.Commit{Ops: append([]core.Op{&core.TaskComplete{Task: a.Task, Token: a.Token}}, effects...)}
}

// settle ends tasks on a session and waits for the results.
func (r *rig) settle(ses core.Session, tasks []core.Assigned) core.Proposed {
	return r.settleBy(ses, tasks, func(a core.Assigned) core.Commit { return complete(a) })
}

// settleBy settles tasks by a commit of each, and waits for the answer.
func (r *rig) settleBy(ses core.Session, tasks []core.Assigned, by func(core.Assigned) core.Commit) core.Proposed {
	commits := make([]core.Commit, len(tasks))
	holds := make([]core.TaskHold, len(tasks))
	for i, a := range tasks {
		commits[i] = by(a)
		commits[i].Partition = r.ns
		holds[i] = core.TaskHold{Task: a.Task, Token: a.Token}
	}
	done := make(chan core.Proposed, 1)
	ses.Settle(r.ns, commits, holds, func(p core.Proposed) { done <- p })
	return <-done
}

func TestEachTaskIsDeliveredOnceAndNeverBeyondTheWindow(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	const total, workers, window = 2000, 8, 16
	for i := range total {
		r.node.Propose(r.ns, []core.Commit{{
			Partition: r.ns, Ops: []core.Op{&core.TaskCreate{ID: taskID(i), Queue: "q"}},
		}}, func(p core.Proposed) {
			if p.Err != nil || p.Results[0].Refusal != nil {
				t.Errorf("create %d: %+v", i, p)
			}
		})
	}
	var mu sync.Mutex
	seen := make(map[core.TaskID]int)
	var left sync.WaitGroup
	left.Add(total)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for w := range workers {
		k := newSink()
		ses, _ := r.session(byte(w+1), k)
		ses.Subscribe(subscription("q", window))
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-k.moved:
				}
				k.mu.Lock()
				tasks := k.tasks
				k.tasks = nil
				k.mu.Unlock()
				if len(tasks) == 0 {
					continue
				}
				if n := len(ses.Held()); n > window {
					t.Errorf("%d tasks in flight in a window of %d", n, window)
				}
				p := r.settle(ses, tasks)
				for i, a := range tasks {
					if p.Err != nil || p.Results[i].Refusal != nil {
						t.Errorf("settle: %+v", p)
					}
					mu.Lock()
					seen[a.Task]++
					mu.Unlock()
					left.Done()
				}
			}
		})
	}
	left.Wait()
	close(stop)
	running.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("task %s was delivered %d times", id, n)
		}
	}
	stats, _, err := r.node.Queue(t.Context(), r.ns, "q", core.ReadOptions{})
	if err != nil || stats.States[core.Completed] != total || stats.Created != total {
		t.Errorf("counters: %+v, %v", stats, err)
	}
}

func TestASessionThatComesBackKeepsItsLeasesAndIsToldWhatItMissed(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	for i := range 3 {
		r.must(&core.TaskCreate{ID: taskID(i), Queue: "q"})
	}
	k := newSink()
	ses, _ := r.session(1, k)
	ses.Subscribe(subscription("q", 3))
	tasks := k.take(3)
	ses.Close()

	k2 := newSink()
	gone := core.TaskHold{Task: taskID(99), Token: 7}
	ses, w := r.session(1, k2, core.TaskHold{Task: tasks[0].Task, Token: tasks[0].Token}, gone)
	if len(w.Kept) != 1 || w.Kept[0].Task != tasks[0].Task || len(w.Lost) != 1 || w.Lost[0] != gone {
		t.Fatalf("welcome: %+v", w)
	}
	ses.Subscribe(subscription("q", 3))
	again := k2.take(2)
	for i, a := range again {
		if want := tasks[i+1]; a.Task != want.Task || a.Token != want.Token || a.Attempt != want.Attempt {
			t.Errorf("assigned again %+v, want %+v", a, want)
		}
	}
	if p := r.settle(ses, tasks); p.Err != nil {
		t.Fatal(p.Err)
	}
	task, _, err := r.node.Task(t.Context(), r.ns, tasks[2].Task, core.ReadOptions{})
	if err != nil || task.Crashes != 0 || task.State != core.Completed {
		t.Errorf("after all: %+v, %v", task, err)
	}
}

func TestAGrantToAStreamThatIsGoneIsReleasedAtOnce(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	dead := newSink()
	dead.gone = true
	ses, _ := r.session(1, dead)
	ses.Subscribe(subscription("q", 4))
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	k := newSink()
	other, _ := r.session(2, k)
	other.Subscribe(subscription("q", 4))
	a := k.take(1)[0]
	task, _, err := r.node.Task(t.Context(), r.ns, a.Task, core.ReadOptions{})
	if err != nil || task.Crashes != 0 || task.Failures != 0 || a.Attempt != 1 {
		t.Errorf("delivered again as %+v, task %+v, %v", a, task, err)
	}
}

func TestPausedWorkersChangeNothingWhenTheyWake(t *testing.T) {
	clock := envtest.NewClock(time.UnixMilli(1_700_000_000_000))
	r := openRig(t, rigOptions{clock: clock})
	const zombies = 10_000
	var created sync.WaitGroup
	for i := range zombies {
		created.Add(1)
		r.node.Propose(r.ns, []core.Commit{{Partition: r.ns, Ops: []core.Op{
			&core.TaskCreate{ID: taskID(i), Queue: "q", Lease: 30_000},
		}}}, func(p core.Proposed) {
			defer created.Done()
			if p.Err != nil || p.Results[0].Refusal != nil {
				t.Errorf("create %d: %+v", i, p)
			}
		})
	}
	created.Wait()
	var held []core.Assigned
	for len(held) < zombies {
		held = append(held, r.claim("q", 128, 0)...)
	}
	for { // the workers sleep past their leases; shard time goes on
		clock.Advance(5 * time.Second)
		stats, _, err := r.node.Queue(t.Context(), r.ns, "q", core.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if stats.States[core.Running] == 0 {
			break
		}
	}
	refused := 0
	var settled sync.WaitGroup
	var mu sync.Mutex
	for i, a := range held {
		settled.Add(1)
		c := complete(a,
			&core.KVPut{Keyspace: "out", Key: []byte(a.Task.String()), Value: []byte("zombie")},
			&core.TaskCreate{ID: taskID(zombies + i), Queue: "next"})
		c.Partition = r.ns
		r.node.Propose(r.ns, []core.Commit{c}, func(p core.Proposed) {
			defer settled.Done()
			mu.Lock()
			defer mu.Unlock()
			if p.Err == nil && p.Results[0].Refusal != nil {
				if _, ok := p.Results[0].Refusal.Fact.(core.LeaseLost); ok {
					refused++
				}
			}
		})
	}
	settled.Wait()
	if refused != zombies {
		t.Errorf("%d of %d stale settles were refused as LEASE_LOST", refused, zombies)
	}
	for i := range zombies {
		if v, ok := r.key("out", taskID(i).String()); ok {
			t.Fatalf("effect %q of a stale settle is visible", v)
		}
	}
	if _, _, err := r.node.Queue(t.Context(), r.ns, "next", core.ReadOptions{}); err == nil {
		t.Error("a follow-up task of a stale settle made its queue")
	}
	r.close()
}

func TestAWorkerThatStoppedIsGivenNothingMore(t *testing.T) {
	clock := envtest.NewClock(time.UnixMilli(1_700_000_000_000))
	r := openRig(t, rigOptions{clock: clock})
	defer r.close()
	for i := range 6 {
		r.must(&core.TaskCreate{ID: taskID(i), Queue: "q", Lease: 30_000})
	}
	k := newSink()
	ses, _ := r.session(1, k)
	ses.Subscribe(subscription("q", 2))
	k.take(2)
	for {
		clock.Advance(5 * time.Second)
		r.must(&core.KVPut{Keyspace: "k", Key: []byte("x"), Value: []byte("y")}) // an entry, in which a grant could ride
		k.mu.Lock()
		lost, more := len(k.lost), len(k.tasks)
		k.mu.Unlock()
		if more > 0 {
			t.Fatalf("%d tasks were given to a worker that lost its leases and said nothing", more)
		}
		if lost == 2 {
			break
		}
	}
	ses.Slots(1, 2)
	k.take(2)
}

func TestAStepOfTheWallClockMovesNoLease(t *testing.T) {
	clock := envtest.NewClock(time.UnixMilli(1_700_000_000_000))
	r := openRig(t, rigOptions{clock: clock})
	defer r.close()
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "q", Lease: 30_000})
	a := r.claim("q", 1, 0)[0]
	for _, step := range []time.Duration{time.Hour, -2 * time.Hour} {
		clock.StepWall(step)
		clock.Advance(time.Second)
		r.must(&core.KVPut{Keyspace: "k", Key: []byte("x"), Value: []byte("y")})
	}
	r.must(&core.TaskComplete{Task: a.Task, Token: a.Token})
}

func TestEverythingThatWaitsIsToldWhenTheNodeStops(t *testing.T) {
	r := openRig(t, rigOptions{})
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	ended := make(chan error, 2)
	go func() {
		_, _, err := r.node.Wait(context.Background(), r.ns, taskID(1))
		ended <- err
	}()
	go func() {
		_, _, err := r.node.Claim(context.Background(), r.ns, core.ClaimSpec{
			Queues: []core.GrantQueue{{Name: "empty"}}, Max: 1, Wait: 60_000,
		})
		ended <- err
	}()
	r.close()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a waiter ended without an error")
		}
	}
	r.node.Propose(r.ns, []core.Commit{{Partition: r.ns}}, func(p core.Proposed) {
		if u, ok := p.Err.(core.Unavailable); !ok || u.Unknown {
			t.Errorf("a proposal to a stopped node got %+v", p)
		}
	})
}
