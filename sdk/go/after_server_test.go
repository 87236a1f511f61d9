package millrace_test

import (
	"context"
	"errors"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

func TestTasksWaitForTasks(t *testing.T) {
	eachTransport(t, tasksWaitForTasks)
}

func tasksWaitForTasks(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	job := millrace.Job[int, int]("chain").Queue("chain")
	first, err := job.Add(t.Context(), c, 1)
	if err != nil {
		t.Fatal(err)
	}
	// The tasks of a tx name those before them.
	var second, third *millrace.Handle[int]
	if err := c.Commit(t.Context(), func(tx *millrace.Tx) {
		second = job.AddTx(tx, 2, millrace.After(first.ID))
		third = job.AddTx(tx, 3, millrace.After(second.ID), millrace.AfterEnd(first.ID), millrace.OnDepFailure(millrace.DepCancel))
	}); err != nil {
		t.Fatal(err)
	}
	info, err := third.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stands := map[string]millrace.Dependency{}
	for _, d := range info.After {
		stands[d.ID] = d
	}
	if info.State != millrace.Blocked || info.Pending != 2 || info.OnDepFailure != millrace.DepCancel || len(stands) != 2 ||
		stands[first.ID] != (millrace.Dependency{ID: first.ID, Terminal: true, State: millrace.Ready, Waits: true}) ||
		stands[second.ID] != (millrace.Dependency{ID: second.ID, State: millrace.Blocked, Waits: true}) {
		t.Errorf("the third task is %s, %+v", info.State, info)
	}
	why, err := c.Why(t.Context(), third.ID)
	if err != nil || len(why.Reasons) != 1 || why.Reasons[0].Code != "after" {
		t.Errorf("why: %+v, %v", why, err)
	}
	if _, err := job.Add(t.Context(), c, 9, millrace.After(millrace.NewID())); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("got %v for a task that is not there, want ErrNotFound", err)
	}
	if _, err := job.Add(t.Context(), c, 9, millrace.After("\xff")); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("got %v for an id that is no text, want ErrInvalid", err)
	}

	var order []int
	w := c.Worker(millrace.Slots(4))
	job.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) {
		order = append(order, n) // one after the other, as they wait for each other
		return n, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	if n, err := third.Wait(t.Context()); err != nil || n != 3 {
		t.Errorf("the third task: %d, %v", n, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(order) != 3 || order[0] != 1 || order[1] != 2 || order[2] != 3 {
		t.Errorf("they ran in the order %v", order)
	}
}

func TestTasksOfABatchWaitForTheOneBefore(t *testing.T) {
	eachTransport(t, tasksOfABatchWaitForTheOneBefore)
}

func tasksOfABatchWaitForTheOneBefore(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	job := millrace.Job[int, int]("line").Queue("line")
	for name, add := range map[string]func(context.Context, *millrace.Client, []int, ...millrace.AddOption) ([]*millrace.Handle[int], error){
		"each": job.AddMany, "all": job.AddAll,
	} {
		made, err := add(t.Context(), c, []int{1, 2, 3}, millrace.AfterPrevious())
		if err != nil || len(made) != 3 {
			t.Fatalf("%s: %v", name, err)
		}
		for i, h := range made {
			info, err := h.Get(t.Context())
			switch {
			case err != nil:
				t.Fatal(err)
			case i == 0 && (info.State != millrace.Ready || len(info.After) != 0):
				t.Errorf("%s: the first one is %s, after %v", name, info.State, info.After)
			case i > 0 && (info.State != millrace.Blocked || len(info.After) != 1 || info.After[0].ID != made[i-1].ID):
				t.Errorf("%s: task %d is %s, after %v", name, i, info.State, info.After)
			}
		}
	}
}
