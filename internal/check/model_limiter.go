package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// limiter is what the model knows of a limiter. What runs under it is counted from the tasks, each time.
type limiter struct {
	config  core.LimiterConfig
	version uint64
	began   bucket
}

// limitersOf lists the limiters that a task needs: those that it names, and those of its queue, each once.
func (p *part) limitersOf(t *task) []string {
	out := slices.Clone(t.create.Limiters)
	for _, name := range p.ofQueue(t.create.Queue) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// ofQueue lists the limiters that the configuration of a queue names.
func (p *part) ofQueue(queue string) (out []string) {
	for _, name := range p.configOf(queue).Share.Limiters {
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

// runsUnder is what the running tasks cost together that hold a limiter, as certain and as possible.
func (p *part) runsUnder(name string) (sure, may float64) {
	runs := func(s *standing) bool { return s.state == core.Running && !s.gone }
	for _, t := range p.tasks {
		if !slices.Contains(p.limitersOf(t), name) {
			continue
		}
		if t.sure(runs) {
			sure += costOf(t)
		}
		if t.might(runs) {
			may += costOf(t)
		}
	}
	return sure, may
}

// beginsUnder judges that all limiters of a task let it be given to a worker, and counts it.
func (m *Model) beginsUnder(p *part, t *task) error {
	for _, name := range p.limitersOf(t) {
		x, ok := p.limiters[name]
		if !ok {
			return fmt.Errorf("limiter %q is not there", name)
		}
		sure, _ := p.runsUnder(name)
		if limit := float64(x.config.Concurrency); limit > 0 && sure > 0 && sure+costOf(t) > limit {
			return fmt.Errorf("limiter %q has %g running of %g, and a task of cost %g began", name, sure, limit, costOf(t))
		}
		rate := x.config.Rate
		if rate == (core.Rate{}) {
			continue
		}
		x.began = x.began.until(rate, m.stamp)
		if short := x.began.lacks(rate, costOf(t)); short > slip {
			return fmt.Errorf("the rate of limiter %q, %+v, is short of %g for a cost of %g", name, rate, short, costOf(t))
		}
		x.began.spent += costOf(t)
		set(m, p.limiters, name, x)
	}
	return nil
}

// mayWaitUnder reports whether a limiter may hold a ready task up, or a task of its key that goes before it.
func (m *Model) mayWaitUnder(p *part, t *task) bool {
	if p.mayBeFull(t) {
		return true
	}
	if t.create.Key == "" {
		return false
	}
	for _, o := range p.tasks {
		if o != t && o.create.Queue == t.create.Queue && o.create.Key == t.create.Key && o.mayBeReady() && p.mayBeFull(o) {
			return true
		}
	}
	return false
}

func (t *task) mayBeReady() bool {
	return t.might(func(s *standing) bool { return s.state == core.Ready && !s.gone })
}

// mayBeFull reports whether a limiter of a task may have no room for it, or for one of its queue that goes before it: the first one, whose
// cost is asked for, may be another one.
func (p *part) mayBeFull(t *task) bool {
	for _, name := range p.limitersOf(t) {
		x := p.limiters[name]
		if x.config.Rate != (core.Rate{}) {
			return true // nothing is said of what has a rate
		}
		if x.config.Concurrency == 0 {
			continue
		}
		cost := costOf(t)
		for _, o := range p.tasks {
			if o.create.Queue == t.create.Queue && o.mayBeReady() && slices.Contains(p.limitersOf(o), name) {
				cost = max(cost, costOf(o))
			}
		}
		if _, may := p.runsUnder(name); may > 0 && may+cost > float64(x.config.Concurrency) {
			return true
		}
	}
	return false
}

// lacksLimiter returns the first of some limiters that is not there.
func (p *part) lacksLimiter(names []string) (string, bool) {
	for _, name := range names {
		if _, ok := p.limiters[name]; !ok {
			return name, true
		}
	}
	return "", false
}

// tooManyLimiters reports whether a task would need more than four limiters in a queue.
func (p *part) tooManyLimiters(queue string, names []string) bool {
	n := len(names)
	for _, name := range p.ofQueue(queue) {
		if !slices.Contains(names, name) {
			n++
		}
	}
	return n > 4
}

// limitersFit judges that a task which was made, or made ready, may name its limiters.
func (p *part) limitersFit(queue string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if name, lacks := p.lacksLimiter(names); lacks {
		return fmt.Errorf("limiter %q is not there", name)
	}
	if p.tooManyLimiters(queue, names) {
		return fmt.Errorf("%d limiters are too many with %d of queue %q", len(names), len(p.ofQueue(queue)), queue)
	}
	return nil
}

// limitersRefuse reports whether a refusal is about limiters that a task names, and is right.
func (p *part) limitersRefuse(queue string, names []string, fact core.Fact) bool {
	switch f := fact.(type) {
	case core.NotFound:
		_, there := p.limiters[f.ID]
		return f.Kind == "limiter" && !there && slices.Contains(names, f.ID)
	case core.TooLarge:
		return f.Limit == "limiters" && len(names) > 0 && p.tooManyLimiters(queue, names)
	}
	return false
}

// setLimited judges which limiters a queue may name. judged is false where there is no ground to refuse it.
func (p *part) setLimited(op *core.QueueSet, a answer) (judged bool, err error) {
	var names []string
	for _, name := range op.Config.Share.Limiters {
		if name != "" {
			names = append(names, name)
		}
	}
	missing, lacks := p.lacksLimiter(names)
	if !lacks {
		return false, nil
	}
	if _, ok := a.fact.(core.RevMismatch); ok {
		return false, nil // the version is judged first
	}
	if p.limitersRefuse(op.Queue, names, a.fact) {
		return true, nil
	}
	return true, fmt.Errorf("queue %q: limiter %q is not there: answered %s", op.Queue, missing, a)
}

// limiterOp judges an op on a limiter.
func (m *Model) limiterOp(p *part, op core.Op, a answer) error {
	if set, ok := op.(*core.LimiterSet); ok {
		return m.limiterSet(p, set, a)
	}
	return m.limiterDelete(p, op.(*core.LimiterDelete), a)
}

// limiterSet judges a change of what a limiter bounds.
func (m *Model) limiterSet(p *part, op *core.LimiterSet, a answer) error {
	x, there := p.limiters[op.Name]
	if f, ok := a.fact.(core.Exhausted); ok && f.Limit == "limiters" && !there && int64(len(p.limiters)) >= f.Max {
		return nil
	}
	next := x.version
	if !there || x.config != op.Config {
		next++
	}
	if err := m.judgeVersion(op.IfVersion, x.version, next, a); err != nil || a.fact != nil {
		return err
	}
	x.began = x.began.until(x.config.Rate, m.stamp)
	x.config, x.version = op.Config, next
	set(m, p.limiters, op.Name, x)
	return nil
}

// limiterDelete judges the removal of a limiter: only one goes that neither a queue names nor a task that has not ended.
func (m *Model) limiterDelete(p *part, op *core.LimiterDelete, a answer) error {
	x, there := p.limiters[op.Name]
	named, may := false, false
	for queue := range p.queues {
		named = named || slices.Contains(p.ofQueue(queue), op.Name)
	}
	lives := func(s *standing) bool { return !s.gone && !s.state.Terminal() || s.unswept }
	for _, t := range p.tasks {
		if !slices.Contains(t.create.Limiters, op.Name) {
			continue
		}
		may = may || t.might(lives)
		named = named || t.sure(func(s *standing) bool { return !s.gone && !s.state.Terminal() })
	}
	if f, ok := a.fact.(core.InUse); ok && f.Kind == "limiter" && f.ID == op.Name && there && (named || may) {
		return nil
	}
	if err := m.judgeVersion(op.IfVersion, x.version, x.version, a); err != nil || a.fact != nil {
		return err
	}
	switch {
	case named:
		return fmt.Errorf("limiter %q was removed, and is named", op.Name)
	case !a.blind && a.result.Existed != there:
		return fmt.Errorf("limiter %q is there: %v, its removal answered %v", op.Name, there, a.result.Existed)
	}
	drop(m, p.limiters, op.Name)
	return nil
}

func misfitsOfLimiter(name string, c *core.LimiterConfig) []misfit {
	out := misfitsOfName("name", name)
	if strings.ContainsRune(name, 0) {
		out = append(out, misfit{field: "name"})
	}
	if c.Concurrency < 0 || c.Concurrency > core.MaxConcurrency {
		out = append(out, misfit{field: "concurrency"})
	}
	return append(out, misfitsOfRate("rate", c.Rate)...)
}

// misfitsOfNames holds a list of limiters to its bounds.
func misfitsOfNames(field string, names []string) []misfit {
	var out []misfit
	if len(names) > 4 {
		out = append(out, misfit{field, "limiters"})
	}
	for i, name := range names {
		if name == "" || len(name) > 128 || strings.ContainsRune(name, 0) || i > 0 && names[i-1] >= name {
			out = append(out, misfit{field: field})
		}
	}
	return out
}

// AuditLimiters compares the limiters of a partition as they are read back with what they must be.
func (m *Model) AuditLimiters(at core.Partition, got []core.Limiter) error {
	p := m.part(at)
	if len(got) != len(p.limiters) {
		return fmt.Errorf("%d limiters, there must be %d", len(got), len(p.limiters))
	}
	for _, g := range got {
		x, ok := p.limiters[g.Name]
		if !ok || g.LimiterConfig != x.config || g.Version != x.version {
			return fmt.Errorf("limiter %q reads as %+v, it is %+v", g.Name, g, x)
		}
		if sure, may := p.runsUnder(g.Name); float64(g.Used) < sure || float64(g.Used) > may {
			return fmt.Errorf("limiter %q has %d running, it must have %g to %g", g.Name, g.Used, sure, may)
		}
		var sure, may uint64
		for _, t := range p.tasks {
			if !slices.Contains(t.create.Limiters, g.Name) {
				continue
			}
			if t.sure(func(s *standing) bool { return !s.gone && !s.state.Terminal() }) {
				sure++
			}
			if t.might(func(s *standing) bool { return !s.gone && !s.state.Terminal() || s.unswept }) {
				may++
			}
		}
		if g.Tasks < sure || g.Tasks > may {
			return fmt.Errorf("limiter %q is named by %d tasks, it must be %d to %d", g.Name, g.Tasks, sure, may)
		}
	}
	return nil
}
