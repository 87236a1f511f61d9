package backup

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"path"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/store"
)

// Manifest says what a backup is.
type Manifest struct {
	Cluster string    // id of the cluster that it is of, or of the directory of a server by itself; hexadecimal digits
	Node    string    // name of the node that it was taken from
	Version string    // of that node's binary
	Entries uint32    // newest format of entries that the state was made from
	Started time.Time // in milliseconds
	Shards  []store.Snapshot
	Objects Objects
	Format  int // of the manifest itself; 0: the newest
}

// The form of a manifest is frozen. All numbers are big-endian; the shards are all that there are, in order. Format 1 has
// nothing between the shards and the sum.
//
//	"MRBACKUP" | format 1 | format of entries 4 | started 8, Unix milliseconds | shards 2
//	length 1, cluster | length 1, node | length 1, version
//	length 4, description (package store), for each shard
//	1: files of repositories are held, else 0 1 | lists 4
//	files 4 | their bytes 8 | XXH64 of the list 8 | digest of its last file 32, for each list
//	XXH64 of all before it 8
const (
	// manifestMagic begins a manifest, and manifestFormat is the format that this build writes.
	manifestMagic  = "MRBACKUP"
	manifestFormat = 2
	// bareFormat has no files of repositories.
	bareFormat = 1
	// manifestFixed is the length of the part before the texts.
	manifestFixed = len(manifestMagic) + 1 + 4 + 8 + 2
)

const (
	// maxShards is what a server has at most.
	maxShards = 64
	// maxManifest bounds a manifest: 64 shards whose descriptions are as long as can be, and as many lists as can be.
	maxManifest int64 = maxShards*(2<<20) + maxLists*int64(listDescription) + 4096
	// listDescription is the length of what a manifest says of a list.
	listDescription = 4 + 8 + 8 + len(core.Digest{})
)

// NewerFormatError says that a backup was made by a newer build.
type NewerFormatError struct {
	// File is the name of the file for people.
	File             string
	Found, Supported uint32
}

// Error names the file and both formats.
func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("%s has format %d; this build knows formats up to %d", e.File, e.Found, e.Supported)
}

// Append appends the manifest's binary form to b. The three texts are cut at 255 bytes, so that one
// byte holds their length.
func (m *Manifest) Append(b []byte) []byte {
	start := len(b)
	format := byte(cmp.Or(m.Format, manifestFormat))
	b = append(b, manifestMagic...)
	b = append(b, format)
	b = binary.BigEndian.AppendUint32(b, m.Entries)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Started.UnixMilli()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Shards)))
	for _, text := range []string{m.Cluster, m.Node, m.Version} {
		text = text[:min(len(text), 255)]
		b = append(append(b, byte(len(text))), text...)
	}
	for i := range m.Shards {
		description := m.Shards[i].Append(nil)
		b = binary.BigEndian.AppendUint32(b, uint32(len(description)))
		b = append(b, description...)
	}
	if format > bareFormat {
		b = m.Objects.append(b)
	}
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b[start:]))
}

// append appends whether files of repositories are held, and what is said of each list.
func (o *Objects) append(b []byte) []byte {
	held := byte(0)
	if o.Held {
		held = 1
	}
	b = binary.BigEndian.AppendUint32(append(b, held), uint32(len(o.Lists)))
	for i := range o.Lists {
		l := &o.Lists[i]
		b = binary.BigEndian.AppendUint32(b, l.Files)
		b = binary.BigEndian.AppendUint64(b, uint64(l.Bytes))
		b = binary.BigEndian.AppendUint64(b, l.Sum)
		b = append(b, l.Last[:]...)
	}
	return b
}

// ParseManifest reads what Append wrote, and nothing else: whatever it returns is within bounds. Errors: *errs.Corruption,
// *NewerFormatError; both name the file.
func ParseManifest(file string, b []byte) (m Manifest, err error) {
	if len(b) < manifestFixed+8 || string(b[:len(manifestMagic)]) != manifestMagic {
		return m, errs.Corruptf("%s is not a manifest of a backup", file)
	}
	// The format comes first: what else a newer one holds is not for this build to judge.
	format := b[len(manifestMagic)]
	if format > manifestFormat {
		return m, &NewerFormatError{File: file, Found: uint32(format), Supported: manifestFormat}
	} else if format < bareFormat {
		return m, errs.Corruptf("%s has format %d", file, format)
	}
	body, sum := b[:len(b)-8], binary.BigEndian.Uint64(b[len(b)-8:])
	if got := xxhash.Sum64(body); got != sum {
		return m, errs.Corruptf("%s: checksum %016x, content has %016x", file, sum, got)
	}
	r := manifestReader{file: file, rest: body[len(manifestMagic)+1:]}
	m.Format = int(format)
	m.Entries = uint32(r.number(4))
	m.Started = time.UnixMilli(int64(r.number(8))).UTC()
	shards := int(r.number(2))
	m.Cluster, m.Node, m.Version = r.text(), r.text(), r.text()
	if shards < 1 || shards > maxShards {
		r.fail("%d shards", shards)
	}
	for i := range shards {
		if r.err != nil {
			break
		}
		r.shard(&m, core.ShardID(i))
	}
	if format > bareFormat {
		r.objects(&m.Objects)
	}
	if len(r.rest) > 0 {
		r.fail("%d bytes too many", len(r.rest))
	}
	if r.err != nil {
		return Manifest{}, r.err
	}
	if m.Entries > uint32(core.NewestFormat()) {
		return Manifest{}, &NewerFormatError{File: file, Found: m.Entries, Supported: uint32(core.NewestFormat())}
	}
	return m, nil
}

// manifestReader reads the parts of a manifest. After an error it reads zeros. The caller looks at
// err once at the end: what it read is used only if there was none.
type manifestReader struct {
	file string
	// rest is what was not read yet; nothing after an error.
	rest []byte
	err  error
}

// fail keeps the first error, and lets nothing more be read.
func (r *manifestReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = errs.Corruptf("%s: %s", r.file, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

// take returns the next n bytes. Past the end it fails, and returns at most 8 zeros: enough for a
// number, and no memory for a length that cannot be true.
func (r *manifestReader) take(n int) []byte {
	if n > len(r.rest) {
		r.fail("it ends early")
		return make([]byte, min(n, 8))
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// number reads n bytes as a big-endian number.
func (r *manifestReader) number(n int) (v uint64) {
	for _, c := range r.take(n) {
		v = v<<8 | uint64(c)
	}
	return v
}

// text reads a length of one byte, and as many bytes.
func (r *manifestReader) text() string {
	n := int(r.number(1))
	if r.err != nil {
		return ""
	}
	return string(r.take(n))
}

// shard reads the description of a shard, which must be that of id: shards come in order, and none
// is left out.
func (r *manifestReader) shard(m *Manifest, id core.ShardID) {
	n := r.number(4)
	if r.err != nil || n > uint64(len(r.rest)) {
		r.fail("it ends early")
		return
	}
	snap, err := store.ParseSnapshot(r.take(int(n)))
	switch {
	case err != nil:
		r.fail("shard %d: %v", id, err)
	case snap.Shard != id:
		r.fail("shard %d stands where %d should", snap.Shard, id)
	default:
		m.Shards = append(m.Shards, snap)
	}
}

// objects reads what the manifest says of the lists. Each list must be within bounds, and end
// behind the one before it.
func (r *manifestReader) objects(o *Objects) {
	held, lists := r.number(1), r.number(4)
	switch {
	case held > 1, held == 0 && lists > 0:
		r.fail("%d lists of files that are held: %d", lists, held)
	case lists*uint64(listDescription) > uint64(len(r.rest)) || lists > maxLists:
		r.fail("it ends early, or has %d lists", lists)
	}
	o.Held = held == 1
	for i := uint64(0); i < lists && r.err == nil; i++ {
		l := ObjectList{Files: uint32(r.number(4)), Bytes: int64(r.number(8)), Sum: r.number(8)}
		copy(l.Last[:], r.take(len(l.Last)))
		switch {
		case l.Files < 1 || l.Files > listFiles || l.Bytes < int64(l.Files) || l.Bytes > maxObject*int64(l.Files):
			r.fail("list %d has %d files of %d bytes", i+1, l.Files, l.Bytes)
		case i > 0 && bytes.Compare(o.Lists[i-1].Last[:], l.Last[:]) >= 0:
			r.fail("list %d ends before the one before it", i+1)
		default:
			o.Lists = append(o.Lists, l)
		}
	}
}

// Bytes returns the size of all files of shards and of repositories.
func (m *Manifest) Bytes() (sum int64) {
	sum = m.Objects.Bytes()
	for i := range m.Shards {
		sum += snapshotBytes(&m.Shards[i])
	}
	return sum
}

// snapshotBytes returns the size of a shard's files.
func snapshotBytes(s *store.Snapshot) (sum int64) {
	for _, f := range s.Files {
		sum += f.Size
	}
	return sum
}

// Names within a backup.
const (
	manifestName = "MANIFEST"
	// incompleteName is in a directory until its manifest is.
	incompleteName = "INCOMPLETE"
	// incompleteSuffix is at the end of the name of a file that is not whole yet.
	incompleteSuffix = ".incomplete"
)

// folder names the directory of a shard within a backup.
func folder(id core.ShardID) string { return fmt.Sprintf("shard-%d", id) }

// fileName names a file of a shard within a backup, with a slash.
func fileName(id core.ShardID, f store.SnapshotFile) string { return path.Join(folder(id), f.Name) }
