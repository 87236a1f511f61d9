package commit

import (
	"bytes"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A request id's row is the hash of what was asked (8 bytes) and the answer, as core.AppendResult writes it. A second
// row, by time, says when to forget it. Only applied commits are remembered: a refused one is judged again.
//
// A request id is looked up before the fence is judged. So the repetition of a commit that was applied is answered as the
// first time, also when its task is held by another worker by then, or has ended: the changes are there. A commit that comes
// for the first time after its lease was lost is refused, however often it was sent.

// hashLen is the length in bytes of the hash of what was asked.
const hashLen = 8

// applyRequest answers a commit whose request id was applied, and judges and remembers a new one. A request id that is
// used again for other content is refused.
func (m *Machine) applyRequest(part *partition, c *core.Commit) (core.Result, error) {
	row, ok, err := m.tx.Get(keys.Request(part.p, c.RequestID))
	if err != nil {
		return core.Result{}, err
	}
	hash := binary.BigEndian.AppendUint64(nil, xxhash.Sum64(c.AppendContent(nil)))
	if ok {
		if len(row) < hashLen {
			return core.Result{}, errs.Corruptf("request %x of %s: row of %d bytes", c.RequestID, part.p, len(row))
		}
		// The hash covers what is asked, and not who asks.
		if !bytes.Equal(row[:hashLen], hash) {
			return refuse(core.CommitOp, core.AlreadyExists{Kind: "request", ID: requestText(c.RequestID)}).result(), nil
		}
		return decodeAnswer(row[hashLen:])
	}
	if part.counts.requests >= m.o.MaxRequests {
		return refuse(core.CommitOp, core.Exhausted{Limit: "request_ids", Max: m.o.MaxRequests}).result(), nil
	}
	r, err := m.judgeOrFail(part, c)
	if err != nil || r.Refusal != nil {
		return r, err
	}
	// The index is kept and not answered: the first answer has it from the entry itself.
	kept := r
	kept.Index = m.index
	due := m.clock.stamp.Add(keepAnswers)
	m.tx.Set(keys.Request(part.p, c.RequestID), core.AppendResult(hash, &kept))
	m.tx.Set(keys.RequestDue(part.p, due, c.RequestID), nil)
	part.counts.requests++
	part.due = min(part.due, due)
	return r, nil
}

// decodeAnswer reads a kept answer, which is then marked as one. The answer outlives the row: it is copied.
func decodeAnswer(b []byte) (core.Result, error) {
	r, err := core.DecodeResult(bytes.Clone(b))
	if err != nil {
		return core.Result{}, errs.Corruptf("kept answer: %v", err)
	}
	r.Replayed = true
	return *r, nil
}

// requestText prints a request id as clients write one: 32 hexadecimal digits.
func requestText(id core.RequestID) string {
	// Lower case, as in the contract.
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(id))
	for _, b := range id {
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// forgetRequests removes at most limit request ids that are due, and returns how many it removed.
func (m *Machine) forgetRequests(part *partition, limit int) (int, error) {
	rows, err := dueRows(m.tx, limit, keys.RequestsDue, part.p, m.clock.stamp)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		m.tx.Delete(keys.RequestDue(part.p, row.due, row.id))
		m.tx.Delete(keys.Request(part.p, row.id))
		part.counts.requests--
	}
	return len(rows), nil
}

// dueRow is one row of a time index.
type dueRow struct {
	// When the row is due.
	due core.ShardTime
	// The request id or the session.
	id [16]byte
}

// dueRange returns the range of keys of a time index whose rows are due at until.
type dueRange func(p core.Partition, until core.ShardTime) (from, to []byte)

// dueRows lists the first rows of a time index that are due at until.
func dueRows(v core.View, limit int, rng dueRange, p core.Partition, until core.ShardTime) ([]dueRow, error) {
	if limit <= 0 {
		return nil, nil
	}
	var out []dueRow
	from, to := rng(p, until)
	err := core.ScanRows(v, from, to, func(key, _ []byte) (bool, error) {
		due, id, ok := keys.DueOf(key)
		if !ok {
			return false, errs.Corruptf("time index key %x", key)
		}
		out = append(out, dueRow{due, id})
		return len(out) < limit, nil
	})
	return out, err
}

// earliest returns when the first request id or session of p is due, by two seeks.
func earliest(v core.View, p core.Partition) (core.ShardTime, error) {
	due := core.Never
	for _, rng := range [...]dueRange{keys.RequestsDue, keys.SessionsDue} {
		rows, err := dueRows(v, 1, rng, p, core.Never)
		if err != nil {
			return 0, err
		}
		if len(rows) > 0 {
			due = min(due, rows[0].due)
		}
	}
	return due, nil
}
