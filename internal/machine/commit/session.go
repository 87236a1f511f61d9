package commit

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A session's row holds the last sequence number applied and the stamp of its last frame; the answers of the last 64
// numbers lie in rows of their own, by number modulo 64. A row by time says when to look whether the session is to be
// forgotten: it is not moved by each frame, but when it comes due.
//
// Every number is answered once for all, a refusal too: the numbers after it are in flight already.

// session is a session's row.
type session struct {
	// The last sequence number that was applied, from 1.
	last uint64
	// Stamp of the last frame, also of one that repeated an answer.
	seen core.ShardTime
}

// applySequenced answers a frame that was applied, judges and remembers the next one, and refuses what is older than
// is kept, or leaves a gap.
func (m *Machine) applySequenced(part *partition, c *core.Commit) (core.Result, error) {
	s, known, err := readSession(m.tx, part.p, c.Session)
	if err != nil {
		return core.Result{}, err
	}
	switch {
	// A session that is not known begins with 1: a later number means that it was forgotten.
	case !known && c.Seq > 1:
		return refuse(core.CommitOp, core.SessionExpired{}).result(), nil
	case !known && part.counts.sessions >= m.o.MaxSessions:
		return refuse(core.CommitOp, core.Exhausted{Limit: "sessions", Max: m.o.MaxSessions}).result(), nil
	case c.Seq > s.last+1:
		fact := core.Invalid{Field: "commit_seq", Reason: "gap", Message: "a sequence number before it is missing"}
		return refuse(core.CommitOp, fact).result(), nil
	case c.Seq <= s.last:
		return m.answerAgain(part, c, s)
	}
	r, err := m.judgeOrFail(part, c)
	if err != nil {
		return core.Result{}, err
	}
	if !known {
		part.counts.sessions++
		due := m.clock.stamp.Add(keepAnswers)
		part.due = min(part.due, due)
		m.tx.Set(keys.SessionDue(part.p, due, c.Session), nil)
	}
	// The index is kept with the answer, so that a repeated one can tell it.
	kept := r
	kept.Index = m.index
	m.tx.Set(keys.SessionAnswer(part.p, c.Session, slotOf(c.Seq)), core.AppendResult(nil, &kept))
	m.tx.Set(keys.Session(part.p, c.Session), session{c.Seq, m.clock.stamp}.append(nil))
	return r, nil
}

// answerAgain answers a sequence number that was applied, if its answer is kept. The frame keeps the session alive.
func (m *Machine) answerAgain(part *partition, c *core.Commit, s session) (core.Result, error) {
	if s.last-c.Seq >= sessionAnswers {
		return refuse(core.CommitOp, core.SessionExpired{}).result(), nil
	}
	row, ok, err := m.tx.Get(keys.SessionAnswer(part.p, c.Session, slotOf(c.Seq)))
	if err != nil {
		return core.Result{}, err
	}
	if !ok {
		return core.Result{}, errs.Corruptf("session %x of %s: answer %d is missing", c.Session, part.p, c.Seq)
	}
	r, err := decodeAnswer(row)
	if err == nil && s.seen != m.clock.stamp {
		m.tx.Set(keys.Session(part.p, c.Session), session{s.last, m.clock.stamp}.append(nil))
	}
	return r, err
}

// slotOf returns the slot of a number's answer. The answer of 64 numbers before is overwritten.
func slotOf(seq uint64) byte { return byte(seq % sessionAnswers) }

// AppliedSeq reads the last sequence number of a session that was applied in p; 0 when the session is not known.
func AppliedSeq(v core.View, p core.Partition, s core.SessionID) (uint64, error) {
	row, _, err := readSession(v, p, s)
	return row.last, err
}

// readSession reads the row of a session. ok is false for one that is not known, or was forgotten.
func readSession(v core.View, p core.Partition, id core.SessionID) (s session, ok bool, err error) {
	row, ok, err := v.Get(keys.Session(p, id))
	if err != nil || !ok {
		return session{}, false, err
	}
	last, n := binary.Uvarint(row)
	if n > 0 {
		seen, k := binary.Varint(row[n:])
		if k > 0 && n+k == len(row) {
			return session{last, core.ShardTime(seen)}, true, nil
		}
	}
	return session{}, false, errs.Corruptf("session %x of %s: row %x", id, p, row)
}

// append writes the row: two varints, the stamp with its sign.
func (s session) append(dst []byte) []byte {
	return binary.AppendVarint(binary.AppendUvarint(dst, s.last), int64(s.seen))
}

// forgetSessions looks at no more than limit sessions whose time has come: one that had a frame since is looked at
// again when that is old enough, the others are forgotten with their answers. It returns how many it looked at.
func (m *Machine) forgetSessions(part *partition, limit int) (int, error) {
	rows, err := dueRows(m.tx, limit, keys.SessionsDue, part.p, m.clock.stamp)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		m.tx.Delete(keys.SessionDue(part.p, row.due, row.id))
		s, ok, err := readSession(m.tx, part.p, row.id)
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, errs.Corruptf("session %x of %s: due, but not there", row.id, part.p)
		}
		// A session that had a frame since its row was written moves behind the others.
		if due := s.seen.Add(keepAnswers); due > m.clock.stamp {
			m.tx.Set(keys.SessionDue(part.p, due, row.id), nil)
			continue
		}
		m.tx.Delete(keys.Session(part.p, row.id))
		m.tx.DeleteRange(keys.SessionAnswers(part.p, row.id))
		part.counts.sessions--
	}
	return len(rows), nil
}
