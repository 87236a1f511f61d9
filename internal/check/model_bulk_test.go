package check

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func bulkID(n byte) core.TaskID { return core.TaskID{0: 'j', 15: n} }

func begun(n byte) core.Result { return did(core.OpResult{Kind: core.OpBulkStart, Task: bulkID(n)}) }

func TestModelKnowsWhichTasksABulkJobMayMeet(t *testing.T) {
	start := func(n byte, action core.BulkAction, change func(*core.BulkStart)) said {
		op := &core.BulkStart{ID: bulkID(n), Action: action, Tasks: core.TaskFilter{Queue: "q"}}
		if change != nil {
			change(op)
		}
		return said{3, ops(op), begun(n)}
	}
	begin := start(1, core.BulkCancel, nil)
	other := start(1, core.BulkCancel, func(op *core.BulkStart) { op.Tasks.Queue = "p" })
	scheduled := start(1, core.BulkCancel, func(op *core.BulkStart) { op.Tasks.State = core.Scheduled })
	labelled := start(1, core.BulkCancel, func(op *core.BulkStart) { op.Tasks.Labels = []core.Label{{Name: "a"}} })
	forced := start(1, core.BulkCancel, func(op *core.BulkStart) { op.Force = true })
	raised := start(1, core.BulkPrioritize, func(op *core.BulkStart) { op.Priority = 7 })
	stop := said{3, ops(&core.BulkStop{ID: bulkID(1)}), did(core.OpResult{Kind: core.OpBulkStop, Task: bulkID(1)})}
	cancel := func(at int64, n byte, replayed bool) said {
		return said{at, ops(&core.TaskCancel{Task: taskID(n)}), did(core.OpResult{Kind: core.OpTaskCancel, State: core.Cancelled, Replayed: replayed})}
	}
	redrive := func(at int64) said {
		return said{at, ops(&core.TaskRedrive{Task: taskID(2)}), did(core.OpResult{Kind: core.OpTaskRedrive, State: core.Ready})}
	}
	remove := func(at int64) said {
		return said{at, ops(&core.TaskDelete{Task: taskID(2)}), refused(0, core.NotFound{Kind: "task"})}
	}
	take := func(priority uint8) said {
		got := given(2, 8, 5)
		got.Priority = priority
		return said{5, ops(give(1)), grants(got)}
	}
	for name, c := range map[string]struct {
		list []said
		says string // empty: it is allowed
	}{
		"it cancels":                          {running(begin, tick(4, false), cancel(5, 2, true)), ""},
		"it has not cancelled yet":            {running(begin, tick(4, true), cancel(5, 2, false)), ""},
		"it cancels without a tick":           {running(begin, cancel(5, 2, true)), "allowed"},
		"it cancels after its stop":           {running(begin, stop, tick(4, false), cancel(5, 2, true)), "allowed"},
		"it cancels what it did before":       {running(begin, tick(4, true), said{4, stop.commit, stop.result}, cancel(5, 2, true)), ""},
		"it cancels in another queue":         {running(other, tick(4, false), cancel(5, 2, true)), "allowed"},
		"it cancels in another state":         {running(scheduled, tick(4, false), cancel(5, 2, true)), "allowed"},
		"it cancels without the label":        {running(labelled, tick(4, false), cancel(5, 2, true)), "allowed"},
		"it cancels what was made later":      {running(begin, said{4, ops(makeTask(3)), did(created(taskID(3)))}, tick(4, false), cancel(5, 3, true)), "allowed"},
		"it cancels after all was met":        {running(begin, tick(4, false), tick(5, false), redrive(5), tick(7, false), tick(8, false), tick(9, false), redrive(9)), "allowed"},
		"a holder goes on":                    {running(begin, tick(4, false), said{4, ops(complete(7)), did(done)}), ""},
		"a holder loses its lease":            {running(begin, tick(4, false), said{4, ops(complete(7)), refused(0, lost1)}), "allowed"},
		"a holder loses its lease by force":   {running(forced, tick(4, false), said{4, ops(complete(7)), refused(0, lost1)}), ""},
		"it makes ready again":                {running(cancel(2, 2, false), start(1, core.BulkRetry, nil), tick(4, false), cancel(5, 2, false)), ""},
		"it makes ready what ended later":     {running(start(1, core.BulkRetry, nil), cancel(4, 2, false), tick(4, false), cancel(5, 2, false)), "allowed"},
		"it deletes":                          {running(cancel(2, 2, false), start(1, core.BulkDelete, nil), tick(4, false), remove(5)), ""},
		"it deletes what waits":               {running(start(1, core.BulkDelete, nil), tick(4, false), remove(5)), "allowed"},
		"it sets a priority":                  {running(raised, tick(4, false), take(7)), ""},
		"it has not set a priority yet":       {running(raised, tick(4, false), take(0)), ""},
		"it sets another priority":            {running(raised, tick(4, false), take(6)), "priority 6"},
		"it sets a priority without a tick":   {running(raised, take(7)), "priority 7"},
		"nothing is there to be acted on":     {running(labelled, tick(4, false), said{4, stop.commit, stop.result}), "may have ended"},
		"it ends while there is a task to do": {running(begin, stop), ""},
	} {
		judgeSaid(t, name, core.FormatOperate, c.list, c.says)
	}
}

func TestModelKnowsHowBulkJobsBeginAndEnd(t *testing.T) {
	first := &core.BulkStart{ID: bulkID(1), Action: core.BulkCancel, Tasks: core.TaskFilter{Queue: "q"}}
	same, another := *first, *first
	same.Matched, same.Rate, another.Rate = 7, core.DefaultBulkRate, 5
	began := func(more ...said) []said { return running(append([]said{{3, ops(first), begun(1)}}, more...)...) }
	var many []said
	for n := range byte(core.MaxBulkJobs) {
		op := *first
		op.ID = bulkID(n + 10)
		many = append(many, said{3, ops(&op), begun(n + 10)})
	}
	full := refused(0, core.Exhausted{Limit: "bulk_jobs", Max: core.MaxBulkJobs})
	again := did(core.OpResult{Kind: core.OpBulkStart, Task: bulkID(1), Replayed: true})
	exists := refused(0, core.AlreadyExists{Kind: "bulk", ID: bulkID(1).String()})
	stop := ops(&core.BulkStop{ID: bulkID(1)})
	stopped := func(replayed bool) core.Result {
		return did(core.OpResult{Kind: core.OpBulkStop, Task: bulkID(1), Replayed: replayed})
	}
	unknown := refused(0, core.NotFound{Kind: "bulk"})
	for name, c := range map[string]struct {
		list []said
		says string // empty: it is allowed
	}{
		"the same start":               {began(said{4, ops(&same), again}), ""},
		"the same start is done twice": {began(said{4, ops(&same), begun(1)}), "is known"},
		"another start":                {began(said{4, ops(&another), exists}), ""},
		"another start is a replay":    {began(said{4, ops(&another), again}), "is known"},
		"the same start exists":        {began(said{4, ops(&same), exists}), "is known"},
		"a start without another":      {running(said{3, ops(first), exists}), "is new"},
		"a replay of nothing":          {running(said{3, ops(first), again}), "is new"},
		"too many":                     {running(append(slices.Clone(many), said{3, ops(first), full})...), ""},
		"too many are not refused":     {running(append(slices.Clone(many), said{3, ops(first), begun(1)})...), "10 to 10 run"},
		"one is too many":              {running(append(slices.Clone(many[1:]), said{3, ops(first), full})...), "9 to 9 run"},
		"a stop":                       {began(said{4, stop, stopped(false)}), ""},
		"a stop of one that runs":      {began(said{4, stop, stopped(true)}), "may run: true"},
		"a second stop":                {began(said{4, stop, stopped(false)}, said{5, stop, stopped(true)}), ""},
		"a second stop is done":        {began(said{4, stop, stopped(false)}, said{5, stop, stopped(false)}), "may run: false"},
		"a stop of nothing":            {running(said{3, stop, unknown}), ""},
		"a stop of nothing is done":    {running(said{3, stop, stopped(false)}), "known: false"},
		"a job is forgotten":           {began(said{4, stop, unknown}), "known: true"},
		"a job is forgotten in time":   {began(said{4, stop, stopped(false)}, said{4 + core.BulkKept/1000, stop, unknown}), ""},
		"a job of no queue has ended":  {[]said{{3, ops(first), begun(1)}, {4, stop, stopped(true)}}, ""},
		"a job of no queue runs":       {[]said{{3, ops(first), begun(1)}, {4, stop, stopped(false)}}, "may run: false"},
	} {
		judgeSaid(t, name, core.FormatOperate, c.list, c.says)
	}
	no := refused(0, core.Invalid{Field: "op", Reason: "not_supported"})
	judgeSaid(t, "a start before its format", core.FormatQueues, running(said{3, ops(first), no}), "")
	judgeSaid(t, "a start in its format", core.FormatOperate, running(said{3, ops(first), no}), "is new")
	judgeSaid(t, "a stop before its format", core.FormatQueues, running(said{3, stop, no}), "")
	wrong := *first
	wrong.Action = 9
	judgeSaid(t, "an unknown action", core.FormatOperate, running(said{3, ops(&wrong), begun(1)}), "out of bounds")
	judgeSaid(t, "an unknown action is refused", core.FormatOperate, running(said{3, ops(&wrong), refused(0, core.Invalid{Field: "action"})}), "")
}
