package millrace

import (
	"strconv"
	"unicode/utf8"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// After makes the task wait until other tasks have completed: it is blocked, and becomes ready with the completion of the last one. ids
// are those of up to 100 tasks of the same partition, such as the ID of a Handle; a task that the same Tx or batch adds before counts
// too. What follows when one of them is not completed is said by OnDepFailure.
func After(ids ...string) AddOption { return afterAll(ids, millracev1.After_COMPLETED) }

// AfterEnd is After for tasks of which any end is enough, however they end.
func AfterEnd(ids ...string) AddOption { return afterAll(ids, millracev1.After_TERMINAL) }

// AfterPrevious makes each task of AddMany and AddAll, but the first, wait until the one before it has completed. Where AddMany cannot
// add one of them, those after it are not added either, with ErrNotFound.
func AfterPrevious() AddOption { return After(previous) }

// previous stands for the id of the task before in a batch.
const previous = ""

func afterAll(ids []string, on millracev1.After_On) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) {
		for _, id := range ids {
			s.After = append(s.After, &millracev1.After{Id: id, On: on})
		}
	})
}

// DepFailure says what becomes of a task when one that it waits for ends dead or cancelled.
type DepFailure int

// What becomes of such a task.
const (
	DepHold   DepFailure = iota // it waits on, and runs if a retry of the other one completes
	DepCancel                   // it is cancelled, with the reason dependency
	DepRun                      // it no longer waits for the other one
)

// String returns hold, cancel or run.
func (d DepFailure) String() string {
	if d < DepHold || d > DepRun {
		return "DepFailure(" + strconv.Itoa(int(d)) + ")"
	}
	return [...]string{"hold", "cancel", "run"}[d]
}

// OnDepFailure sets what becomes of the task when one of those of After ends dead or cancelled. Default DepHold.
func OnDepFailure(d DepFailure) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) {
		s.OnDepFailure = millracev1.OnDepFailure_HOLD + millracev1.OnDepFailure(d)
	})
}

// Dependency is how a task stands that another one was made to wait for.
type Dependency struct {
	ID       string
	Terminal bool  // any end of it is enough
	State    State // 0: it is not there any more; always 0 in lists
	Waits    bool  // the other one still waits for it; always false in lists
}

// dependencies reads those of a task.
func dependencies(in []*millracev1.AfterState) []Dependency {
	if len(in) == 0 {
		return nil
	}
	out := make([]Dependency, len(in))
	for i, a := range in {
		out[i] = Dependency{ID: a.GetId(), Terminal: a.GetOn() == millracev1.After_TERMINAL, State: State(a.GetState()), Waits: a.GetWaits()}
	}
	return out
}

// checkAfter refuses ids that the contract cannot carry.
func checkAfter(in []*millracev1.After) error {
	for i, a := range in {
		if !utf8.ValidString(a.Id) {
			return badText("after[" + strconv.Itoa(i) + "].id")
		}
	}
	return nil
}
