package check

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// A batch finishes at the end of the op, or tick, after which it takes no tasks and all of its own have ended. Where it is not certain
// how its tasks stand, it may have finished, and its follow-ups may be there: a task that has more than one standing.

// batch is a batch. A change makes another one.
type batch struct {
	op     core.BatchOpen
	by     string
	index  uint64 // the entry that opened it
	at     core.ShardTime
	tasks  []*task
	sealed core.ShardTime
	cancel core.CancelAsked

	may, sure bool // it may have finished, it has
	over      core.ShardTime
	// grounds says that a follow-up may have been refused, so that a later tick may make it.
	grounds bool
}

// batchLook names a batch whose tasks may have ended.
type batchLook struct {
	p  *part
	id core.TaskID
}

// ofBatches reports whether an op is one of batches.
func ofBatches(op core.Op) bool {
	switch op.(type) {
	case *core.BatchOpen, *core.BatchSeal, *core.BatchCancel:
		return true
	}
	return false
}

// misfitsOfBatch lists what a batch may not say.
func misfitsOfBatch(op *core.BatchOpen) []misfit {
	out := misfitsOfLabels(op.Labels)
	if op.ID == (core.TaskID{}) {
		out = append(out, misfit{field: "id"})
	}
	if op.OnDone != nil {
		out = append(out, misfitsOfTemplate("on_done", op.OnDone)...)
	}
	if op.OnSuccess != nil {
		out = append(out, misfitsOfTemplate("on_success", op.OnSuccess)...)
	}
	return out
}

// batchOp judges an op of batches.
func (m *Model) batchOp(p *part, c *core.Commit, op core.Op, a answer) error {
	switch op := op.(type) {
	case *core.BatchOpen:
		return m.batchOpen(p, c, op, a)
	case *core.BatchSeal:
		return m.batchSeal(p, op, a)
	default:
		return m.batchCancel(p, c, op.(*core.BatchCancel), a)
	}
}

// mayForgetBatch reports whether a batch may be known no more.
func (m *Model) mayForgetBatch(p *part, b *batch) bool {
	return b.may && (m.stamp >= b.over.Add(core.BatchKept) || len(p.batches) > core.MaxBatchesKept)
}

// batchOpen judges that a batch is opened.
func (m *Model) batchOpen(p *part, c *core.Commit, op *core.BatchOpen, a answer) error {
	if b := p.batches[op.ID]; b != nil {
		same := sameBatch(&b.op, op)
		exists, told := a.fact.(core.AlreadyExists)
		told = told && exists == core.AlreadyExists{Kind: "batch", ID: op.ID.String()}
		forgotten := m.mayForgetBatch(p, b)
		switch {
		case !same && told, same && a.fact == nil && (a.blind && !(forgotten && m.guess()) || !a.blind && a.result.Replayed):
			return nil
		case !forgotten:
			return fmt.Errorf("batch %s is known, and is opened with the same: %v; answered %s", op.ID, same, a)
		}
	}
	for _, follow := range [...]*core.TaskCreate{op.OnDone, op.OnSuccess} {
		if follow != nil && p.pinnedElsewhere(follow.Queue) {
			if a.fact == (core.QueuePinned{Queue: follow.Queue}) {
				return nil
			}
			return fmt.Errorf("batch %s makes a task of queue %s, which is pinned elsewhere: answered %s", op.ID, follow.Queue, a)
		}
	}
	if a.fact != nil || !a.blind && (a.result.Replayed || a.result.Task != op.ID) {
		return fmt.Errorf("batch %s is new: answered %s", op.ID, a)
	}
	set(m, p.batches, op.ID, &batch{op: *op, by: c.Principal, index: m.index, at: m.stamp})
	return nil
}

// sameBatch reports whether two opens ask for the same.
func sameBatch(a, b *core.BatchOpen) bool {
	follow := func(x, y *core.TaskCreate) bool {
		if x == nil || y == nil {
			return x == y
		}
		return sameTask(x, y)
	}
	return slices.Equal(a.Labels, b.Labels) && follow(a.OnDone, b.OnDone) && follow(a.OnSuccess, b.OnSuccess)
}

// namedBatch finds the batch of an op. judged is true where it is unknown, or may be, and the op was refused so.
func (m *Model) namedBatch(p *part, id core.TaskID, a answer) (b *batch, judged bool, err error) {
	b = p.batches[id]
	f, missing := a.fact.(core.NotFound)
	missing = missing && f == core.NotFound{Kind: "batch", ID: id.String()}
	switch {
	case missing && (b == nil || m.mayForgetBatch(p, b)):
		drop(m, p.batches, id)
		return nil, true, nil
	case missing || b == nil:
		return nil, true, fmt.Errorf("batch %s is known: %v; answered %s", id, b != nil, a)
	}
	return b, false, nil
}

// states lists the states in which a batch may be.
func (b *batch) states() (out []core.BatchState) {
	if b.may {
		out = append(out, core.BatchFinished)
	}
	switch {
	case b.sure:
	case b.cancel.At != 0:
		out = append(out, core.BatchCancelling)
	case b.sealed != 0:
		out = append(out, core.BatchSealed)
	default:
		out = append(out, core.BatchIsOpen)
	}
	return out
}

// batchSeal judges that a batch gets no more tasks.
func (m *Model) batchSeal(p *part, op *core.BatchSeal, a answer) error {
	b, judged, err := m.namedBatch(p, op.ID, a)
	if judged {
		return err
	}
	if a.fact != nil || !a.blind && a.result.Replayed != (b.sealed != 0) {
		return fmt.Errorf("batch %s was sealed before: %v; its seal is answered %s", op.ID, b.sealed != 0, a)
	}
	if b.sealed != 0 {
		return nil
	}
	next := *b
	next.sealed = m.stamp
	set(m, p.batches, op.ID, &next)
	m.batchLooks = append(m.batchLooks, batchLook{p, op.ID})
	return nil
}

// batchCancel judges that a batch is cancelled.
func (m *Model) batchCancel(p *part, c *core.Commit, op *core.BatchCancel, a answer) error {
	b, judged, err := m.namedBatch(p, op.ID, a)
	if judged {
		return err
	}
	lives := func(s *standing) bool { return !s.state.Terminal() || s.unswept }
	might, must := false, false
	for _, t := range b.tasks {
		might = might || t.might(lives)
		must = must || t.sure(func(s *standing) bool { return !s.state.Terminal() })
	}
	switch f := a.fact.(type) {
	case core.WrongBatch:
		if b.cancel.At == 0 && b.may && f == (core.WrongBatch{Batch: op.ID, State: core.BatchFinished}) {
			return nil
		}
	case core.Exhausted:
		if f == (core.Exhausted{Limit: "bulk_jobs", Max: core.MaxBulkJobs}) && might && b.cancel.At == 0 && p.mayRunJobs() >= core.MaxBulkJobs {
			return nil
		}
	case nil:
		if b.cancel.At != 0 && (a.blind || a.result.Replayed) {
			return nil
		}
		if b.cancel.At != 0 || b.sure || !a.blind && a.result.Replayed {
			break
		}
		next := *b
		next.cancel = core.CancelAsked{At: m.stamp, By: c.Principal, Reason: cutReason(op.Reason), Force: op.Force}
		if next.sealed == 0 {
			next.sealed = m.stamp
		}
		set(m, p.batches, op.ID, &next)
		m.batchLooks = append(m.batchLooks, batchLook{p, op.ID})
		if might {
			m.batchJob(p, c, op, b, must)
		}
		return nil
	}
	return fmt.Errorf("batch %s may be %v, cancelled at %d; its cancel is answered %s", op.ID, b.states(), b.cancel.At, a)
}

// mayRunJobs counts the bulk jobs that may run.
func (p *part) mayRunJobs() (n int) {
	for _, j := range p.bulks {
		if j.runs {
			n++
		}
	}
	return n
}

// batchJob starts the bulk job that cancels the tasks of a batch. Without must it is not certain that there is one.
func (m *Model) batchJob(p *part, c *core.Commit, op *core.BatchCancel, b *batch, must bool) {
	start := core.BulkStart{
		ID: core.BatchJobID(op.ID, b.index), Action: core.BulkCancel, Tasks: core.TaskFilter{Batch: op.ID}, Rate: op.Rate, Reason: op.Reason, Force: op.Force,
	}
	j := &bulk{op: start, by: c.Principal, started: m.stamp, over: m.stamp, due: m.stamp, runs: true, ended: !must, unsure: !must}
	for _, t := range p.tasks {
		j.most += j.newIn(m, t, nil)
	}
	set(m, p.bulks, start.ID, j)
}

// addToBatch judges that a create which was applied could be added to its batch, and adds it.
func (m *Model) addToBatch(p *part, t *task) error {
	id := t.create.Batch
	if id == (core.TaskID{}) {
		return nil
	}
	b := p.batches[id]
	if b == nil || b.sealed != 0 {
		return fmt.Errorf("task %s was added to batch %s, which is not open", t.id, id)
	}
	next := *b
	next.tasks = append(slices.Clip(b.tasks), t)
	set(m, p.batches, id, &next)
	return nil
}

// notInBatch judges a create that was refused because of its batch.
func (m *Model) notInBatch(p *part, op *core.TaskCreate, fact core.Fact) bool {
	b := p.batches[op.Batch]
	switch f := fact.(type) {
	case core.NotFound:
		return f == core.NotFound{Kind: "batch", ID: op.Batch.String()} && (b == nil || m.mayForgetBatch(p, b))
	case core.WrongBatch:
		return b != nil && f.Batch == op.Batch && b.sealed != 0 && slices.Contains(b.states(), f.State)
	}
	return false
}

// noteBatch notes that the batch of a task must be looked at, where the task may have ended in another way than before.
func (m *Model) noteBatch(p *part, t *task, old []standing) {
	if t.create.Batch == (core.TaskID{}) {
		return
	}
	if was, is := ends(old), ends(t.may); !slices.Equal(was, is) {
		m.batchLooks = append(m.batchLooks, batchLook{p, t.create.Batch})
	}
}

// followBatches looks, at the end of an op, which batches may have finished by it.
func (m *Model) followBatches() {
	looks := m.batchLooks
	m.batchLooks = nil
	for i, look := range looks {
		if !slices.Contains(looks[:i], look) {
			m.lookAtBatch(look.p, look.id)
		}
	}
}

func (m *Model) lookAtBatch(p *part, id core.TaskID) {
	b := p.batches[id]
	if b == nil || b.sealed == 0 || b.sure {
		return
	}
	might, sure, mightSucceed, succeeds := true, true, b.cancel.At == 0, b.cancel.At == 0
	completed := func(s *standing) bool { return s.state == core.Completed }
	for _, t := range b.tasks {
		might = might && t.might(func(s *standing) bool { return s.state.Terminal() })
		sure = sure && t.sure(func(s *standing) bool { return s.state.Terminal() && !s.unswept })
		mightSucceed, succeeds = mightSucceed && t.might(completed), succeeds && t.sure(completed)
	}
	if !might {
		return
	}
	next := *b
	now := sure && !b.may // it finished by this op
	if !b.may {
		next.may, next.over = true, m.stamp
	}
	next.sure = sure
	if b.op.OnDone != nil {
		next.grounds = m.followUp(p, &next, false, now) || next.grounds
	}
	if b.op.OnSuccess != nil && mightSucceed {
		next.grounds = m.followUp(p, &next, true, now && succeeds) || next.grounds
	}
	set(m, p.batches, id, &next)
}

// unmade is the standing of a follow-up that was not made.
var unmade = standing{state: core.Dead, limit: core.Never, gone: true}

// followUp adds that a follow-up of a batch may be made by the op at hand; certain says that it is, if it has room. It reports whether it
// may have none.
func (m *Model) followUp(p *part, b *batch, success, certain bool) (grounds bool) {
	template := b.op.OnDone
	if success {
		template = b.op.OnSuccess
	}
	create := *template
	create.ID = core.FollowUpID(b.op.ID, b.index, success)
	create.Headers = append(slices.Clone(create.Headers), core.Header{Name: "millrace-batch", Value: b.op.ID.String()})
	grounds = m.mayRefuse(p, &create)
	t := p.tasks[create.ID]
	if t != nil && !slices.Contains(t.may, unmade) {
		return grounds
	}
	ready := m.born(p, &create)
	ready.fresh = false
	may := []standing{unmade}
	if t != nil {
		may = slices.Clone(t.may)
	} else {
		t = &task{
			id: create.ID, first: create, create: create, now: contentOf(&create), creator: "batch/" + b.op.ID.String(), index: m.index, at: m.stamp,
			past: map[core.Token]settledAs{}, follows: true,
		}
		set(m, p.tasks, create.ID, t)
	}
	if !slices.Contains(may, ready) {
		may = append(may, ready)
	}
	if certain && !grounds {
		may = slices.DeleteFunc(may, func(s standing) bool { return s == unmade })
	}
	if p.queues[create.Queue] == nil {
		set(m, p.queues, create.Queue, &queue{fresh: map[place][]*task{}})
	}
	m.stand(p, t, may)
	return grounds
}

// batchesTicked adds that a tick may have made follow-ups: those that were refused before, and those of batches that may have finished by
// it, where a sweep ends what is left of their tasks.
func (m *Model) batchesTicked(p *part) {
	for id, b := range p.batches {
		if !b.grounds && (!b.may || b.sure) {
			continue
		}
		next := *b
		for success, op := range map[bool]*core.TaskCreate{false: b.op.OnDone, true: b.op.OnSuccess} {
			if op != nil && p.tasks[core.FollowUpID(id, b.index, success)] != nil {
				next.grounds = m.followUp(p, &next, success, false) || next.grounds
			}
		}
		if next.grounds != b.grounds {
			set(m, p.batches, id, &next)
		}
	}
}

// AuditBatches compares the batches of a partition as they are read back with what they may be.
func (m *Model) AuditBatches(at core.Partition, got []core.Batch) error {
	p := m.part(at)
	seen := map[core.TaskID]bool{}
	for i := range got {
		g := &got[i]
		b := p.batches[g.ID]
		if b == nil {
			return fmt.Errorf("batch %s is there, and was not opened or was forgotten", g.ID)
		}
		seen[g.ID] = true
		if !sameBatch(&g.BatchOpen, &b.op) || g.By != b.by || g.Opened != b.at || g.Sealed != b.sealed || !reflect.DeepEqual(g.Cancel, b.cancel) {
			return fmt.Errorf("batch %s reads as %+v, it is %+v", g.ID, g, b)
		}
		if !slices.Contains(b.states(), g.State) || (g.Finished != 0) != (g.State == core.BatchFinished) {
			return fmt.Errorf("batch %s reads as %s, finished at %d; it may be %v", g.ID, g.State, g.Finished, b.states())
		}
		if err := b.auditCounts(&g.Counts); err != nil {
			return fmt.Errorf("batch %s: %w", g.ID, err)
		}
		if err := m.auditFollowUps(p, b, g); err != nil {
			return fmt.Errorf("batch %s: %w", g.ID, err)
		}
	}
	for id := range maps.Keys(p.batches) {
		if b := p.batches[id]; !seen[id] && !m.mayForgetBatch(p, b) {
			return fmt.Errorf("batch %s is not there", id)
		}
	}
	return nil
}

// auditCounts compares what a batch counts with how its tasks may stand.
func (b *batch) auditCounts(got *core.BatchCounts) error {
	if got.Total != uint64(len(b.tasks)) {
		return fmt.Errorf("counts %d tasks, and %d were added", got.Total, len(b.tasks))
	}
	var least, most [5]uint64 // waiting, running, completed, dead, cancelled
	for _, t := range b.tasks {
		var in [5]bool
		for i := range t.may {
			switch s := &t.may[i]; {
			case s.unswept: // it is counted when the sweep comes to it
				in[0], in[1], in[4] = true, true, true
			case s.state == core.Running:
				in[1] = true
			case s.state == core.Completed:
				in[2] = true
			case s.state == core.Dead:
				in[3] = true
			case s.state == core.Cancelled:
				in[4] = true
			default:
				in[0] = true
			}
		}
		ways := 0
		for i, is := range in {
			if is {
				ways++
				most[i]++
			}
		}
		for i, is := range in {
			if is && ways == 1 {
				least[i]++
			}
		}
	}
	for i, n := range [...]uint64{got.Waiting, got.Running, got.Completed, got.Dead, got.Cancelled} {
		if n < least[i] || n > most[i] {
			return fmt.Errorf("counts %+v, each is %v to %v", *got, least, most)
		}
	}
	return nil
}

// auditFollowUps holds what a batch says that it made to what it was to make.
func (m *Model) auditFollowUps(p *part, b *batch, got *core.Batch) error {
	refused := got.RefusedCode != ""
	if refused && (!b.grounds || got.Finished == 0) {
		return fmt.Errorf("a follow-up was refused with %s, of which there was no ground", got.RefusedCode)
	}
	for _, f := range []struct {
		op      *core.TaskCreate
		made    core.TaskID
		success bool
	}{{b.op.OnDone, got.DoneTask, false}, {b.op.OnSuccess, got.SuccessTask, true}} {
		id := core.FollowUpID(b.op.ID, b.index, f.success)
		t := p.tasks[id]
		switch {
		case f.made == (core.TaskID{}):
			if f.op != nil && got.Finished != 0 && !refused && !f.success {
				return fmt.Errorf("has finished, and made no task %s", id)
			}
		case f.made != id || f.op == nil || got.Finished == 0:
			return fmt.Errorf("made task %s, where it makes %s", f.made, id)
		case t == nil:
			return fmt.Errorf("made task %s, which it cannot have made", id)
		default: // it is there, or was: what was uncertain is not
			if slices.Contains(t.may, unmade) && !m.keep(p, t, func(s *standing) bool { return *s != unmade }) {
				return fmt.Errorf("made task %s, which cannot be there", id)
			}
		}
	}
	return nil
}
