package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// Shard is the state of one shard. One goroutine applies; any number read.
type Shard struct {
	s       *Store
	id      core.ShardID
	metaKey []byte

	// mu guards the fields below. The writer holds it for one entry and for the exchange of layers, readers share it.
	mu   sync.RWMutex
	room *sync.Cond // on mu: Apply may find room
	// active takes the changes of Apply. Only the applying goroutine changes it, and with mu held
	// exclusively.
	active *layer
	frozen *layer // being written, or waiting for it; nil if none
	// spare is an empty layer that becomes the active one at the next freeze; its memory is used
	// again.
	spare *layer
	// broken is why Apply is refused; it stays, because the state ends before the entry that
	// failed.
	broken error
	// tx is used again for each entry.
	tx Txn
	// tops is what is known of the highest keys in the database; see sorted.go.
	tops tops

	headMu sync.Mutex // guards head; apart from mu, so that it can be asked within a View
	head   shardMeta  // of the last entry published

	// writeMu is held while layers are written: one at a time, in order. It comes before mu.
	writeMu sync.Mutex
	sorter  sorter // guarded by writeMu

	verified atomic.Uint64 // hash of the description of the snapshot that was verified last

	durableMu sync.Mutex // guards the fields below
	// durable is the applied index that survives a power cut. It only grows.
	durable   uint64
	durableAt uint64 // flushes that had ended when durable was read
}

// newShard reads the shard's record, and begins with an empty layer over what is stored.
func newShard(s *Store, id core.ShardID) (*Shard, error) {
	sh := &Shard{s: s, id: id, metaKey: metaKey(uint16(id)), active: newLayer()}
	sh.room = sync.NewCond(&sh.mu)
	sh.tx.sh = sh
	flushes := s.flushes.Load()
	meta, err := sh.readMeta(s.db)
	if err != nil {
		return nil, err
	}
	sh.head, sh.active.meta = meta, meta
	sh.durable, sh.durableAt = meta.index, flushes // nothing is in the database yet but what was there at open
	return sh, nil
}

// readMeta reads the shard's record; a shard without one is new.
func (sh *Shard) readMeta(from pebble.Reader) (m shardMeta, err error) {
	b, closer, err := from.Get(sh.metaKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return m, nil
	}
	if err != nil {
		return m, describe("read the shard's record", err)
	}
	m, ok := decodeMeta(b)
	if !ok {
		err = errs.Corruptf("the record of shard %d is %x", sh.id, b)
	}
	return m, errors.Join(err, closer.Close())
}

// sortedShards returns the shards by id.
func sortedShards(m map[core.ShardID]*Shard) []*Shard {
	return slices.SortedFunc(maps.Values(m), func(a, b *Shard) int { return cmp.Compare(a.id, b.id) })
}

// Apply runs fn, which changes the state by one entry of the log, and publishes all of its changes at once with index
// as the applied index. index must be above the last one. An error of fn stops the shard: nothing of the entry remains,
// Apply is refused from then on, and readers see the state before it. Apply waits while two layers are unwritten.
//
// It is for one goroutine. fn must not use the shard but through tx.
//
// mu is held for the whole entry. The layer changes while fn runs, and no reader sees it; the head
// is set last. An index becomes visible together with the changes of its entry, or neither does.
func (sh *Shard) Apply(index uint64, fn func(tx *Txn) error) error {
	if !sh.s.use.enter() {
		return ErrClosed
	}
	defer sh.s.use.leave()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if err := sh.admit(); err != nil {
		return err
	}
	head := sh.head // only this goroutine changes it
	if index <= head.index {
		return fmt.Errorf("apply entry %d: entry %d is applied already", index, head.index)
	}
	tx := &sh.tx
	tx.active, tx.frozen = sh.active, sh.frozen
	tx.begin(index, head.hash)
	sh.broken = errPanic
	err := sh.runEntry(tx, fn)
	sh.broken = nil
	if err != nil {
		sh.broken = fmt.Errorf("entry %d: %w", index, err)
		return err
	}
	l := sh.active
	l.meta = shardMeta{index, tx.hash}
	if !l.used {
		l.used, l.born = true, sh.s.o.Clock.Boot()
		sh.s.poke()
	}
	sh.headMu.Lock()
	sh.head = l.meta
	sh.headMu.Unlock()
	return nil
}

// errPanic is what is left when fn does not return.
var errPanic = errors.New("an entry ended in a panic")

// runEntry runs fn and leaves the layer as it was unless fn succeeds.
func (sh *Shard) runEntry(tx *Txn, fn func(tx *Txn) error) (err error) {
	done := false
	defer func() {
		if !done {
			tx.abort()
			_ = tx.close()
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if tx.marked {
		return errs.Corruptf("a mark was left open")
	}
	if err := tx.close(); err != nil {
		return err
	}
	tx.end()
	done = true
	return nil
}

// admit waits until the active layer has room.
func (sh *Shard) admit() error {
	for {
		if sh.broken != nil {
			return fmt.Errorf("shard %d has stopped: %w", sh.id, sh.broken)
		}
		if err := sh.s.err(); err != nil {
			return fmt.Errorf("store has stopped: %w", err)
		}
		if sh.s.o.Manual || sh.active.size < sh.s.limit.Load() {
			return nil
		}
		if sh.frozen == nil {
			sh.freeze()
			sh.s.poke()
			return nil
		}
		select {
		case <-sh.s.stop:
			return ErrClosed
		default:
		}
		sh.s.counts.waits.Add(1)
		sh.room.Wait()
	}
}

// Busy reports whether Apply would wait if it were called now: for a reader, or for a layer to be written.
func (sh *Shard) Busy() bool {
	if !sh.mu.TryLock() {
		return true
	}
	defer sh.mu.Unlock()
	return sh.frozen != nil && sh.active.size >= sh.s.limit.Load()
}

// freeze makes the active layer the frozen one. The caller holds mu, and there is no frozen layer.
func (sh *Shard) freeze() {
	sh.frozen, sh.active, sh.spare = sh.active, sh.spare, nil
	if sh.active == nil {
		sh.active = newLayer()
	}
	sh.active.meta = sh.frozen.meta
}

// wake lets Apply look again whether it can go on.
func (sh *Shard) wake() {
	sh.mu.Lock()
	sh.room.Broadcast()
	sh.mu.Unlock()
}

// View calls fn with the state as of one applied entry. Apply waits for fn, so fn should be short and must not call
// View, Apply or WriteLayer. It never waits for the disk writes of a layer.
func (sh *Shard) View(fn func(v core.View) error) error {
	return sh.ViewAt(func(v core.View, _ uint64) error { return fn(v) })
}

// ViewAt is View that also tells the applied index of the state.
func (sh *Shard) ViewAt(fn func(v core.View, index uint64) error) error {
	if !sh.s.use.enter() {
		return ErrClosed
	}
	defer sh.s.use.leave()
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	r := &reader{sh: sh, active: sh.active, frozen: sh.frozen}
	index, _ := sh.Applied()
	err := fn(r, index)
	return errors.Join(err, r.close())
}

// Applied returns the index of the last entry applied, and the apply hash there. Both survive a crash only up to what
// Durable returns; the log brings the rest back.
func (sh *Shard) Applied() (index, hash uint64) {
	sh.headMu.Lock()
	defer sh.headMu.Unlock()
	return sh.head.index, sh.head.hash
}

// Durable returns the applied index of the state that survives a power cut, read back from what is synced.
func (sh *Shard) Durable() uint64 {
	sh.durableMu.Lock()
	defer sh.durableMu.Unlock()
	flushes := sh.s.flushes.Load()
	if flushes == sh.durableAt || !sh.s.use.enter() {
		return sh.durable
	}
	defer sh.s.use.leave()
	m, err := sh.readDurable()
	if err != nil {
		sh.s.fail(err)
		return sh.durable
	}
	// Install exchanges the state in the database before it tells so.
	applied, _ := sh.Applied()
	sh.durable, sh.durableAt = max(sh.durable, min(m.index, applied)), flushes
	return sh.durable
}

// readDurable reads the shard's record from what the database has on the disk and has synced,
// leaving out its memory tables.
func (sh *Shard) readDurable() (m shardMeta, err error) {
	it, err := sh.s.db.NewIter(&pebble.IterOptions{OnlyReadGuaranteedDurable: true, LowerBound: sh.metaKey})
	if err != nil {
		return m, describe("read what is durable", err)
	}
	if it.SeekGE(sh.metaKey) && string(it.Key()) == string(sh.metaKey) {
		var ok bool
		if m, ok = decodeMeta(it.Value()); !ok {
			err = errs.Corruptf("the record of shard %d is %x", sh.id, it.Value())
		}
	}
	return m, errors.Join(err, describe("read what is durable", it.Close()))
}
