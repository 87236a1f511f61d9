package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Operators and programs act on tasks and queues as these run: they cancel, redrive, edit and release tasks, pause queues, start bulk jobs (bulk.go), set crons (cron.go) and limiters (limiter.go), and
// open batches (batch.go). A worker learns of a cancel by the answer of a renewal.

// someAct draws an act; nil if there is no task to act on.
func (w *world) someAct() (place, core.Op) {
	l := w.ledger
	if len(l.recent) == 0 {
		return place{}, nil
	}
	if w.chance(120) {
		return w.someBulk()
	}
	if w.chance(150) {
		return w.someCron()
	}
	if w.chance(80) {
		return w.someBatch()
	}
	if w.chance(100) {
		return w.someLimiter()
	}
	n := w.rng.IntN(12)
	if n == 0 {
		return l.somePlace(), w.somePause()
	}
	id := l.recent[w.rng.IntN(len(l.recent))]
	if n < 7 && w.chance(700) {
		id = w.someHeld(id)
	}
	if n < 9 && n > 6 && len(l.stopped) > 0 && w.chance(800) {
		id = l.stopped[w.rng.IntN(len(l.stopped))]
	}
	at := place{l.space, id.Partition()}
	switch {
	case n < 5:
		return at, &core.TaskCancel{Task: id, Force: w.chance(250), Reason: "drawn"}
	case n < 7:
		return at, &core.TaskForceRelease{Task: id, Attempt: uint32(w.rng.IntN(3))}
	case n < 9:
		l.redriven[id] = true
		return at, &core.TaskRedrive{Task: id}
	}
	return at, w.someEdit(id)
}

// someHeld returns a task that some worker holds, or byDefault.
func (w *world) someHeld(byDefault core.TaskID) core.TaskID {
	k := w.ledger.workers[w.rng.IntN(len(w.ledger.workers))]
	if len(k.held) == 0 {
		return byDefault
	}
	return slices.SortedFunc(maps.Keys(k.held), compareIDs)[w.rng.IntN(len(k.held))]
}

// somePause pauses the queue of a partition, mostly until soon. Who sends it resumes the queue after it. Where days pass, the server
// may forget that it paused the queue and do it once more after that, so it always says until when.
func (w *world) somePause() *core.QueuePause {
	op := &core.QueuePause{Queue: queueName, Reason: "drawn"}
	if w.plan.Days || w.chance(700) {
		op.Until = w.shardTime().Add(core.Millis(w.rng.IntN(3000)))
	}
	return op
}

// resume lets a queue go on that was paused, however that call ended.
func (c *client) resume(at place, op *core.QueuePause, then func()) {
	w := c.w
	w.after(w.between(0, time.Second), "resume", 0, func() {
		on := &core.QueuePause{Queue: op.Queue, Resume: true}
		c.ask(at, core.Commit{Principal: "writer", Ops: []core.Op{on}}, func(core.Result) { then() })
	})
}

func (w *world) someEdit(id core.TaskID) *core.TaskUpdate {
	op := &core.TaskUpdate{Task: id}
	switch w.rng.IntN(4) {
	case 0:
		op.HasPriority, op.Priority = true, uint8(w.rng.IntN(3))
	case 1:
		op.HasRunAt, op.Delay = true, core.Millis(w.rng.IntN(2000))
	case 2:
		op.HasPayload, op.Payload = true, []byte("edited")
	default:
		op.HasLabels, op.Labels = true, []core.Label{editLabel}
	}
	if w.chance(100) {
		op.HasExpiry, op.ExpiresAt = true, w.shardTime().Add(core.Millis(w.rng.IntN(4000)))
	}
	return op
}

// someLimits draws bounds of a queue. They leave room for most creates.
func (w *world) someLimits() core.QueueLimits {
	l := core.QueueLimits{CancelGrace: core.Millis(w.rng.IntN(4) * 500), CeilingPriority: 9}
	if w.chance(200) {
		l.CancelGrace = -1
	}
	if w.chance(150) {
		l.DefaultTTL = core.Millis(1000 + w.rng.IntN(9000))
	}
	if w.chance(150) {
		l.MaxTasks = int64(10 + w.rng.IntN(40))
	}
	return l
}

// simLabel is a label that creates give, and editLabel one that edits give instead.
var (
	simLabel  = core.Label{Name: "of", Value: "sim"}
	editLabel = core.Label{Name: "edited", Value: "yes"}
)

// dress gives a task labels, an expiry or limiters.
func (w *world) dress(op *core.TaskCreate) {
	if w.chance(100) {
		op.ExpiresAt = w.shardTime().Add(core.Millis(w.rng.IntN(5000)))
	}
	if w.chance(200) {
		op.Labels = []core.Label{simLabel}
	}
	w.limit(op)
}

// full reports whether a create was refused as its queue has no room.
func (w *world) full(r core.Result) bool {
	if !w.plan.Operate || r.Refusal == nil {
		return false
	}
	f, ok := r.Refusal.Fact.(core.Exhausted)
	return ok && f.Limit == "max_tasks"
}

// acted records what a client was told of an op that it sent.
func (l *ledger) acted(op core.Op, got core.Result) {
	if got.Refusal != nil || len(got.Ops) == 0 {
		return
	}
	var id core.TaskID
	switch op := op.(type) {
	case *core.TaskCancel:
		id = op.Task
	case *core.TaskStop:
		id = op.Task
	case *core.TaskForceRelease, *core.TaskRedrive, *core.TaskUpdate, *core.QueuePause, *core.TaskReport, *core.BulkStart, *core.BulkStop, *core.CronSet, *core.CronDelete, *core.LimiterSet, *core.LimiterDelete:
	default:
		return
	}
	if !got.Replayed && !got.Ops[0].Replayed {
		l.acts[op.Kind()]++
	}
	if !id.IsZero() && got.Ops[0].State == core.Cancelled && !l.cancelled[id] {
		l.cancelled[id] = true
		l.stopped = append(l.stopped, id)
	}
}

// report tells of a job that goes on. The attempt after it must be given the checkpoint.
func (k *worker) report(j *job) {
	if j.over || k.held[j.task.Task] != j {
		return
	}
	j.reports++
	op := &core.TaskReport{
		Task: j.task.Task, Token: j.task.Token, Number: j.reports, HasProgress: true, Percent: uint8(k.w.rng.IntN(101)),
		Lines: []string{"drawn"}, HasCheckpoint: true, Checkpoint: []byte(j.value),
	}
	(&client{w: k.w, host: k.host}).ask(k.at, core.Commit{Principal: k.name, Ops: []core.Op{op}}, func(r core.Result) {
		k.w.ledger.acted(op, r)
	})
}

// renew renews the lease of a job that goes on, and stops the job if its task is to be cancelled.
func (k *worker) renew(j *job) {
	hold := core.TaskHold{Task: j.task.Task, Token: j.task.Token}
	c := core.Commit{Principal: k.name, Ops: []core.Op{&core.TaskRenew{Items: []core.TaskHold{hold}}}}
	(&client{w: k.w, host: k.host}).ask(k.at, c, func(r core.Result) {
		if r.Refusal != nil || len(r.Ops) == 0 || !r.Ops[0].Renewed[0].Cancel || j.over || j.unsure || j.sending || k.held[hold.Task] != j {
			return
		}
		j.stopped, j.unsure = true, true
		j.settle = func() core.Commit {
			return core.Commit{Principal: k.name, Ops: []core.Op{&core.TaskStop{Task: hold.Task, Token: hold.Token}}}
		}
		if k.stream != nil {
			k.send(j)
		}
	})
}
