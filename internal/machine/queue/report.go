package queue

import (
	"bytes"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// reportEvery is how often a task may report in the long run, and reportBurst how far a holder may be ahead of that: the last lines
// of an attempt that ends are not to be refused.
const (
	reportEvery core.Millis = 1000
	reportBurst core.Millis = 4 * reportEvery
)

// lineExtra is what a line counts for beyond its text, so that empty ones are bounded too.
const lineExtra = 16

// fewChunks is up to how many rows of a log are deleted one by one. More go as one range.
const fewChunks = 16

// told is what a task's holders have told of it: its record is there from the first report on, as the state record says.
type told struct {
	// The attempt that reported last, and the number of its last report.
	attempt uint32
	number  uint64
	// The progress of that attempt; its time is 0 when it told none.
	progress core.Progress
	// free is the stamp at which the next report would be on time. One is taken reportBurst before.
	free core.ShardTime
	// first is the number of the first line that is kept, and next that of the next one; both are 1 at first.
	first, next uint64
	// chunks is how many rows the kept lines have, and lineBytes what the lines count for.
	chunks    uint32
	lineBytes uint64
	// dropped counts lines that are not kept any more, or that holders dropped.
	dropped uint64
	// checkpoint is the length of the checkpoint, where there is one.
	checkpoint    uint64
	hasCheckpoint bool
}

// bytes is what the reports of a task count for among the bytes of its queue.
func (t *told) bytes() uint64 { return t.lineBytes + t.checkpoint }

// applyReport keeps what the holder of a task tells of its work.
func (m *Machine) applyReport(tx core.Txn, c *core.ApplyContext, op *core.TaskReport) (core.OpResult, core.Fact, error) {
	if fact := notYet(c, "keeps reports of tasks"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	r := m.holding(op.Task, op.Token)
	if r == nil {
		return core.OpResult{}, core.LeaseLost{Task: op.Task, Given: op.Token}, nil
	}
	if fact := op.Misfit(); fact != nil {
		return core.OpResult{}, fact, nil
	}
	t := told{first: 1, next: 1}
	if r.rec.reported {
		var err error
		if t, err = readTold(tx, m.p, op.Task); err != nil {
			return core.OpResult{}, nil, err
		}
	}
	res := core.OpResult{Task: op.Task, State: core.Running}
	if t.attempt != r.rec.attempt {
		t.attempt, t.number, t.progress = r.rec.attempt, 0, core.Progress{}
	} else if op.Number != 0 && op.Number <= t.number {
		res.Replayed = true
		return res, nil, nil
	}
	if late := t.free.Add(-reportBurst); c.Stamp < late {
		return core.OpResult{}, core.RateLimited{Limit: "task_reports", RetryAfter: core.Millis(late - c.Stamp)}, nil
	}
	t.free = max(t.free, c.Stamp).Add(reportEvery)
	t.number = max(t.number, op.Number)
	if op.HasProgress {
		t.progress = core.Progress{Percent: op.Percent, Message: core.Cut(op.Message, core.MaxProgressMessage), At: c.Stamp}
	}
	before := t.bytes()
	m.saveLines(tx, c, op, &t)
	if err := m.trimLines(tx, op.Task, &t); err != nil {
		return core.OpResult{}, nil, err
	}
	if op.HasCheckpoint {
		m.saveCheckpoint(tx, op, &t)
	}
	m.saveTold(tx, op.Task, &t)
	m.touch(r.queue)
	m.addBytes(r.queue, t.bytes()-before)
	if !r.rec.reported {
		m.log.run(r, runRenewed)
		r.rec.reported = true
		m.saveRecord(tx, r.id, &r.rec)
	}
	return res, nil, nil
}

// saveLines stores the lines of a report as one row.
func (m *Machine) saveLines(tx core.Txn, c *core.ApplyContext, op *core.TaskReport, t *told) {
	t.dropped += op.Dropped
	if len(op.Lines) == 0 {
		return
	}
	chunk := logChunk{attempt: t.attempt, at: c.Stamp, lines: make([]string, len(op.Lines))}
	for i, line := range op.Lines {
		chunk.lines[i] = core.Cut(line, core.MaxLogLine)
	}
	m.key = keys.AppendTaskLog(m.key[:0], m.p, op.Task, t.next)
	tx.Insert(m.mem.own(m.key), appendChunk(nil, &chunk))
	t.next += uint64(len(chunk.lines))
	t.chunks++
	t.lineBytes += chunk.bytes()
}

// trimLines deletes the first rows of a log as long as enough lines are left without them.
func (m *Machine) trimLines(tx core.Txn, id core.TaskID, t *told) error {
	for t.chunks > 1 {
		lines := t.next - t.first
		if lines <= core.MaxLogLines && t.lineBytes <= core.MaxLogBytes {
			return nil
		}
		m.key = keys.AppendTaskLog(m.key[:0], m.p, id, t.first)
		value, err := must(tx, m.key, "lines of task %s", id)
		if err != nil {
			return err
		}
		chunk, err := decodeChunk(value)
		if err != nil {
			return err
		}
		n, size := uint64(len(chunk.lines)), chunk.bytes()
		if lines-n < core.MaxLogLines && t.lineBytes-size < core.MaxLogBytes {
			return nil
		}
		tx.Delete(m.mem.own(m.key))
		t.first += n
		t.chunks--
		t.lineBytes -= size
		t.dropped += n
	}
	return nil
}

// saveCheckpoint stores the checkpoint of a report in place of the one before, or deletes that.
func (m *Machine) saveCheckpoint(tx core.Txn, op *core.TaskReport, t *told) {
	m.key = keys.AppendCheckpoint(m.key[:0], m.p, op.Task)
	switch {
	case len(op.Checkpoint) > 0:
		tx.Set(m.mem.own(m.key), bytes.Clone(op.Checkpoint))
	case t.hasCheckpoint:
		tx.Delete(m.mem.own(m.key))
	}
	t.checkpoint, t.hasCheckpoint = uint64(len(op.Checkpoint)), len(op.Checkpoint) > 0
}

// saveTold stores what is known of a task's reports.
func (m *Machine) saveTold(tx core.Txn, id core.TaskID, t *told) {
	m.key = keys.AppendTaskReport(m.key[:0], m.p, id)
	tx.Set(m.mem.own(m.key), appendTold(nil, t)) // at a completion the result is in m.value
	m.changed(id)
}

// readTold reads what is known of a task's reports. Only for a task whose state record says that there are some.
func readTold(v core.View, p core.Partition, id core.TaskID) (told, error) {
	value, err := must(v, keys.AppendTaskReport(nil, p, id), "reports of task %s", id)
	if err != nil {
		return told{}, err
	}
	return decodeTold(value)
}

// endReports does what the end of a task does to its reports: the checkpoint of a completed one goes. It returns what the others
// count for.
func (m *Machine) endReports(tx core.Txn, r *run, rec *record) (uint64, error) {
	if !rec.reported {
		return 0, nil
	}
	t, err := readTold(tx, m.p, r.id)
	if err != nil {
		return 0, err
	}
	if rec.state == core.Completed && t.hasCheckpoint {
		m.key = keys.AppendCheckpoint(m.key[:0], m.p, r.id)
		tx.Delete(m.mem.own(m.key))
		m.addBytes(r.queue, -t.checkpoint)
		t.checkpoint, t.hasCheckpoint = 0, false
		m.saveTold(tx, r.id, &t)
	}
	return t.bytes(), nil
}

// reportBytes is what the reports of a task count for.
func (m *Machine) reportBytes(v core.View, id core.TaskID, rec *record) (uint64, error) {
	if !rec.reported {
		return 0, nil
	}
	t, err := readTold(v, m.p, id)
	return t.bytes(), err
}

// dropReports deletes all that a task's holders told of it.
func (m *Machine) dropReports(tx core.Txn, id core.TaskID) error {
	t, err := readTold(tx, m.p, id)
	if err != nil {
		return err
	}
	m.key = keys.AppendTaskReport(m.key[:0], m.p, id)
	tx.Delete(m.mem.own(m.key))
	if t.hasCheckpoint {
		m.key = keys.AppendCheckpoint(m.key[:0], m.p, id)
		tx.Delete(m.mem.own(m.key))
	}
	from, to := keys.TaskLogRange(m.p, id, 0)
	if t.chunks > fewChunks {
		tx.DeleteRange(m.mem.own(from), m.mem.own(to))
		return nil
	}
	var rows [][]byte
	if t.chunks > 0 {
		err = tx.Scan(from, to, func(key, _ []byte) bool {
			rows = append(rows, m.mem.own(key))
			return true
		})
	}
	if err == nil && len(rows) != int(t.chunks) {
		err = errs.Corruptf("task %s counts %d rows of its log, and has %d", id, t.chunks, len(rows))
	}
	for _, key := range rows {
		tx.Delete(key)
	}
	return err
}

// checkpointOf reads the checkpoint of a task, nil where it has none. The copy is the caller's.
func checkpointOf(v core.View, p core.Partition, id core.TaskID, rec *record) ([]byte, error) {
	if !rec.reported {
		return nil, nil
	}
	value, _, err := v.Get(keys.AppendCheckpoint(nil, p, id))
	return bytes.Clone(value), err
}

// progressOf reads the progress of a task's last attempt.
func progressOf(v core.View, p core.Partition, id core.TaskID, rec *record) (core.Progress, error) {
	if !rec.reported {
		return core.Progress{}, nil
	}
	t, err := readTold(v, p, id)
	if err != nil || t.attempt != rec.attempt {
		return core.Progress{}, err
	}
	return t.progress, nil
}

// Log reads up to limit lines of a task's log that have a number above after, of one attempt or, where it is 0, of all. ok is false
// where the task is not there.
func Log(v core.View, p core.Partition, id core.TaskID, attempt uint32, after uint64, limit int) (out core.TaskLog, ok bool, err error) {
	rec, ok, err := readRecord(v, p, id)
	if err != nil || !ok || !rec.reported {
		return out, ok, err
	}
	t, err := readTold(v, p, id)
	if err != nil {
		return out, true, err
	}
	out.Dropped, out.Last = t.dropped, min(after, t.next-1)
	// The row that holds the next line begins at most as many lines before it as a report may have.
	from, to := keys.TaskLogRange(p, id, max(after, core.MaxReportLines)-core.MaxReportLines)
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		chunk, err := decodeChunk(value)
		if err != nil {
			return false, err
		}
		number := keys.DecodeTaskLog(key)
		for i, text := range chunk.lines {
			n := number + uint64(i)
			if n <= after {
				continue
			}
			if len(out.Lines) == limit {
				out.More = true
				return false, nil
			}
			if out.Last = n; attempt == 0 || attempt == chunk.attempt {
				out.Lines = append(out.Lines, core.LogLine{Number: n, Attempt: chunk.attempt, At: chunk.at, Text: text})
			}
		}
		return true, nil
	})
	return out, true, err
}

// logChunk is the lines of one report.
type logChunk struct {
	attempt uint32
	at      core.ShardTime
	lines   []string
}

// bytes is what the lines count for.
func (c *logChunk) bytes() (n uint64) {
	for _, line := range c.lines {
		n += uint64(len(line)) + lineExtra
	}
	return n
}

// appendChunk writes the lines of a report. The number of the first one is in the key.
func appendChunk(b []byte, c *logChunk) []byte {
	b = putInt(putUint(append(b, formLog), uint64(c.attempt)), int64(c.at))
	b = putUint(b, uint64(len(c.lines)))
	for _, line := range c.lines {
		b = putString(b, line)
	}
	return b
}

// decodeChunk reads what appendChunk wrote.
func decodeChunk(b []byte) (c logChunk, err error) {
	r := read(b, formLog)
	c.attempt, c.at = r.u32(), core.ShardTime(r.int())
	for n := r.uint(); n > 0 && !r.bad; n-- {
		c.lines = append(c.lines, r.string())
	}
	return c, r.done("lines of a task")
}

// appendTold writes what is known of a task's reports.
func appendTold(b []byte, t *told) []byte {
	b = putUint(putUint(append(b, formReport), uint64(t.attempt)), t.number)
	b = append(putInt(b, int64(t.progress.At)), t.progress.Percent, boolByte(t.hasCheckpoint))
	b = putInt(putString(b, t.progress.Message), int64(t.free))
	b = putUint(putUint(putUint(b, t.first), t.next), uint64(t.chunks))
	return putUint(putUint(putUint(b, t.lineBytes), t.dropped), t.checkpoint)
}

// decodeTold reads what appendTold wrote.
func decodeTold(b []byte) (t told, err error) {
	r := read(b, formReport)
	t.attempt, t.number = r.u32(), r.uint()
	t.progress.At, t.progress.Percent, t.hasCheckpoint = core.ShardTime(r.int()), r.byte(), r.byte() != 0
	t.progress.Message, t.free = r.string(), core.ShardTime(r.int())
	t.first, t.next, t.chunks = r.uint(), r.uint(), r.u32()
	t.lineBytes, t.dropped, t.checkpoint = r.uint(), r.uint(), r.uint()
	return t, r.done("reports")
}
