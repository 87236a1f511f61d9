package session

import (
	"time"

	"github.com/millrace/millrace/sdk/go/internal/place"
)

// run serves the stream to its end.
func (l *workerStream) run() {
	err := l.s.run(true)
	if err == nil || l.s.ctx.Err() != nil {
		return // it was stopped, or had drained
	}
	l.w.mu.Lock()
	l.failed = err
	if l.w.drains {
		l.abandon()
	}
	l.w.mu.Unlock()
	// Only the first stream that fails ends the worker; Run waits for one error.
	select {
	case l.w.failed <- err:
	default: // another stream has ended before
	}
}

// abandon gives up the tasks of a stream that ended for good while the worker drains: the other streams finish theirs. It
// needs mu.
func (l *workerStream) abandon() {
	for _, t := range l.held {
		l.w.missed++
		t.lost = true
		if t.stage == running {
			l.w.outlive(t) // without WaitForHandlers its goroutine serves the others' tasks no longer than it must
		}
		t.cancel(l.failed)
		l.drop(t)
	}
	l.w.noteDrained()
}

// widen adds streams until there is one per partition, and begins them. It needs mu.
func (w *Worker) widen(partitions int) {
	for len(w.streams) < partitions && !w.drains && !w.over {
		l := newWorkerStream(w, len(w.streams))
		w.streams = append(w.streams, l)
		go l.run()
	}
}

// welcomed takes in that a stream's stream is up, as its subscription is to be written. It needs mu.
//
// Over REST the first stream alone asks for tasks, of any partition: the server knows best where some are ready.
func (w *Worker) welcomed(l *workerStream) {
	n := w.hub.Partitions()
	if n <= 1 {
		return
	}
	if !l.s.plain {
		w.widen(n)
		l.handOver()
	}
	l.share.up = l.asks()
	w.balance(time.Now())
}

// handOver gives tasks of other partitions, which came over REST, to the streams of those. It needs mu.
func (l *workerStream) handOver() {
	if l.unbound == 0 {
		return
	}
	n := l.w.hub.Partitions()
	for k, t := range l.held {
		p := place.Of(t.Lease.ID, n)
		if !t.unbound || p < 0 || p >= len(l.w.streams) || l.w.streams[p] == l || l.w.streams[p].failed != nil {
			continue
		}
		to := l.w.streams[p]
		if t.stage == settled {
			continue // its answer comes here
		}
		delete(l.held, k)
		l.unbound--
		to.held[k], t.l = t, to
		to.unbound++
		to.renewBy(t.renewAt)
		if to.share.up && !l.w.drains {
			to.restate = true // its window is smaller by this one
			to.s.poke()
		}
	}
	l.settles.keep(func(t *Attempt) bool {
		if t.l != l {
			t.l.settles.pushBack(t)
			t.l.s.poke()
		}
		return t.l == l
	})
}
