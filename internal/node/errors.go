package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Errors reads the groups of errors of a partition, those with the highest counts first. Trends end with the hour that this node's wall
// clock shows: an idle partition has no stamps that tell of time.
func (n *Node) Errors(ctx context.Context, p core.Partition, q core.ErrorQuery) (page core.ErrorPage, at core.At, err error) {
	at, err = n.readShown(ctx, p, q.Read, func(v core.View, shift core.Millis) error {
		page, err = queue.Errors(v, p, q, core.ShardTimeOf(n.o.Clock.Wall()).Add(-shift))
		for i := range page.Groups {
			show(shift, &page.Groups[i].First, &page.Groups[i].Last)
		}
		return err
	})
	return page, at, err
}
