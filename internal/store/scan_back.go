package store

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/keys"
)

// ScanBack is Scan from the end of [from, to) to its beginning. fn must not change the state.
func (r *reader) ScanBack(from, to []byte, fn func(key, value []byte) bool) error {
	to = bound(to)
	if !before(from, to) {
		return nil
	}
	s := backScan{reader: r}
	err := s.open(from, to)
	if err == nil {
		err = s.run(fn)
	}
	return errors.Join(err, s.close())
}

// backScan merges the sources of a reader, highest key first. The newest source that knows a key decides it, as in scan.
type backScan struct {
	*reader
	upper, lower backCursor // the active and the frozen layer
	disk         *pebble.Iterator
	diskKey      []byte // without the shard; nil at the end
}

// open opens the three sources at the end of the range.
func (s *backScan) open(from, to []byte) (err error) {
	shard := uint16(s.sh.id)
	lower := append(appendShard(nil, shard), from...)
	upper := s.sh.metaKey
	if to != nil {
		if end := append(appendShard(nil, shard), to...); keys.Compare(end, upper) < 0 {
			upper = end
		}
	}
	if s.disk, err = s.sh.s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper}); err != nil {
		return describe("start a scan", err)
	}
	s.upper.l, s.lower.l = s.active, s.frozen
	s.upper.seek(from, to)
	s.lower.seek(from, to)
	return s.onDisk(s.disk.Last())
}

// onDisk notes where the iterator over the database stands.
func (s *backScan) onDisk(valid bool) error {
	if valid {
		s.diskKey = s.disk.Key()[shardLen:]
		return nil
	}
	s.diskKey = nil
	return describe("scan", s.disk.Error())
}

// close gives the iterators back.
func (s *backScan) close() error {
	s.upper.close()
	s.lower.close()
	if s.disk == nil {
		return nil
	}
	return describe("end a scan", s.disk.Close())
}

// run takes the highest key ahead at each step, shows it if its newest source does, and moves all sources on that have it.
func (s *backScan) run(fn func(key, value []byte) bool) error {
	for {
		up, low, disk := s.nearest()
		var key, value []byte
		show := false
		switch {
		case up != nil:
			key, value, show = up.key, up.value, up.live
		case low != nil:
			key, value = low.key, low.value
			show = low.live && !s.active.covered(key)
		case disk:
			skipped, err := s.skipCovered()
			if err != nil {
				return err
			}
			if skipped {
				continue
			}
			if value, err = s.disk.ValueAndErr(); err != nil {
				return describe("scan", err)
			}
			key, show = s.diskKey, true
		default:
			return nil
		}
		if show && !fn(key, value) {
			return nil
		}
		if up != nil {
			s.upper.prev()
		}
		if low != nil {
			s.lower.prev()
		}
		if disk {
			if err := s.onDisk(s.disk.Prev()); err != nil {
				return err
			}
		}
	}
}

// nearest returns what the sources hold of the highest key ahead: nil and false for those that do not have it.
func (s *backScan) nearest() (up, low *entry, disk bool) {
	up, low = s.upper.entry, s.lower.entry
	var key []byte
	if up != nil {
		key = up.key
	}
	if low != nil {
		switch {
		case key == nil || keys.Compare(low.key, key) > 0:
			up, key = nil, low.key
		case keys.Compare(low.key, key) < 0:
			low = nil
		}
	}
	if s.diskKey != nil {
		switch {
		case key == nil || keys.Compare(s.diskKey, key) > 0:
			return nil, nil, true
		case keys.Compare(s.diskKey, key) == 0:
			disk = true
		}
	}
	return up, low, disk
}

// skipCovered jumps over keys of the database that a layer's range delete hides.
func (s *backScan) skipCovered() (skipped bool, err error) {
	hide, ok := s.active.spanOf(s.diskKey)
	if !ok && s.frozen != nil {
		hide, ok = s.frozen.spanOf(s.diskKey)
	}
	if !ok {
		return false, nil
	}
	return true, s.onDisk(s.disk.SeekLT(append(appendShard(nil, uint16(s.sh.id)), hide.from...)))
}

// backCursor walks the entries of a layer in [from, to) from the last to the first. The layer must not change while it is open.
type backCursor struct {
	cursor
}

// seek goes to the last entry before to, and returns it, or nil.
func (c *backCursor) seek(from, to []byte) *entry {
	c.close()
	c.from, c.to, c.entry = from, to, nil
	if c.l == nil || c.l.entries.len() == 0 {
		return nil
	}
	c.classes = c.l.order(from, to)
	return c.retreat()
}

// retreat opens the class before that has an entry in range.
func (c *backCursor) retreat() *entry {
	for n := len(c.classes); n > 0; n = len(c.classes) {
		tree := c.classes[n-1].tree
		c.classes = c.classes[:n-1]
		c.it.Init(tree, false)
		c.open = true
		if c.last() {
			return c.takeBack()
		}
		c.close()
	}
	c.entry = nil
	return nil
}

// last puts the iterator on the last entry of its tree before to.
func (c *backCursor) last() bool {
	if c.to == nil {
		return c.it.Last()
	}
	c.pivot.key = c.to
	if c.it.Seek(&c.pivot) {
		return c.it.Prev()
	}
	return c.it.Last()
}

// prev goes to the entry before, and returns it, or nil.
func (c *backCursor) prev() *entry {
	if !c.open {
		return nil
	}
	if c.it.Prev() {
		return c.takeBack()
	}
	c.close()
	return c.retreat()
}

// takeBack makes the tree's entry the cursor's own, unless it lies before the range.
func (c *backCursor) takeBack() *entry {
	e := c.it.Item()
	if keys.Compare(e.key, c.from) < 0 {
		c.close()
		c.classes, c.entry = nil, nil
		return nil
	}
	c.entry = e
	return e
}
