package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// The window is cut into slices in which completions bring a change of a key, and slices in which they do not, in turn:
// what slows the host slows both. A slice begins to count when the work of the one before it is through.
const (
	effectsSlices   = 10
	effectsKeyspace = "bench"
	effectsSample   = 1024 // one key in so many is read back
)

var effectsValue = []byte(`{"done":true}`)

// effectsRun is the cycle with and without a key for each completion.
type effectsRun struct {
	rig  *bench.Rig
	q    *queueRun
	with atomic.Bool

	mu   sync.Mutex // guards keys
	keys []string   // a sample of those that were attached

	bare, put effectsSide
}

// effectsSide is what was completed in the slices of one kind.
type effectsSide struct {
	done  uint64
	spent time.Duration
}

func (s effectsSide) rate() float64 {
	if s.spent <= 0 {
		return 0
	}
	return float64(s.done) / s.spent.Seconds()
}

// Effects is Queue with handlers that put a key of its own for each task, in the commit that completes it.
func Effects(ctx context.Context, rig *bench.Rig) error {
	e := &effectsRun{rig: rig, q: newQueueRun(rig)}
	e.q.onTask = e.attach
	slicing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.slice(slicing)
	}()
	err := e.q.run(ctx)
	stop()
	<-done
	bare, put := e.bare.rate(), e.put.rate()
	rig.Metric("kv_put_cycles_per_s", put, "cycles/s")
	rig.Metric("bare_cycles_per_s", bare, "cycles/s")
	if bare > 0 {
		rig.Metric("effects_ratio", put/bare, "×")
	}
	if err != nil || rig.Ceiling {
		return err
	}
	return e.readBack(ctx)
}

// attach gives a task its key.
func (e *effectsRun) attach(t *millrace.Task) {
	if !e.with.Load() {
		return
	}
	t.Effects().KV(effectsKeyspace).Put(t.ID, effectsValue)
	if e.rig.Ledger.Hash(t.ID)>>16%effectsSample == 0 {
		e.mu.Lock()
		e.keys = append(e.keys, t.ID)
		e.mu.Unlock()
	}
}

// slice changes sides through the window, and counts what each one completes.
func (e *effectsRun) slice(ctx context.Context) {
	select {
	case <-e.rig.Began():
	case <-ctx.Done():
		return
	}
	length := e.rig.Window / effectsSlices
	for n := range effectsSlices {
		side := &e.bare
		if n%2 == 1 {
			side = &e.put
		}
		e.with.Store(n%2 == 1)
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
		if bench.Pause(ctx, length-length/4-length*7/10) != nil {
			return
		}
	}
}

// readBack looks for the sampled keys: every task was completed, so each must be there.
func (e *effectsRun) readBack(ctx context.Context) error {
	c, err := e.rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it only reads
	e.mu.Lock()
	keys := e.keys
	e.mu.Unlock()
	for _, key := range keys {
		v, err := c.KV(effectsKeyspace).Get(ctx, key)
		if errors.Is(err, millrace.ErrNotFound) {
			return fmt.Errorf("lost: task %s is completed, and the key that it put with that is not there", key)
		}
		if err != nil {
			return fmt.Errorf("read key %s back: %w", key, err)
		}
		if string(v.Bytes) != string(effectsValue) {
			return fmt.Errorf("different: key %s holds %q", key, v.Bytes)
		}
	}
	e.rig.Metric("keys_read_back", float64(len(keys)), "keys")
	return nil
}
