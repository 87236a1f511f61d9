package queue

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A bulk job is stored with how far it is, and each tick does a part of it. What a part does is one entry, with the place where the
// next part begins: who leads next goes on from there, and no task is met twice by that.

const (
	// bulkActs is how many tasks all jobs of a partition act on at most in one tick, and bulkRows how many rows they look at. They
	// bound for how long other work waits: about a millisecond. A job that lags does its next part in the next tick.
	bulkActs = 64
	bulkRows = 1_024
	// bulkChunk is how many rows are read at once at least.
	bulkChunk = 64
	// bulkRange is from how many rows of the index of ended tasks on that follow each other a part deletes them as one range. A range
	// that does not join another costs a memory layer as much as some rows.
	bulkRange = 16
	// bulkPause is when a part comes after one that only looked, and bulkLate how far a job may lag behind its rate before the
	// rest is forgiven, both in milliseconds.
	bulkPause = 2
	bulkLate  = 200
)

// bulk is a bulk job as it is stored.
type bulk struct {
	core.BulkJob
	bulkScope
	// cursor is where the next part begins; nil: at the first row.
	cursor []byte
	// next is when the next part is due, or when an ended job is forgotten.
	next core.ShardTime
	// owed is what the rate asks for beyond whole milliseconds of next: that many parts of a millisecond, of which one has Rate.
	owed uint64
}

// bulkScope has the numbers of what a job names.
type bulkScope struct {
	// number is that of the queue that the job names, at its start; 0: it names none.
	number uint32
	// batch is that of the batch; 0: it names none.
	batch uint64
}

// applyBulkStart begins a job.
func (m *Machine) applyBulkStart(tx core.Txn, c *core.ApplyContext, op *core.BulkStart) (core.OpResult, core.Fact, error) {
	if fact := notYet(c, "runs bulk jobs"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	if fact := checkBulk(op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	if fact := checkBulkShare(c, op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	if op.Tasks.State == core.Blocked {
		if fact := notShared(c, "lets tasks wait for tasks"); fact != nil {
			return core.OpResult{}, fact, nil
		}
	}
	if i, ok := m.bulkAt(op.ID); ok {
		if !sameBulk(&m.bulks[i].BulkStart, op) {
			return core.OpResult{}, core.AlreadyExists{Kind: "bulk", ID: op.ID.String()}, nil
		}
		return core.OpResult{Task: op.ID, Replayed: true}, nil, nil
	}
	if m.bulksRunning() == core.MaxBulkJobs {
		return core.OpResult{}, core.Exhausted{Limit: "bulk_jobs", Max: core.MaxBulkJobs}, nil
	}
	var of bulkScope
	if op.Tasks.Queue != "" {
		if l := m.lineOf(op.Tasks.Queue); l != nil {
			of.number = l.number
		}
	}
	if !op.Tasks.Batch.IsZero() {
		b, err := m.batchOf(tx, op.Tasks.Batch)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		if b != nil {
			of.batch = b.number
		}
	}
	m.startBulk(tx, c, op, of)
	return core.OpResult{Task: op.ID}, nil, nil
}

// startBulk begins a job for which there is room. of has the numbers of what it names: where one is not there, it has ended already.
func (m *Machine) startBulk(tx core.Txn, c *core.ApplyContext, op *core.BulkStart, of bulkScope) {
	j := bulk{
		BulkJob: core.BulkJob{BulkStart: kept(op), By: c.Principal, State: core.BulkRunning, Started: c.Stamp}, bulkScope: of, next: c.Stamp,
	}
	j.Rate, j.Reason = cmp.Or(op.Rate, core.DefaultBulkRate), cutReason(op.Reason)
	if op.Tasks.Queue != "" && of.number == 0 || !op.Tasks.Batch.IsZero() && of.batch == 0 {
		// The queue, or the batch, may be there in another partition: here there is nothing to do.
		j.State, j.Ended, j.next = core.BulkDone, c.Stamp, c.Stamp.Add(core.BulkKept)
	}
	m.log.bulked(m)
	m.dropOldBulk(tx)
	i, _ := m.bulkAt(op.ID)
	m.bulks = slices.Insert(m.bulks, i, j)
	m.saveBulk(tx, &m.bulks[i])
}

// checkBulk refuses what a job may not say. The edge refuses it with the field that is at fault; this holds for entries.
func checkBulk(op *core.BulkStart) core.Fact {
	states := op.Action.States()
	q := &op.Tasks
	switch {
	case op.ID.IsZero():
		return core.Invalid{Field: "id", Message: "is required"}
	case states == nil:
		return core.Invalid{Field: "action", Message: "must be cancel, retry, delete or prioritize"}
	case q.State != 0 && !slices.Contains(states, q.State):
		return core.Invalid{Field: "filter.state", Message: fmt.Sprintf("must be a state that the action is about, of which %s is not one", q.State)}
	case op.Priority > maxPriority:
		return core.Invalid{Field: "priority", Message: fmt.Sprintf("must be at most %d", maxPriority)}
	case op.Rate > core.MaxBulkRate:
		return core.TooLarge{Field: "rate", Limit: "bulk_rate", Max: core.MaxBulkRate}
	case len(q.Queue) > maxName || len(q.Kind) > maxName:
		return core.Invalid{Field: "filter.queue", Message: fmt.Sprintf("must have at most %d characters", maxName)}
	}
	return checkLabels(q.Labels)
}

// checkBulkShare refuses what a job may not say of where its tasks go, and of what becomes of their payloads.
func checkBulkShare(c *core.ApplyContext, op *core.BulkStart) core.Fact {
	if !op.HasShare() {
		return nil
	}
	if fact := notYetShared(c, "to_queue"); fact != nil {
		return fact
	}
	switch {
	case op.Action != core.BulkRetry && op.ToQueue != "":
		return core.Invalid{Field: "to_queue", Message: "must be empty unless tasks are retried"}
	case op.Action != core.BulkRetry && len(op.Patch) > 0:
		return core.Invalid{Field: "patch", Message: "must be empty unless tasks are retried"}
	case len(op.ToQueue) > maxName:
		return core.Invalid{Field: "to_queue", Message: fmt.Sprintf("must have at most %d characters", maxName)}
	case len(op.Patch) > core.MaxBulkPatch:
		return core.TooLarge{Field: "patch", Limit: "patch_bytes", Max: core.MaxBulkPatch}
	case len(op.Patch) > 0 && !(&jsonText{b: op.Patch}).whole():
		return core.Invalid{Field: "patch", Message: "must be JSON"}
	}
	return nil
}

// kept is a start as it is kept: its patch lies in memory of its own.
func kept(op *core.BulkStart) core.BulkStart {
	out := *op
	out.Patch = bytes.Clone(op.Patch)
	return out
}

// sameBulk reports whether two starts ask for the same. What was counted before may differ.
func sameBulk(a, b *core.BulkStart) bool {
	x, y := *a, *b
	x.Matched, y.Matched, x.Exact, y.Exact = 0, 0, false, false
	x.Rate, y.Rate = cmp.Or(x.Rate, core.DefaultBulkRate), cmp.Or(y.Rate, core.DefaultBulkRate)
	x.Reason, y.Reason = cutReason(x.Reason), cutReason(y.Reason)
	same := bytes.Equal(x.Patch, y.Patch)
	x.Patch, y.Patch = nil, nil
	return same && reflect.DeepEqual(x, y)
}

// applyBulkStop ends a job that runs.
func (m *Machine) applyBulkStop(tx core.Txn, c *core.ApplyContext, op *core.BulkStop) (core.OpResult, core.Fact) {
	if fact := notYet(c, "runs bulk jobs"); fact != nil {
		return core.OpResult{}, fact
	}
	i, ok := m.bulkAt(op.ID)
	switch {
	case !ok:
		return core.OpResult{}, core.NotFound{Kind: "bulk", ID: op.ID.String()}
	case m.bulks[i].State != core.BulkRunning:
		return core.OpResult{Task: op.ID, Replayed: true}, nil
	}
	m.log.bulked(m)
	m.endBulk(tx, &m.bulks[i], core.BulkStopped, c.Stamp)
	return core.OpResult{Task: op.ID}, nil
}

// bulkAt finds a job by its id, or the place where it would stand.
func (m *Machine) bulkAt(id core.TaskID) (int, bool) {
	return slices.BinarySearchFunc(m.bulks, id, func(j bulk, id core.TaskID) int { return slices.Compare(j.ID[:], id[:]) })
}

// bulksRunning counts the jobs that have not ended.
func (m *Machine) bulksRunning() (n int) {
	for i := range m.bulks {
		if m.bulks[i].State == core.BulkRunning {
			n++
		}
	}
	return n
}

// dropOldBulk makes room for one more job: of those that have ended, the one that is forgotten first goes when there are too many.
func (m *Machine) dropOldBulk(tx core.Txn) {
	oldest, ended := -1, 0
	for i := range m.bulks {
		if m.bulks[i].State == core.BulkRunning {
			continue
		}
		if ended++; oldest < 0 || m.bulks[i].next < m.bulks[oldest].next {
			oldest = i
		}
	}
	if ended >= core.MaxBulkKept {
		m.dropBulk(tx, oldest)
	}
}

// dropBulk forgets a job.
func (m *Machine) dropBulk(tx core.Txn, i int) {
	m.key = keys.AppendBulk(m.key[:0], m.p, m.bulks[i].ID)
	tx.Delete(m.mem.own(m.key))
	m.bulks = slices.Delete(m.bulks, i, i+1)
}

// endBulk ends a job. It is known for a while.
func (m *Machine) endBulk(tx core.Txn, j *bulk, how core.BulkState, at core.ShardTime) {
	j.State, j.Ended, j.next, j.cursor = how, at, at.Add(core.BulkKept), nil
	m.saveBulk(tx, j)
}

// saveBulk stores a job.
func (m *Machine) saveBulk(tx core.Txn, j *bulk) {
	m.key = keys.AppendBulk(m.key[:0], m.p, j.ID)
	tx.Set(m.mem.own(m.key), appendBulk(nil, j))
}

// openBulks reads the jobs.
func (m *Machine) openBulks(v core.View) error {
	from, to := keys.BulkRange(m.p)
	return core.ScanRows(v, from, to, func(_, value []byte) (bool, error) {
		j, err := decodeBulk(value)
		m.bulks = append(m.bulks, j)
		return true, err
	})
}

// bulkDue is when the next part of a job is due, or one that ended is forgotten.
func (m *Machine) bulkDue() core.ShardTime {
	due := core.Never
	for i := range m.bulks {
		due = min(due, m.bulks[i].next)
	}
	return due
}

// tickBulk does parts of the jobs that are due, the one that waits longest first, up to budget and bulkActs tasks.
func (m *Machine) tickBulk(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	rows := bulkRows
	budget = min(budget, bulkActs)
	for used < budget && rows > 0 {
		due := -1
		for i := range m.bulks {
			if at := m.bulks[i].next; at <= c.Stamp && (due < 0 || at < m.bulks[due].next) {
				due = i
			}
		}
		if due < 0 {
			return used, nil
		}
		if m.bulks[due].State != core.BulkRunning {
			m.dropBulk(tx, due)
			used++
			continue
		}
		acted, looked, err := m.bulkPart(tx, c, &m.bulks[due], budget-used, rows)
		if err != nil {
			return used, fmt.Errorf("bulk job %s: %w", m.bulks[due].ID, err)
		}
		used += acted + 1
		rows -= looked
	}
	return used, nil
}

// bulkPart does the next part of a job: on up to most tasks, looking at up to rows rows.
func (m *Machine) bulkPart(tx core.Txn, c *core.ApplyContext, j *bulk, most, rows int) (acted, looked int, err error) {
	if l := m.lineOf(j.Tasks.Queue); j.number != 0 && (l == nil || l.number != j.number) {
		m.endBulk(tx, j, core.BulkStopped, c.Stamp)
		return 0, 0, nil
	}
	most = min(most, max(int(j.Rate)/20, 1))
	w := newBulkWalk(tx, m.p, &j.BulkStart, j.bulkScope, m.shift, j.Started, m)
	by := *c
	by.Principal = j.By
	end := false
	// Each look at the oldest passes by the rows that this part has deleted: one look at its end is enough.
	m.looksLate = true
	var run rowRun
	defer func() {
		m.dropRun(tx, &run)
		err = cmp.Or(err, m.seekLate(tx))
	}()
	for acted < most && looked < rows && !end {
		var found []bulkRow
		if found, end, err = w.next(j.cursor, min(rows-looked, max(most-acted, bulkChunk))); err != nil {
			return acted, looked, err
		}
		for _, r := range found {
			if acted == most {
				end = false
				break
			}
			looked++
			before := j.cursor
			j.cursor = r.after
			rec, ok, err := w.match(r.task)
			if err != nil {
				return acted, looked, err
			}
			if ok {
				acted++
				m.looked.id, m.looked.rec, m.looked.ended = r.task, &rec, r.ended
				err := m.bulkAct(tx, &by, j, r.task)
				m.looked.rec, m.looked.ended = nil, nil
				if err != nil {
					return acted, looked, err
				}
			}
			if !m.looked.leaves || len(run.rows) > 0 && run.rows[0][0] != r.after[0] {
				m.dropRun(tx, &run)
			}
			if m.looked.leaves {
				m.looked.leaves = false
				run.add(before, r.after)
			}
		}
	}
	j.Looked += uint64(looked)
	if end {
		m.endBulk(tx, j, core.BulkDone, c.Stamp)
		return acted, looked, nil
	}
	if acted == 0 {
		j.next = c.Stamp.Add(bulkPause)
	} else {
		owed := uint64(acted)*1000 + j.owed
		j.next = max(j.next, c.Stamp.Add(-bulkLate)).Add(core.Millis(owed / uint64(j.Rate)))
		j.owed = owed % uint64(j.Rate)
	}
	m.saveBulk(tx, j)
	return acted, looked, nil
}

// rowRun is rows of the index of ended tasks that a part of a job takes out of it, and between which there is no other row. Rows are
// cursors of the walk.
type rowRun struct {
	// before is the row that the walk came from; nil: the first one of the run is the first of the walk.
	before []byte
	rows   [][]byte
}

// add adds the row to which the walk came from another.
func (r *rowRun) add(before, row []byte) {
	if len(r.rows) == 0 {
		r.before = before
	}
	r.rows = append(r.rows, row)
}

// dropPast deletes the row of an ended task in the index of ended tasks, whose key is in m.key. Where a bulk job came to the row, it
// is told instead that the row leaves the index, and deletes it with its neighbours.
func (m *Machine) dropPast(tx core.Txn, id core.TaskID) {
	if m.looked.leaves = m.looked.rec != nil && m.looked.id == id && m.looked.ended != nil; !m.looked.leaves {
		tx.Delete(m.mem.own(m.key))
	}
}

// dropRun deletes the rows of a run, and begins another one. The range of a long run begins behind the row before it, where the range
// of an earlier part ends: ranges that touch are one for a memory layer.
func (m *Machine) dropRun(tx core.Txn, r *rowRun) {
	n := len(r.rows)
	if n < bulkRange {
		for _, row := range r.rows {
			tx.Delete(keys.QueueAt(m.p, row[1:]))
		}
	} else {
		from := keys.QueueAt(m.p, r.rows[0][1:])
		if len(r.before) > 1 && r.before[0] == r.rows[0][0] {
			from = keys.QueueAfter(m.p, r.before[1:])
		}
		tx.DeleteRange(from, keys.QueueAfter(m.p, r.rows[n-1][1:]))
	}
	r.rows = r.rows[:0]
}

// seekLate looks up the oldest of the ended tasks of each list that a part took some from.
func (m *Machine) seekLate(v core.View) (err error) {
	m.looksLate = false
	for _, p := range m.late {
		err = cmp.Or(err, m.afterPast(v, p, p.oldest))
	}
	m.late = m.late[:0]
	return err
}

// bulkAct does to one task what a job is about, and counts how it went.
func (m *Machine) bulkAct(tx core.Txn, c *core.ApplyContext, j *bulk, id core.TaskID) (err error) {
	var fact core.Fact
	switch j.Action {
	case core.BulkCancel:
		_, fact, err = m.applyCancel(tx, c, &core.TaskCancel{Task: id, Reason: j.Reason, Force: j.Force})
	case core.BulkRetry:
		_, fact, err = m.redrive(tx, c, id, j.ToQueue, j.Patch)
	case core.BulkDelete:
		_, fact, err = m.applyDelete(tx, c, &core.TaskDelete{Task: id})
	case core.BulkPrioritize:
		_, fact, err = m.applyUpdate(tx, c, &core.TaskUpdate{Task: id, HasPriority: true, Priority: j.Priority})
	default:
		err = errs.Corruptf("action %d", j.Action)
	}
	if err != nil || fact == nil {
		j.Done++
		return err
	}
	code := fact.Code().String()
	for i := range j.Refused {
		if j.Refused[i].Code == code {
			j.Refused[i].Count++
			return nil
		}
	}
	j.Refused = append(j.Refused, core.BulkRefused{Code: code, Count: 1})
	return nil
}

// appendBulk writes a job.
func appendBulk(b []byte, j *bulk) []byte {
	q := &j.Tasks
	form := formBulk
	switch {
	case !q.Batch.IsZero():
		form = formBulkBatch
	case j.HasShare():
		form = formBulkMore
	}
	b = append(append(append(b, form), j.ID[:]...), byte(j.Action), byte(j.State), byte(q.State), j.Priority, boolByte(j.Force), boolByte(j.Exact))
	b = putString(putString(putString(putString(b, q.Queue), q.Kind), q.Worker), q.Unique)
	b = putUint(b, uint64(len(q.Labels)))
	for _, l := range q.Labels {
		b = putString(putString(b, l.Name), l.Value)
	}
	b = putFixed(putInt(putInt(b, int64(q.From)), int64(q.To)), uint64(q.Fingerprint))
	b = putString(putString(putUint(b, uint64(j.Rate)), j.Reason), j.By)
	b = putInt(putInt(putInt(b, int64(j.Started)), int64(j.Ended)), int64(j.next))
	b = putUint(putUint(putUint(b, j.Matched), j.Looked), j.Done)
	b = putString(putUint(putUint(b, uint64(j.number)), j.owed), string(j.cursor))
	b = putUint(b, uint64(len(j.Refused)))
	for _, r := range j.Refused {
		b = putUint(putString(b, r.Code), r.Count)
	}
	if form != formBulk {
		b = putString(putString(b, j.ToQueue), string(j.Patch))
	}
	if form == formBulkBatch {
		b = putUint(append(b, q.Batch[:]...), j.batch)
	}
	return b
}

// decodeBulk reads what appendBulk wrote.
func decodeBulk(b []byte) (j bulk, err error) {
	form := formBulk
	if len(b) > 0 && (b[0] == formBulkMore || b[0] == formBulkBatch) {
		form = b[0]
	}
	r := read(b, form)
	j.ID = r.id()
	q := &j.Tasks
	j.Action, j.State, q.State, j.Priority = core.BulkAction(r.byte()), core.BulkState(r.byte()), core.State(r.byte()), r.byte()
	j.Force, j.Exact = r.byte() != 0, r.byte() != 0
	q.Queue, q.Kind, q.Worker, q.Unique = r.string(), r.string(), r.string(), r.string()
	for n := r.uint(); n > 0 && !r.bad; n-- {
		q.Labels = append(q.Labels, core.Label{Name: r.string(), Value: r.string()})
	}
	q.From, q.To, q.Fingerprint = core.ShardTime(r.int()), core.ShardTime(r.int()), core.Fingerprint(r.fixed())
	j.Rate, j.Reason, j.By = r.u32(), r.string(), r.string()
	j.Started, j.Ended, j.next = core.ShardTime(r.int()), core.ShardTime(r.int()), core.ShardTime(r.int())
	j.Matched, j.Looked, j.Done = r.uint(), r.uint(), r.uint()
	j.number, j.owed = r.u32(), r.uint()
	if cursor := r.string(); cursor != "" {
		j.cursor = []byte(cursor)
	}
	for n := r.uint(); n > 0 && !r.bad; n-- {
		j.Refused = append(j.Refused, core.BulkRefused{Code: r.string(), Count: r.uint()})
	}
	if form != formBulk {
		j.ToQueue = r.string()
		if patch := r.string(); patch != "" {
			j.Patch = []byte(patch)
		}
	}
	if form == formBulkBatch {
		q.Batch, j.batch = r.id(), r.uint()
	}
	return j, r.done("bulk job")
}

// boolByte is 1 for true.
func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}
