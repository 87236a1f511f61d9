package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A limiter bounds how much of the tasks that name it, whatever their queues, runs at once and begins in a time. It counts what its
// running tasks cost, and how many tasks that have not ended name it. A limiter that is full takes the groups of lanes whose next tasks
// need it out of the turns of their queues; see group.go.

// limiterState is what is stored of a limiter.
type limiterState struct {
	core.LimiterConfig
	version uint64
	// used is what the running tasks that hold it cost together.
	used uint64
	// tasks is how many tasks that have not ended name it themselves. Those that only their queues make hold it are not among them.
	tasks uint64
	// rate says how much began lately; see rate.go.
	rate rateState
}

// limiter is a limiter in memory.
type limiter struct {
	// Its name.
	name string
	// As it is now. End stores it.
	limiterState
	// stored is what End last wrote; isStored says that there is a record.
	stored   limiterState
	isStored bool
	// gone says that it was removed.
	gone bool
	// groups are those whose tasks need it, in order of their queues' numbers and their names.
	groups []*group
	// dirty says that the entry being applied has changed it, and freed that more of it may be free than before.
	dirty, freed bool
	// saved is the mark under which the journal has what it was before.
	saved uint64
}

// savedLimiter is a limiter as it was at the mark, or when it was first touched after it.
type savedLimiter struct {
	limiter *limiter
	was     limiterState
	gone    bool
}

// fits reports whether a task of a cost may begin, as far as what runs is concerned. What costs more than the limit begins when nothing
// else runs.
func (x *limiter) fits(cost uint32) bool {
	return x.Concurrency == 0 || x.used == 0 || x.used+uint64(cost) <= uint64(x.Concurrency)
}

// room is how many tasks of cost 1 may begin at a stamp, at most most.
func (x *limiter) room(stamp core.ShardTime, most uint32) uint32 {
	switch limit := uint64(x.Concurrency); {
	case limit == 0:
	case x.used >= limit:
		return 0
	default:
		most = uint32(min(uint64(most), limit-x.used))
	}
	return x.rate.room(&x.Rate, stamp, most)
}

// touchLimiter must come before any change of a limiter: End writes it, the journal knows what it was, and the groups that need it are
// looked at again.
func (m *Machine) touchLimiter(x *limiter) {
	if !x.dirty {
		x.dirty = true
		m.limDirty = append(m.limDirty, x)
	}
	m.log.saveLimiter(x, x.gone)
	m.limLog = append(m.limLog, x)
}

// resolve returns the limiters of names. One that is not there means that the store is damaged: no limiter goes that a task or a queue
// names.
func (m *Machine) resolve(names []string) ([]*limiter, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out := make([]*limiter, len(names))
	for i, name := range names {
		if out[i] = m.limiters[name]; out[i] == nil {
			return nil, errs.Corruptf("no limiter has the name %q, which is in use", name)
		}
	}
	return out, nil
}

// limitsNamed returns the limiters that a running task of a lane names. Only of tasks with a key it reads something, and of these where
// one of the key names a limiter.
func (m *Machine) limitsNamed(v core.View, ln *lane, id core.TaskID) ([]*limiter, error) {
	if !ln.named {
		return m.resolve(ln.names())
	}
	made, err := m.loadSpec(v, id)
	if err != nil {
		return nil, err
	}
	return m.resolve(made.limiters)
}

// limitsOf returns the limiters that a running task holds: those that it names, and those of its queue. The list is good until the next
// call.
func (m *Machine) limitsOf(r *run) []*limiter {
	s := r.queue.share
	switch {
	case s == nil || r.queue.removed:
		return nil
	case len(s.limits) == 0:
		return r.limits
	case len(r.limits) == 0:
		return s.limits
	}
	m.limBoth = appendBoth(m.limBoth[:0], r.limits, s.limits)
	return m.limBoth
}

// appendBoth appends what is in either of two lists, once.
func appendBoth(dst, own, more []*limiter) []*limiter {
	dst = append(dst, own...)
	for _, x := range more {
		if !slices.Contains(own, x) {
			dst = append(dst, x)
		}
	}
	return dst
}

// takeLimiters counts a task that begins in all its limiters.
func (m *Machine) takeLimiters(c *core.ApplyContext, r *run) {
	cost := max(r.rec.cost, 1)
	for _, x := range m.limitsOf(r) {
		m.touchLimiter(x)
		x.used += uint64(cost)
		x.rate = x.rate.use(&x.Rate, c.Stamp, cost)
	}
}

// freeLimiters takes a task that no longer runs out of its limiters. What its queue can give is noted before that.
func (m *Machine) freeLimiters(r *run) {
	limits := m.limitsOf(r)
	if len(limits) == 0 {
		return
	}
	m.touchLane(r.ln())
	for _, x := range limits {
		m.touchLimiter(x)
		x.free(uint64(max(r.rec.cost, 1)))
	}
}

// free takes a cost out of what runs.
func (x *limiter) free(cost uint64) {
	_ = errs.Assertf(x.used >= cost, "limiter %q counts %d running, of which %d end", x.name, x.used, cost)
	x.used -= min(x.used, cost)
	x.freed = true
}

// nameLimiters counts a task that names limiters, or that has ended and named them.
func (m *Machine) nameLimiters(limits []*limiter, ended bool) {
	for _, x := range limits {
		m.touchLimiter(x)
		if ended {
			x.tasks -= min(x.tasks, 1)
		} else {
			x.tasks++
		}
	}
}

// endNamed is nameLimiters for a task that ends without running.
func (m *Machine) endNamed(names []string) error {
	limits, err := m.resolve(names)
	m.nameLimiters(limits, true)
	return err
}

// checkLimiters refuses a task whose limiters are not all there, or are too many together with those of its queue. l is nil when there is
// no such queue.
func (m *Machine) checkLimiters(l *queueState, names []string) core.Fact {
	n := len(names)
	for _, name := range names {
		if m.limiters[name] == nil {
			return core.NotFound{Kind: "limiter", ID: name}
		}
	}
	if l != nil {
		for _, name := range l.config.Share.LimiterNames() {
			if !slices.Contains(names, name) {
				n++
			}
		}
	}
	if n > core.MaxLimiters {
		return core.TooLarge{Field: "limiters", Limit: "limiters", Max: core.MaxLimiters}
	}
	return nil
}

// checkNames refuses lists of names of limiters that no task and no queue may have.
func checkNames(field string, names []string) core.Fact {
	if len(names) > core.MaxLimiters {
		return core.TooLarge{Field: field, Limit: "limiters", Max: core.MaxLimiters}
	}
	for i, name := range names {
		if fact := checkLimiterName(field, name); fact != nil {
			return fact
		}
		if i > 0 && names[i-1] >= name {
			return core.Invalid{Field: field, Message: "must be sorted, and have each name once"}
		}
	}
	return nil
}

// checkLimiterName refuses what cannot be the name of a limiter. Names have no zero byte, which stands between names in keys.
func checkLimiterName(field, name string) core.Fact {
	if name == "" || len(name) > maxName || strings.IndexByte(name, 0) >= 0 {
		return core.Invalid{Field: field, Message: fmt.Sprintf("a name has 1 to %d characters", maxName)}
	}
	return nil
}

// applyLimiterSet makes a limiter, or replaces what it bounds. What runs goes on when a limit falls below it.
func (m *Machine) applyLimiterSet(c *core.ApplyContext, op *core.LimiterSet) (core.OpResult, core.Fact) {
	if fact := notShared(c, "has limiters"); fact != nil {
		return core.OpResult{}, fact
	}
	if fact := checkLimiterName("name", op.Name); fact != nil {
		return core.OpResult{}, fact
	}
	if op.Config.Concurrency < 0 || op.Config.Concurrency > core.MaxConcurrency {
		return core.OpResult{}, core.Invalid{Field: "concurrency", Message: fmt.Sprintf("must be from 0 to %d", core.MaxConcurrency)}
	}
	if fact := checkRate("rate", &op.Config.Rate); fact != nil {
		return core.OpResult{}, fact
	}
	x := m.limiters[op.Name]
	if fact := x.mismatch(op.Name, op.IfVersion); fact != nil {
		return core.OpResult{}, fact
	}
	switch {
	case x == nil && len(m.limiters) >= m.o.Limiters:
		return core.OpResult{}, core.Exhausted{Limit: "limiters", Max: int64(m.o.Limiters)}
	case x == nil:
		x = &limiter{name: op.Name}
		m.log.saveLimiter(x, true)
		m.limiters[op.Name] = x
	case x.LimiterConfig == op.Config:
		return core.OpResult{Version: x.version}, nil
	}
	m.touchLimiter(x)
	x.rate = x.rate.under(&x.Rate, &op.Config.Rate, c.Stamp)
	x.LimiterConfig, x.freed = op.Config, true
	x.version++
	return core.OpResult{Version: x.version}, nil
}

// mismatch refuses an op that wants another version of a limiter, which is nil where there is none.
func (x *limiter) mismatch(name string, wants int64) core.Fact {
	var version uint64
	if x != nil {
		version = x.version
	}
	if wants >= 0 && uint64(wants) != version {
		return core.RevMismatch{Rev: version, Missing: x == nil, Key: []byte(name)}
	}
	return nil
}

// applyLimiterDelete removes a limiter that nothing names.
func (m *Machine) applyLimiterDelete(c *core.ApplyContext, op *core.LimiterDelete) (core.OpResult, core.Fact) {
	if fact := notShared(c, "has limiters"); fact != nil {
		return core.OpResult{}, fact
	}
	if fact := checkLimiterName("name", op.Name); fact != nil {
		return core.OpResult{}, fact
	}
	x := m.limiters[op.Name]
	if fact := x.mismatch(op.Name, op.IfVersion); fact != nil {
		return core.OpResult{}, fact
	}
	if x == nil {
		return core.OpResult{}, nil
	}
	for _, l := range m.queues { // in order of their numbers
		if !l.removed && slices.Contains(l.config.Share.LimiterNames(), op.Name) {
			return core.OpResult{}, core.InUse{Kind: "limiter", ID: op.Name, By: "queue " + l.name}
		}
	}
	if x.tasks > 0 {
		return core.OpResult{}, core.InUse{Kind: "limiter", ID: op.Name, By: fmt.Sprintf("tasks: %d", x.tasks)}
	}
	m.touchLimiter(x)
	x.gone = true
	delete(m.limiters, op.Name)
	return core.OpResult{Existed: true, Version: x.version}, nil
}

// rehold follows a change of the limiters that a queue's configuration names: what runs of the queue holds the new ones too, and the old
// ones no longer, unless the task names them itself.
func (m *Machine) rehold(l *queueState, was, is []*limiter) {
	count := func(x *limiter) (cost uint64) {
		for _, r := range m.leases.items {
			if r.queue == l && !slices.Contains(r.limits, x) {
				cost += uint64(max(r.rec.cost, 1))
			}
		}
		return cost
	}
	for _, x := range was {
		if !slices.Contains(is, x) {
			m.touchLimiter(x)
			x.free(count(x))
		}
	}
	for _, x := range is {
		if !slices.Contains(was, x) {
			m.touchLimiter(x)
			x.used += count(x)
		}
	}
}

// freeRemoved takes what runs of a queue that is being removed out of its limiters. What names them counts until it is swept.
func (m *Machine) freeRemoved(l *queueState) {
	if l.share == nil {
		return
	}
	held := map[string]uint64{}
	for _, r := range m.leases.items {
		if r.queue != l {
			continue
		}
		for _, x := range m.limitsOf(r) {
			held[x.name] += uint64(max(r.rec.cost, 1))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		x := m.limiters[name]
		m.touchLimiter(x)
		x.free(held[name])
	}
}

// openLimiters reads all limiters.
func (m *Machine) openLimiters(v core.View) error {
	from, to := keys.LimiterRange(m.p)
	return core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		x := &limiter{name: keys.DecodeLimiter(key), isStored: true}
		var err error
		x.limiterState, err = decodeLimiter(value)
		x.stored = x.limiterState
		m.limiters[x.name] = x
		return err == nil, err
	})
}

// endLimiters writes what changed of limiters, and has all groups looked at that need one of them. Who waits for the tasks of a queue is
// told where a limiter lets more of them go than before.
func (m *Machine) endLimiters(tx core.Txn, stamp core.ShardTime) error {
	for _, x := range m.limDirty {
		x.dirty = false
		m.key = keys.AppendLimiter(m.key[:0], m.p, x.name)
		switch {
		case x.gone && x.isStored:
			tx.Delete(m.mem.own(m.key))
			x.isStored = false
		case x.gone || x.isStored && x.limiterState == x.stored:
		default:
			m.value = appendLimiter(m.value[:0], &x.limiterState)
			tx.Set(m.mem.own(m.key), m.mem.own(m.value)) // not Insert: one of the same name may have gone in this entry
			x.stored, x.isStored = x.limiterState, true
		}
	}
	seen := m.limBase + uint64(len(m.limLog))
	for _, x := range m.limDirty {
		for _, g := range slices.Clone(x.groups) {
			s := g.share
			if s.limSeen < seen {
				if err := m.refresh(tx, stamp, s); err != nil {
					return err
				}
			}
			if x.freed && g.byTurn >= 0 && s.queue.available(stamp) > 0 {
				m.wake(s.queue)
			}
		}
		x.freed = false
	}
	m.limBase = seen
	clear(m.limDirty)
	clear(m.limLog)
	m.limDirty, m.limLog = emptied(m.limDirty), emptied(m.limLog)
	return nil
}

// undoLimiters brings limiters back to what they were at the mark. It comes before the queues, whose configurations name some.
func (m *Machine) undoLimiters() {
	for _, s := range slices.Backward(m.log.limiters) {
		x := s.limiter
		x.limiterState, x.gone, x.freed = s.was, s.gone, true
		if x.gone {
			delete(m.limiters, x.name)
		} else {
			m.limiters[x.name] = x
		}
		m.limLog = append(m.limLog, x)
	}
}

// appendLimiter writes the record of a limiter.
func appendLimiter(b []byte, x *limiterState) []byte {
	b = putUint(append(b, formLimiter), x.version)
	b = appendRate(putInt(b, x.Concurrency), x.Rate)
	return putInt(putUint(putUint(b, x.used), x.tasks), int64(x.rate))
}

// decodeLimiter reads what appendLimiter wrote.
func decodeLimiter(b []byte) (x limiterState, err error) {
	r := read(b, formLimiter)
	x.version = r.uint()
	x.Concurrency, x.Rate = r.int(), r.rate()
	x.used, x.tasks, x.rate = r.uint(), r.uint(), rateState(r.int())
	return x, r.done("limiter")
}
