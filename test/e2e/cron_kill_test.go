package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// slotsOf lists every task of a queue by the cron and the slot that it says it is of.
func slotsOf(ctx context.Context, t *testing.T, k *millrace.Client, queue string) map[string][]*millrace.TaskInfo {
	t.Helper()
	all := map[string][]*millrace.TaskInfo{}
	for cursor := ""; ; {
		page, next, err := k.List(ctx, millrace.ListQuery{Queue: queue, Limit: 1000, Cursor: cursor})
		noErr(t, err)
		for _, one := range page {
			task, err := k.Task(ctx, one.ID) // a list has no headers
			noErr(t, err)
			of := task.Headers["millrace-cron"] + " at " + task.Headers["millrace-slot"]
			all[of] = append(all[of], task)
		}
		if cursor = next; cursor == "" {
			return all
		}
	}
}

// The crons and the job of the test below.
const (
	killCrons, killSlots = 10, 20
	killTasks, killRate  = 2_000, 100 // tasks that are cancelled, and how many in a second
)

// killed is a cluster of real processes whose leader is killed.
type killed struct {
	t     *testing.T
	ctx   context.Context
	c     *proc.Cluster
	k     *millrace.Client
	tick  *millrace.JobOf[int, int]
	names []string // of the crons
	start time.Time
	bulk  string
}

// startKilled starts the cluster, with tasks that a job is to cancel.
func startKilled(ctx context.Context, t *testing.T) *killed {
	t.Helper()
	c, err := proc.NewCluster(ctx, proc.ClusterOptions{Binary: program, Dir: t.TempDir(), Nodes: 3}, "default")
	noErr(t, err)
	t.Cleanup(func() { noErr(t, c.Close()) })
	noErr(t, c.Start(ctx))
	k, err := millrace.Dial(ctx, millrace.Address(c.Addresses(0)), millrace.Insecure(), millrace.Token(c.Tokens[0].Secret), millrace.Timeout(0))
	noErr(t, err)
	t.Cleanup(func() { k.Close() })
	later := millrace.Job[int, int]("later").Queue("later")
	for range killTasks / 500 {
		_, err := later.AddMany(ctx, k, make([]int, 500), millrace.In(time.Hour))
		noErr(t, err)
	}
	return &killed{t: t, ctx: ctx, c: c, k: k, tick: millrace.Job[int, int]("tick")}
}

// begin sets the crons and starts the job, and returns when each cron has run a few times.
func (r *killed) begin() {
	r.t.Helper()
	r.start = time.Now().Truncate(time.Second).Add(3 * time.Second)
	for i := range killCrons {
		r.names = append(r.names, fmt.Sprint("c", i))
		_, err := r.tick.Cron(r.ctx, r.k, r.names[i], "@every 1s", i, millrace.CronOverlaps(millrace.CronAllow), millrace.CronCatchesUp(millrace.CatchUpAll),
			millrace.CronBetween(r.start, r.start.Add((killSlots-1)*time.Second)))
		noErr(r.t, err)
	}
	bulk, err := r.k.StartBulk(r.ctx, millrace.BulkCancel, millrace.TaskFilter{Queue: "later"}, millrace.BulkRate(killRate))
	noErr(r.t, err)
	r.bulk = bulk.ID
	for _, name := range r.names {
		for r.cron(name).Runs < 3 {
			pause(r.ctx, r.t)
		}
	}
}

func (r *killed) cron(name string) *millrace.Cron {
	return got[*millrace.Cron](r.t)(r.k.Cron(r.ctx, name))
}

func (r *killed) job() *millrace.BulkJob { return got[*millrace.BulkJob](r.t)(r.k.Bulk(r.ctx, r.bulk)) }

func (r *killed) stats(queue string) millrace.QueueStats {
	return got[millrace.QueueStats](r.t)(r.k.Queue(queue).Stats(r.ctx))
}

// ends waits until the job is done, the crons have no slot left, and all of their tasks are done.
func (r *killed) ends() {
	r.t.Helper()
	j := r.job()
	for ; j.State == millrace.BulkRunning; j = r.job() {
		pause(r.ctx, r.t)
	}
	if j.State != millrace.BulkDone || j.Done != killTasks || j.Matched != killTasks || len(j.Refused) > 0 {
		r.t.Errorf("the job ended as %+v", j)
	}
	if stats := r.stats("later"); stats.Cancelled != killTasks || stats.Scheduled != 0 {
		r.t.Errorf("after the job the queue has %+v", stats)
	}
	for _, name := range r.names {
		for !r.cron(name).Next.IsZero() {
			pause(r.ctx, r.t)
		}
		if n := r.cron(name).Runs; n != killSlots {
			r.t.Errorf("cron %s has run %d times", name, n)
		}
	}
	for stats := r.stats("tick"); stats.Completed != stats.Created; stats = r.stats("tick") {
		pause(r.ctx, r.t)
	}
}

// TestCronsAndABulkJobOverAKilledLeader kills the leader while ten crons run and a bulk job is at work, as the kernel does where memory is
// short. Each slot of each cron has one task, all of which are done, and the job has met each task once.
func TestCronsAndABulkJobOverAKilledLeader(t *testing.T) {
	onlyInCheck(t, "its crons run for twenty seconds")
	t.Parallel()
	ctx := bounded(t, 3*time.Minute)
	r := startKilled(ctx, t)
	w := r.k.Worker(millrace.Slots(16))
	r.tick.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return n, nil })
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(run) }()
	defer func() { stop(); <-ended }()
	r.begin()

	lead, err := r.c.Leader(ctx)
	noErr(t, err)
	if j := r.job(); j.Done == 0 || j.State != millrace.BulkRunning {
		t.Errorf("before the kill the job is %+v", j)
	}
	if !lead.Kill() {
		t.Fatal("the leader had ended before it was killed")
	}
	r.ends()
	_, err = lead.Start(ctx)
	noErr(t, err)
	stop() // so that nothing more is written
	noErr(t, r.c.Settle(ctx))

	all := slotsOf(ctx, t, r.k, "tick")
	for _, name := range r.names {
		for i := range killSlots {
			of := name + " at " + r.start.Add(time.Duration(i)*time.Second).UTC().Format(time.RFC3339)
			if made := all[of]; len(made) != 1 || made[0].State != millrace.Completed {
				t.Errorf("%s: %d tasks, %+v", of, len(made), made)
			}
			delete(all, of)
		}
	}
	for of, made := range all {
		t.Errorf("%s, which is not a slot, has %d tasks", of, len(made))
	}
}
