package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
)

// source is a server that an audit reads. Its answers must be at least as new as the call: an audit
// takes an older state for a lost write.
type source interface {
	// Task reads a task as it is when the call begins, or later.
	Task(ctx context.Context, id string) (*millrace.TaskInfo, error)
	// Stats reads the counters of a queue likewise.
	Stats(ctx context.Context, queue string) (millrace.QueueStats, error)
}

// replica is one of several servers that hold the same tasks.
type replica struct {
	name string
	source
}

// clientSource reads through a client.
type clientSource struct{ c *millrace.Client }

func (s clientSource) Task(ctx context.Context, id string) (*millrace.TaskInfo, error) {
	return s.c.Task(ctx, id)
}

func (s clientSource) Stats(ctx context.Context, queue string) (millrace.QueueStats, error) {
	return s.c.Queue(queue).Stats(ctx)
}

// readers is how many reads of an audit are under way at once.
const readers = 32

// readTask is a task as one server has it.
type readTask struct {
	// state has no id when the task was not found.
	state check.TaskState
	// differs names a part of the task that is not what was acknowledged; empty: there is none.
	differs string
}

// String tells the task in the words of an audit.
func (t readTask) String() string {
	switch {
	case t.state.ID == "":
		return "not there"
	case t.differs != "":
		return fmt.Sprintf("%s with another %s", t.state.State, t.differs)
	}
	return fmt.Sprintf("%s, attempt %d", t.state.State, t.state.Attempt)
}

// readAll reads the tasks of the sample from one server with several goroutines, each of which
// takes the next task. The first error ends them.
func (a *auditor) readAll(ctx context.Context, from source, sample []sampled) ([]readTask, error) {
	found := make([]readTask, len(sample))
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(sample) {
					return
				}
				t, err := a.readOne(ctx, from, sample[i].id)
				if err != nil {
					err = fmt.Errorf("read task %s back: %w", sample[i].id, err)
					failed.CompareAndSwap(nil, &err)
					return
				}
				found[i] = t
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return found, nil
}

// readOne reads one task. A task that is not found is an answer, not an error.
func (a *auditor) readOne(ctx context.Context, from source, id string) (readTask, error) {
	t, err := from.Task(ctx, id)
	if e, ok := errors.AsType[*millrace.Error](err); ok && e.Code == millrace.CodeNotFound {
		return readTask{}, nil
	}
	if err != nil {
		return readTask{}, err
	}
	state, _ := check.ParseState(t.State.String())
	return readTask{
		check.TaskState{ID: t.ID, Queue: t.Queue, State: state, Attempt: uint32(t.Attempt)}, a.different(t),
	}, nil
}

// stats reads the queue's counters from one server. Those of a queue that nothing was created in are 0.
func (a *auditor) stats(ctx context.Context, from source) (millrace.QueueStats, error) {
	stats, err := from.Stats(ctx, a.queue)
	if e, ok := errors.AsType[*millrace.Error](err); ok && e.Code == millrace.CodeNotFound {
		return stats, nil
	}
	if err != nil {
		return stats, fmt.Errorf("read the counters of queue %s: %w", a.queue, err)
	}
	return stats, nil
}

// countsOf names the counters of a queue as the audit prints them.
func countsOf(stats *millrace.QueueStats) map[string]uint64 {
	return map[string]uint64{
		"blocked": stats.Blocked, "scheduled": stats.Scheduled, "ready": stats.Ready, "running": stats.Running,
		"completed": stats.Completed, "dead": stats.Dead, "cancelled": stats.Cancelled, "purged": stats.Purged,
		"created": stats.Created, "completed_total": stats.CompletedTotal,
	}
}

// tasksOf is how many tasks of a queue there are and were: in some state, or removed.
func tasksOf(s *millrace.QueueStats) uint64 {
	return s.Blocked + s.Scheduled + s.Ready + s.Running + s.Completed + s.Dead + s.Cancelled + s.Purged
}

// compareCounts compares the counters of every server with those of the first, once nothing moves any more:
// tasks that are left or that retention still removes would change them between two readings.
func (a *auditor) compareCounts(ctx context.Context, first map[string]uint64, violate func(format string, args ...any)) error {
	if a.works && !a.drained || a.purges {
		return nil
	}
	for _, r := range a.replicas {
		stats, err := a.stats(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		counts := countsOf(&stats)
		for _, name := range sortedKeys(first) {
			if counts[name] != first[name] {
				violate("replicas differ: %s counts %s as %d, the first server as %d", r.name, name, counts[name], first[name])
			}
		}
	}
	return nil
}
