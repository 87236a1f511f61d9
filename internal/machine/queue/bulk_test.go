package queue

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
)

var bulkActions = map[string]core.BulkAction{
	"cancel": core.BulkCancel, "retry": core.BulkRetry, "delete": core.BulkDelete, "prioritize": core.BulkPrioritize,
}

// bulkOp reads a start such as: bulk j action=retry queue=mail state=dead rate=10.
func (s *script) bulkOp(w words) *core.BulkStart {
	op := &core.BulkStart{
		ID: idOf(w.name()), Action: bulkActions[w.str("action", "")], Priority: uint8(w.num("priority")), Force: w.has("force"),
		Rate: uint32(w.num("rate")), Reason: w.str("reason", ""), Matched: uint64(w.num("matched")), Exact: w.has("exact"),
	}
	op.Tasks = core.TaskFilter{
		Queue: w.str("queue", ""), Kind: w.str("kind", ""), Worker: w.str("worker", ""), Unique: w.str("unique", ""),
		Labels: w.labels(), From: w.at("from"), To: w.at("to"),
	}
	op.Tasks.State, _ = core.ParseState(w.str("state", ""))
	op.ToQueue = w.str("to_queue", "")
	if w.has("patch") { // is in the lines after the command
		op.Patch = []byte(w.d.Input)
	}
	return op
}

// jobs prints the bulk jobs.
func (s *script) jobs() string {
	list, err := Bulks(s.tx, testPartition)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, j := range list {
		fmt.Fprintf(&b, "%s %s by=%s rate=%d matched=%d looked=%d done=%d refused=%v started=%s",
			nameOf(j.ID), [...]string{"", "running", "done", "stopped"}[j.State], j.By, j.Rate, j.Matched, j.Looked, j.Done, j.Refused, since(j.Started))
		if j.Ended != 0 {
			fmt.Fprintf(&b, " ended=%s", since(j.Ended))
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "none\n"
	}
	return b.String()
}

// count prints what a job would find, looking at rows rows at a time.
func (s *script) count(w words) string {
	rows := 100
	if w.has("rows") {
		rows = int(w.num("rows"))
	}
	var cursor []byte
	var names []string
	var n, looked uint64
	for range 100 {
		c, err := CountBulk(s.tx, testPartition, s.bulkOp(w), s.c.Shift, cursor, rows, 10)
		if err != nil {
			return err.Error() + "\n"
		}
		n, looked = n+c.Count, looked+c.Inspected
		for _, t := range c.Sample {
			names = append(names, nameOf(t.ID))
		}
		if cursor = c.Next; cursor == nil {
			return fmt.Sprintf("%d of %d: %s\n", n, looked, strings.Join(names, " "))
		}
	}
	return "count never ends\n"
}

// A job goes on where the last tick left it, on whichever machine: each task is met once, and no other work waits for more than a
// part of it.
func TestABulkJobGoesOnAfterARestart(t *testing.T) {
	w := newWorld(t, Options{Heads: 4})
	const tasks = 1000
	for i := range tasks {
		w.do(&core.TaskCreate{ID: idOf(fmt.Sprintf("t%d", i)), Queue: "mail", Delay: 3_600_000})
	}
	w.do(&core.BulkStart{ID: idOf("job"), Action: core.BulkCancel, Tasks: core.TaskFilter{Queue: "mail"}, Rate: core.MaxBulkRate})
	var done uint64
	for range 100 {
		w.c.Stamp = w.c.Stamp.Add(5)
		w.tick(1000)
		w.restart()
		w.check()
		jobs, err := Bulks(w.tx, testPartition)
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		j := jobs[0]
		if j.Done-done > bulkActs {
			t.Fatalf("one tick cancelled %d tasks", j.Done-done)
		}
		if done = j.Done; j.State == core.BulkDone {
			break
		}
	}
	if done != tasks {
		t.Errorf("%d of %d tasks were cancelled", done, tasks)
	}
	q, _, err := Stats(w.tx, testPartition, "mail")
	if err != nil || q.States[core.Cancelled] != tasks {
		t.Errorf("%d tasks are cancelled, %v", q.States[core.Cancelled], err)
	}
}

// A task that cannot be acted on is counted by the code of its refusal, and not as done.
func TestABulkJobCountsRefusals(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(&core.QueueSet{Queue: "mail", Config: core.QueueConfig{Limits: core.QueueLimits{MaxTasks: 2}}})
	for i := range 3 {
		id := idOf(fmt.Sprintf("dead%d", i))
		w.do(&core.TaskCreate{ID: id, Queue: "mail"})
		w.do(&core.Grant{N: 1, Worker: "w", Queues: []core.GrantQueue{{Name: "mail"}}})
		w.do(&core.TaskFail{Task: id, Token: w.lastToken(), Fatal: true})
	}
	w.do(&core.TaskCreate{ID: idOf("ready"), Queue: "mail"}) // there is room for one of the three
	w.do(&core.BulkStart{ID: idOf("job"), Action: core.BulkRetry, Tasks: core.TaskFilter{Queue: "mail"}, Rate: core.MaxBulkRate})
	for range 10 {
		w.c.Stamp = w.c.Stamp.Add(5)
		w.tick(1000)
	}
	jobs, err := Bulks(w.tx, testPartition)
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	if j := jobs[0]; j.State != core.BulkDone || j.Done != 1 || len(j.Refused) != 1 || j.Refused[0] != (core.BulkRefused{Code: "RESOURCE_EXHAUSTED", Count: 2}) {
		t.Errorf("the job is %v, with %d done and %v refused", j.State, j.Done, j.Refused)
	}
}

// kill creates a task of a kind that fails for good.
func (w *world) kill(id core.TaskID, kind string) {
	w.t.Helper()
	w.do(&core.TaskCreate{ID: id, Queue: "mail", TaskKind: kind})
	w.do(&core.Grant{N: 1, Worker: "w", Queues: []core.GrantQueue{{Name: "mail"}}})
	w.do(&core.TaskFail{Task: id, Token: w.lastToken(), Fatal: true})
}

// runBulk starts a job at the highest rate, calls began, and does the job's parts until it has ended.
func (w *world) runBulk(a core.BulkAction, f core.TaskFilter, began func()) core.BulkJob {
	w.t.Helper()
	w.c.Stamp = w.c.Stamp.Add(5)
	w.do(&core.BulkStart{ID: idOf("job"), Action: a, Tasks: f, Rate: core.MaxBulkRate})
	w.c.Stamp = w.c.Stamp.Add(5)
	began()
	for range 100 {
		w.c.Stamp = w.c.Stamp.Add(5)
		w.tick(1000)
		jobs, err := Bulks(w.tx, testPartition)
		if err != nil || len(jobs) != 1 {
			w.t.Fatal(jobs, err)
		}
		if jobs[0].State != core.BulkRunning {
			return jobs[0]
		}
	}
	w.t.Fatal("the job never ends")
	return core.BulkJob{}
}

// A part that redrives all it comes to writes two records for a task, and takes their rows out of the index of ended tasks by one
// range, which begins where that of the part before ended: a memory layer joins them.
func TestARedriveTakesItsRowsAsOneRange(t *testing.T) {
	w := newWorld(t, Options{})
	w.loose = true
	const parts = 3
	for i := range parts * bulkActs {
		w.kill(numbered(i), "")
	}
	w.tape.on, w.tape.lines = true, nil
	w.tx.ResetCounts()
	if j := w.runBulk(core.BulkRetry, core.TaskFilter{Queue: "mail"}, func() {}); j.Done != parts*bulkActs {
		t.Fatalf("%d tasks were redriven", j.Done)
	}
	if c := w.tx.Counts(); c.Range != parts || c.Deletes != 0 || c.Inserts != parts*bulkActs {
		t.Errorf("it wrote %+v, want %d ranges and a place in the queue for each task", c, parts)
	}
	end := ""
	for _, line := range w.tape.lines {
		if f := strings.Fields(line); f[0] == "range" {
			if end != "" && f[1] != end {
				t.Errorf("a range begins at %s, and the one before ended at %s", f[1], end)
			}
			end = f[2]
		}
	}
	w.check()
}

// A job that leaves out some of the tasks that it comes to, in runs of any length, leaves their rows in the index of ended tasks, and
// the row of a task that died after its start.
func TestABulkJobLeavesOtherRows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, Options{})
		w.loose = true
		action := rapid.SampledFrom([]core.BulkAction{core.BulkRetry, core.BulkDelete}).Draw(rt, "action")
		var kinds []string
		for range rapid.IntRange(1, 6).Draw(rt, "runs") {
			kind := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "kind")
			for range rapid.IntRange(1, 2*bulkRange).Draw(rt, "length") {
				id := numbered(len(kinds))
				if rapid.IntRange(0, 9).Draw(rt, "cancelled") == 0 {
					w.do(&core.TaskCreate{ID: id, Queue: "mail", TaskKind: kind})
					w.do(&core.TaskCancel{Task: id})
				} else {
					w.kill(id, kind)
				}
				kinds = append(kinds, kind)
			}
			w.c.Stamp = w.c.Stamp.Add(core.Millis(rapid.IntRange(0, 1).Draw(rt, "later")))
		}
		state := rapid.SampledFrom([]core.State{0, core.Dead}).Draw(rt, "state")
		before := make([]string, len(kinds))
		var want uint64
		for i, kind := range kinds {
			before[i] = w.stateOf(numbered(i))
			if kind == "a" && (state == 0 || strings.HasPrefix(before[i], state.String())) {
				want++
				before[i] = map[core.BulkAction]string{core.BulkRetry: core.Ready.String(), core.BulkDelete: "gone"}[action]
			}
		}
		kinds, before = append(kinds, "a"), append(before, "dead fatal")
		late := func() { w.kill(numbered(len(kinds)-1), "a") }
		if j := w.runBulk(action, core.TaskFilter{Queue: "mail", Kind: "a", State: state}, late); j.Done != want {
			rt.Errorf("the job did %d tasks, want %d", j.Done, want)
		}
		for i := range kinds {
			if got := w.stateOf(numbered(i)); got != before[i] {
				rt.Errorf("task %d is %s, want %s", i, got, before[i])
			}
		}
		w.check()
	})
}
