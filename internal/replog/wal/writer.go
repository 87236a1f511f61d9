package wal

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/fault"
)

// writer is what only the goroutine that holds Log.turns touches.
type writer struct {
	// active is the segment that is written to.
	active *segment
	off    int64 // where the next batch goes
	// batch is the number of the last batch that was written.
	batch uint64
	// synced is the last batch that is known to be durable.
	synced uint64
	// next is the number of the next segment.
	next uint64
	// unsealed says that a batch was written since the last seal.
	unsealed bool
	// wrote is the boot time of the last batch.
	wrote time.Duration
	// armed says that the writer's goroutine will look whether a seal is due.
	armed bool
	// enc gathers the records of the next batch.
	enc encoder
	// in are the changes that are encoded and not yet written, in order.
	in []*change
	// work are the changes that were taken from the queue and not encoded yet, in order.
	work  []*change
	clean cleaner
}

// maxBatchBytes bounds one write, so that its waiters do not wait for much more than their own: a full queue is several
// batches. A single larger group is one write all the same.
const maxBatchBytes = 16 << 20

// keptBuffer bounds what stays allocated between writes.
const keptBuffer = 4 << 20

// cutReserve is room at the end of a segment that only cuts and a seal may take: on a full disk they still find it, and
// cuts free segments. It is 64 shards' cuts.
const cutReserve = 64*(headerBytes+pairBytes) + headerBytes

// Step does one turn, with Options.Manual: it takes everything queued, writes and syncs it, and calls Done. It also does
// what is due besides: a seal, cuts, a spare segment. It reports false when nothing was queued.
func (l *Log) Step() bool {
	l.turns.Lock()
	defer l.turns.Unlock()
	worked := l.turn()
	if !worked {
		l.sealIdle()
	}
	l.tend()
	return worked
}

// run is the writer's goroutine.
func (l *Log) run() {
	defer close(l.ended)
	timer := l.o.Clock.NewTimer(never)
	defer timer.Stop()
	for {
		next, again := l.round()
		if again {
			continue
		}
		timer.Reset(next)
		stopped, fired := wait(l.wake, l.stop, timer)
		if stopped {
			l.turns.Lock()
			l.finish()
			l.turns.Unlock()
			return
		}
		if fired {
			l.turns.Lock()
			l.sealIdle()
			l.turns.Unlock()
		}
	}
}

// round writes what is queued, and returns for how long the writer may sleep then. again says that it may not.
func (l *Log) round() (sleep time.Duration, again bool) {
	l.turns.Lock()
	defer l.turns.Unlock()
	w := &l.writer
	if l.turn() {
		return 0, true
	}
	switch w.armed = true; {
	case len(w.work) > 0: // it waits for room
		return retryAfter, false
	case l.sealDue():
		return l.o.SealAfter, false // also after a seal that had no room
	}
	w.armed = false
	return never, false
}

// turn writes everything that is queued. It reports whether it did anything.
//
// Pending cuts go first, since they may free a segment, and then changes in the order in which they
// came, for as long as they fit. When the segment or the batch is full, what is encoded is written,
// and a new segment begins if one is needed. If none is ready, the rest stays in work: order is
// kept, also on a full disk.
func (l *Log) turn() bool {
	w := &l.writer
	l.qmu.Lock()
	w.work, l.queue = append(w.work, l.queue...), nil
	fatal := l.fatal
	l.qmu.Unlock()
	if fatal != nil {
		return l.failAll(fatal)
	}
	cleaned := l.cleanOne()
	if len(w.work) == 0 && !cleaned && !l.cutsStuck() {
		return false
	}
	l.addCuts()
	worked := len(w.in) > 0
	for len(w.work) > 0 {
		c := w.work[0]
		switch fits, small := l.fits(c.size), int64(len(w.enc.buf))+c.size <= maxBatchBytes; {
		case fits && (small || len(w.enc.buf) == 0):
			l.encode(c)
			w.work[0], w.work = nil, w.work[1:]
			continue
		case len(w.enc.buf) > 0:
			if !l.flush() {
				return true
			}
		case !l.rotate(c.size):
			return worked // it waits for room on the disk, or the log has stopped
		}
		worked = true
	}
	return l.flush() || worked
}

// fits says whether a group of n bytes has room in the segment behind what is encoded.
func (l *Log) fits(n int64) bool {
	return l.writer.off+int64(len(l.writer.enc.buf))+n <= l.writer.active.size-l.reserve()
}

// reserve is cutReserve, or less in the small segments of tests.
func (l *Log) reserve() int64 { return min(cutReserve, l.o.SegmentBytes/8) }

// encode appends a change to the coming batch.
func (l *Log) encode(c *change) {
	w := &l.writer
	w.enc.segment, w.enc.batch, w.enc.synced = w.active.number, w.batch+1, w.synced
	w.enc.add(c, false)
	w.in = append(w.in, c)
}

// addCuts puts the pending cuts in front of a batch. It reports false when some had no room.
func (l *Log) addCuts() bool {
	w := &l.writer
	l.qmu.Lock()
	defer l.qmu.Unlock()
	for _, s := range slices.Sorted(maps.Keys(l.cuts)) {
		c := l.cuts[s]
		if replaces(w.work, c) || replaces(l.queue, c) {
			delete(l.cuts, s)
			continue
		}
		if w.off+int64(len(w.enc.buf))+c.size+headerBytes > w.active.size {
			return false
		}
		l.encode(c)
		delete(l.cuts, s)
	}
	return true
}

// replaces says whether a change writes an entry that a cut is to remove, or removes the cut's log.
func replaces(changes []*change, cut *change) bool {
	return slices.ContainsFunc(changes, func(c *change) bool {
		return c.shard == cut.shard && (c.kind == kindReset || len(c.entries) > 0 && c.entries[0].Index <= cut.index)
	})
}

// cutsStuck says whether cuts should be written at once, because work waits for the segments they free.
func (l *Log) cutsStuck() bool {
	l.mu.Lock()
	waiting := l.want > 0
	l.mu.Unlock()
	l.qmu.Lock()
	defer l.qmu.Unlock()
	return waiting && len(l.cuts) > 0
}

// flush writes and syncs what is encoded, then publishes and releases it. It reports whether there
// was anything and it is durable. After an error every change in the batch gets it: whether the
// batch is on the disk is not known, so the log stops.
func (l *Log) flush() bool {
	w := &l.writer
	if len(w.in) == 0 {
		return false
	}
	in := w.in
	w.in = nil
	err := l.failure() // the keeper's, or of a rotation in this turn
	if err == nil {
		if err = l.writeBatch(in); err != nil {
			l.fail(err)
			err = l.failure()
		}
	}
	if err != nil {
		for _, c := range in {
			l.account(c)
			c.end(err)
		}
		return false
	}
	return true
}

// writeBatch writes and syncs what is encoded. Only then it makes the changes visible and calls
// their Done, so that neither readers nor callers see what a power cut could take.
func (l *Log) writeBatch(in []*change) error {
	w := &l.writer
	n := int64(len(w.enc.buf))
	if n > 0 {
		l.began.Store(int64(l.o.Clock.Boot()) + 1)
		defer l.began.Store(0)
		finish(w.enc.buf, l.seed)
		if err := l.write(w.active, w.enc.buf, w.off); err != nil {
			return err
		}
		if err := l.sync(w.active); err != nil {
			return err
		}
		w.batch++
		if !l.o.NoSync {
			w.synced = w.batch
		}
		w.unsealed, w.wrote = true, l.o.Clock.Boot()
	}
	at := w.off
	w.off += n
	if w.enc.buf = w.enc.buf[:0]; cap(w.enc.buf) > keptBuffer {
		w.enc.buf = nil
	}
	l.publish(in, at)
	l.releaseWaiters(in)
	return nil
}

// releaseWaiters tells the callers that their changes are durable.
func (l *Log) releaseWaiters(in []*change) {
	for _, c := range in {
		l.account(c)
		c.end(nil)
	}
}

// account takes a change off the queued bytes.
func (l *Log) account(c *change) {
	if !c.queued {
		return
	}
	c.queued = false
	l.qmu.Lock()
	l.queued -= c.size
	l.qmu.Unlock()
}

// write puts whole records into a segment.
func (l *Log) write(g *segment, b []byte, off int64) error {
	if err := fault.Point("wal.write"); err != nil {
		return fmt.Errorf("write %s: %w", g.name, err)
	}
	if _, err := g.file.WriteAt(b, off); err != nil {
		return fmt.Errorf("write %s at offset %d: %w", g.name, off, err)
	}
	if err := fault.Point("wal.written"); err != nil {
		return fmt.Errorf("write %s: %w", g.name, err)
	}
	l.mu.Lock()
	l.stats.Bytes += uint64(len(b))
	l.stats.Batches++
	l.mu.Unlock()
	return nil
}

// sync makes what was written to a segment durable.
func (l *Log) sync(g *segment) error {
	if l.o.NoSync {
		return nil
	}
	err := g.file.SyncData()
	if err != nil {
		return fmt.Errorf("sync %s: %w", g.name, err)
	}
	if err := fault.Point("wal.synced"); err != nil {
		return fmt.Errorf("sync %s: %w", g.name, err)
	}
	l.mu.Lock()
	l.stats.Syncs++
	l.mu.Unlock()
	return nil
}

// publish makes durable changes visible. Their records begin at off in the active segment.
func (l *Log) publish(in []*change, off int64) {
	g := l.writer.active
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range in {
		l.apply(c, g, off)
		off += c.size
	}
	l.evict()
	l.freeOldest()
}

// apply applies one durable change to its shard's table. mu is held.
func (l *Log) apply(c *change, g *segment, off int64) {
	t := l.tables[c.shard]
	if t == nil && c.kind != kindSeal {
		t = newTable(c.shard)
		l.tables[c.shard] = t
	}
	switch c.kind {
	case kindEntry:
		l.applyEntries(t, c, g, off)
	case kindReset:
		l.cached -= t.recentBytes
		l.release(t.reset(c.index, c.term))
	case kindCut:
		l.cached -= t.recentBytes
		l.release(t.cutTo(c.index, c.term))
		l.cached += t.recentBytes
	case kindRewrite:
		l.applyRewrite(t, c, g, off)
	}
	if c.hard != nil {
		t.hardState = c.hard
	}
}

// applyEntries puts entries into the table, in the place of those from the first index on. mu is
// held.
func (l *Log) applyEntries(t *table, c *change, g *segment, off int64) {
	l.cached -= t.recentBytes
	for i, e := range c.entries {
		if i == 0 {
			l.release(t.truncate(e.Index))
		}
		p := position{term: e.Term, segment: uint32(g.number), off: uint32(off), n: uint32(len(e.Data))}
		g.hold(p)
		t.push(p)
		t.remember(e)
		off += p.recordBytes()
	}
	l.cached += t.recentBytes
	l.stats.Entries += uint64(len(c.entries))
}

// evict drops the oldest recent entries of the shard that has most of them, until the cache is small enough. mu is held.
func (l *Log) evict() {
	for l.cached > l.o.CacheBytes {
		var most *table
		for _, t := range l.tables {
			if most == nil || t.recentBytes > most.recentBytes {
				most = t
			}
		}
		l.cached -= most.recentBytes
		most.forgetOldest()
		l.cached += most.recentBytes
	}
}

// failAll ends everything that waits, with the error that stopped the log. None of it was handed to
// the disk.
func (l *Log) failAll(err error) bool {
	w := &l.writer
	in := append(w.in, w.work...)
	w.in, w.work, w.enc.buf = nil, nil, nil
	for _, c := range in {
		l.account(c)
		c.end(err)
	}
	return len(in) > 0
}
