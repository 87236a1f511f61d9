package millrace

import (
	"unicode/utf8"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// OpenBatch opens a batch in the commit's partition, as Client.OpenBatch does by itself, and returns its id. What is added after it may name
// the batch: tasks by InBatch, SealBatch and CancelBatch. Where it is the first part of a commit that says a partition, BatchID or BatchTag
// say which. The id is empty where an option is refused, and the commit fails with that.
func (tx *Tx) OpenBatch(opts ...BatchOption) (id string) {
	s, err := batchSettingsOf(tx.codec, opts)
	if err != nil {
		tx.fail(err)
		return ""
	}
	op := &millracev1.BatchOpen{Id: s.req.Id, Labels: s.req.Labels, OnDone: s.req.OnDone, OnSuccess: s.req.OnSuccess}
	if op.Id == "" { // so that others can name it
		space, home, err := tx.here()
		if err != nil {
			tx.fail(err)
			return ""
		}
		switch {
		case s.tag != "":
			home = place.Text(s.tag, space.Partitions)
		case home < 0 && s.followsPinned(func(queue string) bool { return tx.learnPinned(space, queue) }):
			home = place.Pinned
		}
		op.Id = place.IDIn(home, space.Partitions)
	}
	tx.ops = append(tx.ops, &millracev1.Op{Op: &millracev1.Op_BatchOpen{BatchOpen: op}})
	return op.Id
}

// SealBatch says that a batch of the commit's partition gets no more tasks, as Client.SealBatch does. It sees what was added before it: a
// completion that adds the last tasks of a batch can seal it.
func (tx *Tx) SealBatch(id string) {
	if !utf8.ValidString(id) {
		tx.fail(badText("id"))
		return
	}
	tx.ops = append(tx.ops, &millracev1.Op{Op: &millracev1.Op_BatchSeal{BatchSeal: &millracev1.BatchSeal{Id: id}}})
}

// CancelBatch seals a batch of the commit's partition and starts a job that cancels its tasks, as Client.CancelBatch does (needs the scope
// task:operate or admin).
func (tx *Tx) CancelBatch(id string, how BatchCancel) {
	err := how.check()
	if !utf8.ValidString(id) {
		err = badText("id")
	}
	if err != nil {
		tx.fail(err)
		return
	}
	op := &millracev1.BatchCancel{Id: id, Reason: how.Reason, Rate: uint32(how.Rate), Force: how.Force}
	tx.ops = append(tx.ops, &millracev1.Op{Op: &millracev1.Op_BatchCancel{BatchCancel: op}})
}
