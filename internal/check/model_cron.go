package check

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// The model knows no calendar: which slots a schedule has is the proposer's affair. It knows that a slot is done once.

// cron is a cron and its runs. A change makes another one.
type cron struct {
	op           core.CronSet
	version      uint64
	by           string
	created      core.ShardTime
	updated      core.ShardTime
	anchor, next core.ShardTime
	last         core.TaskID
	waiting      core.CronRun // its number is 0 when none waits
	runs         []core.CronRun
	made         uint64           // number of the last run
	done         []core.ShardTime // slots that made a task by the schedule
}

// ofCrons reports whether an op is one of crons.
func ofCrons(op core.Op) bool {
	switch op.(type) {
	case *core.CronSet, *core.CronDelete, *core.CronFire:
		return true
	}
	return false
}

// misfitsOfCron lists what a cron may not say.
func misfitsOfCron(op *core.CronSet) []misfit {
	out := misfitsOfName("name", op.Name)
	c := &op.Config
	if op.Change > core.CronChangeResume {
		out = append(out, misfit{field: "change"})
	}
	if op.Change != core.CronChangeAll {
		return out
	}
	switch n := len(c.Schedule); {
	case n == 0:
		out = append(out, misfit{field: "schedule"})
	case n > 256:
		out = append(out, misfit{"schedule", "schedule_bytes"})
	}
	if len(c.Zone) > 64 {
		out = append(out, misfit{"zone", "zone_bytes"})
	}
	if c.Jitter < 0 {
		out = append(out, misfit{field: "jitter"})
	}
	if c.Jitter > 24*3_600_000 {
		out = append(out, misfit{"jitter", "cron_jitter"})
	}
	if c.Start < 0 {
		out = append(out, misfit{field: "start"})
	}
	if c.End < 0 || c.End != 0 && c.End < c.Start {
		out = append(out, misfit{field: "end"})
	}
	if c.Overlap > 3 {
		out = append(out, misfit{field: "overlap"})
	}
	if c.CatchUp > 2 {
		out = append(out, misfit{field: "catch_up"})
	}
	return append(out, misfitsOfTemplate("template", &op.Template)...)
}

// misfitsOfTemplate lists what the tasks of a cron, or the follow-ups of a batch, may not say. in is the field of the template.
func misfitsOfTemplate(in string, op *core.TaskCreate) []misfit {
	var out []misfit
	t := *op
	for field, set := range map[string]bool{
		"id": t.ID != core.TaskID{}, "run_at": t.RunAt != 0, "delay": t.Delay != 0, "unique": t.Unique != core.Unique{}, "expires_at": t.ExpiresAt != 0,
		"after": len(t.After) > 0 || t.OnDepFailure != 0, "batch": t.Batch != core.TaskID{},
	} {
		if set {
			out = append(out, misfit{field: in + "." + field})
		}
	}
	t.ID = core.TaskID{1}
	for _, bad := range misfitsOfTask(&t) {
		bad.field = in + "." + bad.field
		out = append(out, bad)
	}
	return out
}

// cronOp judges an op of crons.
func (m *Model) cronOp(p *part, c *core.Commit, op core.Op, a answer) error {
	switch op := op.(type) {
	case *core.CronSet:
		return m.cronSet(p, c, op, a)
	case *core.CronDelete:
		return m.cronDelete(p, op, a)
	default:
		return m.cronFire(p, op.(*core.CronFire), a)
	}
}

// cronVersion judges a condition on the version of a cron.
func cronVersion(was *cron, wants int64, a answer) (refused bool, err error) {
	var version uint64
	if was != nil {
		version = was.version
	}
	bad := wants >= 0 && uint64(wants) != version
	f, told := a.fact.(core.RevMismatch)
	if bad != told || told && (f.Rev != version || f.Missing != (was == nil)) {
		return bad, fmt.Errorf("cron has version %d, asked for %d: answered %s", version, wants, a)
	}
	return bad, nil
}

func (m *Model) cronSet(p *part, c *core.Commit, op *core.CronSet, a answer) error {
	was := p.crons[op.Name]
	if refused, err := cronVersion(was, op.IfVersion, a); refused || err != nil {
		return err
	}
	if was == nil && op.Change != core.CronChangeAll {
		if f, ok := a.fact.(core.NotFound); ok && f.Kind == "cron" {
			return nil
		}
		return fmt.Errorf("cron %s is not there: answered %s", op.Name, a)
	}
	elsewhere := op.Change == core.CronChangeAll && p.pinnedElsewhere(op.Template.Queue)
	if elsewhere && a.fact == (core.QueuePinned{Queue: op.Template.Queue}) {
		return nil
	}
	if a.fact != nil || elsewhere {
		return fmt.Errorf("cron %s, of a queue that is pinned elsewhere: %v: answered %s", op.Name, elsewhere, a)
	}
	next := &cron{op: *op, version: 1, by: c.Principal, created: m.stamp, updated: m.stamp, anchor: m.now(true)}
	same := false
	if was != nil {
		one := *was
		next = &one
		switch op.Change {
		case core.CronChangePause, core.CronChangeResume:
			next.op.Config.Paused = op.Change == core.CronChangePause
			same = was.op.Config.Paused == next.op.Config.Paused
		default:
			same = was.op.Config == op.Config && sameTask(&was.op.Template, &op.Template)
			next.op.Config, next.op.Template = op.Config, op.Template
			x, y := was.op.Config, op.Config
			if x.Schedule != y.Schedule || x.Zone != y.Zone || x.Start != y.Start || x.End != y.End {
				next.anchor, next.next = m.now(true), 0
			}
		}
		if !same {
			next.version, next.by, next.updated = was.version+1, c.Principal, m.stamp
		}
	}
	if !a.blind && (a.result.Version != next.version || a.result.Replayed != same || a.result.Existed != (was != nil)) {
		return fmt.Errorf("cron %s gets version %d, as before: %v: answered version %d, %s", op.Name, next.version, same, a.result.Version, a)
	}
	set(m, p.crons, op.Name, next)
	return nil
}

func (m *Model) cronDelete(p *part, op *core.CronDelete, a answer) error {
	was := p.crons[op.Name]
	if refused, err := cronVersion(was, op.IfVersion, a); refused || err != nil {
		return err
	}
	if a.fact != nil || !a.blind && a.result.Existed != (was != nil) {
		return fmt.Errorf("cron %s is there: %v; removed: answered %s", op.Name, was != nil, a)
	}
	drop(m, p.crons, op.Name)
	return nil
}

// livesNow reports whether a task that stands so has not ended.
func livesNow(s *standing) bool { return !s.gone && !s.state.Terminal() }

// cronFire judges a proposal of a leader, or a run by hand.
func (m *Model) cronFire(p *part, op *core.CronFire, a answer) error {
	was := p.crons[op.Name]
	if was == nil {
		if f, ok := a.fact.(core.NotFound); ok && f.Kind == "cron" {
			return nil
		}
		return fmt.Errorf("cron %s is not there: answered %s", op.Name, a)
	}
	if op.Trigger != (core.TaskID{}) {
		return m.cronTrigger(p, op, was, a)
	}
	f, stale := a.fact.(core.RevMismatch)
	if stale && f.Rev != was.version {
		return fmt.Errorf("cron %s has version %d: answered %s", op.Name, was.version, a)
	}
	if op.Waiting {
		return m.cronBegin(p, op, was, a, stale)
	}
	if op.Version != was.version || op.Slot != was.next || op.Slot != 0 && was.op.Config.Paused {
		if stale {
			return nil
		}
		return fmt.Errorf("cron %s has version %d and slot %d next; it was to do slot %d of version %d: answered %s", op.Name, was.version, was.next, op.Slot, op.Version, a)
	}
	now := m.now(true)
	_, invalid := a.fact.(core.Invalid)
	early := op.Slot > now || op.Run > now || op.Run != 0 && op.Run < op.Slot
	odd := op.Next <= op.Slot || op.Next <= op.Run || op.Slot == 0 && (op.Run != 0 || op.Passed != 0 || op.Next <= was.anchor)
	if early || odd {
		if invalid {
			return nil
		}
		return fmt.Errorf("cron %s: slot %d, run %d and next %d at %d: answered %s", op.Name, op.Slot, op.Run, op.Next, now, a)
	}
	if a.fact != nil {
		return fmt.Errorf("slot %d of cron %s is next and due: refused with %w", op.Slot, op.Name, a.fact)
	}
	next := *was
	next.next = op.Next
	switch {
	case op.Slot == 0:
		if !a.blind && a.result.Version != 0 {
			return fmt.Errorf("cron %s was planned, and answered run %d", op.Name, a.result.Version)
		}
		set(m, p.crons, op.Name, &next)
		return nil
	case op.Run == 0:
		return m.cronRan(p, op.Name, &next, core.CronRun{Slot: op.Slot, Passed: op.Passed}, a, core.CronMissed)
	}
	return m.cronRun(p, op.Name, &next, core.CronRun{Slot: op.Run, Passed: op.Passed}, a)
}

// cronTrigger judges a run by hand.
func (m *Model) cronTrigger(p *part, op *core.CronFire, was *cron, a answer) error {
	if a.fact != nil {
		return fmt.Errorf("cron %s was to run by hand: refused with %w", op.Name, a.fact)
	}
	if was.waiting.Number != 0 && was.waiting.Task == op.Trigger {
		if a.blind || a.result.Replayed {
			return nil
		}
		return fmt.Errorf("the run by hand of cron %s waits: answered %s", op.Name, a)
	}
	if t := p.tasks[op.Trigger]; t != nil && (a.blind || a.result.Replayed) {
		return nil
	} else if t != nil && !t.forgettable(m.stamp) || t == nil && !a.blind && a.result.Replayed {
		return fmt.Errorf("task %s of cron %s is known: %v, answered %s", op.Trigger, op.Name, t != nil, a)
	}
	next := *was
	return m.cronRun(p, op.Name, &next, core.CronRun{Slot: m.now(true), Trigger: true, Task: op.Trigger}, a)
}

// cronBegin judges that a run which waited begins.
func (m *Model) cronBegin(p *part, op *core.CronFire, was *cron, a answer, stale bool) error {
	w, t := was.waiting, p.tasks[was.last]
	if w.Number == 0 || op.Version != was.version || op.Slot != w.Slot {
		if stale {
			return nil
		}
		return fmt.Errorf("no run of slot %d of cron %s waits: answered %s", op.Slot, op.Name, a)
	}
	if stale {
		if t == nil || !m.keep(p, t, livesNow) {
			return fmt.Errorf("the run of cron %s waits for task %s, which has ended: answered %s", op.Name, was.last, a)
		}
		return nil
	}
	if a.fact != nil || t != nil && !m.keep(p, t, func(s *standing) bool { return !livesNow(s) }) {
		return fmt.Errorf("the run of cron %s waits for task %s: answered %s", op.Name, was.last, a)
	}
	next := *was
	next.waiting = core.CronRun{}
	return m.cronStarts(p, op.Name, &next, w, a)
}

// cronRun judges what overlap makes of a run.
func (m *Model) cronRun(p *part, name string, next *cron, run core.CronRun, a answer) error {
	overlap := next.op.Config.Overlap
	t := p.tasks[next.last]
	outcome := core.CronStarted
	if !a.blind {
		_, outcome = core.CronRunOf(a.result.Version)
	}
	starts := outcome == core.CronStarted || outcome == core.CronRefused
	if overlap == core.CronAllow {
		return m.cronStarts(p, name, next, run, a)
	}
	if overlap == core.CronCancelPrevious {
		if w := next.waiting; w.Number != 0 {
			next.replaced(w.Number)
			next.waiting = core.CronRun{}
		}
		if t != nil {
			if err := m.cronCancels(p, name, t, starts); err != nil {
				return err
			}
		}
	} else if next.waiting.Number != 0 {
		return m.cronRan(p, name, next, run, a, core.CronOverlaps)
	} else if t != nil && !m.keep(p, t, func(s *standing) bool { return livesNow(s) != starts }) {
		return fmt.Errorf("cron %s: task %s stands as %+v, and its next run came to %d", name, t.id, t.may, outcome)
	}
	switch {
	case starts:
		return m.cronStarts(p, name, next, run, a)
	case t == nil:
		return fmt.Errorf("cron %s: there is no task before, and its run came to %d", name, outcome)
	case overlap == core.CronSkip:
		return m.cronRan(p, name, next, run, a, core.CronOverlaps)
	}
	if run.Task == (core.TaskID{}) {
		run.Task = a.result.Task
	}
	next.waiting = run
	next.waiting.Number = next.made + 1
	return m.cronRan(p, name, next, run, a, core.CronWaits)
}

// cronCancels judges that the task before a run is cancelled: ended says that it has ended by that, or had before.
func (m *Model) cronCancels(p *part, name string, t *task, ended bool) error {
	op := &core.TaskCancel{Task: t.id, Reason: "the next run of cron " + name + " is due"}
	var next []standing
	for _, s := range t.may {
		after := []step{{next: s}}
		if livesNow(&s) {
			after = m.cancel(p, t, s, op, "cron/"+name)
		}
		for _, st := range after {
			if st.replayed {
				st.next = s
			}
			if livesNow(&st.next) != ended && !slices.Contains(next, st.next) {
				next = append(next, st.next)
			}
		}
	}
	if len(next) == 0 {
		return fmt.Errorf("cron %s cancels task %s, which has ended by that: %v; it stood as %+v", name, t.id, ended, t.may)
	}
	m.stand(p, t, next)
	return nil
}

// cronStarts judges the task that a run makes, or that it is refused.
func (m *Model) cronStarts(p *part, name string, next *cron, run core.CronRun, a answer) error {
	create := next.op.Template
	create.Headers = append(slices.Clone(create.Headers),
		core.Header{Name: "millrace-cron", Value: name}, core.Header{Name: "millrace-slot", Value: run.Slot.Time().Format(time.RFC3339)})
	if a.blind {
		return nil // nothing that follows in its commit depends on it
	}
	if _, outcome := core.CronRunOf(a.result.Version); outcome == core.CronRefused {
		create.ID = core.TaskID{1}
		if !m.mayRefuse(p, &create) {
			return fmt.Errorf("cron %s: the task of slot %d could be made, and was refused", name, run.Slot)
		}
		run.Task = core.TaskID{}
		return m.cronRan(p, name, next, run, a, core.CronRefused)
	}
	id := a.result.Task
	switch {
	case run.Task != (core.TaskID{}) && id != run.Task, id == (core.TaskID{}):
		return fmt.Errorf("cron %s: slot %d was to make task %s and made %s", name, run.Slot, run.Task, id)
	case !run.Trigger && (p.tasks[id] != nil || id.Millis() != int64(run.Slot) || slices.Contains(next.done, run.Slot)):
		return fmt.Errorf("cron %s: slot %d made task %s; slots done: %v", name, run.Slot, id, next.done)
	}
	create.ID, run.Task = id, id
	jitter := next.op.Config.Jitter
	waits := jitter > 0 && !run.Trigger && a.result.State == core.Scheduled
	if waits {
		create.Delay = 1
	}
	if err := m.create(p, &core.Commit{Principal: "cron/" + name}, &create, false, answer{result: &core.OpResult{Task: id, State: a.result.State}}); err != nil {
		return fmt.Errorf("cron %s: %w", name, err)
	}
	if waits {
		t := p.tasks[id]
		s := t.may[0]
		s.earliest, s.latest = m.stamp+1, m.stamp.Add(jitter-1)
		m.stand(p, t, []standing{s})
	}
	next.last = id
	if !run.Trigger {
		next.done = append(slices.Clone(next.done), run.Slot)
	}
	return m.cronRan(p, name, next, run, a, core.CronStarted)
}

// mayRefuse reports whether there is a ground to refuse a create.
func (m *Model) mayRefuse(p *part, op *core.TaskCreate) bool {
	limits := p.configOf(op.Queue).Limits
	facts := []core.Fact{
		core.NotFound{Kind: "queue", ID: op.Queue},
		core.Exhausted{Limit: "queues", Max: core.MaxQueues},
		core.Exhausted{Limit: "max_tasks", Max: limits.MaxTasks},
		core.Exhausted{Limit: "max_bytes", Max: limits.MaxBytes},
		core.TooLarge{Field: "payload", Limit: "max_payload"},
	}
	if q, ok := m.quotaOf(p); ok {
		facts = append(facts,
			core.Exhausted{Limit: "tenant_tasks", Max: q.bounds.Tasks}, core.Exhausted{Limit: "tenant_task_bytes", Max: q.bounds.Bytes})
	}
	return len(p.beyondCeilings(op)) > 0 || slices.ContainsFunc(facts, func(f core.Fact) bool { return m.createRefused(p, op, f) == nil })
}

// cronRan notes a run, and wants the answer to tell of it.
func (m *Model) cronRan(p *part, name string, next *cron, run core.CronRun, a answer, wants core.CronOutcome) error {
	if run.Number == 0 {
		next.made++
		run.Number = next.made
	}
	if wants == core.CronOverlaps {
		run.Task = core.TaskID{}
	}
	run.At, run.Outcome = m.stamp, wants
	if !a.blind {
		number, outcome := core.CronRunOf(a.result.Version)
		if number != run.Number || outcome != wants || a.result.Task != run.Task || a.result.Replayed {
			return fmt.Errorf("cron %s: run %d comes to %d with task %s: answered run %d, %d, task %s", name, run.Number, wants, run.Task, number, outcome, a.result.Task)
		}
	}
	next.note(run)
	set(m, p.crons, name, next)
	return nil
}

// note stores a run among those that are remembered.
func (c *cron) note(run core.CronRun) {
	c.runs = slices.Clone(c.runs)
	if at := slices.IndexFunc(c.runs, func(r core.CronRun) bool { return r.Number == run.Number }); at >= 0 {
		c.runs[at] = run
	} else if run.Number == c.made {
		c.runs = append(c.runs, run)
	}
	if n := len(c.runs) - 100; n > 0 {
		c.runs = c.runs[n:]
	}
}

// replaced notes that a run which waited will not begin.
func (c *cron) replaced(number uint64) {
	c.runs = slices.Clone(c.runs)
	for i := range c.runs {
		if r := &c.runs[i]; r.Number == number {
			r.Outcome, r.Task = core.CronReplaced, core.TaskID{}
		}
	}
}

// AuditCrons compares the crons of a partition as they are read back with what they must be. runs reads the runs of one.
func (m *Model) AuditCrons(at core.Partition, got []core.Cron, runs func(name string) ([]core.CronRun, error)) error {
	p := m.part(at)
	if len(got) != len(p.crons) {
		return fmt.Errorf("%d crons, there must be %d", len(got), len(p.crons))
	}
	for i := range got {
		g := &got[i]
		c := p.crons[g.Name]
		if c == nil {
			return fmt.Errorf("cron %s is there and was not set", g.Name)
		}
		want := core.Cron{
			CronConfig: c.op.Config, Name: g.Name, Template: g.Template, Version: c.version, Created: c.created, Updated: c.updated, By: c.by,
			Anchor: c.anchor, Next: c.next, Last: c.last, Waiting: c.waiting.Slot, Runs: c.made,
		}
		if fmt.Sprint(*g) != fmt.Sprint(want) || !sameTask(&g.Template, &c.op.Template) || !bytes.Equal(g.Template.Payload, c.op.Template.Payload) {
			return fmt.Errorf("cron %s reads as %+v, it is %+v", g.Name, *g, want)
		}
		list, err := runs(g.Name)
		if err != nil {
			return err
		}
		slices.Reverse(list)
		if len(list) != len(c.runs) {
			return fmt.Errorf("cron %s has %d runs, it must have %d", g.Name, len(list), len(c.runs))
		}
		for j, r := range list {
			wants := c.runs[j]
			refused := r.Outcome == core.CronRefused
			if refused != (r.Code != "") {
				return fmt.Errorf("run %d of cron %s came to %d, with code %q", r.Number, g.Name, r.Outcome, r.Code)
			}
			r.Code, r.Message, r.State, r.Began, r.Ended = "", "", 0, 0, 0 // what is not the cron's own
			if r != wants {
				return fmt.Errorf("run %d of cron %s reads as %+v, it was %+v", r.Number, g.Name, r, wants)
			}
		}
	}
	return nil
}

// CronSlots returns the slots of the crons of a partition that made a task, by cron. No slot is there twice.
func (m *Model) CronSlots(at core.Partition) map[string][]core.ShardTime {
	out := map[string][]core.ShardTime{}
	for name, c := range m.part(at).crons {
		out[name] = c.done
	}
	return out
}
