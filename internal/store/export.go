package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/fault"
)

// A file of a snapshot ends when it has about this many bytes, or this many keys: keys that compress well would otherwise
// make a file whose filter is larger than its data.
const (
	exportFileBytes = 16 << 20
	exportFileKeys  = 1 << 20
)

// lastLevel is the level of the database that takes in the files of a snapshot.
const lastLevel = 6

// Export writes the shard's state as of the entry that was applied last into dir, which must not exist or be empty, as
// durable files. It first writes what is in memory to the database; then it reads everything, while the shard goes on. It
// does not wait for a disk that is full (IsFull), and ends soon with ErrClosed when the store closes, or with the store's
// failure. With an error nothing is left in dir. A shard to which nothing was applied has no state to export.
func (sh *Shard) Export(dir string) (snap Snapshot, err error) { return sh.ExportEach(dir, nil) }

// ExportEach is Export that shows each key with its value to each, in order, until that fails; the shard's own record is not
// shown. Key and value are valid only during the call. each may be nil.
func (sh *Shard) ExportEach(dir string, each func(key, value []byte) error) (snap Snapshot, err error) {
	if !sh.s.use.enter() {
		return snap, ErrClosed
	}
	defer sh.s.use.leave()
	if snap, err = sh.export(dir, each); err != nil {
		return Snapshot{}, fmt.Errorf("export shard %d: %w", sh.id, err)
	}
	return snap, nil
}

// DiskBytes estimates what the shard's state takes on the disk, which is what Export writes.
func (sh *Shard) DiskBytes() (uint64, error) {
	if !sh.s.use.enter() {
		return 0, ErrClosed
	}
	defer sh.s.use.leave()
	lower, upper := sh.bounds()
	bytes, err := sh.s.db.EstimateDiskUsage(lower, upper)
	return bytes + sh.layerMemory(), describe("estimate a shard's size", err)
}

// export makes the directory, fixes the state with pin, and writes it. On failure it removes what
// it wrote.
func (sh *Shard) export(dir string, each func(key, value []byte) error) (snap Snapshot, err error) {
	if index, _ := sh.Applied(); index == 0 {
		return snap, errors.New("nothing is applied")
	}
	e := &exporter{sh: sh, fs: sh.s.FS(), dir: dir, snap: Snapshot{Shard: sh.id}, each: each}
	defer func() {
		if err != nil {
			e.remove()
		}
	}()
	if err := e.makeDir(); err != nil {
		return snap, err
	}
	it, err := sh.pin()
	if err != nil {
		return snap, err
	}
	err = e.run(it)
	return e.snap, errors.Join(err, describe("end a scan", it.Close()))
}

// pin writes what is in memory to the database and returns an iterator over the whole shard as it is then, its record
// included.
func (sh *Shard) pin() (*pebble.Iterator, error) {
	if err := sh.lockWriting(); err != nil {
		return nil, err
	}
	defer sh.writeMu.Unlock()
	if err := sh.writeAllWhen(sh.s.awaitTurn); err != nil {
		return nil, err
	}
	return sh.iterate()
}

// exporter writes the files of a snapshot. It goes past patientFS, which would wait for a disk that is full.
type exporter struct {
	// sh is the shard that is exported, and snap what is known of its files so far.
	sh  *Shard
	fs  env.FS
	dir string
	// made says that dir was not there, and is removed if the export fails.
	made bool
	snap Snapshot
	each func(key, value []byte) error // is shown every key; may be nil

	// options are the form of the tables.
	options sstable.WriterOptions
	table   *sstable.Writer // being written, or nil
	file    *tableFile      // what it is written to
	// keys is how many keys the table has so far.
	keys int
}

// makeDir makes dir, or takes one that is empty.
func (e *exporter) makeDir() error {
	switch names, err := e.fs.List(e.dir); {
	case errors.Is(err, fs.ErrNotExist):
		e.made = true
	case err != nil:
		return fmt.Errorf("list %s: %w", e.dir, err)
	case len(names) > 0:
		return fmt.Errorf("directory %s is not empty", e.dir)
	}
	if err := env.MakeDirs(e.fs, e.dir); err != nil {
		return fmt.Errorf("make %s: %w", e.dir, err)
	}
	return nil
}

// remove takes away what was written. What cannot be removed is left to the caller, which clears the directory.
func (e *exporter) remove() {
	for n := range len(e.snap.Files) {
		_ = e.fs.Remove(filepath.Join(e.dir, snapshotFileName(n+1)))
	}
	if e.made {
		_ = e.fs.Remove(e.dir)
	}
}

// prepare chooses the form of the tables: that of the database's own.
func (e *exporter) prepare() {
	options := e.sh.s.o.engineOptions()
	options.EnsureDefaults()
	e.options = options.MakeWriterOptions(lastLevel, e.sh.s.db.TableFormat())
}

// run writes all that it has, in the order of keys.
func (e *exporter) run(it *pebble.Iterator) (err error) {
	e.prepare()
	defer func() {
		if e.table != nil { // an error left it open
			_ = e.table.Close()
		}
	}()
	m, c, err := e.sh.walk(it, e.add)
	if err != nil {
		return err
	}
	if m.index == 0 {
		return errs.Corruptf("shard %d has no record of what was applied", e.sh.id)
	}
	e.snap.Index, e.snap.Hash = m.index, m.hash
	e.snap.Content, e.snap.Keys = c.hash, uint64(c.keys)
	if err := e.finish(); err != nil {
		return err
	}
	if err := env.SyncDir(e.fs, e.dir); err != nil {
		return fmt.Errorf("sync %s: %w", e.dir, err)
	}
	return e.snap.valid()
}

// add writes one key and its value, and ends a file that is full.
func (e *exporter) add(key, value []byte) error {
	if err := e.sh.s.usable(); err != nil {
		return err
	}
	if e.table == nil {
		if err := e.begin(); err != nil {
			return err
		}
	}
	if e.each != nil && !bytes.Equal(key, e.sh.metaKey) {
		if err := e.each(key[shardLen:], value); err != nil {
			return err
		}
	}
	if err := e.table.Set(key, value); err != nil {
		return fmt.Errorf("write a table: %w", err)
	}
	e.keys++
	if e.keys < exportFileKeys && e.table.Raw().EstimatedSize() < e.sh.s.fileBytes {
		return nil
	}
	return e.finish()
}

// begin begins the next file. It enters the description at once, so that remove finds it.
func (e *exporter) begin() error {
	if len(e.snap.Files) == e.sh.s.mostFiles {
		return core.Exhausted{Limit: "snapshot_files", Max: int64(e.sh.s.mostFiles)} // nothing is damaged: there is too much
	}
	name := snapshotFileName(len(e.snap.Files) + 1)
	e.snap.Files = append(e.snap.Files, SnapshotFile{Name: name})
	f, err := e.fs.Create(filepath.Join(e.dir, name))
	if err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	e.file = &tableFile{s: e.sh.s, file: f, buf: bufio.NewWriterSize(f, 128<<10), sum: xxhash.New()}
	e.table, e.keys = sstable.NewWriter(e.file, e.options), 0
	return nil
}

// finish ends the table that is being written, if there is one.
func (e *exporter) finish() error {
	if e.table == nil {
		return nil
	}
	last := &e.snap.Files[len(e.snap.Files)-1]
	err := e.table.Close()
	e.table = nil
	if err != nil {
		return fmt.Errorf("write %s: %w", last.Name, err)
	}
	last.Size, last.Sum = e.file.size, e.file.sum.Sum64()
	return fault.Point("store.snapshot_file")
}

// tableFile is what a table is written to. It sums the bytes before they reach the file system: a sum of what is read back
// would also cover the file system's damage. The receiver of the file compares the sum.
type tableFile struct {
	// s tells when to give up.
	s    *Store
	file env.File
	// buf is between the table and the file; sum and size are of what came in, before it.
	buf  *bufio.Writer
	sum  *xxhash.Digest
	size int64
}

// Write takes in the next bytes. It fails once the store is closed, has failed or finds the disk full.
func (t *tableFile) Write(b []byte) error {
	if err := t.s.usable(); err != nil {
		return err
	}
	t.size += int64(len(b))
	_, _ = t.sum.Write(b) // it never fails
	_, err := t.buf.Write(b)
	return err
}

// Finish makes the file durable.
func (t *tableFile) Finish() error {
	err := t.buf.Flush()
	if err == nil {
		err = t.file.Sync()
	}
	return errors.Join(err, t.file.Close())
}

// Abort gives the file up.
func (t *tableFile) Abort() { _ = t.file.Close() }
