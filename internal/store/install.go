package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/fault"
)

// Install replaces the shard's state by that of a snapshot whose files are in dir, on the file system of the store. It
// is durable when Install returns, and neither a reader nor a crash finds anything but all of the old state or all of the
// new. The files are gone then, or left.
//
// With an error the shard is as it was and goes on, unless the error is delivered on Err too. Errors: those of Verify; a
// disk that is full (IsFull), for which Install does not wait; ErrClosed; a snapshot that is not above the applied index.
//
// It is for the goroutine that applies.
func (sh *Shard) Install(dir string, snap Snapshot) error {
	if !sh.s.use.enter() {
		return ErrClosed
	}
	defer sh.s.use.leave()
	if err := sh.install(dir, snap); err != nil {
		return fmt.Errorf("install a snapshot of shard %d: %w", sh.id, err)
	}
	return nil
}

// install replaces the state in these steps. Until the last one the old state is whole and in use,
// for readers and after a crash:
//  1. The description fits this shard, and the files are what it says; they are durable then.
//  2. writeMu is taken, so that no layer of the shard is written from here on.
//  3. The database flushes its memory tables, and there is room for what the exchange writes.
//  4. The exchange: one edit of the database's manifest, and the end of both layers, under mu.
func (sh *Shard) install(dir string, snap Snapshot) error {
	s := sh.s
	if err := sh.expects(snap); err != nil {
		return err
	}
	if err := sh.verify(dir, snap); err != nil {
		return err
	}
	if err := sh.lockWriting(); err != nil {
		return err
	}
	defer sh.writeMu.Unlock()
	// What the database has of the shard in memory tables is flushed first, where waiting can be given up: the exchange would
	// wait for it, with readers excluded. Nothing of the shard is written meanwhile.
	switch err := s.flushTables(s.usable); {
	case errors.Is(err, errStopped):
		return ErrClosed
	case err != nil:
		return err
	}
	if err := s.probeRoom(dir, len(snap.Files)); err != nil {
		return err
	}
	paths := make([]string, len(snap.Files))
	for i, f := range snap.Files {
		paths[i] = filepath.Join(dir, f.Name)
	}
	if err := sh.exchange(paths, shardMeta{snap.Index, snap.Hash}); err != nil {
		return err
	}
	sh.durableMu.Lock()
	sh.durable = max(sh.durable, snap.Index)
	sh.durableMu.Unlock()
	return s.err()
}

// expects refuses snapshots that are not for this shard as it is.
func (sh *Shard) expects(snap Snapshot) error {
	if err := snap.valid(); err != nil {
		return err
	}
	if snap.Shard != sh.id {
		return fmt.Errorf("it is of shard %d", snap.Shard)
	}
	if index, _ := sh.Applied(); snap.Index <= index {
		return fmt.Errorf("it ends at entry %d, and entry %d is applied", snap.Index, index)
	}
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	if sh.broken != nil {
		return fmt.Errorf("shard %d has stopped: %w", sh.id, sh.broken)
	}
	return nil
}

// Room that the exchange takes: records of the manifest, and names in a directory.
const (
	probeBase = 64 << 10
	probeFile = 1 << 10
)

// probeRoom writes about as much as the exchange will, and takes it away again: once begun, the exchange cannot be given
// up for want of room, and would wait for it with readers excluded.
func (s *Store) probeRoom(dir string, files int) error {
	fs, name := s.FS(), filepath.Join(dir, "probe")
	err := writeFile(fs, name, make([]byte, probeBase+files*probeFile))
	if gone := fs.Remove(name); err == nil {
		err = gone
	}
	if err != nil {
		return fmt.Errorf("probe for room: %w", err)
	}
	return s.usable()
}

// exchange replaces the state at one instant. The caller holds writeMu, and the database has
// nothing of the shard in memory tables. If the edit fails, it is not known what the disk has, and
// the store's use ends; one failure is known to have changed nothing: a file that could not be
// linked for want of room.
func (sh *Shard) exchange(paths []string, meta shardMeta) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.s
	if err := sh.tx.closePoints(); err != nil {
		return err
	}
	if err := fault.Point("store.ingest"); err != nil {
		return err
	}
	if err := sh.ingest(paths); err != nil {
		err = describe("ingest", err)
		if dead := s.err(); dead != nil {
			return dead
		}
		// A file that could not be linked is gone again, and so are those before it: only then nothing has changed.
		if link := (*linkError)(nil); !errors.As(err, &link) || !IsFull(err) {
			s.fail(err)
		}
		return err
	}
	// The layers hold older entries; what was learnt of the database holds no more.
	sh.active.reset()
	if sh.frozen != nil {
		sh.frozen.reset()
		sh.spare, sh.frozen = sh.frozen, nil
	}
	sh.tops = tops{}
	sh.active.meta = meta
	sh.headMu.Lock()
	sh.head = meta
	sh.headMu.Unlock()
	sh.room.Broadcast()
	return fault.Point("store.ingested")
}

// ingest puts the files in the place of all keys of the shard, its record included, by one edit of the manifest.
func (sh *Shard) ingest(paths []string) error {
	lower, upper := sh.bounds()
	_, err := sh.s.db.IngestAndExcise(context.Background(), paths, nil, nil, pebble.KeyRange{Start: lower, End: upper})
	return err
}
