package millrace

import (
	"cmp"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/session"
)

// runner is what the engine calls for a worker's tasks: it makes them, and runs the user's handlers.
type runner struct{ w *Worker }

// Begin makes the task of an assignment.
func (r runner) Begin(m *millracev1.Assignment) *session.Attempt { return newTask(r.w, m).engine() }

// Double makes a task that stands for one whose handler still runs: of it OnSettled hears that it was given back.
func (r runner) Double(a *session.Attempt) *session.Attempt {
	t := taskOf(a)
	return (&Task{ID: t.ID, Kind: t.Kind, Queue: t.Queue, Attempt: t.Attempt, w: r.w}).engine()
}

// taskOf returns the task of an attempt that runner made.
func taskOf(a *session.Attempt) *Task {
	t, _ := a.Owner.(*Task) // engine put it there
	return t
}

// Run calls the handler, or what it left for a refusal of its effects.
func (r runner) Run(a *session.Attempt, refusal *fault.Fault) {
	t := taskOf(a)
	if refusal != nil {
		result, contentType := a.Result()
		_ = t.settle(result, contentType, invokeRefused(t, errorOf(refusal))) // the settle tells the error
		return
	}
	h := r.w.handlers[a.Kind]
	if h == nil {
		h = r.w.other
	}
	if h == nil {
		if _, told := r.w.unknown.LoadOrStore(a.Kind, true); !told {
			r.w.c.opts.logger.Warn("tasks of a kind without a handler are snoozed", "kind", a.Kind, "queue", a.Queue, "task", a.Lease.ID, "for", unknownSnooze)
		}
		a.Snooze(unknownSnooze)
		return
	}
	result, contentType, err := invoke(h, t)
	_ = t.settle(result, contentType, err) // as above
}

// RunBatch calls the handler of a kind, and settles each task as its error says.
func (r runner) RunBatch(kind string, attempts []*session.Attempt) {
	tasks := make([]*Task, len(attempts))
	for i, a := range attempts {
		tasks[i] = taskOf(a)
	}
	outcome := r.w.batches[kind].invoke(r.w.engine.Base(), tasks)
	for i, a := range attempts {
		t := taskOf(a) // the handler may have changed its slice
		result, failed := outcome(i)
		_ = t.settle(result, cmp.Or(t.ResultType, typeBytes), failed) // as above
	}
}

// Settled passes the answer to a settle on.
func (r runner) Settled(a *session.Attempt, op string, replayed bool, f *fault.Fault) {
	if r.w.opts.settled != nil {
		r.w.opts.settled(Settlement{Task: taskOf(a), Op: op, Replayed: replayed, Err: errorOf(f)})
	}
}
