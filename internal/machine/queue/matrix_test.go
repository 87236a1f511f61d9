package queue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// matrix applies every op to a task in every state, each in a world of its own, and prints what came of it.
func matrix(t *testing.T) string {
	id := idOf("t1")
	create := &core.TaskCreate{ID: id, Queue: "mail", Payload: []byte("p")}
	last := func(w *world) core.Token { return core.Token(w.m.meta.token) }
	claim := func(w *world) {
		w.do(&core.Grant{Worker: "w", N: 1, Queues: []core.GrantQueue{{Name: "mail"}}, Session: core.SessionID{1}})
	}
	// In all states but the first three the task has been delivered twice, so that there is a retired token.
	running := func(w *world) {
		w.do(create)
		claim(w)
		w.do(&core.TaskRelease{Task: id, Token: last(w)})
		claim(w)
	}
	states := []struct {
		name string
		into func(w *world)
	}{
		{"unknown", func(*world) {}},
		{"scheduled (delay)", func(w *world) {
			later := *create
			later.Delay = 3_600_000
			w.do(&later)
		}},
		{"ready (new)", func(w *world) { w.do(create) }},
		{"running", running},
		{"ready (released)", func(w *world) { running(w); w.do(&core.TaskRelease{Task: id, Token: last(w)}) }},
		{"ready (crashed)", func(w *world) { running(w); w.advance(60_000) }},
		{"scheduled (retry)", func(w *world) {
			running(w)
			w.do(&core.TaskFail{Task: id, Token: last(w), HasRetry: true, RetryAfter: 5000})
		}},
		{"scheduled (snooze)", func(w *world) { running(w); w.do(&core.TaskSnooze{Task: id, Token: last(w), Delay: 5000}) }},
		{"completed", func(w *world) { running(w); w.do(&core.TaskComplete{Task: id, Token: last(w)}) }},
		{"dead", func(w *world) { running(w); w.do(&core.TaskFail{Task: id, Token: last(w), Fatal: true}) }},
		{"removed", func(w *world) {
			running(w)
			w.do(&core.TaskComplete{Task: id, Token: last(w)})
			w.do(&core.TaskDelete{Task: id})
		}},
	}
	retired := func(w *world) core.Token {
		if last(w) == 0 {
			return 99 // nobody's
		}
		return last(w) - 1
	}
	ops := []struct {
		name string
		op   func(w *world) core.Op
	}{
		{"create same", func(*world) core.Op { return create }},
		{"create other", func(*world) core.Op { return &core.TaskCreate{ID: id, Queue: "mail", Payload: []byte("q")} }},
		{"complete", func(w *world) core.Op { return &core.TaskComplete{Task: id, Token: last(w)} }},
		{"complete, retired", func(w *world) core.Op { return &core.TaskComplete{Task: id, Token: retired(w)} }},
		{"fail", func(w *world) core.Op { return &core.TaskFail{Task: id, Token: last(w)} }},
		{"fail, fatal", func(w *world) core.Op { return &core.TaskFail{Task: id, Token: last(w), Fatal: true} }},
		{"fail, retired", func(w *world) core.Op { return &core.TaskFail{Task: id, Token: retired(w)} }},
		{"snooze", func(w *world) core.Op { return &core.TaskSnooze{Task: id, Token: last(w), Delay: 9000} }},
		{"snooze, retired", func(w *world) core.Op { return &core.TaskSnooze{Task: id, Token: retired(w), Delay: 9000} }},
		{"release", func(w *world) core.Op { return &core.TaskRelease{Task: id, Token: last(w)} }},
		{"release, retired", func(w *world) core.Op { return &core.TaskRelease{Task: id, Token: retired(w)} }},
		{"renew", func(w *world) core.Op {
			return &core.TaskRenew{Items: []core.TaskHold{{Task: id, Token: last(w)}}, Extend: 120_000}
		}},
		{"renew, retired", func(w *world) core.Op { return &core.TaskRenew{Items: []core.TaskHold{{Task: id, Token: retired(w)}}} }},
		{"delete", func(*world) core.Op { return &core.TaskDelete{Task: id} }},
		{"run now", func(*world) core.Op { return &core.TaskRunNow{Task: id} }},
		{"claim", func(*world) core.Op { return &core.Grant{Worker: "w", N: 1, Queues: []core.GrantQueue{{Name: "mail"}}} }},
	}
	var b strings.Builder
	for _, s := range states {
		fmt.Fprintf(&b, "%s\n", s.name)
		for _, o := range ops {
			w := newWorld(t, Options{})
			s.into(w)
			before := w.stateOf(id)
			out := w.do(o.op(w))
			fmt.Fprintf(&b, "  %-18s %s\n", o.name, matrixCell(out, before, w.stateOf(id)))
		}
	}
	return b.String()
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
	default:
		b.WriteString("done")
	}
	if before != after {
		fmt.Fprintf(&b, ": %s -> %s", before, after)
	}
	return b.String()
}
