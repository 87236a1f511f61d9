package apitest

import (
	"context"

	"github.com/millrace/millrace/internal/core"
)

// Workers lists the workers that a test has set.
func (n *Node) Workers(_ context.Context, parts []core.PartitionInfo) (list []core.Worker, partial bool) {
	n.step()
	n.reach(parts[0].Partition)
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return append([]core.Worker(nil), n.Known...), false
}

// Quiet sets whether a worker is quiet.
func (n *Node) Quiet(_ context.Context, parts []core.PartitionInfo, id string, on bool) (changed bool, err error) {
	n.step()
	n.reach(parts[0].Partition)
	n.Mu.Lock()
	defer n.Mu.Unlock()
	for i := range n.Known {
		if w := &n.Known[i]; w.ID == id {
			changed = changed || w.Quiet != on
			w.Quiet = on
		}
	}
	return changed, nil
}
