package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/millrace/millrace/internal/core"
)

// A frame is: length of the payload (4), CRC32C of all but these four bytes (4), shard (2), kind (1), zero (1), payload.
// Numbers are little-endian.
const frameHead = 12

// Kinds of frames.
const (
	// kindMessage is a message of a class. Its payload goes to the handler.
	kindMessage byte = 1
	kindPing    byte = 2 // payload: anything up to 16 bytes, which the pong repeats
	kindPong    byte = 3
	kindEnd     byte = 4 // of a stream: nothing more comes, and nothing is missing
)

// maxPing bounds the payload of a ping.
const maxPing = 16

// ErrCorrupt says that a peer's bytes are not a valid frame.
var ErrCorrupt = errors.New("corrupt frame")

// appendHead appends the header of a frame whose payload follows.
func appendHead(b []byte, shard core.ShardID, kind byte, payload []byte) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint32(b, uint32(len(payload)))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, uint16(shard))
	b = append(b, kind, 0)
	le.PutUint32(b[at+4:], frameSum(b[at:], payload))
	return b
}

// frameSum returns the checksum of a frame: of all but the four bytes that hold it.
func frameSum(head, payload []byte) uint32 {
	sum := crc32.Update(0, castagnoli, head[:4])
	sum = crc32.Update(sum, castagnoli, head[8:frameHead])
	return crc32.Update(sum, castagnoli, payload)
}

// frame is one frame that was read. The payload is a part of the reader's chunk.
type frame struct {
	// shard is the number that the sender gave, which only messages have.
	shard   core.ShardID
	kind    byte
	payload []byte
}

// frameReader reads frames. Payloads are parts of the chunks that it reads into; a chunk is never used again, so that a
// payload may be kept.
type frameReader struct {
	// r is the connection.
	r     io.Reader
	max   int // bytes of a payload
	chunk int // bytes read at once, if that many are there

	// buf is the chunk that is read into. start and end bound what was read and not handed out.
	buf        []byte
	start, end int // of what was read into buf and not yet handed out
}

// next returns the next frame. Its error is ErrCorrupt, or what ended the connection. Length, kind
// and flags are judged before anything is allocated or waited for.
func (f *frameReader) next() (frame, error) {
	le := binary.LittleEndian
	if err := f.fill(frameHead); err != nil {
		return frame{}, err
	}
	head := f.buf[f.start:f.end]
	size := int64(le.Uint32(head)) // judged before anything is allocated for it
	kind := head[10]
	switch {
	case size > int64(f.max):
		return frame{}, fmt.Errorf("%w: payload of %d bytes, at most %d", ErrCorrupt, size, f.max)
	case kind < kindMessage || kind > kindEnd || head[11] != 0:
		return frame{}, fmt.Errorf("%w: kind %d, flags %d", ErrCorrupt, kind, head[11])
	case kind != kindMessage && size > maxPing:
		return frame{}, fmt.Errorf("%w: ping of %d bytes, at most %d", ErrCorrupt, size, maxPing)
	}
	n := frameHead + int(size)
	if err := f.fill(n); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	b := f.buf[f.start : f.start+n : f.start+n]
	if frameSum(b, b[frameHead:]) != le.Uint32(b[4:]) {
		return frame{}, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	f.start += n
	return frame{shard: core.ShardID(le.Uint16(b[8:])), kind: kind, payload: b[frameHead:n:n]}, nil
}

// fill reads until n bytes are there in one piece. Room for a payload of more than a chunk grows as it comes, so that a
// length alone takes no memory.
func (f *frameReader) fill(n int) error {
	for f.end-f.start < n {
		if room := len(f.buf) - f.start; room < n && (n <= f.chunk || f.end == len(f.buf)) {
			have := f.end - f.start
			grown := make([]byte, max(f.chunk, min(n, 2*have)))
			copy(grown, f.buf[f.start:f.end])
			f.buf, f.start, f.end = grown, 0, have
		}
		k, err := f.r.Read(f.buf[f.end:])
		f.end += k
		if err != nil && f.end-f.start < n {
			if f.end > f.start && errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
