package node

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// A queue with many tasks is removed by one entry. A server that stops before the ticks have swept its rows goes on with
// them when it starts again, and what is stored makes sense throughout.
func TestTheSweepOfARemovedQueueGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	disk := replogtest.NewDisk()
	o := rigOptions{disk: disk, node: Options{TimerBatch: 20}}
	r := openRig(t, o)
	const n = 600
	commits := make([]core.Commit, n)
	for i := range commits {
		op := &core.TaskCreate{ID: taskID(i), Queue: "bulk"}
		if i%3 == 0 {
			op.Delay = 3_600_000
		}
		commits[i].Ops = []core.Op{op}
	}
	if p := r.propose(commits...); p.Err != nil {
		t.Fatal(p.Err)
	}
	held := r.claim("bulk", 100, 0)
	r.must(&core.QueueDelete{Queue: "bulk", Purge: true, IfVersion: -1})
	r.close()

	r = openRig(t, o)
	defer r.close()
	p := r.propose(core.Commit{Ops: []core.Op{&core.TaskComplete{Task: held[0].Task, Token: held[0].Token}}})
	if _, lost := p.Results[0].Refusal.Fact.(core.LeaseLost); !lost {
		t.Errorf("a worker of the removed queue is answered %+v", p.Results[0])
	}
	r.must(&core.TaskCreate{ID: taskID(n), Queue: "bulk"}) // the name stands for another queue by now
	left := func() (tasks uint64) {
		for _, s := range r.node.Stats().Shards {
			for _, in := range s.Queues.States {
				tasks += in
			}
		}
		return tasks
	}
	for range 10_000 { // an entry each, and the timed work that rides in it
		if left() == 1 {
			break
		}
		r.must(&core.TaskRenew{})
	}
	if got := left(); got != 1 {
		t.Fatalf("%d tasks are counted, want the one of the new queue", got)
	}
	if err := r.node.shards[0].store.View(func(v core.View) error {
		findings, err := queue.Audit(v, r.ns)
		for _, f := range findings {
			t.Error(f)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
