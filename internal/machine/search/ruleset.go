package search

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// putRuleset stores the next version of a ruleset. Equal rules are a replay of the newest version.
// A version that was named must be the next one, so that two clients do not both publish it. The
// oldest version goes when there are too many.
func (m *Machine) putRuleset(tx core.Txn, op *core.RulesetPut, r *core.OpResult) (core.Fact, error) {
	switch {
	case !core.ValidName(op.Name):
		return core.Invalid{Field: "name", Reason: "bad_name", Message: "not a name of a ruleset"}, nil
	case len(op.Rules) > core.MaxRulesetBytes:
		return core.TooLarge{Field: "rules", Limit: "ruleset_bytes", Max: core.MaxRulesetBytes}, nil
	}
	s, known := m.rulesets[op.Name]
	if !known && len(m.rulesets) >= m.o.MaxRulesets {
		return core.Exhausted{Limit: "rulesets", Max: int64(m.o.MaxRulesets)}, nil
	}
	// The newest version again, with the same rules, is a repeated call.
	if known && (op.Version == 0 || op.Version == s.newest) {
		row, _, err := tx.Get(keys.Ruleset(m.p, op.Name, s.newest))
		if err != nil {
			return nil, err
		}
		if bytes.Equal(row, op.Rules) {
			r.Replayed, r.Version = true, uint64(s.newest)
			return nil, nil
		}
	}
	// A name without versions goes on above all that were removed, whatever name they had.
	last := s.newest
	if !known {
		last = m.removed
	}
	if last >= core.MaxRulesetVersion {
		return core.Exhausted{Limit: "ruleset_version", Max: core.MaxRulesetVersion}, nil
	}
	version := last + 1
	if op.Version != 0 && op.Version != version {
		// A version that was published is never changed, so one that exists is refused.
		if known && op.Version < version {
			return core.AlreadyExists{Kind: "ruleset", ID: op.Name}, nil
		}
		message := "versions are numbered one after the other"
		if !known && m.removed > 0 {
			message = fmt.Sprintf("the first version of this ruleset must be %d: numbers of removed rulesets do not come again", version)
		}
		return core.Invalid{Field: "version", Reason: "out_of_range", Message: message}, nil
	}
	m.back(func() {
		if known {
			m.rulesets[op.Name] = s
		} else {
			delete(m.rulesets, op.Name)
		}
	})
	// The kept versions have no gap: one leaves for each that comes.
	next := rulesetState{oldest: s.oldest, newest: version}
	if !known {
		next.oldest = version
	}
	if version-next.oldest >= core.MaxRulesetVersions {
		tx.Delete(keys.Ruleset(m.p, op.Name, next.oldest))
		next.oldest++
	}
	if m.rulesets == nil {
		m.rulesets = make(map[string]rulesetState)
	}
	m.rulesets[op.Name] = next
	// The rules are copied: the transaction keeps what it is given.
	tx.Set(keys.Ruleset(m.p, op.Name, version), append([]byte{}, op.Rules...))
	r.Version = uint64(version)
	return nil, nil
}

// dropRuleset removes a ruleset. A version never changes: readers keep it compiled, clients name
// it, and recordings refer to it. So a ruleset that is made later under the same name gets other
// numbers, above those of all rulesets that were removed. One counter for all names is enough for
// that; a number for each name that ever was would grow without bound.
func (m *Machine) dropRuleset(tx core.Txn, c *core.ApplyContext, op *core.RulesetDelete, r *core.OpResult) core.Fact {
	if c.Format < core.FormatQueues {
		return core.Invalid{Field: "name", Reason: "not_supported", Message: fmt.Sprintf("a cluster removes rulesets from format %d on", core.FormatQueues)}
	}
	if !core.ValidName(op.Name) {
		return core.Invalid{Field: "name", Reason: "bad_name", Message: "not a name of a ruleset"}
	}
	s, known := m.rulesets[op.Name]
	if !known {
		return nil
	}
	removed := m.removed
	m.back(func() { m.rulesets[op.Name], m.removed = s, removed })
	delete(m.rulesets, op.Name)
	// At most MaxRulesetVersions are kept.
	for version := s.oldest; version <= s.newest; version++ {
		tx.Delete(keys.Ruleset(m.p, op.Name, version))
	}
	// The counter only rises, and is stored under the empty name.
	if s.newest > m.removed {
		m.removed = s.newest
		tx.Set(keys.Ruleset(m.p, "", 0), binary.BigEndian.AppendUint32(nil, m.removed))
	}
	r.Existed = true
	return nil
}

// Ruleset reads a version of a ruleset; 0 is the newest.
func Ruleset(v core.View, p core.Partition, name string, version uint32) (out core.Ruleset, ok bool, err error) {
	if !core.ValidName(name) {
		return out, false, nil
	}
	out.Name = name
	if version != 0 {
		row, ok, err := v.Get(keys.Ruleset(p, name, version))
		out.Version, out.Rules = version, bytes.Clone(row)
		return out, ok, err
	}
	// The newest version is the last key of the name.
	from := keys.Ruleset(p, name, 1)
	to := keys.Ruleset(p, name, ^uint32(0))
	err = core.ScanRows(v, from, to, func(key, row []byte) (bool, error) {
		_, n, _ := keys.RulesetOf(key)
		out.Version, out.Rules, ok = n, append(out.Rules[:0], row...), true
		return true, nil
	})
	return out, ok, err
}

// Rulesets lists the rulesets of a partition by name, each in its newest version, without the rules.
func Rulesets(v core.View, p core.Partition) (out []core.Ruleset, err error) {
	from, to := keys.Rulesets(p)
	err = core.ScanRows(v, from, to, func(key, _ []byte) (bool, error) {
		name, version, _ := keys.RulesetOf(key)
		if name == "" {
			return true, nil // the highest number that was removed
		}
		// Keys come by name and then by version: the last one of a name is the newest.
		if n := len(out); n == 0 || out[n-1].Name != name {
			out = append(out, core.Ruleset{Name: name})
		}
		last := &out[len(out)-1]
		last.Version = version
		return true, nil
	})
	return out, err
}
