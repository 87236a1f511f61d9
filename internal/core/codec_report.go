package core

import "math"

// taskReport writes the lease, and then what the report has.
func (w *writer) taskReport(op *TaskReport) {
	w.hold(TaskHold{op.Task, op.Token})
	f := w.fields(true)
	f.uint(op.Number)
	f.has(op.HasProgress)
	f.uint(uint64(op.Percent))
	f.text(op.Message)
	if f.has(len(op.Lines) > 0) {
		w.uint(uint64(len(op.Lines)))
		for _, line := range op.Lines {
			w.text(line)
		}
	}
	f.uint(op.Dropped)
	f.has(op.HasCheckpoint)
	f.bytes(op.Checkpoint)
}

// taskReport reads what the writer's taskReport wrote.
func (r *reader) taskReport() *TaskReport {
	h := r.hold()
	op := &TaskReport{Task: h.Task, Token: h.Token}
	f := r.fields(true)
	op.Number = f.uint(math.MaxUint64)
	op.HasProgress, op.Percent, op.Message = f.has(), uint8(f.uint(math.MaxUint8)), f.text()
	if f.has() {
		n := r.count(1)
		r.nonZero(n > 0)
		op.Lines = make([]string, n)
		for i := range op.Lines {
			op.Lines[i] = r.text()
		}
	}
	op.Dropped = f.uint(math.MaxUint64)
	op.HasCheckpoint, op.Checkpoint = f.has(), f.bytes()
	f.end()
	return op
}

// reportSize is opSize of a TaskReport.
func reportSize(op *TaskReport) int {
	n := opHeader + holdBytes + 3*varintBytes + nameBytes + len(op.Message) + nameBytes + nameBytes + len(op.Checkpoint)
	for _, line := range op.Lines {
		n += nameBytes + len(line)
	}
	return n
}
