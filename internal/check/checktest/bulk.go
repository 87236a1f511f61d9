package checktest

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// bulkOp starts or stops a bulk job. Few ids make starts meet jobs that are known.
func (w *world) bulkOp() core.Op {
	id := core.TaskID{0: 'j', 15: byte(w.rand.IntN(40))}
	if len(w.jobs) > 0 && w.rand.IntN(3) == 0 {
		id = recent(w.rand, w.jobs)
	}
	if w.rand.IntN(3) == 0 {
		return &core.BulkStop{ID: id}
	}
	op := &core.BulkStart{
		ID: id, Action: pick(w.rand, []core.BulkAction{core.BulkCancel, core.BulkCancel, core.BulkRetry, core.BulkDelete, core.BulkPrioritize}),
		Rate: pick(w.rand, []uint32{0, 0, 1, 20}), Force: w.rand.IntN(3) == 0, Reason: w.reason(), Matched: uint64(w.rand.IntN(3)),
	}
	if op.Action == core.BulkPrioritize {
		op.Priority = uint8(w.rand.IntN(4))
	}
	if w.rand.IntN(4) > 0 {
		op.Tasks.Queue = pick(w.rand, w.queues)
	}
	if w.rand.IntN(2) == 0 {
		op.Tasks.State = pick(w.rand, op.Action.States())
	}
	if w.rand.IntN(3) == 0 {
		op.Tasks.Labels = []core.Label{{Name: "env", Value: pick(w.rand, []string{"", "a", "b"})}}
		if w.rand.IntN(3) == 0 {
			op.Tasks.Labels = append(op.Tasks.Labels, core.Label{Name: "order", Value: pick(w.rand, []string{"", "a", "b"})})
		}
	}
	switch w.rand.IntN(25) {
	case 0:
		op.Rate = core.MaxBulkRate + 1
	case 1:
		op.Tasks.State = 0xff
	case 2:
		op.Tasks.Labels = someLabels(w.rand)
	}
	w.jobs = append(w.jobs, id)
	return op
}

// auditBulks reads the bulk jobs of a partition back.
func (r *run) auditBulks(p core.Partition) error {
	jobs, err := queue.Bulks(r.tx, p)
	if err != nil {
		return err
	}
	for i := range jobs {
		r.stats.Bulked += int(jobs[i].Done)
	}
	if err := r.model.AuditBulks(p, jobs); err != nil {
		return fmt.Errorf("partition %s: %w", p, err)
	}
	return nil
}
