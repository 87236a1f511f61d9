package wal_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// Any sequence of operations, starts and power cuts between them leaves what a plain model holds.
func TestAnySequenceOfOperationsEqualsTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		disk, clock, m := replogtest.NewDisk(), &replogtest.HandClock{}, model{}
		o := small(disk)
		o.Clock = clock
		o.SegmentBytes = rapid.SampledFrom([]int64{4 << 10, 8 << 10, 40 << 10}).Draw(rt, "segment")
		o.CacheBytes = rapid.SampledFrom([]int64{1, 3000, 1 << 20}).Draw(rt, "cache")
		l := open(t, o)
		shards := rapid.IntRange(0, 3)
		check := func(*rapid.T) {
			if d := m.diff(t, l, true); d != "" {
				rt.Fatal(d)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": check,
			"append": func(rt *rapid.T) {
				id := core.ShardID(shards.Draw(rt, "shard"))
				s := m.shard(id)
				back := rapid.IntRange(0, min(len(s.entries), 4)).Draw(rt, "replaced")
				n := rapid.IntRange(0, 6).Draw(rt, "entries")
				first := s.last() + 1 - uint64(back)
				term := uint64(rapid.IntRange(1, 9).Draw(rt, "term"))
				b := wal.Batch{Shard: id}
				if n > 0 {
					b.Entries = entries(id, first, first+uint64(n)-1, term, rapid.IntRange(0, 2500).Draw(rt, "size"))
				}
				if rapid.Bool().Draw(rt, "hard") {
					b.HardState = hardState(term, first)
				}
				put(t, l, b)
				s.put(b)
			},
			"cut": func(rt *rapid.T) {
				id := core.ShardID(shards.Draw(rt, "shard"))
				s := m.shard(id)
				if len(s.entries) == 0 {
					return
				}
				i := rapid.Uint64Range(s.cut+1, s.last()).Draw(rt, "index")
				if err := l.Cut(id, i); err != nil {
					rt.Fatal(err)
				}
				put(t, l, wal.Batch{Shard: 9, HardState: hardState(1, i)})
				m.shard(9).put(wal.Batch{HardState: hardState(1, i)})
				s.cutTo(i)
			},
			"reset": func(rt *rapid.T) {
				id := core.ShardID(shards.Draw(rt, "shard"))
				i := m.shard(id).cut + uint64(rapid.IntRange(0, 30).Draw(rt, "index"))
				l.ResetTo(id, i, 5, hardState(5, i), nil)
				l.Step()
				*m.shard(id) = modelShard{hard: hardState(5, i), cut: i, cutTerm: 5}
			},
			"idle": func(*rapid.T) {
				clock.Advance(time.Second)
				l.Step()
			},
			"reopen": func(*rapid.T) {
				_ = l.Close()
				l = open(t, o)
			},
			"killed": func(*rapid.T) { l = open(t, o) },
			"power cut": func(rt *rapid.T) {
				disk = disk.Crash(rapid.IntRange(0, 100).Draw(rt, "kept"), uint64(rapid.Uint16().Draw(rt, "seed")))
				o.FS = disk
				l = open(t, o)
			},
		})
		_ = l.Close()
	})
}
