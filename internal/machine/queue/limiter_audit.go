package queue

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// limiterCount is what a limiter counts, or what tasks say that it counts.
type limiterCount struct{ used, tasks uint64 }

// auditLimiters is what an audit knows of limiters.
type auditLimiters struct {
	// stored is what each limiter counts, and found what tasks say.
	stored, found map[string]limiterCount
	// ofQueue are those that the configuration of a queue names, by the queue's number.
	ofQueue map[uint32][]string
	// lanes are those of keys with tasks that name limiters, as long as they do not say so themselves.
	lanes map[laneName]bool
}

// row takes in a limiter.
func (a *auditLimiters) row(name string, value []byte) error {
	x, err := decodeLimiter(value)
	if a.stored == nil {
		a.stored = map[string]limiterCount{}
	}
	a.stored[name] = limiterCount{x.used, x.tasks}
	return err
}

// queue takes in the configuration of a queue.
func (a *auditLimiters) queue(row *queueRow) {
	if names := row.config.Share.LimiterNames(); len(names) > 0 {
		if a.ofQueue == nil {
			a.ofQueue = map[uint32][]string{}
		}
		a.ofQueue[row.number] = names
	}
}

// task counts a task that has not ended. One of a queue that was removed holds nothing any more, though it runs.
func (a *auditLimiters) task(rec *record, s *spec, removed bool) {
	if !isLive(rec.state) {
		return
	}
	for _, name := range s.limiters {
		c := a.found[name]
		c.tasks++
		a.find(name, c)
	}
	if len(s.limiters) > 0 && len(s.key) > 0 && !removed {
		if a.lanes == nil {
			a.lanes = map[laneName]bool{}
		}
		a.lanes[laneName{rec.queue, rec.lane}] = true
	}
	if rec.state != core.Running || removed {
		return
	}
	held := slices.Clone(s.limiters)
	for _, name := range a.ofQueue[rec.queue] {
		if !slices.Contains(held, name) {
			held = append(held, name)
		}
	}
	for _, name := range held {
		c := a.found[name]
		c.used += uint64(max(rec.cost, 1))
		a.find(name, c)
	}
}

// find sets what tasks say of a limiter.
func (a *auditLimiters) find(name string, c limiterCount) {
	if a.found == nil {
		a.found = map[string]limiterCount{}
	}
	a.found[name] = c
}

// finishLimiters compares what limiters count with what tasks say, and looks whether all are there that are named.
func (a *audit) finishLimiters() {
	l := &a.limiters
	for _, name := range slices.Sorted(maps.Keys(l.stored)) {
		if l.stored[name] != l.found[name] {
			a.find("limiter %q counts %+v, and has %+v", name, l.stored[name], l.found[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.found)) {
		if _, ok := l.stored[name]; !ok {
			a.find("%+v tasks name limiter %q, which is not there", l.found[name], name)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(l.lanes), compareLanes) {
		a.find("lane %d of queue number %d has tasks that name limiters, and does not say so", name.lane, name.queue)
	}
	for _, number := range slices.Sorted(maps.Keys(l.ofQueue)) {
		for _, name := range l.ofQueue[number] {
			if _, ok := l.stored[name]; !ok {
				a.find("queue number %d names limiter %q, which is not there", number, name)
			}
		}
	}
}
