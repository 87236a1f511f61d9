package search

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// point is a point's row: version and slot as varints, then the payload. Without ok the point is
// absent, and has version 0.
type point struct {
	// version is the partition's revision at its last upsert. slot is where its vector lies.
	version, slot uint64
	// payload is as the edge checked it: a JSON object, or empty.
	payload []byte
	// ok says that the point is there.
	ok bool
}

// append writes the row; the payload is its rest, without a length.
func (pt point) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, pt.version)
	dst = binary.AppendUvarint(dst, pt.slot)
	return append(dst, pt.payload...)
}

// decodePoint reads what append wrote. The payload points into row.
func decodePoint(row []byte) (pt point, ok bool) {
	version, n := binary.Uvarint(row)
	if n <= 0 {
		return pt, false
	}
	slot, k := binary.Uvarint(row[n:])
	if k <= 0 {
		return pt, false
	}
	return point{version, slot, row[n+k:], true}, true
}

// readPoint reads a point's row. Its payload is the store's memory.
func readPoint(v core.View, p core.Partition, incarnation uint32, id string) (point, error) {
	row, ok, err := v.Get(keys.Point(p, incarnation, id))
	if err != nil || !ok {
		return point{}, err
	}
	pt, ok := decodePoint(row)
	if !ok {
		return pt, errs.Corruptf("point %q of collection %d of %s: row %x", id, incarnation, p, row)
	}
	return pt, nil
}

// find returns a collection by name. uid is that of the definition by which the edge checked the
// op; 0: no definition was needed.
func (m *Machine) find(name string, uid uint64) (*collection, core.Fact) {
	c := m.collections[name]
	switch {
	case c == nil:
		return nil, core.NotFound{Kind: "collection", ID: name}
	case uid != 0 && uid != c.def.UID: // made again since the edge looked: the edge checked another one
		return nil, core.Unavailable{Reason: "collection_not_ready"}
	}
	return c, nil
}

// ValidPointID reports whether s may be a point's id: 1 to 128 bytes without spaces and control
// characters. Braces may hold the text that places it.
func ValidPointID(s string) bool {
	if s == "" || len(s) > maxPointID {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// upsert stores a point: its row under its id, and its vector under a new slot. The vector of the
// old slot is deleted in the same entry, so that no slot ever shows two vectors. It reads the old
// row, which tells the old slot.
func (m *Machine) upsert(tx core.Txn, ctx *core.ApplyContext, op *core.VectorUpsert, r *core.OpResult) (core.Fact, error) {
	c, fact := m.find(op.Collection, op.UID)
	// What the op alone shows is judged before anything is read.
	if fact == nil {
		fact = c.fits(op)
	}
	if fact != nil {
		return fact, nil
	}
	old, err := readPoint(tx, m.p, c.incarnation, op.ID)
	if err != nil {
		return nil, err
	}
	// An absent point has version 0, so a condition of version 0 asks that it is absent.
	if op.IfAbsent && old.ok || op.HasVersion && op.IfVersion != old.version {
		return m.mismatch(op.Collection, op.ID, old), nil
	}
	// Only a point that is new takes room under the bound.
	if limit := c.maxPoints(); !old.ok && c.counts.points >= uint64(limit) {
		return core.Exhausted{Limit: "points_limit", Max: limit}, nil
	}
	m.touch(c)
	// The slot is taken only now, when nothing can refuse the op any more.
	slot := c.counts.slots
	c.counts.slots++
	if old.ok {
		tx.Delete(keys.Vector(m.p, c.incarnation, old.slot))
	} else {
		c.counts.points++
	}
	next := point{version: ctx.Rev, slot: slot, payload: op.Payload}
	tx.Set(keys.Point(m.p, c.incarnation, op.ID), next.append(make([]byte, 0, 2*binary.MaxVarintLen64+len(op.Payload))))
	// A slot is given out once, so nothing was ever stored under it: Insert promises that.
	tx.Insert(keys.Vector(m.p, c.incarnation, slot), op.Vector)
	m.changes = append(m.changes, core.PointChange{
		Partition: m.p, Incarnation: c.incarnation, ID: op.ID, Slot: slot, Old: old.slot, HadOld: old.ok, Version: ctx.Rev,
		Vector: op.Vector, Payload: op.Payload,
	})
	r.Rev, r.Version, r.Existed = ctx.Rev, uint64(m.p.Index), old.ok
	return nil, nil
}

// fits judges what an upsert alone shows, and whether it fits the definition.
func (c *collection) fits(op *core.VectorUpsert) core.Fact {
	switch {
	case !ValidPointID(op.ID):
		return core.Invalid{Field: "id", Reason: "bad_name", Message: "not an id of a point"}
	case len(op.Payload) > core.MaxPointPayload:
		return core.TooLarge{Field: "payload", Limit: "point_payload_bytes", Max: core.MaxPointPayload}
	case op.Model != "" && op.Model != c.def.Model:
		return core.SearchState{Reason: "model_mismatch", Field: "model", Want: c.def.Model, Got: op.Model}
	case len(op.Vector) != 4*int(c.def.Dim):
		return core.DimMismatch{Field: "vector", Want: int64(c.def.Dim), Got: int64(len(op.Vector) / 4)}
	case op.IfAbsent && op.HasVersion && op.IfVersion != 0:
		return core.Invalid{Field: "if_absent", Reason: "contradiction", Message: "if_version names a version"}
	}
	return nil
}

// maxPoints is the definition's bound of points, or the default.
func (c *collection) maxPoints() int64 {
	if c.def.MaxPoints > 0 {
		return c.def.MaxPoints
	}
	return core.MaxPoints
}

// mismatch is the refusal of a version, with the one that was found.
func (m *Machine) mismatch(collection, id string, found point) core.Fact {
	return core.VersionMismatch{Collection: collection, ID: id, Partition: m.p.Index, Version: found.version}
}

// delete removes a point and its vector. A point that is not there is a success that says so.
func (m *Machine) delete(tx core.Txn, op *core.VectorDelete, r *core.OpResult) (core.Fact, error) {
	c, fact := m.find(op.Collection, 0)
	if fact != nil {
		return fact, nil
	}
	if !ValidPointID(op.ID) {
		return core.Invalid{Field: "id", Reason: "bad_name", Message: "not an id of a point"}, nil
	}
	old, err := readPoint(tx, m.p, c.incarnation, op.ID)
	if err != nil {
		return nil, err
	}
	if op.HasVersion && op.IfVersion != old.version {
		return m.mismatch(op.Collection, op.ID, old), nil
	}
	// Nothing changed, and no node has to be told.
	if !old.ok {
		return nil, nil
	}
	m.touch(c)
	c.counts.points--
	tx.Delete(keys.Point(m.p, c.incarnation, op.ID))
	tx.Delete(keys.Vector(m.p, c.incarnation, old.slot))
	m.changes = append(m.changes, core.PointChange{
		Partition: m.p, Incarnation: c.incarnation, ID: op.ID, Deleted: true, Old: old.slot, HadOld: true,
	})
	r.Existed = true
	return nil, nil
}

// Point reads a point. ok is false when it, or its collection, is absent.
func Point(v core.View, p core.Partition, collection, id string) (out core.StoredPoint, ok bool, err error) {
	incarnation, ok, err := incarnationOf(v, p, collection)
	if err != nil || !ok || !ValidPointID(id) {
		return out, false, err
	}
	pt, err := readPoint(v, p, incarnation, id)
	if err != nil || !pt.ok {
		return out, false, err
	}
	vector, ok, err := v.Get(keys.Vector(p, incarnation, pt.slot))
	if err == nil && !ok {
		err = errs.Corruptf("point %q of collection %d of %s: no vector in slot %d", id, incarnation, p, pt.slot)
	}
	return core.StoredPoint{
		ID: id, Version: pt.version, Slot: pt.slot, Vector: bytes.Clone(vector), Payload: bytes.Clone(pt.payload),
	}, err == nil, err
}

// EachPoint calls fn for the points of a collection of that incarnation, in the order of their ids, from the one behind after
// on (empty: the first), until there are no more or fn says so. Slices are good during the call only.
func EachPoint(v core.View, p core.Partition, incarnation uint32, after string, fn func(core.StoredPoint) (more bool)) error {
	from, to := keys.Points(p, incarnation)
	if after != "" {
		from = keys.PointsAfter(p, incarnation, after)
	}
	return core.ScanRows(v, from, to, func(key, row []byte) (bool, error) {
		id, ok := keys.PointOf(key)
		pt, rowOK := decodePoint(row)
		if !ok || !rowOK {
			return false, errs.Corruptf("point %x of collection %d of %s: row of %d bytes", key, incarnation, p, len(row))
		}
		vector, ok, err := v.Get(keys.Vector(p, incarnation, pt.slot))
		if err != nil {
			return false, err
		}
		if !ok {
			return false, errs.Corruptf("point %q of collection %d of %s: no vector in slot %d", id, incarnation, p, pt.slot)
		}
		return fn(core.StoredPoint{ID: id, Version: pt.version, Slot: pt.slot, Vector: vector, Payload: pt.payload}), nil
	})
}
