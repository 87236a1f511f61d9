package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/fault"
)

// Open opens the log in o.Dir, or begins one. It cuts a torn end; a CorruptionError says that something durable is
// damaged, and then nothing on disk has changed. The end that nothing proves to be synced is written again, to a fresh
// segment: after a failed sync the system may show bytes that the disk never got.
func Open(o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	im, err := load(o.FS, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if err := fault.Point("wal.open"); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l := &Log{
		o: o, mark: im.mark, tables: im.tables,
		wake: make(chan struct{}, 1), keep: make(chan struct{}, 1),
		stop: make(chan struct{}), stopKeep: make(chan struct{}),
		ended: make(chan struct{}), endKeep: make(chan struct{}),
		ends: make(map[core.ShardID]uint64), floors: make(map[core.ShardID]uint64), cuts: make(map[core.ShardID]*change),
	}
	if err := l.start(im); err != nil {
		l.closeFiles()
		return nil, fmt.Errorf("open log: %w", err)
	}
	for id, t := range l.tables {
		l.ends[id], l.floors[id] = t.state().Last, t.cut
	}
	if !o.Manual {
		go l.run()
		go l.runKeeper()
	}
	notify(l.keep)
	return l, nil
}

// start makes the directory ready to be appended to. The order of its steps makes each crash a
// state that the next start understands:
//  1. The mark is durable before there is a segment.
//  2. The files of the chain and the spares are opened, and a chain that was written without syncs
//     is synced.
//  3. Files outside the chain are handed to the keeper.
//  4. A fresh segment begins. When its opening is durable, the log goes on from it; until then the
//     old tip is the tip.
//  5. A mark that says that syncs were left out is replaced, if this start does sync.
func (l *Log) start(im *image) error {
	if err := l.o.FS.MkdirAll(l.o.Dir); err != nil {
		return fmt.Errorf("make directory %s: %w", l.o.Dir, err)
	}
	if err := l.startMark(im); err != nil {
		return err
	}
	l.seed = l.mark.salt.seed()
	if err := l.openChain(im); err != nil {
		return err
	}
	if err := l.openSpares(im); err != nil {
		return err
	}
	if err := l.proveChain(im); err != nil {
		return err
	}
	l.writer.next = 1
	if n := len(im.numbers); n > 0 && (len(im.chain) > 0 || l.mark.unsynced) {
		l.writer.next = im.numbers[n-1] + 1
	}
	if err := l.openLeftovers(im); err != nil {
		return err
	}
	if err := l.startSegment(im); err != nil {
		return err
	}
	if l.mark.unsynced && !l.o.NoSync {
		l.mark.unsynced = false
		return writeMark(l.o.FS, l.o.Dir, l.mark)
	}
	return nil
}

// startMark begins a log, or notes that from now on it is written without syncs.
func (l *Log) startMark(im *image) error {
	if im.marked && (l.mark.unsynced || !l.o.NoSync) {
		return nil
	}
	if !im.marked {
		// Only this node ever sees these times, so no client can make records of its own that pass for ours.
		binary.LittleEndian.PutUint64(l.mark.salt[:], uint64(l.o.Clock.Wall().UnixNano()))
		binary.LittleEndian.PutUint64(l.mark.salt[8:], uint64(l.o.Clock.Boot()))
		if err := syncDir(l.o.FS, filepath.Dir(l.o.Dir)); err != nil {
			return err
		}
	}
	l.mark.unsynced = l.o.NoSync
	return writeMark(l.o.FS, l.o.Dir, l.mark)
}

// openChain opens the files of the chain and counts what is live in each. Files that were synced
// are opened for reading only: the log goes on in another one.
func (l *Log) openChain(im *image) error {
	for _, k := range im.chain {
		g := &segment{number: k.number, name: l.path(segmentName(k.number)), first: k.first, size: k.size, end: k.end}
		f, err := l.o.FS.Open(g.name)
		if err != nil {
			return fmt.Errorf("open %s: %w", g.name, err)
		}
		g.file = f
		l.segments = append(l.segments, g)
	}
	for _, t := range l.tables {
		for _, p := range t.pos {
			l.segmentOf(p.segment).hold(p)
		}
	}
	return nil
}

// openSpares notes the spares with their sizes, the fullest first: it is the one that the first
// segment takes.
func (l *Log) openSpares(im *image) error {
	l.keeper.next = 1
	for _, n := range im.spares {
		size, err := l.o.FS.Size(l.path(spareName(n)))
		if err != nil {
			return fmt.Errorf("open spare segment: %w", err)
		}
		l.spares = append(l.spares, spare{number: n, size: size})
		l.keeper.next = n + 1
	}
	slices.SortStableFunc(l.spares, func(a, b spare) int { return cmp.Compare(b.size, a.size) }) // the fullest first
	return nil
}

// proveChain syncs what a log without syncs left to the system. Nothing in it failed to sync, for
// nothing was tried, so that a sync now is to be believed. w.synced becomes the batch before the
// tip's last one: the last one itself is written again, and not relied on.
func (l *Log) proveChain(im *image) error {
	w := &l.writer
	w.batch, w.synced = im.maxBatch, im.proven
	if len(im.chain) == 0 {
		return nil
	}
	if l.o.NoSync {
		return nil
	}
	if im.mark.unsynced {
		for _, g := range l.segments {
			if err := g.file.SyncData(); err != nil {
				return fmt.Errorf("sync %s: %w", g.name, err)
			}
		}
		if err := l.syncNames(); err != nil {
			return err
		}
	}
	w.synced = max(im.last, 1) - 1
	return nil
}

// startSegment begins the segment that is written to from now on. What counts of the old tip ends before its last batch:
// that batch's live entries are written again, and when the tip holds little, all of its entries, so that many starts do
// not leave many segments.
func (l *Log) startSegment(im *image) error {
	var from opening
	var again []*change
	if n := len(im.chain); n > 0 {
		tip := im.chain[n-1]
		end := min(im.lastAt, tip.end)
		from = opening{previous: tip.number, previousEnd: end, previousFirst: tip.first}
		if end < im.opened || tip.end <= l.smallTip() {
			from, end = tip.open, 0
		}
		var err error
		if again, err = l.writeAgain(tip.number, end); err != nil {
			return err
		}
		l.segments[n-1].end = tip.end
	}
	states := l.states()
	size := segmentHeaderBytes + openingSize(states, again) + l.reserve()
	s, err := l.firstSpare(size)
	if noRoom(err) {
		if _, e := l.recycleFreed(); e != nil {
			return errors.Join(err, e)
		}
		s, err = l.firstSpare(size)
	}
	if err != nil {
		return err
	}
	g, err := l.adopt(s, l.writer.next)
	if err != nil {
		return err
	}
	if err := l.begin(g, from, states, again); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropFrom(from)
	l.freeOldest()
	return nil
}

// smallTip is how much a tip may hold to be written again as a whole: more on a full disk, where a segment is to be freed for
// each that is taken.
func (l *Log) smallTip() int64 {
	if len(l.spares) <= startSpares {
		return min(l.startSpare()*3/4, largestCopy)
	}
	return min(l.o.SegmentBytes/4, largestCopy)
}

// largestCopy bounds what is copied of a tip that holds little.
const largestCopy = 4 << 20

// writeAgain reads the live entries that lie in a segment from off on. They are found by the
// tables, so entries that were cut or replaced are left behind.
func (l *Log) writeAgain(number uint64, off int64) ([]*change, error) {
	var out []*change
	for _, id := range l.Shards() {
		t := l.tables[id]
		for i, p := range t.pos {
			if uint64(p.segment) != number || int64(p.off) < off {
				continue
			}
			e, err := l.readAt(id, t.first+uint64(i), p)
			if err != nil {
				return nil, fmt.Errorf("read the end of the log: %w", err)
			}
			out = append(out, &change{kind: kindRewrite, shard: id, index: e.Index, entries: []Entry{e}, old: p, size: p.recordBytes()})
		}
	}
	return out, nil
}

// firstSpare returns a spare of at least that size for the first segment of this run: the largest
// that there is, made whole if there is room. On a full disk a smaller one that has room for the
// opening must do.
func (l *Log) firstSpare(least int64) (s spare, err error) {
	if len(l.spares) > 0 {
		s, l.spares = l.spares[0], l.spares[1:]
	} else {
		s = spare{number: l.keeper.next}
		l.keeper.next++
	}
	for _, size := range []int64{max(least, l.o.SegmentBytes), least} {
		if s.size >= size {
			return s, nil
		}
		if err = l.makeSpare(&s, size); err == nil || !noRoom(err) {
			return s, err
		}
	}
	return s, err
}

// dropFrom frees the old tip when the new segment goes on from the one before it. mu is held.
func (l *Log) dropFrom(from opening) {
	if n := len(l.segments); n > 1 && l.segments[n-2].number != from.previous {
		l.freed = append(l.freed, l.segments[n-2])
		l.segments = slices.Delete(l.segments, n-2, n-1)
	}
}

// openLeftovers frees the segment files that are not part of the chain: they were being recycled or begun when the power was
// cut. One that has the number of the next segment is replaced by it.
func (l *Log) openLeftovers(im *image) error {
	for _, n := range im.numbers {
		if n == l.writer.next || slices.ContainsFunc(im.chain, func(k link) bool { return k.number == n }) {
			continue
		}
		r, err := openReader(l.o.FS, l.o.Dir, n, l.seed)
		if err != nil {
			return err
		}
		g := &segment{number: n, name: r.name, file: r.f, size: r.size}
		l.freed = append(l.freed, g)
		if g.end, err = goodEnd(r, l.mark.salt); err != nil {
			return err
		}
	}
	return nil
}

// goodEnd returns where the good records of a segment end, or 0 when it was never begun.
func goodEnd(r *segmentReader, s salt) (int64, error) {
	if ok, err := r.header(s); err != nil || !ok {
		return 0, err
	}
	c := newCursor(r)
	for {
		if _, ok, err := c.next(); err != nil || !ok {
			return c.off, err
		}
	}
}

// closeFiles closes what a failed start had opened.
func (l *Log) closeFiles() {
	for _, g := range append(l.segments, l.freed...) {
		_ = g.file.Close() // the start has failed for another reason
	}
}
