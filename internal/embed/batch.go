package embed

import (
	"context"
	"errors"
	"math/bits"
	"time"
)

// submit queues calls of one caller for the provider. The caller leaves when it has waited.
func (e *Embedder) submit(own []*call) error {
	if after, blocked := e.breaker.blocked(e.o.Clock.Boot()); blocked {
		return Unavailable{After: after, Reason: "it failed repeatedly"}
	}
	var size int64
	for _, k := range own {
		size += int64(len(k.text))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ended:
		return ErrClosed
	case e.waiting >= e.o.Waiting || e.bytes+size > maxWaitingBytes:
		return ErrQueueFull
	}
	e.waiting++
	e.pending = append(e.pending, own...)
	e.bytes += size
	e.send(false)
	return nil
}

// send starts requests as far as they may run: full ones at once, others after a short wait for more texts. The mutex
// is held.
func (e *Embedder) send(now bool) {
	for len(e.pending) > 0 && e.inFlight < e.o.InFlight && (now || len(e.pending) >= e.o.Batch) {
		n := min(len(e.pending), e.o.Batch)
		batch := append([]*call(nil), e.pending[:n]...)
		e.pending = append(e.pending[:0], e.pending[n:]...)
		clear(e.pending[len(e.pending):cap(e.pending)])
		for _, k := range batch {
			e.bytes -= int64(len(k.text))
		}
		e.inFlight++
		e.running.Go(func() { e.run(batch) })
	}
	if len(e.pending) > 0 && e.inFlight < e.o.InFlight && !e.timer {
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

// run does one request with its repetitions and ends the calls.
func (e *Embedder) run(batch []*call) {
	texts := make([]string, len(batch))
	size := 0
	for i, k := range batch {
		texts[i] = k.text
		size += len(k.text)
	}
	vectors, tokens, err := e.ask(texts)
	for i, k := range batch {
		if err != nil {
			e.o.Cache.end(k, nil, err)
			continue
		}
		e.finish(k, vectors[i], share(tokens, len(k.text), size))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight--
	if !e.ended {
		e.send(true) // texts came while the request was under way
	}
}

// retryable marks a failure that another try may mend.
type retryable struct {
	error
	after time.Duration // that the provider asks for
}

const tries = 3

// ask gets vectors from the provider, trying again where that may help, and tells the breaker.
func (e *Embedder) ask(texts []string) (vectors [][]float32, tokens int, err error) {
	if after, ok := e.breaker.allow(e.o.Clock.Boot()); !ok {
		return nil, 0, Unavailable{After: after, Reason: "it failed repeatedly"}
	}
	for try := range tries {
		e.calls.Add(1)
		ctx, cancel := context.WithTimeout(e.life, e.o.Timeout)
		vectors, tokens, err = e.provider.embed(ctx, texts, e.dim.Load())
		cancel()
		again, mayRetry := errors.AsType[retryable](err)
		if !mayRetry || try == tries-1 || !e.pause(try, again.after) {
			break
		}
		e.retries.Add(1)
	}
	if err == nil {
		err = e.checkAnswer(vectors, len(texts))
	}
	if e.life.Err() != nil && err != nil {
		return nil, 0, ErrClosed
	}
	e.breaker.done(e.o.Clock.Boot(), err != nil)
	if err == nil {
		return vectors, tokens, nil
	}
	e.failures.Add(1)
	if again, ok := errors.AsType[retryable](err); ok {
		after, blocked := e.breaker.blocked(e.o.Clock.Boot())
		if !blocked {
			after = max(time.Second, again.after)
		}
		return nil, 0, Unavailable{After: after, Reason: again.Error()}
	}
	return nil, 0, err
}

// pause waits before another try: 100 ms, then 200, each more or less by half at random, or what the provider asks for
// up to 2 s.
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
