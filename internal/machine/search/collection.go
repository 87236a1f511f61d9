package search

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// The row of a definition is its incarnation in incarnationLen bytes, then the definition.

// incarnationLen is the length in bytes of an incarnation in the row of a definition.
const incarnationLen = 4

// set makes a collection. The same definition again is a replay; another one under the same name is
// refused, since points were stored by the first.
func (m *Machine) set(tx core.Txn, op *core.CollectionSet, r *core.OpResult) core.Fact {
	def := &op.Collection
	if fact := validate(def); fact != nil {
		return fact
	}
	if c := m.collections[def.Name]; c != nil {
		if !c.def.Same(def) {
			return core.AlreadyExists{Kind: "collection", ID: def.Name}
		}
		r.Replayed, r.Version = true, c.def.UID
		return nil
	}
	if len(m.collections) >= m.o.MaxCollections {
		return core.Exhausted{Limit: "collections", Max: int64(m.o.MaxCollections)}
	}
	// Undo gives the number back, so that the next collection gets it on every replica.
	last := m.last
	m.back(func() {
		m.last = last
		delete(m.collections, def.Name)
	})
	m.last++
	if m.collections == nil {
		m.collections = make(map[string]*collection)
	}
	c := &collection{def: *def, incarnation: m.last, due: core.Never}
	m.collections[def.Name] = c
	tx.Set(keys.Collection(m.p, ""), binary.BigEndian.AppendUint32(nil, m.last))
	tx.Set(keys.Collection(m.p, def.Name), core.AppendCollection(binary.BigEndian.AppendUint32(nil, m.last), def))
	m.changes = append(m.changes, core.PointChange{Partition: m.p, Incarnation: c.incarnation, Made: def})
	r.Version = def.UID
	return nil
}

// drop removes a collection and all it holds, as one range. A collection that is not there is a
// success that says so. The change tells the nodes, which keep an index of it, that it is gone.
func (m *Machine) drop(tx core.Txn, op *core.CollectionDelete, r *core.OpResult) core.Fact {
	if !core.ValidName(op.Name) {
		return core.Invalid{Field: "name", Reason: "bad_name", Message: "not a name of a collection"}
	}
	c := m.collections[op.Name]
	if c == nil {
		return nil
	}
	m.back(func() { m.collections[op.Name] = c })
	m.stale = true
	delete(m.collections, op.Name)
	tx.Delete(keys.Collection(m.p, op.Name))
	tx.DeleteRange(keys.CollectionRange(m.p, c.incarnation))
	m.changes = append(m.changes, core.PointChange{Partition: m.p, Incarnation: c.incarnation, Gone: true})
	r.Existed = true
	return nil
}

// validate judges a definition, and names the field that is wrong.
func validate(def *core.Collection) core.Fact {
	invalid := func(field, reason, message string) core.Fact {
		return core.Invalid{Field: field, Reason: reason, Message: message}
	}
	switch {
	case !core.ValidName(def.Name):
		return invalid("name", "bad_name", "not a name of a collection")
	case def.UID == 0:
		return invalid("uid", "missing", "a definition has a number of its own")
	case def.Model == "" || len(def.Model) > core.MaxModelName || len(def.Embedder) > core.MaxModelName:
		return invalid("embedder", "bad_name", "not a name of an embedder, or of a model")
	case def.Dim < core.MinDim || def.Dim > core.MaxDim:
		return invalid("dim", "out_of_range", "a vector has 2 to 4096 numbers")
	case def.Metric != core.MetricCosine && def.Metric != core.MetricDot:
		return invalid("metric", "unknown", "not a metric")
	case def.MaxPoints < 0:
		return invalid("limits.points", "negative", "a bound is not negative")
	case def.OnFailure != core.EmbedFail:
		return invalid("on_embed_failure", "not_supported", "is reserved and not supported yet")
	case len(def.Fields) > core.MaxCollectionFields:
		return core.TooLarge{Field: "schema", Limit: "collection_fields", Max: core.MaxCollectionFields}
	case len(def.Texts) > core.MaxTextFields:
		return core.TooLarge{Field: "text_fields", Limit: "text_fields", Max: core.MaxTextFields}
	}
	// What is left are the fields, each judged by itself.
	return validateFields(def)
}

// validateFields judges the fields of the schema and the text fields: names, types, gates and
// weights. A name may come once in each list.
func validateFields(def *core.Collection) core.Fact {
	// Names of schema fields so far: expressions find a field by its name alone.
	seen := make(map[string]bool, len(def.Fields))
	for i := range def.Fields {
		f := &def.Fields[i]
		path := fmt.Sprintf("schema[%d]", i)
		switch {
		case !validField(f.Name):
			return core.Invalid{Field: path + ".name", Reason: "bad_name", Message: "not a name of a field"}
		case seen[f.Name]:
			return core.Invalid{Field: path + ".name", Reason: "duplicate", Message: "a field before it has the same name"}
		case f.Type < core.FieldKeyword || f.Type > core.FieldCredential:
			return core.Invalid{Field: path + ".type", Reason: "unknown", Message: "not a type of a field"}
		case !gateFits(f):
			return core.Invalid{Field: path + ".gate", Reason: "contradiction", Message: "this gate is not for a field of this type"}
		}
		seen[f.Name] = true
	}
	// A text field need not be in the schema: it is read from the payload.
	texts := make(map[string]bool, len(def.Texts))
	for i, t := range def.Texts {
		path := fmt.Sprintf("text_fields[%d]", i)
		switch {
		case !validField(t.Name) || texts[t.Name]:
			return core.Invalid{Field: path + ".name", Reason: "bad_name", Message: "not a name of a field, or given twice"}
		case t.Weight < 1 || t.Weight > 1000:
			return core.Invalid{Field: path + ".weight", Reason: "out_of_range", Message: "a weight is 0.01 to 10"}
		}
		texts[t.Name] = true
	}
	return nil
}

// gateFits reports whether a field's type is one that its gate can read.
func gateFits(f *core.SchemaField) bool {
	switch f.Gate {
	case core.GateNone:
		return true
	case core.GateRole, core.GateBlock:
		return f.Type == core.FieldKeyword || f.Type == core.FieldKeywords
	case core.GateCredential:
		return f.Type == core.FieldCredential
	}
	return false
}

// validField reports whether s is an identifier of expressions, in which fields are named: letters,
// digits and underscores, and no digit first.
func validField(s string) bool {
	if s == "" || len(s) > core.MaxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
		case i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return true
}

// Collections lists the collections of a partition by name, with their counters.
func Collections(v core.View, p core.Partition) (out []core.CollectionInfo, err error) {
	from, to := keys.Collections(p)
	err = core.ScanRows(v, from, to, func(key, row []byte) (bool, error) {
		name, ok := keys.CollectionOf(key)
		if ok && name == "" {
			return true, nil // the counter
		}
		if !ok || len(row) < incarnationLen {
			return false, errs.Corruptf("definition %x of %s: row of %d bytes", key, p, len(row))
		}
		info := core.CollectionInfo{Incarnation: binary.BigEndian.Uint32(row)}
		if info.Collection, err = core.DecodeCollection(row[incarnationLen:]); err != nil || info.Collection.Name != name {
			return false, errs.Corruptf("definition of collection %q of %s: %v", name, p, err)
		}
		c, err := readCounts(v, p, info.Incarnation)
		info.Points, info.Slots, info.Recordings = c.points, c.slots, c.next-c.first
		out = append(out, info)
		return err == nil, err
	})
	return out, err
}

// Collection reads one collection of a partition.
func Collection(v core.View, p core.Partition, name string) (info core.CollectionInfo, ok bool, err error) {
	if !core.ValidName(name) {
		return info, false, nil
	}
	row, ok, err := v.Get(keys.Collection(p, name))
	if err != nil || !ok {
		return info, false, err
	}
	if len(row) < incarnationLen {
		return info, false, errs.Corruptf("definition of collection %q of %s: row of %d bytes", name, p, len(row))
	}
	info.Incarnation = binary.BigEndian.Uint32(row)
	if info.Collection, err = core.DecodeCollection(row[incarnationLen:]); err != nil {
		return info, false, errs.Corruptf("definition of collection %q of %s: %v", name, p, err)
	}
	c, err := readCounts(v, p, info.Incarnation)
	info.Points, info.Slots, info.Recordings = c.points, c.slots, c.next-c.first
	return info, err == nil, err
}

// incarnationOf reads the number of a collection from the store, for reads without a Machine.
func incarnationOf(v core.View, p core.Partition, name string) (uint32, bool, error) {
	info, ok, err := Collection(v, p, name)
	return info.Incarnation, ok, err
}

// Holds reports whether there are collections, and whether there are rulesets.
func (m *Machine) Holds() (collections, rulesets bool) {
	return len(m.collections) > 0, len(m.rulesets) > 0
}
