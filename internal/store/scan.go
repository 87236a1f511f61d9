package store

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// reader reads a shard at one instant: the active layer, over the frozen one, over the database. While it is used, its
// user holds the shard's lock, so the layers stay; what the database gains meanwhile is the frozen layer, which hides
// it. It is for one goroutine.
type reader struct {
	sh             *Shard
	active, frozen *layer
	iter           *pebble.Iterator // of the last scan, kept for the next; nil before and while one runs
	buf            []byte           // a key of the database
}

var _ core.View = (*reader)(nil)

// Get returns the value of key, and whether it is there.
func (r *reader) Get(key []byte) (value []byte, ok bool, err error) {
	if value, live, known := r.layered(key); known {
		return value, live, nil
	}
	r.buf = append(appendShard(r.buf[:0], uint16(r.sh.id)), key...)
	found, closer, err := r.sh.s.db.Get(r.buf)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, describe("read a key", err)
	}
	value = append([]byte{}, found...)
	if err := closer.Close(); err != nil {
		return nil, false, describe("read a key", err)
	}
	return value, true, nil
}

// layered looks key up in the layers. known reports whether they decide.
func (r *reader) layered(key []byte) (value []byte, live, known bool) {
	value, live, known = r.active.get(key)
	if !known && r.frozen != nil {
		value, live, known = r.frozen.get(key)
	}
	return value, live, known
}

// Scan calls fn for each key in [from, to) in order until it returns false. An empty to has no end. fn may change the
// state through the transaction that scans: changes ahead of the scan are seen, those behind it are not.
func (r *reader) Scan(from, to []byte, fn func(key, value []byte) bool) error {
	to = bound(to)
	if !before(from, to) {
		return nil
	}
	s := scan{reader: r, from: from, to: to}
	err := s.open()
	if err == nil {
		err = s.run(fn)
	}
	return errors.Join(err, s.close())
}

// close gives the database's resources back.
func (r *reader) close() error {
	it := r.iter
	r.iter = nil
	if it == nil {
		return nil
	}
	return describe("end a scan", it.Close())
}

// scan merges the sources of a reader. The newest source that knows a key decides it.
type scan struct {
	*reader
	from, to     []byte
	upper, lower cursor // the active and the frozen layer
	// disk is the iterator over the database's part of the range.
	disk    *pebble.Iterator
	diskKey []byte // without the shard; nil at the end
}

// open opens the three sources at the start of the range.
func (s *scan) open() error {
	shard := uint16(s.sh.id)
	s.buf = append(appendShard(s.buf[:0], shard), s.from...)
	split := len(s.buf)
	if s.to != nil {
		s.buf = append(appendShard(s.buf, shard), s.to...)
	}
	lower, upper := s.buf[:split:split], s.buf[split:]
	if s.to == nil || keys.Compare(upper, s.sh.metaKey) > 0 {
		upper = s.sh.metaKey
	}
	if s.disk, s.iter = s.iter, nil; s.disk != nil { // a scan inside this one's callback opens its own
		s.disk.SetBounds(lower, upper)
	} else {
		var err error
		if s.disk, err = s.sh.s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper}); err != nil {
			return describe("start a scan", err)
		}
	}
	s.upper.l, s.lower.l = s.active, s.frozen
	s.upper.seek(s.from, s.to)
	s.lower.seek(s.from, s.to)
	return s.onDisk(s.disk.First())
}

// onDisk notes where the iterator over the database stands.
func (s *scan) onDisk(valid bool) error {
	if valid {
		s.diskKey = s.disk.Key()[shardLen:]
		return nil
	}
	s.diskKey = nil
	return describe("scan", s.disk.Error())
}

// close keeps the iterator for the reader's next scan, unless it failed or another one is kept.
func (s *scan) close() error {
	s.upper.close()
	s.lower.close()
	if s.disk == nil {
		return nil
	}
	if s.iter == nil && s.disk.Error() == nil {
		s.iter = s.disk
		return nil
	}
	return describe("end a scan", s.disk.Close())
}

// run merges the sources. At each step it takes the lowest key ahead. The newest source that has
// the key decides whether it is shown, and with what value: the active layer, then the frozen one
// unless a range delete of the active one hides it, then the database likewise. Then every source
// that has the key moves on. If fn has changed the active layer, its cursor is placed again, behind
// the key.
func (s *scan) run(fn func(key, value []byte) bool) error {
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
		if show {
			version := s.active.version
			if !fn(key, value) {
				return nil
			}
			if s.active.version != version {
				s.reseek(key, up != nil)
				up = nil
			}
		}
		if err := s.advance(up != nil, low != nil, disk); err != nil {
			return err
		}
	}
}

// nearest returns what the sources hold of the lowest key ahead: nil and false for those that do not have it.
func (s *scan) nearest() (up, low *entry, disk bool) {
	up, low = s.upper.entry, s.lower.entry
	var key []byte
	if up != nil {
		key = up.key
	}
	if low != nil {
		switch c := compareOrNone(low.key, key); {
		case c < 0:
			up, key = nil, low.key
		case c > 0:
			low = nil
		}
	}
	if s.diskKey != nil {
		switch c := compareOrNone(s.diskKey, key); {
		case c < 0:
			return nil, nil, true
		case c == 0:
			disk = true
		}
	}
	return up, low, disk
}

// compareOrNone compares with a key that nil stands in for when there is none yet: everything lies below it.
func compareOrNone(a, b []byte) int {
	if b == nil {
		return -1
	}
	return keys.Compare(a, b)
}

// skipCovered jumps over keys of the database that a layer's range delete hides.
func (s *scan) skipCovered() (skipped bool, err error) {
	hide, ok := s.active.spanOf(s.diskKey)
	if !ok && s.frozen != nil {
		hide, ok = s.frozen.spanOf(s.diskKey)
	}
	if !ok {
		return false, nil
	}
	if hide.to == nil {
		s.diskKey = nil
		return true, nil
	}
	s.buf = append(appendShard(s.buf[:0], uint16(s.sh.id)), hide.to...)
	return true, s.onDisk(s.disk.SeekGE(s.buf))
}

// reseek finds the active layer's place again after the callback changed it: past key.
func (s *scan) reseek(key []byte, own bool) {
	if !own {
		key = bytes.Clone(key) // it may be the iterator's
	}
	if e := s.upper.seek(key, s.to); e != nil && keys.Compare(e.key, key) == 0 {
		s.upper.next()
	}
}

// advance moves on those sources that had the key.
func (s *scan) advance(up, low, disk bool) error {
	if up {
		s.upper.next()
	}
	if low {
		s.lower.next()
	}
	if disk {
		return s.onDisk(s.disk.Next())
	}
	return nil
}
