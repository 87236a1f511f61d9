package embed

import (
	"context"
	"errors"
	"math/bits"
	"time"
)

// submit queues a caller's own calls for the provider. It fails at once if the queue is full, the
// tenant's breaker is open or the embedder is closed; the caller then ends the calls. On success
// the caller must call leave with the tenant's state when it does not wait any more.
//
// A tenant may fill only a part of the queue if there are others, so that its texts do not keep
// those of others out.
func (e *Embedder) submit(tenant string, own []*call) (*tenantState, error) {
	var size int64
	for _, k := range own {
		size += int64(len(k.text))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tenant(tenant)
	if after, blocked := t.breaker.blocked(e.o.Clock.Boot()); blocked {
		return nil, Unavailable{After: after, Reason: "it failed repeatedly"}
	}
	switch {
	case e.ended:
		return nil, ErrClosed
	case e.waiting >= e.o.Waiting || e.bytes+size > maxWaitingBytes,
		t.waiting >= e.partOf(e.o.Waiting, e.o.Waiting/4), t.bytes+size > int64(e.partOf(maxWaitingBytes, maxWaitingBytes/4)):
		return nil, ErrQueueFull
	}
	e.waiting++
	t.waiting++
	t.pending = append(t.pending, own...)
	e.bytes += size
	t.bytes += size
	if !t.queued {
		t.queued = true
		e.turns = append(e.turns, t)
	}
	e.send(false)
	return t, nil
}

// send starts requests as long as more may be in flight: full batches at once. Smaller ones wait
// until now is set, by a timer after Delay or by the end of another request, so that more texts may
// join them. The caller holds mu.
func (e *Embedder) send(now bool) {
	for e.inFlight < e.o.InFlight {
		t, batch := e.take(now)
		if batch == nil {
			break
		}
		e.inFlight++
		t.inFlight++
		e.running.Go(func() { e.run(t, batch) })
	}
	if len(e.turns) > 0 && e.inFlight < e.o.InFlight && !e.timer {
		e.timer = true
		t := e.o.Clock.NewTimer(e.o.Delay)
		e.running.Go(func() {
			select {
			case <-t.C():
			case <-e.closed:
				t.Stop()
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			e.timer = false
			if !e.ended {
				e.send(true)
			}
		})
	}
}

// run asks the provider for a batch of one tenant, ends its calls, and starts the next requests. It
// runs in its own goroutine.
func (e *Embedder) run(t *tenantState, batch []*call) {
	if after, ok := t.breaker.allow(e.o.Clock.Boot()); ok {
		e.solve(t, batch, tries)
	} else {
		e.abandon(batch, Unavailable{After: after, Reason: "it failed repeatedly"})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight--
	t.inFlight--
	if !e.ended {
		e.send(true) // texts came while the request was under way
	}
}

// solve asks for the vectors of a batch, with at most the given number of tries. If it fails for a
// reason that may be the fault of a single text, it asks for each half again, with one try, and so
// on: in the end only the texts that the provider fails on have no vector. The breaker counts only
// failures that cannot be split any more, so that one bad text in a large batch counts once.
func (e *Embedder) solve(t *tenantState, batch []*call, most int) {
	size := 0
	for _, k := range batch {
		size += len(k.text)
	}
	vectors, tokens, err := e.ask(batch, most)
	now := e.o.Clock.Boot()
	if _, refused := errors.AsType[Refused](err); refused {
		t.breaker.answered(now)
	} else if err == nil || len(batch) == 1 || !partial(err) {
		t.breaker.done(now, err != nil)
	}
	switch {
	case e.life.Err() != nil && err != nil:
		e.abandon(batch, ErrClosed)
		return
	case err == nil:
		for i, k := range batch {
			e.finish(k, vectors[i], share(tokens, len(k.text), size))
		}
		return
	case len(batch) == 1 || !partial(err):
		e.failures.Add(1)
		e.abandon(batch, e.told(t, err))
		return
	}
	for _, part := range [][]*call{batch[:len(batch)/2], batch[len(batch)/2:]} {
		if after, blocked := t.breaker.blocked(now); blocked {
			e.abandon(part, Unavailable{After: after, Reason: "it failed repeatedly"})
			continue
		}
		e.solve(t, part, 1)
	}
}

// partial reports whether a failure may be the fault of one text among several.
func partial(err error) bool {
	again, retried := errors.AsType[retryable](err)
	_, invalid := errors.AsType[Invalid](err)
	_, refused := errors.AsType[Refused](err)
	return invalid || refused || retried && again.partial
}

// told returns a failure in the form that callers get: Unavailable with the time to come back, if
// another try may help.
func (e *Embedder) told(t *tenantState, err error) error {
	again, ok := errors.AsType[retryable](err)
	if !ok {
		return err
	}
	after, blocked := t.breaker.blocked(e.o.Clock.Boot())
	if !blocked {
		after = max(time.Second, again.after)
	}
	return Unavailable{After: after, Reason: again.Error()}
}

// retryable marks a failure that another try may mend. It does not leave this package.
type retryable struct {
	error
	// How long the provider asks to wait; 0 if it does not say.
	after time.Duration
	// One text among several may be the reason.
	partial bool
}

// tries is the number of requests for one batch, the first one included.
const tries = 3

// ask gets the vectors of a batch from the provider, with up to most tries. It checks the answer:
// the number of vectors, their dimension and their numbers.
func (e *Embedder) ask(batch []*call, most int) (vectors [][]float32, tokens int, err error) {
	for try := range most {
		e.calls.Add(1)
		ctx, cancel := context.WithTimeout(e.life, e.o.Timeout)
		vectors, tokens, err = e.provider.embed(ctx, batch, e.dim.Load())
		cancel()
		again, mayRetry := errors.AsType[retryable](err)
		if !mayRetry || try == most-1 || !e.pause(try, again.after) {
			break
		}
		e.retries.Add(1)
	}
	if err == nil {
		err = e.checkAnswer(vectors, len(batch))
	}
	return vectors, tokens, err
}

// pause waits before the next try: 100 ms, then 200 ms, each shortened or lengthened by up to a
// half at random, or longer if the provider asks for it, at most 2 s. It returns false if the
// embedder is closed meanwhile.
func (e *Embedder) pause(try int, asked time.Duration) bool {
	base := 100 * time.Millisecond << try
	part, _ := bits.Mul64(e.o.Rand.Uint64(), uint64(base))
	wait := max(base/2+time.Duration(part), min(asked, 2*time.Second))
	t := e.o.Clock.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-e.closed:
		return false
	}
}
