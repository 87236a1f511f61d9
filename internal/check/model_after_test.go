package check

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// together judges one entry of several commits after a history.
func together(list []said, at int64, entry ...said) error {
	m := NewModel()
	for i := range list {
		e := &core.Entry{Format: core.FormatShare, Stamp: core.ShardTime(list[i].at * 1000), Commits: []core.Commit{list[i].commit}}
		if err := m.Judge(uint64(i+1), e, []core.Result{list[i].result}); err != nil {
			return err
		}
	}
	e := &core.Entry{Format: core.FormatShare, Stamp: core.ShardTime(at * 1000)}
	var results []core.Result
	for _, s := range entry {
		e.Commits, results = append(e.Commits, s.commit), append(results, s.result)
	}
	return m.Judge(uint64(len(list)+1), e, results)
}

// A tick that is bounded may have ended a task or not, and so may the next one of the entry. One that was made between them and waits was
// made before the end.
func TestModelKnowsThatWhatEndedMayHaveEndedLaterInTheEntry(t *testing.T) {
	mortal := makeTask(1)
	mortal.MaxCrashes = 1
	runs := []said{{1, ops(mortal), did(created(taskID(1)))}, {2, ops(give(1)), grants(given(1, 7, 2))}}
	job := &core.BulkStart{ID: bulkID(1), Action: core.BulkCancel, Tasks: core.TaskFilter{Queue: "q"}}
	cancels := []said{{1, ops(makeTask(1)), did(created(taskID(1)))}, {3, ops(job), begun(1)}}

	after := makeTask(3)
	after.After = []core.After{{Task: taskID(1), Terminal: true}}
	blocked := created(taskID(3))
	blocked.State = core.Blocked
	waits := said{9, ops(after), did(blocked)}
	third := given(3, 8, 9)
	third.CreatedAt = 9000
	gives := said{9, ops(give(1)), grants(third)}
	again := tick(9, true)

	letters := []said{{1, ops(&core.QueueSet{Queue: "q", IfVersion: -1, Config: core.QueueConfig{Share: core.QueueShare{DeadLetter: "d"}}}), did(core.OpResult{Kind: core.OpQueueSet, Version: 1})}}
	letters = append(letters, runs...)
	id := core.DeadLetterID(taskID(1), 0)
	missing := said{9, ops(&core.TaskRunNow{Task: id}), refused(0, core.NotFound{Kind: "task"})}
	copied := core.Assigned{
		Task: id, Token: 8, Attempt: 1, Queue: "d", Kind: "q", Payload: []byte{1}, ContentType: "application/json", CreatedAt: 9000, LeaseUntil: 69_000,
		Headers: []core.Header{{Name: core.HeaderDeadTask, Value: taskID(1).String()}, {Name: core.HeaderDeadQueue, Value: "q"}},
	}
	givesCopy := said{9, ops(&core.Grant{Queues: []core.GrantQueue{{Name: "d"}}, N: 1}), grants(copied)}

	for name, c := range map[string]struct {
		list, entry []said
		says        string // empty: it is allowed
	}{
		"a lease ends in the second tick":          {runs, []said{again, waits, again, gives}, ""},
		"it does not end at all":                   {runs, []said{again, waits, again}, ""},
		"it cannot have ended since":               {runs, []said{again, waits, gives}, "stands as"},
		"a job cancels in the second tick":         {cancels, []said{again, waits, again, gives}, ""},
		"it cannot have cancelled since":           {cancels, []said{again, waits, gives}, "stands as"},
		"a copy is made in the second tick":        {letters, []said{again, missing, again, givesCopy}, ""},
		"a copy was not there, and nothing ended":  {letters, []said{again, missing, givesCopy}, "stands as"},
		"a copy is made in the first tick of both": {letters, []said{again, again, givesCopy}, ""},
	} {
		err := together(c.list, 9, c.entry...)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: err = %v, want a mismatch that says %q", name, err, c.says)
		}
	}
}
