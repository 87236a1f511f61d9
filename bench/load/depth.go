package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/bench"
	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// depthBase is the number of tasks in the shallow queue that a deep one is compared with.
const depthBase = 10_000

// depthLoad is a number of callers that each take a batch of tasks, complete them and add as many,
// so that the depth stays.
type depthLoad struct{ callers, batch int }

// The loads of the suites.
var (
	// deepLoad gathers tasks in batches, as busy workers do.
	deepLoad = depthLoad{16, 32}
	// oneAlone is one worker without a batch: its latency is that of a claim alone.
	oneAlone = depthLoad{1, 1}
)

// depthRun measures claims at one depth after another, on the same server.
type depthRun struct {
	rig *bench.Rig
	// load says how many callers there are, and what each takes at once.
	load depthLoad
	// client claims and adds. All callers share it.
	client *millrace.Client
	// tasks is the service by which a whole batch is completed in one call.
	tasks pb.TaskServiceClient
	// job names the queue and the lease of the tasks.
	job *millrace.JobOf[[]byte, []byte]
	// args are the payloads of one batch.
	args [][]byte
}

// depthPhase is what was seen at one depth. All callers write to it.
type depthPhase struct {
	// on says that what is answered now counts; over says that the phase has ended.
	on   func() bool
	over func() bool

	// taken counts the tasks of claims while on.
	taken atomic.Uint64

	// mu guards claims, the latencies of claims in microseconds.
	mu     sync.Mutex
	claims *hdrhistogram.Histogram
}

// newPhase returns a phase in which nothing was seen yet.
func newPhase(on, over func() bool) *depthPhase {
	return &depthPhase{on: on, over: over, claims: newLatencies()}
}

// claimed notes a claim of n tasks.
func (p *depthPhase) claimed(n int, took time.Duration) {
	if !p.on() {
		return
	}
	p.taken.Add(uint64(n))
	p.mu.Lock()
	_ = p.claims.RecordValue(max(took.Microseconds(), 1)) // a call that takes an hour has failed before
	p.mu.Unlock()
}

// Depth measures claims from a queue in which many tasks wait, and what the server's memory has of
// each of them. Deep rows first do the same with 10,000 tasks on the same server, so that the ratio
// of the two shows depth alone.
func Depth(ctx context.Context, rig *bench.Rig) error {
	d, err := newDepthRun(ctx, rig, deepLoad)
	if err != nil {
		return err
	}
	defer d.client.Close() //nolint:errcheck // every call was answered, or an error tells
	// base is all tasks where the row has no more than the shallow queue.
	base := min(depthBase, rig.Shape.Prefill)
	if err := fill(ctx, rig, d.client, base); err != nil {
		return err
	}
	// shallow stays nil where the row is not deeper than the base.
	var shallow *depthPhase
	if deeper := rig.Shape.Prefill - base; deeper > 0 {
		if shallow, err = d.shallow(ctx); err != nil {
			return err
		}
		if err := d.deepen(ctx, deeper); err != nil {
			return err
		}
	}
	deep, err := d.measure(ctx)
	if err != nil {
		return err
	}
	d.report(shallow, deep)
	return nil
}

// ClaimDepth measures the claims of one worker that takes one task at a time from a queue in which many wait.
func ClaimDepth(ctx context.Context, rig *bench.Rig) error {
	d, err := newDepthRun(ctx, rig, oneAlone)
	if err != nil {
		return err
	}
	defer d.client.Close() //nolint:errcheck // every call was answered, or an error tells
	if err := fill(ctx, rig, d.client, rig.Shape.Prefill); err != nil {
		return err
	}
	p, err := d.measure(ctx)
	if err != nil {
		return err
	}
	rig.Metric("claim_p50_ms", float64(p.claims.ValueAtQuantile(50))/1e3, "ms")
	rig.Metric("claim_p99_ms", float64(p.claims.ValueAtQuantile(99))/1e3, "ms")
	return nil
}

// newDepthRun connects the client of a run.
func newDepthRun(ctx context.Context, rig *bench.Rig, load depthLoad) (d *depthRun, err error) {
	d = &depthRun{rig: rig, load: load, job: millrace.Job[[]byte, []byte](rig.Queue).Queue(rig.Queue).Lease(rig.Shape.Lease)}
	if d.client, err = rig.Dial(ctx, 0); err != nil {
		return nil, err
	}
	d.tasks = pb.NewTaskServiceClient(d.client.Conn())
	for range load.batch {
		d.args = append(d.args, rig.Payload)
	}
	return d, nil
}

// measure takes tasks through warm-up and window, and returns what was seen when all callers have ended.
func (d *depthRun) measure(ctx context.Context) (*depthPhase, error) {
	p := newPhase(d.rig.Measuring, d.rig.Done)
	done := make(chan error, 1)
	go func() { done <- d.turns(ctx, p) }()
	err := d.rig.Measure(ctx)
	return p, errors.Join(<-done, err)
}

// shallow does what the window will do, for the same time and after an equally long warm-up,
// outside of the window.
func (d *depthRun) shallow(ctx context.Context) (*depthPhase, error) {
	began := time.Now()
	end := d.rig.Warmup + d.rig.Window
	p := newPhase(
		func() bool { at := time.Since(began); return at >= d.rig.Warmup && at < end },
		func() bool { return time.Since(began) >= end },
	)
	return p, d.turns(ctx, p)
}

// deepen adds n tasks and weighs the server before and after: the difference by task is a metric. A
// server without an admin listener is filled all the same, with a warning.
func (d *depthRun) deepen(ctx context.Context, n int) error {
	admin, err := adminOf(d.rig)
	if err != nil {
		d.rig.Warn("memory_unseen", err.Error(), 0)
		return fill(ctx, d.rig, d.client, n)
	}
	before, err := admin.footprint(ctx)
	if err != nil {
		return err
	}
	if err := fill(ctx, d.rig, d.client, n); err != nil {
		return err
	}
	after, err := admin.footprint(ctx)
	if err != nil {
		return err
	}
	if err := d.settle(ctx, admin); err != nil {
		return err
	}
	// Both weighings are of a server at rest; what grew is divided by the tasks that came in
	// between.
	d.rig.Metric("live_bytes_per_task", (after.live-before.live)/float64(n), "B")
	d.rig.Metric("rss_bytes_per_task", (after.resident-before.resident)/float64(n), "B")
	return nil
}

// A real queue is deep for hours, and this one was filled in a minute. So claims are measured when
// the server has sorted what the fill left, which is when its compaction debt falls no more.
// settleEvery is the time between two looks, and settleMost how long it is waited for.
const (
	settleEvery = 2 * time.Second
	settleMost  = 2 * time.Minute
)

// settle waits until the server's compactions have caught up: the debt fell by less than 2 % in
// three looks, one after the other. It gives up after settleMost without an error.
func (d *depthRun) settle(ctx context.Context, admin adminPage) error {
	const name = "millrace_store_compaction_debt_bytes"
	began := time.Now()
	// calm counts the looks in a row at which the debt did not fall.
	for last, calm := -1.0, 0; calm < 3 && time.Since(began) < settleMost; {
		m, err := admin.metrics(ctx, name)
		if err != nil {
			return err
		}
		if debt := m[name]; last >= 0 && debt >= 0.98*last {
			calm++
		} else {
			calm = 0
		}
		last = m[name]
		if err := bench.Pause(ctx, settleEvery); err != nil {
			return err
		}
	}
	d.rig.Metric("settle_s", time.Since(began).Seconds(), "s")
	return nil
}

// turns runs the callers of the load until the phase is over. Each caller repeats one turn.
func (d *depthRun) turns(ctx context.Context, p *depthPhase) error {
	return atOnce(ctx, d.load.callers, func(ctx context.Context, i int) error {
		for !p.over() && ctx.Err() == nil {
			if err := d.turn(ctx, i, p); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

// turn takes a batch, completes it and adds as many tasks. A claim that is given nothing is an
// error, since the queue is deep.
func (d *depthRun) turn(ctx context.Context, i int, p *depthPhase) error {
	began := time.Now()
	got, err := d.client.Claim(ctx, millrace.ClaimQuery{Queues: []string{d.rig.Queue}, Max: d.load.batch, Lease: d.rig.Shape.Lease})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	d.rig.Op("claim").Record(i, began, len(got), nil)
	p.claimed(len(got), time.Since(began))
	if len(got) == 0 {
		return fmt.Errorf("a claim was given nothing, though about %d tasks wait", d.rig.Shape.Prefill)
	}
	if err := d.complete(ctx, got); err != nil {
		return err
	}
	handles, err := d.job.AddMany(ctx, d.client, d.args[:len(got)])
	if err != nil {
		return fmt.Errorf("add what was taken: %w", err)
	}
	for _, h := range handles {
		d.rig.Ledger.Created(h.ID)
	}
	return nil
}

// complete settles a batch in one call, and notes each task.
func (d *depthRun) complete(ctx context.Context, got []millrace.Claimed) error {
	req := &pb.SettleRequest{}
	for _, t := range got {
		req.Items = append(req.Items, &pb.SettleItem{
			Id: t.ID, Token: t.Token, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{Result: d.rig.Result}},
		})
	}
	resp, err := d.tasks.Settle(ctx, req)
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	for n, r := range resp.Results {
		if r.Error != nil {
			return fmt.Errorf("complete task %s: %s", got[n].ID, r.Error.Message)
		}
		d.rig.Ledger.Completed(got[n].ID, got[n].Token, r.Replayed)
	}
	return nil
}

// report tells the rate at the depth, and the ratios to the shallow queue where there was one.
func (d *depthRun) report(shallow, deep *depthPhase) {
	seconds := d.rig.Window.Seconds()
	rate, p99 := float64(deep.taken.Load())/seconds, float64(deep.claims.ValueAtQuantile(99))
	d.rig.Metric("claims_per_s", rate, "claims/s")
	if shallow == nil {
		return
	}
	baseRate, baseP99 := float64(shallow.taken.Load())/seconds, float64(shallow.claims.ValueAtQuantile(99))
	if baseRate <= 0 || baseP99 <= 0 {
		return
	}
	d.rig.Metric("shallow_claims_per_s", baseRate, "claims/s")
	d.rig.Metric("shallow_claim_p99_us", baseP99, "µs")
	d.rig.Metric("depth_claim_ratio", rate/baseRate, "×")
	d.rig.Metric("depth_p99_ratio", p99/baseP99, "×")
}
