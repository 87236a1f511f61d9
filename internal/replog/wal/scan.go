package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/millrace/millrace/internal/env"
)

// window reads a file in large steps and hands out slices of what it read.
type window struct {
	// f is the file, name its path and size its length.
	f    env.File
	name string
	size int64
	// base is where in the file buf begins; buf is what was read last.
	base int64
	buf  []byte
}

// windowBytes is how much is read at once.
const windowBytes = 256 << 10

// at returns n bytes at off, or fewer at the end of the file. They are valid until the next call.
func (w *window) at(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(0, w.size-off)))
	if n == 0 {
		return nil, nil
	}
	if off < w.base || off+int64(n) > w.base+int64(len(w.buf)) {
		if err := w.fill(off, n); err != nil {
			return nil, err
		}
	}
	have := w.buf[off-w.base:]
	return have[:min(n, len(have))], nil
}

// rest returns all that was read from off on.
func (w *window) rest(off int64) []byte { return w.buf[off-w.base:] }

// fill reads at least n bytes from off on, and more if they are there.
func (w *window) fill(off int64, n int) error {
	n = int(min(int64(max(n, windowBytes)), w.size-off))
	if cap(w.buf) < n {
		w.buf = make([]byte, n)
	}
	got, err := w.f.ReadAt(w.buf[:n], off)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s at offset %d: %w", w.name, off, err)
	}
	w.base, w.buf = off, w.buf[:got]
	return nil
}

// segmentReader reads the records of one segment file.
type segmentReader struct {
	window
	number uint64
	// seed is where the checksums of the records start.
	seed uint32
}

// openReader opens a segment for reading.
func openReader(fsys env.FS, dir string, number uint64, seed uint32) (*segmentReader, error) {
	name := filepath.Join(dir, segmentName(number))
	size, err := fsys.Size(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &segmentReader{window: window{f: f, name: name, size: size}, number: number, seed: seed}, nil
}

func (r *segmentReader) close() { _ = r.f.Close() } // opened for reading: nothing can be lost

// header reports whether the segment's header is whole and its own.
func (r *segmentReader) header(s salt) (bool, error) {
	b, err := r.at(0, segmentHeaderBytes)
	if err != nil {
		return false, err
	}
	number, own, version, ok := decodeSegmentHeader(b)
	if ok && version > formatVersion {
		return false, &NewerFormatError{File: r.name, Version: version}
	}
	return ok && number == r.number && own == s, nil
}

// read returns the record at off, or false when there is no good one.
func (r *segmentReader) read(off int64) (record, bool, error) {
	h, err := r.at(off, headerBytes)
	if err != nil || len(h) < headerBytes {
		return record{}, false, err
	}
	rec, n, ok := decodeHeader(h, off, r.number, r.seed)
	if !ok {
		return record{}, false, nil
	}
	b, err := r.at(off, headerBytes+n)
	if err != nil || len(b) < headerBytes+n {
		return record{}, false, err
	}
	ok = rec.setPayload(b[headerBytes:], r.seed)
	return rec, ok, nil
}

// cursor walks the good records of a segment from its beginning and stops at the first bad one.
type cursor struct {
	r *segmentReader
	// off is where the next record is expected.
	off int64
	// started says that there was a record.
	started bool
	// batch is that of the record before, and complete says that this record ended its batch.
	batch    uint64
	complete bool   // that record ended its batch
	first    uint64 // first batch
	// start is where batch begins.
	start int64
}

// newCursor returns a cursor before the first record.
func newCursor(r *segmentReader) *cursor { return &cursor{r: r, off: segmentHeaderBytes} }

// next returns the next record. The batches of a segment follow each other without a gap.
func (c *cursor) next() (record, bool, error) {
	rec, ok, err := c.r.read(c.off)
	if err != nil || !ok {
		return rec, false, err
	}
	switch {
	case !c.started:
		c.started, c.first, c.batch, c.start = true, rec.batch, rec.batch, rec.off
	case c.complete && rec.batch == c.batch+1:
		c.batch, c.start = rec.batch, rec.off
	case !c.complete && rec.batch == c.batch:
	default:
		return rec, false, nil
	}
	c.complete = rec.flags&flagLast != 0
	c.off = rec.end()
	return rec, true, nil
}

// damagedBatch is the batch that a bad record at the cursor would have belonged to.
func (c *cursor) damagedBatch() uint64 {
	if c.complete {
		return c.batch + 1
	}
	return c.batch
}

// readOpening reads the group that opens a segment; false when it is not whole.
func (r *segmentReader) readOpening(s salt) (opening, bool, error) {
	if ok, err := r.header(s); err != nil || !ok {
		return opening{}, false, err
	}
	c := newCursor(r)
	var o opening
	for first := true; ; first = false {
		rec, ok, err := c.next()
		if err != nil || !ok || rec.flags&flagOpening == 0 {
			return o, false, err
		}
		if first {
			if rec.kind != kindOpening {
				return o, false, nil
			}
			if o, ok = decodeOpening(rec.payload); !ok {
				return o, false, nil
			}
			o.batch = rec.batch
		}
		if rec.flags&flagMore == 0 {
			return o, true, nil
		}
	}
}

// evidence is what good records behind a bad one prove.
type evidence struct {
	found   bool   // there is one
	synced  uint64 // highest batch that one of them knew to be durable
	inOrder bool   // one that is not of the opening was written when the batch before it was durable
}

// join adds what another part of the log proves.
func (e *evidence) join(o evidence) {
	e.found, e.inOrder, e.synced = e.found || o.found, e.inOrder || o.inOrder, max(e.synced, o.synced)
}

// evidence looks for good records from off to the end of the file, at any offset. It looks for the
// segment's number where a record has it, and tries to read a record around it. Bytes of a client
// cannot pass for one, since no client knows the salt that checksums start from.
func (r *segmentReader) evidence(off int64) (evidence, error) {
	var e evidence
	mark := binary.LittleEndian.AppendUint64(nil, r.number)
	const at = 8 // of the segment number in a record
	w := window{f: r.f, name: r.name, size: r.size}
	for pos := off + at; ; {
		b, err := w.at(pos, len(mark))
		if err != nil || len(b) < len(mark) {
			return e, err
		}
		b = w.rest(pos)
		i := bytes.Index(b, mark)
		if i < 0 {
			pos += int64(len(b) - len(mark) + 1)
			continue
		}
		pos += int64(i)
		rec, ok, err := r.read(pos - at)
		switch {
		case err != nil:
			return e, err
		case !ok:
			pos++
			continue
		}
		e.found, e.synced = true, max(e.synced, rec.synced)
		e.inOrder = e.inOrder || rec.flags&flagOpening == 0 && rec.synced+1 == rec.batch
		pos = rec.end() + at
	}
}
