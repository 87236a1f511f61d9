package checktest

import (
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// someKeys are the keys of tasks.
var someKeys = []string{"", "ann", "bob"}

// share draws how a queue is shared, mostly with few limits. Some are out of bounds.
func (w *world) share() core.QueueShare {
	s := core.QueueShare{NoFairness: w.rand.IntN(4) == 0, Strict: w.rand.IntN(4) == 0}
	if w.rand.IntN(3) == 0 {
		s.Concurrency = int64(w.rand.IntN(4))
	}
	if w.rand.IntN(3) == 0 {
		s.KeyConcurrency = int64(w.rand.IntN(3))
	}
	if w.rand.IntN(4) == 0 {
		s.Rate = w.rate()
	}
	if w.rand.IntN(4) == 0 {
		s.KeyRate = w.rate()
	}
	if w.rand.IntN(4) == 0 {
		s.MaxWorkers = int32(w.rand.IntN(2))
	}
	if w.rand.IntN(4) == 0 {
		copy(s.Limiters[:], w.limiters())
	}
	switch w.rand.IntN(20) {
	case 0:
		s.Concurrency = -1
	case 1:
		s.Rate = core.Rate{Limit: 1}
	}
	return s
}

// rate draws a rate. Some are out of bounds.
func (w *world) rate() core.Rate {
	return pick(w.rand, []core.Rate{
		{Limit: 1, Per: 1000},
		{Limit: 2, Per: 1000, Burst: 1},
		{Limit: 5, Per: 60_000},
		{Limit: 1, Per: 5000, Burst: 2},
		{Limit: 7, Per: 1},
		{Limit: 1, Per: 90_000_000},
	})
}

// keySet sets up a key, pauses it, or lets it go on. Some ask for too much.
func (w *world) keySet(stamp core.ShardTime) core.Op {
	op := &core.KeySet{
		Queue: pick(w.rand, w.queues), Key: pick(w.rand, someKeys), KeepSettings: w.rand.IntN(3) == 0,
		Pause: core.KeyPause(w.rand.IntN(3)), Reason: w.reason(),
	}
	if w.rand.IntN(12) == 0 {
		op.Key = strings.Repeat("k", core.MaxKey+w.rand.IntN(2))
	}
	if w.rand.IntN(2) == 0 {
		op.Settings = core.KeySettings{Weight: uint32(w.rand.IntN(4)), Concurrency: int64(w.rand.IntN(3))}
	}
	if w.rand.IntN(5) == 0 {
		op.Settings.Rate = w.rate()
	}
	if w.rand.IntN(20) == 0 {
		op.Settings.Weight = core.MaxWeight + 1
	}
	if op.Pause == core.KeyPauseStop && w.rand.IntN(2) == 0 {
		op.Until = stamp + core.ShardTime(w.rand.IntN(9000)-2000)
	}
	return op
}
