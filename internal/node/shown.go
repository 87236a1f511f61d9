package node

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
)

// What is stored is shard time; what readers are shown is what wall clocks show, shift beyond it. It is by the shift of the state
// that is read: when wall clocks are corrected, so is what is shown of times that went by the wrong ones. At.Stamp stays as it is.

// readShown is read with the shift of the state that is read.
func (n *Node) readShown(ctx context.Context, p core.Partition, o core.ReadOptions, fn func(v core.View, shift core.Millis) error) (core.At, error) {
	return n.read(ctx, p, o, func(v core.View) error {
		shift, err := commit.Shift(v)
		if err != nil {
			return err
		}
		return fn(v, shift)
	})
}

// Shift is what wall clocks show beyond the shard time of a partition, as this node has it.
func (n *Node) Shift(p core.Partition) core.Millis {
	s, err := n.shardOf(p)
	if err != nil {
		s = n.shards[0]
	}
	return core.Millis(s.view.shifted.Load())
}

// show moves times that are not 0 from shard time to what wall clocks show.
func show(shift core.Millis, times ...*core.ShardTime) {
	for _, t := range times {
		if *t != 0 {
			*t = t.Add(shift)
		}
	}
}

// showTask shows a task. RunAt is shown as the caller named it where it is by the wall clocks.
func showTask(t *core.Task, shift core.Millis) {
	show(shift, &t.CreatedAt, &t.ReadyAt, &t.StartedAt, &t.FinishedAt, &t.LeaseUntil, &t.Cancel.At, &t.Cancel.Until, &t.Progress.At)
	if !t.RunAtWall {
		show(shift, &t.RunAt)
	}
}

// showAssigned shows when tasks were created that a worker is given. LeaseUntil stays: what is told of it is how much is left. The
// tasks of the answer of Apply are not changed.
func showAssigned(tasks []core.Assigned, shift core.Millis) []core.Assigned {
	if shift == 0 || len(tasks) == 0 {
		return tasks
	}
	tasks = slices.Clone(tasks)
	for i := range tasks {
		show(shift, &tasks[i].CreatedAt)
	}
	return tasks
}
