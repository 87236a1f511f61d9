package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// bulkLooked is how many rows one count of CountBulk looks at. It bounds for how long it holds its view.
const bulkLooked = 10_000

// Bulks reads the bulk jobs of a partition, by id.
func (n *Node) Bulks(ctx context.Context, p core.Partition, o core.ReadOptions) (list []core.BulkJob, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		list, err = queue.Bulks(v, p)
		for i := range list {
			show(shift, &list[i].Started, &list[i].Ended)
		}
		return err
	})
	return list, at, err
}

// CountBulk counts a part of the tasks of a partition that a bulk job would find, from a cursor on, and shows up to sample of them.
func (n *Node) CountBulk(ctx context.Context, p core.Partition, op *core.BulkStart, cursor []byte, sample int) (c core.BulkCount, at core.At, err error) {
	at, err = n.readShown(ctx, p, core.ReadOptions{}, func(v core.View, shift core.Millis) error {
		c, err = queue.CountBulk(v, p, op, shift, cursor, bulkLooked, sample)
		for i := range c.Sample {
			showTask(&c.Sample[i], shift)
		}
		return err
	})
	return c, at, err
}
