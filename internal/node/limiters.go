package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Limiters reads up to limit limiters of a partition with a prefix, by name, behind a name.
func (n *Node) Limiters(ctx context.Context, p core.Partition, prefix, after string, limit int, o core.ReadOptions) (list []core.Limiter, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		list, err = queue.Limiters(v, p, prefix, after, limit, n.Now(p))
		for i := range list {
			show(shift, &list[i].Until)
		}
		return err
	})
	return list, at, err
}

// Limiter reads one limiter, with who holds it. NotFound says that there is none.
func (n *Node) Limiter(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (x core.Limiter, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		if x, ok, err = queue.Limiter(v, p, name, n.Now(p)); err == nil && !ok {
			return core.NotFound{Kind: "limiter", ID: name}
		}
		show(shift, &x.Until)
		return err
	})
	return x, at, err
}
