package queue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// matrix applies every op to a task in every state, each in a world of its own, and prints what came of it.
func matrix(t *testing.T) string {
	var b strings.Builder
	for _, s := range matrixStates() {
		fmt.Fprintf(&b, "%s\n", s.name)
		for _, o := range matrixOps() {
			w := newWorld(t, Options{})
			s.into(w)
			before := w.stateOf(matrixTask)
			out := w.do(o.op(w))
			fmt.Fprintf(&b, "  %-18s %s\n", o.name, matrixCell(out, before, w.stateOf(matrixTask)))
		}
	}
	return b.String()
}

var matrixTask = idOf("t1")

func matrixCreate() *core.TaskCreate {
	return &core.TaskCreate{ID: matrixTask, Queue: "mail", Payload: []byte("p"), Unique: core.Unique{Key: "k", Until: core.UniqueTerminal}}
}

// matrixAgain is another create of the unique key of the task.
func matrixAgain(replace bool, delay core.Millis) *core.TaskCreate {
	return &core.TaskCreate{
		ID: idOf("t2"), Queue: "mail", Payload: []byte("r"), Delay: delay, Unique: core.Unique{Key: "k", Until: core.UniqueTerminal, Replace: replace},
	}
}

func (w *world) lastToken() core.Token { return core.Token(w.m.meta.token) }

func (w *world) retiredToken() core.Token {
	if w.lastToken() == 0 {
		return 99 // a token that no worker has
	}
	return w.lastToken() - 1
}

// matrixRunning delivers the task twice, so that there is a retired token.
func matrixRunning(w *world) {
	w.do(matrixCreate())
	w.do(claimOp(1, "mail"))
	w.do(&core.TaskRelease{Task: matrixTask, Token: w.lastToken()})
	w.do(claimOp(1, "mail"))
}

type matrixState struct {
	name string
	into func(w *world)
}

func matrixStates() []matrixState {
	// settled is what a settle of the running task leads to.
	settled := func(op func(token core.Token) core.Op) func(w *world) {
		return func(w *world) {
			matrixRunning(w)
			w.do(op(w.lastToken()))
		}
	}
	complete := func(token core.Token) core.Op { return &core.TaskComplete{Task: matrixTask, Token: token} }
	return []matrixState{
		{"unknown", func(*world) {}},
		{"scheduled (delay)", func(w *world) {
			later := matrixCreate()
			later.Delay = 3_600_000
			w.do(later)
		}},
		{"blocked", func(w *world) {
			w.do(&core.TaskCreate{ID: idOf("t0"), Queue: "other"})
			op := matrixCreate()
			op.After = []core.After{{Task: idOf("t0")}}
			w.do(op)
		}},
		{"blocked (held)", func(w *world) {
			w.do(&core.TaskCreate{ID: idOf("t0"), Queue: "other"})
			w.do(&core.TaskCancel{Task: idOf("t0")})
			op := matrixCreate()
			op.After = []core.After{{Task: idOf("t0")}}
			w.do(op)
		}},
		{"ready (new)", func(w *world) { w.do(matrixCreate()) }},
		{"running", matrixRunning},
		{"ready (released)", settled(func(token core.Token) core.Op { return &core.TaskRelease{Task: matrixTask, Token: token} })},
		{"ready (crashed)", func(w *world) {
			matrixRunning(w)
			w.advance(60_000)
		}},
		{"scheduled (retry)", settled(func(token core.Token) core.Op {
			return &core.TaskFail{Task: matrixTask, Token: token, HasRetry: true, RetryAfter: 5000}
		})},
		{"scheduled (snooze)", settled(func(token core.Token) core.Op {
			return &core.TaskSnooze{Task: matrixTask, Token: token, Delay: 5000}
		})},
		{"completed", settled(complete)},
		{"running, cancel asked", func(w *world) {
			matrixRunning(w)
			w.do(&core.TaskCancel{Task: matrixTask})
		}},
		{"cancelled", func(w *world) {
			w.do(matrixCreate())
			w.do(&core.TaskCancel{Task: matrixTask})
		}},
		{"cancelled (confirmed)", func(w *world) {
			matrixRunning(w)
			w.do(&core.TaskCancel{Task: matrixTask})
			w.do(&core.TaskStop{Task: matrixTask, Token: w.lastToken()})
		}},
		{"expired", func(w *world) {
			op := matrixCreate()
			op.ExpiresAt = epoch + 1000
			w.do(op)
			w.advance(2000)
		}},
		{"ready (redriven)", func(w *world) {
			matrixRunning(w)
			w.do(&core.TaskFail{Task: matrixTask, Token: w.lastToken(), Fatal: true})
			w.do(&core.TaskRedrive{Task: matrixTask})
		}},
		{"dead", settled(func(token core.Token) core.Op { return &core.TaskFail{Task: matrixTask, Token: token, Fatal: true} })},
		{"removed", func(w *world) {
			settled(complete)(w)
			w.do(&core.TaskDelete{Task: matrixTask})
		}},
	}
}

type matrixOp struct {
	name string
	op   func(w *world) core.Op
}

func matrixOps() []matrixOp {
	hold := func(token core.Token) []core.TaskHold { return []core.TaskHold{{Task: matrixTask, Token: token}} }
	return []matrixOp{
		{"create same", func(*world) core.Op { return matrixCreate() }},
		{"create other", func(*world) core.Op {
			op := matrixCreate()
			op.Payload = []byte("q")
			return op
		}},
		{"create key again", func(*world) core.Op { return matrixAgain(false, 0) }},
		{"create, replaces", func(*world) core.Op { return matrixAgain(true, 0) }},
		{"... with a delay", func(*world) core.Op { return matrixAgain(true, 7000) }},
		{"complete", func(w *world) core.Op { return &core.TaskComplete{Task: matrixTask, Token: w.lastToken()} }},
		{"complete, retired", func(w *world) core.Op { return &core.TaskComplete{Task: matrixTask, Token: w.retiredToken()} }},
		{"fail", func(w *world) core.Op { return &core.TaskFail{Task: matrixTask, Token: w.lastToken()} }},
		{"fail, fatal", func(w *world) core.Op { return &core.TaskFail{Task: matrixTask, Token: w.lastToken(), Fatal: true} }},
		{"fail, retired", func(w *world) core.Op { return &core.TaskFail{Task: matrixTask, Token: w.retiredToken()} }},
		{"snooze", func(w *world) core.Op {
			return &core.TaskSnooze{Task: matrixTask, Token: w.lastToken(), Delay: 9000}
		}},
		{"snooze, retired", func(w *world) core.Op {
			return &core.TaskSnooze{Task: matrixTask, Token: w.retiredToken(), Delay: 9000}
		}},
		{"release", func(w *world) core.Op { return &core.TaskRelease{Task: matrixTask, Token: w.lastToken()} }},
		{"release, retired", func(w *world) core.Op { return &core.TaskRelease{Task: matrixTask, Token: w.retiredToken()} }},
		{"renew", func(w *world) core.Op { return &core.TaskRenew{Items: hold(w.lastToken()), Extend: 120_000} }},
		{"renew, retired", func(w *world) core.Op { return &core.TaskRenew{Items: hold(w.retiredToken())} }},
		{"delete", func(*world) core.Op { return &core.TaskDelete{Task: matrixTask} }},
		{"run now", func(*world) core.Op { return &core.TaskRunNow{Task: matrixTask} }},
		{"cancel", func(*world) core.Op { return &core.TaskCancel{Task: matrixTask} }},
		{"cancel, force", func(*world) core.Op { return &core.TaskCancel{Task: matrixTask, Force: true} }},
		{"stop", func(w *world) core.Op { return &core.TaskStop{Task: matrixTask, Token: w.lastToken()} }},
		{"stop, retired", func(w *world) core.Op { return &core.TaskStop{Task: matrixTask, Token: w.retiredToken()} }},
		{"redrive", func(*world) core.Op { return &core.TaskRedrive{Task: matrixTask} }},
		{"force release", func(*world) core.Op { return &core.TaskForceRelease{Task: matrixTask} }},
		{"force release, 1", func(*world) core.Op { return &core.TaskForceRelease{Task: matrixTask, Attempt: 1} }},
		{"session lost", func(w *world) core.Op { return w.sessionLost(w.lastToken(), 0) }},
		{"lost, renewed", func(w *world) core.Op { return w.sessionLost(w.lastToken(), -1) }},
		{"lost, retired", func(w *world) core.Op { return w.sessionLost(w.retiredToken(), 0) }},
		{"update priority", func(*world) core.Op { return &core.TaskUpdate{Task: matrixTask, HasPriority: true, Priority: 9} }},
		{"update run_at", func(*world) core.Op { return &core.TaskUpdate{Task: matrixTask, HasRunAt: true, Delay: 7000} }},
		{"update payload", func(*world) core.Op {
			return &core.TaskUpdate{Task: matrixTask, HasPayload: true, Payload: []byte("other")}
		}},
		{"update expiry", func(*world) core.Op {
			return &core.TaskUpdate{Task: matrixTask, HasExpiry: true, ExpiresAt: epoch + 9000}
		}},
		{"report", func(w *world) core.Op { return reportOp(w.lastToken()) }},
		{"report retired", func(w *world) core.Op { return reportOp(w.retiredToken()) }},
		{"run by hand", func(w *world) core.Op {
			w.do(&core.CronSet{Name: "n", IfVersion: -1, Config: core.CronConfig{Schedule: "@daily"}, Template: core.TaskCreate{Queue: "other"}})
			return &core.CronFire{Name: "n", Trigger: matrixTask}
		}},
		{"claim", func(*world) core.Op { return claimOp(1, "mail") }},
	}
}

// sessionLost is that the session is gone which holds the task of the matrix. by is how much earlier the lease ended as it was seen.
func (w *world) sessionLost(token core.Token, by core.Millis) core.Op {
	op := &core.SessionLost{Session: core.SessionID{1}, Leases: []core.SeenLease{{Task: matrixTask, Token: token}}}
	for _, a := range w.m.Held(op.Session) {
		op.Leases[0].Until = a.LeaseUntil.Add(by)
	}
	return op
}

func (w *world) stateOf(id core.TaskID) string {
	task, ok, err := Task(w.tx, testPartition, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if !ok {
		return "gone"
	}
	return strings.TrimSpace(task.State.String() + " " + task.Reason)
}

func matrixCell(o outcome, before, after string) string {
	var b strings.Builder
	switch {
	case o.fact != nil:
		b.WriteString(strings.TrimSpace(refused(o.fact)))
	case o.res.Replayed:
		b.WriteString("replayed, " + o.res.State.String())
	case len(o.res.Renewed) > 0 && o.res.Renewed[0].Lost:
		b.WriteString("lost")
	case len(o.res.Renewed) > 0:
		b.WriteString("until " + since(o.res.Renewed[0].Until))
	case o.res.Existed:
		b.WriteString("replaced")
	default:
		b.WriteString("done")
	}
	if before != after {
		fmt.Fprintf(&b, ": %s -> %s", before, after)
	}
	return b.String()
}
