package commit

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// inspect judges what the shape of a commit alone shows: too many ops, ops of another partition, one key twice.
func (m *Machine) inspect(c *core.Commit) *core.Refusal {
	if len(c.Ops)+len(c.Conditions) > m.o.MaxOps {
		return &core.Refusal{Op: core.CommitOp, Fact: core.TooLarge{Field: "ops", Limit: "commit_ops", Max: int64(m.o.MaxOps)}}
	}
	if refusal := m.inspectSystem(c); refusal != nil {
		return refusal
	}
	if c.Partition == (core.Partition{}) {
		return nil
	}
	var strays []int
	for i, op := range c.Ops {
		if id, ok := taskOf(op); ok && id.Partition() != c.Partition.Index {
			strays = append(strays, i)
		}
	}
	if len(strays) > 0 {
		return &core.Refusal{Op: strays[0], Fact: core.WrongPartition{Ops: strays}}
	}
	if refusal := inspectRefs(c); refusal != nil {
		return refusal
	}
	if refusal := inspectPuts(c); refusal != nil {
		return refusal
	}
	if i := keyTwice(c.Ops); i >= 0 {
		field := "key"
		if s, _, _ := writtenBy(c.Ops[i]); s.service == core.OpVectorUpsert {
			field = "id"
		}
		return &core.Refusal{Op: i, Fact: core.Invalid{
			Field: fmt.Sprintf("ops[%d].%s", i, field), Reason: "duplicate_key", Message: "an op before it writes the same key",
		}}
	}
	return nil
}

// inspectSystem keeps the ops of the shard itself in the system partition, those of users out of it, and the timed
// work, which touches all partitions, alone in its commit.
func (m *Machine) inspectSystem(c *core.Commit) *core.Refusal {
	system := c.Partition == core.Partition{}
	for i, op := range c.Ops {
		switch op.(type) {
		case *core.Tick, *core.TermStart, *core.ClockShift:
			if !system || len(c.Ops) != 1 || c.RequestID != (core.RequestID{}) || c.Session != (core.SessionID{}) {
				return &core.Refusal{Op: i, Fact: core.Invalid{
					Field: "ops", Reason: "not_alone", Message: "an op of the shard stands alone, in the system partition",
				}}
			}
		case *core.MembersInit, *core.MemberChange, *core.MemberStep, *core.FormatRaise:
			if refusal := m.inspectMembers(c, i); refusal != nil {
				return refusal
			}
		case *core.NamespaceCreate, *core.TenantSet:
			if !system || m.o.Shard != 0 {
				return &core.Refusal{Op: i, Fact: core.WrongPartition{Ops: []int{i}}}
			}
		case *core.NamespaceRemove:
			if !system || m.o.Shard != 0 {
				return &core.Refusal{Op: i, Fact: core.WrongPartition{Ops: []int{i}}}
			}
			if !stepAlone(c) {
				return &core.Refusal{Op: i, Fact: notAlone}
			}
		case *core.PartitionRemove:
			if system {
				return &core.Refusal{Op: i, Fact: core.WrongPartition{Ops: []int{i}}}
			}
			if !stepAlone(c) {
				return &core.Refusal{Op: i, Fact: notAlone}
			}
		case *core.QueueDelete:
			if len(c.Ops) != 1 {
				return &core.Refusal{Op: i, Fact: core.Invalid{
					Field: "ops", Reason: "not_alone", Message: "the removal of a queue stands alone",
				}}
			}
			if system {
				return &core.Refusal{Op: i, Fact: core.WrongPartition{Ops: []int{i}}}
			}
		default:
			if system {
				return &core.Refusal{Op: i, Fact: core.WrongPartition{Ops: []int{i}}}
			}
		}
	}
	if system && (c.Fence != nil || len(c.Conditions) > 0) {
		return &core.Refusal{Op: core.CommitOp, Fact: core.Invalid{
			Field: "partition", Reason: "system", Message: "the system partition has no tasks and no keys",
		}}
	}
	return nil
}

// notAlone refuses a step of a removal that has company.
var notAlone = core.Invalid{Field: "ops", Reason: "not_alone", Message: "a step of the removal of a namespace stands alone"}

// stepAlone reports whether the step of a removal is all that c has, so that it is neither undone nor answered from what is kept.
func stepAlone(c *core.Commit) bool {
	return len(c.Ops) == 1 && len(c.Conditions) == 0 && c.Fence == nil && c.RequestID == (core.RequestID{}) && c.Session == (core.SessionID{})
}

// taskOf returns the task that op creates or changes. Renewals and grants judge each of their tasks alone.
func taskOf(op core.Op) (core.TaskID, bool) {
	switch op := op.(type) {
	case *core.TaskCreate:
		return op.ID, true
	case *core.TaskDelete:
		return op.Task, true
	case *core.TaskRunNow:
		return op.Task, true
	}
	hold, ok := settles(op)
	return hold.Task, ok
}

// keyScan is how many written keys are compared each with each before a map is cheaper.
const keyScan = 8

type writtenKey struct {
	space
	key string
}

// space is what a written key is of: a keyspace, or a collection.
type space struct {
	service core.OpKind // of what puts it
	name    string
}

// keyTwice returns the first op that writes a key which an op before it writes too, or -1.
func keyTwice(ops []core.Op) int {
	writes := 0
	for _, op := range ops {
		if _, _, ok := writtenBy(op); ok {
			writes++
		}
	}
	if writes < 2 {
		return -1
	}
	if writes <= keyScan {
		return keyTwiceFew(ops)
	}
	seen := make(map[writtenKey]bool, writes)
	for i, op := range ops {
		in, key, ok := writtenBy(op)
		if !ok {
			continue
		}
		k := writtenKey{in, string(key)}
		if seen[k] {
			return i
		}
		seen[k] = true
	}
	return -1
}

func keyTwiceFew(ops []core.Op) int {
	for i, op := range ops {
		in, key, ok := writtenBy(op)
		if !ok {
			continue
		}
		for _, before := range ops[:i] {
			if s, k, ok := writtenBy(before); ok && s == in && string(k) == string(key) {
				return i
			}
		}
	}
	return -1
}

// writtenBy returns the one key, or point, that op writes.
func writtenBy(op core.Op) (in space, key []byte, ok bool) {
	switch op := op.(type) {
	case *core.KVPut:
		return space{core.OpKVPut, op.Keyspace}, op.Key, true
	case *core.KVDelete:
		return space{core.OpKVPut, op.Keyspace}, op.Key, true
	case *core.KVAdd:
		return space{core.OpKVPut, op.Keyspace}, op.Key, true
	case *core.VectorUpsert:
		return space{core.OpVectorUpsert, op.Collection}, []byte(op.ID), true
	case *core.VectorDelete:
		return space{core.OpVectorUpsert, op.Collection}, []byte(op.ID), true
	}
	return space{}, nil, false
}
