package queue

import (
	"bytes"

	"github.com/millrace/millrace/internal/core"
)

// batchMade is what never changes about a batch.
type batchMade struct {
	number uint64
	// Index and stamp of the entry that made it, and who did.
	opened uint64
	at     core.ShardTime
	by     string
	labels []core.Label
	// The follow-ups, as core.AppendTemplate writes them; empty: there is none. Read ones point into the record.
	onDone, onSuccess []byte
}

// appendBatchMade writes what never changes about a batch.
func appendBatchMade(b []byte, s *batchMade) []byte {
	b = putInt(putUint(putUint(append(b, formBatch), s.number), s.opened), int64(s.at))
	b = appendLabels(putString(b, s.by), s.labels)
	b = append(putUint(b, uint64(len(s.onDone))), s.onDone...)
	return append(putUint(b, uint64(len(s.onSuccess))), s.onSuccess...)
}

// decodeBatchMade reads what appendBatchMade wrote.
func decodeBatchMade(b []byte) (s batchMade, err error) {
	r := read(b, formBatch)
	s.number, s.opened, s.at = r.uint(), r.uint(), core.ShardTime(r.int())
	s.by, s.labels = r.string(), r.labels()
	s.onDone, s.onSuccess = r.bytes(r.uint()), r.bytes(r.uint())
	return s, r.done("batch")
}

// appendBatchRow writes what changes about a batch. What is rare comes last, under a byte that says whether it is there.
func appendBatchRow(b []byte, s *batchRow) []byte {
	b = putUint(append(append(b, formBatchCounts), s.id[:]...), s.opened)
	for _, n := range [...]uint64{s.total, s.running, s.completed, s.dead, s.cancelled} {
		b = putUint(b, n)
	}
	b = append(b, byte(s.wants), byte(s.due), byte(s.made))
	b = putInt(putInt(putInt(b, int64(s.sealed)), int64(s.finished)), int64(s.settled))
	b = append(b, boolByte(s.cancel.At != 0)|boolByte(s.due != 0)<<1)
	if s.cancel.At != 0 {
		b = append(putString(putString(putInt(b, int64(s.cancel.At)), s.cancel.By), s.cancel.Reason), boolByte(s.cancel.Force))
	}
	if s.due != 0 {
		b = putInt(putUint(putString(putString(b, s.code), s.message), uint64(s.tries)), int64(s.retry))
	}
	return b
}

// decodeBatchRow reads what appendBatchRow wrote.
func decodeBatchRow(b []byte) (s batchRow, err error) {
	r := read(b, formBatchCounts)
	s.id, s.opened = r.id(), r.uint()
	s.total, s.running, s.completed, s.dead, s.cancelled = r.uint(), r.uint(), r.uint(), r.uint(), r.uint()
	s.wants, s.due, s.made = followUps(r.byte()), followUps(r.byte()), followUps(r.byte())
	s.sealed, s.finished, s.settled = core.ShardTime(r.int()), core.ShardTime(r.int()), core.ShardTime(r.int())
	more := r.byte()
	if more&1 != 0 {
		s.cancel = core.CancelAsked{At: core.ShardTime(r.int()), By: r.string(), Reason: r.string(), Force: r.byte() != 0}
	}
	if more&2 != 0 {
		s.code, s.message, s.tries, s.retry = r.string(), r.string(), r.u32(), core.ShardTime(r.int())
	}
	return s, r.done("counts of a batch")
}

// appendBatches writes how many batches there are.
func appendBatches(b []byte, n batches) []byte {
	return putUint(putUint(append(b, formBatches), n.open), n.kept)
}

// decodeBatches reads what appendBatches wrote.
func decodeBatches(b []byte) (n batches, err error) {
	r := read(b, formBatches)
	n.open, n.kept = r.uint(), r.uint()
	return n, r.done("number of batches")
}

// template reads a follow-up; nil: there is none. What it returns points into a copy.
func (s *batchMade) template(b []byte) (*core.TaskCreate, error) {
	if len(b) == 0 {
		return nil, nil
	}
	op, err := core.DecodeTemplate(bytes.Clone(b))
	return &op, err
}
