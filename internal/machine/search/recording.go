package search

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A recording's row is when it was kept and when it expires, both as varints, then its data.
// Recordings leave in the order of their numbers: the oldest when there are too many, and those
// that have expired once all before them have. So the earliest end that matters is that of the
// oldest one. A recording that stays for long may keep later ones with it.

// appendRecording writes the row: when it was kept, when it expires, and the data as the rest.
func appendRecording(at, expires core.ShardTime, data []byte) []byte {
	row := make([]byte, 0, 2*binary.MaxVarintLen64+len(data))
	row = binary.AppendUvarint(row, uint64(at))
	row = binary.AppendUvarint(row, uint64(expires))
	return append(row, data...)
}

// decodeRecording reads what appendRecording wrote. data points into row.
func decodeRecording(row []byte) (at, expires core.ShardTime, data []byte, ok bool) {
	a, n := binary.Uvarint(row)
	if n <= 0 {
		return 0, 0, nil, false
	}
	e, k := binary.Uvarint(row[n:])
	if k <= 0 {
		return 0, 0, nil, false
	}
	return core.ShardTime(a), core.ShardTime(e), row[n+k:], true
}

// record keeps a recording under the id of its search, and under the next number for its order. The
// oldest one makes room when there are too many.
func (m *Machine) record(tx core.Txn, ctx *core.ApplyContext, op *core.RecordingPut) (core.Fact, error) {
	c, fact := m.find(op.Collection, op.UID)
	switch {
	case fact != nil:
		return fact, nil
	case op.ID == 0:
		return core.Invalid{Field: "id", Reason: "missing", Message: "a recording has a number"}, nil
	case op.TTL < 0 || op.TTL > core.MaxRecordingTTL:
		return core.Invalid{Field: "ttl", Reason: "out_of_range", Message: "a recording is kept for up to ten years"}, nil
	case len(op.Data) > core.MaxRecordingBytes:
		return core.TooLarge{Field: "record", Limit: "recording_bytes", Max: core.MaxRecordingBytes}, nil
	}
	key := keys.Recording(m.p, c.incarnation, op.ID)
	// Edges draw the ids at random: one that is taken is of another search.
	if _, taken, err := tx.Get(key); err != nil || taken {
		return core.AlreadyExists{Kind: "recording", ID: "search_id"}, err
	}
	m.touch(c)
	if c.counts.next-c.counts.first >= m.o.MaxRecordings {
		if err := m.forgetOldest(tx, c); err != nil {
			return nil, err
		}
	}
	ttl := op.TTL
	if ttl == 0 {
		ttl = core.RecordingTTL
	}
	expires := ctx.Stamp.Add(ttl)
	tx.Set(key, appendRecording(ctx.Stamp, expires, op.Data))
	tx.Set(keys.RecordingOrder(m.p, c.incarnation, c.counts.next), binary.BigEndian.AppendUint64(nil, op.ID))
	c.counts.next++
	// The first recording is the oldest: what is due changes with it alone.
	if c.counts.next-c.counts.first == 1 {
		c.due, m.stale = expires, true
	} else if c.due == core.Never {
		return nil, errs.Corruptf("recordings of collection %d of %s: nothing is due", c.incarnation, m.p)
	}
	return nil, nil
}

// forgetOldest removes the oldest recording, and finds when the next one expires. The caller has
// touched the collection.
func (m *Machine) forgetOldest(tx core.Txn, c *collection) error {
	order := keys.RecordingOrder(m.p, c.incarnation, c.counts.first)
	row, ok, err := tx.Get(order)
	if err != nil {
		return err
	}
	if !ok || len(row) != 8 {
		return errs.Corruptf("recording %d of collection %d of %s: row %x", c.counts.first, c.incarnation, m.p, row)
	}
	tx.Delete(keys.Recording(m.p, c.incarnation, binary.BigEndian.Uint64(row)))
	tx.Delete(order)
	// Numbers are never given again: the next one is the oldest now.
	c.counts.first++
	m.stale = true
	c.due, err = m.firstDue(tx, c)
	return err
}

// firstDue returns when a collection's oldest recording expires; core.Never without recordings.
func (m *Machine) firstDue(v core.View, c *collection) (core.ShardTime, error) {
	if c.counts.first == c.counts.next {
		return core.Never, nil
	}
	id, ok, err := v.Get(keys.RecordingOrder(m.p, c.incarnation, c.counts.first))
	if err != nil {
		return 0, err
	}
	if !ok || len(id) != 8 {
		return 0, errs.Corruptf("recording %d of collection %d of %s: row %x", c.counts.first, c.incarnation, m.p, id)
	}
	row, _, err := v.Get(keys.Recording(m.p, c.incarnation, binary.BigEndian.Uint64(id)))
	if err != nil {
		return 0, err
	}
	_, expires, _, ok := decodeRecording(row)
	if !ok {
		return 0, errs.Corruptf("recording %x of collection %d of %s: row of %d bytes", id, c.incarnation, m.p, len(row))
	}
	return expires, nil
}

// Due returns when the earliest timed work is due, core.Never without any.
func (m *Machine) Due() core.ShardTime { return m.due }

// names lists the collections in order, so that ticks work the same on every replica.
func (m *Machine) names() []string { return slices.Sorted(maps.Keys(m.collections)) }

// findDue computes due from the collections.
func (m *Machine) findDue() {
	m.due = core.Never
	for _, name := range m.names() {
		m.due = min(m.due, m.collections[name].due)
	}
}

// Tick forgets at most limit recordings that have expired, tells how many, and reports whether some
// are left. Collections are looked at in order of name.
func (m *Machine) Tick(tx core.Txn, ctx *core.ApplyContext, limit uint32) (used uint32, more bool, err error) {
	for _, name := range m.names() {
		c := m.collections[name]
		for c.due <= ctx.Stamp {
			if used == limit {
				return used, true, nil
			}
			m.touch(c)
			if err := m.forgetOldest(tx, c); err != nil {
				return used, false, err
			}
			used++
		}
	}
	return used, false, nil
}

// ReadRecording reads a recording of a collection, by the uid of its definition. It is not there
// when it has expired by now, though a tick has not removed it yet.
func ReadRecording(v core.View, p core.Partition, uid, id uint64, now core.ShardTime) (out core.Recording, info core.CollectionInfo, ok bool, err error) {
	infos, err := Collections(v, p)
	if err != nil {
		return out, info, false, err
	}
	for _, info := range infos {
		if info.Collection.UID != uid {
			continue
		}
		row, ok, err := v.Get(keys.Recording(p, info.Incarnation, id))
		if err != nil || !ok {
			return out, info, false, err
		}
		at, expires, data, ok := decodeRecording(row)
		if !ok {
			return out, info, false, errs.Corruptf("recording %x of collection %d of %s: row of %d bytes", id, info.Incarnation, p, len(row))
		}
		if expires <= now {
			return out, info, false, nil
		}
		return core.Recording{ID: id, At: at, Expires: expires, Data: bytes.Clone(data)}, info, true, nil
	}
	return out, info, false, nil
}
