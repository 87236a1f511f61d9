package core

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math"
)

// Placement says which of the P partitions of a namespace a task or key belongs to. It is frozen: every client computes
// it too. P is at least 1.

// PlaceText returns the partition of a text: its FNV-1a hash of 64 bits, modulo P.
func PlaceText(text []byte, partitions int) uint16 {
	if partitions <= 1 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(text)
	return uint16(h.Sum64() % uint64(partitions))
}

// PlaceID returns the partition that a task's id puts it in when nothing else does: its last 64 bits, which are random,
// modulo P.
func PlaceID(id TaskID, partitions int) uint16 {
	if partitions <= 1 {
		return 0
	}
	return uint16(binary.BigEndian.Uint64(id[8:]) % uint64(partitions))
}

// PlaceKey returns the partition of a key of a plain keyspace: by the text within its first pair of braces, if there is
// any, else by the whole key.
func PlaceKey(key []byte, partitions int) uint16 { return PlaceText(tagOf(key), partitions) }

// tagOf returns the text within the first pair of braces of key, or all of key when there is no closed pair with a text.
func tagOf(key []byte) []byte {
	_, rest, ok := bytes.Cut(key, []byte{'{'})
	if !ok {
		return key
	}
	if tag, _, closed := bytes.Cut(rest, []byte{'}'}); closed && len(tag) > 0 {
		return tag
	}
	return key
}

// Place returns the partition of a new task: by its tag, else its key, else its unique key, else its batch, else its id.
func (op *TaskCreate) Place(partitions int) uint16 {
	switch {
	case op.Tag != "":
		return PlaceText([]byte(op.Tag), partitions)
	case op.Key != "":
		return PlaceText([]byte(op.Key), partitions)
	case op.Unique.Key != "":
		return PlaceText([]byte(op.Unique.Key), partitions)
	case !op.Batch.IsZero() && int(op.Batch.Partition()) < partitions:
		return op.Batch.Partition()
	}
	return PlaceID(op.ID, partitions)
}

// WithPartition returns id with other partition bits.
func (id TaskID) WithPartition(partition uint16) TaskID {
	head := binary.BigEndian.Uint64(id[:8])
	binary.BigEndian.PutUint64(id[:8], head&^(0x0fff<<4)|uint64(partition&0x0fff)<<4)
	return id
}

// PlacedID builds an id whose partition bits and random bits both name a partition of P. Of random the first 68 bits are
// used, and all but the remainder of its division by P is kept.
func PlacedID(ms int64, partition uint16, partitions int, random [9]byte) TaskID {
	if p := uint64(max(partitions, 1)); p > 1 {
		n := binary.BigEndian.Uint64(random[:8])
		n -= n % p
		if n > math.MaxUint64-p { // the last stretch is shorter than P
			n -= p
		}
		binary.BigEndian.PutUint64(random[:8], n+uint64(partition))
	}
	return NewTaskID(ms, partition, random)
}
