package wal

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/fault"
)

// rotate goes on in a new segment that has room for a group of n bytes. All that is in the old one
// is synced (R8). It reports false when no segment is ready, or when it failed, which stops the
// log. A crash before the opening of the new segment is durable leaves the old one as the tip;
// after it, the opening says where the old one ends.
func (l *Log) rotate(n int64) bool {
	w := &l.writer
	if l.failure() != nil {
		return false
	}
	states := l.states()
	size := segmentHeaderBytes + openingSize(states, nil) + n + l.reserve()
	s, ok := l.takeSpare(size)
	if !ok {
		return false
	}
	if err := fault.Point("wal.rotate"); err != nil {
		l.fail(fmt.Errorf("begin segment %d: %w", w.next, err))
		return false
	}
	g, err := l.adopt(s, w.next)
	if noRoom(err) && l.giveBack(s) {
		return false
	}
	if err != nil {
		l.fail(err)
		return false
	}
	l.began.Store(int64(l.o.Clock.Boot()) + 1)
	defer l.began.Store(0)
	old := w.active
	from := opening{previous: old.number, previousEnd: w.off, previousFirst: old.first}
	if err := l.begin(g, from, states, nil); err != nil {
		l.fail(err)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old.end = from.previousEnd
	l.stats.Rotations++
	l.freeOldest()
	return true
}

// begin writes the header and the opening of a segment, syncs them, and makes it the one that is
// written to. The entries of again have their places in it afterwards. The opening is a batch of
// its own: it has the state of every shard, so that older segments are needed for their live
// entries alone.
func (l *Log) begin(g *segment, from opening, states []shardState, again []*change) error {
	w := &l.writer
	if len(w.enc.buf) > 0 {
		return fmt.Errorf("begin segment %d: %d bytes are not written", g.number, len(w.enc.buf))
	}
	w.enc.segment, w.enc.batch, w.enc.synced = g.number, w.batch+1, w.synced
	w.enc.buf = appendSegmentHeader(w.enc.buf[:0], g.number, l.mark.salt)
	w.enc.opening(from, states, again)
	finish(w.enc.buf[segmentHeaderBytes:], l.seed)
	n := int64(len(w.enc.buf))
	if err := l.write(g, w.enc.buf, 0); err != nil {
		return err
	}
	if err := l.sync(g); err != nil {
		return err
	}
	w.enc.buf = w.enc.buf[:0]
	w.batch++
	if !l.o.NoSync {
		w.synced = w.batch
	}
	g.first = w.batch
	w.active, w.off, w.next = g, n, g.number+1
	w.unsealed, w.wrote = true, l.o.Clock.Boot()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, g)
	off := segmentHeaderBytes + openingSize(states, nil)
	for _, c := range again {
		l.applyRewrite(l.tables[c.shard], c, g, off)
		off += c.size
	}
	return nil
}

// openingSize is the length of the group that opens a segment.
func openingSize(states []shardState, again []*change) int64 {
	n := int64(headerBytes + openingBytes)
	for _, s := range states {
		n += headerBytes + shardBytes + int64(len(s.HardState))
	}
	for _, c := range again {
		n += c.size
	}
	return n
}

// states returns the state of every shard, in order.
func (l *Log) states() []shardState {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]shardState, 0, len(l.tables))
	for _, id := range slices.Sorted(maps.Keys(l.tables)) {
		out = append(out, shardState{shard: id, ShardState: l.tables[id].state()})
	}
	return out
}

// takeSpare returns a spare of at least size bytes, or asks the keeper for one.
func (l *Log) takeSpare(size int64) (spare, bool) {
	size = max(size, l.o.SegmentBytes)
	if s, ok := l.popSpare(size); ok || !l.o.Manual {
		return s, ok
	}
	l.tend()
	return l.popSpare(size)
}

// popSpare takes the first spare that is large enough, or notes which size is wanted and wakes the
// keeper.
func (l *Log) popSpare(size int64) (spare, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.spares {
		if s.size >= size && len(l.spares) > startSpares { // the last ones are kept for starts
			l.spares = slices.Delete(l.spares, i, i+1)
			l.want = 0
			notify(l.keep)
			return s, true
		}
	}
	l.want = size
	notify(l.keep)
	return spare{}, false
}

// giveBack returns a spare whose name could not be changed for want of room, if it has its old name still. The writer
// tries again after a while.
func (l *Log) giveBack(s spare) bool {
	if _, err := l.o.FS.Size(l.path(spareName(s.number))); err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spares = append(l.spares, s)
	l.full, l.want = true, s.size
	return true
}
