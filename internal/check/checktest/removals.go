package checktest

import (
	"math/rand/v2"

	"github.com/millrace/millrace/internal/core"
)

// removals makes commits of namespaces that come and go: steps of their removal in any order and under any number, and a few
// keys and tasks in the partitions meanwhile. It draws from a source of its own.
type removals struct {
	rand  *rand.Rand
	last  uint64           // about the last number of a removal
	first core.NamespaceID // of the partitions at hand; those before were cleared, most of them
	tasks uint64
}

func (w *removals) commit(stamp core.ShardTime) core.Commit {
	p := core.Partition{Tenant: 3, Namespace: w.first + core.NamespaceID(w.rand.IntN(2))}
	name := pick(w.rand, []string{"a", "b"})
	near := w.last + uint64(w.rand.IntN(3))
	near -= min(near, uint64(w.rand.IntN(3)))
	switch n := w.rand.IntN(20); {
	case n < 2:
		return core.Commit{Ops: []core.Op{&core.NamespaceCreate{Tenant: name, Name: "shop", Partitions: 1, Max: 2}}}
	case n < 4:
		w.last++
		return core.Commit{Ops: []core.Op{&core.NamespaceRemove{Step: core.RemovalBegin, Tenant: name, Name: "shop", Namespace: core.NamespaceID(w.rand.IntN(3))}}}
	case n < 8:
		step := core.NamespaceStep(2 + w.rand.IntN(3))
		return core.Commit{Ops: []core.Op{&core.NamespaceRemove{Step: step, Tenant: name, Name: "shop", Namespace: core.NamespaceID(1 + w.rand.IntN(4)), ID: near}}}
	case n < 14:
		step := core.PartitionStep(1 + w.rand.IntN(2))
		if w.rand.IntN(8) == 0 {
			step = core.PartitionClear
			if w.rand.IntN(2) == 0 {
				w.first++
			}
		}
		return core.Commit{Partition: p, Ops: []core.Op{&core.PartitionRemove{Step: step, ID: near}}}
	case n < 16:
		return core.Commit{Partition: p, Ops: []core.Op{&core.KVPut{Keyspace: "k", Key: []byte("x"), Value: []byte("v")}}}
	case n < 18:
		return core.Commit{Partition: p, Ops: []core.Op{&core.KVDelete{Keyspace: "k", Key: []byte("x")}}}
	}
	w.tasks++
	id := core.NewTaskID(int64(stamp), 0, [9]byte{9, 9, byte(w.tasks >> 8), byte(w.tasks)})
	if w.rand.IntN(2) == 0 {
		return core.Commit{Partition: p, Ops: []core.Op{&core.QueueDelete{Queue: "q", Purge: true, IfVersion: -1}}}
	}
	return core.Commit{Partition: p, Principal: "tester", Ops: []core.Op{&core.TaskCreate{ID: id, Queue: "q"}}}
}
