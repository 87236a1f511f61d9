package sim

import (
	"fmt"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Operators set limiters that tasks name, change them and remove them, while leaders come and go and workers are lost. That no limiter is
// ever above what it lets run, and that none holds up what it could let go, the model judges by the log.

// limiterNames are those that tasks name.
var limiterNames = []string{"l0", "l1"}

// someLimiter draws an op about one of a few limiters of a partition. Each lets at least one task run.
func (w *world) someLimiter() (place, core.Op) {
	at := w.ledger.somePlace()
	name := limiterNames[w.rng.IntN(len(limiterNames))]
	if w.chance(150) {
		return at, &core.LimiterDelete{Name: name, IfVersion: -1}
	}
	op := &core.LimiterSet{Name: name, IfVersion: -1, Config: core.LimiterConfig{Concurrency: int64(w.rng.IntN(4))}}
	if w.chance(200) {
		op.Config.Rate = core.Rate{Limit: int64(20 + w.rng.IntN(200)), Per: 1000, Burst: int64(1 + w.rng.IntN(5))}
	}
	return at, op
}

// limit has a task name limiters, which may not be there.
func (w *world) limit(op *core.TaskCreate) {
	for _, name := range limiterNames {
		if w.chance(150) {
			op.Limiters = append(op.Limiters, name)
		}
	}
	if w.chance(300) {
		op.Cost = uint32(1 + w.rng.IntN(3))
	}
}

// auditLimiters compares the limiters of a partition with the model.
func (w *world) auditLimiters(v core.View, p core.Partition, model *check.Model) error {
	list, err := queue.Limiters(v, p, "", "", core.MaxNamespaceLimiters, 0)
	if err != nil {
		return fmt.Errorf("limiters: %w", err)
	}
	return model.AuditLimiters(p, list)
}
