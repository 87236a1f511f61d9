package node

import (
	"fmt"

	"github.com/millrace/millrace/internal/replog"
)

// keep looks after the disk and the log's length until the node stops.
func (n *Node) keep() {
	defer n.upkeep.Done()
	timer := n.o.Clock.NewTimer(n.o.DiskEvery)
	defer timer.Stop()
	cut := make([]uint64, len(n.shards))
	var cutBytes uint64 // of the log when the state was last made durable
	for {
		select {
		case <-timer.C():
		case err := <-n.o.Store.Err():
			n.fail(fmt.Errorf("store: %w", err))
			return
		case <-n.stopping:
			return
		}
		n.checkDisk()
		for i, s := range n.shards {
			if d := s.store.Durable(); d > max(cut[i], replog.FirstIndex) {
				if err := n.o.Log.Cut(s.id, d); err != nil {
					n.fail(fmt.Errorf("cut log of shard %d: %w", s.id, err))
					return
				}
				cut[i] = d
				cutBytes = n.o.Log.Stats().Bytes
			}
		}
		if n.o.Log.Stats().Bytes-cutBytes > n.o.LogKeep {
			cutBytes = n.o.Log.Stats().Bytes
			n.o.Store.RequestFlush()
		}
		timer.Reset(n.o.DiskEvery)
	}
}

// diskReserve is the free space below which writes that need room are refused.
func (n *Node) diskReserve() uint64 {
	if n.o.DiskReserve > 0 {
		return n.o.DiskReserve
	}
	_, total, err := n.o.FS.Disk(n.o.Dir)
	if err != nil {
		return 0
	}
	return min(total/100, 1<<30)
}

// checkDisk notes whether the disk is too full for new work. It is full below the reserve, or when the log or the store
// cannot write; it has room again a little above the reserve, so that it does not flap.
func (n *Node) checkDisk() {
	full := n.o.Log.Full() || n.o.Store.Full()
	if free, _, err := n.o.FS.Disk(n.o.Dir); err == nil {
		reserve := n.diskReserve()
		if n.full.Load() {
			reserve += reserve / 8
		}
		full = full || free < reserve
	}
	if was := n.full.Swap(full); was != full {
		n.o.Logger.Warn("disk", "full", full)
	}
}
