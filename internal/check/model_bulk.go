package check

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// Ticks do what a bulk job is about, and their answers tell nothing of single tasks. So as long as a job may run, each task that it may
// meet may have been acted on at any tick. That ends where the job is stopped, or at the latest when the ticks that left nothing undone
// must have acted more often than there was something to act on.

// What a tick looks at and does for bulk jobs at most.
const (
	bulkRows = 1024 // rows, for all jobs of a partition
	bulkLate = 200  // milliseconds that a job may lag behind its rate; the rest is forgiven
)

// bulk is a bulk job. Both runs and ended are set where either may be the case.
type bulk struct {
	op      core.BulkStart
	by      string
	started core.ShardTime
	runs    bool
	ended   bool
	// over is when it ended at the earliest. It is known for core.BulkKept from then on.
	over core.ShardTime

	due  core.ShardTime // its next part, at the latest
	most int64          // how many times it may meet a task
	met  int64          // how many times it has met one, at least

	unsure bool // it is not certain that it was ever started
}

// misfitsOfBulk lists what the start of a job may not say.
func misfitsOfBulk(op *core.BulkStart) []misfit {
	var out []misfit
	states := op.Action.States()
	q := &op.Tasks
	if op.ID.IsZero() {
		out = append(out, misfit{field: "id"})
	}
	if states == nil {
		out = append(out, misfit{field: "action"})
	} else if q.State != 0 && !slices.Contains(states, q.State) {
		out = append(out, misfit{field: "filter.state"})
	}
	if op.Priority > 9 {
		out = append(out, misfit{field: "priority"})
	}
	if op.Rate > core.MaxBulkRate {
		out = append(out, misfit{"rate", "bulk_rate"})
	}
	if len(q.Queue) > 128 || len(q.Kind) > 128 {
		out = append(out, misfit{field: "filter.queue"})
	}
	return append(out, misfitsOfLabels(q.Labels)...)
}

// sameBulk reports whether two starts ask for the same. What was counted before does not matter.
func sameBulk(a, b core.BulkStart) bool {
	for _, op := range []*core.BulkStart{&a, &b} {
		op.Matched, op.Exact = 0, false
		op.Rate, op.Reason = cmp.Or(op.Rate, core.DefaultBulkRate), cutReason(op.Reason)
		if len(op.Tasks.Labels) == 0 {
			op.Tasks.Labels = nil
		}
	}
	return reflect.DeepEqual(a, b)
}

// bulkStart judges that a job begins.
func (m *Model) bulkStart(p *part, c *core.Commit, op *core.BulkStart, a answer) error {
	if j := p.bulks[op.ID]; j != nil {
		same := sameBulk(j.op, *op)
		exists, told := a.fact.(core.AlreadyExists)
		told = told && exists == core.AlreadyExists{Kind: "bulk", ID: op.ID.String()}
		forgotten := m.mayForget(p, j)
		switch {
		case !same && told, same && a.fact == nil && (a.blind && !(forgotten && m.guess()) || !a.blind && a.result.Replayed):
			return nil
		case !forgotten:
			return fmt.Errorf("bulk job %s is known, and the start is the same: %v; answered %s", op.ID, same, a)
		}
	}
	least, most := 0, 0
	for id, j := range p.bulks {
		if id != op.ID && j.runs {
			most++
			if !j.ended {
				least++
			}
		}
	}
	if f, ok := a.fact.(core.Exhausted); ok && f == (core.Exhausted{Limit: "bulk_jobs", Max: core.MaxBulkJobs}) && most >= core.MaxBulkJobs {
		return nil
	}
	if a.fact != nil || least >= core.MaxBulkJobs || !a.blind && (a.result.Replayed || a.result.Task != op.ID) {
		return fmt.Errorf("bulk job %s is new, %d to %d run: answered %s", op.ID, least, most, a)
	}
	j := &bulk{op: *op, by: c.Principal, started: m.stamp, over: m.stamp, due: m.stamp, runs: true}
	if b := op.Tasks.Batch; b != (core.TaskID{}) && p.batches[b] == nil {
		j.ended, j.runs = true, false
	} else if b != (core.TaskID{}) && m.mayForgetBatch(p, p.batches[b]) {
		j.ended = true
	}
	if name := op.Tasks.Queue; name != "" {
		j.ended, j.runs = j.ended || m.mayLack(p, name), j.runs && p.queues[name] != nil
	}
	for _, t := range p.tasks {
		j.most += j.newIn(m, t, nil)
	}
	set(m, p.bulks, op.ID, j)
	return nil
}

// bulkStop judges that a job ends before its end.
func (m *Model) bulkStop(p *part, op *core.BulkStop, a answer) error {
	j := p.bulks[op.ID]
	if f, ok := a.fact.(core.NotFound); ok && f.Kind == "bulk" && (j == nil || m.mayForget(p, j)) {
		drop(m, p.bulks, op.ID)
		return nil
	}
	if a.fact != nil || j == nil {
		return fmt.Errorf("bulk job %s, known: %v, is stopped: answered %s", op.ID, j != nil, a)
	}
	next := *j
	switch {
	case a.blind:
		next.runs, next.ended = false, true
	case a.result.Replayed && j.ended:
		next.runs = false
	case !a.result.Replayed && j.runs:
		next.runs, next.ended, next.over = false, true, m.stamp
	default:
		return fmt.Errorf("bulk job %s may run: %v, may have ended: %v; it is stopped: answered %s", op.ID, j.runs, j.ended, a)
	}
	set(m, p.bulks, op.ID, &next)
	return nil
}

// mayForget reports whether a job may be known no more: it ended long ago, or there are too many that have ended.
func (m *Model) mayForget(p *part, j *bulk) bool {
	return j.ended && (m.stamp >= j.over.Add(core.BulkKept) || len(p.bulks) > core.MaxBulkKept)
}

// wants reports whether a job may be about a task, whatever its state and its labels.
func (j *bulk) wants(m *Model, t *task) bool {
	q, at := &j.op.Tasks, t.at.Add(m.shift)
	return t.at <= j.started && (q.Queue == "" || q.Queue == t.create.Queue) && (q.Kind == "" || q.Kind == cmp.Or(t.create.TaskKind, t.create.Queue)) &&
		(q.Unique == "" || q.Unique == t.create.Unique.Key) && (q.From == 0 || at >= q.From || t.letter != nil || t.follows) && (q.Batch == core.TaskID{} || q.Batch == t.create.Batch) && (q.To == 0 || at < q.To)
}

// labelled reports whether a task has the labels that a job wants.
func (j *bulk) labelled(t *task) bool {
	return t.isLoose() || !slices.ContainsFunc(j.op.Tasks.Labels, func(l core.Label) bool { return !slices.Contains(t.now.labels, l) })
}

// meets reports whether a job acts on a task that it wants and that stands so.
func (j *bulk) meets(s *standing) bool {
	of := j.op.Tasks.State
	return !s.gone && (of == 0 || of == s.state) && slices.Contains(j.op.Action.States(), s.state) && (!s.state.Terminal() || s.ended <= j.started)
}

// newIn counts the standings of a task in which a job may meet it and which are not among old.
func (j *bulk) newIn(m *Model, t *task, old []standing) (n int64) {
	if !j.runs || !j.wants(m, t) || !j.labelled(t) {
		return 0
	}
	for i := range t.may {
		if s := &t.may[i]; j.meets(s) && !slices.Contains(old, *s) {
			n++
		}
	}
	return n
}

// moved notes that the standings of a task have changed since old: jobs may meet it once more. What they do themselves leads none of
// them to the same task again, apart from retries and new priorities.
func (m *Model) moved(p *part, t *task, old []standing) {
	for _, j := range p.bulks {
		j.most += j.newIn(m, t, old)
	}
}

// relabelled notes that a task got other labels: jobs that go by labels may meet it.
func (m *Model) relabelled(p *part, t *task) { m.moved(p, t, nil) }

// tickTask adds the standings to which timers and bulk jobs lead in one tick. Timers come before and after the jobs.
func (m *Model) tickTask(p *part, t *task, all bool) {
	acts := m.acts(p, t)
	if acts {
		m.bulkActs(p, t)
	}
	if p.timed[t.id] {
		m.due(p, t, all)
	}
	if acts {
		m.bulkActs(p, t)
		if p.timed[t.id] {
			m.due(p, t, all)
		}
	}
}

// acts reports whether a job may act on a task.
func (m *Model) acts(p *part, t *task) bool {
	for _, j := range p.bulks {
		if j.runs && j.wants(m, t) && j.labelled(t) {
			return true
		}
	}
	return false
}

// bulkActs adds the standings to which the jobs of a partition lead, in any order.
func (m *Model) bulkActs(p *part, t *task) {
	var jobs []*bulk
	limit := uint32(0) // of redrives: a task that ended at the stamp of a start may be met by the job twice
	for _, j := range p.bulks {
		if j.runs && j.wants(m, t) && j.labelled(t) {
			jobs = append(jobs, j)
			if j.op.Action == core.BulkRetry {
				limit += 2
			}
		}
	}
	redrives := uint32(0)
	for i := range t.may {
		redrives = max(redrives, t.may[i].redrives)
	}
	limit += redrives
	next := slices.Clone(t.may)
	for i := 0; i < len(next); i++ {
		for _, j := range jobs {
			if !j.meets(&next[i]) {
				continue
			}
			for _, st := range m.bulkAct(p, t, j, next[i]) {
				if st.fact == nil && !st.replayed && st.next.redrives <= limit && !slices.Contains(next, st.next) {
					next = append(next, st.next)
					again(jobs, j, &st.next)
				}
			}
		}
	}
	if len(next) > len(t.may) || m.mayEndNow(t.may, next) {
		m.place(p, t, next)
	}
}

// again notes that what job by did to a task may lead others to it once more.
func again(jobs []*bulk, by *bulk, s *standing) {
	if by.op.Action != core.BulkRetry && by.op.Action != core.BulkPrioritize {
		return
	}
	for _, j := range jobs {
		if j != by && j.meets(s) {
			j.most++
		}
	}
}

// bulkAct is what a job does to a task that stands as s.
func (m *Model) bulkAct(p *part, t *task, j *bulk, s standing) []step {
	switch j.op.Action {
	case core.BulkCancel:
		return m.cancel(p, t, s, &core.TaskCancel{Task: t.id, Reason: j.op.Reason, Force: j.op.Force}, j.by)
	case core.BulkRetry:
		return []step{{next: s.redriven()}}
	case core.BulkDelete:
		s.gone, s.known = true, true
	case core.BulkPrioritize:
		s.fresh = false
		m.mayHavePriority(p, t, j)
	}
	return []step{{next: s}}
}

// mayHavePriority notes that a task may have the priority that a job sets. Its place among ready tasks may change with it, at any tick.
func (m *Model) mayHavePriority(p *part, t *task, by *bulk) {
	for _, j := range p.bulks {
		if j != by && j.wants(m, t) {
			j.most++
		}
	}
	if slices.Contains(t.perhaps, by.op.Priority) {
		return
	}
	m.setPerhaps(t, append(slices.Clone(t.perhaps), by.op.Priority))
}

func (m *Model) setPerhaps(t *task, next []uint8) {
	was := t.perhaps
	m.change(func() { t.perhaps = was })
	t.perhaps = next
}

// priorityOf returns the priority of a task, where it is not certain the one that was read of it.
func (t *task) priorityOf(got uint8) uint8 {
	if slices.Contains(t.perhaps, got) {
		return got
	}
	return t.now.priority
}

// bulksTicked notes that a tick may have ended jobs. One that left nothing undone did, of each job that goes on, what its rate asked
// for up to the stamp, and each part of that met a task at least: no part of a small partition comes to the bound of rows.
func (m *Model) bulksTicked(p *part, all bool) {
	running := 0
	for _, j := range p.bulks {
		if j.runs {
			running++
		}
	}
	all = all && running*(2*len(p.tasks)+2*len(p.queues)+64) <= bulkRows
	for id, was := range p.bulks {
		if !was.runs {
			continue
		}
		j := *was
		j.ended = true
		rate := core.Millis(cmp.Or(j.op.Rate, core.DefaultBulkRate))
		if all && j.due <= m.stamp {
			from := max(j.due, m.stamp.Add(-bulkLate+1))
			j.met += max(1, int64(core.Millis(m.stamp+1-from)*rate/1000))
			j.runs = j.met <= j.most
		}
		part := min(128, max(rate/20, 1))
		j.due = max(j.due, m.stamp.Add(3+part*1000/rate))
		set(m, p.bulks, id, &j)
	}
}

// AuditBulks compares the bulk jobs of a partition as they are read back with what they may be.
func (m *Model) AuditBulks(at core.Partition, got []core.BulkJob) error {
	p := m.part(at)
	seen := map[core.TaskID]bool{}
	for i := range got {
		g := &got[i]
		j := p.bulks[g.ID]
		switch {
		case j == nil:
			return fmt.Errorf("bulk job %s is there, and was not started or was forgotten", g.ID)
		case !sameBulk(g.BulkStart, j.op) || g.By != j.by || g.Started != j.started:
			return fmt.Errorf("bulk job %s reads as %+v, it is %+v", g.ID, g, j)
		case g.State == core.BulkRunning && !j.runs, g.State != core.BulkRunning && !j.ended:
			return fmt.Errorf("bulk job %s reads in state %d; it may run: %v, may have ended: %v", g.ID, g.State, j.runs, j.ended)
		}
		seen[g.ID] = true
	}
	for id := range maps.Keys(p.bulks) {
		if j := p.bulks[id]; !seen[id] && !j.unsure && !m.mayForget(p, j) {
			return fmt.Errorf("bulk job %s is not there", id)
		}
	}
	return nil
}
