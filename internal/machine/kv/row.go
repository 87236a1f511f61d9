package kv

import (
	"encoding/binary"
	"errors"

	"github.com/millrace/millrace/internal/core"
)

// A key's row is its revision as a varint, then the value. A key that was put under a lease, in a keyspace that keeps writers,
// has a head in front of that: a zero byte, which no revision begins with, the form of the head, and then the task and the token
// of the lease. So each row says what it holds, and rows without a writer are those of before there were any. A row is a new
// slice, which the transaction may keep.

const (
	// rowHead begins a row that has a head: revisions begin at 1.
	rowHead = 0
	// headWriter is the form of a head that holds a lease, and the only one there is.
	headWriter = 1
	// writerLen is the length of a lease in a head: the task, and the token.
	writerLen = len(core.TaskID{}) + 8
	// headLen is the length of the head.
	headLen = 2 + writerLen
)

// The errors of rows that appendRow does not write.
var (
	errRev  = errors.New("no revision")
	errHead = errors.New("not a known head")
)

// rowLen is what a row of a value takes at most.
func rowLen(writer core.TaskHold, value []byte) int {
	n := binary.MaxVarintLen64 + len(value)
	if writer != (core.TaskHold{}) {
		n += headLen
	}
	return n
}

// appendRow appends the row of a value at a revision. The zero writer is none.
func appendRow(dst []byte, rev uint64, writer core.TaskHold, value []byte) []byte {
	if writer != (core.TaskHold{}) {
		dst = append(append(dst, rowHead, headWriter), writer.Task[:]...)
		dst = binary.BigEndian.AppendUint64(dst, uint64(writer.Token))
	}
	return append(binary.AppendUvarint(dst, rev), value...)
}

// decodeRow reads what appendRow wrote. writer and value point into row; without a writer, that is nil.
func decodeRow(row []byte) (rev uint64, writer, value []byte, err error) {
	if len(row) > 0 && row[0] == rowHead {
		if len(row) < headLen || row[1] != headWriter {
			return 0, nil, nil, errHead
		}
		writer, row = row[2:headLen], row[headLen:]
	}
	rev, n := binary.Uvarint(row)
	if n <= 0 || rev == 0 {
		return 0, nil, nil, errRev
	}
	return rev, writer, row[n:], nil
}

// holdOf is the lease that a head holds; nil for a row without one.
func holdOf(writer []byte) *core.TaskHold {
	if writer == nil {
		return nil
	}
	h := new(core.TaskHold)
	h.Token = core.Token(binary.BigEndian.Uint64(writer[copy(h.Task[:], writer):]))
	return h
}

// writerOf is the lease that a put in ks keeps; the zero hold where it is put from outside of any task, or none is kept.
func (ks *space) writerOf(c *core.ApplyContext) core.TaskHold {
	if !ks.config.Writers {
		return core.TaskHold{}
	}
	return c.Holder()
}
