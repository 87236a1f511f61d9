package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/core"
)

// program is a fixed sequence of entries, for a Txn and for a plain map alike.
func program(index uint64, set func(k string, v []byte), del func(k string), clear func(from, to string)) {
	name := func(i uint64) string { return fmt.Sprintf("k%03d", i%60) }
	set(name(index), filler(int(index), 40))
	set(name(index*7), filler(int(index)+1, 40))
	del(name(index * 11))
	set(fmt.Sprint("once", index), nil)
	del(fmt.Sprint("once", index))
	if index%13 == 0 {
		clear(name(index), name(index+20))
	}
}

// stateAt runs the program on a plain map.
func stateAt(index uint64) map[string]string {
	m := map[string]string{}
	for i := uint64(1); i <= index; i++ {
		program(i,
			func(k string, v []byte) { m[string(key(k))] = string(v) },
			func(k string) { delete(m, string(key(k))) },
			func(from, to string) {
				for k := range m {
					if k >= string(key(from)) && k < string(key(to)) {
						delete(m, k)
					}
				}
			})
	}
	return m
}

func applyProgram(sh *Shard, index uint64) error {
	return sh.Apply(index, func(tx *Txn) error {
		program(index,
			func(k string, v []byte) { tx.Set(key(k), v) },
			func(k string) { tx.Delete(key(k)) },
			func(from, to string) { tx.DeleteRange(key(from), key(to)) })
		return nil
	})
}

// Power is cut at random points while entries are applied, layers written, memory tables flushed and files compacted in
// the background. What is found is always the whole state at the applied index found with it, which never lies below
// what Durable had promised, and the apply hash that a replay of the log has there.
func TestPowerCutAtAnyPointLeavesTheStateAtItsIndex(t *testing.T) {
	const entries, cuts = 3000, 40
	rng := rand.New(rand.NewPCG(1, 2))
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, Options{FS: mem, LayerBytes: 64 << 10, LayerAge: time.Millisecond, MemoryBytes: 16 << 20})
	sh := mustShard(t, s, 4)
	type cut struct {
		fs      *vfs.MemFS
		durable uint64
	}
	var clones []cut
	hashes := map[uint64]uint64{}
	for i := uint64(1); i <= entries; i++ {
		must(t, applyProgram(sh, i))
		_, hashes[i] = sh.Applied()
		if i%70 == 0 {
			s.RequestFlush()
		}
		if rng.IntN(entries/cuts) == 0 {
			durable := sh.Durable()
			kept := []int{0, 50, 100}[rng.IntN(3)]
			clones = append(clones, cut{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}), durable})
		}
	}
	mustClose(t, s)
	var highest uint64
	for _, c := range clones {
		s := mustOpen(t, Options{FS: c.fs, Manual: true})
		sh := mustShard(t, s, 4)
		index, hash := sh.Applied()
		highest = max(highest, index)
		if index < c.durable {
			t.Errorf("found index %d, and %d had been durable", index, c.durable)
		}
		if hash != hashes[index] {
			t.Errorf("found apply hash %x at index %d, want %x", hash, index, hashes[index])
		}
		got := map[string]string{}
		must(t, sh.View(func(v core.View) error {
			return v.Scan(nil, nil, func(k, v []byte) bool { got[string(k)] = string(v); return true })
		}))
		if want := stateAt(index); !maps.Equal(got, want) {
			t.Errorf("state at index %d differs: %d keys, want %d", index, len(got), len(want))
		}
		must(t, applyProgram(sh, index+1)) // the log goes on from there
		if _, hash := sh.Applied(); index < entries && hash != hashes[index+1] {
			t.Errorf("replay of entry %d gives another hash", index+1)
		}
		mustClose(t, s)
	}
	if len(clones) == 0 || highest == 0 {
		t.Errorf("%d cuts, the highest index found is %d: nothing was shown", len(clones), highest)
	}
}

// A clean close leaves nothing for the log to bring back.
func TestCleanCloseKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	sh := mustShard(t, s, 0)
	for i := uint64(1); i <= 100; i++ {
		must(t, applyProgram(sh, i))
	}
	_, want := sh.Applied()
	mustClose(t, s)
	s = mustOpen(t, Options{Dir: dir})
	defer mustClose(t, s)
	sh = mustShard(t, s, 0)
	if index, hash := sh.Applied(); index != 100 || hash != want || sh.Durable() != 100 {
		t.Errorf("found index %d, durable %d, hash %x; want 100, 100, %x", index, sh.Durable(), hash, want)
	}
}
