package waltest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// TailBytes is how long the last batch of a log is, whose damage Tail tries: one write that was not synced.
const TailBytes = 64 << 10

// sector is what a disk writes at once; those of one write land in any order.
const sector = 512

// tail is a log whose last batch was written and not sealed.
type tail struct {
	// disk is the log's disk after the last batch, with all of it written.
	disk    *replogtest.Disk
	options wal.Options
	// file is the last segment, and bytes its content.
	file  string
	bytes []byte
	// groups are all that were written, in order.
	groups []group
	// begins is how many of them are of the batches before the last one.
	begins int
	// ends are where in the file each group of the last batch ends.
	ends []int64
	// start is where the last batch begins in the file, and end where it ends.
	start int64
	end   int64
}

// Tail writes a log whose last batch is a little over 64 KiB, of many groups, and damages that batch at n positions of
// its last 64 KiB, at equal distances: the file is cut there, bytes from there on are zeroed, are garbage, or sectors
// from there on are missing, as when the disk wrote those behind them first. Each damaged log must open to groups that
// were written, in order and whole, with all that ends before the damage, and must go on from there.
func Tail(seed uint64, n int) (*Report, error) {
	t, err := newTail(seed)
	if err != nil {
		return nil, err
	}
	r := newReport()
	rng := rand.New(rand.NewPCG(seed, 2))
	n = min(n, TailBytes)
	step := TailBytes / int64(n)
	first := t.end - TailBytes + rng.Int64N(step)
	for i := range int64(n) {
		if err := t.damage(r, rng, first+i*step, i%16 == 0); err != nil {
			return r, err
		}
		r.Done++
		if len(r.Broken) >= enough {
			break
		}
	}
	return r, nil
}

// newTail writes the log once for each group of the last batch, so that it knows where each ends.
func newTail(seed uint64) (*tail, error) {
	t := &tail{}
	for k := 0; ; k++ {
		l, err := newLog(seed, 2*TailBytes)
		if err != nil {
			return nil, err
		}
		if t.file, t.end, err = l.writeTail(k); err != nil {
			return nil, err
		}
		t.disk, t.options, t.groups = l.disk.Crash(0, 0), l.o, l.all
		if err := l.wal.Close(); err != nil {
			return nil, err
		}
		if k == 0 {
			t.start, t.begins = t.end, len(t.groups)
			continue
		}
		t.ends = append(t.ends, t.end)
		if t.end-t.start > TailBytes {
			break
		}
	}
	var err error
	t.bytes, err = replogtest.ReadFile(t.disk, t.file)
	return t, err
}

// writeTail writes some batches, and then one of k groups. The first ones are sealed by the next,
// so only the last write is open to doubt.
func (l *log) writeTail(k int) (file string, end int64, err error) {
	for range 8 {
		if err := l.add(700); err != nil {
			return "", 0, err
		}
		l.wal.Step()
	}
	for range k {
		if err := l.add(3000); err != nil {
			return "", 0, err
		}
	}
	l.wal.Step()
	return l.end()
}

// damage tries all shapes at one position. With goOn, the log that is left is also written to and
// opened again.
func (t *tail) damage(r *Report, rng *rand.Rand, at int64, goOn bool) error {
	n := []int64{1, 37, sector, t.end - at}[rng.IntN(4)]
	to := min(at+max(n, 1), t.end)
	for _, shape := range [...]struct {
		kind string
		make func() (b []byte, from int64)
	}{
		{"cut", func() ([]byte, int64) { return t.bytes[:at], at }},
		{"zeroed", func() ([]byte, int64) {
			b := slices.Clone(t.bytes)
			clear(b[at:to])
			return b, at
		}},
		{"garbage", func() ([]byte, int64) {
			b := slices.Clone(t.bytes)
			for i := range b[at:to] {
				b[at+int64(i)] = byte(rng.Uint32())
			}
			return b, at
		}},
		{"reordered", func() ([]byte, int64) { return t.reordered(rng, at) }},
	} {
		b, from := shape.make()
		r.Kinds[shape.kind]++
		broken, err := t.open(b, from, goOn)
		if err != nil {
			return err
		}
		if broken != "" {
			r.breaks("%s at byte %d of the last batch, %d to %d of the file: %s", shape.kind, from-t.start, from, t.end, broken)
		}
	}
	return nil
}

// reordered returns the file without the sector at a position, and without half of those behind it.
// Half of them are those that the disk had not written when the power went.
func (t *tail) reordered(rng *rand.Rand, at int64) (b []byte, from int64) {
	b = slices.Clone(t.bytes)
	from = max(t.start, at/sector*sector)
	for off := from; off < t.end; off = off/sector*sector + sector {
		if off == from || rng.IntN(2) == 0 {
			clear(b[off:min(t.end, off/sector*sector+sector)])
		}
	}
	return b, from
}

// open opens the log with other bytes in its last segment, which are as written before from. All
// groups that end before from must be there. Of the later ones some may be, in order: a group is
// found whole or not at all.
func (t *tail) open(b []byte, from int64, goOn bool) (broken string, err error) {
	d := t.disk.Crash(100, 1)
	if err := replogtest.WriteFile(d, t.file, b); err != nil {
		return "", err
	}
	o := t.options
	o.FS, o.Clock = d, &replogtest.HandClock{}
	l, err := wal.Open(o)
	if err != nil {
		return fmt.Sprintf("does not open: %v", err), nil
	}
	defer func() { _ = l.Close() }() // nothing is read from it any more
	whole := t.begins
	for _, end := range t.ends {
		if end <= from {
			whole++
		}
	}
	found, n := 0, entries(l)
	for n > 0 && found < len(t.groups) {
		n -= min(n, uint64(len(t.groups[found].entries)))
		found++
	}
	if found < whole {
		return fmt.Sprintf("%d groups are left of %d that end before it", found, whole), nil
	}
	if why := holds(l, t.groups[:found]); why != "" {
		return fmt.Sprintf("holds no prefix of what was written: %s", why), nil
	}
	if !goOn {
		return "", nil
	}
	return t.goOn(l, o, found)
}

// goOn appends to a log that was cut, and reads it back after another power cut. A log that was cut
// must be as good as any other: what is written to it is durable, and does not bring back what was
// cut.
func (t *tail) goOn(l *wal.Log, o wal.Options, found int) (broken string, err error) {
	next := group{shard: core.ShardID(0), hard: []byte("later"), entries: []wal.Entry{{
		Index: l.State(0).Last + 1, Term: 2, Data: []byte("later"),
	}}}
	acked := false
	err = l.Append(wal.Batch{Shard: next.shard, HardState: next.hard, Entries: slices.Clone(next.entries), Done: func(err error) { acked = err == nil }})
	if err != nil {
		return fmt.Sprintf("does not go on: %v", err), nil
	}
	l.Step()
	if !acked {
		return "does not go on: an entry was not acknowledged", nil
	}
	o.FS, o.Clock = o.FS.(*replogtest.Disk).Crash(0, 1), &replogtest.HandClock{}
	again, err := wal.Open(o)
	if err != nil {
		return fmt.Sprintf("went on, and does not open any more: %v", err), nil
	}
	defer func() { _ = again.Close() }() // nothing is read from it any more
	if why := holds(again, append(slices.Clone(t.groups[:found]), next)); why != "" {
		return "went on, and does not hold that: " + why, nil
	}
	return "", nil
}
