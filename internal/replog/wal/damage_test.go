package wal_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// written is a log as a killed process leaves it: its last segment, where each batch ends in it, and what the batches
// were.
type written struct {
	disk  *replogtest.Disk
	file  string
	bytes []byte
	ends  []int64 // file offset behind batch i
	m     []model // state after batch i
	o     wal.Options
}

// write makes a log of some batches of a few entries, one segment, not sealed at the end.
func write(t *testing.T, batches, size int, segment int64) *written {
	t.Helper()
	w := &written{disk: replogtest.NewDisk()}
	w.o = small(w.disk)
	w.o.SegmentBytes = segment
	l := open(t, w.o)
	m := model{}
	for i := range uint64(batches) {
		b := wal.Batch{HardState: hardState(1, i), Entries: entries(0, m.shard(0).last()+1, m.shard(0).last()+1+i%3, 1, size+int(i)%7)}
		put(t, l, b)
		m.shard(0).put(b)
		w.ends, w.m = append(w.ends, tip(t, w.disk).End), append(w.m, m.clone())
	}
	w.file = tip(t, w.disk).File
	w.disk = w.disk.Crash(0, 0)
	var err error
	if w.bytes, err = replogtest.ReadFile(w.disk, w.file); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

// seal adds five batches of shard 1 and a seal: what follows the last batch then proves that it was synced.
func (w *written) seal(t *testing.T) {
	t.Helper()
	w.o.FS = w.disk
	l := open(t, w.o) // what it holds is in a fresh segment now
	w.ends = nil
	for i := range uint64(5) {
		b := wal.Batch{Shard: 1, Entries: entries(1, 3*i+1, 3*i+3, 2, 60)}
		put(t, l, b)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w.file = tip(t, w.disk).File
	var err error
	if w.bytes, err = replogtest.ReadFile(w.disk, w.file); err != nil {
		t.Fatal(err)
	}
}

func tip(t *testing.T, fsys *replogtest.Disk) wal.SegmentReport {
	t.Helper()
	r, err := wal.Check(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Corrupt != nil {
		t.Fatal(r.Corrupt)
	}
	return r.Segments[len(r.Segments)-1]
}

// with returns a copy of the disk on which the segment has other bytes.
func (w *written) with(t *testing.T, b []byte) wal.Options {
	t.Helper()
	d := w.disk.Crash(100, 1)
	if err := replogtest.WriteFile(d, w.file, b); err != nil {
		t.Fatal(err)
	}
	o := w.o
	o.FS = d
	return o
}

// wantPrefix opens a log whose bytes from off on are damaged. It must hold all batches before, and be one of its states.
func (w *written) wantPrefix(t *testing.T, what string, off int64, b []byte) {
	t.Helper()
	o := w.with(t, b)
	l, err := wal.Open(o)
	if err != nil {
		t.Fatalf("%s at %d: does not open: %v", what, off, err)
	}
	defer l.Close()
	whole := 0
	for whole < len(w.ends) && w.ends[whole] <= off {
		whole++
	}
	why := ""
	for i := whole; i <= len(w.m); i++ {
		m := model{0: &modelShard{}}
		if i > 0 {
			m = w.m[i-1]
		}
		if why = m.diff(t, l, true); why == "" {
			put(t, l, wal.Batch{Shard: 5, Entries: entries(5, 1, 2, 1, 30)})
			return
		}
	}
	t.Fatalf("%s at %d: %d batches were before it: %s", what, off, whole, why)
}

// each is the step at which damage is tried: 1, or the given step in short runs, which the race detector makes long.
func each(short int64) int64 {
	if testing.Short() {
		return short
	}
	return 1
}

func TestFileCutAtAnyByteOpensToAWholePrefix(t *testing.T) {
	w := write(t, 60, 120, 32<<10)
	end := w.ends[len(w.ends)-1]
	for off := end - 4096; off <= end; off += each(17) {
		w.wantPrefix(t, "cut", off, w.bytes[:off])
	}
}

func TestGarbageZerosAndOldBytesInTheLastBatchAreCutAsTorn(t *testing.T) {
	w := write(t, 12, 3000, 128<<10)
	start, end := w.ends[len(w.ends)-2], w.ends[len(w.ends)-1]
	rng := rand.New(rand.NewPCG(1, 1))
	for off := start; off < end; off += 97 * each(7) {
		for _, n := range []int64{1, 37, 512, end - off} {
			n = min(n, end-off)
			for _, what := range []string{"zeros", "garbage", "old bytes"} {
				b := slices.Clone(w.bytes)
				for i := range b[off : off+n] {
					switch what {
					case "zeros":
						b[off+int64(i)] = 0
					case "garbage":
						b[off+int64(i)] = byte(rng.Uint32())
					case "old bytes": // as a recycled segment has
						b[off+int64(i)] = w.bytes[300+int64(i)]
					}
				}
				w.wantPrefix(t, what, off, b)
			}
		}
	}
}

func TestSectorsOfTheLastBatchMayBeMissingInAnyCombination(t *testing.T) {
	w := write(t, 12, 2500, 128<<10)
	start, end := w.ends[len(w.ends)-2], w.ends[len(w.ends)-1]
	rng := rand.New(rand.NewPCG(2, 2))
	const sector = 512
	for range 400 / each(8) {
		b := slices.Clone(w.bytes)
		first := int64(-1)
		for off := start; off < end; off = off/sector*sector + sector {
			if rng.IntN(2) == 0 {
				continue
			}
			if first < 0 {
				first = off
			}
			clear(b[off:min(end, off/sector*sector+sector)])
		}
		if first < 0 {
			continue
		}
		w.wantPrefix(t, "lost sectors from", first, b)
	}
}

// refusedAt checks that a log does not open, says where, and changes nothing.
func refusedAt(t *testing.T, o wal.Options, file string, lo, hi int64, what string) {
	t.Helper()
	disk := o.FS.(*replogtest.Disk)
	before := ""
	thorough := (lo+hi)%16 == 0 // as a sample: it reads all files
	if thorough {
		before = files(t, disk)
	}
	l, err := wal.Open(o)
	if err == nil {
		l.Close()
		t.Fatalf("%s: opens", what)
	}
	var c *wal.CorruptionError
	if !errors.As(err, &c) || c.File != file || c.Offset < lo || c.Offset > hi {
		t.Fatalf("%s: %v; want corruption of %s at %d to %d", what, err, file, lo, hi)
	}
	if !strings.Contains(err.Error(), filepath.Base(file)) {
		t.Fatalf("%s: the error names no file: %v", what, err)
	}
	if !thorough {
		return
	}
	if after := files(t, disk); after != before {
		t.Fatalf("%s: the refusal changed the directory", what)
	}
	r, err := wal.Check(disk, dir)
	if err != nil || r.Corrupt == nil || *r.Corrupt != *c {
		t.Fatalf("%s: Check says %+v, %v", what, r.Corrupt, err)
	}
}

func files(t *testing.T, d *replogtest.Disk) string {
	t.Helper()
	names, err := d.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var out strings.Builder
	for _, n := range names {
		b, err := replogtest.ReadFile(d, dir+"/"+n)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(n)
		out.Write(b)
	}
	return out.String()
}

func TestFlippedBitBeforeTheLastSealIsRefusedWithFileAndOffset(t *testing.T) {
	w := write(t, 12, 90, 16<<10)
	w.seal(t)
	end := tip(t, w.disk).End
	const sealBytes = 40
	for off := int64(0); off < end-sealBytes; off++ {
		if off >= 44 && off < 48 { // the header's padding
			continue
		}
		b := slices.Clone(w.bytes)
		b[off] ^= 1 << (off % 8)
		refusedAt(t, w.with(t, b), w.file, max(0, off-600), off, "flip of byte "+itoa(off))
	}
	for off := end - sealBytes; off < end; off++ { // the seal itself holds nothing
		b := slices.Clone(w.bytes)
		b[off] ^= 1 << (off % 8)
		o := w.with(t, b)
		l := open(t, o)
		if !sameEntries(all(t, l, 1), entries(1, 1, 15, 2, 60)) {
			t.Fatalf("flip of byte %d in the seal lost entries: %+v", off, l.State(1))
		}
		l.Close()
	}
}

func TestZeroedOrCopiedSectorBeforeTheLastSealIsRefused(t *testing.T) {
	w := write(t, 12, 90, 16<<10)
	w.seal(t)
	end := tip(t, w.disk).End
	for off := int64(0); off+512 < end-40; off += 512 {
		b := slices.Clone(w.bytes)
		clear(b[off : off+512])
		refusedAt(t, w.with(t, b), w.file, max(0, off-600), off+512, "zeros at "+itoa(off))
		b = slices.Clone(w.bytes)
		copy(b[off:off+512], w.bytes[(off+1024)%(end/512*512):])
		refusedAt(t, w.with(t, b), w.file, max(0, off-600), off+512, "copy at "+itoa(off))
	}
}

func TestDamageInAnOlderSegmentIsRefused(t *testing.T) {
	disk := replogtest.NewDisk()
	o := small(disk)
	l := open(t, o)
	put(t, l, wal.Batch{Entries: entries(0, 1, 60, 1, 300)})
	for i := range uint64(40) {
		put(t, l, wal.Batch{Entries: entries(0, 61+i, 61+i, 1, 300)})
	}
	l.Close()
	r, err := wal.Check(disk, dir)
	if err != nil || len(r.Segments) < 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	w := &written{disk: disk, o: o}
	for _, s := range r.Segments[:len(r.Segments)-1] {
		w.file = s.File
		if w.bytes, err = replogtest.ReadFile(disk, s.File); err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off < s.End; off += 61 {
			if off >= 44 && off < 48 {
				continue
			}
			b := slices.Clone(w.bytes)
			b[off] ^= 0x10
			refusedAt(t, w.with(t, b), w.file, max(0, off-1000), off, "flip of byte "+itoa(off)+" of "+s.File)
		}
		for _, off := range []int64{0, 100, s.End - 1} {
			refusedAt(t, w.with(t, w.bytes[:off]), w.file, 0, off, s.File+" cut at "+itoa(off))
		}
		d := disk.Crash(100, 1)
		if err := d.Remove(s.File); err != nil {
			t.Fatal(err)
		}
		o.FS = d
		refusedAt(t, o, s.File, 0, 0, s.File+" missing")
	}
}

func TestDamagedOrMissingMarkIsRefused(t *testing.T) {
	w := write(t, 3, 50, 16<<10)
	name := dir + "/LOG"
	mark, err := replogtest.ReadFile(w.disk, name)
	if err != nil {
		t.Fatal(err)
	}
	w.file = name
	for i := range mark {
		b := slices.Clone(mark)
		b[i] ^= 4
		refusedAt(t, w.with(t, b), name, 0, 0, "flip of byte "+itoa(int64(i)))
	}
	d := w.disk.Crash(100, 1)
	if err := d.Remove(name); err != nil {
		t.Fatal(err)
	}
	w.o.FS = d
	refusedAt(t, w.o, name, 0, 0, "missing")
}

func TestDamagedEntryIsNotHandedOut(t *testing.T) {
	disk := replogtest.NewDisk()
	o := small(disk)
	o.SegmentBytes = 64 << 10
	l := open(t, o)
	defer l.Close()
	put(t, l, wal.Batch{Entries: entries(0, 1, 20, 1, 200)})
	end := tip(t, disk).End
	f, err := disk.OpenReadWrite(tip(t, disk).File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff}, end-100); err != nil {
		t.Fatal(err)
	}
	var c *wal.CorruptionError
	if _, err := l.Entries(0, 19, 20, 1<<20); err != nil {
		t.Fatalf("an entry outside the damage: %v", err)
	}
	if es, err := l.Entries(0, 10, 20, 1<<20); err != nil || len(es) != 10 {
		t.Fatalf("entries before the damage: %v", err)
	}
	// the last entry of 20 is in the cache, which holds one
	put(t, l, wal.Batch{Shard: 1, Entries: entries(1, 1, 5, 1, 200)})
	if _, err := l.Entries(0, 20, 21, 1<<20); !errors.As(err, &c) || c.Offset >= end || c.Offset < end-300 {
		t.Fatalf("the damaged entry: %v", err)
	}
}

func TestCheckReportsATornEnd(t *testing.T) {
	w := write(t, 5, 100, 16<<10)
	if r, err := wal.Check(w.disk, dir); err != nil || r.Torn != nil || r.Corrupt != nil || r.Bytes != w.ends[4] {
		t.Fatalf("whole: %+v, %v", r, err)
	}
	b := slices.Clone(w.bytes)
	b[w.ends[4]-1] ^= 1
	o := w.with(t, b)
	r, err := wal.Check(o.FS, dir)
	if err != nil || r.Torn == nil || r.Torn.File != w.file || r.Torn.Offset < w.ends[3] || r.Torn.Offset >= w.ends[4] {
		t.Fatalf("torn: %+v, %v", r.Torn, err)
	}
	if len(r.Shards) != 1 || r.Shards[0].Last != w.m[3][0].last() {
		t.Fatalf("shards %+v", r.Shards)
	}
	if r, err := wal.Check(replogtest.NewDisk(), dir); err != nil || len(r.Segments) != 0 {
		t.Fatalf("empty: %+v, %v", r, err)
	}
}
