package check

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestModelKnowsWhereTasksOfPinnedQueuesAreMade(t *testing.T) {
	id := core.NewTaskID(1, 1, [9]byte{5})
	in := func(part core.Partition, op core.Op, result core.Result) said {
		return said{1, core.Commit{Partition: part, Ops: []core.Op{op}}, result}
	}
	away := testPart
	away.Index = 1
	set := func(part core.Partition, share core.QueueShare) said {
		return in(part, &core.QueueSet{Queue: "q", IfVersion: -1, Config: core.QueueConfig{Share: share}}, did(core.OpResult{Kind: core.OpQueueSet, Version: 1}))
	}
	bound := core.QueueShare{Concurrency: 1}
	task := &core.TaskCreate{ID: id, Queue: "q"}
	cron := &core.CronSet{Name: "c", IfVersion: -1, Config: core.CronConfig{Schedule: "@daily"}, Template: core.TaskCreate{Queue: "q"}}
	batch := &core.BatchOpen{ID: id, OnDone: &core.TaskCreate{Queue: "q"}}
	no := refused(0, core.QueuePinned{Queue: "q"})
	for name, c := range map[string]struct {
		list []said
		says string // empty: it is allowed
	}{
		"a task elsewhere is refused":      {[]said{set(away, bound), in(away, task, no)}, ""},
		"a task elsewhere is made":         {[]said{set(away, bound), in(away, task, did(created(id)))}, "is pinned"},
		"a task there is refused":          {[]said{set(testPart, bound), in(testPart, makeTask(3), no)}, "could be made"},
		"a task of another queue":          {[]said{set(away, core.QueueShare{KeyConcurrency: 1}), in(away, task, no)}, "could be made"},
		"a cron elsewhere is refused":      {[]said{set(away, bound), in(away, cron, no)}, ""},
		"a cron elsewhere is set":          {[]said{set(away, bound), in(away, cron, did(core.OpResult{Kind: core.OpCronSet, Version: 1}))}, "pinned elsewhere"},
		"a follow-up elsewhere is refused": {[]said{set(away, bound), in(away, batch, no)}, ""},
		"a follow-up elsewhere is taken":   {[]said{set(away, bound), in(away, batch, did(core.OpResult{Kind: core.OpBatchOpen, Task: id}))}, "pinned elsewhere"},
	} {
		judgeSaid(t, name, core.FormatShare, c.list, c.says)
	}
}
