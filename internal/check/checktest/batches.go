package checktest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// batches makes commits about batches, of which there are few at a time, so that they fill, are sealed and finish.
type batches struct {
	rand *rand.Rand
	next uint64
	open map[core.Partition][]core.TaskID // newest last
}

// id draws an id that was not there before.
func (w *batches) id(p core.Partition, stamp core.ShardTime, kind byte) core.TaskID {
	w.next++
	return core.NewTaskID(int64(stamp), p.Index, [9]byte{kind, 6: byte(w.next >> 8), 7: byte(w.next)})
}

// commit draws a commit. world has the ids that others act on.
func (w *batches) commit(p core.Partition, stamp core.ShardTime, world *world) core.Commit {
	c := core.Commit{Partition: p, Principal: "batcher"}
	open := w.open[p]
	if len(open) == 0 || w.rand.IntN(5) == 0 {
		op := w.opening(p, stamp)
		if len(open) > 0 && w.rand.IntN(6) == 0 {
			op.ID = recent(w.rand, open)
		}
		w.open[p] = append(open, op.ID)
		c.Ops = []core.Op{op}
		return c
	}
	id := recent(w.rand, open)
	switch n := w.rand.IntN(12); {
	case n < 6:
		for range 1 + w.rand.IntN(3) {
			c.Ops = append(c.Ops, w.create(p, stamp, id, world))
		}
		if w.rand.IntN(3) == 0 {
			c.Ops = append(c.Ops, &core.BatchSeal{ID: id})
		}
		if w.rand.IntN(8) == 0 { // it is taken back
			c.Ops = append(c.Ops, &core.TaskDelete{Task: w.id(p, stamp, 'n')})
		}
	case n < 9:
		c.Ops = []core.Op{&core.BatchSeal{ID: id}}
	case n < 10:
		c.Ops = []core.Op{&core.BatchCancel{ID: id, Reason: "drawn", Force: w.rand.IntN(2) == 0, Rate: uint32(w.rand.IntN(2) * 5)}}
	case n < 11:
		c.Ops = []core.Op{&core.BulkStart{
			ID: w.id(p, stamp, 'j'), Action: pick(w.rand, []core.BulkAction{core.BulkRetry, core.BulkCancel}), Tasks: core.TaskFilter{Batch: id},
		}}
	default:
		c.Ops = []core.Op{w.create(p, stamp, w.id(p, stamp, 'u'), world)} // of a batch that is not there
	}
	return c
}

// opening draws a batch. Some say what they may not.
func (w *batches) opening(p core.Partition, stamp core.ShardTime) *core.BatchOpen {
	op := &core.BatchOpen{ID: w.id(p, stamp, 'b')}
	if w.rand.IntN(3) == 0 {
		op.Labels = someLabels(w.rand)
	}
	follow := func() *core.TaskCreate {
		return &core.TaskCreate{Queue: pick(w.rand, []string{"mail", "img"}), Payload: []byte{byte(w.rand.IntN(3))}, Priority: uint8(w.rand.IntN(3)), Lease: 5000}
	}
	if w.rand.IntN(4) > 0 {
		op.OnDone = follow()
	}
	if w.rand.IntN(2) == 0 {
		op.OnSuccess = follow()
	}
	switch w.rand.IntN(40) {
	case 0:
		op.ID = core.TaskID{}
	case 1:
		op.OnDone = &core.TaskCreate{Queue: "mail", Delay: 1}
	case 2:
		op.OnSuccess = &core.TaskCreate{Queue: "mail", Priority: 10}
	case 3:
		op.OnSuccess = &core.TaskCreate{Queue: "mail", Batch: w.id(p, stamp, 'x')}
	}
	return op
}

// create draws a task of a batch, or one that was made before.
func (w *batches) create(p core.Partition, stamp core.ShardTime, batch core.TaskID, world *world) core.Op {
	op := &core.TaskCreate{
		ID: w.id(p, stamp, 't'), Queue: pick(w.rand, []string{"mail", "img"}), Payload: []byte("b"), Batch: batch, Lease: core.Millis(1000 + w.rand.IntN(4000)),
		MaxAttempts: int32(1 + w.rand.IntN(2)),
	}
	if ids := world.ids[p]; len(ids) > 0 && w.rand.IntN(10) == 0 {
		op.After = []core.After{{Task: recent(w.rand, ids)}}
		op.OnDepFailure = core.DepFailure(w.rand.IntN(3))
	}
	if w.rand.IntN(10) == 0 {
		op.ID = core.TaskID{byte(1), 15: byte(w.rand.IntN(4))} // one of a few, so that creates repeat
		op.Queue, op.Lease, op.MaxAttempts, op.After, op.OnDepFailure = "mail", 1000, 1, nil, 0
	}
	world.ids[p] = append(world.ids[p], op.ID)
	return op
}

// joins reports whether ops of batches can stand in a commit of others: one that settles a task, or has several ops.
func joins(c *core.Commit) bool {
	if c.Partition == (core.Partition{}) || len(c.Ops) == 0 {
		return false
	}
	switch c.Ops[0].(type) {
	case *core.TaskComplete, *core.TaskFail, *core.TaskSnooze:
		return true
	case *core.TaskCreate, *core.KVPut, *core.KVDelete, *core.KVCheck:
		return len(c.Ops) > 1
	}
	return false
}

// batchEntry adds a commit of batches to an entry, at times, and with Options.Join ops of batches to commits of others.
func (r *run) batchEntry(e *core.Entry) {
	for i := range e.Commits {
		if c := &e.Commits[i]; r.o.Join && joins(c) && r.batches.rand.IntN(4) == 0 {
			c.Ops = slices.Concat(c.Ops, r.batches.commit(c.Partition, e.Stamp, r.world).Ops)
			r.stats.Joined++
		}
	}
	if r.batches.rand.IntN(3) == 0 {
		e.Commits = append(e.Commits, r.batches.commit(pick(r.batches.rand, r.world.parts), e.Stamp, r.world))
	}
}

// countBatches counts what became of batches.
func (s *Stats) countBatches(c *core.Commit, got *core.Result) {
	for i, op := range c.Ops {
		create, isCreate := op.(*core.TaskCreate)
		if got.Refusal == nil && i < len(got.Ops) && !got.Ops[i].Replayed && ofBatches(op) && c.Ops[0].Kind() == core.OpTaskComplete {
			s.BatchEffects++
		}
		switch {
		case got.Refusal != nil:
			if _, closed := got.Refusal.Fact.(core.WrongBatch); closed {
				s.BatchClosed++
			}
			return
		case i >= len(got.Ops) || got.Ops[i].Replayed:
		case isCreate && !create.Batch.IsZero():
			s.BatchTasks++
		case op.Kind() == core.OpBatchSeal:
			s.BatchSeals++
		case op.Kind() == core.OpBatchCancel:
			s.BatchCancels++
		}
	}
}

// ofBatches reports whether an op opens, seals or cancels a batch.
func ofBatches(op core.Op) bool {
	switch op.(type) {
	case *core.BatchOpen, *core.BatchSeal, *core.BatchCancel:
		return true
	}
	return false
}

func (s *Stats) addBatches(o *Stats) {
	s.BatchTasks += o.BatchTasks
	s.BatchSeals += o.BatchSeals
	s.BatchCancels += o.BatchCancels
	s.BatchClosed += o.BatchClosed
	s.BatchFollows += o.BatchFollows
}

// missesBatches reports whether something that batches do never came.
func (s *Stats) missesBatches() bool {
	return s.BatchTasks == 0 || s.BatchSeals == 0 || s.BatchCancels == 0 || s.BatchClosed == 0 || s.BatchFollows == 0
}

// auditBatches reads the batches of a partition back.
func (r *run) auditBatches(p core.Partition) error {
	list, _, err := queue.Batches(r.tx, p, 0, 100_000, 1<<30)
	if err == nil {
		err = r.model.AuditBatches(p, list)
	}
	if err != nil {
		return fmt.Errorf("partition %s: %w", p, err)
	}
	for i := range list {
		if !list[i].DoneTask.IsZero() || !list[i].SuccessTask.IsZero() {
			r.stats.BatchFollows++
		}
	}
	return nil
}
