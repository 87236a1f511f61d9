package checktest

import (
	"bytes"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// wait lets a new task wait for some of those that were made last. A few creates are not as they must be.
func (w *world) wait(op *core.TaskCreate, ids []core.TaskID) {
	op.OnDepFailure = core.DepFailure(w.rand.IntN(3))
	for range 1 + w.rand.IntN(3) {
		op.After = append(op.After, core.After{Task: recent(w.rand, ids), Terminal: w.rand.IntN(4) == 0})
	}
	byID := func(a, b core.After) int { return bytes.Compare(a.Task[:], b.Task[:]) }
	slices.SortFunc(op.After, byID)
	if w.rand.IntN(30) > 0 { // else some may be there twice
		op.After = slices.CompactFunc(op.After, func(a, b core.After) bool { return a.Task == b.Task })
	}
	switch w.rand.IntN(60) {
	case 0:
		op.After = append(op.After, core.After{Task: op.ID})
	case 1:
		op.OnDepFailure = core.DepRun + 1
	case 2:
		op.After[0].Task = core.NewTaskID(1, 77, [9]byte{})
	case 3:
		op.After = make([]core.After, core.MaxAfter+1)
	case 4:
		op.After = nil
	}
}

// countAfter counts what became of tasks that wait for others.
func (s *Stats) countAfter(c *core.Commit, got *core.Result) {
	if got.Refusal != nil || got.Replayed {
		return
	}
	for i, op := range c.Ops {
		create, ok := op.(*core.TaskCreate)
		if !ok || len(create.After) == 0 || i >= len(got.Ops) || got.Ops[i].Replayed {
			continue
		}
		switch got.Ops[i].State {
		case core.Blocked:
			s.Blocked++
		case core.Cancelled:
			s.BornCancelled++
		default:
			s.NotBlocked++
		}
	}
}
