package node

import (
	"fmt"

	"github.com/millrace/millrace/internal/replog"
)

// cuts is how far the logs were cut.
type cuts struct {
	// By shard: the index up to which its log was cut.
	at []uint64
	// Bytes of the log when the state was last made durable, or the log cut.
	bytes uint64
}

// keep looks after the disk and the log's length until the node stops.
func (n *Node) keep() {
	defer n.upkeep.Done()
	timer := n.o.Clock.NewTimer(n.o.DiskEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
		case err := <-n.o.Store.Err():
			n.fail(fmt.Errorf("store: %w", err))
			return
		case <-n.stopping:
			return
		}
		if err := n.tend(); err != nil {
			n.fail(err)
			return
		}
		timer.Reset(n.o.DiskEvery)
	}
}

// tend does once what keep does all the time.
func (n *Node) tend() error {
	n.checkDisk()
	n.clocks.ask(n, n.o.Clock.Boot())
	if err := n.tendQuotas(n.o.Clock.Boot()); err != nil {
		return fmt.Errorf("measure keyspaces: %w", err)
	}
	n.shareRates(n.o.Clock.Boot())
	n.sampleHistory(n.o.Clock.Boot())
	if err := n.tendRemovals(n.o.Clock.Boot()); err != nil {
		return fmt.Errorf("look for removals of namespaces: %w", err)
	}
	full := n.logFull()
	for i, s := range n.shards {
		d := s.store.Durable()
		if !s.alone.Load() && !full {
			d = min(d, s.view.safe.Load()) // a replica that is behind needs the rest
		}
		if hold := s.snap.hold.Load(); hold > 0 {
			d = min(d, hold) // and one that gets a snapshot what is behind it
		}
		if d > n.o.Log.State(s.id).Last { // the state came as a snapshot, and the log is about to restart behind it
			continue
		}
		if d > max(n.cuts.at[i], replog.FirstIndex) {
			if err := n.o.Log.Cut(s.id, d); err != nil {
				return fmt.Errorf("cut log of shard %d: %w", s.id, err)
			}
			n.cuts.at[i] = d
			n.cuts.bytes = n.o.Log.Stats().Bytes
		}
	}
	if n.o.Log.Stats().Bytes-n.cuts.bytes > min(n.o.LogKeep, n.logQuota()) { // what is not durable cannot be cut
		n.cuts.bytes = n.o.Log.Stats().Bytes
		n.o.Store.RequestFlush()
	}
	return nil
}

// logFull reports whether the log is longer than what is kept for nodes that are behind. Spares are not counted: to cut the
// log makes no fewer of them.
func (n *Node) logFull() bool { return n.o.Log.Stats().SegmentBytes > n.logQuota() }

// logQuota is how many bytes of log are kept for nodes that are behind.
func (n *Node) logQuota() uint64 {
	quota := n.o.LogQuota
	if quota == 0 {
		quota = 4 << 30
		if _, total, err := n.o.FS.Disk(n.o.Dir); err == nil {
			quota = min(quota, total/10)
		}
	}
	return quota
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

// checkDisk notes whether the disk is too full for new work: below the reserve, or when the log or the store cannot write.
// A write that found no room gets the ballast; it is held back again when there is room for it in addition to the reserve.
func (n *Node) checkDisk() {
	stuck := n.o.Log.Full() || n.o.Store.Full()
	full := stuck
	free, _, err := n.o.FS.Disk(n.o.Dir)
	if err == nil {
		reserve := n.diskReserve()
		if n.full.Load() {
			reserve += reserve / 8 // a little more than it takes to fill up, so that it does not flap
		}
		full = full || free < reserve
	}
	n.tendBallast(stuck, free)
	if was := n.full.Swap(full); was != full {
		n.o.Logger.Warn("disk", "full", full, "free", free)
	}
}

// tendBallast gives the ballast up when a write found no room, and takes it back when three times its size is free.
func (n *Node) tendBallast(stuck bool, free uint64) {
	b, size := n.o.Ballast, n.diskReserve()
	if b == nil || size == 0 {
		return
	}
	var err error
	switch has := b.HasBallast(); {
	case stuck && has:
		_, err = b.ReleaseBallast()
		n.o.Logger.Warn("disk full: the ballast is released", "bytes", size)
	case !stuck && !has && free > 3*size:
		err = b.ReserveBallast(int64(size))
	}
	if err != nil {
		n.o.Logger.Warn("ballast", "error", err)
	}
}
