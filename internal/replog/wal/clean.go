package wal

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// cleaner copies the live entries of the oldest segment forward, so that it can go: without it one
// idle shard would keep every segment since its last entry. It goes through the shards in order,
// and through each one's entries, a piece with each batch.
type cleaner struct {
	segment uint64 // being cleaned; 0 = none
	shard   int    // position in the order of shards
	index   uint64 // next entry of that shard to look at
	// order are the shards as they were when the cleaning of this segment began.
	order []core.ShardID
}

// cleanBytes is how much is copied forward with one batch, so that no waiter sees it.
const cleanBytes = 256 << 10

// cleanSlack is how many segments of dead bytes are let be.
const cleanSlack = 2

// cleanDue says whether more than half of what the older segments take on disk is dead, so that the oldest is worth
// copying: what is copied is then less than what is freed, before long. mu is held.
func (l *Log) cleanDue() bool {
	var size, live int64
	for _, g := range l.segments[:len(l.segments)-1] {
		size += g.size
		live += g.live
	}
	return size > 2*live+cleanSlack*l.o.SegmentBytes
}

// cleanOne encodes some live entries of the oldest segment into the coming batch. It reports
// whether it did. Changes of callers come first: it does nothing while some are encoded. An entry
// that cannot be read is damage, and stops the log.
func (l *Log) cleanOne() bool {
	w := &l.writer
	if len(w.in) > 0 {
		return false
	}
	changes, large := l.toClean()
	if len(changes) == 0 && large > 0 && l.rotate(large) {
		changes, _ = l.toClean()
	}
	for _, c := range changes {
		e, err := l.readAt(c.shard, c.index, c.old)
		if err != nil {
			l.unread(changes)
			l.fail(fmt.Errorf("write entry %d of shard %d again: %w", c.index, c.shard, err))
			return false
		}
		c.entries = []Entry{e}
	}
	l.unread(changes)
	for _, c := range changes {
		l.encode(c)
	}
	return len(changes) > 0
}

// toClean chooses the next live entries of the oldest segment, as many as have room, and holds it for reading. large is
// the size of the one that had none.
func (l *Log) toClean() (out []*change, large int64) {
	k := &l.writer.clean
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) < 2 {
		return nil, 0
	}
	g := l.segments[0]
	if k.segment != g.number {
		if !l.cleanDue() {
			return nil, 0
		}
		*k = cleaner{segment: g.number, order: slices.Sorted(maps.Keys(l.tables))}
	}
	var bytes int64
	for ; k.shard < len(k.order); k.shard, k.index = k.shard+1, 0 {
		t := l.tables[k.order[k.shard]]
		for k.index = max(k.index, t.first); k.index <= t.last(); k.index++ {
			p := t.at(k.index)
			if uint64(p.segment) != g.number {
				continue
			}
			n := p.recordBytes()
			if bytes > 0 && bytes+n > cleanBytes {
				return out, 0
			}
			if !l.fits(bytes + n) {
				return out, n
			}
			c := &change{kind: kindRewrite, shard: t.shard, index: k.index, old: *p, size: n}
			out = append(out, c)
			bytes += n
			g.readers++
		}
	}
	return out, 0
}

// unread ends the reading of what is to be written again.
func (l *Log) unread(changes []*change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if g := l.segmentOf(c.old.segment); g != nil {
			g.readers--
		}
	}
}

// applyRewrite moves a live entry to its new place. mu is held.
func (l *Log) applyRewrite(t *table, c *change, g *segment, off int64) {
	p := t.at(c.index)
	if p == nil || *p != c.old {
		return // cut or replaced in the same batch
	}
	l.release([]position{*p})
	p.segment, p.off = uint32(g.number), uint32(off)
	g.hold(*p)
	l.stats.Rewritten += uint64(p.recordBytes())
}
