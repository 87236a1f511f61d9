package core

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
}

// queueShare reads into c, which must be the zero value.
func (r *reader) queueShare(c *QueueShare) {
	f := r.fields(true)
	c.NoFairness, c.Strict = f.has(), f.has()
	c.Concurrency, c.KeyConcurrency = f.int(), f.int()
	c.Rate, c.KeyRate = r.rate(&f), r.rate(&f)
	c.MaxWorkers = f.int32()
	c.DeadLetter = f.name()
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
