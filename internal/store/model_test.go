package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// model is a shard's state as a plain map. It shares only the order of keys with what it judges.
type model map[string]string

func (m model) sorted(from, to []byte) []string {
	var out []string
	for k := range m {
		if keys.Compare([]byte(k), from) >= 0 && (len(to) == 0 || keys.Compare([]byte(k), to) < 0) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return keys.Compare([]byte(a), []byte(b)) })
	return out
}

// machine drives a store and a model with the same random program.
type machine struct {
	fs    *vfs.MemFS
	s     *Store
	sh    *Shard
	id    core.ShardID
	now   model
	then  map[uint64]model  // by applied index
	hash  map[uint64]uint64 // likewise
	index uint64
}

// keyPool makes few keys of several classes, so that they meet; some are shorter than a class, some have revisions.
var keyPool = func() [][]byte {
	var pool [][]byte
	for _, p := range []core.Partition{{}, {Tenant: 1, Namespace: 1}, {Tenant: 1, Namespace: 1, Index: 1}} {
		for _, record := range []byte{1, 2, 0xff} {
			for _, rest := range []string{"", "a", "a\x00", "b", "b\xff"} {
				body := func() []byte { return append(append(keys.Begin(p, keys.ServiceKV, 8), record), rest...) }
				pool = append(pool, keys.End(body()))
				if record == 2 {
					pool = append(pool, keys.EndRev(body(), 1), keys.EndRev(body(), 2))
				}
			}
		}
		pool = append(pool, keys.End(keys.Begin(p, keys.ServiceMeta, 0)))
	}
	return append(pool, keys.End([]byte("x")), keys.End([]byte{0xff, 0xff}))
}()

func drawKey(t *rapid.T) []byte { return bytes.Clone(rapid.SampledFrom(keyPool).Draw(t, "key")) }

// drawBounds draws a range: between two keys, one partition, without an end, empty or turned around.
func drawBounds(t *rapid.T) (from, to []byte) {
	switch rapid.IntRange(0, 5).Draw(t, "kind of range") {
	case 0:
		return keys.PartitionRange(core.Partition{Tenant: 1, Namespace: 1})
	case 1:
		return drawKey(t), nil
	case 2:
		return nil, nil
	}
	return drawKey(t), drawKey(t)
}

func (m *machine) open(t *rapid.T) {
	var err error
	if m.s, err = Open(Options{FS: m.fs, Dir: "db", Manual: true}); err != nil {
		t.Fatal(err)
	}
	if m.sh, err = m.s.Shard(m.id); err != nil {
		t.Fatal(err)
	}
}

// resume takes the model back to what was found after an open.
func (m *machine) resume(t *rapid.T, atLeast uint64) {
	index, hash := m.sh.Applied()
	if index < atLeast || index > m.index {
		t.Fatalf("found applied index %d, want %d to %d", index, atLeast, m.index)
	}
	if hash != m.hash[index] {
		t.Fatalf("found apply hash %x at index %d, want %x", hash, index, m.hash[index])
	}
	if durable := m.sh.Durable(); durable != index {
		t.Fatalf("durable is %d just after an open at %d", durable, index)
	}
	m.index, m.now = index, maps.Clone(m.then[index])
	m.compare(t)
}

// compare reads everything, and compares.
func (m *machine) compare(t *rapid.T) {
	if err := m.sh.View(func(v core.View) error {
		m.compareView(t, v, nil, nil)
		for _, k := range keyPool {
			m.compareGet(t, v, k)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) compareGet(t *rapid.T, v core.View, key []byte) {
	got, ok, err := v.Get(key)
	want, wantOK := m.now[string(key)]
	if err != nil || ok != wantOK || string(got) != want {
		t.Fatalf("get %x: %q %v %v, want %q %v", key, got, ok, err, want, wantOK)
	}
}

func (m *machine) compareView(t *rapid.T, v core.View, from, to []byte) {
	var got, want []string
	if err := v.Scan(from, to, func(k, v []byte) bool {
		got = append(got, fmt.Sprintf("%x=%q", k, v))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for _, k := range m.now.sorted(from, to) {
		want = append(want, fmt.Sprintf("%x=%q", k, m.now[k]))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("scan [%x, %x)\n got %v\nwant %v", from, to, got, want)
	}
	got = nil
	most := rapid.IntRange(1, len(want)+1).Draw(t, "rows of the scan back")
	if err := v.ScanBack(from, to, func(k, v []byte) bool {
		got = append(got, fmt.Sprintf("%x=%q", k, v))
		return len(got) < most
	}); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(want)
	if want = want[:min(most, len(want))]; !slices.Equal(got, want) {
		t.Fatalf("scan back [%x, %x)\n got %v\nwant %v", from, to, got, want)
	}
}

// entry applies one entry of random ops.
func (m *machine) entry(t *rapid.T) {
	before := maps.Clone(m.now)
	fail := rapid.IntRange(0, 60).Draw(t, "fails") == 0
	errPlanned := errors.New("planned")
	_, hashBefore := m.sh.Applied()
	err := m.sh.Apply(m.index+1, func(tx *Txn) error {
		for range rapid.IntRange(0, 5).Draw(t, "commits") {
			m.commit(t, tx)
		}
		if fail {
			return errPlanned
		}
		return nil
	})
	if fail {
		if !errors.Is(err, errPlanned) {
			t.Fatalf("failed entry returned %v", err)
		}
		m.now = before
		if index, hash := m.sh.Applied(); index != m.index || hash != hashBefore {
			t.Fatalf("failed entry moved the head to %d, %x", index, hash)
		}
		m.compare(t)
		if err := m.sh.Apply(m.index+1, func(*Txn) error { return nil }); err == nil {
			t.Fatal("a stopped shard applied an entry")
		}
		m.crash(t) // as the node would: start again
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	m.index++
	index, hash := m.sh.Applied()
	if index != m.index {
		t.Fatalf("applied index %d, want %d", index, m.index)
	}
	m.then[index], m.hash[index] = maps.Clone(m.now), hash
}

// commit is ops that a mark may take back.
func (m *machine) commit(t *rapid.T, tx *Txn) {
	saved := maps.Clone(m.now)
	marked := rapid.Bool().Draw(t, "marked")
	if marked {
		tx.Mark()
	}
	for range rapid.IntRange(0, 6).Draw(t, "ops") {
		m.op(t, tx)
	}
	if !marked {
		return
	}
	if rapid.Bool().Draw(t, "undone") {
		tx.Undo()
		m.now = saved
	} else {
		tx.Keep()
	}
}

func (m *machine) op(t *rapid.T, tx *Txn) {
	key := drawKey(t)
	value := func() []byte { return rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "value") }
	switch rapid.IntRange(0, 9).Draw(t, "op") {
	case 0, 1:
		v := value()
		tx.Set(key, v)
		m.now[string(key)] = string(v)
	case 2, 3:
		if _, ok := m.now[string(key)]; !ok {
			v := value()
			tx.Insert(key, v)
			m.now[string(key)] = string(v)
		}
	case 4, 5:
		tx.Delete(key)
		delete(m.now, string(key))
	case 6:
		from, to := drawBounds(t)
		tx.DeleteRange(from, to)
		for _, k := range m.now.sorted(from, to) {
			delete(m.now, k)
		}
	case 7:
		m.compareGet(t, tx, key)
	case 8:
		from, to := drawBounds(t)
		m.compareView(t, tx, from, to)
	case 9:
		m.changingScan(t, tx)
	}
}

// changingScan changes the state from within a scan's callback.
func (m *machine) changingScan(t *rapid.T, tx *Txn) {
	from, to := drawBounds(t)
	var seen []byte
	err := tx.Scan(from, to, func(k, v []byte) bool {
		ahead := m.now.sorted(from, to)
		if seen != nil {
			i, _ := slices.BinarySearchFunc(ahead, seen, func(a string, b []byte) int {
				if keys.Compare([]byte(a), b) <= 0 {
					return -1
				}
				return 1
			})
			ahead = ahead[i:]
		}
		if len(ahead) == 0 || ahead[0] != string(k) || m.now[ahead[0]] != string(v) {
			t.Fatalf("scan that changes shows %x=%q, want the first of %x", k, v, ahead)
		}
		seen = bytes.Clone(k)
		switch key := drawKey(t); rapid.IntRange(0, 4).Draw(t, "change") {
		case 0:
			tx.Delete(bytes.Clone(k))
			delete(m.now, string(k))
		case 1:
			tx.Set(key, []byte("new"))
			m.now[string(key)] = "new"
		case 2:
			tx.Delete(key)
			delete(m.now, string(key))
		case 3:
			m.compareView(t, tx, from, to) // a scan within a scan
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// install replaces the state by that of a store that went on alone.
func (m *machine) install(t *rapid.T) {
	peer := &machine{fs: vfs.NewCrashableMem(), now: model{}, then: map[uint64]model{0: {}}, hash: map[uint64]uint64{0: 0}, id: m.id}
	peer.open(t)
	defer func() { peer.shut(t) }()
	if start := m.index + rapid.Uint64Range(0, 3).Draw(t, "entries it is ahead"); start > 0 {
		if err := peer.sh.Apply(start, func(*Txn) error { return nil }); err != nil {
			t.Fatal(err)
		}
		_, hash := peer.sh.Applied()
		peer.index, peer.then[start], peer.hash[start] = start, model{}, hash
	}
	for range rapid.IntRange(1, 3).Draw(t, "entries of the snapshot") {
		peer.entry(t)
	}
	if peer.index == 0 {
		return // its only entry failed
	}
	if rapid.Bool().Draw(t, "small files") {
		peer.s.fileBytes = 1
	}
	snap, err := peer.sh.Export("out")
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprint("in", snap.Index)
	if err := m.fs.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	carry(t, peer.fs, "out", m.fs, dir)
	err = m.sh.Install(dir, snap)
	if refused := snap.Index <= m.index; refused != (err != nil) {
		t.Fatalf("a snapshot of entry %d over %d: %v", snap.Index, m.index, err)
	} else if refused {
		m.compare(t)
		return
	}
	index, hash := peer.sh.Applied()
	m.index, m.now = index, maps.Clone(peer.now)
	m.then[index], m.hash[index] = maps.Clone(peer.now), hash
	if got, gotHash := m.sh.Applied(); got != index || gotHash != hash || m.sh.Durable() != index {
		t.Fatalf("after a snapshot of %d the index is %d and %d is durable", index, got, m.sh.Durable())
	}
	m.compare(t)
}

// crash reopens what a power cut leaves.
func (m *machine) crash(t *rapid.T) {
	durable := m.sh.Durable()
	clone := m.fs.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: rapid.SampledFrom([]int{0, 30, 100}).Draw(t, "unsynced kept"),
		RNG:                 rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "crash seed"), 0)),
	})
	m.shut(t)
	m.fs = clone
	m.open(t)
	m.resume(t, durable)
}

func (m *machine) shut(t *rapid.T) {
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestShardBehavesAsASortedMapAcrossLayersAndCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{
			fs: vfs.NewCrashableMem(), now: model{}, then: map[uint64]model{0: {}}, hash: map[uint64]uint64{0: 0},
			id: rapid.SampledFrom([]core.ShardID{0, 1, 9, 0xffff}).Draw(t, "shard"),
		}
		m.open(t)
		defer func() { m.shut(t) }()
		t.Repeat(map[string]func(*rapid.T){
			"entry":   m.entry,
			"entry 2": m.entry,
			"entry 3": m.entry,
			"freeze": func(*rapid.T) {
				m.sh.mu.Lock()
				if m.sh.frozen == nil && m.sh.active.used {
					m.sh.freeze()
				}
				m.sh.mu.Unlock()
			},
			"write frozen": func(t *rapid.T) {
				m.sh.writeMu.Lock()
				defer m.sh.writeMu.Unlock()
				if err := m.sh.writeFrozen(); err != nil {
					t.Fatal(err)
				}
			},
			"write layer": func(t *rapid.T) {
				if err := m.sh.WriteLayer(); err != nil {
					t.Fatal(err)
				}
			},
			"flush": func(t *rapid.T) {
				if err := m.s.Flush(); err != nil {
					t.Fatal(err)
				}
				if d := m.sh.Durable(); d != m.index {
					t.Fatalf("durable is %d after a flush at %d", d, m.index)
				}
			},
			"crash":   m.crash,
			"install": m.install,
			"restart": func(t *rapid.T) {
				m.shut(t)
				m.open(t)
				m.resume(t, m.index)
			},
			"read": func(t *rapid.T) {
				m.compare(t)
				from, to := drawBounds(t)
				if err := m.sh.View(func(v core.View) error {
					m.compareView(t, v, from, to)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			},
			"": func(*rapid.T) {},
		})
		m.compare(t)
	})
}
