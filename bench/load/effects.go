package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// The window is cut into slices in which completions bring an effect, and slices in which they do
// not, in turn: what slows the host slows both. A slice begins to count when the work of the one
// before it is through.
const (
	// effectsRounds is the number of rounds, each with a slice of every kind.
	effectsRounds   = 5
	effectsKeyspace = "bench"
	// effectsSample says that one in 1,024 effects is read back.
	effectsSample = 1024
)

// effectsValue is the value of every key that an effect puts.
var effectsValue = []byte(`{"done":true}`)

// effectsRun is the cycle with and without effects for each completion. One goroutine changes kind
// through the window, while handlers on many goroutines read it.
type effectsRun struct {
	rig *bench.Rig
	// q is the queue's load, whose hooks this run uses.
	q *queueRun
	// kind is that of the slice under way: 0 is bare, and n has effects[n-1].
	kind atomic.Int32
	// effects are what handlers add to a task, one function for each kind that is not bare.
	effects []func(t *millrace.Task)
	// find reads the effect of a completed task. ErrNotFound means that it is lost.
	find func(ctx context.Context, c *millrace.Client, id string) error

	mu sync.Mutex // guards the fields below
	// tasks is a sample of the tasks that had an effect.
	tasks []string
	// open are the timed tasks that handlers have, by id.
	open map[string]effectsTask

	// sides are by kind. The slicing goroutine owns their counts; the others are read after it has ended.
	sides []effectsSide
	// counted says that every kind has completed something in a slice of its own.
	counted atomic.Bool
}

// effectsSide is what was completed in the slices of one kind: done tasks in the time spent.
type effectsSide struct {
	done  uint64
	spent time.Duration
	// create has the latencies of creates in its slices.
	create *bench.Op
	// complete has those of completions, from when the handler is given the task: with the calls
	// that it makes.
	complete *bench.Op
}

// effectsTask is a task whose handler has begun, and the kind that it was given.
type effectsTask struct {
	// kind is as in effectsRun.
	kind int32
	// began is when the handler was given the task.
	began time.Time
}

// rate is completions a second; 0 when no slice counted.
func (s effectsSide) rate() float64 {
	if s.spent <= 0 {
		return 0
	}
	return float64(s.done) / s.spent.Seconds()
}

// Effects is Queue with handlers that put a key of its own for each task, in the commit that completes it.
func Effects(ctx context.Context, rig *bench.Rig) error {
	e := newKeyEffects(rig)
	read, err := e.run(ctx, "kv_put_cycles_per_s", "effects_ratio")
	rig.Metric("keys_read_back", float64(read), "keys")
	return err
}

// newKeyEffects makes a run whose effect is one key for each task, under the task's id.
func newKeyEffects(rig *bench.Rig) *effectsRun {
	return &effectsRun{
		rig: rig, q: newQueueRun(rig),
		effects: []func(t *millrace.Task){func(t *millrace.Task) { t.Effects().KV(effectsKeyspace).Put(t.ID, effectsValue) }},
		find: func(ctx context.Context, c *millrace.Client, id string) error {
			v, err := c.KV(effectsKeyspace).Get(ctx, id)
			if err == nil && string(v.Bytes) != string(effectsValue) {
				return fmt.Errorf("different: key %s holds %q", id, v.Bytes)
			}
			return err
		},
	}
}

// tasksPrefix begins the names of the refs that effects make.
const tasksPrefix = "refs/tasks/"

// completeRef is Queue with handlers that make a ref for each task, in the commit that completes it.
func completeRef(ctx context.Context, rig *bench.Rig) error {
	stock, err := newRefsStock(ctx, rig)
	if err != nil {
		return err
	}
	e := &effectsRun{
		rig: rig, q: newQueueRun(rig),
		effects: []func(t *millrace.Task){func(t *millrace.Task) {
			t.Effects().Repo(refsRepo).Update(tasksPrefix+t.ID, "", stock.commits[0])
		}},
		find: func(ctx context.Context, c *millrace.Client, id string) error {
			r, err := c.Repo(refsRepo).Get(ctx, tasksPrefix+id)
			if err == nil && r.ID != stock.commits[0] {
				return fmt.Errorf("different: %s is at %s", r.Name, r.ID)
			}
			return err
		},
	}
	read, err := e.run(ctx, "ref_cycles_per_s", "ratio_to_completion")
	rig.Metric("refs_read_back", float64(read), "refs")
	return err
}

// run drives the cycle with and without one kind of effect, sets the rate with it and its ratio to
// the bare cycle under the given names, and returns how many effects were read back.
func (e *effectsRun) run(ctx context.Context, rate, ratio string) (read int, err error) {
	err = e.turns(ctx, "bare", "effect")
	bare, with := e.sides[0].rate(), e.sides[1].rate()
	e.rig.Metric(rate, with, "cycles/s")
	e.rig.Metric("bare_cycles_per_s", bare, "cycles/s")
	if bare > 0 {
		e.rig.Metric(ratio, with/bare, "×")
	}
	if err != nil || e.rig.Ceiling {
		return 0, err
	}
	return e.readBack(ctx)
}

// turns drives the cycle, all kinds in turn, whose names are given from kind 0 on. The window stays
// open until each kind has completed something.
func (e *effectsRun) turns(ctx context.Context, names ...string) error {
	e.q.onTask, e.q.onDone, e.q.onMade = e.attach, e.settled, e.made
	e.sides, e.open = make([]effectsSide, 1+len(e.effects)), map[string]effectsTask{}
	for i := range e.sides {
		e.sides[i].create, e.sides[i].complete = e.rig.Op(names[i]+"_create"), e.rig.Op(names[i]+"_complete")
	}
	e.rig.Held = func() bool { return !e.counted.Load() } // a ratio needs something of every kind
	slicing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.slice(slicing)
	}()
	err := e.q.run(ctx)
	stop()
	<-done
	return err
}

// attach gives a task the effect of the slice under way. A task in 64 is timed, and one in 1,024 is
// kept for the reading back.
func (e *effectsRun) attach(t *millrace.Task) {
	kind := e.kind.Load()
	// A task is traced by its hash, so settled chooses the same ones.
	if e.rig.Ledger.Traced(e.rig.Ledger.Hash(t.ID)) {
		e.mu.Lock()
		e.open[t.ID] = effectsTask{kind, time.Now()}
		e.mu.Unlock()
	}
	if kind == 0 {
		return
	}
	e.effects[kind-1](t)
	// The bits are others than those that choose traced tasks.
	if e.rig.Ledger.Hash(t.ID)>>16%effectsSample == 0 {
		e.mu.Lock()
		e.tasks = append(e.tasks, t.ID)
		e.mu.Unlock()
	}
}

// settled times a task whose completion was acknowledged, as one of the kind that its handler gave it.
func (e *effectsRun) settled(t *millrace.Task) {
	if !e.rig.Ledger.Traced(e.rig.Ledger.Hash(t.ID)) {
		return
	}
	e.mu.Lock()
	began, ok := e.open[t.ID]
	delete(e.open, t.ID)
	e.mu.Unlock()
	if ok {
		e.sides[began.kind].complete.Latency(0, time.Since(began.began))
	}
}

// made times a create that was acknowledged, as one of the kind whose slice it is. A create belongs
// to a slice by its answer.
func (e *effectsRun) made(p *bench.Pump) {
	e.sides[e.kind.Load()].create.Latency(p.Number, time.Since(p.Intended))
}

// slice changes the kind through the window, and counts what each kind completes. Of each slice the
// first quarter is not counted, since tasks of the kind before are still under way, and the last
// twentieth is not either.
func (e *effectsRun) slice(ctx context.Context) {
	select {
	case <-e.rig.Began():
	case <-ctx.Done():
		return
	}
	// planned is the number of slices that fit the window. More follow only while a kind has
	// nothing.
	planned := effectsRounds * len(e.sides)
	length := e.rig.Window / time.Duration(planned)
	for n := 0; n < planned || !e.counted.Load(); n++ {
		side := &e.sides[n%len(e.sides)]
		e.kind.Store(int32(n % len(e.sides)))
		if bench.Pause(ctx, length/4) != nil {
			return
		}
		began, before := time.Now(), e.q.settle.Acked()
		// The last slice ends a little before the window does, in which alone producers add.
		if bench.Pause(ctx, length*7/10) != nil || e.rig.Done() {
			return
		}
		side.done += e.q.settle.Acked() - before
		side.spent += time.Since(began)
		e.counted.Store(!slices.ContainsFunc(e.sides, func(s effectsSide) bool { return s.done == 0 }))
		if bench.Pause(ctx, length-length/4-length*7/10) != nil {
			return
		}
	}
}

// readBack looks for the sampled effects: every task was completed, so each must be there.
func (e *effectsRun) readBack(ctx context.Context) (int, error) {
	c, err := e.rig.Dial(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer c.Close() //nolint:errcheck // it only reads
	e.mu.Lock()
	// Handlers have ended, so the list does not change any more.
	tasks := e.tasks
	e.mu.Unlock()
	for _, id := range tasks {
		err := e.find(ctx, c, id)
		if errors.Is(err, millrace.ErrNotFound) {
			return 0, fmt.Errorf("lost: task %s is completed, and its effect is not there", id)
		}
		if err != nil {
			return 0, fmt.Errorf("read the effect of task %s back: %w", id, err)
		}
	}
	return len(tasks), nil
}
