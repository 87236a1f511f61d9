package store

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// SnapshotFile is one file of a snapshot.
type SnapshotFile struct {
	Name string // within the snapshot's directory: six digits and .sst
	Size int64  // bytes
	Sum  uint64 // XXH64 of its bytes
}

// Snapshot describes a shard's state as of one applied entry, in files of sorted keys. The last key of the last file is
// the shard's record.
type Snapshot struct {
	Shard   core.ShardID
	Index   uint64 // applied
	Hash    uint64 // apply hash there
	Content uint64 // hash of all keys and values, as ScanHash
	Keys    uint64 // without the shard's record
	Files   []SnapshotFile
}

// The form of a description is frozen: it goes from node to node. All numbers are big-endian; the files are in the order
// of their names, which is that of their keys.
//
//	format 1 | shard 2 | index 8 | apply hash 8 | content hash 8 | keys 8 | files 4
//	name 10 | size 8 | sum 8, for each file
//	XXH64 of all before it 8
const (
	snapshotFormat  = 1
	snapshotHead    = 1 + 2 + 8 + 8 + 8 + 8 + 4
	snapshotNameLen = 10
	snapshotFileLen = snapshotNameLen + 8 + 8
)

const (
	// maxSnapshotFiles bounds the files of a snapshot: 1 TiB of the size that files are made.
	maxSnapshotFiles = 1 << 16
	// maxSnapshotFile bounds the size of one. A file ends after the value that makes it full, and its index and filter come
	// on top.
	maxSnapshotFile = 64 << 20
)

// Append appends the description's binary form to b.
func (s *Snapshot) Append(b []byte) []byte {
	start := len(b)
	b = append(b, snapshotFormat)
	b = binary.BigEndian.AppendUint16(b, uint16(s.Shard))
	for _, word := range []uint64{s.Index, s.Hash, s.Content, s.Keys} {
		b = binary.BigEndian.AppendUint64(b, word)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.Files)))
	for _, f := range s.Files {
		var name [snapshotNameLen]byte
		copy(name[:], f.Name)
		b = append(b, name[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(f.Size))
		b = binary.BigEndian.AppendUint64(b, f.Sum)
	}
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b[start:]))
}

// ParseSnapshot reads what Append wrote, and nothing else: whatever it returns is within bounds, and its names are plain.
// The error is an *errs.Corruption.
func ParseSnapshot(b []byte) (s Snapshot, err error) {
	if len(b) == 0 {
		return s, errs.Corruptf("description of a snapshot is empty")
	}
	if b[0] != snapshotFormat {
		return s, errs.Corruptf("description of a snapshot has format %d; this build knows %d", b[0], snapshotFormat)
	}
	if len(b) < snapshotHead+8 {
		return s, errs.Corruptf("description of a snapshot has %d bytes", len(b))
	}
	body, sum := b[:len(b)-8], binary.BigEndian.Uint64(b[len(b)-8:])
	if got := xxhash.Sum64(body); got != sum {
		return s, errs.Corruptf("description of a snapshot: checksum %016x, content has %016x", sum, got)
	}
	word := func(at int) uint64 { return binary.BigEndian.Uint64(body[at:]) }
	s = Snapshot{
		Shard: core.ShardID(binary.BigEndian.Uint16(body[1:])),
		Index: word(3), Hash: word(11), Content: word(19), Keys: word(27),
	}
	count := binary.BigEndian.Uint32(body[35:])
	files := body[snapshotHead:]
	if count > maxSnapshotFiles || len(files) != int(count)*snapshotFileLen {
		return Snapshot{}, errs.Corruptf("description of a snapshot has %d bytes for %d files", len(files), count)
	}
	s.Files = make([]SnapshotFile, 0, count)
	for ; len(files) > 0; files = files[snapshotFileLen:] {
		s.Files = append(s.Files, SnapshotFile{
			Name: string(files[:snapshotNameLen]),
			Size: int64(binary.BigEndian.Uint64(files[snapshotNameLen:])),
			Sum:  binary.BigEndian.Uint64(files[snapshotNameLen+8:]),
		})
	}
	if err := s.valid(); err != nil {
		return Snapshot{}, err
	}
	return s, nil
}

// valid checks the bounds of what a description says.
func (s *Snapshot) valid() error {
	if s.Index == 0 {
		return errs.Corruptf("description of a snapshot: nothing is applied")
	}
	if len(s.Files) == 0 || len(s.Files) > maxSnapshotFiles {
		return errs.Corruptf("description of a snapshot: %d files", len(s.Files))
	}
	last := ""
	for _, f := range s.Files {
		if !plainName(f.Name) || f.Name <= last {
			return errs.Corruptf("description of a snapshot: file %q after %q", f.Name, last)
		}
		if f.Size < 1 || f.Size > maxSnapshotFile {
			return errs.Corruptf("description of a snapshot: file %s has %d bytes", f.Name, f.Size)
		}
		last = f.Name
	}
	return nil
}

// snapshotFileName names the n-th file of a snapshot, from 1. Names sort as the files do.
func snapshotFileName(n int) string { return fmt.Sprintf("%06d.sst", n) }

// plainName reports whether name is one that Export gives, which names no other directory.
func plainName(name string) bool {
	if len(name) != snapshotNameLen || name[6:] != ".sst" {
		return false
	}
	for _, c := range []byte(name[:6]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// SnapshotFileError says which file of a snapshot is not what the description says, or cannot be read: the file must be
// fetched again. Nothing was changed.
type SnapshotFileError struct {
	Name string // as in the description
	Err  error  // an *errs.Corruption, or why it cannot be read
}

// Error names the file and what is wrong with it.
func (e *SnapshotFileError) Error() string { return fmt.Sprintf("snapshot file %s: %v", e.Name, e.Err) }

// Unwrap returns what is wrong with the file.
func (e *SnapshotFileError) Unwrap() error { return e.Err }
