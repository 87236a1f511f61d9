package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/fault"
)

// errStopped ends a wait for room in the database because the store closes.
var errStopped = errors.New("store is closing")

// poke tells the writer goroutine that a layer has begun or is full, or that a flush was asked for.
func (s *Store) poke() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run writes layers out until the store stops or fails. It is the only goroutine of the store.
// After a failure it wakes every Apply that waits for room, and then waits for Close.
func (s *Store) run() {
	defer close(s.stopped)
	timer := s.o.Clock.NewTimer(s.o.LayerAge)
	defer timer.Stop()
	for {
		select {
		case <-s.kick:
		case <-timer.C():
		case <-s.stop:
			return
		case <-s.dead:
			for _, sh := range s.all() {
				sh.wake()
			}
			<-s.stop
			return
		}
		next, err := s.writeDue()
		if err != nil && !errors.Is(err, errStopped) {
			s.fail(err)
		}
		timer.Reset(next)
	}
}

// writeDue writes the layers that are full, old or asked for, and returns when the next one is due.
// An error of one shard ends the round: it ends the store too.
func (s *Store) writeDue() (next time.Duration, err error) {
	flush := s.flushAsked.Swap(false)
	next = s.o.LayerAge
	for _, sh := range s.all() {
		due, err := sh.writeIfDue(flush)
		if err != nil {
			return next, err
		}
		next = min(next, due)
	}
	if flush {
		if _, err := s.db.AsyncFlush(); err != nil {
			return next, describe("start a flush", err)
		}
	}
	return max(next, time.Millisecond), nil
}

// writeIfDue writes the frozen layer, and the active one if it is old or now is set. It returns when to look again.
func (sh *Shard) writeIfDue(now bool) (next time.Duration, err error) {
	sh.writeMu.Lock()
	defer sh.writeMu.Unlock()
	if err := sh.writeFrozen(); err != nil {
		return 0, err
	}
	sh.mu.Lock()
	next = sh.s.o.LayerAge
	if sh.active.used {
		next = sh.active.born + sh.s.o.LayerAge - sh.s.o.Clock.Boot()
	}
	now = now && sh.active.used
	if (next <= 0 || now) && sh.frozen == nil {
		sh.freeze()
		next = sh.s.o.LayerAge
	}
	sh.mu.Unlock()
	return next, sh.writeFrozen()
}

// WriteLayer writes what is in memory to the database now: afterwards the database holds everything
// applied before the call. It does not make it durable. It is for callers that cannot wait for the
// writer goroutine, and for stores without one.
func (sh *Shard) WriteLayer() error {
	if !sh.s.use.enter() {
		return ErrClosed
	}
	defer sh.s.use.leave()
	sh.writeMu.Lock()
	defer sh.writeMu.Unlock()
	return sh.writeAll()
}

// writeAll writes both layers. The caller holds writeMu.
func (sh *Shard) writeAll() error { return sh.writeAllWhen(sh.s.awaitRoom) }

// writeAllWhen is writeAll that waits for room as await does.
func (sh *Shard) writeAllWhen(await func() error) error {
	if err := sh.writeFrozenWhen(await); err != nil {
		return err
	}
	sh.mu.Lock()
	if sh.active.used && sh.frozen == nil {
		sh.freeze()
	}
	sh.mu.Unlock()
	return sh.writeFrozenWhen(await)
}

// lockWriting takes writeMu, but does not wait behind a layer that waits for a full disk.
func (sh *Shard) lockWriting() error {
	for {
		if err := sh.s.usable(); err != nil {
			return err
		}
		if sh.writeMu.TryLock() {
			return nil
		}
		sh.s.pause(fullWaitMin)
	}
}

// writeFrozen writes the frozen layer, if there is one, and lets it go. The caller holds writeMu. Readers see the layer
// until it is gone, and it hides what the database gains from it, so there is no instant with a gap or a double.
func (sh *Shard) writeFrozen() error { return sh.writeFrozenWhen(sh.s.awaitRoom) }

// writeFrozenWhen is writeFrozen that waits for room as await does.
func (sh *Shard) writeFrozenWhen(await func() error) error {
	sh.mu.RLock()
	l := sh.frozen
	sh.mu.RUnlock()
	if l == nil {
		return nil
	}
	if err := await(); err != nil {
		return err
	}
	if err := sh.commit(l); err != nil {
		err = fmt.Errorf("write a layer of shard %d: %w", sh.id, err)
		sh.s.fail(err)
		return err
	}
	sh.mu.Lock()
	sh.frozen = nil
	sh.tops.merge()
	err := sh.tx.closePoints() // it knows the database as it was before
	sh.room.Broadcast()
	sh.mu.Unlock()
	if err != nil {
		return err
	}
	l.reset() // no reader is left: each holds mu while it reads
	sh.mu.Lock()
	sh.spare = l
	sh.mu.Unlock()
	return nil
}

// commit writes a layer as one batch that also holds the applied index and hash (R2). The batch
// lies in one memory table of the database, so a crash leaves all of it or nothing.
func (sh *Shard) commit(l *layer) error {
	if err := fault.Point("store.layer_frozen"); err != nil {
		return err
	}
	b := sh.s.db.NewBatchWithSize(int(l.size))
	written, err := sh.fill(b, l)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	size := b.Len()
	if err := sh.s.db.Apply(b, pebble.NoSync); err != nil {
		return describe("apply a batch", err)
	}
	if err := sh.s.err(); err != nil { // the database reports a failed write only to its logger
		return err
	}
	if err := b.Close(); err != nil {
		return describe("release a batch", err)
	}
	c := &sh.s.counts
	c.mutations.Add(written)
	if l.calls > written {
		c.elided.Add(l.calls - written)
	}
	c.layers.Add(1)
	c.bytes.Add(uint64(size))
	return fault.Point("store.layer_written")
}

// fill puts a layer into a batch: first the range deletes, which every entry of the layer is newer than.
func (sh *Shard) fill(b *pebble.Batch, l *layer) (written uint64, err error) {
	var key, end []byte
	for _, r := range l.spans {
		key = append(appendShard(key[:0], uint16(sh.id)), r.from...)
		end = sh.metaKey
		if r.to != nil {
			end = append(appendShard(nil, uint16(sh.id)), r.to...)
		}
		if err := b.DeleteRange(key, end, nil); err != nil {
			return 0, describe("fill a batch", err)
		}
		written++
	}
	defer sh.sorter.reset()
	entries := sh.sorter.sort(l)
	for i, e := range entries {
		if i+1 == len(entries) || !sameClass(e, entries[i+1]) {
			sh.tops.note(e.key)
		}
		key = append(appendShard(key[:0], uint16(sh.id)), e.key...)
		if e.live {
			err = b.Set(key, e.value, nil)
		} else {
			err = b.Delete(key, nil)
		}
		if err != nil {
			return 0, describe("fill a batch", err)
		}
		written++
	}
	return written, describe("fill a batch", b.Set(sh.metaKey, l.meta.append(nil), nil))
}

// Bounds of what the database may have unwritten or unsorted before a layer waits: memory tables in addition to the one in
// use, and sublevels of level 0, each of which a read may have to look into.
const (
	maxMemTables = 3
	maxSublevels = 20
)

// awaitRoom waits while the disk is full or the database is behind with its writes. While the store
// closes it waits for the database still, but not for a full disk.
func (s *Store) awaitRoom() error {
	for {
		if err := s.err(); err != nil {
			return err
		}
		if !s.Full() && !s.behind() {
			return nil
		}
		select {
		case <-s.closing:
			return errStopped
		case <-s.stop:
			if s.Full() {
				return errStopped
			}
		default:
		}
		s.pause(fullWaitMin)
	}
}

// awaitTurn waits while the database is behind with its writes, as long as the store is usable: not for a full disk.
func (s *Store) awaitTurn() error {
	for {
		if err := s.usable(); err != nil {
			return err
		}
		if !s.behind() {
			return nil
		}
		s.pause(fullWaitMin)
	}
}

// behind reports whether the database has fallen behind with flushes or compactions.
func (s *Store) behind() bool {
	m := s.db.Metrics()
	if m.MemTable.Count > maxMemTables && m.MemTable.Size > maxMemTables*uint64(s.o.MemoryBytes/memTableShare) {
		return true
	}
	return m.Levels[0].Sublevels > maxSublevels
}

// pause waits for d, or until the database has done something or the store fails or stops.
func (s *Store) pause(d time.Duration) {
	t := s.o.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
	case <-s.event:
	case <-s.dead:
	case <-s.closing:
	}
}

// Flush makes everything that is applied durable: afterwards Durable equals what Applied was when it was called.
func (s *Store) Flush() error {
	if !s.use.enter() {
		return ErrClosed
	}
	defer s.use.leave()
	return s.flush(func() bool { return false })
}

// RequestFlush asks for Flush soon, without waiting for it. With Manual the caller calls Flush instead.
func (s *Store) RequestFlush() {
	s.flushAsked.Store(true)
	s.poke()
}

// flush writes all layers and waits until the database has made them durable, or until giveUp says so.
func (s *Store) flush(giveUp func() bool) error {
	for _, sh := range s.all() {
		sh.writeMu.Lock()
		err := sh.writeAll()
		sh.writeMu.Unlock()
		if err != nil {
			return err
		}
	}
	return s.flushTables(func() error {
		if giveUp() {
			return errStopped
		}
		return nil
	})
}

// flushTables waits until the database has made durable what was written to it, or until giveUp returns an error.
func (s *Store) flushTables(giveUp func() error) error {
	done, err := s.db.AsyncFlush()
	if err != nil {
		return describe("start a flush", err)
	}
	for {
		select {
		case <-done:
			return nil
		case <-s.dead:
			return s.err()
		case <-s.closing:
			return errStopped
		default:
		}
		if err := giveUp(); err != nil {
			return err
		}
		s.await(done, fullWaitMin)
	}
}

// await waits for d, or until a flush is done or the store fails or stops.
func (s *Store) await(done <-chan struct{}, d time.Duration) {
	t := s.o.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
	case <-done:
	case <-s.dead:
	case <-s.closing:
	}
}

// lastFlush is the flush of a clean close. It gives up when the disk is full, because the log has everything.
func (s *Store) lastFlush() error {
	if s.err() != nil || s.Full() {
		return nil
	}
	err := s.flush(s.Full)
	if errors.Is(err, errStopped) || s.err() != nil {
		return nil
	}
	return err
}
