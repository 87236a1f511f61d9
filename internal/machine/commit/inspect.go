package commit

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// inspect judges what the shape of a commit alone shows: too many ops, ops of another partition, one key twice.
func (m *Machine) inspect(c *core.Commit) *core.Refusal {
	if len(c.Ops)+len(c.Conditions) > m.o.MaxOps {
		return &core.Refusal{Op: core.CommitOp, Fact: core.TooLarge{Field: "ops", Limit: "commit_ops", Max: int64(m.o.MaxOps)}}
	}
	var sh shape
	if refusal := m.inspectKinds(c, &sh); refusal != nil {
		return refusal
	}
	if c.Partition == (core.Partition{}) {
		return nil
	}
	if sh.tasks {
		if refusal := inspectTasks(c); refusal != nil {
			return refusal
		}
	}
	if sh.refs {
		if refusal := inspectRefs(c); refusal != nil {
			return refusal
		}
	}
	if sh.puts {
		if refusal := inspectPuts(c); refusal != nil {
			return refusal
		}
	}
	if i := keyTwice(c.Ops, sh.writes); i >= 0 {
		field := "key"
		if c.Ops[i].Kind().Service() == core.ServiceSearch {
			field = "id"
		}
		return &core.Refusal{Op: i, Fact: core.Invalid{
			Field: fmt.Sprintf("ops[%d].%s", i, field), Reason: "duplicate_key", Message: "an op before it writes the same key",
		}}
	}
	return nil
}

// shape is what the kinds of a commit's ops show: which of the further looks at their values it needs.
type shape struct {
	// An op names a task.
	tasks bool
	// An op is of the refs service.
	refs bool
	// An op is a batch of puts.
	puts bool
	// How many ops write one key, or one point.
	writes int
}

// inspectKinds keeps the ops of the shard itself in the system partition, those of users out of it, and the timed
// work, which touches all partitions, alone in its commit.
func (m *Machine) inspectKinds(c *core.Commit, sh *shape) *core.Refusal {
	system := c.Partition == core.Partition{}
	for i, op := range c.Ops {
		kind := op.Kind()
		if refusal := m.inspectHome(c, i, kind, system); refusal != nil {
			return refusal
		}
		sh.tasks = sh.tasks || kind.Has(core.OpNamesTask)
		sh.refs = sh.refs || kind.Service() == core.ServiceRefs
		sh.puts = sh.puts || kind == core.OpKVPuts
		if kind.Has(core.OpWritesOne) {
			sh.writes++
		}
	}
	if system && (c.Fence != nil || len(c.Conditions) > 0) {
		return &core.Refusal{Op: core.CommitOp, Fact: core.Invalid{
			Field: "partition", Reason: "system", Message: "the system partition has no tasks and no keys",
		}}
	}
	return nil
}

// inspectTasks refuses tasks whose ids name another partition.
func inspectTasks(c *core.Commit) *core.Refusal {
	// All of them are listed, so that a caller can split its commit at once.
	var astray []int
	for i, op := range c.Ops {
		if !core.InPartition(op, c.Partition.Index) {
			astray = append(astray, i)
		}
	}
	if len(astray) == 0 {
		return nil
	}
	return &core.Refusal{Op: astray[0], Fact: core.WrongPartition{Ops: astray}}
}

// inspectHome judges whether an op of a kind may stand in c: by the partition, and by what else is there.
func (m *Machine) inspectHome(c *core.Commit, i int, kind core.OpKind, system bool) *core.Refusal {
	switch kind.Home() {
	case core.HomeShard:
		if !system || len(c.Ops) != 1 || c.RequestID != (core.RequestID{}) || c.Session != (core.SessionID{}) {
			return notAlone(i, "an op of the shard stands alone, in the system partition")
		}
	case core.HomeMembers:
		return m.inspectMembers(c, i)
	case core.HomeDirectory:
		switch {
		case !system || m.o.Shard != 0:
			return strays(i)
		case kind == core.OpNamespaceRemove && !stepAlone(c):
			return notAlone(i, stepHasCompany)
		}
	default:
		switch {
		case kind == core.OpQueueDelete && len(c.Ops) != 1:
			return notAlone(i, "the removal of a queue stands alone")
		case system:
			return strays(i)
		case kind == core.OpPartitionRemove && !stepAlone(c):
			return notAlone(i, stepHasCompany)
		}
	}
	return nil
}

// stepHasCompany is why a step of a removal is refused that does not have the commit for itself.
const stepHasCompany = "a step of the removal of a namespace stands alone"

// notAlone refuses op i, which must have the commit for itself.
func notAlone(i int, message string) *core.Refusal {
	return &core.Refusal{Op: i, Fact: core.Invalid{Field: "ops", Reason: "not_alone", Message: message}}
}

// strays refuses op i, which is not of the commit's partition.
func strays(i int) *core.Refusal {
	return &core.Refusal{Op: i, Fact: core.WrongPartition{Ops: []int{i}}}
}

// stepAlone reports whether the step of a removal is all that c has, so that it is neither undone nor answered from what is kept.
func stepAlone(c *core.Commit) bool {
	return len(c.Ops) == 1 && len(c.Conditions) == 0 && c.Fence == nil && c.RequestID == (core.RequestID{}) && c.Session == (core.SessionID{})
}

// keyScan is how many written keys are compared each with each before a map is cheaper.
const keyScan = 8

// writtenKey is core.WrittenOne as the key of a map.
type writtenKey struct {
	// The same name may be that of a keyspace and of a collection.
	service core.Service
	// The keyspace or the collection, and the key or the id of the point.
	in, key string
}

// keyTwice returns the first op that writes a key which an op before it writes too, or -1. writes is how many write one.
func keyTwice(ops []core.Op, writes int) int {
	if writes < 2 {
		return -1
	}
	if writes <= keyScan {
		return keyTwiceFew(ops)
	}
	seen := make(map[writtenKey]bool, writes)
	for i, op := range ops {
		w, ok := core.WrittenBy(op)
		if !ok {
			continue
		}
		k := writtenKey{w.Service, w.In, string(w.Key)}
		if seen[k] {
			return i
		}
		seen[k] = true
	}
	return -1
}

// keyTwiceFew is keyTwice for at most keyScan keys: it compares each with each.
func keyTwiceFew(ops []core.Op) int {
	for i, op := range ops {
		w, ok := core.WrittenBy(op)
		if !ok {
			continue
		}
		for _, before := range ops[:i] {
			if b, ok := core.WrittenBy(before); ok && b.Service == w.Service && b.In == w.In && bytes.Equal(b.Key, w.Key) {
				return i
			}
		}
	}
	return -1
}
