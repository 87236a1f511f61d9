package node

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// Format returns the format that this node writes entries in: that of the cluster, as far as its replica of shard 0 knows.
// One that is behind writes an older one, which all know.
func (n *Node) Format() uint16 { return max(uint16(n.format.Load()), core.FormatFirst) }

// KnowsFormat reports whether this node's replica of shard 0 has applied commits: the first ones of a cluster say its format.
// The empty entry that opens a term says nothing of it.
func (n *Node) KnowsFormat() bool { return n.format.Load() != 0 }

// takeFormat goes by a format that shard 0's replica has applied. What is on the disk is told first, so that no older program
// starts with entries of it. Errors: *core.NewerFormatError where this program is too old: then nothing goes on.
func (n *Node) takeFormat(format uint16) error {
	old := n.Format()
	switch {
	case format > core.NewestFormat():
		return &core.NewerFormatError{Of: "the cluster", Found: format, Known: core.NewestFormat()}
	case format <= old:
		n.format.CompareAndSwap(0, uint32(old))
		return nil
	}
	if n.o.OnFormat != nil {
		if err := n.o.OnFormat(format); err != nil {
			return fmt.Errorf("keep format %d: %w", format, err)
		}
	}
	n.format.Store(uint32(format))
	n.o.Logger.Info("format of the cluster", "format", format, "before", old)
	return nil
}

// firstFormat returns the raise that the first entry of a new cluster carries: it has no older program to go back to, so it
// begins with the newest format that its first leader knows. It returns nil for other shards, and where any entry was
// applied before, which the stamp of the last one says.
func (s *shard) firstFormat(last core.ShardTime) *core.FormatRaise {
	if s.id != 0 || last != 0 || s.n.Format() >= core.NewestFormat() {
		return nil
	}
	return &core.FormatRaise{To: core.NewestFormat()}
}

// RaiseFormat has the leader of shard 0 make a format the active one, and returns when this node uses it. Errors: those
// of Forward and of Apply; core.DeadlineExceeded.
func (n *Node) RaiseFormat(ctx context.Context, op *core.FormatRaise) error {
	if _, err := n.proposeMember(ctx, op); err != nil {
		return err
	}
	if !n.waitFor(ctx, func() bool { return n.Format() >= op.To }) {
		return core.DeadlineExceeded{Unknown: true}
	}
	return nil
}
