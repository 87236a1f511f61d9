package gitobj

import (
	"bufio"
	"cmp"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// scan reads a pack as it passes to git, entry by entry, so that git is not given what would cost too much: an entry of a few
// bytes may be made into an object of any size. Bytes that are not a pack pass: git says what is wrong with them.
type scan struct {
	// limits are those of the push.
	limits scanLimits
	need   func(bytes int64) error // of memory

	count int64 // of bytes that have passed
	// unpacked counts base and result of deltas, because git makes both.
	unpacked int64 // bytes of all objects so far, as git has to make them
	// largest is the size of the largest object so far that git holds in memory.
	largest int64
	// objects is how many the head of the pack announces.
	objects int64
	// inflate is used again for each entry.
	inflate io.ReadCloser
}

// scanLimits bound what a pack may hold.
type scanLimits struct {
	// object bounds the bytes of one object.
	object int64
	// usual is how many bytes of memory git has without asking.
	usual int64
	// streamed is the size from which on git does not hold a blob in memory.
	streamed int64
}

const (
	// unpackedFree and unpackedRate bound the bytes of all objects of a pack: a fixed number, and a number for each byte of the
	// pack. Git makes some 400 MB a second. Long histories of large files that change little have a few hundred bytes for each.
	unpackedFree = 8 << 30
	unpackedRate = 256
	// copies is in how many copies git may hold an object: what it is made from, and what is made, and half of that as room.
	copiesNum, copiesDen = 5, 2
)

// errNoPack ends a scan of bytes that are not a pack.
var errNoPack = errors.New("no pack")

// scanned passes a pack through a scan. What it returns has been scanned: as much is held back as the scan may not have looked at.
type scanned struct {
	// r is where the pack comes from.
	r io.Reader
	// to passes what was read to the scan, which runs in a goroutine of its own.
	to *io.PipeWriter
	// end waits for the end of the scan and returns its error.
	end func() error
	// held is what was read and not passed on.
	held []byte
	// over is why nothing more is read.
	over error
}

const (
	// scanBuffer is how much is read at a time, by either side.
	scanBuffer = 32 << 10
	// scanHeld is never passed on before the end: more than the scan can have taken in without
	// having looked at it.
	scanHeld = 2 * scanBuffer
)

// start begins a scan of what is read from r. The returned function ends it, and must be called.
func (s *scan) start(r io.Reader) (*scanned, func()) {
	from, to := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := s.run(bufio.NewReaderSize(&countedBytes{r: from, n: &s.count}, scanBuffer))
		if errors.Is(err, errNoPack) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			_, err = io.Copy(io.Discard, from)
		}
		_ = from.CloseWithError(err)
		ended <- err
	}()
	end := sync.OnceValue(func() error { _ = to.Close(); return <-ended })
	return &scanned{r: r, to: to, end: end}, func() { _ = end() }
}

// Read reads on. At the end of the pack it waits for the scan's judgement before it passes on the
// last bytes.
func (s *scanned) Read(b []byte) (int, error) {
	for s.over == nil && len(s.held) <= scanHeld {
		from := len(s.held)
		s.held = slices.Grow(s.held, scanBuffer)[:from+scanBuffer]
		n, err := s.r.Read(s.held[from:])
		s.held = s.held[:from+n]
		if n > 0 {
			_, bad := s.to.Write(s.held[from:])
			s.over = bad
		}
		if errors.Is(err, io.EOF) && s.over == nil {
			s.over = cmp.Or(s.end(), io.EOF)
		}
		s.over = cmp.Or(s.over, err)
	}
	ready := len(s.held) - scanHeld
	if errors.Is(s.over, io.EOF) {
		ready = len(s.held)
	} else if s.over != nil {
		return 0, s.over
	}
	if ready == 0 {
		return 0, s.over
	}
	n := copy(b, s.held[:ready])
	s.held = append(s.held[:0], s.held[n:]...)
	return n, nil
}

// run scans a pack to its end.
func (s *scan) run(r *bufio.Reader) error {
	var head [packHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	s.objects = int64(binary.BigEndian.Uint32(head[8:]))
	if err := s.holds(0); err != nil {
		return err
	}
	for range s.objects {
		if err := s.entry(r); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// holds asks for the memory that git needs with one object more of that size. It blocks while the
// memory is not free: git gets no further bytes meanwhile.
func (s *scan) holds(bytes int64) error {
	s.largest = max(s.largest, bytes)
	return s.need(s.limits.usual + objectCost*s.objects + s.largest*copiesNum/copiesDen)
}

// entry scans one entry.
func (s *scan) entry(r *bufio.Reader) error {
	kind, size, err := entryHead(r)
	if err != nil {
		return err
	}
	delta := kind == entryOffsetDelta || kind == entryNamedDelta
	switch kind {
	case entryOffsetDelta:
		for more := true; more; {
			b, err := r.ReadByte()
			if err != nil {
				return err
			}
			more = b&0x80 != 0
		}
	case entryNamedDelta:
		if _, err := io.CopyN(io.Discard, r, int64(idBytes)); err != nil {
			return err
		}
	}
	if err := s.object(size); err != nil {
		return err
	}
	if s.inflate == nil {
		s.inflate, err = zlib.NewReader(r)
	} else {
		err = s.inflate.(zlib.Resetter).Reset(r, nil)
	}
	if err != nil {
		return errNoPack
	}
	content := &io.LimitedReader{R: s.inflate, N: size + 1}
	if delta {
		in := bufio.NewReaderSize(content, 32)
		from, err1 := binary.ReadUvarint(in)
		to, err2 := binary.ReadUvarint(in)
		if err := errors.Join(err1, err2); err != nil || from > 1<<62 || to > 1<<62 {
			return errNoPack
		}
		for _, n := range []int64{int64(from), int64(to)} {
			if err := s.object(n); err != nil {
				return err
			}
		}
		if err := s.holds(max(int64(from), int64(to))); err != nil {
			return err
		}
		if err := s.makes(int64(to)); err != nil {
			return err
		}
	} else if kind != byte(core.ObjectBlob) || size < s.limits.streamed {
		if err := s.holds(size); err != nil {
			return err
		}
	}
	if err := s.makes(size); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, content); err != nil || content.N != 1 {
		return errNoPack
	}
	return nil
}

// object refuses an object that is too large.
func (s *scan) object(size int64) error {
	if size > s.limits.object {
		return core.TooLarge{Field: fmt.Sprintf("an object of %d bytes", size), Limit: "git_object", Max: s.limits.object}
	}
	return nil
}

// makes counts bytes that git has to make.
func (s *scan) makes(bytes int64) error {
	s.unpacked += bytes
	if most := unpackedFree + unpackedRate*s.count; s.unpacked > most {
		return core.TooLarge{Field: "content of the pack", Limit: "git_unpacked", Max: most}
	}
	return nil
}

// entryHead reads the kind and the size that an entry begins with.
func entryHead(r io.ByteReader) (kind byte, size int64, err error) {
	b, err := r.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	kind, size = b>>4&7, int64(b&0xf)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if b, err = r.ReadByte(); err != nil {
			return 0, 0, err
		}
		if shift > 55 {
			return 0, 0, errNoPack
		}
		size |= int64(b&0x7f) << shift
	}
	return kind, size, nil
}

// countedBytes counts what is read.
type countedBytes struct {
	r io.Reader
	n *int64
}

// Read adds what it has read to n.
func (c *countedBytes) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	*c.n += int64(n)
	return n, err
}
