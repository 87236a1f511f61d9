package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/errs"
)

// goesOn holds a shard that refused a snapshot to what it was at index, and lets it go on by an entry.
func goesOn(t *testing.T, sh *Shard, p program, index uint64) {
	t.Helper()
	if got, at := read(t, sh); at != index || !maps.Equal(got, p.stateAt(index)) {
		t.Errorf("after a refusal there are %d keys at index %d", len(got), at)
	}
	must(t, p.apply(sh, index+1))
	must(t, sh.WriteLayer())
	if err := sh.s.err(); err != nil {
		t.Errorf("the store stopped: %v", err)
	}
}

func TestFilesThatAreNotAsDescribedAreRefusedByName(t *testing.T) {
	mem := vfs.NewMem()
	snap := makeSnapshot(t, mem, "good", program(2000), 4, 100)
	s := mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 4)
	p := program(100)
	index := uint64(0)
	for name, c := range map[string]struct {
		bad    string // the file that is to be named
		damage func(b map[string][]byte)
	}{
		"flipped bit":   {"000002.sst", func(b map[string][]byte) { b["000002.sst"][100] ^= 1 }},
		"last byte":     {"000001.sst", func(b map[string][]byte) { b["000001.sst"][len(b["000001.sst"])-1]++ }},
		"truncated":     {"000002.sst", func(b map[string][]byte) { b["000002.sst"] = b["000002.sst"][:5000] }},
		"empty":         {"000001.sst", func(b map[string][]byte) { b["000001.sst"] = nil }},
		"a byte more":   {"000003.sst", func(b map[string][]byte) { b["000003.sst"] = append(b["000003.sst"], 0) }},
		"missing":       {"000002.sst", func(b map[string][]byte) { delete(b, "000002.sst") }},
		"files swapped": {"000001.sst", func(b map[string][]byte) { b["000001.sst"], b["000002.sst"] = b["000002.sst"], b["000001.sst"] }},
	} {
		index++
		must(t, p.apply(sh, index))
		content := map[string][]byte{}
		for _, f := range snap.Files {
			content[f.Name] = bytesOf(t, mem, "good/"+f.Name)
		}
		c.damage(content)
		dir := fmt.Sprint("in", index)
		must(t, mem.MkdirAll(dir, 0o700))
		for file, b := range content {
			must(t, writeFile(NewFS(mem), dir+"/"+file, b))
		}
		for act, do := range map[string]func(string, Snapshot) error{"verify": sh.Verify, "install": sh.Install} {
			err := do(dir, snap)
			var bad *SnapshotFileError
			var damage *errs.Corruption
			if !errors.As(err, &bad) || bad.Name != c.bad || !errors.As(err, &damage) {
				t.Errorf("%s, %s: %v; want damage of %s", name, act, err, c.bad)
			}
		}
		goesOn(t, sh, p, index)
		index++
	}
	must(t, sh.Verify("good", snap))
	b := bytesOf(t, mem, "good/000003.sst")
	b[len(b)/2] ^= 1
	must(t, writeFile(NewFS(mem), "good/000003.sst", bytes.Clone(b)))
	var bad *SnapshotFileError
	if err := sh.Install("good", snap); !errors.As(err, &bad) || bad.Name != "000003.sst" {
		t.Errorf("a file that was damaged after Verify: %v", err)
	}
	b[len(b)/2] ^= 1
	must(t, writeFile(NewFS(mem), "good/000003.sst", bytes.Clone(b)))
	must(t, sh.Install("good", snap))
	if got, at := read(t, sh); at != 100 || !maps.Equal(got, program(2000).stateAt(100)) {
		t.Errorf("%d keys at index %d", len(got), at)
	}
}

// forgery makes the files of a snapshot by hand, and their right sums.
type forgery struct{ *exporter }

func (f forgery) put(t *testing.T, name string) {
	t.Helper()
	must(t, f.add(append(appendShard(nil, 4), key(name)...), []byte(name)))
	f.count([]byte(name), key(name))
}

// count takes a key into what the description says.
func (f forgery) count(value, key []byte) {
	c := content{f.snap.Content, int(f.snap.Keys)}
	c.add(key, value)
	f.snap.Content, f.snap.Keys = c.hash, uint64(c.keys)
}

func (f forgery) record(t *testing.T, m shardMeta) {
	t.Helper()
	must(t, f.add(metaKey(4), m.append(nil)))
}

// forged is the record of the snapshots that forgeries make.
var forged = shardMeta{500, 77}

// forgeries are files that are not a state, though their sums are right.
func forgeries(t *testing.T) map[string]func(f forgery) {
	return map[string]func(f forgery){
		"key of the next shard": func(f forgery) {
			f.put(t, "a")
			f.record(t, forged)
			must(t, f.add(append(appendShard(nil, 5), key("a")...), nil))
			f.count(nil, key("a"))
		},
		"key of the shard before": func(f forgery) {
			must(t, f.add(append(appendShard(nil, 3), key("a")...), nil))
			f.count(nil, key("a"))
			f.record(t, forged)
		},
		"key without a body": func(f forgery) { must(t, f.add(appendShard(nil, 4), nil)); f.count(nil, nil); f.record(t, forged) },
		"files out of order": func(f forgery) { f.put(t, "b"); must(t, f.finish()); f.put(t, "a"); f.record(t, forged) },
		"one key twice":      func(f forgery) { f.put(t, "a"); must(t, f.finish()); f.put(t, "a"); f.record(t, forged) },
		"key after the record": func(f forgery) {
			f.put(t, "a")
			f.record(t, forged)
			must(t, f.finish())
			f.put(t, "b")
		},
		"no record":               func(f forgery) { f.put(t, "a") },
		"record of another index": func(f forgery) { f.put(t, "a"); f.record(t, shardMeta{501, 77}) },
		"record of another hash":  func(f forgery) { f.put(t, "a"); f.record(t, shardMeta{500, 78}) },
		"record that is none":     func(f forgery) { f.put(t, "a"); must(t, f.add(metaKey(4), []byte("x"))) },
		"other content":           func(f forgery) { f.put(t, "a"); f.record(t, forged); f.snap.Content++ },
		"other number of keys":    func(f forgery) { f.put(t, "a"); f.record(t, forged); f.snap.Keys++ },
		"deleted key": func(f forgery) {
			f.put(t, "a")
			must(t, f.table.Delete(append(appendShard(nil, 4), key("b")...)))
			f.record(t, forged)
		},
		"deleted range": func(f forgery) {
			f.put(t, "a")
			f.record(t, forged)
			must(t, f.table.DeleteRange(appendShard(nil, 3), appendShard(nil, 9)))
		},
		"range key": func(f forgery) {
			f.put(t, "a")
			f.record(t, forged)
			must(t, f.table.RangeKeySet(appendShard(nil, 3), appendShard(nil, 9), nil, nil))
		},
		"no table": func(f forgery) {
			f.put(t, "a")
			f.record(t, forged)
			must(t, f.finish())
			junk := filler(1, 5000)
			f.snap.Files = append(f.snap.Files, SnapshotFile{"000002.sst", 5000, xxhash.Sum64(junk)})
			must(t, writeFile(f.fs, f.dir+"/000002.sst", junk))
		},
	}
}

// Files with the right sums may still be nonsense, of a faulty or hostile node.
func TestFilesThatFitTheirSumsAreRefusedWhenTheyAreNoState(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 4)
	neighbour := mustShard(t, s, 5)
	set(t, neighbour, 1, "mine")
	p := program(100)
	index := uint64(0)
	for name, forge := range forgeries(t) {
		index++
		must(t, p.apply(sh, index))
		f := forgery{&exporter{sh: sh, fs: s.FS(), dir: fmt.Sprint("in", index), snap: Snapshot{Shard: 4, Index: forged.index, Hash: forged.hash}}}
		must(t, f.makeDir())
		f.prepare()
		forge(f)
		must(t, f.finish())
		for act, do := range map[string]func(string, Snapshot) error{"verify": sh.Verify, "install": sh.Install} {
			var damage *errs.Corruption
			if err := do(f.dir, f.snap); !errors.As(err, &damage) {
				t.Errorf("%s, %s: %v, want damage", name, act, err)
			}
		}
		goesOn(t, sh, p, index)
		index++
	}
	if n := count(t, neighbour); n != 1 {
		t.Errorf("the next shard has %d keys", n)
	}
}

// Each byte of a table is turned in its turn, and the sum with it: whatever the reader makes of it is an error.
func TestTableOfNonsenseIsAnErrorNotAPanic(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 4)
	set(t, sh, 1, "a", "b", "c")
	snap, err := sh.Export("out")
	must(t, err)
	whole := bytesOf(t, mem, "out/000001.sst")
	taken := 0
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x55
		snap.Files[0].Sum = xxhash.Sum64(b)
		must(t, writeFile(NewFS(mem), "out/000001.sst", b)) // it may change b
		if sh.Verify("out", snap) == nil {                  // a few bytes mean nothing, such as those of a filter
			taken++
		}
	}
	if taken > len(whole)/2 {
		t.Errorf("%d of %d bytes mean nothing", taken, len(whole))
	}
	if got, at := read(t, sh); len(got) != 3 || at != 1 || s.err() != nil {
		t.Errorf("%d keys at index %d, %v", len(got), at, s.err())
	}
}
