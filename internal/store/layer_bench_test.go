package store

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/tidwall/btree"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// cycleKeys are the keys that one task touches from creation to its end, in the shape that the queue gives them.
func cycleKeys(n uint64) [][]byte {
	p := core.Partition{Tenant: 1, Namespace: 2}
	var random [9]byte
	binary.BigEndian.PutUint64(random[:], n*0x9E3779B185EBCA87)
	id := core.NewTaskID(1_700_000_000_000+int64(n/30), 0, random) // 30,000 a second
	return [][]byte{
		keys.AppendTaskPayload(nil, p, id),
		keys.AppendTaskState(nil, p, id),
		keys.AppendReady(nil, p, 7, 1<<63, n),
		keys.AppendTaskTimer(nil, p, core.ShardTime(n), keys.TimerTombstone, id),
		keys.AppendTaskResult(nil, p, id),
		keys.AppendQueueCounters(nil, p, 7),
	}
}

var (
	payload = make([]byte, 200)
	state   = make([]byte, 80)
	counter = make([]byte, 40)
)

// mapper is what a cycle asks of a layer.
type mapper interface {
	Get(key []byte)
	Set(key, value []byte)
	Insert(key, value []byte)
	Delete(key []byte)
}

// cycle is create, claim and complete of one task: 10 changes and 6 lookups.
func cycle(m mapper, k [][]byte) {
	m.Get(k[1])
	m.Insert(k[0], payload)
	m.Insert(k[1], state)
	m.Insert(k[2], counter[:8])
	m.Get(k[5])
	m.Set(k[5], counter)
	m.Get(k[1])
	m.Delete(k[2])
	m.Set(k[1], state)
	m.Get(k[0])
	m.Get(k[1])
	m.Set(k[1], state)
	m.Insert(k[4], counter)
	m.Insert(k[3], nil)
	m.Get(k[5])
	m.Set(k[5], counter)
}

type treeMap struct{ t *btree.BTreeG[*entry] }

func (m treeMap) Get(key []byte)        { m.t.Get(&entry{key: key}) }
func (m treeMap) Set(key, value []byte) { m.t.Set(&entry{key: key, value: value}) }
func (m treeMap) Insert(key, v []byte)  { m.Set(key, v) }
func (m treeMap) Delete(key []byte)     { m.t.Delete(&entry{key: key}) }

type layerMap struct{ l *layer }

func (m layerMap) Get(key []byte)        { m.l.get(key) }
func (m layerMap) Set(key, value []byte) { m.l.put(key, value, false) }
func (m layerMap) Insert(key, v []byte)  { m.l.put(key, v, true) }
func (m layerMap) Delete(key []byte)     { m.l.remove(key) }

type txnMap struct{ t *Txn }

func (m txnMap) Get(key []byte) {
	if _, _, err := m.t.Get(key); err != nil {
		panic(err)
	}
}
func (m txnMap) Set(key, value []byte) { m.t.Set(key, value) }
func (m txnMap) Insert(key, v []byte)  { m.t.Insert(key, v) }
func (m txnMap) Delete(key []byte)     { m.t.Delete(key) }

const layerCycles = 20000 // cycles in one layer

// BenchmarkLayerCycle is a task's cycle on an ordered tree, and on the layer as it is: a hash table, put in order on demand.
func BenchmarkLayerCycle(b *testing.B) {
	all := make([][][]byte, layerCycles)
	for i := range all {
		all[i] = cycleKeys(uint64(i))
	}
	run := func(fresh func() mapper) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			var m mapper
			for i := 0; b.Loop(); i++ {
				if i%layerCycles == 0 {
					m = fresh()
				}
				cycle(m, all[i%layerCycles])
			}
		}
	}
	b.Run("tree", run(func() mapper {
		return treeMap{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
	}))
	l := newLayer()
	b.Run("layer", run(func() mapper { l.reset(); return layerMap{l} }))
}

// BenchmarkApplyCycle is the same through Apply, 64 cycles to an entry, with everything that costs but the making of
// keys: apply hash, journal, marks, lookups in the database and the writing of layers.
func BenchmarkApplyCycle(b *testing.B) {
	s, err := Open(Options{FS: vfs.NewMem(), Dir: "db"})
	if err != nil {
		b.Fatal(err)
	}
	sh, err := s.Shard(0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var n, index uint64
	batch := make([][][]byte, 64)
	for b.Loop() {
		b.StopTimer()
		for i := range batch {
			batch[i] = cycleKeys(n)
			n++
		}
		index++
		b.StartTimer()
		if err := sh.Apply(index, func(tx *Txn) error {
			for _, k := range batch {
				tx.Mark()
				cycle(txnMap{tx}, k)
				tx.Keep()
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/cycle")
	st := s.Stats()
	b.ReportMetric(float64(st.Mutations)/float64(n), "mutations/cycle")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkApplyScan changes a key and scans its neighbours in one entry, over a layer of 100,000 others.
func BenchmarkApplyScan(b *testing.B) {
	s, err := Open(Options{FS: vfs.NewMem(), Dir: "db", Manual: true})
	if err != nil {
		b.Fatal(err)
	}
	sh, err := s.Shard(0)
	if err != nil {
		b.Fatal(err)
	}
	p := core.Partition{Tenant: 1}
	if err := sh.Apply(1, func(tx *Txn) error {
		for i := range 100_000 {
			tx.Set(keys.KV(p, 1, fmt.Appendf(nil, "key%08d", i)), counter)
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	index := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		index++
		if err := sh.Apply(index, func(tx *Txn) error {
			k := fmt.Appendf(nil, "key%08d", index%100_000)
			tx.Set(keys.KV(p, 1, k), counter)
			n := 0
			from, _ := keys.KVRange(p, 1, k)
			return tx.Scan(from, nil, func(_, _ []byte) bool { n++; return n < 10 })
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLayerSort puts a full layer in order.
func BenchmarkLayerSort(b *testing.B) {
	l := newLayer()
	m := layerMap{l}
	for i := range layerCycles {
		cycle(m, cycleKeys(uint64(i)))
	}
	var s sorter
	b.ReportAllocs()
	for b.Loop() {
		s.sort(l)
		s.reset()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*l.entries.len()), "ns/entry")
}
