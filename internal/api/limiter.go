package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// LimiterService bounds what tasks of several queues share. Each partition of a namespace has all of its limiters, by itself.
type LimiterService struct {
	pb.UnimplementedLimiterServiceServer
	s        *Server
	limiters LimiterBackend
}

// Limiters is the service of limiters.
func (s *Server) Limiters() *LimiterService {
	return &LimiterService{s: s, limiters: s.node.limiters}
}

// limiterNames reads the names of limiters of a task or of a queue: sorted, and each once.
func limiterNames(field string, in []string) ([]string, core.Fact) {
	if len(in) == 0 {
		return nil, nil
	}
	for i, name := range in {
		if fact := QueueName("", name); fact != nil {
			return nil, edge.Within(fmt.Sprintf("%s[%d]", field, i), fact)
		}
	}
	names := slices.Clone(in)
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > core.MaxLimiters {
		return nil, edge.TooLarge(field, "limiters", core.MaxLimiters)
	}
	return names, nil
}

// beginLimiter is begin for a limiter. create says that the namespace is made where there is none.
func (ls *LimiterService) beginLimiter(ctx context.Context, name string, create bool) (*call, error) {
	if fact := QueueName("name", name); fact != nil {
		return nil, fact
	}
	c, err := ls.s.begin(ctx, create)
	if edge.UnknownNamespace(err) {
		return nil, core.NotFound{Kind: "limiter", ID: name}
	}
	return c, err
}

// changes refuses callers whose tokens name queues: a limiter holds up tasks of any queue.
func (ls *LimiterService) changes(ctx context.Context) core.Fact {
	if who, ok := edge.CallerOf(ctx); ok && !who.AllQueues() {
		return deniedQueue("")
	}
	return ls.s.shared("name")
}

// Set makes a limiter, or replaces what it bounds, in all partitions of the namespace.
// Errors: Invalid and TooLarge name the field; RevMismatch for another version; Exhausted with limit limiters.
func (ls *LimiterService) Set(ctx context.Context, in *pb.SetLimiterRequest) (*pb.SetLimiterResponse, error) {
	if fact := QueueName("name", in.GetName()); fact != nil {
		return nil, fact
	}
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	// Before the namespace is made: a mistake leaves nothing behind.
	config, fact := ls.config(in.GetConfig())
	if fact != nil {
		return nil, edge.Within("config", fact)
	}
	if fact := ls.changes(ctx); fact != nil {
		return nil, fact
	}
	c, err := ls.beginLimiter(ctx, in.GetName(), true)
	if err != nil {
		return nil, err
	}
	_, at, err := c.set(ctx, setting{
		version: version,
		op: func(version int64) core.Op {
			return &core.LimiterSet{Name: in.GetName(), Config: config, IfVersion: version}
		},
		now: func() (found, error) {
			x, _, err := ls.limiters.Limiter(ctx, c.t.part, in.GetName(), core.ReadOptions{})
			f := found{version: x.Version, same: x.LimiterConfig == config}
			f.op = &core.LimiterSet{Name: in.GetName(), Config: x.LimiterConfig, IfVersion: -1}
			return f, ignoreNotFound(err)
		},
	})
	if err != nil {
		return nil, err
	}
	shown, _, err := ls.read(ctx, c, in.GetName(), core.ReadOptions{MinIndex: at.Index})
	if err != nil {
		return nil, err
	}
	return &pb.SetLimiterResponse{Limiter: shown, At: ShowAt(at)}, nil
}

// config reads what a limiter bounds.
func (ls *LimiterService) config(in *pb.LimiterConfig) (c core.LimiterConfig, fact core.Fact) {
	t := Translator{l: &ls.s.Limits}
	if c.Concurrency, fact = concurrency("concurrency", in.GetConcurrency()); fact != nil {
		return c, fact
	}
	if c.Rate, fact = t.rate(in.GetRate()); fact != nil {
		return c, edge.Within("rate", fact)
	}
	return c, nil
}

// Get reads a limiter.
// Errors: NotFound.
func (ls *LimiterService) Get(ctx context.Context, in *pb.GetLimiterRequest) (*pb.GetLimiterResponse, error) {
	c, err := ls.beginLimiter(ctx, in.GetName(), false)
	if err != nil {
		return nil, err
	}
	shown, at, err := ls.read(ctx, c, in.GetName(), readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	return &pb.GetLimiterResponse{Limiter: shown, At: ShowAt(at)}, nil
}

// read reads a limiter in all partitions. What it bounds is what the first one has, which judges versions; o is for that one.
func (ls *LimiterService) read(ctx context.Context, c *call, name string, o core.ReadOptions) (*pb.Limiter, core.At, error) {
	first, at, err := ls.limiters.Limiter(ctx, c.t.in(0), name, o)
	if err != nil {
		return nil, at, err
	}
	if c.t.several() {
		var mu sync.Mutex // guards first
		err = c.each(1, func(p core.Partition) error {
			x, _, err := ls.limiters.Limiter(ctx, p, name, core.ReadOptions{Stale: o.Stale})
			if err != nil {
				return ignoreNotFound(err)
			}
			mu.Lock()
			defer mu.Unlock()
			addLimiter(&first, &x)
			return nil
		})
	}
	return c.showLimiter(&first), at, err
}

// addLimiter adds what is used of a limiter in another partition.
func addLimiter(to, x *core.Limiter) {
	to.Used += x.Used
	to.Tasks += x.Tasks
	to.Until = max(to.Until, x.Until)
	to.HeldBy = append(to.HeldBy, x.HeldBy...)
	to.HeldBy = to.HeldBy[:min(len(to.HeldBy), core.MaxHolders)]
	for _, name := range x.Queues {
		if !slices.Contains(to.Queues, name) && len(to.Queues) < core.MaxHolders {
			to.Queues = append(to.Queues, name)
		}
	}
}

// showLimiter shows a limiter, with the tasks and queues that the caller's token reaches.
func (c *call) showLimiter(x *core.Limiter) *pb.Limiter {
	out := &pb.Limiter{
		Name: x.Name, Config: &pb.LimiterConfig{Concurrency: x.Concurrency, Rate: showRate(x.Rate)}, Version: x.Version,
		Used: x.Used, Tasks: x.Tasks, Until: TimeOf(x.Until),
	}
	for _, h := range x.HeldBy {
		if c.who.ReachesQueue(h.Queue) {
			out.HeldBy = append(out.HeldBy, &pb.LimiterHolder{Task: h.Task.String(), Queue: h.Queue})
		}
	}
	for _, name := range x.Queues {
		if c.who.ReachesQueue(name) {
			out.Queues = append(out.Queues, name)
		}
	}
	return out
}

// List reads a page of limiters by name.
func (ls *LimiterService) List(ctx context.Context, in *pb.ListLimitersRequest) (*pb.ListLimitersResponse, error) {
	limit, fact := ls.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	after, fact := readNameCursor(in.GetCursor(), true)
	if fact != nil {
		return nil, fact
	}
	if p := in.GetPrefix(); p != "" {
		if fact := QueueName("prefix", p); fact != nil {
			return nil, fact
		}
	}
	c, err := ls.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListLimitersResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	list, at, err := ls.page(ctx, c, limiterPage{in.GetPrefix(), after, limit}, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	out := &pb.ListLimitersResponse{At: ShowAt(at[0])}
	if len(list) == limit {
		out.Cursor = showCursor([]byte(list[limit-1].Name))
	}
	for i := range list {
		out.Limiters = append(out.Limiters, c.showLimiter(&list[i]))
	}
	return out, nil
}

// limiterPage is a page of limiters: up to limit of those with a prefix, by name, behind a name.
type limiterPage struct {
	prefix, after string
	limit         int
}

// page reads limiters: those of the first partition, with what is used of them in all. at is where each partition stands.
func (ls *LimiterService) page(ctx context.Context, c *call, q limiterPage, o core.ReadOptions) (list []core.Limiter, at []core.At, err error) {
	at = make([]core.At, max(c.t.parts, 1))
	list, at[0], err = ls.limiters.Limiters(ctx, c.t.in(0), q.prefix, q.after, q.limit, o)
	if err != nil || !c.t.several() {
		return list, at, err
	}
	var mu sync.Mutex // guards list
	err = c.each(1, func(p core.Partition) error {
		more, one, err := ls.limiters.Limiters(ctx, p, q.prefix, q.after, q.limit, o)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		at[p.Index] = one
		for i := range more {
			at, ok := slices.BinarySearchFunc(list, more[i].Name, func(x core.Limiter, name string) int { return strings.Compare(x.Name, name) })
			if ok {
				addLimiter(&list[at], &more[i])
			}
		}
		return nil
	})
	return list, at, err
}

// Delete removes a limiter from all partitions of the namespace.
// Errors: NotFound; InUse names a queue, or counts tasks; RevMismatch for another version.
func (ls *LimiterService) Delete(ctx context.Context, in *pb.DeleteLimiterRequest) (*pb.DeleteLimiterResponse, error) {
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	if fact := QueueName("name", in.GetName()); fact != nil {
		return nil, fact
	}
	if fact := ls.changes(ctx); fact != nil {
		return nil, fact
	}
	c, err := ls.beginLimiter(ctx, in.GetName(), false)
	if err != nil {
		return nil, err
	}
	op := &core.LimiterDelete{Name: in.GetName(), IfVersion: version}
	if c.t.several() {
		// With one partition Apply looks who names it. With several, all must be asked before the first one removes its part.
		shown, _, err := ls.read(ctx, c, in.GetName(), core.ReadOptions{})
		if err := ignoreNotFound(err); err != nil {
			return nil, err
		}
		if fact := unnamed(shown); fact != nil {
			return nil, fact
		}
	}
	r, at, err := c.proposeOp(ctx, op)
	if err != nil {
		return nil, err
	}
	existed := r.Existed
	if c.t.several() {
		rest, err := c.elsewhere(ctx, &core.LimiterDelete{Name: op.Name, IfVersion: -1})
		if err != nil {
			return nil, err
		}
		existed = existed || rest
	}
	if !existed {
		return nil, core.NotFound{Kind: "limiter", ID: in.GetName()}
	}
	return &pb.DeleteLimiterResponse{At: ShowAt(at)}, nil
}

// unnamed refuses the removal of a limiter that something names; nil: it is not there.
func unnamed(x *pb.Limiter) core.Fact {
	switch {
	case len(x.GetQueues()) > 0:
		return core.InUse{Kind: "limiter", ID: x.GetName(), By: "queue " + x.GetQueues()[0]}
	case x.GetTasks() > 0:
		return core.InUse{Kind: "limiter", ID: x.GetName(), By: fmt.Sprintf("tasks: %d", x.GetTasks())}
	}
	return nil
}
