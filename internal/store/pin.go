package store

import (
	"bytes"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/keys"
)

// Pinned is a range of a shard's state as of one applied entry. It stays as it was while the shard goes on, and is read
// once, from the front to the end, by Next, or from the end to the front, by Back. What it holds is small, but it keeps the
// database from removing what it may still read: it must be closed, before the store is. It is for one goroutine.
type Pinned struct {
	sh     *Shard
	index  uint64
	iter   *pebble.Iterator
	began  bool
	rows   []pinnedRow // of the layers, in order; what they know of a key hides the database
	active []span      // range deletes of the layers
	frozen []span
	// buf is a key of the database, for seeking.
	buf []byte
}

// pinnedRow is what the layers say of a key: its value, or, if live is false, that it is deleted.
type pinnedRow struct {
	key, value []byte
	live       bool
}

// Pin fixes the keys in [from, to) as they are now. An empty to has no end. What lies in memory is noted while Apply waits.
func (sh *Shard) Pin(from, to []byte) (_ *Pinned, err error) {
	if !sh.s.use.enter() {
		return nil, ErrClosed
	}
	p := &Pinned{sh: sh}
	defer func() {
		if err != nil {
			sh.s.use.leave()
		}
	}()
	to = bound(to)
	upper := sh.metaKey
	if to != nil {
		if u := append(appendShard(nil, uint16(sh.id)), to...); keys.Compare(u, upper) < 0 {
			upper = u
		}
	}
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	lower := append(appendShard(nil, uint16(sh.id)), from...)
	if !before(from, to) {
		upper = lower
	}
	if p.iter, err = sh.s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper}); err != nil {
		return nil, describe("start a scan", err)
	}
	p.index, _ = sh.Applied()
	p.active = sh.active.spans
	if sh.frozen != nil {
		p.frozen = sh.frozen.spans
	}
	if before(from, to) {
		p.note(sh.active, sh.frozen, from, to)
	}
	return p, nil
}

// note lists what the layers know of the range. The active layer hides the frozen one, by its
// entries and by its range deletes. Keys and values are not copied: an entry's bytes are never
// changed, only replaced.
func (p *Pinned) note(active, frozen *layer, from, to []byte) {
	up, low := cursor{l: active}, cursor{l: frozen}
	u, l := up.seek(from, to), low.seek(from, to)
	for u != nil || l != nil {
		order := -1
		switch {
		case u == nil:
			order = 1
		case l != nil:
			order = keys.Compare(u.key, l.key)
		}
		if order <= 0 {
			p.rows = append(p.rows, pinnedRow{u.key, u.value, u.live})
			u = up.next()
			if order == 0 {
				l = low.next()
			}
			continue
		}
		p.rows = append(p.rows, pinnedRow{l.key, l.value, l.live && !active.covered(l.key)})
		l = low.next()
	}
	up.close()
	low.close()
}

// Index returns the applied index of the state.
func (p *Pinned) Index() uint64 { return p.index }

// Next calls fn for each further key in order, until it returns false. key and value are valid only
// during the call. It merges the noted rows with the iterator; a row decides where both have a key.
// Keys of the database that a range delete hides are jumped over.
func (p *Pinned) Next(fn func(key, value []byte) bool) error {
	valid := p.iter.Valid()
	if !p.began {
		p.began = true
		valid = p.iter.First()
	}
	for {
		var disk []byte
		if valid {
			disk = p.iter.Key()[shardLen:]
		} else if err := p.iter.Error(); err != nil {
			return describe("scan", err)
		}
		if len(p.rows) > 0 && (disk == nil || keys.Compare(p.rows[0].key, disk) <= 0) {
			row := p.rows[0]
			p.rows = p.rows[1:]
			if disk != nil && bytes.Equal(row.key, disk) {
				valid = p.iter.Next()
			}
			if row.live && !fn(row.key, row.value) {
				return nil
			}
			continue
		}
		if disk == nil {
			return nil
		}
		if hide, ok := p.hidden(disk); ok {
			if hide.to != nil {
				valid = p.iter.SeekGE(p.stored(hide.to))
			} else {
				valid = p.iter.Last() && p.iter.Next()
			}
			continue
		}
		value, err := p.iter.ValueAndErr()
		if err != nil {
			return describe("scan", err)
		}
		more := fn(disk, value)
		valid = p.iter.Next()
		if !more {
			return nil
		}
	}
}

// Skip passes over the keys below one that is not before those which Next has given.
func (p *Pinned) Skip(key []byte) {
	p.began = true
	p.rows = p.rows[p.rowsBefore(key):]
	p.iter.SeekGE(p.stored(key))
}

// Back is Next from the end: it calls fn for each key before, in the opposite order.
func (p *Pinned) Back(fn func(key, value []byte) bool) error {
	valid := p.iter.Valid()
	if !p.began {
		p.began = true
		valid = p.iter.Last()
	}
	for {
		var disk []byte
		if valid {
			disk = p.iter.Key()[shardLen:]
		} else if err := p.iter.Error(); err != nil {
			return describe("scan", err)
		}
		if n := len(p.rows); n > 0 && (disk == nil || keys.Compare(p.rows[n-1].key, disk) >= 0) {
			row := p.rows[n-1]
			p.rows = p.rows[:n-1]
			if disk != nil && bytes.Equal(row.key, disk) {
				valid = p.iter.Prev()
			}
			if row.live && !fn(row.key, row.value) {
				return nil
			}
			continue
		}
		if disk == nil {
			return nil
		}
		if hide, ok := p.hidden(disk); ok {
			valid = p.iter.SeekLT(p.stored(hide.from))
			continue
		}
		value, err := p.iter.ValueAndErr()
		if err != nil {
			return describe("scan", err)
		}
		more := fn(disk, value)
		valid = p.iter.Prev()
		if !more {
			return nil
		}
	}
}

// SkipBack passes over the keys from one on that is not behind those which Back has given.
func (p *Pinned) SkipBack(key []byte) {
	p.began = true
	p.rows = p.rows[:p.rowsBefore(key)]
	p.iter.SeekLT(p.stored(key))
}

// rowsBefore counts the noted rows that are left before a key.
func (p *Pinned) rowsBefore(key []byte) int {
	n, _ := slices.BinarySearchFunc(p.rows, key, func(r pinnedRow, key []byte) int { return keys.Compare(r.key, key) })
	return n
}

// stored returns a key as the database has it, until the next call.
func (p *Pinned) stored(key []byte) []byte {
	p.buf = append(appendShard(p.buf[:0], uint16(p.sh.id)), key...)
	return p.buf
}

// hidden returns the range delete of a layer that hides a key of the database.
func (p *Pinned) hidden(key []byte) (span, bool) {
	for _, spans := range [...][]span{p.active, p.frozen} {
		if s, ok := (&layer{spans: spans}).spanOf(key); ok {
			return s, true
		}
	}
	return span{}, false
}

// Close lets go of the state. It may be called more than once.
func (p *Pinned) Close() error {
	if p.iter == nil {
		return nil
	}
	err := p.iter.Close()
	p.iter, p.rows = nil, nil
	p.sh.s.use.leave()
	return errors.Join(describe("end a scan", err))
}

// RangeBytes is about what the keys in [from, to) take on the disk of this node. What is deleted counts until it is
// compacted away; what is not written to files yet does not.
func (sh *Shard) RangeBytes(from, to []byte) (uint64, error) {
	if !sh.s.use.enter() {
		return 0, ErrClosed
	}
	defer sh.s.use.leave()
	upper := sh.metaKey
	if to = bound(to); to != nil {
		upper = append(appendShard(nil, uint16(sh.id)), to...)
	}
	n, err := sh.s.db.EstimateDiskUsage(append(appendShard(nil, uint16(sh.id)), from...), upper)
	return n, describe("measure a range", err)
}
