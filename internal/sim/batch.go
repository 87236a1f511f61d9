package sim

import (
	"time"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Operators open batches, fill and seal them, and end their tasks by cancels, while leaders come and go. Their tasks are of a queue that
// no worker takes. What matters is that each batch finishes once, with one follow-up, which the model judges by the log.

// batchQueue is the queue of the tasks of batches and of their follow-ups.
const batchQueue = "batches"

// someBatch draws the opening of a batch.
func (w *world) someBatch() (place, core.Op) {
	at := w.ledger.somePlace()
	op := &core.BatchOpen{ID: w.taskID(at), OnDone: &core.TaskCreate{Queue: batchQueue, Payload: []byte("done")}}
	if w.chance(500) {
		op.OnSuccess = &core.TaskCreate{Queue: batchQueue, Payload: []byte("success")}
	}
	return at, op
}

// fill does what follows the opening of a batch: tasks are added and some of them end, it is sealed or cancelled, and ended tasks are
// redriven and end again.
func (c *client) fill(at place, batch *core.BatchOpen, then func()) {
	w := c.w
	var tasks []core.TaskID
	for range w.rng.IntN(3) {
		tasks = append(tasks, w.taskID(at))
	}
	steps := [][]core.Op{{}}
	for _, id := range tasks {
		steps[0] = append(steps[0], &core.TaskCreate{ID: id, Queue: batchQueue, Batch: batch.ID})
	}
	seal := core.Op(&core.BatchSeal{ID: batch.ID})
	if w.chance(300) {
		seal = &core.BatchCancel{ID: batch.ID, Reason: "drawn"}
	}
	early := w.chance(500)
	if early || len(tasks) == 0 {
		steps[0] = append(steps[0], seal)
	}
	for _, id := range tasks {
		steps = append(steps, []core.Op{&core.TaskCancel{Task: id, Reason: "drawn"}})
		if w.chance(400) {
			steps = append(steps, []core.Op{&core.TaskRedrive{Task: id}}, []core.Op{&core.TaskCancel{Task: id, Reason: "again"}})
		}
	}
	if !early {
		steps = append(steps, []core.Op{seal})
	}
	if w.chance(400) { // a second seal changes nothing
		steps = append(steps, []core.Op{&core.BatchSeal{ID: batch.ID}})
	}
	c.steps(at, steps, then)
}

// steps sends commits one after the other, whatever becomes of each.
func (c *client) steps(at place, steps [][]core.Op, then func()) {
	if len(steps) == 0 {
		then()
		return
	}
	w := c.w
	w.after(w.between(0, 100*time.Millisecond), "step", 0, func() {
		c.ask(at, core.Commit{Principal: "writer", Ops: steps[0]}, func(got core.Result) {
			for i, op := range steps[0] {
				if got.Refusal == nil && i < len(got.Ops) && !got.Replayed && !got.Ops[i].Replayed {
					w.ledger.acts[op.Kind()]++
				}
			}
			c.steps(at, steps[1:], then)
		})
	})
}

// auditBatches compares the batches of a partition with the model.
func (w *world) auditBatches(v core.View, p core.Partition, model *check.Model) error {
	list, _, err := queue.Batches(v, p, 0, 100_000, 1<<30)
	if err != nil {
		return err
	}
	for i := range list {
		if !list[i].DoneTask.IsZero() {
			w.ledger.acts[core.OpBatchOpen]++
		}
	}
	return model.AuditBatches(p, list)
}
