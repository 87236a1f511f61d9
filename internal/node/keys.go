package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/kv"
)

// Keys reads keys of one partition at one index: the first of them, fewer than there are when the values pass so many
// bytes, but one at least.
func (n *Node) Keys(ctx context.Context, p core.Partition, keyspace string, keys [][]byte, bytes int, o core.ReadOptions) (out []core.KeyRead, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		out, err = kv.GetEach(v, p, keyspace, keys, bytes)
		return err
	})
	return out, at, err
}
