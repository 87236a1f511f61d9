package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

const (
	// quietEvery is between two creates of the tenant that is measured.
	quietEvery = 5 * time.Millisecond
	// loudRate is how many tasks the other tenant may create in a second, and loudTimes of that it asks for.
	loudRate  = 2000
	loudTimes = 10
	// loudBatch is how many tasks one of its calls creates, and loudPatience how long it waits for the answer.
	loudBatch    = 100
	loudPatience = 100 * time.Millisecond
	// neighbourPhase is for how long the measured tenant is alone, and then next to the other, in turn.
	neighbourPhase = time.Second
	// loudTasks is how many tasks it may have, as no worker takes them: more than it may create within a window.
	loudTasks = 1 << 24
)

// TenantNeighbour creates tasks of one tenant at a steady rate, and times them: in turn alone, and while another tenant asks for ten
// times the rate that it may have.
func TenantNeighbour(ctx context.Context, rig *bench.Rig) error {
	if len(rig.Others) == 0 {
		return &bench.SkipError{Lacks: "a token of a second tenant"}
	}
	quiet, err := rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer quiet.Close() //nolint:errcheck // every call was answered, or an error tells
	loud, err := rig.Dial(ctx, 0, millrace.Token(rig.Others[0]))
	if err != nil {
		return err
	}
	defer loud.Close() //nolint:errcheck // what it is answered does not count
	if err := setOwn(ctx, loud, func(c *millrace.TenantConfig) { c.TaskCreatesPerSecond, c.Tasks = loudRate, loudTasks }); err != nil {
		return fmt.Errorf("bound the loud tenant: %w", err)
	}
	n := &neighbours{rig: rig, quiet: quiet, loud: loud, job: millrace.Job[[]byte, []byte](rig.Queue).Queue(rig.Queue), create: rig.Op("create")}
	for range loudBatch {
		n.args = append(n.args, rig.Payload)
	}
	return n.run(ctx)
}

// setOwn changes what bounds a client's own tenant.
func setOwn(ctx context.Context, c *millrace.Client, change func(*millrace.TenantConfig)) error {
	own, err := c.Tenant(ctx, "")
	if err != nil {
		return err
	}
	change(&own.Config)
	_, err = c.SetTenant(ctx, own.Name, own.Config)
	return err
}

// neighbours is two tenants of one run.
type neighbours struct {
	rig *bench.Rig
	// quiet is the client of the tenant that is measured, loud that of the other.
	quiet, loud *millrace.Client
	job         *millrace.JobOf[[]byte, []byte]
	create      *bench.Op
	// args are the payloads of one call of the loud tenant.
	args [][]byte
	// asked and made count the loud tenant's tasks.
	asked, made atomic.Int64

	mu sync.Mutex // guards the fields below
	// took has the times of the measured creates: alone, and next to the other tenant.
	took   [2][]time.Duration
	failed error
}

// run measures both in turn until the window ends, and compares the slowest hundredth of each.
func (n *neighbours) run(ctx context.Context) error {
	var calls sync.WaitGroup
	var beside time.Duration
	err := n.rig.Work(ctx, func(over func() bool) {
		began := time.Now()
		for i := 0; !over() && ctx.Err() == nil; i++ {
			due := began.Add(time.Duration(i) * quietEvery)
			if bench.Pause(ctx, time.Until(due)) != nil {
				break
			}
			phase := int(due.Sub(began)/neighbourPhase) % 2
			calls.Go(func() { n.one(ctx, i, phase, due) })
			if phase == 1 {
				beside += quietEvery
				calls.Go(func() { n.flood(ctx) })
			}
		}
		calls.Wait()
	})
	if err := errors.Join(n.failed, err); err != nil {
		return err
	}
	if len(n.took[0]) == 0 || len(n.took[1]) == 0 {
		return errors.New("nothing was answered within the window")
	}
	alone, next := percentile99(n.took[0]), percentile99(n.took[1])
	n.rig.Metric("alone_p50_us", float64(median(n.took[0]).Nanoseconds())/1e3, "µs")
	n.rig.Metric("beside_p50_us", float64(median(n.took[1]).Nanoseconds())/1e3, "µs")
	n.rig.Metric("alone_p99_us", float64(alone.Nanoseconds())/1e3, "µs")
	n.rig.Metric("beside_p99_us", float64(next.Nanoseconds())/1e3, "µs")
	n.rig.Metric("p99_ratio", float64(next)/float64(alone), "×")
	n.rig.Metric("loud_asked_per_s", float64(n.asked.Load())/beside.Seconds(), "tasks/s")
	n.rig.Metric("loud_made_per_s", float64(n.made.Load())/(2*beside.Seconds()), "tasks/s") // its rate comes also while it is silent
	return nil
}

// one creates a task of the measured tenant, which was due at a time.
func (n *neighbours) one(ctx context.Context, i, phase int, due time.Time) {
	h, err := n.job.Add(ctx, n.quiet, n.rig.Payload)
	took := time.Since(due)
	n.create.Record(i, due, 1, err)
	if err == nil {
		n.rig.Ledger.Created(h.ID)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
		n.failed = errors.Join(n.failed, err)
	case n.rig.Measuring():
		n.took[phase] = append(n.took[phase], took)
	}
}

// flood asks for tasks of the loud tenant: as many as make ten times its rate, with one call for each create of the other.
func (n *neighbours) flood(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, loudPatience)
	defer cancel()
	n.asked.Add(int64(len(n.args)))
	if made, err := n.job.AddMany(ctx, n.loud, n.args); err == nil {
		n.made.Add(int64(len(made)))
	}
}

// percentile99 sorts all and returns the time that a hundredth of them took at least.
func percentile99(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*99/100]
}
