package bench

import (
	"context"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// shelf is a server that has some completed tasks.
type shelf struct {
	tasks map[string]millrace.TaskInfo
	stats millrace.QueueStats
}

func (s shelf) Task(_ context.Context, id string) (*millrace.TaskInfo, error) {
	t, ok := s.tasks[id]
	if !ok {
		return nil, &millrace.Error{Code: millrace.CodeNotFound}
	}
	return &t, nil
}

func (s shelf) Stats(context.Context, string) (millrace.QueueStats, error) { return s.stats, nil }

// kept is a server that has what the ledger of audited has.
func kept() shelf {
	s := shelf{tasks: map[string]millrace.TaskInfo{}, stats: millrace.QueueStats{Completed: 2, Created: 2, CompletedTotal: 2}}
	for _, id := range []string{"a", "b"} {
		s.tasks[id] = millrace.TaskInfo{ID: id, Queue: "q", State: millrace.Completed, Attempt: 1, Payload: []byte("p"), Result: []byte("r")}
	}
	return s
}

// audited audits a first server that is as it should be, and another one.
func audited(t *testing.T, second shelf, change func(a *auditor)) *Audit {
	t.Helper()
	l := newLedger(true)
	for _, id := range []string{"a", "b"} {
		l.Created(id)
		l.Completed(id, 1, false)
	}
	a := &auditor{
		sums: l.sums(), sample: l.samples(), first: kept(), queue: "q", payload: []byte("p"), result: []byte("r"), works: true, drained: true,
		replicas: []replica{{"server-2", second}},
	}
	if change != nil {
		change(a)
	}
	out, err := a.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestReplicasThatHoldTheSamePassTheAudit(t *testing.T) {
	if out := audited(t, kept(), nil); !out.OK || out.ReadBack != 2 {
		t.Errorf("audit %+v", out)
	}
}

func TestAReplicaThatDiffersFailsTheAudit(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *shelf)
		want  string
	}{
		"a task is missing": {func(s *shelf) { delete(s.tasks, "b") }, "server-2 has task b as not there, the first server as completed, attempt 1"},
		"another payload": {func(s *shelf) {
			b := s.tasks["b"]
			b.Payload = []byte("x")
			s.tasks["b"] = b
		}, "completed with another payload"},
		"another attempt": {func(s *shelf) {
			b := s.tasks["b"]
			b.Attempt = 2
			s.tasks["b"] = b
		}, "completed, attempt 2"},
		"another count": {func(s *shelf) { s.stats.Completed, s.stats.Ready = 1, 1 }, "server-2 counts completed as 1, the first server as 2"},
	} {
		second := kept()
		c.spoil(&second)
		out := audited(t, second, nil)
		if all := strings.Join(out.Violations, "\n"); out.OK || !strings.Contains(all, "replicas differ") || !strings.Contains(all, c.want) {
			t.Errorf("%s: violations %q, want %q", name, out.Violations, c.want)
		}
	}
}

func TestCountsOfReplicasAreNotComparedWhileTheyMove(t *testing.T) {
	second := kept()
	second.stats.Completed, second.stats.Running = 1, 1
	for name, change := range map[string]func(a *auditor){
		"nothing was drained":     func(a *auditor) { a.drained = false },
		"ended tasks are removed": func(a *auditor) { a.purges = true },
	} {
		if out := audited(t, second, change); !out.OK {
			t.Errorf("%s: violations %q", name, out.Violations)
		}
	}
}
