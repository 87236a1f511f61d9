package wal

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/millrace/millrace/internal/core"
)

// The kinds of records. Numbers are on disk and never reused.
const (
	kindOpening   byte = 1 // where the log goes on from: previous segment, its end, its first batch
	kindShard     byte = 2 // state of a shard when its segment was begun: cut, cut term, last index, hard state
	kindEntry     byte = 3 // index, term, entry kind, data; an index at or below the last truncates
	kindHardState byte = 4 // opaque
	kindCut       byte = 5 // index, term: entries up to index are gone
	kindReset     byte = 6 // index, term: the log restarts after them
	kindRewrite   byte = 7 // as kindEntry, but only another place for an entry that the log has
	kindSeal      byte = 8 // empty; what went before is synced
)

// Flags of a record.
const (
	flagMore    byte = 1 << 0 // the next record belongs to the same group: all of a group counts, or nothing
	flagLast    byte = 1 << 1 // ends its batch: the records of one write
	flagOpening byte = 1 << 2 // belongs to the group that opens a segment
)

// headerBytes is the length of a record without its payload, little-endian:
//
//	0 payload length u32 | 4 header CRC u32 | 8 segment u64 | 16 batch u64 | 24 synced u64 | 32 shard u16 | 34 kind |
//	35 flags | 36 payload CRC u32
//
// Both are CRC32C and start from that of the log's salt. The header's covers all of it but itself, so that a length is
// known to be right before the payload is read. Synced is the last batch that was known to be durable when the record
// was written: the batch before, or an old one in a log without syncs.
const headerBytes = 40

// entryBytes is what an entry's payload has before its data: index u64, term u64, kind.
const entryBytes = 17

// maxPayload bounds a record's payload.
const maxPayload = MaxEntryBytes + entryBytes

// castagnoli is the table of CRC32C, which processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// salt makes checksums of a log differ from those that a client could compute and hide in its data.
type salt [16]byte

// seed returns where checksums of the log's records start.
func (s salt) seed() uint32 { return crc32.Checksum(s[:], castagnoli) }

// record is one decoded record. Payload is valid until the next read.
type record struct {
	// off is where the record begins in its file.
	off     int64
	segment uint64
	// batch is the write that the record is of, and synced the last batch that was durable by then.
	batch, synced uint64
	shard         core.ShardID
	kind, flags   byte
	sum           uint32 // of the payload
	payload       []byte
}

// end returns where the record ends in its file.
func (r *record) end() int64 { return r.off + headerBytes + int64(len(r.payload)) }

// appendHeader begins a record of n payload bytes. Checksums and flagLast are set when the batch is complete.
func appendHeader(b []byte, n int, segment, batch, synced uint64, shard core.ShardID, kind, flags byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, segment)
	b = binary.LittleEndian.AppendUint64(b, batch)
	b = binary.LittleEndian.AppendUint64(b, synced)
	b = binary.LittleEndian.AppendUint16(b, uint16(shard))
	b = append(b, kind, flags)
	return binary.LittleEndian.AppendUint32(b, 0)
}

// finish marks the last record of a batch and computes all checksums. b holds whole records.
func finish(b []byte, seed uint32) {
	for len(b) > 0 {
		n := headerBytes + int(binary.LittleEndian.Uint32(b))
		if n == len(b) {
			b[35] |= flagLast
		}
		binary.LittleEndian.PutUint32(b[36:], crc32.Update(seed, castagnoli, b[headerBytes:n]))
		binary.LittleEndian.PutUint32(b[4:], headerChecksum(b, seed))
		b = b[n:]
	}
}

// headerChecksum returns the checksum of a header, but for the field that holds it.
func headerChecksum(h []byte, seed uint32) uint32 {
	return crc32.Update(crc32.Update(seed, castagnoli, h[:4]), castagnoli, h[8:headerBytes])
}

// decodeHeader returns the record that a header begins, without its payload, and that payload's length. It reports
// false when the header is damaged or another segment's.
func decodeHeader(h []byte, off int64, segment uint64, seed uint32) (r record, n int, ok bool) {
	r = record{
		off:     off,
		segment: binary.LittleEndian.Uint64(h[8:]),
		batch:   binary.LittleEndian.Uint64(h[16:]),
		synced:  binary.LittleEndian.Uint64(h[24:]),
		shard:   core.ShardID(binary.LittleEndian.Uint16(h[32:])),
		kind:    h[34],
		flags:   h[35],
		sum:     binary.LittleEndian.Uint32(h[36:]),
	}
	size := binary.LittleEndian.Uint32(h)
	if r.segment != segment || size > maxPayload ||
		binary.LittleEndian.Uint32(h[4:]) != headerChecksum(h, seed) {
		return r, 0, false
	}
	return r, int(size), true
}

// setPayload completes a record; it reports whether the payload is the one that the header was made for.
func (r *record) setPayload(p []byte, seed uint32) bool {
	r.payload = p
	return r.sum == crc32.Update(seed, castagnoli, p)
}

// maxIndex keeps sums of indexes from wrapping round: a record with a larger one makes no sense.
const maxIndex = 1 << 62

// appendEntry appends the payload of an entry.
func appendEntry(b []byte, e Entry) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.Index)
	b = binary.LittleEndian.AppendUint64(b, e.Term)
	b = append(b, e.Kind)
	return append(b, e.Data...)
}

// decodeEntry reads an entry's payload. The data is not copied.
func decodeEntry(p []byte) (Entry, bool) {
	if len(p) < entryBytes {
		return Entry{}, false
	}
	e := Entry{
		Index: binary.LittleEndian.Uint64(p), Term: binary.LittleEndian.Uint64(p[8:]), Kind: p[16], Data: p[entryBytes:],
	}
	return e, e.Index > 0 && e.Index <= maxIndex
}

// pairBytes is the payload of a cut and of a reset.
const pairBytes = 16

// appendPair appends the payload of a cut or a reset.
func appendPair(b []byte, index, term uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, index)
	return binary.LittleEndian.AppendUint64(b, term)
}

// decodePair reads it.
func decodePair(p []byte) (index, term uint64, ok bool) {
	if len(p) != pairBytes {
		return 0, 0, false
	}
	index, term = binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	return index, term, index <= maxIndex
}

// opening tells where a segment's log goes on from. Previous is 0 in the first.
type opening struct {
	// previous is the number of the segment before.
	previous uint64
	// previousEnd is where that segment ends: all before it is whole and was durable, and what
	// follows it there does not count.
	previousEnd int64
	// previousFirst is the first batch of that segment.
	previousFirst uint64
	// batch is that of the opening itself. It is not in the payload.
	batch uint64
}

// openingBytes is the payload of an opening.
const openingBytes = 24

// appendOpening appends that payload.
func appendOpening(b []byte, o opening) []byte {
	b = binary.LittleEndian.AppendUint64(b, o.previous)
	b = binary.LittleEndian.AppendUint64(b, uint64(o.previousEnd))
	return binary.LittleEndian.AppendUint64(b, o.previousFirst)
}

// decodeOpening reads it. The batch is not in it.
func decodeOpening(p []byte) (opening, bool) {
	if len(p) != openingBytes {
		return opening{}, false
	}
	o := opening{
		previous:      binary.LittleEndian.Uint64(p),
		previousEnd:   int64(binary.LittleEndian.Uint64(p[8:])),
		previousFirst: binary.LittleEndian.Uint64(p[16:]),
	}
	return o, o.previousEnd >= 0
}

// shardBytes is a shard's state without its hard state: cut, cut term, last, and whether a hard state follows.
const shardBytes = 25

// appendShard appends a shard's state as an opening has it.
func appendShard(b []byte, s ShardState) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.CutIndex)
	b = binary.LittleEndian.AppendUint64(b, s.CutTerm)
	b = binary.LittleEndian.AppendUint64(b, s.Last)
	if s.HardState == nil {
		return append(b, 0)
	}
	return append(append(b, 1), s.HardState...)
}

// decodeShard reads it. ok is false for a state that cannot be.
func decodeShard(p []byte) (ShardState, bool) {
	if len(p) < shardBytes {
		return ShardState{}, false
	}
	s := ShardState{
		CutIndex: binary.LittleEndian.Uint64(p),
		CutTerm:  binary.LittleEndian.Uint64(p[8:]),
		Last:     binary.LittleEndian.Uint64(p[16:]),
	}
	s.First = s.CutIndex + 1
	if p[24] != 0 {
		s.HardState = append([]byte{}, p[shardBytes:]...)
	}
	return s, s.Last >= s.CutIndex && s.Last <= maxIndex
}
