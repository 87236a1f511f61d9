package store

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// Pinned calls fn with the state as of one applied entry, while the shard goes on: for what reads much, or waits in
// between. It first writes what is in memory to the database, and holds an iterator until fn returns.
func (sh *Shard) Pinned(fn func(v core.View) error) error {
	if !sh.s.use.enter() {
		return ErrClosed
	}
	defer sh.s.use.leave()
	it, err := sh.pin()
	if err != nil {
		return err
	}
	v := &pinned{sh: sh, it: it}
	err = fn(v)
	return errors.Join(err, describe("end a scan", it.Close()))
}

// pinned is a View of one iterator. It needs no layers, since pin has written them to the database.
// A Get and a Scan move the same iterator.
type pinned struct {
	sh  *Shard
	it  *pebble.Iterator
	buf []byte
}

var _ core.View = (*pinned)(nil)

// Get returns the value of key, and whether it is there.
func (p *pinned) Get(key []byte) (value []byte, ok bool, err error) {
	p.buf = append(appendShard(p.buf[:0], uint16(p.sh.id)), key...)
	if !p.it.SeekGE(p.buf) {
		return nil, false, describe("read a key", p.it.Error())
	}
	if !bytes.Equal(p.it.Key(), p.buf) {
		return nil, false, nil
	}
	v, err := p.it.ValueAndErr()
	if err != nil {
		return nil, false, describe("read a key", err)
	}
	return bytes.Clone(v), true, nil
}

// Scan calls fn for each key in [from, to) in order until it returns false. fn must not read from the View.
func (p *pinned) Scan(from, to []byte, fn func(key, value []byte) bool) error {
	to = bound(to)
	start := append(appendShard(nil, uint16(p.sh.id)), from...)
	for ok := p.it.SeekGE(start); ok; ok = p.it.Next() {
		key := p.it.Key()[shardLen:]
		if to != nil && keys.Compare(key, to) >= 0 || bytes.Equal(p.it.Key(), p.sh.metaKey) {
			return nil
		}
		value, err := p.it.ValueAndErr()
		if err != nil {
			return describe("scan", err)
		}
		if !fn(key, value) {
			return nil
		}
	}
	return describe("scan", p.it.Error())
}

// ScanBack is Scan from the end of the range to its beginning.
func (p *pinned) ScanBack(from, to []byte, fn func(key, value []byte) bool) error {
	end := p.sh.metaKey
	if to = bound(to); to != nil {
		end = append(appendShard(nil, uint16(p.sh.id)), to...)
	}
	for ok := p.it.SeekLT(end); ok; ok = p.it.Prev() {
		key := p.it.Key()[shardLen:]
		if keys.Compare(key, from) < 0 {
			return nil
		}
		value, err := p.it.ValueAndErr()
		if err != nil {
			return describe("scan", err)
		}
		if !fn(key, value) {
			return nil
		}
	}
	return describe("scan", p.it.Error())
}
