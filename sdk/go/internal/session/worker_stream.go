package session

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// workerStream is a worker's way to one partition, the role of a stream: the leases of its tasks, their renewal and their end.
type workerStream struct {
	// w is the worker, whose mu guards all of this; s is the session whose role this is.
	w *Worker
	s *session

	// held are the attempts given to this worker, until their settle is answered or their lease is lost.
	held map[wire.Lease]*Attempt
	// away counts those of held whose settle has left: they take no slot.
	away int
	// unbound counts those of held that no session's stream knows of: they were claimed over REST.
	unbound int
	// outlived counts attempts that are lost while their handlers run on and keep their slots.
	outlived int

	// What waits to be written: settles, frames that need no ack, and renewals.
	settles  deque[*Attempt]
	control  deque[*millracev1.ClientFrame]
	renewals deque[*renewFrame]
	// subscribe makes the next frame the subscription: the stream has just been let in.
	subscribe bool
	// restate makes a frame tell the server the window, and that this worker lives: a server keeps the slot of a lease that it ended
	// until it hears from the worker.
	restate bool

	// share is what the division of slots knows of this stream.
	share share

	// failed is what ended the stream for good.
	failed error
	// renewTimer fires at renewNext, when the first of the leases is due; nil before the first task.
	renewTimer *time.Timer
	renewNext  time.Time
}

// newWorkerStream makes the stream of a partition; run opens it.
func newWorkerStream(w *Worker, partition int) *workerStream {
	l := &workerStream{w: w, s: newSession(w.hub, &w.mu, partition), held: map[wire.Lease]*Attempt{}}
	l.s.role = l
	return l
}

// hello names the worker and every lease it holds, so that the server resumes them; those whose settle has no answer yet
// are among them.
func (l *workerStream) hello(h *millracev1.Hello) {
	h.Worker = &millracev1.WorkerInfo{Id: l.w.opts.Name, Kinds: l.w.work.Kinds, Host: wire.Cut(HostName(), MaxName)}
	for _, t := range l.held {
		if l.s.plain || !t.unbound {
			h.Held = append(h.Held, t.hold())
		}
	}
}

// moved has nothing to do: a settle is repeatable under its token, however it travels.
func (l *workerStream) moved() {}

// parted notes that the slots of this stream are not offered to a server.
func (l *workerStream) parted() { l.share.up = false }

// window is how many tasks the stream may have given to this worker at once.
func (l *workerStream) window() uint32 {
	n := l.share.slots - l.outlived
	if !l.s.plain {
		n -= l.unbound
	}
	return uint32(max(n, 0))
}

// asks reports whether the stream is to ask for tasks: over REST the first one alone does. It needs mu.
func (l *workerStream) asks() bool { return !l.s.plain || l == l.w.streams[0] }

// welcomed resumes the work.
func (l *workerStream) welcomed(m *millracev1.Welcome) {
	for _, h := range m.Lost {
		l.lose(wire.Lease{ID: h.Id, Token: h.Token}, "lost with the stream")
	}
	for l.control.len() > 0 {
		l.control.popFront() // of the last stream
	}
	for l.renewals.len() > 0 {
		l.renewals.popFront()
	}
	l.w.welcomed(l)
	l.subscribe, l.restate = !l.w.drains && l.asks(), false
	l.renewAll()
}

// idle reports whether nothing waits that must be written before the end. Renewals need not be.
func (l *workerStream) idle() bool { return l.settles.len() == 0 && l.control.len() == 0 && !l.restate }

// next makes the next frame: first what tells the server how many tasks to send, then renewals, which are urgent, then settles.
func (l *workerStream) next(seq uint64) (*millracev1.ClientFrame, outgoing) {
	if l.subscribe {
		l.subscribe, l.restate = false, false
		return l.subscription(), nil
	}
	if l.restate {
		l.restate = false
		slots := &millracev1.Slots{Sub: 1, Slots: l.window()}
		return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Slots{Slots: slots}}, nil
	}
	if l.control.len() > 0 {
		return l.control.popFront(), nil
	}
	if l.renewals.len() > 0 && l.s.fits(l.renewals.front().size()) {
		r := l.renewals.popFront()
		return r.message(seq), r
	}
	return l.nextSettles(seq)
}

// subscription asks for tasks. Slots are a window: the server counts what this session holds against it.
func (l *workerStream) subscription() *millracev1.ClientFrame {
	sub := &millracev1.Subscribe{Sub: 1, Slots: l.window(), Batch: uint32(l.w.opts.Batch)}
	for _, q := range l.w.work.Queues {
		sub.Queues = append(sub.Queues, &millracev1.QueueWeight{Name: q, Weight: l.w.work.Weights[q]})
	}
	sub.Strict = l.w.work.InOrder
	if l.w.opts.Lease > 0 {
		sub.Lease = durationpb.New(l.w.opts.Lease)
	}
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Subscribe{Subscribe: sub}}
}

// receive takes what the server pushes to a worker.
func (l *workerStream) receive(f *millracev1.ServerFrame) {
	switch x := f.Frame.(type) {
	case *millracev1.ServerFrame_Assign:
		l.assigned(x.Assign.Tasks)
	case *millracev1.ServerFrame_LeaseLost:
		l.s.mu.Lock()
		l.lose(wire.Lease{ID: x.LeaseLost.Id, Token: x.LeaseLost.Token}, x.LeaseLost.Reason)
		l.restate = !l.w.drains
		l.s.mu.Unlock()
		l.s.poke()
	case *millracev1.ServerFrame_Available:
		l.s.mu.Lock()
		l.w.available(l, time.Now())
		l.s.mu.Unlock()
	case *millracev1.ServerFrame_Cancel:
		l.s.mu.Lock()
		if t := l.held[wire.Lease{ID: x.Cancel.Id, Token: x.Cancel.Token}]; t != nil {
			t.cancelFor(x.Cancel.Reason)
		}
		l.s.mu.Unlock()
	}
}

// cancelFor takes in that the task's cancel was asked for, which may be told several times: by a frame, by each renewal, and again on
// each new stream. The lease goes on, and the handler is told to stop. It needs mu.
func (a *Attempt) cancelFor(reason string) {
	if a.cancelled {
		return
	}
	a.cancelled = true
	a.cancel(&Cancelled{Reason: reason})
}

// assigned takes tasks over. One that is held already came twice; one that comes while the worker drains goes back, and
// one that comes when it is over is not taken: its lease ends.
func (l *workerStream) assigned(tasks []*millracev1.Assignment) {
	w := l.w
	now := time.Now()
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return
	}
	renew, batched := time.Time{}, 0
	for _, a := range tasks {
		if _, ok := l.held[wire.Lease{ID: a.Id, Token: a.Token}]; ok {
			continue
		}
		t := l.begin(a, now)
		l.held[t.Lease] = t
		if l.s.plain {
			t.unbound = true
			l.unbound++
		}
		renew = retry.Earlier(renew, t.renewAt)
		if w.drains {
			w.release(t)
			continue
		}
		if w.work.Batches != nil {
			w.ready.pushBack(t)
			batched++
			continue
		}
		w.start(t)
	}
	w.startBatch(batched)
	l.renewBy(renew)
	switch {
	case len(w.streams) > 1:
		w.filled(l, now)
	case l.outlived > 0:
		w.noteSurplus() // they may have been given before the server heard of the smaller window
	}
	drains := w.drains
	w.mu.Unlock()
	if drains {
		l.s.poke()
	}
}

// lose ends a lease that the server says is gone. A settle that is on its way keeps its answer. It needs mu.
func (l *workerStream) lose(k wire.Lease, reason string) {
	t := l.held[k]
	if t == nil || t.stage >= settling {
		return
	}
	t.lost = true
	if t.stage == running {
		l.w.outlive(t)
	}
	t.cancel(l.w.hub.Error(&fault.Fault{Code: wire.LeaseLost, Reason: reason, Message: "task " + t.Lease.ID, Op: fault.OpNone}))
	l.drop(t)
}

// outlive takes in that t's handler runs on though its lease is lost. It needs mu.
func (w *Worker) outlive(t *Attempt) {
	if w.opts.Waits {
		t.outlived = true
		t.l.outlived++
		return
	}
	w.beyond++ // the slot is free for the server: the handler must not hold it
	if w.ready.len() > 0 {
		w.spread()
	}
}

// returned takes in that the handler of a task that is no longer this worker's has returned. It needs mu.
func (w *Worker) returned(t *Attempt) {
	if !t.outlived {
		w.beyond--
		return
	}
	l := t.l
	l.outlived--
	l.restate = !w.drains // its slot is free
	l.s.poke()
	w.freed()
}

// drop forgets a task. It needs mu.
func (l *workerStream) drop(t *Attempt) {
	delete(l.held, t.Lease)
	if t.stage == settled {
		t.to(settling)
	}
	if t.unbound {
		l.unbound--
		if !l.s.plain && !l.w.drains {
			l.restate = true // its slot is free for the stream
			l.s.poke()
		}
	}
	l.w.freed()
	l.w.noteDrained()
}
