package check

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// TaskState is one task of the read-back after a run: every task there is, with retention longer than the run.
type TaskState struct {
	ID      string
	Tenant  string
	Queue   string
	Unique  string
	State   core.State
	Attempt uint32
}

// The terminal states of a read-back, and how its states are named.
const (
	Completed = core.Completed
	Dead      = core.Dead
)

// ParseState reads a state as it is printed, such as completed.
func ParseState(name string) (core.State, bool) { return core.ParseState(name) }

// TotalOptions say what a run was meant to do.
type TotalOptions struct {
	// AllowDead accepts tasks that ended dead: the workload fails some for good. Otherwise each must complete.
	AllowDead bool
}

type taskHistory struct {
	created    Outcome // the strongest claim that it was created; empty: no client tried
	deliveries int
	completed  map[uint64]int // token → acknowledged completions that did something
	claimed    map[uint64]bool
	unknown    bool   // a completion ended unknown
	doneClock  string // first acknowledged completion: clock and time of its return
	doneAt     int64
}

// TotalQueue judges a queue that was drained: what goes in comes out, once. Rules: lost (an acknowledged task is not
// there), unexpected (a task that no client created, or whose creation was refused), stuck (it has not ended), dead,
// completed_twice, completion_lost (acknowledged, but the task is not completed), completed_by_nobody,
// delivered_after_completion. Counts: created, completed, recovered (created or completed by a call whose end is
// unknown), deliveries, repeated (deliveries beyond the first).
func TotalQueue(calls []Call, final []TaskState, o TotalOptions) *Report {
	r := NewReport("total_queue")
	tasks := taskHistories(calls)
	there := make(map[string]TaskState, len(final))
	for _, t := range final {
		if _, twice := there[t.ID]; twice {
			r.Violate("unexpected", "task %s is listed twice", t.ID)
		}
		there[t.ID] = t
	}
	for _, id := range slices.Sorted(maps.Keys(tasks)) {
		r.Checked++
		t, ok := there[id]
		judgeTotal(r, id, tasks[id], t, ok, o)
	}
	for _, id := range slices.Sorted(maps.Keys(there)) {
		if h := tasks[id]; h == nil || h.created == "" {
			r.Violate("unexpected", "task %s is %s, but no client created it", id, there[id].State)
		}
	}
	lateDeliveries(r, calls, tasks)
	return r.Done()
}

func taskHistories(calls []Call) map[string]*taskHistory {
	tasks := map[string]*taskHistory{}
	for i := range calls {
		c := &calls[i]
		if c.ID == "" || !(c.Op == OpCreate || c.Op == OpDeliver || c.settles()) {
			continue
		}
		h := historyOf(tasks, c.ID)
		switch c.Op {
		case OpCreate:
			end := c.Outcome
			if end == OK && c.Answer != "" && c.Answer != c.ID { // answered with the task that holds its unique key
				historyOf(tasks, c.Answer).created = OK
				end = Refused
			}
			h.created = stronger(h.created, end)
		case OpDeliver:
			h.deliveries++
		case OpComplete:
			h.complete(c)
		}
	}
	return tasks
}

func historyOf(tasks map[string]*taskHistory, id string) *taskHistory {
	if tasks[id] == nil {
		tasks[id] = &taskHistory{completed: map[uint64]int{}, claimed: map[uint64]bool{}}
	}
	return tasks[id]
}

func (h *taskHistory) complete(c *Call) {
	switch c.Outcome {
	case Unknown:
		h.unknown = true
	case OK:
		h.claimed[c.Token] = true
		if !c.Replayed {
			h.completed[c.Token]++
		}
		if h.doneClock == "" || c.Clock == h.doneClock && c.Return < h.doneAt {
			h.doneClock, h.doneAt = c.Clock, c.Return
		}
	}
}

// stronger folds what several calls say of one thing: one acknowledgement is enough, refused needs all to agree.
func stronger(a, b Outcome) Outcome {
	for _, o := range []Outcome{OK, Unknown, Refused} {
		if a == o || b == o {
			return o
		}
	}
	return a
}

func judgeTotal(r *Report, id string, h *taskHistory, t TaskState, there bool, o TotalOptions) {
	r.Counts["deliveries"] += h.deliveries
	r.Counts["repeated"] += max(0, h.deliveries-1)
	switch {
	case !there && h.created == OK:
		r.Violate("lost", "task %s was acknowledged and is not there", id)
	case !there && len(h.claimed) > 0:
		r.Violate("lost", "task %s was completed and is not there", id)
	case there && h.created == Refused:
		r.Violate("unexpected", "task %s was refused and is %s", id, t.State)
	}
	times := 0
	for _, n := range h.completed {
		times += n
	}
	if times > 1 || len(h.claimed) > 1 {
		r.Violate("completed_twice", "task %s: %d acknowledged completions under %d tokens", id, times, len(h.claimed))
	}
	if !there {
		return
	}
	r.Counts["created"]++
	if h.created == Unknown {
		r.Counts["recovered"]++
	}
	switch done := len(h.claimed) > 0; {
	case t.State == core.Completed && !done && !h.unknown:
		r.Violate("completed_by_nobody", "task %s is completed, but every completion was refused or none was tried", id)
	case t.State == core.Completed:
		r.Counts["completed"]++
		if !done {
			r.Counts["recovered"]++
		}
	case done:
		r.Violate("completion_lost", "task %s was completed and is %s", id, t.State)
	case !t.State.Terminal():
		r.Violate("stuck", "task %s is %s after the drain", id, t.State)
	case !o.AllowDead:
		r.Violate("dead", "task %s is %s", id, t.State)
	default:
		r.Counts["dead"]++
	}
}

// lateDeliveries finds handlers that were started after the same client side had the task acknowledged as completed.
func lateDeliveries(r *Report, calls []Call, tasks map[string]*taskHistory) {
	for i := range calls {
		c := &calls[i]
		h := tasks[c.ID]
		if c.Op != OpDeliver || h == nil || h.doneClock == "" || h.doneClock != c.Clock {
			continue
		}
		if c.Invoke > h.doneAt {
			r.Violate("delivered_after_completion", "task %s token %d at %d us, completed at %d us", c.ID, c.Token, c.Invoke, h.doneAt)
		}
	}
}
