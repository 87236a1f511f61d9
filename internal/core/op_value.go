package core

// The functions of this file say what an op with a trait is about, whatever its type. They ask the value only when the row of
// its kind has the trait; the types of these kinds have the method.

// settler is an op with OpSettles.
type settler interface{ hold() TaskHold }

// taskNamer is an op with OpNamesTask.
type taskNamer interface{ task() TaskID }

// oneWriter is an op with OpWritesOne.
type oneWriter interface {
	written() (in string, key []byte)
}

// keysWriter is an op with OpWritesKeys.
type keysWriter interface{ keys() KeysWritten }

// placer is an op with OpPlaced.
type placer interface {
	place(partitions int) (place uint16, one bool)
}

// repoNamer is an op of the refs service.
type repoNamer interface{ repo() string }

// Grows reports whether op asks for room on the disk beyond the records of what exists.
func Grows(op Op) bool {
	if !op.Kind().Has(OpGrows) {
		return false
	}
	txn, ok := op.(*RefTxn)
	return !ok || txn.Grows()
}

// Settled returns the lease that op ends, if it ends one.
func Settled(op Op) (hold TaskHold, ok bool) {
	if !op.Kind().Has(OpSettles) {
		return TaskHold{}, false
	}
	return op.(settler).hold(), true
}

// TaskOf returns the task that op creates or changes, if it is about one. Renewals and grants name several, and each is judged
// alone.
func TaskOf(op Op) (id TaskID, ok bool) {
	if !op.Kind().Has(OpNamesTask) {
		return TaskID{}, false
	}
	return op.(taskNamer).task(), true
}

// InPartition reports whether the tasks and the batch that op names are of the partition with a number: its own task, and those that a
// new task waits for.
func InPartition(op Op, index uint16) bool {
	if id, ok := TaskOf(op); ok && id.Partition() != index {
		return false
	}
	if id, ok := BatchOf(op); ok && id.Partition() != index {
		return false
	}
	if create, ok := op.(*TaskCreate); ok {
		for _, a := range create.After {
			if a.Task.Partition() != index {
				return false
			}
		}
	}
	return true
}

// RepoOf returns the repository that op is about, if it is one of the refs service.
func RepoOf(op Op) (name string, ok bool) {
	if op.Kind().Service() != ServiceRefs {
		return "", false
	}
	return op.(repoNamer).repo(), true
}

// WrittenOne is the one key, or point, that an op writes.
type WrittenOne struct {
	Service Service
	In      string // the keyspace, or the collection
	Key     []byte // of a point: its id
}

// WrittenBy returns the one key, or point, that op writes, if it writes one.
func WrittenBy(op Op) (w WrittenOne, ok bool) {
	kind := op.Kind()
	if !kind.Has(OpWritesOne) {
		return WrittenOne{}, false
	}
	w.Service = kind.Service()
	w.In, w.Key = op.(oneWriter).written()
	return w, true
}

// KeysWritten is how much an op changes of a keyspace.
type KeysWritten struct {
	Keyspace string
	Writes   uint64 // puts, adds and deletes; a range that is deleted is one
	Bytes    uint64 // of keys and values, as they stand in the op
}

// KeysOf returns how much op changes of a keyspace, if it changes keys. Whether it puts values, its kind says (OpPutsKeys).
func KeysOf(op Op) (w KeysWritten, ok bool) {
	if !op.Kind().Has(OpWritesKeys) {
		return KeysWritten{}, false
	}
	return op.(keysWriter).keys(), true
}

// PlaceOf returns the partition that op says it belongs to, of that many. It reports false when op says none, or is a range whose
// keys may be of several. A TaskCreate is asked itself: what it says may contradict its id.
func PlaceOf(op Op, partitions int) (place uint16, one bool) {
	if !op.Kind().Has(OpPlaced) {
		return 0, false
	}
	return op.(placer).place(partitions)
}
