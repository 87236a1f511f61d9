package keys

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
)

// AppendAfter appends the key of a task that waits for the end of another one.
func AppendAfter(dst []byte, p core.Partition, of, waits core.TaskID) []byte {
	dst = append(appendQueue(dst, p, RecordAfter), of[:]...)
	return End(append(dst, waits[:]...))
}

// AfterRange bounds the tasks that wait for the end of one, by their ids.
func AfterRange(p core.Partition, of core.TaskID) (from, to []byte) {
	return Range(append(appendQueue(nil, p, RecordAfter), of[:]...))
}

// DecodeAfter returns both tasks in a key of AppendAfter.
func DecodeAfter(key []byte) (of, waits core.TaskID, ok bool) {
	b := Body(key)
	if len(b) != queueHead+16+16 {
		return of, waits, false
	}
	return core.TaskID(b[queueHead:]), core.TaskID(b[queueHead+16:]), true
}

// AppendAfterTimer appends the key of the timer by which those are told who wait for a task that has ended. place is that of the end in
// the sequence of the partition.
func AppendAfterTimer(dst []byte, p core.Partition, due core.ShardTime, of core.TaskID, place uint64) []byte {
	dst = append(appendTimer(dst, p, due, TimerAfter), of[:]...)
	return End(binary.BigEndian.AppendUint64(dst, place))
}

// DecodeAfterTimer returns the task and the place in the rest of a timer of kind TimerAfter.
func DecodeAfterTimer(rest []byte) (of core.TaskID, place uint64, ok bool) {
	if len(rest) != 16+8 {
		return of, 0, false
	}
	return core.TaskID(rest), binary.BigEndian.Uint64(rest[16:]), true
}

// AppendBlocked appends the key of a task of a queue that waits for others.
func AppendBlocked(dst []byte, p core.Partition, queue uint32, id core.TaskID) []byte {
	return End(append(binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordBlocked), queue), id[:]...))
}

// BlockedRange bounds the tasks of a queue that wait for others, by their ids.
func BlockedRange(p core.Partition, queue uint32) (from, to []byte) {
	return Range(binary.BigEndian.AppendUint32(appendQueue(nil, p, RecordBlocked), queue))
}

// DecodeBlocked returns the task in a key of AppendBlocked.
func DecodeBlocked(key []byte) (id core.TaskID, ok bool) {
	b := Body(key)
	if len(b) != queueHead+4+16 {
		return id, false
	}
	return core.TaskID(b[queueHead+4:]), true
}
