package wal_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// history is what a workload asked of a log, in order, and how much of it was acknowledged.
type history struct {
	steps []func(model)
	acked int
	cuts  map[core.ShardID]uint64
}

// load is a random workload on three shards: appends of many sizes, replaced ends, cuts, resets, idle times.
type load struct {
	rng   *rand.Rand
	log   *wal.Log
	clock *replogtest.HandClock
	now   model // all of the history
	h     *history
	size  int // largest entry
}

func newLoad(seed uint64, l *wal.Log, clock *replogtest.HandClock) *load {
	return &load{
		rng: rand.New(rand.NewPCG(seed, 1)), log: l, clock: clock, now: model{},
		h: &history{cuts: map[core.ShardID]uint64{}}, size: 3000,
	}
}

func (w *load) record(step func(model)) func(error) {
	w.h.steps = append(w.h.steps, step)
	step(w.now)
	return func(err error) {
		if err == nil {
			w.h.acked++
		}
	}
}

// step asks for one random thing; every third time or so it lets the log write.
func (w *load) step() error {
	s := core.ShardID(w.rng.IntN(3))
	m := w.now.shard(s)
	switch r := w.rng.IntN(100); {
	case r < 70:
		b := wal.Batch{Shard: s}
		term := uint64(len(w.h.steps) + 1)
		first := m.last() + 1
		if len(m.entries) > 0 && w.rng.IntN(8) == 0 {
			first -= 1 + uint64(w.rng.IntN(min(len(m.entries), 3)))
			first = max(first, w.h.cuts[s]+1, m.cut+1)
		}
		n := uint64(w.rng.IntN(4))
		b.Entries = entries(s, first, first+n, term, w.rng.IntN(w.size))
		if w.rng.IntN(2) == 0 {
			b.HardState = hardState(term, first)
		}
		b.Done = w.record(func(m model) { m.shard(s).put(b) })
		if err := w.log.Append(b); err != nil {
			return err
		}
	case r < 90:
		st := w.log.State(s)
		if st.Last < st.First {
			return nil
		}
		i := st.First + uint64(w.rng.IntN(int(min(st.Last, m.last())-st.First+1)))
		if err := w.log.Cut(s, i); err != nil {
			return err
		}
		w.h.cuts[s] = max(w.h.cuts[s], i)
	case r < 92:
		i, term := m.last()+uint64(w.rng.IntN(10)), uint64(len(w.h.steps)+1)
		done := w.record(func(m model) {
			*m.shard(s) = modelShard{hard: hardState(term, i), cut: i, cutTerm: term}
		})
		w.h.cuts[s] = i
		w.log.ResetTo(s, i, term, hardState(term, i), done)
	case r < 95:
		w.clock.Advance(time.Second)
	}
	if w.rng.IntN(3) == 0 {
		w.log.Step()
	}
	return nil
}

// matches says which states of the history a recovered log may show, and why it shows none of them.
func (h *history) matches(t *testing.T, l *wal.Log) (at int, why string) {
	t.Helper()
	m := model{}
	for _, step := range h.steps[:h.acked] {
		step(m)
	}
	for at = h.acked; ; at++ {
		d := h.differs(t, m, l)
		if d == "" {
			return at, ""
		}
		why = fmt.Sprintf("%s\nafter %d: %s", why, at, d)
		if at == len(h.steps) {
			return at, why
		}
		h.steps[at](m)
	}
}

func (h *history) differs(t *testing.T, m model, l *wal.Log) string {
	for _, id := range l.Shards() {
		if m[id] == nil {
			return fmt.Sprintf("shard %d is not known yet", id)
		}
	}
	for id, s := range m {
		st := l.State(id)
		switch {
		case st.Last != s.last():
			return fmt.Sprintf("shard %d ends at %d, want %d", id, st.Last, s.last())
		case !bytes.Equal(st.HardState, s.hard):
			return fmt.Sprintf("shard %d has hard state %q, want %q", id, st.HardState, s.hard)
		case st.CutIndex > max(h.cuts[id], s.cut):
			return fmt.Sprintf("shard %d is cut at %d; it never was", id, st.CutIndex)
		case st.CutIndex < s.cut:
			return fmt.Sprintf("shard %d is cut at %d, and was reset to %d", id, st.CutIndex, s.cut)
		}
		if !sameEntries(all(t, l, id), s.entries[st.CutIndex-s.cut:]) {
			return fmt.Sprintf("entries of shard %d differ", id)
		}
	}
	return ""
}

// clone freezes a history for a crash.
func (h *history) clone() *history {
	c := &history{steps: h.steps[:len(h.steps):len(h.steps)], acked: h.acked, cuts: map[core.ShardID]uint64{}}
	for k, v := range h.cuts {
		c.cuts[k] = v
	}
	return c
}

type crash struct {
	disk *replogtest.Disk
	h    *history
	kept int // percent of what was not synced
	what string
}

// crashes runs a workload and cuts the power before some of its operations on the disk.
func crashes(t *testing.T, seed uint64, o wal.Options, n int, keep func(*rand.Rand) int) []crash {
	t.Helper()
	disk := replogtest.NewDisk()
	fsys := replogtest.NewFaulty(disk)
	clock := &replogtest.HandClock{}
	o.FS, o.Clock = fsys, clock
	rng := rand.New(rand.NewPCG(seed, 2))
	var out []crash
	var w *load
	fsys.Before(func(op replogtest.Op) error {
		if w == nil || rng.IntN(8) != 0 || len(out) == n {
			return nil
		}
		k := keep(rng)
		out = append(out, crash{
			disk.Crash(k, rng.Uint64()), w.h.clone(), k, fmt.Sprintf("seed %d, before operation %d (%s %s), keeping %d %%", seed, op.N, op.Kind, op.Name, k),
		})
		return nil
	})
	l := open(t, o)
	w = newLoad(seed, l, clock)
	for range 20 * n {
		if err := w.step(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(out) == n {
			break
		}
	}
	fsys.Before(nil)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// crashAgain opens the disk and cuts the power once more in the midst of that.
func crashAgain(t *testing.T, c crash, o wal.Options, rng *rand.Rand) crash {
	t.Helper()
	fsys := replogtest.NewFaulty(c.disk)
	at, k, again := 1+rng.IntN(12), rng.IntN(101), c
	fsys.Before(func(op replogtest.Op) error {
		if op.N == at {
			again.disk = c.disk.Crash(k, rng.Uint64())
			again.what += fmt.Sprintf(", and again before operation %d (%s %s) of recovery, keeping %d %%", op.N, op.Kind, op.Name, k)
		}
		return nil
	})
	o.FS = fsys
	l, err := wal.Open(o)
	if err != nil {
		t.Fatalf("%s: does not open: %v", c.what, err)
	}
	if _, why := c.h.matches(t, l); why != "" {
		t.Fatalf("%s: %s", c.what, why)
	}
	_ = l.Close()
	return again
}

func segmentSizes(seed uint64) int64 { return []int64{4 << 10, 16 << 10, 64 << 10}[seed%3] }

var (
	powerCuts = flag.Int("power-cuts", 500, "how many power cuts to try, rounded to 20")
	firstSeed = flag.Uint64("first-seed", 0, "where their seeds begin")
)

func TestPowerCutLosesNothingAcknowledgedAndTheLogOpens(t *testing.T) {
	points, want := 0, *powerCuts/20*20
	for seed := *firstSeed; points < want; seed++ {
		o := small(nil)
		o.SegmentBytes = segmentSizes(seed)
		rng := rand.New(rand.NewPCG(seed, 3))
		for _, c := range crashes(t, seed, o, 20, func(r *rand.Rand) int { return r.IntN(101) }) {
			points++
			for range rng.IntN(3) {
				c = crashAgain(t, c, o, rng)
			}
			o.FS, o.Clock = c.disk, &replogtest.HandClock{}
			l, err := wal.Open(o)
			if err != nil {
				t.Fatalf("%s: does not open: %v", c.what, err)
			}
			at, why := c.h.matches(t, l)
			if why != "" {
				t.Fatalf("%s: %d acknowledged of %d: %s", c.what, c.h.acked, len(c.h.steps), why)
			}
			goOn(t, c, l, o, at)
		}
	}
	t.Logf("%d power cuts", points)
}

// goOn appends to a recovered log, opens it again and looks at all of it.
func goOn(t *testing.T, c crash, l *wal.Log, o wal.Options, at int) {
	t.Helper()
	m := model{}
	for _, step := range c.h.steps[:at] {
		step(m)
	}
	for i := range 6 {
		s := core.ShardID(i % 3)
		b := wal.Batch{Shard: s, HardState: hardState(99, 0), Entries: entries(s, m.shard(s).last()+1, m.shard(s).last()+2, 1e6, 700)}
		put(t, l, b)
		m.shard(s).put(b)
	}
	disk := c.disk.Crash(0, 1)
	_ = l.Close()
	for _, d := range []*replogtest.Disk{disk, c.disk} {
		o.FS = d
		l, err := wal.Open(o)
		if err != nil {
			t.Fatalf("%s, then more: does not open: %v", c.what, err)
		}
		if d := c.h.differs(t, m, l); d != "" {
			t.Fatalf("%s, then more: %s", c.what, d)
		}
		_ = l.Close()
	}
}

// The control: the same power cuts without syncs lose what was acknowledged, or the test above proves nothing. They only
// lose: the log opens all the same.
func TestPowerCutWithoutSyncsLosesAcknowledgedBatchesAndStillOpens(t *testing.T) {
	lost, lossy, points := 0, 0, 0 // lossy: cuts that take at least a tenth of what was not synced
	for seed := range uint64(20) {
		o := small(nil)
		o.SegmentBytes, o.NoSync = segmentSizes(seed), true
		for _, c := range crashes(t, seed, o, 20, func(r *rand.Rand) int { return r.IntN(101) }) {
			if c.h.acked < 10 {
				continue
			}
			points++
			o.FS, o.Clock, o.NoSync = c.disk, &replogtest.HandClock{}, points%2 == 0
			l, err := wal.Open(o)
			if err != nil {
				t.Fatalf("%s: does not open: %v", c.what, err)
			}
			_, why := c.h.matches(t, l)
			if c.kept <= 90 {
				if lossy++; why != "" {
					lost++
				}
			}
			put(t, l, wal.Batch{Shard: 7, Entries: entries(7, 1, 3, 1, 100)})
			_ = l.Close()
			l = open(t, o)
			if !sameEntries(all(t, l, 7), entries(7, 1, 3, 1, 100)) {
				t.Fatalf("%s: the log does not go on", c.what)
			}
			_ = l.Close()
		}
	}
	if lossy < 100 || lost*100 < lossy*95 {
		t.Fatalf("%d of %d power cuts that took a tenth or more lost something acknowledged, want at least 95 %%; %d cuts in all", lost, lossy, points)
	}
}
