package check

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// keysOp judges the ops on keys that are more than one put, delete or check.
func (m *Model) keysOp(p *part, c *core.Commit, op core.Op, a answer, before uint64) error {
	switch op := op.(type) {
	case *core.KVPuts:
		return m.puts(p, c, op, a)
	case *core.KVAdd:
		return m.add(p, c, op, a, before)
	case *core.KVDeleteRange:
		return m.deleteRange(p, op, a)
	case *core.KeyspaceSet:
		return m.keyspaceSet(p, op, a)
	case *core.KeyspaceDelete:
		return m.keyspaceDelete(p, op, a)
	case *core.KeyspaceUse:
		return m.keyspaceUse(p, op, a)
	case *core.TenantUse:
		return m.tenantUse(p, op, a)
	case *core.TenantSet:
		return m.tenantSet(op, a)
	case *core.SessionKeyAdd:
		return m.sessionKeyAdd(op, a)
	}
	return fmt.Errorf("%T is not an op that the documentation knows", op)
}

// keyOf is the one key that an op writes.
func keyOf(op core.Op) (space, key string, one bool) {
	switch op := op.(type) {
	case *core.KVPut:
		return op.Keyspace, string(op.Key), true
	case *core.KVDelete:
		return op.Keyspace, string(op.Key), true
	case *core.KVAdd:
		return op.Keyspace, string(op.Key), true
	}
	return "", "", false
}

// spaceOf is what the model knows of a keyspace besides its keys.
type spaceOf struct {
	number uint32 // in the order in which they were made
	config core.KeyspaceConfig
	used   uint64 // as was told last
}

// over reports whether puts must be refused.
func (s spaceOf) over() bool { return s.config.Bytes > 0 && s.used > uint64(s.config.Bytes) }

// full reports whether puts in all keyspaces of the namespace must be refused.
func (p *part) full() bool { return p.config.KeyBytes > 0 && p.total > uint64(p.config.KeyBytes) }

// makeSpace makes a keyspace, unless there is one.
func (m *Model) makeSpace(p *part, name string) {
	if p.spaces[name] != nil {
		return
	}
	last := p.made
	m.change(func() { p.made = last })
	p.made++
	set(m, p.spaces, name, map[string]pair{})
	set(m, p.rules, name, spaceOf{number: p.made})
}

// puts judges a batch: each item alone, with a revision of its own.
func (m *Model) puts(p *part, c *core.Commit, op *core.KVPuts, a answer) error {
	if done, err := p.putRefused(op.Keyspace, a); done {
		return err
	}
	if a.fact != nil {
		return fmt.Errorf("a batch of puts was refused with %w", a.fact)
	}
	var refused []core.RefusedItem
	if a.result.KV != nil {
		refused = a.result.KV.Refused
	}
	next := a.result.Rev
	for i := range op.Items {
		it := &op.Items[i]
		one := answer{result: &core.OpResult{Kind: core.OpKVPut, Rev: next}}
		if len(refused) > 0 && int(refused[0].Item) == i {
			fact := refused[0].Fact
			if f, ok := fact.(core.RevMismatch); ok { // a batch's answer leaves out what the caller knows, and the value
				f.Keyspace, f.Key = op.Keyspace, it.Key
				fact = f
			}
			one, refused = answer{fact: fact}, refused[1:]
		}
		put := &core.KVPut{Keyspace: op.Keyspace, Key: it.Key, Value: it.Value, HasRev: it.HasRev, IfRev: it.IfRev, IfAbsent: it.IfAbsent}
		if err := m.put(p, c, put, one, p.rev); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
		if one.fact == nil {
			next++
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("item %d of %d was refused", refused[0].Item, len(op.Items))
	}
	return nil
}

// add judges an addition: it is a put of the sum.
func (m *Model) add(p *part, c *core.Commit, op *core.KVAdd, a answer, before uint64) error {
	old, there := p.spaces[op.Keyspace][string(op.Key)]
	if done, err := p.putRefused(op.Keyspace, a); done {
		return err
	}
	want := condition(op.Keyspace, op.Key, old, there, op.HasRev, op.IfRev, false)
	sum, reason := added(op, string(old.value), there)
	if want == nil && reason != "" {
		want = core.NotAdded{Reason: reason, Rev: old.rev, Keyspace: op.Keyspace, Key: op.Key}
	}
	if f, ok := want.(core.NotAdded); ok && f.Rev == laterRev {
		if got, ok := a.fact.(core.NotAdded); ok && got.Reason == reason {
			return nil
		}
	}
	if err := judgeFact(want, a); err != nil || a.fact != nil {
		return err
	}
	put := &core.KVPut{Keyspace: op.Keyspace, Key: op.Key, Value: []byte(strconv.FormatInt(sum, 10))}
	if !a.blind && (a.result.KV == nil || a.result.KV.Number != sum) {
		return fmt.Errorf("key %q held %q: %d was added, answered %+v", op.Key, old.value, op.Delta, a.result.KV)
	}
	return m.put(p, c, put, a, before)
}

func added(op *core.KVAdd, held string, there bool) (sum int64, reason string) {
	n := int64(0)
	if there {
		var err error
		if n, err = strconv.ParseInt(held, 10, 64); err != nil {
			return 0, "not_a_number"
		}
	}
	if op.Delta > 0 && n > math.MaxInt64-op.Delta || op.Delta < 0 && n < math.MinInt64-op.Delta {
		return 0, "overflow"
	}
	sum = n + op.Delta
	if op.HasFloor && sum < op.Floor || op.HasCeiling && sum > op.Ceiling {
		return 0, "bound"
	}
	return sum, ""
}

// deleteRange judges a range: each key of it is gone afterwards.
func (m *Model) deleteRange(p *part, op *core.KVDeleteRange, a answer) error {
	if f, ok := a.fact.(core.NotFound); ok || a.fact == nil && p.config.NoAutoCreate && p.spaces[op.Keyspace] == nil {
		if ok && f.Kind == "keyspace" && p.config.NoAutoCreate && p.spaces[op.Keyspace] == nil {
			return nil
		}
		return fmt.Errorf("range of keyspace %q: answered %s", op.Keyspace, a)
	}
	if a.fact != nil {
		return fmt.Errorf("range of keyspace %q: refused with %w", op.Keyspace, a.fact)
	}
	var gone []string
	for key := range p.spaces[op.Keyspace] {
		in := key >= string(op.From) && (len(op.To) == 0 || key < string(op.To))
		if len(op.Prefix) > 0 {
			in = strings.HasPrefix(key, string(op.Prefix))
		}
		if in {
			gone = append(gone, key)
		}
	}
	for _, key := range gone {
		drop(m, p.spaces[op.Keyspace], key)
	}
	if op.Count && !a.blind && p.spaces[op.Keyspace] != nil && (a.result.KV == nil || a.result.KV.Count != uint64(len(gone))) {
		return fmt.Errorf("range of keyspace %q had %d keys: answered %+v", op.Keyspace, len(gone), a.result.KV)
	}
	return nil
}

// keyspaceSet judges a change of a keyspace's configuration.
func (m *Model) keyspaceSet(p *part, op *core.KeyspaceSet, a answer) error {
	now := p.rules[op.Keyspace]
	if f, ok := a.fact.(core.Exhausted); ok {
		if f.Limit == "keyspaces" && p.spaces[op.Keyspace] == nil && int64(len(p.spaces)) >= f.Max {
			return nil
		}
		return fmt.Errorf("keyspace %q: refused with %w, there are %d", op.Keyspace, f, len(p.spaces))
	}
	next := op.Config
	next.Version = now.config.Version
	if next != now.config {
		next.Version++
	}
	if err := m.judgeVersion(op.IfVersion, now.config.Version, next.Version, a); err != nil || a.fact != nil {
		return err
	}
	m.makeSpace(p, op.Keyspace)
	now = p.rules[op.Keyspace]
	now.config = next
	set(m, p.rules, op.Keyspace, now)
	return nil
}

// keyspaceDelete judges the end of a keyspace: no key of it is left.
func (m *Model) keyspaceDelete(p *part, op *core.KeyspaceDelete, a answer) error {
	if a.fact != nil {
		return fmt.Errorf("keyspace %q: refused with %w", op.Keyspace, a.fact)
	}
	there := p.spaces[op.Keyspace] != nil
	if !a.blind && a.result.Existed != there {
		return fmt.Errorf("keyspace %q existed=%v: answered %v", op.Keyspace, there, a.result.Existed)
	}
	if there {
		drop(m, p.spaces, op.Keyspace)
		drop(m, p.rules, op.Keyspace)
	}
	return nil
}

// keyspaceUse judges a measurement: from here on those that are over their bound take no puts.
func (m *Model) keyspaceUse(p *part, op *core.KeyspaceUse, a answer) error {
	if a.fact != nil {
		return fmt.Errorf("a measurement was refused with %w", a.fact)
	}
	for _, it := range op.Items {
		if it.Incarnation == 0 { // of no keyspace: the sum of all
			old := p.total
			m.change(func() { p.total = old })
			p.total = it.Bytes
			continue
		}
		for name, r := range p.rules {
			if r.number == it.Incarnation {
				r.used = it.Bytes
				set(m, p.rules, name, r)
			}
		}
	}
	return nil
}
