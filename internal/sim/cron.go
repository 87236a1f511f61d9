package sim

import (
	"fmt"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Operators set crons, pause them, run them by hand and remove them, while leaders come and go. Their tasks are of a queue that no
// worker takes: what matters is that each slot is done once, which the model judges by the log.

// cronQueue is the queue of the tasks of crons.
const cronQueue = "crons"

// someCron draws an op about one of a few crons.
func (w *world) someCron() (place, core.Op) {
	at := w.ledger.somePlace()
	name := fmt.Sprint("c", w.rng.IntN(3))
	switch w.rng.IntN(10) {
	case 0:
		return at, &core.CronDelete{Name: name, IfVersion: -1}
	case 1:
		return at, &core.CronSet{Name: name, Change: core.CronChangePause, IfVersion: -1}
	case 2:
		return at, &core.CronSet{Name: name, Change: core.CronChangeResume, IfVersion: -1}
	case 3:
		return at, &core.CronFire{Name: name, Trigger: w.taskID(at)}
	}
	return at, &core.CronSet{
		Name: name, IfVersion: -1, Config: core.CronConfig{
			Schedule: []string{"* * * * * *", "@every 2s"}[w.rng.IntN(2)], Overlap: core.CronOverlap(w.rng.IntN(4)),
			CatchUp: core.CronCatchUp(w.rng.IntN(3)),
		}, Template: core.TaskCreate{Queue: cronQueue},
	}
}

// auditCrons compares the crons of a partition with the model, and counts their runs.
func (w *world) auditCrons(v core.View, p core.Partition, model *check.Model) error {
	list, _, err := queue.Crons(v, p, "", 100, 1<<20)
	if err != nil {
		return err
	}
	for i := range list {
		w.ledger.acts[core.OpCronFire] += int(list[i].Runs)
	}
	return model.AuditCrons(p, list, func(name string) ([]core.CronRun, error) {
		runs, _, err := queue.CronRuns(v, p, name, 0, 1000)
		return runs, err
	})
}
