package checktest

import (
	"strconv"

	"github.com/millrace/millrace/internal/core"
)

// keysOp makes an op on keys that is more than one put or delete.
func (w *world) keysOp() core.Op {
	space := pick(w.rand, w.spaces)
	switch w.rand.IntN(3) {
	case 0:
		return w.puts()
	case 1:
		op := &core.KVAdd{
			Keyspace: space, Key: []byte(pick(w.rand, w.keys)), Delta: int64(w.rand.IntN(9) - 4), HasRev: w.rand.IntN(4) == 0, IfRev: w.rev(),
			HasFloor: w.rand.IntN(3) == 0, Floor: -3, HasCeiling: w.rand.IntN(3) == 0, Ceiling: 6,
		}
		if w.rand.IntN(10) == 0 {
			op.Delta = 1 << 62
		}
		return op
	}
	op := &core.KVDeleteRange{Keyspace: space, Count: w.rand.IntN(2) == 0}
	switch w.rand.IntN(3) {
	case 0:
		op.Prefix = []byte(pick(w.rand, w.keys))
	case 1:
		op.From, op.To = []byte(pick(w.rand, w.keys)), []byte(pick(w.rand, w.keys))
	}
	return op
}

// puts makes a batch, in which keys come more than once.
func (w *world) puts() *core.KVPuts {
	op := &core.KVPuts{Keyspace: pick(w.rand, w.spaces), Items: make([]core.KVItem, 1+w.rand.IntN(6))}
	for i := range op.Items {
		it := core.KVItem{Key: []byte(pick(w.rand, w.keys)), Value: []byte(strconv.Itoa(w.rand.IntN(4))), HasRev: w.rand.IntN(4) == 0}
		if it.HasRev {
			it.IfRev = w.rev()
		} else {
			it.IfAbsent = w.rand.IntN(5) == 0
		}
		op.Items[i] = it
	}
	return op
}

// quota bounds the tasks of the tenant: often it leaves room for some of them, and sometimes it is none.
func (w *world) quota() core.Op {
	op := new(core.TenantQuota)
	if w.rand.IntN(3) == 0 {
		return op
	}
	op.Bounds = core.TaskBounds{Tasks: int64(w.rand.IntN(60)), Bytes: int64(w.rand.IntN(400)), Running: int64(w.rand.IntN(12))}
	op.Others = core.TaskUse{Tasks: uint64(w.rand.IntN(20)), Bytes: uint64(w.rand.IntN(100)), Running: uint64(w.rand.IntN(4))}
	if w.rand.IntN(20) == 0 {
		op.Bounds.Running = -1
	}
	return op
}

// configureSpace makes an op on a whole keyspace.
func (w *world) configureSpace() core.Op {
	space := pick(w.rand, w.spaces)
	switch w.rand.IntN(6) {
	case 5:
		if w.rand.IntN(2) == 0 {
			return w.quota()
		}
		return &core.TenantUse{Bytes: uint64(w.rand.IntN(200)), Bound: int64(w.rand.IntN(2) * 150)}
	case 4:
		return &core.NamespaceSet{Config: core.NamespaceConfig{KeyBytes: int64(w.rand.IntN(2) * 100)}, IfVersion: -1}
	case 0:
		return &core.KeyspaceDelete{Keyspace: space}
	case 1:
		items := make([]core.SpaceUse, 1+w.rand.IntN(3))
		for i := range items {
			items[i] = core.SpaceUse{Incarnation: uint32(w.rand.IntN(5)), Bytes: uint64(w.rand.IntN(200))}
		}
		return &core.KeyspaceUse{Items: items}
	}
	n := w.rand.IntN(4)
	config := core.KeyspaceConfig{WriteRate: int64(n % 2), Writers: n > 1}
	if w.rand.IntN(3) == 0 {
		config.Bytes = 100
	}
	return &core.KeyspaceSet{Keyspace: space, Config: config, IfVersion: int64(w.rand.IntN(3)) - 1}
}
