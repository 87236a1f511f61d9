package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// A node was away while the others went on, and cut their logs: it gets a snapshot, and is a node like the others.
func TestANodeThatWasAwayForLongGetsTheStateAndServes(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, 3, 2, func(o *server.Options) { o.LogQuota = 1 })
	ctx := bounded(t, 120*time.Second)
	lead := c.leader()
	away, others := (lead+1)%3, []int{lead, (lead + 2) % 3}
	k := c.client(lead, millrace.Namespace("wide"))
	if _, err := k.CreateNamespace(ctx, 4); err != nil {
		t.Fatal(err)
	}
	had := c.running[away].Node().Standings()
	c.stop(away)
	const tasks = 200
	job := millrace.Job[int, int]("double")
	ids := make([]string, tasks)
	for i := range ids {
		h, err := job.Add(ctx, k, i)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = h.ID
	}
	for _, i := range others { // a clean end makes the state durable, and what is durable the log does not need
		c.stop(i)
		c.start(i)
		c.leader()
	}
	if _, err := job.Add(ctx, k, tasks); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others cut what the node lacks off their logs", func() bool {
		for _, i := range others {
			for shard, st := range c.running[i].Node().Standings() {
				if st.First <= had[shard].Last+1 {
					return false
				}
			}
		}
		return true
	})
	c.start(away)
	w := c.visitor(away, "ns=wide")
	for _, id := range ids {
		var task struct{ ID, State string }
		noErr(t, json.Unmarshal(w.do("GET", "/v1/tasks/{id}", id, "", 200), &task))
		if task.ID != id || task.State != "ready" {
			t.Fatalf("the node shows %+v for %s", task, id)
		}
	}
	installed := uint64(0)
	for _, st := range c.running[away].Node().Stats().Shards {
		installed += st.SnapshotsInstalled
	}
	if installed == 0 {
		t.Error("the node got no snapshot: the logs of the others still had all")
	}
	for _, i := range others[:1] { // and counts in a majority
		c.stop(i)
	}
	worker := c.client(away, millrace.Namespace("wide")).Worker(millrace.Slots(32))
	done := make(chan int, 2*tasks)
	job.Handle(worker, func(_ context.Context, _ *millrace.Task, n int) (int, error) {
		done <- n
		return 2 * n, nil
	})
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(run) }()
	seen := map[int]bool{}
	for len(seen) <= tasks {
		select {
		case n := <-done:
			seen[n] = true
		case <-ctx.Done():
			t.Fatal(fmt.Errorf("%d of %d tasks were done", len(seen), tasks+1))
		}
	}
	stop()
	<-ended
}
