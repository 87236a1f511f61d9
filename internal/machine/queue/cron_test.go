package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
)

var (
	overlaps = map[string]core.CronOverlap{
		"": core.CronSkip, "allow": core.CronAllow, "queue_one": core.CronQueueOne, "cancel_previous": core.CronCancelPrevious,
	}
	catchUps     = map[string]core.CronCatchUp{"": core.CronCatchUpOne, "none": core.CronCatchUpNone, "all": core.CronCatchUpAll}
	cronOutcomes = [...]string{"", "started", "waits", "overlaps", "missed", "refused", "replaced"}
)

// cronOp reads an op of crons. Where a proposal names no version it is that of the cron.
func (s *script) cronOp(w words, cmd string) core.Op {
	name := w.name()
	ifVersion := int64(-1)
	if w.has("if_version") {
		ifVersion = w.num("if_version")
	}
	switch cmd {
	case "cron_set":
		op := &core.CronSet{
			Name: name, IfVersion: ifVersion, Config: core.CronConfig{
				Schedule: w.str("schedule", ""), Zone: w.str("zone", ""), Jitter: w.span("jitter"), Start: w.at("start"), End: w.at("end"),
				Paused: w.has("paused"), Overlap: overlaps[w.str("overlap", "")], CatchUp: catchUps[w.str("catch_up", "")],
			},
			Template: core.TaskCreate{Queue: w.str("queue", "mail"), TaskKind: w.str("kind", ""), Payload: []byte(w.str("payload", "")), Labels: w.labels(), Delay: w.span("delay")},
		}
		if w.has("unique") {
			op.Template.Unique.Key = w.str("unique", "")
		}
		return op
	case "cron_pause":
		return &core.CronSet{Name: name, Change: core.CronChangePause, IfVersion: ifVersion}
	case "cron_resume":
		return &core.CronSet{Name: name, Change: core.CronChangeResume, IfVersion: ifVersion}
	case "cron_delete":
		return &core.CronDelete{Name: name, IfVersion: ifVersion}
	case "trigger":
		return &core.CronFire{Name: name, Trigger: idOf(w.str("id", "t"))}
	}
	version := uint64(w.num("version"))
	if c := s.m.cronNames[name]; c != nil && version == 0 {
		version = c.version
	}
	op := &core.CronFire{Name: name, Version: version, Slot: w.at("slot"), Run: w.at("run"), Passed: uint32(w.num("passed")), Next: w.at("next"), Waiting: cmd == "begin"}
	if w.has("over") {
		op.Next = core.Never
	}
	if cmd == "fire" && !w.has("run") && !w.has("passed") {
		op.Run = op.Slot
	}
	return op
}

// cronAnswer prints what an op of crons answers.
func cronAnswer(op core.Op, r core.OpResult) string {
	switch op.(type) {
	case *core.CronSet:
		return fmt.Sprintf("version %d existed=%v replayed=%v\n", r.Version, r.Existed, r.Replayed)
	case *core.CronDelete:
		return fmt.Sprintf("existed=%v\n", r.Existed)
	}
	run, outcome := core.CronRunOf(r.Version)
	return strings.Join(strings.Fields(fmt.Sprintf("run %d %s %s replayed=%v", run, cronOutcomes[outcome], nameOf(r.Task), r.Replayed)), " ") + "\n"
}

// crons prints the crons, and what is due of them.
func (s *script) crons() string {
	list, _, err := Crons(s.tx, testPartition, "", 100, 1<<20)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "%s %q v%d by=%s set=%s next=%s runs=%d", c.Name, c.Schedule, c.Version, c.By, since(c.Anchor), sinceOr(c.Next), c.Runs)
		if !c.Last.IsZero() {
			fmt.Fprintf(&b, " last=%s", nameOf(c.Last))
		}
		if c.Waiting != 0 {
			fmt.Fprintf(&b, " waits=%s", since(c.Waiting))
		}
		if c.Paused {
			b.WriteString(" paused")
		}
		b.WriteByte('\n')
	}
	for _, d := range s.m.DueCrons(nil, s.c.Stamp, 100) {
		fmt.Fprintf(&b, "due: %s next=%s", d.Name, sinceOr(d.Next))
		if d.Waiting != 0 {
			fmt.Fprintf(&b, " begins=%s", since(d.Waiting))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "looks again at %s\n", sinceOr(s.m.CronDue()))
	return b.String()
}

func sinceOr(t core.ShardTime) string {
	if t == 0 {
		return "-"
	}
	return since(t)
}

// runs prints the runs of a cron, the last first.
func (s *script) runs(w words) string {
	list, ok, err := CronRuns(s.tx, testPartition, w.name(), uint64(w.num("before")), 100)
	if err != nil || !ok {
		return fmt.Sprintf("%v %v\n", ok, err)
	}
	var b strings.Builder
	for _, r := range list {
		fmt.Fprintf(&b, "%d %s %s at %s", r.Number, since(r.Slot), cronOutcomes[r.Outcome], since(r.At))
		if !r.Task.IsZero() {
			fmt.Fprintf(&b, " %s %s", nameOf(r.Task), r.State)
		}
		if r.Trigger {
			b.WriteString(" by hand")
		}
		if r.Passed > 0 {
			fmt.Fprintf(&b, " after %d", r.Passed)
		}
		if r.Code != "" {
			fmt.Fprintf(&b, " %s: %s", r.Code, r.Message)
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "none\n"
	}
	return b.String()
}

// cronSamples are of the forms of crons.
func cronSamples() []sample {
	row := cronRow{
		config: core.CronConfig{
			Schedule: "0 2 * * *", Zone: "Europe/Berlin", Jitter: 60_000, Start: epoch, End: epoch + 100_000, Paused: true,
			Overlap: core.CronQueueOne, CatchUp: core.CronCatchUpAll,
		},
		version: 3, born: 77, created: epoch, updated: epoch + 1, by: "alice", anchor: epoch + 2, next: epoch + 3, last: idOf("t"), runs: 9,
	}
	waits := row
	waits.waiting = cronWait{run: 9, slot: epoch + 4, task: idOf("u"), trigger: true, passed: 2}
	run := core.CronRun{Slot: epoch, At: epoch + 5, Trigger: true, Outcome: core.CronRefused, Task: idOf("t"), Passed: 300, Code: "NOT_FOUND", Message: "m"}
	template := core.TaskCreate{Queue: "mail", TaskKind: "send", Priority: 3, Labels: []core.Label{{Name: "env", Value: "prod"}}, Payload: []byte("{}")}
	return []sample{
		of("cron", appendCron(nil, &row), row, decodeCron),
		of("cron, a run waits", appendCron(nil, &waits), waits, decodeCron),
		of("run of a cron", appendCronRun(nil, &run), run, decodeCronRun),
		of("template", core.AppendTemplate(nil, &template), template, core.DecodeTemplate),
	}
}

// randomCron is an op of crons: mostly what a leader would propose.
func (tw *twins) randomCron(rt *rapid.T, id core.TaskID) core.Op {
	name := rapid.SampledFrom([]string{"n", "o"}).Draw(rt, "cron")
	m, stamp := tw.steady.m, tw.steady.c.Stamp
	switch rapid.IntRange(0, 9).Draw(rt, "what of a cron") {
	case 0, 1:
		if rapid.IntRange(0, 3).Draw(rt, "pauses") == 0 {
			return &core.CronSet{Name: name, Change: core.CronChange(rapid.IntRange(1, 2).Draw(rt, "change")), IfVersion: rapid.Int64Range(-1, 2).Draw(rt, "version")}
		}
		return &core.CronSet{
			Name: name, IfVersion: -1, Config: core.CronConfig{
				Schedule: rapid.SampledFrom([]string{"* * * * *", "@hourly"}).Draw(rt, "schedule"), Overlap: core.CronOverlap(rapid.IntRange(0, 3).Draw(rt, "overlap")),
				Jitter: rapid.SampledFrom([]core.Millis{0, 0, 5000}).Draw(rt, "jitter"), Paused: rapid.IntRange(0, 5).Draw(rt, "paused") == 0,
			}, Template: core.TaskCreate{Queue: rapid.SampledFrom(randomQueues).Draw(rt, "queue"), Payload: make([]byte, rapid.SampledFrom([]int{0, 30}).Draw(rt, "payload"))},
		}
	case 2:
		return &core.CronDelete{Name: name, IfVersion: rapid.Int64Range(-1, 2).Draw(rt, "version")}
	case 3:
		return &core.CronFire{Name: name, Trigger: id}
	}
	op := &core.CronFire{Name: name, Version: 1, Next: stamp.Add(rapid.SampledFrom([]core.Millis{1000, 60_000}).Draw(rt, "next"))}
	if c := m.cronNames[name]; c != nil {
		op.Version, op.Slot, op.Run = c.version, c.next, c.next
		op.Next = max(op.Next, c.next+1, c.anchor+1)
		if op.Slot != 0 && rapid.IntRange(0, 5).Draw(rt, "passes") == 0 {
			op.Run, op.Passed = 0, 2
		}
		if c.free || rapid.IntRange(0, 9).Draw(rt, "begins") == 0 {
			op.Waiting, op.Slot = true, c.waiting.slot
		}
	}
	return op
}

// cronOf sets a cron, and plans its first slot at epoch and a minute.
func (w *world) cronOf(config core.CronConfig, template core.TaskCreate) {
	w.t.Helper()
	config.Schedule = "* * * * *"
	if template.Queue == "" {
		template.Queue = "mail"
	}
	if o := w.do(&core.CronSet{Name: "n", IfVersion: -1, Config: config, Template: template}); o.fact != nil {
		w.t.Fatal(o.fact)
	}
	if o := w.do(&core.CronFire{Name: "n", Version: 1, Next: epoch + 60_000}); o.fact != nil {
		w.t.Fatal(o.fact)
	}
}

// slot fires the next slot of the cron of cronOf, a minute after the one before.
func (w *world) slot() outcome {
	w.t.Helper()
	c := w.m.cronNames["n"]
	w.c.Stamp = max(w.c.Stamp, c.next)
	o := w.do(&core.CronFire{Name: "n", Version: c.version, Slot: c.next, Run: c.next, Next: c.next + 60_000})
	if o.fact != nil {
		w.t.Fatal(o.fact)
	}
	return o
}

// outcomes lists what the runs of the cron came to, the first one first.
func (w *world) outcomes() (out []string) {
	w.t.Helper()
	runs, _, err := CronRuns(w.tx, testPartition, "n", 0, 100)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range slices.Backward(runs) {
		out = append(out, cronOutcomes[r.Outcome])
	}
	return out
}

// finishOne gives a task out and completes it.
func (w *world) finishOne() {
	w.t.Helper()
	o := w.do(claimOp(1, "mail"))
	if len(o.res.Assigned) != 1 {
		w.t.Fatalf("nothing to do: %+v", o)
	}
	a := o.res.Assigned[0]
	w.do(&core.TaskComplete{Task: a.Task, Token: a.Token})
}

// Two leaders that follow each other propose the same slot: it makes one task, on any replica.
func TestASlotThatIsProposedTwiceMakesOneTask(t *testing.T) {
	w := newWorld(t, Options{})
	w.cronOf(core.CronConfig{Overlap: core.CronAllow}, core.TaskCreate{})
	w.c.Stamp = epoch + 60_000
	op := &core.CronFire{Name: "n", Version: 1, Slot: epoch + 60_000, Run: epoch + 60_000, Next: epoch + 120_000}
	first := w.do(op)
	if first.fact != nil || first.res.State != core.Ready {
		t.Fatal(first)
	}
	w.restart()
	if again := w.do(op); !isStale(again.fact) {
		t.Errorf("the same slot again: %+v", again)
	}
	q, _, _ := Stats(w.tx, testPartition, "mail")
	if q.Created != 1 {
		t.Errorf("%d tasks", q.Created)
	}
}

func isStale(fact core.Fact) bool {
	_, ok := fact.(core.RevMismatch)
	return ok
}

// A leader whose clock is ahead, or that computes nonsense, changes nothing.
func TestASlotBeforeItsTimeIsRefused(t *testing.T) {
	w := newWorld(t, Options{})
	w.cronOf(core.CronConfig{}, core.TaskCreate{})
	for name, op := range map[string]*core.CronFire{
		"early":         {Slot: epoch + 60_000, Run: epoch + 60_000, Next: epoch + 120_000},
		"no other next": {Slot: epoch + 60_000, Run: epoch + 60_000, Next: epoch + 60_000},
		"no next":       {Slot: epoch + 60_000, Run: epoch + 60_000},
		"other slot":    {Slot: epoch + 59_000, Run: epoch + 59_000, Next: epoch + 120_000},
		"planned twice": {Next: epoch + 180_000},
		"no run waits":  {Slot: epoch + 60_000, Waiting: true},
	} {
		op.Name, op.Version = "n", 1
		if o := w.do(op); o.fact == nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
	w.c.Shift = 60_000 // the wall clocks show the slot, long before shard time does
	if o := w.do(&core.CronFire{Name: "n", Version: 1, Slot: epoch + 60_000, Run: epoch + 60_000, Next: epoch + 120_000}); o.fact != nil {
		t.Error(o.fact)
	}
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		overlap       core.CronOverlap
		during, after []string
	}{
		{core.CronSkip, []string{"started", "overlaps", "overlaps"}, []string{"started", "overlaps", "overlaps", "started"}},
		{core.CronAllow, []string{"started", "started", "started"}, []string{"started", "started", "started", "started"}},
		{core.CronQueueOne, []string{"started", "waits", "overlaps"}, []string{"started", "started", "overlaps", "waits"}},
		{core.CronCancelPrevious, []string{"started", "replaced", "waits"}, []string{"started", "replaced", "started", "waits"}},
	} {
		t.Run(fmt.Sprint(c.overlap), func(t *testing.T) {
			w := newWorld(t, Options{})
			w.cronOf(core.CronConfig{Overlap: c.overlap}, core.TaskCreate{})
			w.slot()
			running := w.do(claimOp(1, "mail")).res.Assigned[0]
			w.slot()
			w.slot()
			if got := w.outcomes(); !slices.Equal(got, c.during) {
				t.Errorf("while the first one runs: %q, want %q", got, c.during)
			}
			if due := w.m.DueCrons(nil, w.c.Stamp, 9); len(due) != 0 {
				t.Errorf("due: %+v", due)
			}
			if c.overlap == core.CronCancelPrevious && len(w.m.Wanted(core.SessionID{1})) != 1 {
				t.Error("the worker is not asked to stop")
			}
			w.restart()
			w.do(&core.TaskComplete{Task: running.Task, Token: running.Token})
			if due := w.m.DueCrons(nil, w.c.Stamp, 9); len(due) == 1 {
				if o := w.do(&core.CronFire{Name: "n", Version: 1, Slot: due[0].Waiting, Waiting: true}); o.fact != nil || o.res.State != core.Ready {
					t.Errorf("the run that waited: %+v", o)
				}
				w.do(claimOp(1, "mail")) // else the one that waits for a worker is cancelled at once
			} else if len(due) > 1 {
				t.Errorf("due: %+v", due)
			}
			w.slot()
			if got := w.outcomes(); !slices.Equal(got, c.after) {
				t.Errorf("after the first one: %q, want %q", got, c.after)
			}
		})
	}
}

// A task that waits for a worker is cancelled at once, and the next one made in the same entry.
func TestCancelPreviousReplacesATaskThatWaits(t *testing.T) {
	w := newWorld(t, Options{})
	w.cronOf(core.CronConfig{Overlap: core.CronCancelPrevious}, core.TaskCreate{})
	first := w.slot().res.Task
	if o := w.slot(); o.res.State != core.Ready || o.res.Task == first {
		t.Errorf("%+v", o)
	}
	got, _, err := Task(w.tx, testPartition, first)
	if err != nil || got.State != core.Cancelled || got.Cancel.By != "cron/n" {
		t.Errorf("%+v, %v", got, err)
	}
}

// What waits for a task begins however that ends: also when its queue is removed, and on a machine that was opened since.
func TestARunThatWaitsBegins(t *testing.T) {
	for name, end := range map[string]func(w *world, a core.Assigned){
		"dead":    func(w *world, a core.Assigned) { w.do(&core.TaskFail{Task: a.Task, Token: a.Token, Fatal: true}) },
		"removed": func(w *world, _ core.Assigned) { w.do(&core.QueueDelete{Queue: "mail", Purge: true, IfVersion: -1}) },
		"crashed": func(w *world, _ core.Assigned) { w.advance(3_600_000) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.cronOf(core.CronConfig{Overlap: core.CronQueueOne}, core.TaskCreate{MaxCrashes: 1})
			w.slot()
			running := w.do(claimOp(1, "mail")).res.Assigned[0]
			w.slot()
			end(w, running)
			due := w.m.DueCrons(nil, w.c.Stamp, 9)
			if len(due) != 1 || due[0].Waiting != epoch+120_000 {
				t.Fatalf("due: %+v", due)
			}
			if name == "dead" { // it comes to life again
				w.do(&core.TaskRedrive{Task: running.Task})
				if o := w.do(&core.CronFire{Name: "n", Version: 1, Slot: epoch + 120_000, Waiting: true}); !isStale(o.fact) || w.m.CronDue() == 0 {
					t.Errorf("%+v, due at %d", o, w.m.CronDue())
				}
				w.finishOne()
			}
			if o := w.do(&core.CronFire{Name: "n", Version: 1, Slot: epoch + 120_000, Waiting: true}); o.fact != nil || o.res.State != core.Ready {
				t.Errorf("%+v", o)
			}
		})
	}
}

// A refused task is a run with its reason, and the slot is not tried again.
func TestARefusedTaskIsARun(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(&core.QueueSet{Queue: "mail", IfVersion: -1, Config: core.QueueConfig{Limits: core.QueueLimits{MaxTasks: 1}}})
	w.cronOf(core.CronConfig{Overlap: core.CronAllow}, core.TaskCreate{})
	w.slot()
	if o := w.slot(); !o.res.Task.IsZero() {
		t.Errorf("%+v", o)
	}
	runs, _, _ := CronRuns(w.tx, testPartition, "n", 0, 1)
	if len(runs) != 1 || runs[0].Outcome != core.CronRefused || runs[0].Code != "RESOURCE_EXHAUSTED" || !strings.Contains(runs[0].Message, "max_tasks") {
		t.Errorf("%+v", runs)
	}
	w.c.Namespace.NoAutoCreate = true
	w.do(&core.CronSet{Name: "n", IfVersion: -1, Config: core.CronConfig{Schedule: "* * * * *"}, Template: core.TaskCreate{Queue: "none"}})
	w.finishOne()
	w.slot()
	if runs, _, _ = CronRuns(w.tx, testPartition, "n", 0, 1); runs[0].Code != "NOT_FOUND" {
		t.Errorf("%+v", runs)
	}
}

// The task of a slot says which slot it is of, and waits for its part of the jitter under the reason cron.
func TestTheTaskOfASlot(t *testing.T) {
	w := newWorld(t, Options{})
	w.cronOf(core.CronConfig{Jitter: 30_000}, core.TaskCreate{TaskKind: "report", Payload: []byte("{}"), Headers: []core.Header{{Name: "a", Value: "b"}}})
	id := w.slot().res.Task
	got, _, err := Task(w.tx, testPartition, id)
	if err != nil {
		t.Fatal(err)
	}
	slot := (epoch + 60_000).Time().Format(time.RFC3339)
	want := []core.Header{{Name: "a", Value: "b"}, {Name: "millrace-cron", Value: "n"}, {Name: "millrace-slot", Value: slot}}
	if got.Kind != "report" || !slices.Equal(got.Headers, want) || got.Creator != "cron/n" || got.State != core.Scheduled || got.Reason != "cron" {
		t.Errorf("%+v", got)
	}
	delay := core.Millis(got.RunAt - epoch - 60_000)
	if delay <= 0 || delay >= 30_000 || id.Millis() != int64(epoch)+60_000 || id.Partition() != testPartition.Index {
		t.Errorf("waits for %d ms, id %s", delay, id)
	}
	// A cron of the same name that is made later makes other tasks, and a task by hand does not wait.
	w.do(&core.CronDelete{Name: "n", IfVersion: -1})
	if o := w.do(&core.CronFire{Name: "n", Version: 1, Slot: 1, Run: 1, Next: 2}); o.fact != (core.NotFound{Kind: "cron", ID: "n"}) {
		t.Errorf("%+v", o)
	}
	w.c.Stamp = epoch
	w.cronOf(core.CronConfig{Jitter: 30_000, Overlap: core.CronAllow}, core.TaskCreate{})
	if again := w.slot().res.Task; again == id {
		t.Error("two crons made the same task")
	}
	if o := w.do(&core.CronFire{Name: "n", Trigger: idOf("t")}); o.res.State != core.Ready {
		t.Errorf("%+v", o)
	}
}

// The last 100 runs are remembered, also while one of them waits for longer than that.
func TestTheLastRunsAreRemembered(t *testing.T) {
	w := newWorld(t, Options{})
	w.loose = true
	w.cronOf(core.CronConfig{Overlap: core.CronQueueOne}, core.TaskCreate{})
	w.slot()
	w.slot()
	for range 150 {
		w.slot()
	}
	w.check()
	runs, _, err := CronRuns(w.tx, testPartition, "n", 0, 1000)
	if err != nil || len(runs) != core.MaxCronRuns || runs[0].Number != 152 || runs[99].Number != 53 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	w.finishOne()
	if o := w.do(&core.CronFire{Name: "n", Version: 1, Slot: epoch + 120_000, Waiting: true}); o.fact != nil {
		t.Error(o.fact)
	}
	w.check()
	w.do(&core.CronDelete{Name: "n", IfVersion: -1})
	w.check()
}

// What is due of many crons is found without a look at the others.
func TestDueCronsAreFoundInParts(t *testing.T) {
	w := newWorld(t, Options{Crons: 300})
	w.loose = true
	for i := range 300 {
		name := fmt.Sprintf("c%d", i)
		w.do(&core.CronSet{Name: name, IfVersion: -1, Config: core.CronConfig{Schedule: "* * * * *"}, Template: core.TaskCreate{Queue: "mail"}})
		w.do(&core.CronFire{Name: name, Version: 1, Next: epoch + core.ShardTime(1000*(i%100+1))})
	}
	o := w.do(&core.CronSet{Name: "more", IfVersion: -1, Config: core.CronConfig{Schedule: "* * * * *"}, Template: core.TaskCreate{Queue: "mail"}})
	if o.fact != (core.Exhausted{Limit: "crons", Max: 300}) {
		t.Errorf("%+v", o)
	}
	if due := w.m.CronDue(); due != epoch+1000 {
		t.Errorf("due at %d", due)
	}
	if due := w.m.DueCrons(nil, epoch+10_000, 7); len(due) != 7 {
		t.Errorf("%d are due", len(due))
	}
	due := w.m.DueCrons(nil, epoch+10_000, 1000)
	if len(due) != 30 || slices.ContainsFunc(due, func(d core.CronDue) bool { return d.Next > epoch+10_000 }) {
		t.Errorf("%d are due", len(due))
	}
	var all []string
	for after, more := "", true; more; {
		var page []core.Cron
		var err error
		if page, more, err = Crons(w.tx, testPartition, after, 70, 1<<20); err != nil || len(page) == 0 {
			t.Fatal(len(page), err)
		}
		for _, c := range page {
			all = append(all, c.Name)
		}
		after = all[len(all)-1]
	}
	if len(all) != 300 || !slices.IsSorted(all) {
		t.Errorf("%d crons in pages", len(all))
	}
	if page, more, err := Crons(w.tx, testPartition, "", 70, 1); err != nil || !more || len(page) != 1 {
		t.Errorf("%d crons of one byte, %v", len(page), err)
	}
}

func TestEntriesOfAnOlderFormatHaveNoCrons(t *testing.T) {
	w := newWorld(t, Options{})
	w.c.Format = core.FormatOperate
	for _, op := range []core.Op{&core.CronSet{Name: "n"}, &core.CronDelete{Name: "n"}, &core.CronFire{Name: "n"}} {
		if f, ok := w.do(op).fact.(core.Invalid); !ok || f.Reason != "not_supported" {
			t.Errorf("%T: %+v", op, f)
		}
	}
}
