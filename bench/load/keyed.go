package load

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// What tasks have of the keys of a row, which they take in turn.
const (
	// keyedLanes: a key, so that each key is a line of its own.
	keyedLanes = "keys"
	// keyedLimits: a key too, of which keyLimit tasks run at once.
	keyedLimits = "limits"
	keyLimit    = 4
	// keyedUnique: a unique key, which the end of the task frees. More tasks than there are keys end in a window, so that each key is taken
	// and freed again and again, and fewer are under way at once.
	keyedUnique = "unique"
)

// Keyed is Queue whose tasks have keys, as the row's kind says.
func Keyed(ctx context.Context, rig *bench.Rig) error {
	q := newQueueRun(rig)
	var taken atomic.Uint64
	next := func() string { return strconv.FormatUint(taken.Add(1)%uint64(rig.Shape.Keys), 10) }
	switch rig.Shape.Kind {
	case keyedLimits:
		if err := limitKeys(ctx, rig); err != nil {
			return err
		}
		q.keyed = func() []millrace.AddOption { return []millrace.AddOption{millrace.Key(next())} }
	case keyedLanes:
		q.keyed = func() []millrace.AddOption { return []millrace.AddOption{millrace.Key(next())} }
	case keyedUnique:
		q.keyed = func() []millrace.AddOption {
			return []millrace.AddOption{millrace.UniqueKey(next(), 0), millrace.UniqueUntil(millrace.UntilTerminal)}
		}
	}
	return q.run(ctx)
}

// limitKeys bounds how many tasks of each key of the row's queue run at once.
func limitKeys(ctx context.Context, rig *bench.Rig) error {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the call was answered, or an error tells
	if _, err := c.Queue(rig.Queue).Set(ctx, millrace.QueueConfig{PerKey: millrace.KeyLimits{Concurrency: keyLimit}}); err != nil {
		return fmt.Errorf("limit the keys of the queue: %w", err)
	}
	return nil
}
