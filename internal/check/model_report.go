package check

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// reported is what the holders of a task have told of it.
type reported struct {
	attempt    uint32 // that told last
	number     uint64 // of its last report
	free       core.ShardTime
	checkpoint []byte
	// most is at least what the kept reports count for among the bytes of the queue.
	most int64
}

// misfitsOfReport lists what a report may not say. It is not a misfit of the op alone, as the lease is judged first.
func misfitsOfReport(op *core.TaskReport) []misfit {
	var out []misfit
	if op.Percent > 100 {
		out = append(out, misfit{field: "progress.percent"})
	}
	size := 0
	for _, line := range op.Lines {
		size += min(len(line), 4096)
	}
	if len(op.Lines) > 500 {
		out = append(out, misfit{"lines", "report_lines"})
	}
	if size > 65_536 {
		out = append(out, misfit{"lines", "report_bytes"})
	}
	if len(op.Checkpoint) > 65_536 {
		out = append(out, misfit{"checkpoint", "checkpoint"})
	}
	return out
}

// report judges what a holder tells: only the one whose lease is live is heard, five times at once and then once a second.
func (m *Model) report(p *part, op *core.TaskReport, a answer) error {
	_, lost := a.fact.(core.LeaseLost)
	t := p.tasks[op.Task]
	if t == nil {
		if lost {
			return nil
		}
		return fmt.Errorf("report of task %s, which is unknown, was answered %s", op.Task, a)
	}
	var next []standing
	for _, s := range t.may {
		if s.live(op.Token) != lost {
			next = append(next, s)
		}
	}
	if len(next) == 0 {
		return fmt.Errorf("report of task %s token %d was answered %s, its standings are %+v", op.Task, op.Token, a, t.may)
	}
	m.stand(p, t, next)
	if lost {
		return nil
	}
	if bad := misfitsOfReport(op); len(bad) > 0 {
		return judgeMisfit(op, bad, a)
	}
	told := t.told
	if told.attempt != next[0].deliveries {
		told.attempt, told.number = next[0].deliveries, 0
	} else if op.Number != 0 && op.Number <= told.number {
		if err := m.applied(op, a); err != nil || a.blind || a.result.Replayed {
			return err
		}
		return fmt.Errorf("report %d of task %s was kept again", op.Number, op.Task)
	}
	if early := m.stamp < told.free.Add(-4000); early || a.fact != nil {
		if f, ok := a.fact.(core.RateLimited); early && ok && f.Limit == "task_reports" {
			return nil
		}
		return fmt.Errorf("report of task %s at %d was answered %s, the next one is on time at %d", op.Task, m.stamp, a, told.free)
	}
	told.free = max(told.free, m.stamp).Add(1000)
	told.number = max(told.number, op.Number)
	if op.HasCheckpoint {
		told.checkpoint = op.Checkpoint
	}
	for _, line := range op.Lines {
		told.most += int64(min(len(line), 4096)) + 16
	}
	told.most += int64(len(op.Checkpoint))
	old := t.told
	m.change(func() { t.told = old })
	t.told = told
	if !a.blind && a.result.Replayed {
		return fmt.Errorf("report %d of task %s was taken for a repetition", op.Number, op.Task)
	}
	return nil
}

// sameCheckpoint judges the checkpoint that an attempt is given.
func sameCheckpoint(t *task, got *core.Assigned) error {
	if !bytes.Equal(got.Checkpoint, t.told.checkpoint) {
		return fmt.Errorf("given the checkpoint %q, the last one is %q", got.Checkpoint, t.told.checkpoint)
	}
	return nil
}
