package queue

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// redriveTo is what a bulk job does to a task that it moves to another queue.
type redriveTo struct {
	core.TaskRedrive
	queue string
}

// elsewhere applies ops to a machine of partition 1 of a namespace, each in an entry of its own.
func elsewhere(t *testing.T) (apply func(op core.Op) (core.OpResult, core.Fact)) {
	tx := machinetest.NewTxn()
	m := New(core.Partition{Tenant: 7, Namespace: 3, Index: 1}, Options{})
	c := core.ApplyContext{Stamp: epoch, Format: core.FormatCurrent, TermStart: epoch - 1_000_000, Principal: "alice"}
	return func(op core.Op) (core.OpResult, core.Fact) {
		t.Helper()
		c.Index++
		judge := m.Apply
		if redrive, ok := op.(*redriveTo); ok {
			judge = func(tx core.Txn, c *core.ApplyContext, _ core.Op) (core.OpResult, core.Fact, error) {
				m.Observe(c)
				return m.redrive(tx, c, redrive.Task, redrive.queue, nil)
			}
		}
		res, fact, err := judge(tx, &c, op)
		if err != nil {
			t.Fatalf("apply %T: %v", op, err)
		}
		if err := m.End(tx, &c); err != nil {
			t.Fatal(err)
		}
		return res, fact
	}
}

func TestAQueueBoundedAsAWholeTakesTasksInOnePartition(t *testing.T) {
	for name, share := range map[string]core.QueueShare{
		"concurrency": {Concurrency: 1},
		"rate":        {Rate: core.Rate{Limit: 1, Per: 1000}},
		"max_workers": {MaxWorkers: 1},
		"strict":      {Strict: true},
		"limiters":    {Limiters: [core.MaxLimiters]string{"api"}},
	} {
		t.Run(name, func(t *testing.T) {
			apply := elsewhere(t)
			must := func(op core.Op) core.OpResult {
				t.Helper()
				res, fact := apply(op)
				if fact != nil {
					t.Fatalf("%T: %v", op, fact)
				}
				return res
			}
			refused := func(op core.Op) {
				t.Helper()
				if _, fact := apply(op); fact != (core.QueuePinned{Queue: "mail"}) {
					t.Errorf("%T: %v", op, fact)
				}
			}
			must(&core.LimiterSet{Name: "api", Config: core.LimiterConfig{Concurrency: 1}, IfVersion: -1})
			must(&core.TaskCreate{ID: idOf("x"), Queue: "mail", Unique: core.Unique{Key: "k"}})
			must(&core.TaskCreate{ID: idOf("y"), Queue: "other"})
			must(&core.TaskCancel{Task: idOf("y")})
			must(&core.BatchOpen{ID: idOf("b"), OnDone: &core.TaskCreate{Queue: "mail"}})
			must(&core.QueueSet{Queue: "mail", IfVersion: -1, Config: core.QueueConfig{Share: share}})

			refused(&core.TaskCreate{ID: idOf("z"), Queue: "mail", Key: "k"})
			refused(&redriveTo{core.TaskRedrive{Task: idOf("y")}, "mail"})
			refused(&core.BatchOpen{ID: idOf("c"), OnSuccess: &core.TaskCreate{Queue: "mail"}})
			refused(&core.CronSet{Name: "nightly", IfVersion: -1, Config: core.CronConfig{Schedule: "@daily"}, Template: core.TaskCreate{Queue: "mail"}})

			// What was made before is known, and what the server makes itself is made.
			if res := must(&core.TaskCreate{ID: idOf("x"), Queue: "mail", Unique: core.Unique{Key: "k"}}); !res.Replayed {
				t.Error("a repeated create is no replay")
			}
			if res := must(&core.TaskCreate{ID: idOf("z"), Queue: "mail", Unique: core.Unique{Key: "k"}}); res.Task != idOf("x") {
				t.Error("the unique key was forgotten")
			}
			must(&core.BatchSeal{ID: idOf("b")})
			if res := must(&core.TaskCancel{Task: core.FollowUpID(idOf("b"), 5, false)}); res.State != core.Cancelled {
				t.Errorf("the follow-up of a batch: %+v", res)
			}
			must(&core.QueueSet{Queue: "mail", IfVersion: -1})
			must(&core.TaskCreate{ID: idOf("z"), Queue: "mail"})
		})
	}
}

func TestKeysOfAQueueThatIsNotBoundedAsAWholeAreInAllPartitions(t *testing.T) {
	apply := elsewhere(t)
	for _, share := range []core.QueueShare{{KeyConcurrency: 1}, {KeyRate: core.Rate{Limit: 1, Per: 1000}}, {NoFairness: true}, {DeadLetter: "dead"}} {
		apply(&core.QueueSet{Queue: "mail", IfVersion: -1, Config: core.QueueConfig{Share: share}})
		if _, fact := apply(&core.TaskCreate{ID: idOf("x"), Queue: "mail"}); fact != nil {
			t.Errorf("%+v: %v", share, fact)
		}
	}
}
