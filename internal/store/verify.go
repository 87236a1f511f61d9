package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Verify reads the files of a snapshot in dir and makes them durable. It finds out whether they are what the description
// says: sizes and sums, keys of this shard alone and in order, the content, and the shard's record. A file that is not is
// named by a *SnapshotFileError; an *errs.Corruption without one says that the description does not fit its own files.
//
// Install does the same; it does not read again what Verify has shown of the same description, sizes and sums excepted.
// It can be called in parallel with everything else.
func (sh *Shard) Verify(dir string, snap Snapshot) error {
	if !sh.s.use.enter() {
		return ErrClosed
	}
	defer sh.s.use.leave()
	err := snap.valid()
	if err == nil && snap.Shard != sh.id {
		err = fmt.Errorf("it is of shard %d", snap.Shard)
	}
	if err == nil {
		err = sh.verify(dir, snap)
	}
	if err != nil {
		return fmt.Errorf("verify a snapshot of shard %d: %w", sh.id, err)
	}
	return nil
}

// verify compares sums first, and then reads the tables, unless those of the same description were
// read before.
func (sh *Shard) verify(dir string, snap Snapshot) error {
	for _, f := range snap.Files {
		if err := sh.s.verifySum(filepath.Join(dir, f.Name), f); err != nil {
			return sh.s.blame(f, err)
		}
	}
	// What is in files with these sums does not change.
	known := xxhash.Sum64(snap.Append(nil))
	if sh.verified.Load() == known {
		return nil
	}
	v := newVerifier(sh.s.o, snap, sh.s.ended, nil)
	for _, f := range snap.Files {
		table, err := sh.s.o.FS.Open(filepath.Join(dir, f.Name))
		if err == nil {
			err = v.table(table)
		}
		if err != nil {
			return sh.s.blame(f, err)
		}
	}
	if err := v.end(); err != nil {
		return err
	}
	sh.verified.Store(known)
	return nil
}

// blame names the file that an error is about, unless it is about the store.
func (s *Store) blame(f SnapshotFile, err error) error {
	if ended := s.ended(); ended != nil {
		return ended
	}
	return blame(f, err)
}

// blame returns the error with the file's name. A file that is missing counts as damaged.
func blame(f SnapshotFile, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = errs.Corruptf("it is missing")
	}
	if pebble.IsCorruptionError(err) {
		err = errs.Corruptf("%v", err)
	}
	return &SnapshotFileError{Name: f.Name, Err: err}
}

// verifySum compares a file's size and sum, and makes the file durable.
func (s *Store) verifySum(path string, want SnapshotFile) (err error) {
	f, err := s.o.FS.Open(path, sequential{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != want.Size {
		return errs.Corruptf("it has %d bytes, want %d", info.Size(), want.Size)
	}
	sum, part := xxhash.New(), make([]byte, min(want.Size, 1<<20))
	for {
		n, err := f.Read(part)
		_, _ = sum.Write(part[:n]) // it never fails
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := s.ended(); err != nil {
			return err
		}
	}
	if got := sum.Sum64(); got != want.Sum {
		return errs.Corruptf("its sum is %016x, want %016x", got, want.Sum)
	}
	return f.Sync()
}

// SourceFile is one file of a snapshot, wherever it lies.
type SourceFile interface {
	io.ReaderAt
	io.Closer
}

// VerifyFiles is Verify for a snapshot that lies anywhere: open opens one of its files by its name. It shows each key with
// its value to each, in order, until that fails; the shard's own record is not shown.
func VerifyFiles(snap Snapshot, open func(SnapshotFile) (SourceFile, error), each func(key, value []byte) error) error {
	if err := snap.valid(); err != nil {
		return err
	}
	v := newVerifier(Options{}.withDefaults(), snap, func() error { return nil }, each)
	for _, f := range snap.Files {
		source, err := open(f)
		if err == nil {
			err = sumOf(source, f)
			if err == nil {
				err = v.table(&measured{source, f})
			} else {
				err = errors.Join(err, source.Close())
			}
		}
		if v.seen != nil {
			return fmt.Errorf("snapshot file %s: %w", f.Name, v.seen)
		}
		if err != nil {
			return blame(f, err)
		}
	}
	return v.end()
}

// sumOf compares the sum of a file that is as long as it should be.
func sumOf(source io.ReaderAt, want SnapshotFile) error {
	sum := xxhash.New()
	if _, err := io.Copy(sum, io.NewSectionReader(source, 0, want.Size)); err != nil {
		return err
	}
	if got := sum.Sum64(); got != want.Sum {
		return errs.Corruptf("its sum is %016x, want %016x", got, want.Sum)
	}
	return nil
}

// measured is a file whose length is known, for the reader of tables.
type measured struct {
	SourceFile
	file SnapshotFile
}

func (m *measured) Stat() (vfs.FileInfo, error) { return sizeOf{m.file}, nil }

// sizeOf answers what the reader of tables asks of a file: its length.
type sizeOf struct{ file SnapshotFile }

func (s sizeOf) Name() string              { return s.file.Name }
func (s sizeOf) Size() int64               { return s.file.Size }
func (sizeOf) Mode() fs.FileMode           { return 0o600 }
func (sizeOf) ModTime() (t time.Time)      { return t }
func (sizeOf) IsDir() bool                 { return false }
func (sizeOf) Sys() any                    { return nil }
func (sizeOf) DeviceID() (id vfs.DeviceID) { return id }

// verifier reads the tables of a snapshot in order. It is for one goroutine, and of no more use
// after an error.
type verifier struct {
	o     *pebble.Options
	ended func() error                  // says when to stop
	each  func(key, value []byte) error // is shown every key; may be nil
	seen  error                         // of each
	want  Snapshot
	// prefix is what all keys begin with: the shard.
	prefix  []byte
	metaKey []byte
	c       content
	last    []byte // key read last
	meta    []byte // value of the shard's record, nil before it
}

// newVerifier returns a verifier that has read nothing.
func newVerifier(o Options, want Snapshot, ended func() error, each func(key, value []byte) error) *verifier {
	v := &verifier{
		o: o.engineOptions(), ended: ended, each: each, want: want,
		prefix: appendShard(nil, uint16(want.Shard)), metaKey: metaKey(uint16(want.Shard)),
	}
	v.o.EnsureDefaults()
	return v
}

// forbidden is what a table of a snapshot does not have: anything but keys and their values.
const forbidden = sstable.AttributeRangeKeySets | sstable.AttributeRangeKeyUnsets | sstable.AttributeRangeKeyDels |
	sstable.AttributeRangeDels | sstable.AttributeBlobValues

// table reads one table, and closes it. What its reader meets in nonsense that has the right sum may be a panic: it is
// damage too.
func (v *verifier) table(f sstable.ReadableFile) (err error) {
	var r *sstable.Reader
	defer func() {
		if p := recover(); p != nil {
			err = errs.Corruptf("it is not a table: %v", p)
		}
		if r == nil {
			err = errors.Join(err, f.Close())
		} else {
			err = errors.Join(err, r.Close())
		}
	}()
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return err
	}
	if r, err = sstable.NewReader(context.Background(), readable, v.o.MakeReaderOptions()); err != nil {
		return noTable(err)
	}
	if r.Attributes.Intersects(forbidden) {
		return errs.Corruptf("it has %s", r.Attributes)
	}
	it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return noTable(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for kv := it.First(); kv != nil; kv = it.Next() {
		if kv.Kind() != pebble.InternalKeyKindSet || kv.SeqNum() != 0 {
			return errs.Corruptf("key %x is not one of a snapshot", kv.K.UserKey)
		}
		value, _, err := kv.Value(nil)
		if err != nil {
			return err
		}
		if err := v.add(kv.K.UserKey, value); err != nil {
			return err
		}
	}
	return it.Error()
}

// noTable says that a file is not a table, unless it could not be read: a failed read, or a limit of the system, says nothing
// about what is stored.
func noTable(err error) error {
	if unread(err) {
		return err
	}
	return errs.Corruptf("it is not a table: %v", err)
}

// unread reports whether an error is that of a call to the system, or of a caller who is gone.
func unread(err error) bool {
	_, path := errors.AsType[*fs.PathError](err)
	_, call := errors.AsType[syscall.Errno](err)
	return path || call || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// add takes in the next key. It refuses one of another shard, one that is not above the last, and
// any behind the shard's record.
func (v *verifier) add(key, value []byte) error {
	if err := v.ended(); err != nil {
		return err
	}
	if !bytes.HasPrefix(key, v.prefix) || len(key) == len(v.prefix) || v.meta != nil {
		return errs.Corruptf("key %x does not belong to shard %d, or comes after its last", key, v.want.Shard)
	}
	if v.last != nil && keys.Compare(v.last, key) >= 0 {
		return errs.Corruptf("key %x is after %x", key, v.last)
	}
	v.last = append(v.last[:0], key...)
	if bytes.Equal(key, v.metaKey) {
		v.meta = append([]byte{}, value...)
		return nil
	}
	v.c.add(key[shardLen:], value)
	if v.each != nil {
		v.seen = v.each(key[shardLen:], value)
	}
	return v.seen
}

// end compares what was read with the description.
func (v *verifier) end() error {
	w := &v.want
	m, ok := decodeMeta(v.meta)
	if !ok || m != (shardMeta{w.Index, w.Hash}) {
		return errs.Corruptf("snapshot: the shard's record is %x, want entry %d with hash %016x", v.meta, w.Index, w.Hash)
	}
	if v.c.hash != w.Content || uint64(v.c.keys) != w.Keys {
		return errs.Corruptf("snapshot: %d keys with hash %016x, want %d with %016x", v.c.keys, v.c.hash, w.Keys, w.Content)
	}
	return nil
}
