package millrace

import (
	"context"
	"slices"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// Limiters names limiters that the task needs besides those of its job, at most 4 together with those of its queue: it runs only while all
// of them have room for its Cost. One that is not there is ErrNotFound.
func Limiters(names ...string) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { s.Limiters = append(slices.Clip(s.Limiters), names...) })
}

// Limiters sets the limiters that each task of the job needs, at most 4 together with those of its queue: it runs only while all of them
// have room for its Cost. Default: none.
func (j *JobOf[A, R]) Limiters(names ...string) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.limiters = slices.Clone(names) })
}

// LimiterConfig is what a limiter bounds. 0, or the zero value, bounds nothing.
type LimiterConfig struct {
	// Concurrency is what its running tasks may cost together, per partition. A task that costs more runs alone.
	Concurrency int64
	Rate        Rate // of what begins, in units of cost, per partition
}

// Limiter is a limiter, and what is used of it in all partitions.
type Limiter struct {
	Name string
	LimiterConfig
	Version uint64
	Used    uint64          // what the running tasks cost together that hold it
	Tasks   uint64          // that have not ended and name it themselves, those that run included
	Until   time.Time       // when its rate lets a task of cost 1 begin; zero: now
	HeldBy  []LimiterHolder // the first 10 running tasks that hold it; only where one limiter is read
	Queues  []string        // the first 10 queues whose configurations name it; only where one limiter is read
}

// LimiterHolder is a running task that holds a limiter.
type LimiterHolder struct {
	Task  string
	Queue string
}

// limiterOf reads a limiter of the contract.
func limiterOf(w *millracev1.Limiter) *Limiter {
	out := &Limiter{
		Name: w.GetName(), LimiterConfig: LimiterConfig{Concurrency: w.GetConfig().GetConcurrency(), Rate: rateOf(w.GetConfig().GetRate())},
		Version: w.GetVersion(), Used: w.GetUsed(), Tasks: w.GetTasks(), Until: timeOf(w.GetUntil()), Queues: w.GetQueues(),
	}
	for _, h := range w.GetHeldBy() {
		out.HeldBy = append(out.HeldBy, LimiterHolder{Task: h.GetTask(), Queue: h.GetQueue()})
	}
	return out
}

// LimiterOption changes how a limiter is set or removed.
type LimiterOption interface {
	limiter(s *limiterSettings)
}

// limiterSettings is what options say.
type limiterSettings struct{ ifVersion *uint64 }

// limiterFunc is a LimiterOption.
type limiterFunc func(s *limiterSettings)

func (f limiterFunc) limiter(s *limiterSettings) { f(s) }

// LimiterIfVersion is a condition on the version of the limiter; 0: it must not be there yet. Another one is ErrPrecondition.
func LimiterIfVersion(v uint64) LimiterOption {
	return limiterFunc(func(s *limiterSettings) { s.ifVersion = &v })
}

// limiterSettingsOf collects options.
func limiterSettingsOf(opts []LimiterOption) (s limiterSettings) {
	for _, o := range opts {
		o.limiter(&s)
	}
	return s
}

// SetLimiter makes a limiter, or replaces what it bounds (needs the scope admin). Running tasks go on when a limit falls below what runs.
//
// Errors: ErrInvalid with the field; ErrPrecondition for LimiterIfVersion; ErrExhausted when there are 1,000 limiters.
func (c *Client) SetLimiter(ctx context.Context, name string, config LimiterConfig, opts ...LimiterOption) (*Limiter, error) {
	req := &millracev1.SetLimiterRequest{
		Name: name, Config: &millracev1.LimiterConfig{Concurrency: config.Concurrency, Rate: config.Rate.wire()},
		IfVersion: limiterSettingsOf(opts).ifVersion,
	}
	var resp *millracev1.SetLimiterResponse
	if err := c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.limiters.Set(ctx, req)
		return err
	}); err != nil {
		return nil, err
	}
	return limiterOf(resp.GetLimiter()), nil
}

// Limiter reads a limiter, with the tasks that hold it. One that is not there is ErrNotFound.
func (c *Client) Limiter(ctx context.Context, name string) (*Limiter, error) {
	var resp *millracev1.GetLimiterResponse
	if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.limiters.Get(ctx, &millracev1.GetLimiterRequest{Name: name})
		return err
	}); err != nil {
		return nil, err
	}
	return limiterOf(resp.GetLimiter()), nil
}

// Limiters reads a page of limiters by name, at most limit of them, from 1 to 1,000; 0: 100. cursor is empty, or that of the page before;
// next is empty after the last page.
func (c *Client) Limiters(ctx context.Context, limit int, cursor string) (list []*Limiter, next string, err error) {
	var resp *millracev1.ListLimitersResponse
	if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.limiters.List(ctx, &millracev1.ListLimitersRequest{Limit: uint32(max(limit, 0)), Cursor: cursor})
		return err
	}); err != nil {
		return nil, "", err
	}
	for _, one := range resp.GetLimiters() {
		list = append(list, limiterOf(one))
	}
	return list, resp.GetCursor(), nil
}

// DeleteLimiter removes a limiter (needs the scope admin). One that a queue names, or a task that has not ended, is ErrWrongState; one that
// is not there is ErrNotFound.
func (c *Client) DeleteLimiter(ctx context.Context, name string, opts ...LimiterOption) error {
	req := &millracev1.DeleteLimiterRequest{Name: name, IfVersion: limiterSettingsOf(opts).ifVersion}
	return c.change(ctx, anywhere, func(ctx context.Context) error {
		_, err := c.limiters.Delete(ctx, req)
		return err
	})
}
