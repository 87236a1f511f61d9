package checktest

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// someLimiters are the names of limiters. Five are more than a task may name.
var someLimiters = []string{"l1", "l2", "l3", "l4", "l5"}

// limiters draws the limiters of a task or a queue: mostly one or two of the first ones.
func (w *world) limiters() (out []string) {
	for i, name := range someLimiters {
		if w.rand.IntN(2+3*i) == 0 {
			out = append(out, name)
		}
	}
	return out[:min(len(out), core.MaxLimiters)]
}

// limiterOp sets a limiter, or removes one. Most let little run. Some are out of bounds.
func (w *world) limiterOp() core.Op {
	name, version := someLimiters[min(w.rand.IntN(5), w.rand.IntN(5))], int64(max(-1, w.rand.IntN(8)-5))
	if w.rand.IntN(30) == 0 {
		name = strings.Repeat("n", 128+w.rand.IntN(2))
	}
	if w.rand.IntN(6) == 0 {
		return &core.LimiterDelete{Name: name, IfVersion: version}
	}
	op := &core.LimiterSet{Name: name, Config: core.LimiterConfig{Concurrency: int64(w.rand.IntN(5))}, IfVersion: version}
	if w.rand.IntN(4) == 0 {
		op.Config.Rate = w.rate()
	}
	if w.rand.IntN(20) == 0 {
		op.Config.Concurrency = -1
	}
	return op
}

// auditLimiters compares the limiters of a partition with those of the model.
func (r *run) auditLimiters(p core.Partition) error {
	list, err := queue.Limiters(r.tx, p, "", "", 1000, r.stamp)
	if err == nil {
		err = r.model.AuditLimiters(p, list)
	}
	if err != nil {
		return fmt.Errorf("partition %s: %w", p, err)
	}
	return nil
}
