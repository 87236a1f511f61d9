package load

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// uniqueKeys is how many unique keys the creates of a slice take in turn. Many more tasks than that end in a slice, so that each key is
// taken and freed again and again, and fewer are under way at once.
const uniqueKeys = 10_000

// UniqueKeys is Queue with creates that take one of many unique keys, which the end of their tasks frees, in slices of the window, and
// without in the others.
func UniqueKeys(ctx context.Context, rig *bench.Rig) error {
	e := &effectsRun{rig: rig, q: newQueueRun(rig), effects: []func(t *millrace.Task){func(*millrace.Task) {}}}
	var taken atomic.Uint64
	e.q.keyed = func() []millrace.AddOption {
		if e.kind.Load() == 0 {
			return nil
		}
		key := strconv.FormatUint(taken.Add(1)%uniqueKeys, 10)
		return []millrace.AddOption{millrace.UniqueKey(key, 0), millrace.UniqueUntil(millrace.UntilTerminal)}
	}
	e.find = func(ctx context.Context, c *millrace.Client, id string) error {
		_, err := c.Task(ctx, id)
		return err
	}
	_, err := e.run(ctx, "unique_cycles_per_s", "unique_ratio")
	return err
}
