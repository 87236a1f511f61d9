package check

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// place is where a task stands in its queue: among those of its lane and priority the oldest goes first.
type place struct {
	lane     string
	priority uint8
}

func placeOf(t *task) place { return place{laneOf(&t.create), t.create.Priority} }

// laneOf names the lane of a task: that of its key, or for one without a key that of the limiters that it names.
func laneOf(op *core.TaskCreate) string {
	if op.Key != "" || len(op.Limiters) == 0 {
		return op.Key
	}
	return "\x00" + strings.Join(op.Limiters, "\x00")
}

// keyShare is what the model knows of one key of a queue.
type keyShare struct {
	settings core.KeySettings
	paused   core.QueuePaused
	over     bool // a tick may have let it go on
	began    bucket
	held     core.TaskID // of a strict queue: the task that was given out last
}

// bucket counts what began under a rate and is not made good yet, in units of cost.
type bucket struct {
	spent float64
	at    core.ShardTime
}

// slip is how far from a rate the count may be: times are rounded to nanoseconds.
const slip = 1e-3

// until is a bucket at a later time, which made some of it good.
func (b bucket) until(r core.Rate, now core.ShardTime) bucket {
	if r == (core.Rate{}) {
		return bucket{0, now}
	}
	return bucket{max(0, b.spent-float64(now-b.at)*float64(r.Limit)/float64(r.Per)), now}
}

// lacks reports by how much a bucket is short of what something of a cost needs: its cost, or all of the burst.
func (b bucket) lacks(r core.Rate, cost float64) float64 {
	size := float64(cmp.Or(r.Burst, r.Limit))
	return min(cost, size) + b.spent - size
}

func costOf(t *task) float64 { return max(float64(t.create.Cost), 1) }

// keyOf returns what is known of a key; nothing was set for one that is new.
func (q *queue) keyOf(key string) keyShare {
	if q == nil {
		return keyShare{}
	}
	return q.keys[key]
}

func (m *Model) setKey(q *queue, key string, is keyShare) {
	if q.keys == nil {
		q.keys = map[string]keyShare{}
	}
	set(m, q.keys, key, is)
}

// limits of a key: what was set for it, else what its queue rules.
func (q *queue) limitsOf(key string) (concurrency int64, rate core.Rate) {
	s := q.keyOf(key).settings
	concurrency, rate = q.config.Share.KeyConcurrency, q.config.Share.KeyRate
	if s.Concurrency > 0 {
		concurrency = s.Concurrency
	}
	if s.Rate != (core.Rate{}) {
		rate = s.Rate
	}
	if q.config.Share.Strict {
		concurrency = 1
	}
	return concurrency, rate
}

// isPaused says whether a key surely is paused, and whether it may be.
func (m *Model) isPaused(k keyShare) (sure, may bool) {
	may = k.paused.Since != 0
	return may && !k.over && (k.paused.Until == 0 || k.paused.Until > m.now(true)), may
}

// runners counts the running tasks of a queue, of a key, and the workers that have some, as certain and as possible.
type runners struct{ all, ofKey, workers, hasWorker int64 }

func (p *part) runners(name, key, worker string) (sure, may runners) {
	var sureWorkers, mayWorkers []string
	note := func(r *runners, workers *[]string, t *task, by string) {
		r.all++
		if laneOf(&t.create) == key {
			r.ofKey++
		}
		if by == worker {
			r.hasWorker++
		}
		if !slices.Contains(*workers, by) {
			*workers = append(*workers, by)
		}
	}
	runs := func(s *standing) bool { return s.state == core.Running && !s.gone }
	for _, t := range p.tasks {
		if t.create.Queue != name {
			continue
		}
		if t.sure(runs) {
			note(&sure, &sureWorkers, t, t.worker)
		}
		if t.might(runs) {
			note(&may, &mayWorkers, t, t.worker)
		}
	}
	sure.workers, may.workers = int64(len(sureWorkers)), int64(len(mayWorkers))
	return sure, may
}

// pinnedElsewhere reports whether a queue, which need not be there, has its tasks made in another partition.
func (p *part) pinnedElsewhere(queue string) bool {
	s := p.configOf(queue).Share
	bound := s.Concurrency > 0 || s.Rate.Limit > 0 || s.MaxWorkers > 0 || len(s.LimiterNames()) > 0
	return p.index != 0 && (bound || s.Strict)
}

// isShared reports whether anything limits a queue, or a key of it.
func (q *queue) isShared() bool {
	return q != nil && (q.config.Share != core.QueueShare{} || len(q.keys) > 0)
}

// begins judges that limits let a task be given to a worker, and counts it.
func (m *Model) begins(p *part, t *task, worker string) error {
	q := p.queues[t.create.Queue]
	was := t.worker
	m.change(func() { t.worker = was })
	defer func() { t.worker = worker }()
	if err := m.beginsUnder(p, t); err != nil {
		return err
	}
	if !q.isShared() {
		return nil
	}
	share, key := q.config.Share, laneOf(&t.create)
	k := q.keyOf(key)
	sure, may := p.runners(t.create.Queue, key, worker)
	concurrency, rate := q.limitsOf(key)
	paused, _ := m.isPaused(k)
	switch {
	case paused:
		return fmt.Errorf("key %q of queue %q is paused: %+v", key, t.create.Queue, k.paused)
	case share.Concurrency > 0 && sure.all >= share.Concurrency:
		return fmt.Errorf("queue %q runs %d tasks of at most %d", t.create.Queue, sure.all, share.Concurrency)
	case concurrency > 0 && sure.ofKey >= concurrency:
		return fmt.Errorf("key %q of queue %q runs %d tasks of at most %d", key, t.create.Queue, sure.ofKey, concurrency)
	case share.MaxWorkers > 0 && may.hasWorker == 0 && sure.workers >= int64(share.MaxWorkers):
		return fmt.Errorf("%d workers have tasks of queue %q, of at most %d, and %q has none", sure.workers, t.create.Queue, share.MaxWorkers, worker)
	}
	if share.Strict {
		if h := p.tasks[k.held]; h != nil && h != t && h.sure(func(s *standing) bool {
			return !s.gone && !s.state.Terminal() && s.deliveries > s.base // after its end and a redrive it does not hold it
		}) {
			return fmt.Errorf("task %s holds key %q of queue %q", h.id, key, t.create.Queue)
		}
		k.held = t.id
	}
	for _, b := range []struct {
		rate core.Rate
		of   *bucket
		what string
	}{{share.Rate, &q.began, "queue"}, {rate, &k.began, "key"}} {
		if b.rate == (core.Rate{}) {
			continue
		}
		now := b.of.until(b.rate, m.stamp)
		if short := now.lacks(b.rate, costOf(t)); short > slip {
			return fmt.Errorf("the rate of the %s, %+v, is short of %g for a cost of %g", b.what, b.rate, short, costOf(t))
		}
		now.spent += costOf(t)
		was := *b.of
		m.change(func() { *b.of = was })
		*b.of = now
	}
	m.setKey(q, key, k)
	return nil
}

// mayWait reports whether some limit may hold a ready task up.
func (m *Model) mayWait(p *part, t *task, worker string) bool {
	q := p.queues[t.create.Queue]
	if m.mayWaitUnder(p, t) {
		return true
	}
	if !q.isShared() {
		return false
	}
	share, key := q.config.Share, laneOf(&t.create)
	k := q.keyOf(key)
	sure, may := p.runners(t.create.Queue, key, worker)
	concurrency, rate := q.limitsOf(key)
	_, paused := m.isPaused(k)
	if paused || share.Concurrency > 0 && may.all >= share.Concurrency || concurrency > 0 && may.ofKey >= concurrency ||
		share.MaxWorkers > 0 && sure.hasWorker == 0 && may.workers >= int64(share.MaxWorkers) {
		return true
	}
	if h := p.tasks[k.held]; share.Strict && h != nil && h != t && h.might(func(s *standing) bool { return !s.gone && !s.state.Terminal() }) {
		return true
	}
	// The first task of the key, whose cost is asked for, may be another one: nothing is said of keys and queues with a rate.
	return share.Rate != (core.Rate{}) || rate != (core.Rate{})
}

// keySet judges that what was set for a key is replaced.
func (m *Model) keySet(p *part, c *core.Commit, op *core.KeySet, a answer) error {
	q := p.queues[op.Queue]
	switch f := a.fact.(type) {
	case core.NotFound:
		if f.Kind == "queue" && m.mayLack(p, op.Queue) {
			return nil
		}
	case core.Exhausted:
		if f.Limit == "keys" || f.Limit == "key_settings" && int64(len(q.keys)) >= f.Max {
			return nil
		}
	}
	if a.fact != nil || q == nil {
		return fmt.Errorf("key %q of queue %q: answered %s", op.Key, op.Queue, a)
	}
	k := q.keyOf(op.Key)
	if !op.KeepSettings {
		_, before := q.limitsOf(op.Key)
		k.began = k.began.until(before, m.stamp)
		k.settings = op.Settings
	}
	switch op.Pause {
	case core.KeyPauseStop:
		since := m.stamp
		if sure, _ := m.isPaused(k); sure {
			since = k.paused.Since
		}
		k.paused, k.over = core.QueuePaused{Since: since, Until: op.Until, By: c.Principal, Reason: cutReason(op.Reason)}, false
	case core.KeyPauseGoOn:
		k.paused, k.over = core.QueuePaused{}, false
	}
	m.setKey(q, op.Key, k)
	return nil
}

// keysGoOn notes that a tick may have let paused keys go on whose time is over; all: it has.
func (m *Model) keysGoOn(p *part, all bool) {
	for _, q := range p.queues {
		for _, key := range slices.Sorted(maps.Keys(q.keys)) {
			k := q.keys[key]
			if k.paused.Until == 0 || k.paused.Until > m.now(true) {
				continue
			}
			if k.over = true; all {
				k.paused, k.over = core.QueuePaused{}, false
			}
			m.setKey(q, key, k)
		}
	}
}

// countUnder brings what began under the rates of a queue and of its keys up to now, before the rates change.
func (m *Model) countUnder(q *queue) {
	was := q.began
	m.change(func() { q.began = was })
	q.began = was.until(q.config.Share.Rate, m.stamp)
	for _, key := range slices.Sorted(maps.Keys(q.keys)) {
		_, rate := q.limitsOf(key)
		k := q.keys[key]
		k.began = k.began.until(rate, m.stamp)
		m.setKey(q, key, k)
	}
}

// misfitsOfShare holds what a create says of sharing to its bounds.
func misfitsOfShare(op *core.TaskCreate) []misfit {
	var out []misfit
	switch {
	case len(op.Key) > core.MaxKey:
		out = append(out, misfit{"key", "key_bytes"})
	case strings.ContainsRune(op.Key, 0):
		out = append(out, misfit{field: "key"})
	}
	if op.Cost > core.MaxCost {
		out = append(out, misfit{field: "cost"})
	}
	return append(out, misfitsOfNames("limiters", op.Limiters)...)
}

// misfitsOfQueueShare holds how a queue is shared to its bounds.
func misfitsOfQueueShare(s *core.QueueShare) []misfit {
	var out []misfit
	if s.Concurrency < 0 || s.Concurrency > core.MaxConcurrency {
		out = append(out, misfit{field: "config.concurrency"})
	}
	if s.KeyConcurrency < 0 || s.KeyConcurrency > core.MaxConcurrency {
		out = append(out, misfit{field: "config.per_key.concurrency"})
	}
	if s.MaxWorkers < 0 {
		out = append(out, misfit{field: "config.max_workers"})
	}
	return append(append(out, misfitsOfRate("config.rate", s.Rate)...), misfitsOfRate("config.per_key.rate", s.KeyRate)...)
}

func misfitsOfRate(field string, r core.Rate) []misfit {
	switch {
	case r == core.Rate{}:
		return nil
	case r.Limit < 1 || r.Limit > core.MaxRate:
		return []misfit{{field: field + ".limit"}}
	case r.Per < 1 || r.Per > 24*3_600_000:
		return []misfit{{field: field + ".per"}}
	case r.Burst < 0 || r.Burst > core.MaxRate:
		return []misfit{{field: field + ".burst"}}
	case float64(r.Limit)/float64(r.Per) > 1e6:
		return []misfit{{field: field}}
	}
	return nil
}

func misfitsOfKeySet(op *core.KeySet) []misfit {
	out := misfitsOfName("queue", op.Queue)
	switch {
	case op.Key == "" || strings.ContainsRune(op.Key, 0):
		out = append(out, misfit{field: "key"})
	case len(op.Key) > core.MaxKey:
		out = append(out, misfit{"key", "key_bytes"})
	}
	if op.Settings.Weight > core.MaxWeight {
		out = append(out, misfit{field: "weight"})
	}
	if op.Settings.Concurrency < 0 || op.Settings.Concurrency > math.MaxInt32 {
		out = append(out, misfit{field: "concurrency"})
	}
	return append(out, misfitsOfRate("rate", op.Settings.Rate)...)
}

// shares reports whether an op, or what it says, is of core.FormatShare.
func shares(op core.Op) bool {
	switch op := op.(type) {
	case *core.KeySet, *core.TenantQuota, *core.LimiterSet, *core.LimiterDelete:
		return true
	case *core.TaskCreate:
		return op.HasShare()
	case *core.QueueSet:
		return op.Config.Share != (core.QueueShare{})
	case *core.KeyspaceSet:
		return op.Config.Writers
	case *core.BulkStart:
		return op.ToQueue != "" || len(op.Patch) > 0 || op.Tasks.Batch != core.TaskID{} || op.Tasks.State == core.Blocked
	}
	return false
}

// keysOver reports whether as many keys may have tasks that have not ended, or something set.
func (p *part) keysOver(most int64) bool {
	type name struct{ queue, key string }
	seen := map[name]bool{}
	for _, t := range p.tasks {
		if laneOf(&t.create) != "" && t.might(func(s *standing) bool { return !s.gone && !s.state.Terminal() }) {
			seen[name{t.create.Queue, laneOf(&t.create)}] = true
		}
	}
	for queue, q := range p.queues {
		for key := range q.keys {
			seen[name{queue, key}] = true
		}
	}
	return int64(len(seen)) >= most
}
