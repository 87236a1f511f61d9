package node

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
)

// SessionKeys reads the keys that seal sessions of browsers, as this node has applied them.
func (n *Node) SessionKeys() (k core.SessionKeys, err error) {
	err = n.shards[0].store.View(func(v core.View) error {
		k, err = commit.SessionKeys(v)
		return err
	})
	return k, err
}

// AddSessionKey has the leader of shard 0 add a key that seals sessions of browsers, and returns when this node has applied it; end
// ends all sessions.
func (n *Node) AddSessionKey(ctx context.Context, end bool) error {
	if n.Format() < core.FormatOperate {
		return core.Invalid{Field: "format", Reason: "not_supported", Message: fmt.Sprintf("keys of sessions are shared from format %d of the cluster on", core.FormatOperate)}
	}
	op := &core.SessionKeyAdd{Secret: make([]byte, core.SessionKeyBytes), End: end}
	n.o.Rand.Fill(op.Secret)
	if _, err := n.changeDirectory(ctx, op); err != nil {
		return err
	}
	return n.shards[0].barrier(ctx, core.ReadOptions{})
}
