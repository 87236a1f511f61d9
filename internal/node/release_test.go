package node

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// placedSink hands over what is assigned, and the index of the entry that gave it.
type placedSink struct {
	leaseSink
	index chan uint64
}

func (s placedSink) Assign(sub uint32, tasks []core.Assigned, at core.At) bool {
	for range tasks {
		s.index <- at.Index
	}
	return s.leaseSink.Assign(sub, tasks, at)
}

// What waits for a task is given out by the entry that ends it: a chain takes no further entry for each of its tasks.
func TestATaskThatIsLetGoIsGivenOutByTheSameEntry(t *testing.T) {
	const length = 5
	r := openRig(t, rigOptions{})
	defer r.close()
	k := placedSink{leaseSink{make(chan core.Assigned, length)}, make(chan uint64, length)}
	ses, _, err := r.node.Session(t.Context(), r.ns, core.SessionSpec{ID: core.SessionID{1}, Worker: "w"}, k)
	if err != nil {
		t.Fatal(err)
	}
	ses.Subscribe(subscription("q", 2))
	for i := range length {
		op := &core.TaskCreate{ID: taskID(i), Queue: "q"}
		if i == 0 {
			op.Delay = 1_000_000
		} else {
			op.After = []core.After{{Task: taskID(i - 1)}}
		}
		r.must(op)
	}
	r.must(&core.TaskRunNow{Task: taskID(0)})
	ended := <-k.index
	for i := range length {
		a := <-k.assigned
		if a.Task != taskID(i) {
			t.Fatalf("task %s came, want %s", a.Task, taskID(i))
		}
		if i > 0 {
			if at := <-k.index; at != ended {
				t.Errorf("task %d was given out by entry %d, the task before it ended in entry %d", i, at, ended)
			}
		}
		ended = r.settle(ses, []core.Assigned{a}).At.Index
	}
}
