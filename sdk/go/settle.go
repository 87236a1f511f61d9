package millrace

import (
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// hello names the worker and every lease it holds, so that the server resumes them; those whose settle has no answer yet
// are among them.
func (w *Worker) hello(h *millracev1.Hello) {
	kinds := make([]string, 0, len(w.handlers))
	for k := range w.handlers {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	host, _ := os.Hostname() // only a name for people
	h.Worker = &millracev1.WorkerInfo{Id: w.opts.name, Kinds: kinds, Host: cut(host, maxName)}
	for _, t := range w.held {
		if w.s.plain || !t.unbound {
			h.Held = append(h.Held, t.hold())
		}
	}
}

func (w *Worker) moved() {}

// window is how many tasks the stream may have given to this worker at once.
func (w *Worker) window() uint32 {
	if w.s.plain {
		return uint32(w.opts.slots)
	}
	return uint32(max(w.opts.slots-w.unbound, 0))
}

// welcomed resumes the work.
func (w *Worker) welcomed(m *millracev1.Welcome) {
	for _, l := range m.Lost {
		w.lose(taskKey{l.Id, l.Token}, "lost with the stream")
	}
	for w.control.len() > 0 {
		w.control.popFront() // of the last stream
	}
	for w.renewals.len() > 0 {
		w.renewals.popFront()
	}
	w.subscribe, w.restate = !w.drains, false
	w.renewAll()
}

func (w *Worker) idle() bool { return w.settles.len() == 0 && w.control.len() == 0 && !w.restate }

func (w *Worker) next(seq uint64) (*millracev1.ClientFrame, outgoing) {
	if w.subscribe {
		w.subscribe = false
		return w.subscription(), nil
	}
	if w.restate {
		w.restate = false
		slots := &millracev1.Slots{Sub: 1, Slots: w.window()}
		return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Slots{Slots: slots}}, nil
	}
	if w.control.len() > 0 {
		return w.control.popFront(), nil
	}
	if w.renewals.len() > 0 && w.s.fits(w.renewals.front().size()) {
		r := w.renewals.popFront()
		return r.message(seq), r
	}
	return w.nextSettles(seq)
}

// subscription asks for tasks. Slots are a window: the server counts what this session holds against it.
func (w *Worker) subscription() *millracev1.ClientFrame {
	sub := &millracev1.Subscribe{Sub: 1, Slots: w.window(), Batch: uint32(w.opts.batch)}
	for _, q := range w.queues {
		sub.Queues = append(sub.Queues, &millracev1.QueueWeight{Name: q})
	}
	if w.opts.lease > 0 {
		sub.Lease = durationpb.New(w.opts.lease)
	}
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Subscribe{Subscribe: sub}}
}

// settleFrame is the outgoing of gathered settles.
type settleFrame struct {
	w     *Worker
	tasks []*Task
	n     window
}

// nextSettles gathers what waits, up to the size of a frame.
func (w *Worker) nextSettles(seq uint64) (*millracev1.ClientFrame, outgoing) {
	var out *settleFrame
	var items []*millracev1.SettleItem
	now := time.Time{}
	for w.settles.len() > 0 {
		t := w.settles.front()
		n := window{items: 1, bytes: t.bytes}
		if out != nil {
			if t.solo || out.tasks[0].solo || len(items) >= frameItems || out.n.bytes+t.bytes > frameAim {
				break
			}
			n = window{items: out.n.items + 1, bytes: out.n.bytes + t.bytes}
		}
		if !w.s.fits(n) {
			break
		}
		w.settles.popFront()
		if out == nil {
			size := min(w.settles.len()+1, frameItems)
			out, items, now = &settleFrame{w: w, tasks: make([]*Task, 0, size)}, make([]*millracev1.SettleItem, 0, size), time.Now()
		}
		if t.first.IsZero() {
			t.first = now
		}
		t.stage = settled
		out.tasks, out.n, items = append(out.tasks, t), n, append(items, &t.item)
	}
	if out == nil {
		return nil, nil
	}
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Settle{
		Settle: &millracev1.SettleFrame{Seq: seq, Items: items},
	}}, out
}

func (f *settleFrame) size() window { return f.n }

func (f *settleFrame) lost() {
	for _, t := range slices.Backward(f.tasks) {
		if f.w.held[t.key()] == t {
			t.unsure, t.stage = true, settling
			f.w.settles.pushFront(t)
		}
	}
}

func (f *settleFrame) acked(a *millracev1.Ack) {
	w := f.w
	if e := fromWire(a.Error); e != nil && len(f.tasks) > 1 && (e.Code == CodeInvalidArgument || e.Code == CodeTooLarge) {
		// One bad item can have been the reason: the others are tried without it.
		w.s.mu.Lock()
		for _, t := range slices.Backward(f.tasks) {
			if w.held[t.key()] == t {
				t.solo, t.stage = true, settling
				w.settles.pushFront(t)
			}
		}
		w.s.mu.Unlock()
		w.s.poke()
		return
	}
	for i, t := range f.tasks {
		switch {
		case a.Error != nil:
			w.answered(t, a.At, nil, fromWire(a.Error))
		case i >= len(a.Settled):
			w.answered(t, a.At, nil, &Error{Code: CodeInternal, Message: "the ack lacks results", Op: OpNone, Outcome: Unknown})
		default:
			w.answered(t, a.At, a.Settled[i], fromWire(a.Settled[i].Error))
		}
	}
}

// answered takes the answer to one settle.
func (w *Worker) answered(t *Task, at *millracev1.At, r *millracev1.SettleResult, e *Error) {
	if e == nil {
		w.done(t, at, r)
		return
	}
	told := Settlement{Task: t, Op: t.op, Err: e}
	defer func() {
		if told.Op != "" {
			w.tell(told)
		}
	}()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.held[t.key()] != t {
		told.Op = ""
		return // given up meanwhile
	}
	line := w.line(t, t.op)
	switch {
	case e.Code == CodeLeaseLost || e.Code == CodeNotFound || e.Code == CodeWrongState:
		w.c.opts.logger.Info("the lease was lost before the attempt was settled", "task", t.ID, "attempt", t.Attempt, "settle", t.op, "reason", e.Reason)
		t.cancel(e)
		w.drop(t)
	case e.Op == OpNone && e.patience() > 0 && time.Since(t.first) < repeatFor:
		t.unsure = t.unsure || e.Outcome == Unknown
		wait := max(backoff(t.tries), e.RetryAfter)
		t.tries++
		t.stage, told.Op = settling, ""
		time.AfterFunc(wait, func() { w.again(t) })
		return
	case t.op == "complete" && t.onRefused != nil && e.Outcome == Refused:
		t.refusal, t.stage, t.first, t.unsure = e, waiting, time.Time{}, false
		w.start(t)
	case t.op == "complete" || t.op == "snooze":
		w.c.opts.logger.Warn("the attempt is failed because it could not be settled", "task", t.ID, "attempt", t.Attempt, "settle", t.op, "error", e)
		w.c.ledger.write(line, at, e)
		t.failed(e)
		t.invoke, t.stage, t.solo, t.first, t.unsure = w.c.ledger.now(), settling, true, time.Time{}, false
		w.settles.pushBack(t)
		w.s.poke()
		return
	default:
		w.c.opts.logger.Error("the attempt could not be settled", "task", t.ID, "attempt", t.Attempt, "settle", t.op, "error", e)
		t.cancel(e)
		w.drop(t)
	}
	w.c.ledger.write(line, at, e)
}

// done ends a settle that was applied.
func (w *Worker) done(t *Task, at *millracev1.At, r *millracev1.SettleResult) {
	line := w.line(t, t.op)
	if r.FailedInstead {
		line.Op = "fail"
		w.c.opts.logger.Warn("the effects were refused and the attempt failed", "task", t.ID, "attempt", t.Attempt)
	}
	line.Replayed = r.Replayed
	w.c.ledger.write(line, at, nil)
	w.tell(Settlement{Task: t, Op: line.Op, Replayed: r.Replayed})
	t.cancel(nil)
	w.s.mu.Lock()
	if w.held[t.key()] == t {
		w.drop(t)
	}
	w.s.mu.Unlock()
}

// again queues a settle that was answered "later".
func (w *Worker) again(t *Task) {
	w.s.mu.Lock()
	if w.held[t.key()] == t && t.stage == settling && !w.queued(t) {
		w.settles.pushBack(t)
	}
	w.s.mu.Unlock()
	w.s.poke()
}

// queued reports whether t's settle waits already.
func (w *Worker) queued(t *Task) bool {
	for i := range w.settles.len() {
		if w.settles.ring[w.settles.at(i)] == t {
			return true
		}
	}
	return false
}

func (f *settleFrame) expire(t time.Time) time.Time {
	return f.w.expireTasks(slices.Values(f.tasks), t)
}

func (w *Worker) expire(t time.Time) time.Time {
	var tasks []*Task
	for w.settles.len() > 0 {
		tasks = append(tasks, w.settles.popFront())
	}
	oldest := w.expireTasks(slices.Values(tasks), t)
	for _, task := range tasks {
		if w.held[task.key()] == task {
			w.settles.pushBack(task)
		}
	}
	return oldest
}

// refuse ends the settles that wait, when the stream ends for good.
func (w *Worker) refuse(err *Error) {
	for w.settles.len() > 0 {
		t := w.settles.popFront()
		e := *err
		e.Outcome = Refused
		if t.unsure {
			e.Outcome = Unknown
		}
		w.c.ledger.write(w.line(t, t.op), nil, &e)
	}
}
