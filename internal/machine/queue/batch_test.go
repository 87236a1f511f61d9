package queue

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
)

// open opens a batch with both follow-ups, in a queue of their own.
func (w *world) open(name string) {
	w.t.Helper()
	op := &core.BatchOpen{
		ID: idOf(name), Labels: []core.Label{{Name: "env", Value: "prod"}},
		OnDone:    &core.TaskCreate{Queue: "after", TaskKind: "done", Payload: []byte("d")},
		OnSuccess: &core.TaskCreate{Queue: "after", TaskKind: "success", Payload: []byte("s")},
	}
	if o := w.do(op); o.fact != nil {
		w.t.Fatal(o.fact)
	}
}

// into creates a task of a batch.
func (w *world) into(batch, task string) outcome {
	w.t.Helper()
	return w.do(&core.TaskCreate{ID: idOf(task), Queue: "mail", Batch: idOf(batch)})
}

func (w *world) batch(name string) core.Batch {
	w.t.Helper()
	b, ok, err := BatchOf(w.tx, testPartition, idOf(name))
	if err != nil || !ok {
		w.t.Fatalf("batch %s: %v %v", name, ok, err)
	}
	return b
}

// counts wants what a batch counts: total, waiting, running, completed, dead, cancelled.
func (w *world) counts(name string, want core.BatchCounts) {
	w.t.Helper()
	if got := w.batch(name).Counts; got != want {
		w.t.Errorf("batch %s counts %+v, want %+v", name, got, want)
	}
}

// follows lists the kinds of the tasks that batches made, in their order.
func (w *world) follows() (kinds []string) {
	w.t.Helper()
	page, err := List(w.tx, testPartition, core.ListQuery{Queue: "after", Limit: 100}, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, t := range page.Tasks {
		kinds = append(kinds, t.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

func (w *world) wantFollows(want ...string) {
	w.t.Helper()
	if got := w.follows(); !slices.Equal(got, want) {
		w.t.Errorf("batches made %v, want %v", got, want)
	}
}

// completeNext gives out one task of a queue and completes it.
func (w *world) completeNext() outcome {
	w.t.Helper()
	a := w.do(claimOp(1, "mail")).res.Assigned[0]
	return w.do(&core.TaskComplete{Task: a.Task, Token: a.Token})
}

func (w *world) failNext() core.TaskID {
	w.t.Helper()
	a := w.do(claimOp(1, "mail")).res.Assigned[0]
	w.do(&core.TaskFail{Task: a.Task, Token: a.Token, Fatal: true})
	return a.Task
}

func TestABatchFinishesInTheEntryOfItsLastEnd(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.into("b", "x")
	w.into("b", "y")
	w.counts("b", core.BatchCounts{Total: 2, Waiting: 2})
	a := w.do(claimOp(1, "mail")).res.Assigned[0]
	w.counts("b", core.BatchCounts{Total: 2, Waiting: 1, Running: 1})
	w.do(&core.TaskRelease{Task: a.Task, Token: a.Token})
	w.counts("b", core.BatchCounts{Total: 2, Waiting: 2})
	w.completeNext()
	w.do(&core.BatchSeal{ID: idOf("b")})
	if b := w.batch("b"); b.State != core.BatchSealed || b.Sealed == 0 || b.Finished != 0 {
		t.Errorf("%+v", b)
	}
	w.wantFollows()
	w.restart()
	o := w.completeNext()
	w.wantFollows("done", "success")
	if !slices.Contains(o.ended, idOf("b")) {
		t.Errorf("the end of the batch is not told: %v", o.ended)
	}
	b := w.batch("b")
	if b.State != core.BatchFinished || b.Finished != w.c.Stamp || b.By != "alice" || b.RefusedCode != "" || len(b.Labels) != 1 {
		t.Errorf("%+v", b)
	}
	task, ok, err := Task(w.tx, testPartition, b.DoneTask)
	if err != nil || !ok || task.Kind != "done" || string(task.Payload) != "d" || task.Creator != "batch/"+b.ID.String() ||
		!slices.Contains(task.Headers, core.Header{Name: core.HeaderBatch, Value: b.ID.String()}) || !task.Batch.IsZero() {
		t.Errorf("follow-up is %+v, %v, %v", task, ok, err)
	}
	if task, _, _ := Task(w.tx, testPartition, idOf("x")); task.Batch != b.ID {
		t.Errorf("a task of the batch says %s", task.Batch)
	}
}

func TestTheSealOfABatchWhoseTasksHaveEndedFinishesIt(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.into("b", "x")
	w.completeNext()
	w.wantFollows()
	if o := w.do(&core.BatchSeal{ID: idOf("b")}); o.res.Replayed {
		t.Error("a first seal is a replay")
	}
	w.wantFollows("done", "success")
	if o := w.do(&core.BatchSeal{ID: idOf("b")}); !o.res.Replayed {
		t.Error("a second seal is no replay")
	}
	w.open("empty")
	w.do(&core.BatchSeal{ID: idOf("empty")})
	w.wantFollows("done", "done", "success", "success")
}

func TestTheFollowUpOfSuccessNeedsEveryTaskCompleted(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.into("b", "x")
	w.into("b", "y")
	w.do(&core.BatchSeal{ID: idOf("b")})
	dead := w.failNext()
	w.completeNext()
	w.wantFollows("done")
	w.counts("b", core.BatchCounts{Total: 2, Completed: 1, Dead: 1})

	// A redrive moves the counts back, and the batch stays finished: nothing is made twice.
	w.restart()
	w.do(&core.TaskRedrive{Task: dead})
	w.counts("b", core.BatchCounts{Total: 2, Completed: 1, Waiting: 1})
	w.completeNext()
	w.counts("b", core.BatchCounts{Total: 2, Completed: 2})
	w.wantFollows("done")
	if b := w.batch("b"); b.State != core.BatchFinished || !b.SuccessTask.IsZero() {
		t.Errorf("%+v", b)
	}
}

func TestARedriveBeforeTheSealLetsABatchSucceed(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.into("b", "x")
	dead := w.failNext()
	w.do(&core.TaskRedrive{Task: dead})
	w.do(&core.BatchSeal{ID: idOf("b")})
	w.wantFollows()
	w.completeNext()
	w.wantFollows("done", "success")
}

func TestABatchTakesNoTasksOnceItIsSealed(t *testing.T) {
	w := newWorld(t, Options{BatchTasks: 2})
	if o := w.into("b", "x"); o.fact != (core.NotFound{Kind: "batch", ID: idOf("b").String()}) {
		t.Errorf("unknown batch: %v", o.fact)
	}
	w.open("b")
	w.into("b", "x")
	if o := w.into("b", "x"); !o.res.Replayed {
		t.Errorf("repeated create: %+v", o)
	}
	w.counts("b", core.BatchCounts{Total: 1, Waiting: 1})
	w.into("b", "y")
	if o := w.into("b", "z"); o.fact != (core.Exhausted{Limit: "batch_tasks", Max: 2}) {
		t.Errorf("full batch: %v", o.fact)
	}
	w.do(&core.BatchSeal{ID: idOf("b")})
	if o := w.into("b", "z"); o.fact != (core.WrongBatch{Batch: idOf("b"), State: core.BatchSealed}) {
		t.Errorf("sealed batch: %v", o.fact)
	}
	if o := w.into("b", "y"); !o.res.Replayed {
		t.Errorf("repeated create of a sealed batch: %+v", o)
	}
	if o := w.do(&core.TaskCreate{ID: idOf("y"), Queue: "mail"}); o.fact == nil {
		t.Error("the batch is no part of what a task was created with")
	}
	w.counts("b", core.BatchCounts{Total: 2, Waiting: 2})
}

func TestABatchIsOpenedOnce(t *testing.T) {
	w := newWorld(t, Options{Batches: 2})
	w.open("b")
	w.into("b", "x")
	op := &core.BatchOpen{ID: idOf("b"), Labels: []core.Label{{Name: "env", Value: "prod"}}}
	if o := w.do(op); o.fact != (core.AlreadyExists{Kind: "batch", ID: idOf("b").String()}) {
		t.Errorf("%+v", o)
	}
	w.open("b")
	w.counts("b", core.BatchCounts{Total: 1, Waiting: 1})
	w.open("c")
	if o := w.do(&core.BatchOpen{ID: idOf("d")}); o.fact != (core.Exhausted{Limit: "batches", Max: 2}) {
		t.Errorf("%+v", o)
	}
	w.do(&core.BatchSeal{ID: idOf("c")})
	if o := w.do(&core.BatchOpen{ID: idOf("d")}); o.fact != nil {
		t.Errorf("a batch that has finished still counts: %v", o.fact)
	}
}

func TestWhatABatchMayNotSay(t *testing.T) {
	w := newWorld(t, Options{})
	for field, op := range map[string]*core.BatchOpen{
		"id":                  {},
		"labels":              {ID: idOf("b"), Labels: []core.Label{{Name: ""}}},
		"on_done.queue":       {ID: idOf("b"), OnDone: &core.TaskCreate{}},
		"on_done.id":          {ID: idOf("b"), OnDone: &core.TaskCreate{Queue: "q", ID: idOf("x")}},
		"on_success.delay":    {ID: idOf("b"), OnSuccess: &core.TaskCreate{Queue: "q", Delay: 1}},
		"on_success.batch":    {ID: idOf("b"), OnSuccess: &core.TaskCreate{Queue: "q", Batch: idOf("c")}},
		"on_success.priority": {ID: idOf("b"), OnSuccess: &core.TaskCreate{Queue: "q", Priority: 10}},
	} {
		if f, ok := w.do(op).fact.(core.Invalid); !ok || f.Field != field {
			t.Errorf("%s: %+v", field, f)
		}
	}
	for _, op := range []core.Op{&core.BatchSeal{ID: idOf("b")}, &core.BatchCancel{ID: idOf("b")}} {
		if f := w.do(op).fact; f != (core.NotFound{Kind: "batch", ID: idOf("b").String()}) {
			t.Errorf("%T: %v", op, f)
		}
	}
}

// A commit that is refused behind it leaves neither a batch nor a count.
func TestARefusedCommitLeavesNothingOfABatch(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.into("b", "x")
	refused := &core.TaskDelete{Task: idOf("none")}
	w.commit(&core.TaskCreate{ID: idOf("y"), Queue: "mail", Batch: idOf("b")}, &core.BatchSeal{ID: idOf("b")}, &core.BatchOpen{ID: idOf("c")}, refused)
	w.counts("b", core.BatchCounts{Total: 1, Waiting: 1})
	if b := w.batch("b"); b.State != core.BatchIsOpen {
		t.Errorf("%+v", b)
	}
	if _, ok, _ := BatchOf(w.tx, testPartition, idOf("c")); ok {
		t.Error("a batch is there that a refused commit opened")
	}
	// The same for an end that would finish it.
	w.do(&core.BatchSeal{ID: idOf("b")})
	a := w.do(claimOp(1, "mail")).res.Assigned[0]
	w.commit(&core.TaskComplete{Task: a.Task, Token: a.Token}, refused)
	w.counts("b", core.BatchCounts{Total: 1, Running: 1})
	w.wantFollows()
	// A commit may open a batch, fill and seal it.
	if _, failed, fact := w.commit(
		&core.TaskComplete{Task: a.Task, Token: a.Token}, &core.BatchOpen{ID: idOf("c"), OnDone: &core.TaskCreate{Queue: "after", TaskKind: "c"}},
		&core.TaskCreate{ID: idOf("z"), Queue: "mail", Batch: idOf("c")}, &core.BatchSeal{ID: idOf("c")},
	); failed >= 0 {
		t.Fatal(fact)
	}
	w.counts("c", core.BatchCounts{Total: 1, Waiting: 1})
	w.wantFollows("done", "success")
	// In an entry whose commit before it has changed the batch.
	w.open("d")
	w.c.Index++
	w.apply(&core.TaskCreate{ID: idOf("d1"), Queue: "mail", Batch: idOf("d")})
	w.tx.Mark()
	w.m.Mark()
	w.apply(&core.TaskCreate{ID: idOf("d2"), Queue: "mail", Batch: idOf("d")})
	w.apply(&core.BatchSeal{ID: idOf("d")})
	w.tx.Undo()
	w.m.Undo()
	w.end(new(outcome))
	w.counts("d", core.BatchCounts{Total: 1, Waiting: 1})
	if b := w.batch("d"); b.State != core.BatchIsOpen {
		t.Errorf("%+v", b)
	}
}

// Where a follow-up has no room, it is made when there is some.
func TestAFollowUpThatIsRefusedIsTriedAgain(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(&core.QueueSet{Queue: "after", IfVersion: -1, Config: core.QueueConfig{Limits: core.QueueLimits{MaxTasks: 1}}})
	w.open("b")
	w.into("b", "x")
	w.do(&core.BatchSeal{ID: idOf("b")})
	w.completeNext()
	w.wantFollows("done")
	b := w.batch("b")
	if b.State != core.BatchFinished || b.RefusedCode != "RESOURCE_EXHAUSTED" || b.DoneTask.IsZero() || !b.SuccessTask.IsZero() {
		t.Fatalf("%+v", b)
	}
	if !w.m.HasBatches() {
		t.Error("a batch with a follow-up to make does not count as one that has not finished")
	}
	// That is not forgotten, however long it takes, and what becomes of its tasks meanwhile changes nothing.
	w.restart()
	w.advance(30 * 24 * 3_600_000)
	w.wantFollows("done")
	w.do(&core.QueueSet{Queue: "after", IfVersion: -1})
	w.advance(core.BatchRetryMax)
	w.wantFollows("done", "success")
	if b := w.batch("b"); b.RefusedCode != "" || b.SuccessTask.IsZero() || w.m.HasBatches() {
		t.Errorf("%+v", b)
	}
	w.advance(core.BatchKept)
	if _, ok, _ := BatchOf(w.tx, testPartition, idOf("b")); ok {
		t.Error("it is kept for ever")
	}
}

func TestACancelEndsTheTasksOfABatch(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.do(&core.TaskCreate{ID: idOf("other"), Queue: "mail", Priority: 9})
	for i := range 100 {
		w.into("b", fmt.Sprintf("t%d", i))
	}
	w.do(claimOp(1, "mail"))
	a := w.do(claimOp(1, "mail")).res.Assigned[0]
	w.do(&core.TaskCreate{ID: idOf("bystander"), Queue: "mail"})
	if o := w.do(&core.BatchCancel{ID: idOf("b"), Reason: "wrong list", Rate: 100_000}); o.fact != nil || o.res.Replayed {
		t.Fatalf("%+v", o)
	}
	if o := w.do(&core.BatchCancel{ID: idOf("b")}); !o.res.Replayed {
		t.Error("a second cancel is no replay")
	}
	if o := w.into("b", "late"); o.fact != (core.WrongBatch{Batch: idOf("b"), State: core.BatchCancelling}) {
		t.Errorf("a cancelled batch takes a task: %v", o.fact)
	}
	w.restart()
	w.advance(1000)
	w.advance(1000)
	w.counts("b", core.BatchCounts{Total: 100, Running: 1, Cancelled: 99})
	if task, _, _ := Task(w.tx, testPartition, a.Task); task.Cancel.At == 0 || task.Cancel.Reason != "wrong list" {
		t.Errorf("the task that runs is not asked to stop: %+v", task.Cancel)
	}
	for _, name := range []string{"other", "bystander"} {
		if task, _, _ := Task(w.tx, testPartition, idOf(name)); task.State.Terminal() || task.Cancel.At != 0 {
			t.Errorf("task %s, of no batch, is %s", name, task.State)
		}
	}
	w.wantFollows()
	w.do(&core.TaskStop{Task: a.Task, Token: a.Token})
	w.wantFollows("done")
	if b := w.batch("b"); b.State != core.BatchFinished || b.Cancel.By != "alice" || b.Cancel.Reason != "wrong list" {
		t.Errorf("%+v", b)
	}
	w.open("c")
	w.do(&core.BatchSeal{ID: idOf("c")})
	if o := w.do(&core.BatchCancel{ID: idOf("c")}); o.fact != (core.WrongBatch{Batch: idOf("c"), State: core.BatchFinished}) {
		t.Errorf("cancel of a finished batch: %+v", o)
	}
	w.open("d")
	w.do(&core.BatchCancel{ID: idOf("d")})
	w.wantFollows("done", "done", "done", "success") // what was cancelled is not a success, though nothing failed
}

func TestABatchCancelNeedsRoomForItsJob(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.into("b", "x")
	for i := range core.MaxBulkJobs {
		w.do(&core.BulkStart{ID: idOf(fmt.Sprintf("j%d", i)), Action: core.BulkDelete, Rate: 1})
	}
	if o := w.do(&core.BatchCancel{ID: idOf("b")}); o.fact != (core.Exhausted{Limit: "bulk_jobs", Max: core.MaxBulkJobs}) {
		t.Errorf("%+v", o)
	}
	if b := w.batch("b"); b.State != core.BatchIsOpen {
		t.Errorf("%+v", b)
	}
}

// Tasks that retention has removed, or that went with their queue, stay counted.
func TestRemovedTasksStayCounted(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(&core.QueueSet{Queue: "mail", IfVersion: -1, Config: core.QueueConfig{RetainCompleted: -1, RetainDead: 1000}})
	w.open("b")
	for _, name := range []string{"x", "y", "z", "r"} {
		w.into("b", name)
	}
	w.completeNext()
	w.failNext()
	w.do(claimOp(1, "mail"))
	w.advance(2000)
	w.counts("b", core.BatchCounts{Total: 4, Waiting: 1, Running: 1, Completed: 1, Dead: 1})
	page, err := List(w.tx, testPartition, core.ListQuery{Batch: idOf("b"), Limit: 10}, 0)
	if err != nil || len(page.Tasks) != 2 {
		t.Errorf("%d tasks of the batch, %v", len(page.Tasks), err)
	}
	w.do(&core.BatchSeal{ID: idOf("b")})
	w.do(&core.QueueDelete{Queue: "mail", Purge: true, IfVersion: -1})
	w.restart()
	w.advance(0)
	w.counts("b", core.BatchCounts{Total: 4, Completed: 1, Dead: 1, Cancelled: 2})
	w.wantFollows("done")
	w.advance(core.BatchKept)
	if _, ok, _ := BatchOf(w.tx, testPartition, idOf("b")); ok {
		t.Error("the batch is still there")
	}
}

func TestFinishedBatchesAreKeptForAWhile(t *testing.T) {
	w := newWorld(t, Options{BatchesKept: 3})
	for i := range 5 {
		name := fmt.Sprintf("b%d", i)
		w.open(name)
		w.into(name, fmt.Sprintf("t%d", i))
		w.do(&core.BatchSeal{ID: idOf(name)})
		w.completeNext()
		w.advance(10)
	}
	list, more, err := Batches(w.tx, testPartition, 0, 2, 1<<20)
	if err != nil || !more || len(list) != 2 || list[0].ID != idOf("b4") || list[1].ID != idOf("b3") {
		t.Fatalf("%+v %v %v", list, more, err)
	}
	if list, more, err = Batches(w.tx, testPartition, list[1].Number, 10, 1<<20); err != nil || more || len(list) != 1 || list[0].ID != idOf("b2") {
		t.Fatalf("%+v %v %v", list, more, err)
	}
	w.advance(core.BatchKept - 20)
	w.batch("b4")
	w.restart()
	w.advance(20)
	if list, _, _ := Batches(w.tx, testPartition, 0, 10, 1<<20); len(list) != 0 {
		t.Errorf("%d batches are left", len(list))
	}
	// A task of a batch that is gone counts nowhere, also when the id is that of another batch.
	w.open("b4")
	w.do(&core.TaskCreate{ID: idOf("new"), Queue: "mail", Batch: idOf("b4")})
	w.counts("b4", core.BatchCounts{Total: 1, Waiting: 1})
	w.advance(30 * 24 * 3_600_000)
}

func TestTasksOfABatchAreFoundByIt(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.do(&core.TaskCreate{ID: idOf("a"), Queue: "mail"})
	for _, name := range []string{"x", "y", "z"} {
		w.into("b", name)
	}
	w.failNext()
	dead := []core.TaskID{w.failNext(), w.failNext()}
	for state, want := range map[core.State]int{0: 3, core.Dead: 2, core.Ready: 1} {
		page, err := List(w.tx, testPartition, core.ListQuery{Batch: idOf("b"), State: state, Limit: 10}, 0)
		if err != nil || len(page.Tasks) != want || page.Inspected != 3 {
			t.Errorf("%v: %d tasks after %d rows, %v", state, len(page.Tasks), page.Inspected, err)
		}
	}
	count := &core.BulkStart{ID: idOf("j"), Action: core.BulkRetry, Tasks: core.TaskFilter{Batch: idOf("b")}}
	if n, err := CountBulk(w.tx, testPartition, count, 0, nil, 100, 10); err != nil || n.Count != 2 {
		t.Errorf("%+v %v", n, err)
	}
	w.do(count)
	w.restart()
	w.advance(1000)
	w.counts("b", core.BatchCounts{Total: 3, Waiting: 3})
	for _, id := range dead {
		if task, _, _ := Task(w.tx, testPartition, id); task.State != core.Ready {
			t.Errorf("task %s is %s", id, task.State)
		}
	}
	if task, _, _ := Task(w.tx, testPartition, idOf("a")); task.State != core.Dead {
		t.Errorf("a task of no batch is %s", task.State)
	}
	// Of a batch that is not there a job has nothing to do.
	w.do(&core.BulkStart{ID: idOf("k"), Action: core.BulkCancel, Tasks: core.TaskFilter{Batch: idOf("none")}})
	jobs, err := Bulks(w.tx, testPartition)
	if err != nil || !slices.ContainsFunc(jobs, func(j core.BulkJob) bool {
		return j.ID == idOf("k") && j.State == core.BulkDone && j.Tasks.Batch == idOf("none")
	}) {
		t.Errorf("%+v %v", jobs, err)
	}
}

// The counts of a batch are read once and written once by an entry, however many of its tasks it is about.
func TestAnEntryWritesABatchOnce(t *testing.T) {
	w := newWorld(t, Options{})
	w.open("b")
	w.into("b", "warm")
	w.tx.StartLayer()
	const n = 50
	var ops []core.Op
	for i := range n {
		ops = append(ops, &core.TaskCreate{ID: numbered(i), Queue: "mail", Batch: idOf("b")})
	}
	if _, failed, fact := w.commit(ops...); failed >= 0 {
		t.Fatal(fact)
	}
	writes, deletes := w.tx.Mutations()
	if want := 4*n + 3; writes != want || deletes != 0 { // payload, state, place and a row of the batch; counters of queue, partition and batch
		t.Errorf("%d writes and %d deletes for %d tasks, want %d and 0", writes, deletes, n, want)
	}
}

func TestEntriesOfAnOlderFormatHaveNoBatches(t *testing.T) {
	w := newWorld(t, Options{})
	w.c.Format = core.FormatOperate
	for _, op := range []core.Op{
		&core.BatchOpen{ID: idOf("b")}, &core.BatchSeal{ID: idOf("b")}, &core.BatchCancel{ID: idOf("b")},
		&core.TaskCreate{ID: idOf("x"), Queue: "mail", Batch: idOf("b")},
		&core.BulkStart{ID: idOf("j"), Action: core.BulkCancel, Tasks: core.TaskFilter{Batch: idOf("b")}},
	} {
		if f, ok := w.do(op).fact.(core.Invalid); !ok || f.Reason != "not_supported" {
			t.Errorf("%T: %+v", op, f)
		}
	}
}

// randomBatch is an op of batches, of which there are few.
func randomBatch(rt *rapid.T) core.Op {
	id := rapid.SampledFrom(randomIDs[:3]).Draw(rt, "batch")
	switch rapid.IntRange(0, 5).Draw(rt, "batch op") {
	case 0, 1:
		return &core.BatchSeal{ID: id}
	case 2:
		return &core.BatchCancel{ID: id, Reason: "r", Rate: rapid.SampledFrom([]uint32{0, 1}).Draw(rt, "rate"), Force: rapid.Bool().Draw(rt, "force")}
	}
	op := &core.BatchOpen{ID: id, Labels: randomLabels(rt)}
	template := func(name string) *core.TaskCreate {
		if rapid.IntRange(0, 2).Draw(rt, "has "+name) == 0 {
			return nil
		}
		return &core.TaskCreate{
			Queue: rapid.SampledFrom(randomQueues).Draw(rt, "queue"), Payload: make([]byte, rapid.SampledFrom([]int{0, 1, 30}).Draw(rt, "payload")),
			Priority: rapid.Uint8Range(0, 3).Draw(rt, "priority"),
		}
	}
	op.OnDone, op.OnSuccess = template("on_done"), template("on_success")
	return op
}

// batchSamples are those of batches, of their tasks, and of jobs about them.
func batchSamples() []sample {
	follow := core.AppendTemplate(nil, &core.TaskCreate{Queue: "mail", Payload: []byte("{}")})
	made := batchMade{
		number: 300, opened: 77, at: epoch, by: "alice", labels: []core.Label{{Name: "env", Value: "prod"}}, onDone: follow, onSuccess: follow,
	}
	row := batchRow{
		id: idOf("b"), opened: 77, total: 70_000, running: 1, completed: 2, dead: 3, cancelled: 4, wants: followDone | followSuccess,
	}
	over := row
	over.sealed, over.finished, over.due, over.made = epoch, epoch+1, followSuccess, followDone
	over.cancel = core.CancelAsked{At: epoch, By: "ann", Reason: "wrong list", Force: true}
	over.code, over.message, over.tries, over.retry = "RESOURCE_EXHAUSTED", "full", 3, epoch+8000
	settled := row
	settled.sealed, settled.finished, settled.settled, settled.made = epoch, epoch+1, epoch+2, followDone
	task := record{state: core.Ready, queue: 300, readyAt: epoch, sort: 1 << 40, seq: 12345, batch: 70_000}
	job := bulk{
		BulkJob: core.BulkJob{
			BulkStart: core.BulkStart{ID: idOf("j"), Action: core.BulkCancel, Rate: 9, Tasks: core.TaskFilter{Batch: idOf("b")}},
			By:        "alice", State: core.BulkRunning, Started: epoch,
		}, bulkScope: bulkScope{batch: 300}, next: epoch,
	}
	spec, _ := appendSpec(nil, &core.ApplyContext{Stamp: epoch, Index: 77}, &core.TaskCreate{Queue: "mail", Batch: idOf("b"), Payload: []byte("{}")})
	return []sample{
		of("batch", appendBatchMade(nil, &made), made, decodeBatchMade),
		of("counts of a batch", appendBatchRow(nil, &row), row, decodeBatchRow),
		of("counts of a batch, cancelled, follow-up refused", appendBatchRow(nil, &over), over, decodeBatchRow),
		of("counts of a batch, kept", appendBatchRow(nil, &settled), settled, decodeBatchRow),
		of("number of batches", appendBatches(nil, batches{300, 7}), batches{300, 7}, decodeBatches),
		of("ready, of a batch", appendRecord(nil, &task), task, decodeRecord),
		of("bulk job about a batch", appendBulk(nil, &job), job, decodeBulk),
		of("terminal row, of a batch", appendEnded(nil, ended{attempt: 3, bytes: 9, batch: true}), ended{attempt: 3, bytes: 9, batch: true}, decodeEnded),
		{name: "payload, of a batch", stored: spec},
	}
}
