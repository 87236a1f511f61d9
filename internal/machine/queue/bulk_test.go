package queue

import (
	"fmt"
	"strings"
	"testing"

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
