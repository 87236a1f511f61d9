package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// TestANodeThatStoodStillGivesHoldersTimeToReport: what workers sent meanwhile was not heard, so it is not their fault that no
// renewal came. Time that passes while the node works still ends leases.
func TestANodeThatStoodStillGivesHoldersTimeToReport(t *testing.T) {
	const step = 900 * time.Millisecond // less than the node takes for standing still
	for _, tc := range []struct {
		name    string
		lease   core.Millis
		maxRun  core.Millis
		stands  time.Duration
		holds   time.Duration // after that, in steps
		crashes uint32
		state   core.State
	}{
		{name: "longer than the lease", lease: 2_000, stands: 8 * time.Second, state: core.Running},
		{name: "with less than the lease afterwards", lease: 2_000, stands: 8 * time.Second, holds: 2 * step, state: core.Running},
		{name: "with the lease afterwards", lease: 2_000, stands: 8 * time.Second, holds: 3 * step, crashes: 1, state: core.Ready},
		{name: "for hours, with a long lease", lease: 60_000, stands: 5 * time.Hour, holds: 14 * step, state: core.Running},
		{name: "for hours, and nothing for 15 s", lease: 60_000, stands: 5 * time.Hour, holds: 17 * step, crashes: 1, state: core.Ready},
		{name: "past max_run", lease: 60_000, maxRun: 3_000, stands: 8 * time.Second, state: core.Running},
		{name: "past max_run, and nothing for 15 s", lease: 60_000, maxRun: 3_000, stands: 8 * time.Second, holds: 17 * step, state: core.Scheduled},
		{name: "not at all", lease: 2_000, holds: 3 * step, crashes: 1, state: core.Ready},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := openLong(t, longOptions{node: Options{PauseAfter: time.Second}})
			defer l.close()
			id := taskID(1)
			l.must(&core.TaskCreate{ID: id, Queue: "q", Lease: tc.lease, MaxRun: tc.maxRun})
			a := l.holdOne("q")
			if tc.stands > 0 {
				l.pass(tc.stands)
			}
			for d := tc.holds; d > 0; d -= step {
				l.pass(step)
			}
			if task := l.task(id); task.State != tc.state || task.Crashes != tc.crashes {
				t.Errorf("the task is %v after %d crashes, want %v after %d", task.State, task.Crashes, tc.state, tc.crashes)
			}
			if tc.state != core.Running {
				return
			}
			l.must(&core.TaskComplete{Task: id, Token: a.Token})
			if task := l.task(id); task.State != core.Completed || task.Attempt != 1 {
				t.Errorf("its holder reports, and it is %v in attempt %d", task.State, task.Attempt)
			}
		})
	}
}
