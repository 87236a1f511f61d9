package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// image is what a log's directory holds. Building it changes nothing on disk.
type image struct {
	mark mark
	// marked says that there is a mark. Without one there is no log yet.
	marked bool
	// numbers are those of all segment files, ascending.
	numbers []uint64
	// spares are the numbers of all spare files, ascending.
	spares []uint64
	// chain has the segments that count, in order; the last is the tip.
	chain []link
	// tables are the shards as far as the chain was replayed.
	tables map[core.ShardID]*table
	// proven is the highest batch that a good record knew to be durable.
	proven uint64
	// last is the batch of the tip's last good record.
	last uint64
	// lastAt is where that batch begins in the tip.
	lastAt int64
	// opened is where the tip's opening group ends.
	opened int64
	// torn is where the tip's last write was cut off; nil: it is whole.
	torn *Damage
	// maxBatch is the highest batch that any good record has.
	maxBatch uint64
}

// link is one segment of the chain.
type link struct {
	number uint64
	// first is the batch of its opening.
	first uint64
	// end is where what counts of it ends. The opening of the next segment says it; of the tip it
	// is found out.
	end  int64
	size int64
	// open is its opening; empty in the lowest segment if that is damaged there.
	open opening
}

// Damage is a place in a file where records stop making sense.
type Damage struct {
	File   string
	Offset int64
}

// loader builds an image. It goes from the newest opening back to the oldest segment, and then
// replays forwards.
type loader struct {
	fs  env.FS
	dir string
	im  *image
	// seed is where the checksums of the log's records start.
	seed uint32
	open map[uint64]opening // of the segments whose opening is whole
	// above are the bad openings of segments behind the tip: begun when the power went, unless they prove otherwise.
	above []uint64
}

// load reads a log. It fails with a CorruptionError when something that was durable is damaged.
func load(fsys env.FS, dir string) (*image, error) {
	l := &loader{fs: fsys, dir: dir, im: &image{tables: make(map[core.ShardID]*table)}, open: make(map[uint64]opening)}
	if err := l.list(); err != nil {
		return nil, err
	}
	var err error
	if l.im.mark, l.im.marked, err = readMark(fsys, dir); err != nil {
		return nil, err
	}
	if !l.im.marked {
		if len(l.im.numbers) > 0 {
			return nil, &CorruptionError{File: filepath.Join(dir, markName), What: "missing, but there are segments"}
		}
		return l.im, nil
	}
	l.seed = l.im.mark.salt.seed()
	if err := l.findChain(); err != nil {
		return nil, err
	}
	for i := 0; i < len(l.im.chain); i++ {
		if err := l.replay(i); err != nil {
			return nil, err
		}
	}
	return l.im, l.settle()
}

// list notes the segments and the spares by the names of their files.
func (l *loader) list() error {
	names, err := l.fs.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", l.dir, err)
	}
	for _, name := range names {
		if n, ok := parseName(name, segmentSuffix); ok {
			l.im.numbers = append(l.im.numbers, n)
		} else if n, ok := parseName(name, spareSuffix); ok {
			l.im.spares = append(l.im.spares, n)
		}
	}
	slices.Sort(l.im.numbers)
	slices.Sort(l.im.spares)
	return nil
}

// reader opens a segment of the log.
func (l *loader) reader(number uint64) (*segmentReader, error) {
	return openReader(l.fs, l.dir, number, l.seed)
}

// findChain reads the openings. The newest whole one is the tip's; each names the segment before it, down to one that
// was recycled.
func (l *loader) findChain() error {
	for _, n := range l.im.numbers {
		if err := l.readOpening(n); err != nil {
			return err
		}
	}
	if len(l.open) == 0 {
		return l.noSegment()
	}
	tip := slices.Max(slices.Collect(maps.Keys(l.open)))
	for _, n := range l.im.numbers {
		if n > tip {
			l.above = append(l.above, n)
		}
	}
	o := l.open[tip]
	l.im.chain = []link{{number: tip, first: o.batch, open: o}}
	for o.previous != 0 && slices.Contains(l.im.numbers, o.previous) {
		at := link{number: o.previous, first: o.previousFirst, end: o.previousEnd}
		whole, ok := l.open[o.previous]
		at.open = whole
		l.im.chain = append(l.im.chain, at)
		if !ok {
			break
		}
		o = whole
	}
	slices.Reverse(l.im.chain)
	return nil
}

// readOpening notes the opening of a segment if it is whole.
func (l *loader) readOpening(n uint64) error {
	r, err := l.reader(n)
	if err != nil {
		return err
	}
	defer r.close()
	o, ok, err := r.readOpening(l.im.mark.salt)
	if err != nil {
		return err
	}
	if ok && o.previous < n {
		l.open[n] = o
	}
	return nil
}

// noSegment judges a log none of whose segments has a whole opening. It was being begun when the power went, or it is
// damaged: a segment is only recycled once the opening of a later one is durable, so then the very first is there.
func (l *loader) noSegment() error {
	for _, n := range l.im.numbers {
		e, err := l.evidenceIn(n)
		if err != nil {
			return err
		}
		if e.inOrder {
			return l.corruptOpening(n)
		}
		if n != 1 && !l.im.mark.unsynced {
			return l.corrupt(n, 0, "the opening is damaged, and no segment is whole")
		}
	}
	return nil
}

// evidenceIn looks for good records in all of a segment.
func (l *loader) evidenceIn(n uint64) (evidence, error) {
	r, err := l.reader(n)
	if err != nil {
		return evidence{}, err
	}
	defer r.close()
	return r.evidence(0)
}

// corruptOpening says where the opening of a segment stops making sense.
func (l *loader) corruptOpening(n uint64) error {
	r, err := l.reader(n)
	if err != nil {
		return err
	}
	defer r.close()
	off, err := goodEnd(r, l.im.mark.salt)
	if err != nil {
		return err
	}
	return l.corrupt(n, off, "the opening is damaged, and records follow that were written after it was synced")
}

// corrupt is the refusal to open the log, with file and place.
func (l *loader) corrupt(n uint64, off int64, what string) error {
	return &CorruptionError{File: filepath.Join(l.dir, segmentName(n)), Offset: off, What: what}
}

// replay takes the records of one segment of the chain. When it meets damage that may be a torn
// end, the chain ends there. Below the tip a segment must be whole up to the end that its successor
// names; what lies behind that does not count. The tip has no such end, so there the first record
// that is not good may be where the log ends.
func (l *loader) replay(i int) error {
	at := &l.im.chain[i]
	tip := i == len(l.im.chain)-1
	r, err := l.reader(at.number)
	if err != nil {
		return err
	}
	defer r.close()
	at.size = r.size
	ok, err := r.header(l.im.mark.salt)
	if err != nil {
		return err
	}
	c := newCursor(r)
	c.batch, c.complete = at.first, false // the damage, if the opening has it, is in this batch
	g := group{im: l.im, number: at.number, lowest: i == 0}
	kept := int64(0) // end of the last whole group
	for ok && (tip || c.off < at.end) {
		var rec record
		if rec, ok, err = c.next(); err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := g.add(rec); err != nil {
			return l.corrupt(at.number, rec.off, err.Error())
		}
		l.im.proven, l.im.maxBatch = max(l.im.proven, rec.synced), max(l.im.maxBatch, rec.batch)
		if rec.flags&flagMore == 0 {
			kept = rec.end()
			if rec.flags&flagOpening != 0 {
				l.im.opened = kept
			}
		}
	}
	if kept > 0 {
		l.im.last, l.im.lastAt = c.batch, c.start
	}
	if !tip && ok && kept == at.end {
		return nil
	}
	return l.judge(i, r, c, kept, ok)
}

// judge decides what the first bad record of a segment means, and ends the chain at it.
//
// The bad record belonged to a batch. If that batch was known to be synced, by any good record
// behind it, in this file or a later one, then it was whole once and is damaged now: the log does
// not open. If nothing says so, the power went during that write, and nothing in it was
// acknowledged: the log ends before it. A segment below the tip that ends in order, but not where
// its successor says, is damaged as well.
//
// The records of a log without syncs say nothing new, so a power cut only makes such a log shorter.
func (l *loader) judge(i int, r *segmentReader, c *cursor, kept int64, whole bool) error {
	tip := i == len(l.im.chain)-1
	at := &l.im.chain[i]
	bad := c.off
	if !c.started {
		bad = 0
	}
	e, err := r.evidence(c.off)
	if err != nil {
		return err
	}
	here := e
	for _, later := range l.im.chain[i+1:] {
		more, err := l.evidenceIn(later.number)
		if err != nil {
			return err
		}
		e.join(more)
	}
	if err := l.judgeAbove(&e); err != nil {
		return err
	}
	damaged := c.damagedBatch()
	refuse := e.synced >= damaged
	if refuse || whole && !tip {
		return l.corrupt(at.number, bad, "a record is damaged, and others follow that were written after it was synced")
	}
	if here.found || !tip || c.started && !c.complete || !c.started {
		l.im.torn = &Damage{File: r.name, Offset: bad}
	}
	l.im.chain = l.im.chain[:i+1]
	at.end = kept
	if kept == 0 { // not even the opening: the segment before is the tip
		l.im.chain = l.im.chain[:i]
	}
	return nil
}

// judgeAbove looks at the segments behind the tip. Each was being begun when the power went, unless it holds a record
// that was written after its opening was synced.
func (l *loader) judgeAbove(e *evidence) error {
	for _, n := range l.above {
		more, err := l.evidenceIn(n)
		if err != nil {
			return err
		}
		if more.inOrder {
			return l.corruptOpening(n)
		}
		e.join(more)
	}
	return nil
}

// settle ends recovery: no entry above a shard's cut may be missing, unless the log was written without syncs.
func (l *loader) settle() error {
	for _, id := range slices.Sorted(maps.Keys(l.im.tables)) {
		missing := l.im.tables[id].settle()
		if missing != 0 && !l.im.mark.unsynced {
			low := l.im.chain[0]
			return l.corrupt(low.open.previous, 0, fmt.Sprintf("the segment with entry %d of shard %d is missing", missing, id))
		}
	}
	return nil
}
