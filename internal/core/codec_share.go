package core

import "math"

// The encoding of what came with FormatShare within the configuration of a queue.

// queueShare writes how a queue is shared. It is written within a queue's configuration, and only when something is set.
func (w *writer) queueShare(c *QueueShare) {
	f := w.fields(true)
	f.has(c.NoFairness)
	f.has(c.Strict)
	f.int(c.Concurrency)
	f.int(c.KeyConcurrency)
	w.rate(&f, &c.Rate)
	w.rate(&f, &c.KeyRate)
	f.int(int64(c.MaxWorkers))
	f.name(c.DeadLetter)
	w.limiterNames(&f, &c.Limiters)
}

// queueShare reads into c, which must be the zero value.
func (r *reader) queueShare(c *QueueShare) {
	f := r.fields(true)
	c.NoFairness, c.Strict = f.has(), f.has()
	c.Concurrency, c.KeyConcurrency = f.int(), f.int()
	c.Rate, c.KeyRate = r.rate(&f), r.rate(&f)
	c.MaxWorkers = f.int32()
	c.DeadLetter = f.name()
	c.Limiters = r.limiterNames(&f)
	f.end()
}

// rate writes a rate, unless it bounds nothing.
func (w *writer) rate(f *presence, c *Rate) {
	if f.has(*c != Rate{}) {
		w.int(c.Limit)
		w.int(int64(c.Per))
		w.int(c.Burst)
	}
}

// rate reads what the writer's rate wrote.
func (r *reader) rate(f *present) (c Rate) {
	if f.has() {
		c = Rate{Limit: r.int(), Per: Millis(r.int()), Burst: r.int()}
		r.nonZero(c != Rate{})
	}
	return c
}

// keySet writes the queue and the key, then the fields that are not zero.
func (w *writer) keySet(op *KeySet) {
	w.name(op.Queue)
	w.text(op.Key)
	f := w.fields(false)
	f.uint(uint64(op.Settings.Weight))
	f.int(op.Settings.Concurrency)
	w.rate(&f, &op.Settings.Rate)
	f.has(op.KeepSettings)
	f.uint(uint64(op.Pause))
	f.int(int64(op.Until))
	f.text(op.Reason)
}

// keySet reads what the writer's keySet wrote.
func (r *reader) keySet() *KeySet {
	op := &KeySet{Queue: r.name(), Key: r.text()}
	f := r.fields(false)
	op.Settings.Weight = uint32(f.uint(math.MaxUint32))
	op.Settings.Concurrency = f.int()
	op.Settings.Rate = r.rate(&f)
	op.KeepSettings = f.has()
	op.Pause = KeyPause(f.uint(math.MaxUint8))
	op.Until = ShardTime(f.int())
	op.Reason = f.text()
	f.end()
	return op
}
