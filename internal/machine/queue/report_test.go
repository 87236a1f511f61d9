package queue

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// reportOp is a report of all kinds of the task of the matrix.
func reportOp(token core.Token) core.Op {
	return &core.TaskReport{
		Task: matrixTask, Token: token, Number: 1, HasProgress: true, Percent: 50, Lines: []string{"line"},
		HasCheckpoint: true, Checkpoint: []byte("half"),
	}
}

// randomReport is a report of a holder, or of who takes itself for one.
func randomReport(rt *rapid.T, id core.TaskID, token core.Token) core.Op {
	op := &core.TaskReport{
		Task: id, Token: token, Number: rapid.Uint64Range(0, 2).Draw(rt, "number"), HasProgress: rapid.Bool().Draw(rt, "progress"),
		Percent: rapid.Uint8Range(0, 101).Draw(rt, "percent"), Dropped: rapid.Uint64Range(0, 1).Draw(rt, "dropped"),
		HasCheckpoint: rapid.Bool().Draw(rt, "has checkpoint"), Checkpoint: []byte(rapid.SampledFrom([]string{"", "c", "longer"}).Draw(rt, "checkpoint")),
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 3, core.MaxReportLines, core.MaxReportLines + 1}).Draw(rt, "lines") {
		op.Lines = append(op.Lines, "line")
	}
	return op
}

// reportSamples are the records of what a task's holders told.
func reportSamples() []sample {
	reports := told{
		attempt: 2, number: 3, progress: core.Progress{Percent: 40, Message: "built", At: epoch}, free: epoch + 1000, first: 5, next: 9,
		chunks: 2, lineBytes: 80, dropped: 4, checkpoint: 3, hasCheckpoint: true,
	}
	chunk := logChunk{attempt: 2, at: epoch, lines: []string{"one", "", "three"}}
	return []sample{
		of("reports", appendTold(nil, &reports), reports, decodeTold),
		of("lines of a report", appendChunk(nil, &chunk), chunk, decodeChunk),
	}
}

// reportOp reads a report: lines=20 are 20 lines of one letter, and wide=100 makes each that long.
func (s *script) reportOp(w words) core.Op {
	op := &core.TaskReport{
		Task: idOf(w.name()), Token: s.token(w), Number: uint64(w.num("number")), Percent: uint8(w.num("percent")), Message: w.str("message", ""),
		HasProgress: w.has("percent"), Dropped: uint64(w.num("dropped")), HasCheckpoint: w.has("checkpoint"), Checkpoint: []byte(w.str("checkpoint", "")),
	}
	for range w.num("lines") {
		op.Lines = append(op.Lines, strings.Repeat("x", max(1, int(w.num("wide")))))
	}
	if line := w.str("line", ""); line != "" {
		op.Lines = append(op.Lines, line)
	}
	return op
}

// log prints what is kept of a task's log; many lines are only counted.
func (s *script) log(w words) string {
	limit := 1 << 20
	if w.has("limit") {
		limit = int(w.num("limit"))
	}
	log, ok, err := Log(s.tx, testPartition, idOf(w.name()), uint32(w.num("attempt")), uint64(w.num("after")), limit)
	switch {
	case err != nil:
		return err.Error() + "\n"
	case !ok:
		return "unknown\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d lines, last=%d dropped=%d more=%v\n", len(log.Lines), log.Last, log.Dropped, log.More)
	for _, line := range log.Lines[:min(len(log.Lines), 3)] {
		fmt.Fprintf(&b, "  %d attempt=%d %s %.20s\n", line.Number, line.Attempt, since(line.At), line.Text)
	}
	return b.String()
}

// A log of any shape keeps at least the last lines that it promises, and not much more.
func TestALogKeepsItsLastLinesAndIsBounded(t *testing.T) {
	for _, c := range []struct{ lines, wide int }{{1, 10}, {7, 0}, {core.MaxReportLines, 1}, {16, core.MaxLogLine}, {500, 100}, {3, 5000}} {
		w := newWorld(t, Options{})
		w.loose = true
		w.do(matrixCreate())
		w.do(claimOp(1, "mail"))
		op := &core.TaskReport{Task: matrixTask, Token: w.lastToken()}
		for range c.lines {
			op.Lines = append(op.Lines, strings.Repeat("x", c.wide))
		}
		told := uint64(0)
		for range 3000/c.lines + 3 {
			w.c.Stamp = w.c.Stamp.Add(1000)
			w.do(&core.TaskRenew{Items: []core.TaskHold{{Task: matrixTask, Token: op.Token}}})
			if o := w.do(op); o.fact != nil {
				t.Fatal(o.fact)
			}
			told += uint64(c.lines)
		}
		log, _, err := Log(w.tx, testPartition, matrixTask, 0, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for i, line := range log.Lines {
			if size += len(line.Text) + lineExtra; line.Number != told-uint64(len(log.Lines))+uint64(i)+1 || len(line.Text) != min(c.wide, core.MaxLogLine) {
				t.Fatalf("%d lines of %d: line %d has %d bytes at %d of %d", c.lines, c.wide, line.Number, len(line.Text), i, len(log.Lines))
			}
		}
		if log.Dropped+uint64(len(log.Lines)) != told {
			t.Errorf("%d lines of %d: %d dropped and %d there of %d", c.lines, c.wide, log.Dropped, len(log.Lines), told)
		}
		if len(log.Lines) < core.MaxLogLines && size < core.MaxLogBytes {
			t.Errorf("%d lines of %d: only %d lines of %d bytes are kept", c.lines, c.wide, len(log.Lines), size)
		}
		if len(log.Lines) > core.MaxLogLines+core.MaxReportLines || size > core.MaxLogBytes+core.MaxReportBytes+lineExtra*core.MaxReportLines {
			t.Errorf("%d lines of %d: %d lines of %d bytes are kept", c.lines, c.wide, len(log.Lines), size)
		}
		// Pages of any size hold each line once.
		var pages []core.LogLine
		for after := uint64(0); ; {
			page, _, err := Log(w.tx, testPartition, matrixTask, 0, after, 333)
			if err != nil {
				t.Fatal(err)
			}
			pages, after = append(pages, page.Lines...), page.Last
			if !page.More {
				break
			}
		}
		if fmt.Sprint(pages) != fmt.Sprint(log.Lines) {
			t.Errorf("%d lines of %d: pages have %d lines", c.lines, c.wide, len(pages))
		}
	}
}

// A task whose holder tells nothing has no record of that, and one that told all leaves nothing when it goes.
func TestReportsGoWithTheirTask(t *testing.T) {
	w := newWorld(t, Options{})
	rows := func() (n int) {
		from, to := keys.QueueRange(testPartition)
		if err := w.tx.Scan(from, to, func(key, _ []byte) bool {
			switch row, _ := keys.DecodeQueue(key); row.Record {
			case keys.RecordTaskReport, keys.RecordTaskLog, keys.RecordCheckpoint:
				n++
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, many := range []bool{false, true} {
		for _, end := range []core.Op{&core.TaskComplete{}, &core.TaskFail{Fatal: true}, &core.QueueDelete{Queue: "mail", Purge: true, IfVersion: -1}} {
			w.do(&core.QueueSet{Queue: "mail", IfVersion: -1, Config: core.QueueConfig{RetainCompleted: -1, RetainDead: -1}})
			w.do(matrixCreate())
			w.do(claimOp(1, "mail"))
			for range map[bool]int{false: 2, true: fewChunks + 5}[many] {
				w.c.Stamp = w.c.Stamp.Add(1000)
				op := reportOp(w.lastToken()).(*core.TaskReport)
				if op.Number = 0; w.do(op).fact != nil {
					t.Fatal("the report was refused")
				}
			}
			if rows() == 0 {
				t.Error("nothing was kept")
			}
			switch op := end.(type) {
			case *core.TaskComplete:
				op.Task, op.Token = matrixTask, w.lastToken()
			case *core.TaskFail:
				op.Task, op.Token = matrixTask, w.lastToken()
			}
			if o := w.do(end); o.fact != nil {
				t.Fatal(o.fact)
			}
			for range 100 {
				w.advance(3600_000)
			}
			if n := rows(); n != 0 {
				t.Errorf("after %T (many rows: %v) %d rows are left", end, many, n)
			}
		}
	}
}
