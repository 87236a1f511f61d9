package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Operators start bulk jobs, which cancel or redrive many tasks at once while these run, and stop some of them. No job deletes: that an
// acknowledged task is there could not be judged then.

// bulkJob is a job whose start was sent. It may run, whatever became of the request.
type bulkJob struct {
	at place
	op *core.BulkStart
}

// someBulk draws the start of a job about the queue, or about a label, or the stop of one.
func (w *world) someBulk() (place, core.Op) {
	l := w.ledger
	if len(l.jobs) > 0 && w.chance(450) {
		j := l.jobs[len(l.jobs)-1-w.rng.IntN(min(len(l.jobs), 2))]
		return j.at, &core.BulkStop{ID: j.op.ID}
	}
	at := l.somePlace()
	op := &core.BulkStart{ID: w.taskID(at), Action: core.BulkCancel, Rate: []uint32{0, 1, 1, 20}[w.rng.IntN(4)], Reason: "drawn"}
	if w.chance(400) {
		op.Action = core.BulkRetry
	}
	op.Tasks.Queue = queueName
	if w.chance(350) {
		op.Tasks.Queue, op.Tasks.Labels = "", []core.Label{simLabel}
	}
	l.jobs = append(l.jobs, bulkJob{at, op})
	return at, op
}

// halt stops a job soon after its start, while it mostly has something left to do.
func (c *client) halt(at place, start *core.BulkStart, then func()) {
	w := c.w
	w.after(w.between(0, 300*time.Millisecond), "halt", 0, func() {
		stop := &core.BulkStop{ID: start.ID}
		c.ask(at, core.Commit{Principal: "writer", Ops: []core.Op{stop}}, func(got core.Result) {
			w.ledger.acted(stop, got)
			then()
		})
	})
}

// bulkRedriven reports whether a job may have made a cancelled task ready again. What labels a task had before an edit is not known.
func (l *ledger) bulkRedriven(t *core.Task) bool {
	edited := slices.Contains(t.Labels, editLabel)
	return slices.ContainsFunc(l.jobs, func(j bulkJob) bool {
		labels := j.op.Tasks.Labels
		return j.op.Action == core.BulkRetry && j.at.index == t.ID.Partition() && (len(labels) == 0 || edited || slices.Contains(t.Labels, labels[0]))
	})
}
