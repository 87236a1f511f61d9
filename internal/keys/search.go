package keys

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
)

// Keys of the search service: [partition][search][incarnation of the collection][table][...]. A collection is one
// contiguous range. Incarnation 0 holds what belongs to no collection: definitions by name, where the empty name holds the
// last incarnation given out, and versions of rulesets by name, a zero byte and number, where the empty name holds the highest
// number of a version that was removed with its ruleset.

// Tables of an incarnation above 0.
const (
	searchCounts     byte = 1 // one row
	searchPoints     byte = 2 // by id
	searchVectors    byte = 3 // by slot
	searchRecordings byte = 4 // by id
	searchOrder      byte = 5 // of recordings, by number: their ids
)

// Tables of incarnation 0.
const (
	searchDefinitions byte = 1
	searchRulesets    byte = 2
)

func beginSearch(p core.Partition, incarnation uint32, table byte, more int) []byte {
	b := Begin(p, ServiceSearch, incarnationLen+1+more)
	return append(binary.BigEndian.AppendUint32(b, incarnation), table)
}

// searchTail returns what follows the table in a key of the search service.
func searchTail(key []byte) (tail []byte, ok bool) {
	body := Body(key)
	const head = PartitionLen + 1 + incarnationLen + 1
	if len(body) < head {
		return nil, false
	}
	return body[head:], true
}

// Collection is the key of a collection's definition; of an empty name, that of the last incarnation given out.
func Collection(p core.Partition, name string) []byte {
	return End(append(beginSearch(p, 0, searchDefinitions, len(name)), name...))
}

// Collections returns the bounds of all definitions, the counter included.
func Collections(p core.Partition) (from, to []byte) {
	return Range(beginSearch(p, 0, searchDefinitions, 0))
}

// CollectionOf returns the name in what Collection made.
func CollectionOf(key []byte) (name string, ok bool) {
	tail, ok := searchTail(key)
	return string(tail), ok
}

// CollectionRange returns the bounds of everything that a collection holds.
func CollectionRange(p core.Partition, incarnation uint32) (from, to []byte) {
	return Range(binary.BigEndian.AppendUint32(Begin(p, ServiceSearch, incarnationLen), incarnation))
}

// CollectionCounts is the key of a collection's counters.
func CollectionCounts(p core.Partition, incarnation uint32) []byte {
	return End(beginSearch(p, incarnation, searchCounts, 0))
}

// Point is the key of a point.
func Point(p core.Partition, incarnation uint32, id string) []byte {
	return End(append(beginSearch(p, incarnation, searchPoints, len(id)), id...))
}

// Points returns the bounds of a collection's points.
func Points(p core.Partition, incarnation uint32) (from, to []byte) {
	return Range(beginSearch(p, incarnation, searchPoints, 0))
}

// PointsAfter returns the least key of a point after the id given: no id has a byte below a space.
func PointsAfter(p core.Partition, incarnation uint32, id string) []byte {
	return End(append(append(beginSearch(p, incarnation, searchPoints, len(id)+1), id...), 1))
}

// PointOf returns the id in what Point made.
func PointOf(key []byte) (id string, ok bool) {
	tail, ok := searchTail(key)
	return string(tail), ok
}

// Vector is the key of the vector in a slot.
func Vector(p core.Partition, incarnation uint32, slot uint64) []byte {
	return End(binary.BigEndian.AppendUint64(beginSearch(p, incarnation, searchVectors, 8), slot))
}

// Vectors returns the bounds of a collection's vectors.
func Vectors(p core.Partition, incarnation uint32) (from, to []byte) {
	return Range(beginSearch(p, incarnation, searchVectors, 0))
}

// VectorOf returns the slot in what Vector made.
func VectorOf(key []byte) (slot uint64, ok bool) { return searchNumber(key) }

func searchNumber(key []byte) (uint64, bool) {
	tail, ok := searchTail(key)
	if !ok || len(tail) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(tail), true
}

// Recording is the key of a recording.
func Recording(p core.Partition, incarnation uint32, id uint64) []byte {
	return End(binary.BigEndian.AppendUint64(beginSearch(p, incarnation, searchRecordings, 8), id))
}

// RecordingOrder is the key of the id of a collection's recording of that number, in the order in which they were kept.
func RecordingOrder(p core.Partition, incarnation uint32, number uint64) []byte {
	return End(binary.BigEndian.AppendUint64(beginSearch(p, incarnation, searchOrder, 8), number))
}

// Ruleset is the key of a version of a ruleset; of an empty name and version 0, that of the highest number of a version that
// was removed with its ruleset.
func Ruleset(p core.Partition, name string, version uint32) []byte {
	b := append(beginSearch(p, 0, searchRulesets, len(name)+1+4), name...)
	return End(binary.BigEndian.AppendUint32(append(b, 0), version))
}

// Rulesets returns the bounds of all versions of all rulesets, the row of the empty name included.
func Rulesets(p core.Partition) (from, to []byte) { return Range(beginSearch(p, 0, searchRulesets, 0)) }

// RulesetOf returns the name and the version in what Ruleset made.
func RulesetOf(key []byte) (name string, version uint32, ok bool) {
	tail, ok := searchTail(key)
	n := len(tail) - 1 - 4
	if !ok || n < 0 || tail[n] != 0 {
		return "", 0, false
	}
	return string(tail[:n]), binary.BigEndian.Uint32(tail[n+1:]), true
}
