package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/store"
)

// Objects says which files of git repositories a backup holds: packs and their indexes, each under the SHA-256 of its bytes, so
// that what several repositories have is there once.
type Objects struct {
	// Held says that every file is there that the shards' state names. Backups of the first form, and those of servers that
	// send no files, have none.
	Held  bool
	Lists []ObjectList // of files, in ascending order of digests
}

// ObjectList describes a file of the backup that lists files.
type ObjectList struct {
	// Files is how many files the list has: at least one, at most listFiles.
	Files uint32
	Bytes int64  // of the files that it lists
	Sum   uint64 // XXH64 of the list
	// Last is the digest of its last file. A search for a file finds its list by this, without
	// opening another.
	Last core.Digest
}

// The form of a list is frozen. Its records are in strictly ascending order of digests, and continue those of the list
// before it. All numbers are big-endian.
//
//	SHA-256 32 | 1: an index, 0: a pack 1 | size 8, for each file
const objectRecord = len(core.Digest{}) + 1 + 8

const (
	// objectsFolder has the lists, and the files in folders by the first two digits of their
	// digests.
	objectsFolder = "objects"
	// listFiles are listed in one list at most.
	listFiles = 1 << 16
	// maxLists bounds the lists of a backup.
	maxLists = 1 << 16
	// maxObject bounds the size of a file: no repository may hold so much.
	maxObject = 1 << 44
)

// listName names list n, from 0, within a backup; its number in the name counts from 1.
func listName(n int) string { return path.Join(objectsFolder, fmt.Sprintf("%06d.list", n+1)) }

// objectName names a file within a backup, with slashes.
func objectName(f core.BackupFile) string {
	name, suffix := f.Digest.String(), ".pack"
	if f.Index {
		suffix = ".idx"
	}
	return path.Join(objectsFolder, name[:2], name+suffix)
}

// parseObjectName reads such a name, and no other.
func parseObjectName(name string) (f core.BackupFile, ok bool) {
	base, index := strings.CutSuffix(path.Base(name), ".idx")
	f.Index = index
	if !index {
		base = strings.TrimSuffix(base, ".pack")
	}
	if len(base) != hex.EncodedLen(len(f.Digest)) {
		return f, false
	}
	if _, err := hex.Decode(f.Digest[:], []byte(base)); err != nil {
		return f, false
	}
	return f, objectName(f) == name
}

// appendObject appends the record of a file.
func appendObject(b []byte, f core.BackupFile) []byte {
	b = append(b, f.Digest[:]...)
	kind := byte(0)
	if f.Index {
		kind = 1
	}
	return binary.BigEndian.AppendUint64(append(b, kind), uint64(f.Size))
}

// parseObject reads a record. ok is false if it is not one that appendObject can have written.
func parseObject(b []byte) (f core.BackupFile, ok bool) {
	if len(b) != objectRecord {
		return f, false
	}
	copy(f.Digest[:], b)
	f.Index = b[len(f.Digest)] == 1
	f.Size = int64(binary.BigEndian.Uint64(b[len(f.Digest)+1:]))
	return f, b[len(f.Digest)] <= 1 && f.Size > 0 && f.Size <= maxObject
}

// Files returns how many files there are.
func (o *Objects) Files() (n uint64) {
	for _, l := range o.Lists {
		n += uint64(l.Files)
	}
	return n
}

// Bytes returns the size of all files.
func (o *Objects) Bytes() (n int64) {
	for _, l := range o.Lists {
		n += l.Bytes
	}
	return n
}

// listing looks into the lists of a backup, whose sums were compared. It keeps one list open at a
// time, and reads single records of it: a backup may list billions of files.
type listing struct {
	b *Backup
	// at is the number of the list that is open; it says nothing while file is nil.
	at   int
	file store.SourceFile
}

// close closes the list that is open, if there is one.
func (l *listing) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// open opens list n in place of the one that is open. Its size must be that of its records.
func (l *listing) open(n int) error {
	if l.file != nil && l.at == n {
		return nil
	}
	if err := l.close(); err != nil {
		return err
	}
	f, size, err := l.b.files.open(listName(n))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errs.Corruptf("%s: it is missing", l.b.name(listName(n)))
	case err != nil:
		return fmt.Errorf("read %s: %w", l.b.name(listName(n)), err)
	case size != int64(l.b.Manifest.Objects.Lists[n].Files)*int64(objectRecord):
		return errors.Join(errs.Corruptf("%s has %d bytes for %d files", l.b.name(listName(n)), size, l.b.Manifest.Objects.Lists[n].Files), f.Close())
	}
	l.at, l.file = n, f
	return nil
}

// record reads the i-th record of the list that is open.
func (l *listing) record(i int) (f core.BackupFile, err error) {
	var b [objectRecord]byte
	if _, err := l.file.ReadAt(b[:], int64(i)*int64(objectRecord)); err != nil && !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("read %s: %w", l.b.name(listName(l.at)), err)
	}
	f, ok := parseObject(b[:])
	if !ok {
		return f, errs.Corruptf("%s: record %d is %x", l.b.name(listName(l.at)), i, b)
	}
	return f, nil
}

// has reports whether a file is listed as it is wanted. Two binary searches find it: over the lists
// by their last digests, which the manifest has, and over the records of one list.
func (l *listing) has(want core.BackupFile) (bool, error) {
	lists := l.b.Manifest.Objects.Lists
	n := sort.Search(len(lists), func(i int) bool { return bytes.Compare(lists[i].Last[:], want.Digest[:]) >= 0 })
	if n == len(lists) {
		return false, nil
	}
	if err := l.open(n); err != nil {
		return false, err
	}
	var failed error
	i := sort.Search(int(lists[n].Files), func(i int) bool {
		f, err := l.record(i)
		if err != nil && failed == nil {
			failed = err
		}
		return bytes.Compare(f.Digest[:], want.Digest[:]) >= 0
	})
	if failed != nil || i == int(lists[n].Files) {
		return false, failed
	}
	f, err := l.record(i)
	return f == want, err
}

// each compares every list with what the manifest says of it, and then calls fn for each file, if
// that is not nil. The records must be in strictly ascending order, over all lists.
func (l *listing) each(fn func(f core.BackupFile) error) error {
	var last core.Digest
	for n, want := range l.b.Manifest.Objects.Lists {
		if err := l.open(n); err != nil {
			return err
		}
		name := l.b.name(listName(n))
		text := make([]byte, int64(want.Files)*int64(objectRecord))
		if _, err := l.file.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if got := xxhash.Sum64(text); got != want.Sum {
			return errs.Corruptf("%s: its sum is %016x, want %016x", name, got, want.Sum)
		}
		size := int64(0)
		for ; len(text) > 0; text = text[objectRecord:] {
			f, ok := parseObject(text[:objectRecord])
			if !ok || bytes.Compare(f.Digest[:], last[:]) <= 0 {
				return errs.Corruptf("%s: record %x makes no sense after %s", name, text[:objectRecord], last)
			}
			last = f.Digest
			size += f.Size
			if fn != nil {
				if err := fn(f); err != nil {
					return err
				}
			}
		}
		if last != want.Last || size != want.Bytes {
			return errs.Corruptf("%s ends with %s after %d bytes, want %s after %d", name, last, size, want.Last, want.Bytes)
		}
	}
	return nil
}

// object opens a file of a repository.
func (b *Backup) object(want core.BackupFile) (store.SourceFile, error) {
	name := objectName(want)
	f, size, err := b.files.open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errs.Corruptf("%s: it is missing", b.name(name))
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", b.name(name), err)
	case size != want.Size:
		return nil, errors.Join(errs.Corruptf("%s: it has %d bytes, want %d", b.name(name), size, want.Size), f.Close())
	}
	return f, nil
}

// verifyObject reads a file of a repository to its end.
func (b *Backup) verifyObject(want core.BackupFile) error {
	f, err := b.object(want)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.CopyBuffer(h, struct{ io.Reader }{io.NewSectionReader(f, 0, want.Size)}, make([]byte, min(copyBytes, want.Size)))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", b.name(objectName(want)), err)
	}
	if got := core.Digest(h.Sum(nil)); got != want.Digest {
		return errs.Corruptf("%s: the SHA-256 of its content is %s", b.name(objectName(want)), got)
	}
	return nil
}
