package keys

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
)

// AppendErrorGroup appends the key of a group of errors of a queue.
func AppendErrorGroup(dst []byte, p core.Partition, queue uint32, fingerprint uint64) []byte {
	dst = binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordErrorGroup), queue)
	return End(binary.BigEndian.AppendUint64(dst, fingerprint))
}

// ErrorGroupRange bounds the groups of errors of a queue, by fingerprint, from one of them on.
func ErrorGroupRange(p core.Partition, queue uint32, fingerprint uint64) (from, to []byte) {
	_, to = Range(binary.BigEndian.AppendUint32(appendQueue(nil, p, RecordErrorGroup), queue))
	return AppendErrorGroup(nil, p, queue, fingerprint), to
}

// AppendErrors appends the key of what is known of a queue's groups of errors.
func AppendErrors(dst []byte, p core.Partition, queue uint32) []byte {
	return End(binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordErrors), queue))
}

// ErrorsRange bounds what is known of the groups of errors of all queues, by number.
func ErrorsRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordErrors))
}

// AppendErrorTimer appends the key of the timer by which the groups of errors of a queue are looked through.
func AppendErrorTimer(dst []byte, p core.Partition, due core.ShardTime, queue uint32) []byte {
	return End(binary.BigEndian.AppendUint32(appendTimer(dst, p, due, TimerErrors), queue))
}
