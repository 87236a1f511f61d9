package millrace

import "time"

// run serves the lane to its end.
func (l *lane) run() {
	err := l.s.run(true)
	select {
	case l.w.failed <- err:
	default: // another lane has ended before
	}
}

// widen adds the lanes that a namespace of so many partitions has, and begins them. It needs mu.
func (w *Worker) widen(partitions int) {
	for len(w.lanes) < partitions && !w.drains && !w.over {
		l := newLane(w, len(w.lanes))
		w.lanes = append(w.lanes, l)
		go l.run()
	}
}

// welcomed takes in that a lane's stream is up, as its subscription is to be written. It needs mu.
//
// Over REST the first lane alone asks for tasks, of any partition: the server knows best where some are ready.
func (w *Worker) welcomed(l *lane) {
	n := w.c.partitions()
	if n <= 1 {
		return
	}
	if !l.s.plain {
		w.widen(n)
		if l == w.lanes[0] {
			l.handOver()
		}
	}
	l.share.up = !l.s.plain || l == w.lanes[0]
	w.balance(time.Now())
}

// handOver gives tasks of other partitions, which came over REST, to the lanes of those. It needs mu.
func (l *lane) handOver() {
	n := l.w.c.partitions()
	for k, t := range l.held {
		p := partitionOf(t.ID, n)
		if !t.unbound || p <= 0 || p >= len(l.w.lanes) {
			continue
		}
		to := l.w.lanes[p]
		if t.stage == settled {
			continue // its answer comes here
		}
		delete(l.held, k)
		l.unbound--
		to.held[k], t.l = t, to
		to.unbound++
		to.renewBy(t.renewAt)
	}
	l.settles.keep(func(t *Task) bool {
		if t.l != l {
			t.l.settles.pushBack(t)
			t.l.s.poke()
		}
		return t.l == l
	})
}

// reauth tells the open streams of a new token.
func (w *Worker) reauth(token string) {
	w.mu.Lock()
	lanes := w.lanes
	w.mu.Unlock()
	for _, l := range lanes {
		l.s.reauth(token)
	}
}
