package node

import (
	"bytes"
	"context"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/store"
)

// Keys reads keys of one partition at one index. It stops before the values take more than bytes: out may hold only the first
// of the keys, but holds at least one.
func (n *Node) Keys(ctx context.Context, p core.Partition, keyspace string, keys [][]byte, bytes int, o core.ReadOptions) (out []core.KeyRead, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		out, err = kv.GetEach(v, p, keyspace, keys, bytes)
		return err
	})
	return out, at, err
}

// KeyRange opens a range of keys of one partition as it is at o or later. Errors: NotFound when a keyspace that was asked
// for by its incarnation is gone.
func (n *Node) KeyRange(ctx context.Context, p core.Partition, r core.KeyRange, o core.ReadOptions) (core.KeyCursor, core.At, error) {
	s, err := n.shardOf(p)
	if err != nil {
		return nil, core.At{}, err
	}
	var incarnation uint32
	var from, to []byte
	at, err := n.read(ctx, p, o, func(v core.View) error {
		incarnation, from, to, err = kv.RangeOf(v, p, r)
		return err
	})
	switch {
	case err != nil:
		return nil, at, err
	case r.Incarnation != 0 && r.Incarnation != incarnation:
		return nil, at, core.NotFound{Kind: "keyspace", ID: r.Keyspace}
	case incarnation == 0:
		return &keyCursor{p: p, r: r}, at, nil
	}
	// A keyspace that is removed from here on has no keys any more: what is pinned is empty then, never another's.
	pin, err := s.store.Pin(from, to)
	if err != nil {
		return nil, at, err
	}
	at.Index = max(at.Index, pin.Index())
	return &keyCursor{p, r, incarnation, pin}, at, nil
}

// keyCursor reads a pinned range.
type keyCursor struct {
	p core.Partition
	r core.KeyRange // as it was asked for
	// Number of the keyspace: one of the same name that is made later has another.
	incarnation uint32
	// The range as it was when it was opened; nil: there is no key.
	pin *store.Pinned
}

// Incarnation is that of the keyspace; 0: there is none.
func (c *keyCursor) Incarnation() uint32 { return c.incarnation }

// Next returns further keys in order.
func (c *keyCursor) Next(items, limit int, values bool) (out []core.KeyPair, err error) {
	for c.pin != nil && len(out) < items && limit > 0 && err == nil {
		var many []byte // the last one stands for many keys: those of them that are left are passed over
		var bad error
		read := c.pin.Next
		if c.r.Desc {
			read = c.pin.Back
		}
		err = read(func(key, row []byte) bool {
			pair, err := kv.PairOf(key, row)
			if err != nil {
				bad = err
				return false
			}
			if pair = c.show(pair, values); pair.Many {
				many = pair.Key
			}
			limit -= len(pair.Key) + len(pair.Value)
			out = append(out, pair)
			return many == nil && len(out) < items && limit > 0
		})
		if bad != nil {
			err = bad
		}
		if many == nil {
			return out, err // the end, or enough
		}
		c.passOver(many)
	}
	return out, err
}

// show is what a pair is shown as. Its slices are copies.
func (c *keyCursor) show(pair core.KeyPair, values bool) core.KeyPair {
	if d := c.r.Delimiter; len(d) > 0 && len(pair.Key) >= c.r.Behind {
		if at := bytes.Index(pair.Key[c.r.Behind:], d); at >= 0 {
			return core.KeyPair{Key: bytes.Clone(pair.Key[:c.r.Behind+at+len(d)]), Many: true}
		}
	}
	pair.Key, pair.Size = bytes.Clone(pair.Key), len(pair.Value)
	switch {
	case !values:
		pair.Value = nil
	case c.r.Head > 0:
		pair.Value = append([]byte{}, pair.Value[:min(c.r.Head, len(pair.Value))]...)
	default:
		pair.Value = append([]byte{}, pair.Value...)
	}
	return pair
}

// passOver goes on behind the keys that begin with a prefix, or, from the end, before them.
func (c *keyCursor) passOver(prefix []byte) {
	from, to := keys.KVRange(c.p, c.incarnation, prefix)
	if c.r.Desc {
		c.pin.SkipBack(from)
		return
	}
	c.pin.Skip(to)
}

// Close lets go of the range.
func (c *keyCursor) Close() error {
	if c.pin == nil {
		return nil
	}
	return c.pin.Close()
}

// Keyspace reads one keyspace of a partition; with count, also how many keys it has, up to that many, and what they take on disk.
// NotFound when it is unknown.
func (n *Node) Keyspace(ctx context.Context, p core.Partition, name string, count uint64, o core.ReadOptions) (k core.KeyspaceInfo, at core.At, err error) {
	var from, to []byte
	at, err = n.read(ctx, p, o, func(v core.View) error {
		var ok bool
		if k, ok, err = kv.Space(v, p, name); err != nil {
			return err
		}
		if !ok {
			return core.NotFound{Kind: "keyspace", ID: name}
		}
		if count == 0 {
			return nil
		}
		if _, from, to, err = kv.RangeOf(v, p, core.KeyRange{Keyspace: name}); err != nil {
			return err
		}
		k.Keys, k.MoreKeys, err = kv.CountKeys(v, from, to, count)
		return err
	})
	if err != nil || count == 0 {
		return k, at, err
	}
	s, err := n.shardOf(p)
	if err == nil {
		k.Bytes, err = s.store.RangeBytes(from, to)
	}
	return k, at, err
}

// Keyspaces reads a page of a partition's keyspaces by name, after the name given.
func (n *Node) Keyspaces(ctx context.Context, p core.Partition, after string, limit int, o core.ReadOptions) (list []core.KeyspaceInfo, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		list, err = kv.Spaces(v, p, after, limit)
		return err
	})
	return list, at, err
}

// freshWithin reports whether what is applied here is surely no older than d: this is the only replica, or a majority was asked
// not longer ago, and all that it named is applied.
func (s *shard) freshWithin(d core.Millis) bool {
	if s.alone.Load() {
		return true
	}
	at := s.view.fresh.Load()
	return at != 0 && s.n.o.Clock.Boot()-time.Duration(at) <= d.Duration()
}

// freshAt notes that what was committed at a boot time is applied.
func (s *shard) freshAt(boot time.Duration) {
	for {
		old := s.view.fresh.Load()
		if int64(boot) <= old || s.view.fresh.CompareAndSwap(old, int64(boot)) {
			return
		}
	}
}
