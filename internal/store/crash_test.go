package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/core"
)

// program is a fixed sequence of entries, for a Txn and for a plain map alike. The number is the bytes of each value.
type program int

func (p program) entry(index uint64, set func(k string, v []byte), del func(k string), clear func(from, to string)) {
	name := func(i uint64) string { return fmt.Sprintf("k%03d", i%60) }
	set(name(index), filler(int(index), int(p)))
	set(name(index*7), filler(int(index)+1, int(p)))
	del(name(index * 11))
	set(fmt.Sprint("once", index), nil)
	del(fmt.Sprint("once", index))
	if index%13 == 0 {
		clear(name(index), name(index+20))
	}
}

// stateAt runs the program on a plain map.
func (p program) stateAt(index uint64) map[string]string {
	m := map[string]string{}
	for i := uint64(1); i <= index; i++ {
		p.entry(i,
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

func (p program) apply(sh *Shard, index uint64) error {
	return sh.Apply(index, func(tx *Txn) error {
		p.entry(index,
			func(k string, v []byte) { tx.Set(key(k), v) },
			func(k string) { tx.Delete(key(k)) },
			func(from, to string) { tx.DeleteRange(key(from), key(to)) })
		return nil
	})
}

// Power is cut at random points while entries are applied, layers written, memory tables flushed and files compacted in
// the background. What is found is always the whole state at the applied index found with it, which never lies below
// what Durable had promised, and the apply hash that a replay of the log has there. Layers are small, so that many share
// a memory table, or larger than half of one, which the database then flushes each by itself.
func TestPowerCutAtAnyPointLeavesTheStateAtItsIndex(t *testing.T) {
	for name, c := range map[string]struct {
		p       program
		o       Options
		entries uint64
	}{
		"small layers": {40, Options{LayerBytes: 64 << 10, LayerAge: time.Millisecond}, 3000},
		"large layers": {48 << 10, Options{LayerBytes: 1200 << 10, LayerAge: time.Hour}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.MemoryBytes = 16 << 20
			cutPower(t, c.p, c.o, c.entries)
		})
	}
}

// cutPower cuts the power at random points of a program, and looks at what each cut leaves.
func cutPower(t *testing.T, p program, o Options, entries uint64) {
	rng := rand.New(rand.NewPCG(1, 2))
	mem := vfs.NewCrashableMem()
	o.FS = mem
	s := mustOpen(t, o)
	sh := mustShard(t, s, 4)
	var clones []crashed
	hashes := make([]uint64, entries+2) // by index
	for i := uint64(1); i <= entries; i++ {
		must(t, p.apply(sh, i))
		_, hashes[i] = sh.Applied()
		if i%70 == 0 {
			s.RequestFlush()
		}
		for i == entries/2 && sh.Durable() == 0 { // else a busy machine may have written nothing by the last cut
			runtime.Gosched()
		}
		if rng.Uint64N(entries/40) == 0 {
			durable := sh.Durable()
			kept := []int{0, 50, 100}[rng.IntN(3)]
			clones = append(clones, crashed{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}), durable})
		}
	}
	mustClose(t, s)
	var highest uint64
	for _, c := range clones {
		highest = max(highest, c.check(t, p, hashes))
	}
	if len(clones) == 0 || highest == 0 {
		t.Errorf("%d cuts, the highest index found is %d: nothing was shown", len(clones), highest)
	}
}

// crashed is what a power cut left of a disk, and the index that had been durable before.
type crashed struct {
	fs      *vfs.MemFS
	durable uint64
}

// check returns the index found. hashes are the apply hashes by index.
func (c crashed) check(t *testing.T, p program, hashes []uint64) uint64 {
	t.Helper()
	s := mustOpen(t, Options{FS: c.fs, Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 4)
	index, hash := sh.Applied()
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
	if want := p.stateAt(index); !maps.Equal(got, want) {
		t.Errorf("state at index %d differs: %d keys, want %d", index, len(got), len(want))
	}
	must(t, p.apply(sh, index+1)) // the log goes on from there
	if _, hash := sh.Applied(); hashes[index+1] != 0 && hash != hashes[index+1] {
		t.Errorf("replay of entry %d gives another hash", index+1)
	}
	return index
}

// A clean close leaves nothing for the log to bring back.
func TestCleanCloseKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	sh := mustShard(t, s, 0)
	for i := uint64(1); i <= 100; i++ {
		must(t, program(40).apply(sh, i))
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
