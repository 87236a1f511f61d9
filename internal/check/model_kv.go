package check

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// laterRev is the revision of a key that was written earlier in a commit which was refused in the end: above all before
// it, but never seen. What depends on it may go either way.
const laterRev = math.MaxUint64

// kvOp judges an op on a key.
func (m *Model) kvOp(p *part, c *core.Commit, op core.Op, a answer, before uint64) error {
	switch op := op.(type) {
	case *core.KVPut:
		return m.put(p, c, op, a, before)
	case *core.KVDelete:
		return m.deleteKey(p, op, a)
	case *core.KVCheck:
		if p.spaces[op.Keyspace][string(op.Key)].rev == laterRev && op.Target == core.TargetRev && op.Compare >= core.CompareEqual {
			return nil
		}
		return judgeFact(m.checkKey(p, op), a)
	}
	return m.keysOp(p, c, op, a, before)
}

// judgeFact compares the fact that the model expects, nil for none, with the answer.
func judgeFact(want core.Fact, a answer) error {
	switch {
	case want == nil && a.fact == nil:
		return nil
	case want == nil:
		return fmt.Errorf("refused with %T %w, nothing stands against it", a.fact, a.fact)
	case a.fact == nil:
		return fmt.Errorf("applied, expected %T %w", want, want)
	}
	return sameFact(want, a.fact)
}

func (m *Model) put(p *part, c *core.Commit, op *core.KVPut, a answer, before uint64) error {
	old, there := p.spaces[op.Keyspace][string(op.Key)]
	if done, err := p.putRefused(op.Keyspace, a); done {
		return err
	}
	if err := judgeFact(condition(op.Keyspace, op.Key, old, there, op.HasRev, op.IfRev, op.IfAbsent), a); err != nil || a.fact != nil {
		return err
	}
	rev := uint64(laterRev)
	if !a.blind {
		rev = a.result.Rev
		if rev <= before || p.rev > before && rev != p.rev {
			return fmt.Errorf("key %q: revision %d, the last commit had %d, this one %d", op.Key, rev, before, p.rev)
		}
		if op.WantPrev && (a.result.Existed != there || !bytes.Equal(a.result.Prev, old.value)) {
			return fmt.Errorf("key %q held %q: answered previous value %q, existed=%v", op.Key, old.value, a.result.Prev, a.result.Existed)
		}
	}
	if rev != laterRev {
		last := p.rev
		m.change(func() { p.rev = last })
		p.rev = max(p.rev, rev)
	}
	m.makeSpace(p, op.Keyspace)
	set(m, p.spaces[op.Keyspace], string(op.Key), pair{op.Value, rev, p.writer(c, op.Keyspace)})
	return nil
}

// writer is what a keyspace keeps of who writes a key by a commit: the lease that the commit ends, or stands under.
func (p *part) writer(c *core.Commit, space string) (w writer) {
	if !p.rules[space].config.Writers {
		return w
	}
	if c.Fence != nil {
		w = writer{c.Fence.Task, c.Fence.Token}
	}
	for _, op := range slices.Backward(c.Ops) {
		if id, token, _, ok := settleOf(op); ok {
			w = writer{id, token}
		}
	}
	return w
}

func (m *Model) deleteKey(p *part, op *core.KVDelete, a answer) error {
	old, there := p.spaces[op.Keyspace][string(op.Key)]
	if _, full := a.fact.(core.Exhausted); full {
		return fmt.Errorf("a delete was refused with %w", a.fact)
	}
	if p.spaces[op.Keyspace] == nil {
		if done, err := p.spaceRefused(op.Keyspace, a); done {
			return err
		}
	}
	if err := judgeFact(condition(op.Keyspace, op.Key, old, there, op.HasRev, op.IfRev, false), a); err != nil || a.fact != nil {
		return err
	}
	if !a.blind && a.result.Existed != there {
		return fmt.Errorf("key %q existed=%v: answered %v", op.Key, there, a.result.Existed)
	}
	if there {
		drop(m, p.spaces[op.Keyspace], string(op.Key))
	}
	return nil
}

// putRefused is spaceRefused for what writes, which a namespace that is full refuses.
func (p *part) putRefused(name string, a answer) (done bool, err error) {
	if a.fact == nil && p.full() {
		return true, fmt.Errorf("keyspace %q of a namespace whose keyspaces take %d bytes, more than %d, was written", name, p.total, p.config.KeyBytes)
	}
	if a.fact == nil && p.tenantFull() {
		return true, fmt.Errorf("keyspace %q of a tenant whose keyspaces take %d bytes, more than %d, was written", name, p.tenant.Bytes, p.tenant.Bound)
	}
	return p.spaceRefused(name, a)
}

// spaceRefused judges refusals that concern the keyspace; done reports that there was one, or should have been.
func (p *part) spaceRefused(name string, a answer) (done bool, err error) {
	switch f := a.fact.(type) {
	case core.NotFound:
		if f.Kind == "keyspace" && p.config.NoAutoCreate && p.spaces[name] == nil {
			return true, nil
		}
		return true, fmt.Errorf("keyspace %q: refused with %w", name, f)
	case core.Exhausted:
		if f.Limit == "keyspace_bytes" && p.rules[name].over() && f.Max == p.rules[name].config.Bytes {
			return true, nil
		}
		if f.Limit == "namespace_key_bytes" && p.full() && f.Max == p.config.KeyBytes {
			return true, nil
		}
		if f.Limit == "tenant_key_bytes" && p.tenantFull() && f.Max == p.tenant.Bound {
			return true, nil
		}
		if f.Limit == "keyspaces" && p.spaces[name] == nil && int64(len(p.spaces)) >= f.Max {
			return true, nil
		}
		return true, fmt.Errorf("keyspace %q: refused with %w, there are %d", name, f, len(p.spaces))
	}
	if a.fact == nil && p.rules[name].over() {
		return true, fmt.Errorf("keyspace %q takes %d bytes, more than %d, and was written", name, p.rules[name].used, p.rules[name].config.Bytes)
	}
	if a.fact == nil && p.config.NoAutoCreate && p.spaces[name] == nil {
		return true, fmt.Errorf("keyspace %q was made by its first use, which is off", name)
	}
	return false, nil
}

// condition returns the fact that refuses a write of a key, nil for none.
func condition(space string, key []byte, old pair, there, hasRev bool, ifRev uint64, ifAbsent bool) core.Fact {
	if hasRev && ifRev != old.rev || ifAbsent && there {
		return mismatch(space, key, old, there)
	}
	return nil
}

func mismatch(space string, key []byte, old pair, there bool) core.Fact {
	return core.RevMismatch{Rev: old.rev, Value: old.value, Missing: !there, Keyspace: space, Key: key}
}

// checkKey returns the fact that a false check is refused with, nil for a true one.
func (m *Model) checkKey(p *part, op *core.KVCheck) core.Fact {
	old, there := p.spaces[op.Keyspace][string(op.Key)]
	if holds(op, old, there) {
		return nil
	}
	return mismatch(op.Keyspace, op.Key, old, there)
}

// holds evaluates a check. An absent key has revision 0; it has no value: only "not equal" holds for that.
func holds(op *core.KVCheck, old pair, there bool) bool {
	switch op.Compare {
	case core.CompareExists:
		return there
	case core.CompareAbsent:
		return !there
	}
	if op.Target == core.TargetValue && !there {
		return op.Compare == core.CompareNotEqual
	}
	order := cmp.Compare(old.rev, op.Rev)
	if op.Target == core.TargetValue {
		order = bytes.Compare(old.value, op.Value)
	}
	switch op.Compare {
	case core.CompareEqual:
		return order == 0
	case core.CompareNotEqual:
		return order != 0
	case core.CompareLess:
		return order < 0
	}
	return order > 0
}

func (m *Model) judgeVersion(want int64, now, next uint64, a answer) error {
	if want >= 0 && uint64(want) != now {
		if f, ok := a.fact.(core.RevMismatch); ok && f.Rev == now {
			return nil
		}
		return fmt.Errorf("version is %d, asked for %d: answered %s", now, want, a)
	}
	if a.fact != nil {
		return fmt.Errorf("refused with %T %w, nothing stands against it", a.fact, a.fact)
	}
	if !a.blind && a.result.Version != next {
		return fmt.Errorf("answered version %d, expected %d", a.result.Version, next)
	}
	return nil
}

func (m *Model) namespaceSet(p *part, op *core.NamespaceSet, a answer) error {
	next := op.Config
	next.Version = p.config.Version
	if next != p.config {
		next.Version++
	}
	if err := m.judgeVersion(op.IfVersion, p.config.Version, next.Version, a); err != nil || a.fact != nil {
		return err
	}
	old := p.config
	m.change(func() { p.config = old })
	p.config = next
	return nil
}

// namespaceCreate judges the directory: a name keeps its ids, no two names share them, a tenant keeps its id.
func (m *Model) namespaceCreate(op *core.NamespaceCreate, a answer) error {
	name := spaceName{op.Tenant, op.Name}
	old, there := m.spaces[name]
	if f, ok := a.fact.(core.Exhausted); ok {
		n := 0
		for other := range m.spaces {
			if other.tenant == op.Tenant {
				n++
			}
		}
		if !there && int64(n) >= f.Max {
			return nil
		}
		return fmt.Errorf("namespace %s/%s: refused with %w, there are %d", op.Tenant, op.Name, f, n)
	}
	if f, ok := a.fact.(core.Invalid); ok && f.Field == "partitions" && (op.Partitions < 1 || op.Partitions > 4096) {
		return nil
	}
	if f, ok := a.fact.(core.AlreadyExists); ok && there && f.Kind == "namespace" {
		return nil // with another number of partitions, which the model does not keep
	}
	if a.fact != nil {
		return fmt.Errorf("namespace %s/%s: refused with %T %w", op.Tenant, op.Name, a.fact, a.fact)
	}
	if a.blind {
		return nil
	}
	got := *a.result
	if there {
		if !got.Replayed || got.Tenant != old.Tenant || got.Namespace != old.Namespace {
			return fmt.Errorf("namespace %s/%s is %d/%d: answered %d/%d, replayed=%v",
				op.Tenant, op.Name, old.Tenant, old.Namespace, got.Tenant, got.Namespace, got.Replayed)
		}
		return nil
	}
	for other, ids := range m.spaces {
		sameTenant := other.tenant == op.Tenant
		if sameTenant != (ids.Tenant == got.Tenant) || sameTenant && ids.Namespace == got.Namespace {
			return fmt.Errorf("namespace %s/%s got %d/%d, which is %s/%s", op.Tenant, op.Name, got.Tenant, got.Namespace, other.tenant, other.name)
		}
	}
	for other, tenant := range m.retired {
		if (tenant == op.Tenant) != (other.tenant == got.Tenant) || other == (markName{got.Tenant, got.Namespace}) {
			return fmt.Errorf("namespace %s/%s got %d/%d, and %d/%d of %s was removed", op.Tenant, op.Name, got.Tenant, got.Namespace, other.tenant, other.space, tenant)
		}
	}
	if got.Replayed {
		return fmt.Errorf("namespace %s/%s is new: answered as a replay", op.Tenant, op.Name)
	}
	set(m, m.spaces, name, got)
	return nil
}
