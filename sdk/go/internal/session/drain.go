package session

import (
	"fmt"
	"sync"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// abort ends the streams of all streams. No handler begins any more, and when it returns nothing comes any more.
func (w *Worker) abort(cause error) {
	w.mu.Lock()
	w.finish()
	streams := w.streams // none is added any more
	w.mu.Unlock()
	for _, l := range streams {
		l.s.stop(cause)
	}
	for _, l := range streams {
		<-l.s.done
	}
}

// finish takes back what waits for a goroutine, and ends those that wait for a task. It needs mu.
func (w *Worker) finish() {
	w.slots.stop()
	for w.ready.len() > 0 {
		w.ready.popFront()
	}
	w.over = true
	w.noteQuiet()
	w.cond.Broadcast()
}

// noteQuiet tells finishAll when the last goroutine has ended. It needs mu.
func (w *Worker) noteQuiet() {
	if !w.over || w.live > 0 {
		return
	}
	select {
	case <-w.quiet:
	default:
		close(w.quiet)
	}
}

// drain finishes what is held, or gives it back, and closes the stream.
func (w *Worker) drain() error {
	w.mu.Lock()
	w.beginDrain()
	w.mu.Unlock()
	late := time.NewTimer(w.opts.Drain)
	defer late.Stop()
	select {
	case <-w.drained:
	// The handlers had their time. They are told to stop, and given a little more to return.
	case <-late.C:
		w.endHandlers()
		if !w.waits(w.drained, returnWithin) {
			w.giveBack()
			within(w.drained, wire.ReleaseWithin)
		}
	}
	w.mu.Lock()
	streams := w.streams // none is added any more
	w.mu.Unlock()
	var closed sync.WaitGroup
	for _, l := range streams {
		closed.Go(func() { l.s.drain(closeStream) })
	}
	closed.Wait()
	if left := w.finishAll(fault.ErrClosed, wire.ReleaseWithin); left > 0 {
		return fmt.Errorf("%d tasks were not settled before the end", left)
	}
	return nil
}

// mayDrain begins to drain if Run is to end and has not noticed yet: what a handler gives back after it stopped the worker
// must not come to this worker again. It needs mu.
func (w *Worker) mayDrain() {
	select {
	case <-w.stopping:
	case <-w.stopped:
	default:
		return
	}
	w.beginDrain()
}

// beginDrain tells the server to send no more and gives back what no handler has begun. It does so once, and needs mu.
func (w *Worker) beginDrain() {
	if w.drains {
		return
	}
	w.drains = true
	close(w.draining)
	for _, l := range w.streams {
		if l.failed != nil {
			l.abandon()
			continue
		}
		l.subscribe, l.restate = false, false
		if l.s.up {
			l.control.pushBack(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Drain{Drain: &millracev1.Drain{}}})
		}
		l.s.poke()
	}
	w.slots.stop()
	w.ready.keep(func(t *Attempt) bool {
		if !t.lost && t.refusal == nil {
			w.release(t)
		}
		return !t.lost && t.refusal != nil // its handler finished, and may do so again
	})
	w.noteDrained()
}

// release queues t's release. It needs mu.
func (w *Worker) release(t *Attempt) {
	t.Release()
	t.invoke = w.hub.Ledger.Now()
	t.to(settling)
	t.l.settles.pushBack(t)
}

// waits waits for done: for d, or with WaitForHandlers for as long as that takes. It reports whether done was closed.
func (w *Worker) waits(done <-chan struct{}, d time.Duration) bool {
	if w.opts.Waits {
		<-done
		return true
	}
	return within(done, d)
}

// within waits for done, at most for d. It reports whether done was closed.
func within(done <-chan struct{}, d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// endHandlers ends the contexts of the handlers that did not finish in time. Their tasks go back when they return, with or without
// an error: many a handler that is told to stop half-way returns without one.
func (w *Worker) endHandlers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.streams {
		for _, t := range l.held {
			if t.stage == running {
				t.stopped = true
				t.cancel(fault.ErrStopped)
			}
		}
	}
}

// giveBack releases the tasks whose handlers have not returned though their contexts have ended.
func (w *Worker) giveBack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.streams {
		for _, t := range l.held {
			if t.stage != running {
				continue
			}
			t.released = true
			w.beyond++
		}
		// The item of a task belongs to the goroutine that runs its handler: the release is a task of its own.
		for _, t := range l.held {
			if t.released {
				r := l.double(t)
				l.held[t.Lease] = r
				w.release(r)
			}
		}
		l.s.poke()
	}
}

// finishAll ends the handlers' contexts and the goroutines that wait for tasks, and waits at most d for all of them. It
// returns how many tasks are held still.
func (w *Worker) finishAll(cause error, d time.Duration) (left int) {
	w.mu.Lock()
	for _, l := range w.streams {
		left += len(l.held)
		for k, t := range l.held {
			t.lost = true
			t.cancel(cause)
			delete(l.held, k)
		}
		if l.renewTimer != nil {
			l.renewTimer.Stop()
		}
	}
	left += w.missed
	w.finish()
	w.mu.Unlock()
	w.waits(w.quiet, d)
	return left
}

// noteDrained tells drain when nothing is held any more. It needs mu.
func (w *Worker) noteDrained() {
	if !w.drains {
		return
	}
	for _, l := range w.streams {
		if len(l.held) > 0 {
			return
		}
	}
	select {
	case <-w.drained:
	default:
		close(w.drained)
	}
}
