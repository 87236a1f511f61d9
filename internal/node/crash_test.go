package node

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// acked is what clients were told: the audit's side of the story, written down before anything else happens.
type acked struct {
	gate      sync.RWMutex // held for writing while an audit runs, so that the load does not outrun it
	mu        sync.Mutex   // guards the fields below
	created   map[core.TaskID]bool
	completed map[core.TaskID]bool
}

// pass waits while an audit runs.
func (a *acked) pass() {
	a.gate.RLock()
	defer a.gate.RUnlock()
}

func newAcked() *acked {
	return &acked{created: make(map[core.TaskID]bool), completed: make(map[core.TaskID]bool)}
}

func (a *acked) copy() *acked {
	return &acked{created: maps.Clone(a.created), completed: maps.Clone(a.completed)}
}

// load runs workers that create tasks, and complete them with a key, a counter and a follow-up task as effects, until
// ctx ends.
func (r *rig) load(ctx context.Context, a *acked, seed uint64) *sync.WaitGroup {
	var running sync.WaitGroup
	var next sync.Mutex
	n := 0
	for w := range 4 {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)))
		running.Go(func() {
			for ctx.Err() == nil {
				a.pass()
				if rnd.IntN(2) == 0 {
					next.Lock()
					n++
					id := taskID(n)
					next.Unlock()
					if p := r.proposeIn(core.Commit{Ops: []core.Op{
						&core.TaskCreate{ID: id, Queue: "q", Payload: make([]byte, rnd.IntN(400))},
					}}); p.Err == nil {
						a.mu.Lock()
						a.created[id] = true
						a.mu.Unlock()
					}
					continue
				}
				tasks, _, err := r.node.Claim(ctx, r.ns, core.ClaimSpec{
					Queues: []core.GrantQueue{{Name: "q"}}, Max: uint32(1 + rnd.IntN(8)), Lease: 3_600_000, Worker: "w",
				})
				if err != nil {
					continue
				}
				for _, t := range tasks {
					r.completeIn(a, t)
				}
			}
		})
	}
	return &running
}

// proposeIn is propose for goroutines of the load: results of a node that stops are dropped.
func (r *rig) proposeIn(c core.Commit) core.Proposed {
	done := make(chan core.Proposed, 1)
	c.Partition = r.ns
	r.node.Propose(r.ns, []core.Commit{c}, func(p core.Proposed) { done <- p })
	return <-done
}

// completeIn completes t with a key of its own as an effect.
func (r *rig) completeIn(a *acked, t core.Assigned) {
	c := complete(t, &core.KVPut{Keyspace: "done", Key: []byte(t.Task.String()), Value: []byte(strconv.FormatUint(uint64(t.Token), 10))})
	if p := r.proposeIn(c); p.Err == nil && p.Results[0].Refusal == nil {
		a.mu.Lock()
		a.completed[t.Task] = true
		a.mu.Unlock()
	}
}

// audit compares what a reopened node holds with what clients were told, and returns what is lost or torn.
func (r *rig) audit(a *acked) error {
	ctx := context.Background()
	for id := range a.created {
		if _, _, err := r.node.Task(ctx, r.ns, id, core.ReadOptions{}); err != nil {
			return fmt.Errorf("acknowledged task %s: %w", id, err)
		}
	}
	for id := range a.completed {
		t, _, err := r.node.Task(ctx, r.ns, id, core.ReadOptions{})
		if err != nil || t.State != core.Completed {
			return fmt.Errorf("acknowledged completion of %s: state %v, %w", id, t.State, err)
		}
	}
	for _, s := range []core.State{core.Ready, core.Running, core.Completed} {
		for cursor, first := []byte(nil), true; first || cursor != nil; first = false {
			page, _, err := r.node.Tasks(ctx, r.ns, core.ListQuery{Queue: "q", State: s, Limit: 1000, Cursor: cursor})
			if err != nil {
				return err
			}
			for _, t := range page.Tasks {
				k, _, err := r.node.Key(ctx, r.ns, "done", []byte(t.ID.String()), core.ReadOptions{})
				if err != nil {
					return err
				}
				if (k.Rev > 0) != (s == core.Completed) {
					return fmt.Errorf("task %s is %v and its effect is there: %v", t.ID, s, k.Rev > 0)
				}
			}
			cursor = page.Next
		}
	}
	for { // what is delivered from here on was never completed
		tasks, _, err := r.node.Claim(ctx, r.ns, core.ClaimSpec{Queues: []core.GrantQueue{{Name: "q"}}, Max: 128, Worker: "audit"})
		if err != nil {
			return err
		}
		if len(tasks) == 0 {
			break
		}
		for _, t := range tasks {
			if a.completed[t.Task] {
				return fmt.Errorf("completed task %s was delivered again", t.Task)
			}
		}
	}
	q, _, err := r.node.Queue(ctx, r.ns, "q", core.ReadOptions{})
	if len(a.created) > 0 && err != nil {
		return err
	}
	sum := q.Purged
	for _, n := range q.States {
		sum += n
	}
	if q.Created != sum {
		return fmt.Errorf("%d created, %d accounted for", q.Created, sum)
	}
	return nil
}

// crashes cuts the power at points of loaded runs and audits each; it returns how many cuts lost something.
func crashes(t *testing.T, points int, noSync bool, seed uint64, keepUnsynced func(*rand.Rand) int) (lost int, first error) {
	t.Helper()
	const perRun = 50
	for run := uint64(0); points > 0; run++ {
		n, err := crashRun(t, min(points, perRun), noSync, seed+run*1000, keepUnsynced)
		lost += n
		if first == nil {
			first = err
		}
		points -= perRun
	}
	return lost, first
}

func crashRun(t *testing.T, points int, noSync bool, seed uint64, keepUnsynced func(*rand.Rand) int) (lost int, first error) {
	t.Helper()
	o := rigOptions{noSync: noSync, segment: 64 << 10}
	r := openRig(t, o)
	a := newAcked()
	ctx, cancel := context.WithCancel(t.Context())
	running := r.load(ctx, a, seed)
	rnd := rand.New(rand.NewPCG(seed, 99))
	for range points {
		for range 1 + rnd.IntN(20) { // entries between two cuts
			<-r.node.shards[0].advance.wait()
		}
		a.mu.Lock()
		told := a.copy()
		disk := r.disk.Crash(keepUnsynced(rnd), rnd.Uint64())
		a.mu.Unlock()
		a.gate.Lock()
		o.disk = disk
		after, err := tryRig(t, o)
		if err == nil {
			err = after.audit(told)
			after.close()
		}
		a.gate.Unlock()
		if err != nil {
			lost++
			if first == nil {
				first = err
			}
		}
	}
	cancel()
	r.close()
	running.Wait()
	return lost, first
}

func TestNothingAcknowledgedIsLostByAPowerCut(t *testing.T) {
	points := 500
	if testing.Short() || underRace {
		points = 40
	}
	lost, err := crashes(t, points, false, 1, func(r *rand.Rand) int { return r.IntN(101) })
	if lost > 0 {
		t.Errorf("%d of %d cuts lost something, first: %v", lost, points, err)
	}
}

func TestWithoutSyncAPowerCutLosesData(t *testing.T) {
	const points = 40
	lost, _ := crashes(t, points, true, 2, func(*rand.Rand) int { return 0 })
	if lost < points*95/100 {
		t.Errorf("only %d of %d cuts lost something: the test proves nothing about syncs", lost, points)
	}
}
