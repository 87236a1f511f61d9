package commit

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// The removal of a namespace. The directory keeps a mark of each removal that is under way; a partition keeps the number of
// the last one that it was told of. A partition that is closed keeps its rows until the namespace has left the directory, so
// that a removal that is taken back changes nothing. The row of a partition that was cleared stays: the number of its namespace
// is not given again, and what still comes under it is refused.

// mark is the row of a removal in the directory.
type mark struct {
	// Number of the removal, from a counter of the directory: a later one has a higher number.
	id uint64
	// The namespace has left the directory; its partitions are to be cleared.
	finished bool
	// The names, by which the rows of the tenant and the namespace are found.
	tenant string
	name   string
	// The namespace as its row was: once that is gone, only the mark says where its partitions lie.
	space namespace
}

// Removal is a removal that is under way, as the directory has it.
type Removal struct {
	// Number of the removal, which each step names.
	ID uint64
	// The namespace has left the directory.
	Finished bool
	// The namespace, with the shards of its partitions.
	Space core.NamespaceInfo
}

// overtaken refuses what a removal asks for once another one went on with it, or ended it.
var overtaken = core.Unavailable{Reason: "removal_overtaken"}

// gone refuses what is asked of a partition whose namespace is being removed, or was. To ask again finds the namespace as it
// is then: there, another one of that name, or none.
var gone = core.Unavailable{Reason: "namespace_removed"}

// noRemovals refuses removals in entries of a format that knows none: older programs would not apply them.
func (m *Machine) noRemovals() core.Fact {
	if m.clock.format >= core.FormatQueues {
		return nil
	}
	return core.Invalid{Field: "namespace", Reason: "not_supported", Message: fmt.Sprintf("a cluster removes namespaces from format %d on", core.FormatQueues)}
}

// removeNamespace takes a removal a step on in the directory.
func (m *Machine) removeNamespace(op *core.NamespaceRemove) (core.OpResult, core.Fact, error) {
	if fact := m.noRemovals(); fact != nil {
		return core.OpResult{}, fact, nil
	}
	switch {
	case !core.ValidName(op.Tenant):
		return core.OpResult{}, core.Invalid{Field: "tenant", Reason: "bad_name", Message: "not a name of a tenant"}, nil
	case !core.ValidName(op.Name):
		return core.OpResult{}, core.Invalid{Field: "name", Reason: "bad_name", Message: "not a name of a namespace"}, nil
	}
	t, known, err := readTenant(m.tx, op.Tenant)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	if op.Step == core.RemovalBegin {
		if !known {
			return core.OpResult{}, nil, nil
		}
		return m.beginRemoval(t, op)
	}
	r := core.OpResult{Existed: true, Tenant: t.id, Namespace: op.Namespace}
	key := keys.Removal(t.id, op.Namespace)
	k, marked, err := readMark(m.tx, key)
	switch {
	case err != nil:
		return core.OpResult{}, nil, err
	case !known || !marked || k.id != op.ID:
		return core.OpResult{}, overtaken, nil
	}
	switch op.Step {
	case core.RemovalFinish:
		if k.finished {
			r.Replayed = true
			return r, nil, nil
		}
		return r, nil, m.finishRemoval(t, k)
	case core.RemovalAbort:
		if k.finished {
			return core.OpResult{}, overtaken, nil
		}
	case core.RemovalForget:
		if !k.finished {
			return core.OpResult{}, overtaken, nil
		}
	default:
		return core.OpResult{}, core.Invalid{Field: "step", Reason: "unknown", Message: "not a step of a removal"}, nil
	}
	// Forget and abort both end in this: the mark goes, and its number is not given again.
	m.tx.Delete(key)
	return r, nil, nil
}

// beginRemoval marks a namespace under a new number. A mark that is there is taken over.
func (m *Machine) beginRemoval(t tenant, op *core.NamespaceRemove) (core.OpResult, core.Fact, error) {
	ns, exists, err := readNamespace(m.tx, t.id, op.Name)
	if err != nil || !exists || op.Namespace != 0 && op.Namespace != ns.id {
		return core.OpResult{}, nil, err
	}
	row, ok, err := m.tx.Get(keys.RemovalCounter())
	if err != nil {
		return core.OpResult{}, nil, err
	}
	// A number of its own for each removal: a step of an earlier one that comes late is refused by it.
	var last uint64
	if ok {
		if len(row) != 8 {
			return core.OpResult{}, nil, errs.Corruptf("number of removals %x", row)
		}
		last = binary.BigEndian.Uint64(row)
	}
	last++
	m.tx.Set(keys.RemovalCounter(), binary.BigEndian.AppendUint64(nil, last))
	m.tx.Set(keys.Removal(t.id, ns.id), mark{id: last, tenant: op.Tenant, name: op.Name, space: ns}.append(nil))
	return core.OpResult{Existed: true, Version: last, Tenant: t.id, Namespace: ns.id}, nil, nil
}

// finishRemoval takes a namespace out of the directory. The mark stays until its partitions are cleared.
func (m *Machine) finishRemoval(t tenant, k mark) error {
	ns, ok, err := readNamespace(m.tx, t.id, k.name)
	switch {
	case err != nil:
		return err
	case !ok || ns.id != k.space.id || t.count == 0:
		return errs.Corruptf("namespace %q of tenant %d is marked and not in the directory", k.name, t.id)
	}
	t.count--
	m.tx.Set(keys.Tenant(k.tenant), t.append(nil))
	m.tx.Delete(keys.Namespace(t.id, k.name))
	k.finished = true
	m.tx.Set(keys.Removal(t.id, ns.id), k.append(nil))
	m.left = append(m.left, ns.info(t.id, k.tenant, k.name))
	return nil
}

// removePartition takes a removal a step on in a partition.
func (m *Machine) removePartition(part *partition, op *core.PartitionRemove) (core.OpResult, core.Fact, error) {
	if fact := m.noRemovals(); fact != nil {
		return core.OpResult{}, fact, nil
	}
	was := part.removal
	switch {
	// A step of an earlier removal is refused, and so is one without a number.
	case op.ID < was.id || op.ID == 0:
		return core.OpResult{}, overtaken, nil
	case was.state == partitionCleared:
		return core.OpResult{Replayed: op.Step == core.PartitionClear}, replayed(op.Step == core.PartitionClear), nil
	}
	// What the partition is to know afterwards: open under this number, unless the step says otherwise.
	next := removal{id: op.ID}
	switch op.Step {
	case core.PartitionClose:
		if was.state == partitionOpen {
			// Only an open partition is looked at: in a closed one nothing can have come.
			if op.ID == was.id { // it was opened under that number
				return core.OpResult{}, overtaken, nil
			}
			held, err := part.held(m.tx)
			if err != nil || len(held) > 0 {
				return core.OpResult{}, core.NotEmpty{Held: held}, err
			}
		}
		next.state = partitionClosed
	case core.PartitionOpen:
	case core.PartitionClear:
		// Only the removal that closed the partition clears it: nothing came in between.
		if was.state != partitionClosed || op.ID != was.id {
			return core.OpResult{}, overtaken, nil
		}
		next.state = partitionCleared
		m.clear(part)
	default:
		return core.OpResult{}, core.Invalid{Field: "step", Reason: "unknown", Message: "not a step of a removal"}, nil
	}
	if next == was {
		return core.OpResult{Replayed: true}, nil, nil
	}
	part.removal = next
	m.tx.Set(keys.PartitionRemoval(part.p), next.append(nil))
	return core.OpResult{}, nil, nil
}

// replayed is what a step in a cleared partition is refused with: nothing if it is the last one again.
func replayed(again bool) core.Fact {
	if again {
		return nil
	}
	return overtaken
}

// clear deletes the rows of a partition, and forgets its machines.
func (m *Machine) clear(part *partition) {
	// The row of the removal is written afterwards by the caller, and stays.
	m.tx.DeleteRange(keys.PartitionRange(part.p))
	delete(m.parts, part.p)
	is := func(other *partition) bool { return other == part }
	m.sorted = slices.DeleteFunc(m.sorted, is)
	m.touched = slices.DeleteFunc(m.touched, is)
	m.cleared = append(m.cleared, part.p)
}

// held names what a partition has that a user would miss. Configurations, queues and keyspaces without content, answers that
// are kept and ids of tasks that are gone do not count.
func (part *partition) held(v core.View) (held []string, err error) {
	if part.queue.HasTasks() {
		held = append(held, "tasks")
	}
	if part.queue.HasCrons() {
		held = append(held, "crons")
	}
	if part.queue.HasBatches() {
		held = append(held, "batches")
	}
	keys, err := part.kv.HasKeys(v)
	if err != nil {
		return nil, err
	}
	if keys {
		held = append(held, "keys")
	}
	repos, err := part.refs.HasRepos(v)
	if err != nil {
		return nil, err
	}
	if repos {
		held = append(held, "repositories")
	}
	collections, rulesets := part.search.Holds()
	if collections {
		held = append(held, "collections")
	}
	if rulesets {
		held = append(held, "rulesets")
	}
	return held, nil
}

// partitionState says whether a partition takes ops. Numbers are stored and never reused.
type partitionState byte

const (
	// It takes ops. This is also what a partition is that was never told of a removal.
	partitionOpen partitionState = 0
	// It takes steps of the removal only; its rows stay.
	partitionClosed partitionState = 1
	// Its rows are gone, for good.
	partitionCleared partitionState = 2
)

// removal is what a partition knows of the removal of its namespace: the last one that it was told of.
type removal struct {
	// Number of the removal that it was told of last; 0: none. Steps with a lower number are refused.
	id uint64
	// Where that removal has brought the partition.
	state partitionState
}

// append writes the row: the number in 8 bytes, big-endian, and the state.
func (r removal) append(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, r.id), byte(r.state))
}

// readRemoval reads the row of a partition; the zero value, which is open, where there is none.
func readRemoval(v core.View, p core.Partition) (removal, error) {
	row, ok, err := v.Get(keys.PartitionRemoval(p))
	if err != nil || !ok {
		return removal{}, err
	}
	if len(row) != 9 || partitionState(row[8]) > partitionCleared {
		return removal{}, errs.Corruptf("removal of %s: %x", p, row)
	}
	return removal{binary.BigEndian.Uint64(row), partitionState(row[8])}, nil
}

// Cleared reports whether a partition was cleared, because its namespace was removed.
func Cleared(v core.View, p core.Partition) (bool, error) {
	r, err := readRemoval(v, p)
	return r.state == partitionCleared, err
}

// append writes the row: number, whether the namespace has left, the lengths of the names, the names, and the
// namespace's own row.
func (k mark) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, k.id)
	finished := byte(0)
	if k.finished {
		finished = 1
	}
	dst = append(dst, finished, byte(len(k.tenant)), byte(len(k.name))) // both at most core.MaxName
	return k.space.append(append(append(dst, k.tenant...), k.name...))
}

// decodeMark reads what append wrote.
func decodeMark(row []byte) (k mark, err error) {
	// The number, the flag and the two lengths.
	const head = 8 + 3
	bad := fmt.Errorf("mark of a removal %x", row)
	if len(row) < head || row[8] > 1 {
		return k, bad
	}
	k.id, k.finished = binary.BigEndian.Uint64(row), row[8] == 1
	tenant, name := int(row[9]), int(row[10])
	rest := row[head:]
	if len(rest) < tenant+name {
		return k, bad
	}
	k.tenant, k.name = string(rest[:tenant]), string(rest[tenant:tenant+name])
	k.space, err = decodeNamespace(rest[tenant+name:])
	return k, err
}

// readMark reads the mark under a key. ok is false where no removal is under way.
func readMark(v core.View, key []byte) (k mark, ok bool, err error) {
	row, ok, err := v.Get(key)
	if err != nil || !ok {
		return k, false, err
	}
	if k, err = decodeMark(row); err != nil {
		return k, false, errs.Corruptf("directory: %v", err)
	}
	return k, true, nil
}

// Removals lists the removals that are under way, from a View of shard 0.
func Removals(v core.View) (out []Removal, err error) {
	from, to := keys.RemovalsUnderWay()
	err = core.ScanRows(v, from, to, func(key, row []byte) (bool, error) {
		k, err := decodeMark(row)
		t, ok := keys.RemovalOf(key)
		if err != nil || !ok {
			return false, errs.Corruptf("directory: key %x: %v", key, err)
		}
		out = append(out, Removal{k.id, k.finished, k.space.info(t, k.tenant, k.name)})
		return true, nil
	})
	return out, err
}

// FindRemoval finds the mark of the removal of a namespace, in a View of shard 0.
func FindRemoval(v core.View, t core.TenantID, ns core.NamespaceID) (Removal, bool, error) {
	k, ok, err := readMark(v, keys.Removal(t, ns))
	if err != nil || !ok {
		return Removal{}, false, err
	}
	return Removal{k.id, k.finished, k.space.info(t, k.tenant, k.name)}, true, nil
}
