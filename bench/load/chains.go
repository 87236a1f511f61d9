package load

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// chainsBacklog is how many tasks may have been created and not completed before producers stop: as many as a worker has slots.
const chainsBacklog = 4096

// Chains is Queue whose producers create, in turn, batches of single tasks, and chains as long, in which each task waits for the one
// before it. Producers of both kinds stop while too many tasks have not ended: a backlog of one kind would be worked off in the slices
// of the other.
func Chains(ctx context.Context, rig *bench.Rig) error {
	e := &effectsRun{
		rig: rig, q: newQueueRun(rig),
		effects: []func(t *millrace.Task){func(*millrace.Task) {}}, // the difference is in the creates
		find: func(ctx context.Context, c *millrace.Client, id string) error {
			t, err := c.Task(ctx, id)
			if err == nil && t.State != millrace.Completed {
				return fmt.Errorf("different: task %s is %s", id, t.State)
			}
			return err
		},
	}
	e.q.call = func(ctx context.Context, p *bench.Pump) {
		for e.q.create.Acked() > e.q.settle.Acked()+chainsBacklog {
			if bench.Pause(ctx, time.Millisecond) != nil {
				return
			}
		}
		if e.kind.Load() == 0 {
			e.q.createMany(ctx, p)
		} else {
			e.q.createMany(ctx, p, millrace.AfterPrevious())
		}
	}
	read, err := e.run(ctx, "chain_cycles_per_s", "chain_ratio")
	rig.Metric("tasks_read_back", float64(read), "tasks")
	return err
}
