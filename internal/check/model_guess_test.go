package check

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// cancelJob starts a job that cancels the tasks of queue q.
func cancelJob(n byte) *core.BulkStart {
	return &core.BulkStart{ID: bulkID(n), Action: core.BulkCancel, Tasks: core.TaskFilter{Queue: "q"}}
}

func runTask(n byte) *core.TaskRunNow { return &core.TaskRunNow{Task: taskID(n)} }

// What an op before the refused one did is not answered. What the later ones saw of it tells.
func TestModelTriesEachWayInWhichARefusedCommitMayHaveGone(t *testing.T) {
	const late = 25 * 3600 // seconds after which ids of tasks may be forgotten
	no := refused(2, absent("a"))
	check := &core.KVCheck{Keyspace: "k", Key: []byte("a"), Compare: core.CompareExists}
	unique := func(n byte, change func(*core.TaskCreate)) *core.TaskCreate {
		op := makeTask(n)
		op.Unique.Key, op.MaxCrashes = "u", 1
		change(op)
		return op
	}
	first := unique(1, func(op *core.TaskCreate) { op.Unique.Until = core.UniqueTerminal })
	next := unique(3, func(op *core.TaskCreate) { op.Unique.Reject = true })
	holds := func(more ...said) []said {
		return append([]said{{1, ops(first), did(created(taskID(1)))}, {2, ops(give(1)), grants(given(1, 7, 2))}}, more...)
	}

	batch := core.TaskID{0: 'b'}
	added := makeTask(1)
	added.Batch = batch
	another := makeTask(4)
	another.Batch = batch
	open, seal := &core.BatchOpen{ID: batch}, &core.BatchSeal{ID: batch}
	opened := core.OpResult{Kind: core.OpBatchOpen, Task: batch}
	sealed := func(more ...said) []said {
		return append([]said{
			{1, ops(open, added, seal), did(opened, created(taskID(1)), core.OpResult{Kind: core.OpBatchSeal, Task: batch})},
			{2, ops(give(1)), grants(given(1, 7, 2))},
			{3, ops(complete(7)), did(done)},
		}, more...)
	}
	closed := refused(1, core.WrongBatch{Batch: batch, State: core.BatchFinished})

	wait := unique(1, func(op *core.TaskCreate) { op.Delay = 3_600_000 })
	instead := unique(2, func(op *core.TaskCreate) { op.Unique.Replace, op.Payload = true, []byte("2") })
	replaced := func(more ...said) []said {
		was := core.OpResult{Kind: core.OpTaskCreate, Task: taskID(1), State: core.Ready, Existed: true}
		waits := created(taskID(1))
		waits.State = core.Scheduled
		return append([]said{{1, ops(wait), did(waits)}, {1, ops(instead), did(was)}}, more...)
	}
	isReady := refused(1, core.WrongState{Task: taskID(2), State: core.Ready})
	unknown := refused(1, core.NotFound{Kind: "task"})

	jobs := func(n byte, at int64, more ...said) []said {
		list := running(said{3, ops(cancelJob(1)), begun(1)}, said{4, ops(&core.BulkStop{ID: bulkID(1)}), did(core.OpResult{Kind: core.OpBulkStop, Task: bulkID(1)})})
		for i := range n {
			list = append(list, said{at, ops(cancelJob(10 + i)), begun(10 + i)})
		}
		return append(list, more...)
	}
	full := refused(1, core.Exhausted{Limit: "bulk_jobs", Max: core.MaxBulkJobs})
	const forgotten = 4 + core.BulkKept/1000

	for name, c := range map[string]struct {
		list []said
		says string // empty: it is allowed
	}{
		"a key that the commit freed":               {holds(said{3, ops(complete(7), next, check), no}), ""},
		"a key that may be free":                    {holds(tick(9, true), said{9, ops(put("b"), next, check), no}), ""},
		"a key that is held":                        {holds(said{3, ops(put("b"), next, check), no}), "is held"},
		"a create that is known in a sealed batch":  {sealed(tick(late, false), said{late, ops(added, runTask(9)), unknown}), ""},
		"another create in a sealed batch":          {sealed(tick(late, false), said{late, ops(another, runTask(9)), unknown}), "not open"},
		"a create that is forgotten":                {sealed(tick(late, false), said{late, ops(makeTask(3), added), closed}), ""},
		"a batch that is forgotten":                 {sealed(said{3 + core.BatchKept/1000, ops(open, another, check), no}), ""},
		"a batch that may be known":                 {sealed(said{3 + core.BatchKept/1000, ops(open, another), closed}), ""},
		"a batch that is known":                     {sealed(said{4, ops(open, another, check), no}), "not open"},
		"a create that replaced, and is forgotten":  {replaced(said{late, ops(instead, runTask(2)), isReady}), ""},
		"a create that replaced, and may be known":  {replaced(said{late, ops(instead, runTask(2)), unknown}), ""},
		"a create that replaced, and is known":      {replaced(said{2, ops(instead, runTask(2)), isReady}), "unknown"},
		"a job that is forgotten takes a place":     {jobs(core.MaxBulkJobs-1, forgotten, said{forgotten, ops(cancelJob(1), cancelJob(30)), full}), ""},
		"a job that may be known takes none":        {jobs(core.MaxBulkJobs, forgotten, said{forgotten, ops(cancelJob(1), cancelJob(30)), full}), ""},
		"a job that is known does not take a place": {jobs(core.MaxBulkJobs-1, 5, said{5, ops(cancelJob(1), cancelJob(30)), full}), "9 to 9 run"},
		"the first guess of several is wrong for one": {
			holds(said{3, ops(complete(7)), did(done)}, tick(late, false), said{late, ops(first, next, check), no}), "",
		},
	} {
		judgeSaid(t, name, core.FormatShare, c.list, c.says)
	}
}
