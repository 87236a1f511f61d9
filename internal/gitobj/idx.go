package gitobj

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// The second version of git's pack index, the only one that is read: a header, 256 running counts by the first byte of an
// id, then the sorted ids, the checksums of their packed bytes, their offsets in 4 bytes, the offsets that need 8, and two
// SHA-1. Source: Documentation/gitformat-pack.txt of git.
const (
	idxMagic   = 0xff744f63
	idxVersion = 2
	idxHeader  = 8
	idxFanout  = 256 * 4
	idxTrailer = 2 * 20
	// idxNames is where the ids begin; checksums and offsets follow them.
	idxNames = idxHeader + idxFanout
	idBytes  = len(core.ObjectID{})
	// largeOffset is the bit of a short offset that says that the rest is a place among the long
	// ones.
	largeOffset   = 1 << 31
	heldNameBytes = 64 << 10 // ids of an index up to this size are held in memory: those of most pushes, all in one read
)

// errDescriptors says that git has to wait until fewer files are open.
var errDescriptors = core.Unavailable{Reason: "overload", Limit: "descriptors"}

// DamagedError says that a pack or its index is missing, or is not what it should be.
type DamagedError struct {
	File string // below the directory of repositories
	// What is what is wrong with it.
	What string
}

// Error names the file.
func (e *DamagedError) Error() string { return fmt.Sprintf("damaged pack %s: %s", e.File, e.What) }

// damagedf is for a file that is not what it should be. One that could not be opened because too many are open is not judged.
func damagedf(file, format string, args ...any) error {
	for _, a := range args {
		if err, ok := a.(error); ok && env.NoDescriptors(err) {
			return errDescriptors
		}
	}
	return &DamagedError{File: file, What: fmt.Sprintf(format, args...)}
}

// index finds objects in the index of a pack. It is safe for concurrent use.
type index struct {
	// r reads the index file, whose name is file.
	r    io.ReaderAt
	file string
	// fanout[b] is how many ids begin with a byte of at most b.
	fanout [256]uint32
	// names are all ids, if they are few; else nil, and they are read when they are asked for.
	names []byte
	large int64 // how many offsets are in the table of 8 bytes
}

// openIndex reads the fixed part of an index of size bytes. Sizes and counts are compared, so that
// later reads stay within the file.
func openIndex(r io.ReaderAt, file string, size int64) (*index, error) {
	if size < idxNames+idxTrailer {
		return nil, damagedf(file, "%d bytes are too few for an index", size)
	}
	var head [idxNames]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, damagedf(file, "read header: %v", err)
	}
	if binary.BigEndian.Uint32(head[:]) != idxMagic || binary.BigEndian.Uint32(head[4:]) != idxVersion {
		return nil, damagedf(file, "no index of version 2")
	}
	x := &index{r: r, file: file}
	last := uint32(0)
	for i := range x.fanout {
		x.fanout[i] = binary.BigEndian.Uint32(head[idxHeader+4*i:])
		if x.fanout[i] < last {
			return nil, damagedf(file, "its counts fall at %d", i)
		}
		last = x.fanout[i]
	}
	n := int64(last)
	rest := size - idxNames - idxTrailer - n*(int64(idBytes)+4+4)
	if rest < 0 || rest%8 != 0 || rest/8 > n {
		return nil, damagedf(file, "%d bytes do not fit %d objects", size, n)
	}
	x.large = rest / 8
	if n*int64(idBytes) <= heldNameBytes {
		x.names = make([]byte, n*int64(idBytes))
		if _, err := r.ReadAt(x.names, idxNames); err != nil && n > 0 {
			return nil, damagedf(file, "read ids: %v", err)
		}
	}
	return x, nil
}

// count returns how many objects the index has.
func (x *index) count() int64 { return int64(x.fanout[255]) }

// each calls fn for every id, in order.
func (x *index) each(fn func(core.ObjectID) error) error {
	var id core.ObjectID
	ids := io.Reader(bytes.NewReader(x.names))
	if x.names == nil {
		ids = bufio.NewReaderSize(io.NewSectionReader(x.r, idxNames, x.count()*int64(idBytes)), 64<<10)
	}
	for i := range x.count() {
		if _, err := io.ReadFull(ids, id[:]); err != nil {
			return damagedf(x.file, "read id %d: %v", i, err)
		}
		if err := fn(id); err != nil {
			return err
		}
	}
	return nil
}

// find returns where in the pack an object begins. It is a binary search among the ids with the
// same first byte.
func (x *index) find(id core.ObjectID) (offset int64, found bool, err error) {
	low, high := int64(0), int64(x.fanout[id[0]])
	if id[0] > 0 {
		low = int64(x.fanout[id[0]-1])
	}
	var at core.ObjectID
	for low < high {
		mid := low + (high-low)/2
		if err := x.name(mid, &at); err != nil {
			return 0, false, err
		}
		switch c := bytes.Compare(id[:], at[:]); {
		case c == 0:
			offset, err = x.offset(mid)
			return offset, err == nil, err
		case c < 0:
			high = mid
		default:
			low = mid + 1
		}
	}
	return 0, false, nil
}

// name reads the i-th id.
func (x *index) name(i int64, id *core.ObjectID) error {
	if x.names != nil {
		copy(id[:], x.names[i*int64(idBytes):])
		return nil
	}
	if _, err := x.r.ReadAt(id[:], idxNames+i*int64(idBytes)); err != nil {
		return damagedf(x.file, "read id %d: %v", i, err)
	}
	return nil
}

// offset returns where the i-th object lies. Offsets beyond 31 bits are in a table of their own.
func (x *index) offset(i int64) (int64, error) {
	n := x.count()
	table := idxNames + n*(int64(idBytes)+4)
	var b [8]byte
	if _, err := x.r.ReadAt(b[:4], table+4*i); err != nil {
		return 0, damagedf(x.file, "read offset %d: %v", i, err)
	}
	short := binary.BigEndian.Uint32(b[:4])
	if short < largeOffset {
		return int64(short), nil
	}
	row := int64(short - largeOffset)
	if row >= x.large {
		return 0, damagedf(x.file, "object %d has no offset", i)
	}
	if _, err := x.r.ReadAt(b[:], table+4*n+8*row); err != nil {
		return 0, damagedf(x.file, "read offset %d: %v", i, err)
	}
	long := binary.BigEndian.Uint64(b[:])
	if long >= 1<<63 {
		return 0, damagedf(x.file, "object %d lies at %d", i, long)
	}
	return int64(long), nil
}
