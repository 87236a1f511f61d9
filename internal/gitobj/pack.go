package gitobj

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/internal/core"
)

// Types of an entry of a pack that stand for an object made from another: one that lies a distance before it, or one
// named by its id. The others are those of core.ObjectType.
const (
	entryOffsetDelta = 6
	entryNamedDelta  = 7
)

const (
	// deltaDepth bounds a chain of deltas. git itself makes chains of at most 4,095.
	deltaDepth = 4096
	// peelDepth bounds chains of tags of tags. Ordinary use makes no more than two.
	peelDepth = 64
	// tagBytes bounds a tag that is stored as a delta, and what it is made from: only such a one must be in memory to be
	// read. Of others the head is enough.
	tagBytes = 1 << 20
	// tagHead holds the first two lines of a tag: object, 40 digits, type and the longest name of one.
	tagHead = 128
)

// pack reads objects of one pack. It is safe for concurrent use.
type pack struct {
	*index
	// r reads the pack, whose name is file and whose length is size.
	r    io.ReaderAt
	file string
	size int64
}

// packHeader is PACK, the version and the number of objects; packTrailer the SHA-1 of all before it.
const (
	packHeader  = 12
	packTrailer = 20
)

// entry is the head of one entry of a pack.
type entry struct {
	// kind is a core.ObjectType or one of the deltas.
	kind byte
	// size is that of the content, or of the delta, once it is inflated.
	size int64
	// data is where its deflated bytes begin.
	data int64
	// base is of a delta: where the entry begins that it is made from. It may lie anywhere in the
	// pack if it is named by an id.
	base int64
}

// entryAt reads the head of the entry that begins at offset. The head is within the pack, and so is
// the base of an offset delta: a loop of deltas that way cannot be.
func (p *pack) entryAt(offset int64) (entry, error) {
	var e entry
	end := p.size - packTrailer
	if offset < packHeader || offset >= end {
		return e, damagedf(p.file, "an object lies at %d of %d", offset, p.size)
	}
	var buf [64]byte // a size takes 10 bytes, a distance 10, an id 20
	b := buf[:min(int64(len(buf)), end-offset)]
	if _, err := p.r.ReadAt(b, offset); err != nil {
		return e, damagedf(p.file, "read at %d: %v", offset, err)
	}
	bad := func() (entry, error) { return entry{}, damagedf(p.file, "the head at %d makes no sense", offset) }
	e.kind, e.size = b[0]>>4&7, int64(b[0]&0x0f)
	at := 1
	for shift, more := 4, b[0]&0x80 != 0; more; shift += 7 {
		if at >= len(b) || shift > 60 {
			return bad()
		}
		e.size |= int64(b[at]&0x7f) << shift
		more = b[at]&0x80 != 0
		at++
	}
	if e.size < 0 {
		return bad()
	}
	switch e.kind {
	case byte(core.ObjectCommit), byte(core.ObjectTree), byte(core.ObjectBlob), byte(core.ObjectTag):
	case entryOffsetDelta:
		distance, n := readDistance(b[at:])
		if n == 0 || distance <= 0 || distance > offset-packHeader {
			return bad()
		}
		at += n
		e.base = offset - distance
	case entryNamedDelta:
		var id core.ObjectID
		if copy(id[:], b[at:]) < len(id) {
			return bad()
		}
		at += len(id)
		base, found, err := p.find(id)
		switch {
		case err != nil:
			return e, err
		case !found:
			return e, damagedf(p.file, "object %s, that others are made from, is not in it", id)
		}
		e.base = base
	default:
		return bad()
	}
	e.data = offset + int64(at)
	return e, nil
}

// readDistance reads how far before its delta a base lies; n is 0 when that makes no sense.
func readDistance(b []byte) (distance int64, n int) {
	for n < len(b) && n < 9 {
		c := b[n]
		if n > 0 {
			distance++
		}
		distance = distance<<7 | int64(c&0x7f)
		n++
		if c&0x80 == 0 {
			return distance, n
		}
	}
	return 0, 0
}

// typeAt returns the type of the object whose entry begins at offset: that of what its deltas start
// from. A delta has the type of what it is made from, so no content need be made.
func (p *pack) typeAt(offset int64) (core.ObjectType, error) {
	for range deltaDepth {
		e, err := p.entryAt(offset)
		switch {
		case err != nil:
			return core.ObjectMissing, err
		case e.kind != entryOffsetDelta && e.kind != entryNamedDelta:
			return core.ObjectType(e.kind), nil
		}
		offset = e.base
	}
	return core.ObjectMissing, errDeep
}

// lookup finds an object's type and, of a tag, what it points to. Content is inflated of tags
// alone.
func (p *pack) lookup(id core.ObjectID) (found bool, t core.ObjectType, target core.ObjectID, err error) {
	offset, found, err := p.find(id)
	if err != nil || !found {
		return false, core.ObjectMissing, target, err
	}
	if t, err = p.typeAt(offset); err != nil {
		return false, core.ObjectMissing, target, err
	}
	if t == core.ObjectTag {
		head, err := p.headAt(offset)
		if err != nil {
			return false, core.ObjectMissing, target, err
		}
		if target, err = tagTarget(head); err != nil {
			return false, core.ObjectMissing, target, damagedf(p.file, "tag %s: %v", id, err)
		}
	}
	return true, t, target, nil
}

// headAt returns the first bytes of the tag whose entry begins at offset: at least tagHead of them,
// or the whole tag. A tag that is a delta is made from its base in memory, from the innermost delta
// outwards; the bounds keep a hostile pack from taking more than a few mebibytes.
func (p *pack) headAt(offset int64) ([]byte, error) {
	e, err := p.entryAt(offset)
	if err != nil {
		return nil, err
	}
	if e.kind == byte(core.ObjectTag) {
		return p.inflate(e, min(e.size, tagHead))
	}
	var deltas [][]byte // the outermost first
	held := int64(0)
	for e.kind != byte(core.ObjectTag) {
		switch {
		case len(deltas) >= deltaDepth:
			return nil, errDeep
		case e.size > tagBytes || held > 4*tagBytes:
			return nil, errLargeTag
		}
		held += e.size
		delta, err := p.inflate(e, e.size)
		if err != nil {
			return nil, err
		}
		deltas = append(deltas, delta)
		if e, err = p.entryAt(e.base); err != nil {
			return nil, err
		}
	}
	if e.size > tagBytes {
		return nil, errLargeTag
	}
	content, err := p.inflate(e, e.size)
	for i := len(deltas) - 1; i >= 0 && err == nil; i-- {
		if content, err = applyDelta(content, deltas[i]); errors.Is(err, errDelta) {
			err = damagedf(p.file, "the tag at %d: %v", offset, err)
		}
	}
	return content, err
}

// inflate returns the first n bytes of an entry's content. If that is all of it, the end is read
// too, and with it the checksum.
func (p *pack) inflate(e entry, n int64) ([]byte, error) {
	r := bufio.NewReaderSize(io.NewSectionReader(p.r, e.data, p.size-packTrailer-e.data), 4096)
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, damagedf(p.file, "inflate at %d: %v", e.data, err)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(z, b); err != nil {
		return nil, damagedf(p.file, "inflate at %d: %v", e.data, err)
	}
	if n < e.size {
		return b, nil
	}
	if k, err := z.Read(make([]byte, 1)); k != 0 || !errors.Is(err, io.EOF) { // the end, and with it the checksum
		return nil, damagedf(p.file, "inflate at %d: more than %d bytes, or %v", e.data, e.size, err)
	}
	return b, nil
}

var (
	// errDelta is damage: git has accepted the pack, so it had no such delta when it came.
	errDelta = errors.New("a delta that makes no sense")
	// What a client may well send, and what is not read all the same: no damage.
	errLargeTag = core.TooLarge{Field: "tag", Limit: "git_tag_bytes", Max: tagBytes}
	errDeep     = core.TooLarge{Field: "object", Limit: "git_delta_depth", Max: deltaDepth}
)

// applyDelta makes content from base. A delta is the two sizes, then instructions: copy from base,
// or take the bytes that follow. Source: Documentation/gitformat-pack.txt of git. Nothing beyond
// the announced sizes is copied, and no result is larger than tagBytes.
func applyDelta(base, delta []byte) ([]byte, error) {
	from, delta, ok := readSize(delta)
	to, delta, ok2 := readSize(delta)
	switch {
	case !ok || !ok2 || from != int64(len(base)):
		return nil, errDelta
	case to > tagBytes:
		return nil, errLargeTag
	}
	out := make([]byte, 0, to)
	for len(delta) > 0 {
		code := delta[0]
		delta = delta[1:]
		if code&0x80 == 0 {
			n := int(code)
			if n == 0 || n > len(delta) || int64(len(out)+n) > to {
				return nil, errDelta
			}
			out, delta = append(out, delta[:n]...), delta[n:]
			continue
		}
		var args [7]int64 // four bytes of offset, three of size
		for i := range args {
			if code>>i&1 == 0 {
				continue
			}
			if len(delta) == 0 {
				return nil, errDelta
			}
			args[i], delta = int64(delta[0]), delta[1:]
		}
		offset := args[0] | args[1]<<8 | args[2]<<16 | args[3]<<24
		size := args[4] | args[5]<<8 | args[6]<<16
		if size == 0 {
			size = 0x10000
		}
		if offset+size > from || int64(len(out))+size > to {
			return nil, errDelta
		}
		out = append(out, base[offset:offset+size]...)
	}
	if int64(len(out)) != to {
		return nil, errDelta
	}
	return out, nil
}

// readSize reads a number of 7 bits a byte, the lowest first.
func readSize(b []byte) (n int64, rest []byte, ok bool) {
	for i := 0; i < len(b) && i < 9; i++ {
		n |= int64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}

// tagTarget reads the first line of a tag.
func tagTarget(b []byte) (core.ObjectID, error) {
	line, _, found := bytes.Cut(b, []byte("\n"))
	hex, ok := bytes.CutPrefix(line, []byte("object "))
	if !found || !ok {
		return core.ObjectID{}, errors.New("it names no object")
	}
	id, err := core.ParseObjectID(string(hex))
	if err != nil {
		return id, fmt.Errorf("its object: %w", err)
	}
	return id, nil
}
