package store

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// content is a hash over stored keys and values in order, and their number. It is the same for
// equal states, however they came about.
type content struct {
	hash uint64
	keys int
}

// add takes in the next key, in order, with its value.
func (c *content) add(key, value []byte) {
	c.hash = hash2(c.hash, hashSet, key, value)
	c.keys++
}

// ScanHash returns a hash over all keys and values of the shard as of index, and how many keys there are. Replicas with
// equal state at equal index have equal hashes. It first writes what is in memory to the database; it reads everything,
// while the shard goes on.
func (sh *Shard) ScanHash() (index, hash uint64, keys int, err error) {
	if !sh.s.use.enter() {
		return 0, 0, 0, ErrClosed
	}
	defer sh.s.use.leave()
	sh.writeMu.Lock()
	err = sh.writeAll()
	var it *pebble.Iterator
	if err == nil {
		it, err = sh.iterate()
	}
	sh.writeMu.Unlock()
	if err != nil {
		return 0, 0, 0, err
	}
	m, c, err := sh.walk(it, func(_, _ []byte) error { return sh.s.err() })
	return m.index, c.hash, c.keys, errors.Join(err, describe("end a scan", it.Close()))
}

// iterate returns an iterator over the shard as it is in the database, its record included. A snapshot of the database would
// not do for reads during an exchange of the state (Install): the exchange takes the files away from it, whereas an iterator
// keeps those that it began with.
func (sh *Shard) iterate() (*pebble.Iterator, error) {
	lower, upper := sh.bounds()
	it, err := sh.s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return it, describe("start a scan", err)
}

// bounds are those of all keys of the shard, its record included. Both are without a suffix.
func (sh *Shard) bounds() (lower, upper []byte) {
	return appendShard(nil, uint16(sh.id)), append(metaKey(uint16(sh.id)), 0)
}

// walk calls fn for all that an iterator has of the shard, with keys as the database has them, until fn fails. It returns what
// the shard's record says, if there is one, and the hash of all else.
func (sh *Shard) walk(it *pebble.Iterator, fn func(key, value []byte) error) (m shardMeta, c content, err error) {
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return m, c, describe("scan", err)
		}
		if key := it.Key(); !bytes.Equal(key, sh.metaKey) {
			c.add(key[shardLen:], value)
		} else if m, ok = decodeMeta(value); !ok {
			return m, c, errs.Corruptf("the record of shard %d is %x", sh.id, value)
		}
		if err := fn(it.Key(), value); err != nil {
			return m, c, err
		}
	}
	return m, c, describe("scan", it.Error())
}

// eachKey calls fn for all keys of a shard but its own record, in order, until it returns false.
func eachKey(from pebble.Reader, shard uint16, fn func(key, value []byte) bool) (err error) {
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: appendShard(nil, shard), UpperBound: metaKey(shard)})
	if err != nil {
		return describe("scan", err)
	}
	defer func() { err = errors.Join(err, describe("scan", it.Close())) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return describe("scan", err)
		}
		if !fn(it.Key()[shardLen:], value) {
			return nil
		}
	}
	return nil
}

// ShardReport is what Check found of one shard.
type ShardReport struct {
	// Shard is the number of the shard.
	Shard core.ShardID
	Index uint64 // applied
	// ApplyHash is the hash over all that was applied up to Index.
	ApplyHash   uint64
	ContentHash uint64 // as ScanHash
	// Keys is the number of keys.
	Keys     int
	Bytes    uint64                  // keys and values
	Services map[keys.Service]uint64 // keys of each
	Foreign  int                     // keys in no form this build knows
}

// Report is what Check found.
type Report struct {
	Shards []ShardReport // by id
	// DiskBytes is what the database's files take.
	DiskBytes uint64
}

// Check reads all of a store that no process uses, without changing it. Damage is returned as *errs.Corruption that
// names the file when it is known, with what was read before it.
func Check(o Options) (r Report, err error) { return Inspect(o, nil) }

// Inspect is Check that also shows each shard, as it was last written, to visit when that is not nil.
func Inspect(o Options, visit func(id core.ShardID, v core.View) error) (r Report, err error) {
	o = o.withDefaults()
	e := o.engineOptions()
	e.ReadOnly, e.ErrorIfNotExists = true, true
	// What the database calls fatal is damage here: it is kept, and returned with what was read.
	var damage error
	e.Logger = logger{o.Logger, func(err error) { damage = err }}
	db, err := pebble.Open(o.Dir, e)
	if err != nil {
		return r, describeOpen(o, err)
	}
	defer func() { err = errors.Join(err, damage, describe("close database", db.Close())) }()
	r.DiskBytes = db.Metrics().DiskSpaceUsage()
	var next []byte
	for {
		id, ok, err := nextShard(db, next)
		if err != nil || !ok {
			return r, err
		}
		s, err := checkShard(db, id)
		r.Shards = append(r.Shards, s)
		if err == nil && visit != nil {
			err = show(db, id, visit)
		}
		if err != nil {
			return r, fmt.Errorf("shard %d: %w", id, err)
		}
		if id == 1<<16-1 {
			return r, nil
		}
		next = appendShard(nil, id+1)
	}
}

// nextShard returns the first shard at or after a bound that has keys.
func nextShard(db *pebble.DB, from []byte) (id uint16, ok bool, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from})
	if err != nil {
		return 0, false, describe("scan", err)
	}
	if ok = it.First(); ok {
		if key := it.Key(); len(key) > shardLen {
			id = uint16(key[0])<<8 | uint16(key[1])
		} else {
			err = errs.Corruptf("key %x names no shard", key)
		}
	}
	return id, ok, errors.Join(err, describe("scan", it.Close()))
}

// show calls visit with the stored state of a shard, which has no layers.
func show(db *pebble.DB, id uint16, visit func(core.ShardID, core.View) error) error {
	sh := &Shard{id: core.ShardID(id), metaKey: metaKey(id), s: &Store{db: db}}
	v := &reader{sh: sh, active: newLayer()}
	return errors.Join(visit(sh.id, v), v.close())
}

// checkShard reads all of one shard. Each batch that writes keys of a shard also writes its record,
// so keys without one are damage.
func checkShard(db *pebble.DB, id uint16) (r ShardReport, err error) {
	sh := &Shard{id: core.ShardID(id), metaKey: metaKey(id)}
	r = ShardReport{Shard: sh.id, Services: map[keys.Service]uint64{}}
	m, err := sh.readMeta(db)
	if err != nil {
		return r, err
	}
	if m.index == 0 {
		return r, errs.Corruptf("there are keys of shard %d but no record of what was applied", id)
	}
	r.Index, r.ApplyHash = m.index, m.hash
	var c content
	err = eachKey(db, id, func(key, value []byte) bool {
		c.add(key, value)
		r.Bytes += uint64(len(key) + len(value))
		if _, service, ok := keys.PartitionOf(key); ok {
			r.Services[service]++
		} else {
			r.Foreign++
		}
		return true
	})
	r.ContentHash, r.Keys = c.hash, c.keys
	return r, err
}
