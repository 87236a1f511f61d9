package queue

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A batch counts the tasks that were added to it by what became of them. The state record of a task has the number of its batch, so that
// a task without one costs nothing here, and one with a batch is counted without a look at anything but the counts. What an op or a tick
// does to tasks of batches is gathered, and counted at its end: there a batch whose last task has ended is finished (batch_follow.go). The
// counts are read once per entry that changes them, and written once, at its end. All this is of format 4.

// batchRow is what changes about a batch.
type batchRow struct {
	id core.TaskID
	// opened is the index of the entry that made the batch: the ids of its follow-ups depend on it.
	opened uint64
	// Its tasks, ever, and those of them that are running or have ended, by state. The others wait.
	total, running, completed, dead, cancelled uint64
	// When it was sealed, also by a cancel; 0: it takes tasks.
	sealed core.ShardTime
	// When all had ended; 0: they have not. It is decided once.
	finished core.ShardTime
	// When its last follow-up was made, or it needed none; 0: some are to be made. It is kept from then on.
	settled core.ShardTime
	// Who asked for its cancel; its time is 0 when none was asked for.
	cancel core.CancelAsked
	// Which follow-ups it was opened with, which of them are to be made now, and which were made.
	wants, due, made followUps
	// Why the last try to make one was refused; empty: it was not.
	code, message string
	// How many tries were refused, and when the next one is.
	tries uint32
	retry core.ShardTime
}

// followUps is a set of the tasks that a batch makes. Numbers are stored.
type followUps byte

const (
	// Made when the batch finishes.
	followDone followUps = 1 << iota
	// Made then, if each of its tasks was completed.
	followSuccess
)

// waiting is how many of the tasks wait.
func (r *batchRow) waiting() uint64 {
	return r.total - r.running - r.completed - r.dead - r.cancelled
}

// isOver reports whether the batch gets no more tasks and all of them have ended.
func (r *batchRow) isOver() bool {
	return r.sealed != 0 && r.total == r.completed+r.dead+r.cancelled
}

// state is that of the batch as clients see it.
func (r *batchRow) state() core.BatchState {
	switch {
	case r.finished != 0:
		return core.BatchFinished
	case r.cancel.At != 0:
		return core.BatchCancelling
	case r.sealed != 0:
		return core.BatchSealed
	}
	return core.BatchIsOpen
}

// count returns the counter of a state; nil for the states of tasks that wait, which have none.
func (r *batchRow) count(s core.State) *uint64 {
	switch s {
	case core.Running:
		return &r.running
	case core.Completed:
		return &r.completed
	case core.Dead:
		return &r.dead
	case core.Cancelled:
		return &r.cancelled
	}
	return nil
}

// batch is a batch that the entry at hand has read.
type batch struct {
	// number is unique in the partition, and rises.
	number uint64
	batchRow
	// stored is what is stored of it; the zero row: nothing yet.
	stored batchRow
	// saved is the mark under which the journal saved it last.
	saved uint64
	// It was removed.
	gone bool
}

// batches is how many batches there are, stored as one record.
type batches struct {
	// Those that have follow-ups to make, or tasks that may have not ended, and those that are kept after that.
	open, kept uint64
}

// batchMove is a step of a task of a batch. Tasks that wait are all counted as core.Ready; from is 0 for one that is added.
type batchMove struct {
	number   uint64
	from, to core.State
}

// savedBatch is a batch as it was at the mark, or when it was first touched after it.
type savedBatch struct {
	batch *batch
	row   batchRow
	gone  bool
}

// batchState is what a Machine knows of batches.
type batchState struct {
	// count is how many there are now, and stored as End last wrote it.
	count, stored batches
	// end is when the first of those that are kept was settled, or Never. It is exact.
	end core.ShardTime
	// Those that the entry at hand has read, by number, by id and in order. nil until it reads one.
	byNumber map[uint64]*batch
	byID     map[core.TaskID]*batch
	read     []*batch
	// moves are steps that were not counted yet, and check the batches that may be over, both of the op or tick at hand.
	moves []batchMove
	check []*batch
}

// moveInBatch notes a step of a task of a batch.
func (m *Machine) moveInBatch(number uint64, from, to core.State) {
	m.batches.moves = append(m.batches.moves, batchMove{number, from, to})
}

// openBatches reads how many batches there are.
func (m *Machine) openBatches(v core.View) error {
	value, ok, err := v.Get(keys.Batches(m.p))
	if err != nil || !ok {
		return err
	}
	if m.batches.count, err = decodeBatches(value); err != nil {
		return err
	}
	m.batches.stored = m.batches.count
	return m.seekBatchEnd(v, minTime)
}

// batchAt returns the batch of a number; nil: it was removed.
func (m *Machine) batchAt(v core.View, number uint64) (*batch, error) {
	if b := m.batches.byNumber[number]; b != nil {
		if b.gone {
			return nil, nil
		}
		return b, nil
	}
	m.key = keys.AppendBatchCounts(m.key[:0], m.p, number)
	value, ok, err := v.Get(m.key)
	if err != nil || !ok {
		return nil, err
	}
	b := &batch{number: number}
	if b.batchRow, err = decodeBatchRow(value); err != nil {
		return nil, fmt.Errorf("load batch number %d: %w", number, err)
	}
	b.stored = b.batchRow
	m.keepBatch(b)
	return b, nil
}

// batchOf returns the batch of an id; nil: there is none.
func (m *Machine) batchOf(v core.View, id core.TaskID) (*batch, error) {
	if b := m.batches.byID[id]; b != nil && !b.gone {
		return b, nil
	}
	m.key = keys.AppendBatch(m.key[:0], m.p, id)
	value, ok, err := v.Get(m.key)
	if err != nil || !ok {
		return nil, err
	}
	made, err := decodeBatchMade(value)
	if err != nil {
		return nil, fmt.Errorf("load batch %s: %w", id, err)
	}
	b, err := m.batchAt(v, made.number)
	if err == nil && b == nil {
		err = errs.Corruptf("batch %s has number %d, which is not there", id, made.number)
	}
	return b, err
}

// keepBatch keeps a batch that was read or made for the rest of the entry.
func (m *Machine) keepBatch(b *batch) {
	s := &m.batches
	if s.byNumber == nil {
		s.byNumber, s.byID = map[uint64]*batch{}, map[core.TaskID]*batch{}
	}
	s.byNumber[b.number], s.byID[b.id] = b, b
	s.read = append(s.read, b)
}

// touchBatch notes that a batch is about to change.
func (m *Machine) touchBatch(b *batch) { m.log.batch(b) }

// followBatches counts the steps of the op or tick at hand, and finishes the batches that are over by that.
func (m *Machine) followBatches(tx core.Txn, c *core.ApplyContext) error {
	s := &m.batches
	for _, step := range s.moves {
		b, err := m.batchAt(tx, step.number)
		if err != nil {
			return err
		}
		if b == nil { // it was kept long enough: its tasks are not counted any more
			continue
		}
		m.touchBatch(b)
		if err := b.move(step); err != nil {
			return err
		}
		if step.to.Terminal() {
			s.check = append(s.check, b)
		}
	}
	s.moves = emptied(s.moves)
	for _, b := range s.check {
		if b.finished == 0 && !b.gone && b.isOver() {
			if err := m.finishBatch(tx, c, b); err != nil {
				return fmt.Errorf("finish batch %s: %w", b.id, err)
			}
		}
	}
	clear(s.check)
	s.check = s.check[:0]
	return nil
}

// move counts one step.
func (b *batch) move(step batchMove) error {
	if step.from == 0 {
		b.total++
	} else if n := b.count(step.from); n != nil {
		if *n == 0 {
			return errs.Corruptf("batch %s counts no task %s, and one leaves that state", b.id, step.from)
		}
		*n--
	} else if b.waiting() == 0 {
		return errs.Corruptf("batch %s counts no task that waits, and one leaves that state", b.id)
	}
	if n := b.count(step.to); n != nil {
		*n++
	}
	return nil
}

// endBatches writes the batches that the entry has changed.
func (m *Machine) endBatches(tx core.Txn) {
	s := &m.batches
	for _, b := range s.read {
		if b.gone || b.batchRow == b.stored {
			continue
		}
		m.key = keys.AppendBatchCounts(m.key[:0], m.p, b.number)
		m.value = appendBatchRow(m.value[:0], &b.batchRow)
		m.put(tx, b.stored != batchRow{})
	}
	clear(s.read)
	s.read, s.byNumber, s.byID = s.read[:0], nil, nil
	if s.count != s.stored {
		s.stored = s.count
		m.value = appendBatches(m.value[:0], s.count)
		tx.Set(keys.Batches(m.p), m.mem.own(m.value))
	}
}

// undoBatches brings batches back to what they were at the mark.
func (m *Machine) undoBatches() {
	j, s := &m.log, &m.batches
	for i := len(j.batches) - 1; i >= 0; i-- {
		was := &j.batches[i]
		was.batch.batchRow, was.batch.gone = was.row, was.gone
	}
	for _, b := range s.read[j.batchesRead:] {
		delete(s.byNumber, b.number)
		delete(s.byID, b.id)
	}
	clear(s.read[j.batchesRead:])
	s.read = s.read[:j.batchesRead]
	s.count, s.end = j.batchCount, j.batchEnd
	clear(s.check)
	s.moves, s.check = s.moves[:0], s.check[:0]
}

// roomInBatch finds the batch that a new task is to be added to.
func (m *Machine) roomInBatch(v core.View, id core.TaskID) (*batch, core.Fact, error) {
	b, err := m.batchOf(v, id)
	switch {
	case err != nil:
		return nil, nil, err
	case b == nil:
		return nil, core.NotFound{Kind: "batch", ID: id.String()}, nil
	case b.sealed != 0:
		return nil, core.WrongBatch{Batch: id, State: b.state()}, nil
	case b.total >= uint64(m.o.BatchTasks):
		return nil, core.Exhausted{Limit: "batch_tasks", Max: int64(m.o.BatchTasks)}, nil
	}
	return b, nil, nil
}

// addToBatch adds a new task to a batch: its number stands in the record, and the task in the index of the batch.
func (m *Machine) addToBatch(tx core.Txn, b *batch, id core.TaskID, rec *record) {
	rec.batch = b.number
	m.moveInBatch(b.number, 0, core.Ready)
	m.key = keys.AppendBatchTask(m.key[:0], m.p, b.number, id)
	tx.Insert(m.mem.own(m.key), nil)
}

// leaveBatch takes a task that is removed out of the index of its batch. It stays counted.
func (m *Machine) leaveBatch(tx core.Txn, id core.TaskID) error {
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	rec, ok, err := storedRecord(tx, m.key, id)
	if err != nil {
		return err
	}
	if !ok || rec.batch == 0 {
		return errs.Corruptf("task %s is of a batch, and its record names none", id)
	}
	m.key = keys.AppendBatchTask(m.key[:0], m.p, rec.batch, id)
	tx.Delete(m.mem.own(m.key))
	return nil
}
