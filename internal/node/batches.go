package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Batches reads the batches of a partition in the order in which they were opened, the last ones first, those with numbers below one (0:
// there is no bound): at most n, and about bytes of follow-ups. more says that others follow.
func (n *Node) Batches(ctx context.Context, p core.Partition, below uint64, most, bytes int, o core.ReadOptions) (list []core.Batch, more bool, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		list, more, err = queue.Batches(v, p, below, most, bytes)
		for i := range list {
			showBatchTimes(shift, &list[i])
		}
		return err
	})
	return list, more, at, err
}

// Batch reads a batch. NotFound says that there is none.
func (n *Node) Batch(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (b core.Batch, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		if b, ok, err = queue.BatchOf(v, p, id); err == nil && !ok {
			return core.NotFound{Kind: "batch", ID: id.String()}
		}
		showBatchTimes(shift, &b)
		return err
	})
	return b, at, err
}

// showBatchTimes shows the stamps of a batch as times of the wall clocks.
func showBatchTimes(shift core.Millis, b *core.Batch) {
	show(shift, &b.Opened, &b.Sealed, &b.Finished, &b.Cancel.At)
}

// WaitBatch returns a batch when it has finished. Its end wakes those who wait, as that of a task does.
func (n *Node) WaitBatch(ctx context.Context, p core.Partition, id core.TaskID) (b core.Batch, at core.At, err error) {
	err = n.awaitEnd(ctx, p, id, func() (core.State, error) {
		b, at, err = n.Batch(ctx, p, id, core.ReadOptions{})
		if b.State == core.BatchFinished {
			return core.Completed, err
		}
		return core.Running, err
	})
	return b, at, err
}
