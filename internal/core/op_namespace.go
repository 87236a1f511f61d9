package core

import "math"

// A namespace is removed in steps, because its partitions lie in several shards. The directory marks it, and gives the
// removal a number. Each partition is closed under that number, which it refuses while it holds something. When all are closed
// the namespace leaves the directory, and only then its partitions are cleared; or, when one holds something, all are opened
// again, and the mark goes. A node that goes on with a removal that was left unfinished takes a larger number, and every op of
// a smaller one is refused from then on.

// NamespaceStep is what a NamespaceRemove does in the directory. Numbers are stored and never reused.
type NamespaceStep uint8

// The steps in the directory.
const (
	RemovalBegin  NamespaceStep = 1 // mark the namespace, under a number above all before
	RemovalFinish NamespaceStep = 2 // take it out of the directory: all partitions are closed
	RemovalAbort  NamespaceStep = 3 // take the mark away: all partitions are open
	RemovalForget NamespaceStep = 4 // take the mark of one that is finished away: all partitions are cleared
)

// PartitionStep is what a PartitionRemove does in a partition. Numbers are stored and never reused.
type PartitionStep uint8

// The steps in a partition.
const (
	PartitionClose PartitionStep = 1 // take no more ops; refused while the partition holds something
	PartitionOpen  PartitionStep = 2 // take ops again, as before
	PartitionClear PartitionStep = 3 // delete what is left of a closed partition, for good
)

// NamespaceRemove takes a removal a step on in the directory. It belongs to the system partition of shard 0, alone in its
// commit. Entries before FormatQueues have none.
type NamespaceRemove struct {
	Step      NamespaceStep
	Tenant    string
	Name      string
	Namespace NamespaceID // RemovalBegin: only the namespace with this number, 0 = any; else the one that the removal is of
	ID        uint64      // of the removal; 0 for RemovalBegin, which answers it
}

// PartitionRemove takes a removal a step on in the commit's partition, alone in its commit. Entries before FormatQueues have
// none.
type PartitionRemove struct {
	Step PartitionStep
	ID   uint64 // of the removal
}

// Kind returns the op's number.
func (*NamespaceRemove) Kind() OpKind { return OpNamespaceRemove }

// Kind returns the op's number.
func (*PartitionRemove) Kind() OpKind { return OpPartitionRemove }

// factNotEmpty numbers NotEmpty in an encoded result.
const factNotEmpty byte = 20

// removalOp writes an op of the removal of a namespace.
func (w *writer) removalOp(op Op) {
	switch op := op.(type) {
	case *NamespaceRemove:
		w.byte(byte(op.Step))
		w.name(op.Tenant)
		w.name(op.Name)
		w.uint(uint64(op.Namespace))
		w.uint(op.ID)
	case *PartitionRemove:
		w.byte(byte(op.Step))
		w.uint(op.ID)
	}
}

// removalOp reads an op of the removal of a namespace.
func (r *reader) removalOp(kind OpKind) Op {
	if kind == OpPartitionRemove {
		return &PartitionRemove{Step: PartitionStep(r.byte()), ID: r.uint()}
	}
	return &NamespaceRemove{
		Step: NamespaceStep(r.byte()), Tenant: r.name(), Name: r.name(), Namespace: NamespaceID(r.max(math.MaxUint32)), ID: r.uint(),
	}
}

// notEmpty writes the fact's number and the kinds of what is held.
func (w *writer) notEmpty(f NotEmpty) {
	w.byte(factNotEmpty)
	w.uint(uint64(len(f.Held)))
	for _, what := range f.Held {
		w.text(what)
	}
}

// notEmpty reads what follows the number.
func (r *reader) notEmpty() Fact {
	var f NotEmpty
	for range r.count(1) {
		f.Held = append(f.Held, r.text())
	}
	return f
}
