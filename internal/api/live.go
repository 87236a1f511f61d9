package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// This file reads what is sent live. It reads this node's replica as it is: who looks on again and again needs no answer of a majority,
// and a reading that is a little old is followed by the next one.

// Space is a namespace of a tenant.
type Space struct{ Tenant, Name string }

// asLive reads this node's replica.
var asLive = core.ReadOptions{Stale: true}

// beginLive is begin for a reading that no one call asks for.
func (s *Server) beginLive(ctx context.Context, in Space) (*call, error) {
	ctx = edge.WithCaller(ctx, auth.Holder{Principal: auth.Principal{Tenant: in.Tenant}})
	return s.begin(edge.WithNamespace(ctx, in.Name), false)
}

// unlessUnknown is an error that says something else than that the namespace is not there.
func unlessUnknown(err error) error {
	if edge.UnknownNamespace(err) {
		return nil
	}
	return err
}

// liveEach reads each partition, and returns where the parts stand, in the order of partitions.
func (c *call) liveEach(read func(p core.Partition) (core.At, error)) (at []core.At, err error) {
	var mu sync.Mutex // guards at
	err = c.each(0, func(p core.Partition) error {
		one, err := read(p)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		at = append(at, one)
		return nil
	})
	slices.SortFunc(at, func(a, b core.At) int { return cmp.Compare(a.Partition, b.Partition) })
	return at, err
}

// LiveQueue reads the counters of a queue, of all partitions together. NotFound: no partition has it.
func (s *Server) LiveQueue(ctx context.Context, in Space, name string) (*pb.QueueStats, []core.At, error) {
	c, err := s.beginLive(ctx, in)
	if edge.UnknownNamespace(err) {
		return nil, nil, core.NotFound{Kind: "queue", ID: name}
	}
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex // guards the counters
	parts := make([]*core.QueueStats, c.t.parts)
	at, err := c.liveEach(func(p core.Partition) (core.At, error) {
		one, at, err := s.node.queues.Queue(ctx, p, name, asLive)
		if err == nil {
			mu.Lock()
			parts[p.Index] = &one
			mu.Unlock()
		}
		return at, ignoreNotFound(err)
	})
	if err != nil {
		return nil, nil, err
	}
	var q core.QueueStats
	for _, one := range parts {
		if one != nil {
			sum(&q, one)
			q.Config = one.Config
		}
	}
	if q.Queue == "" {
		return nil, nil, core.NotFound{Kind: "queue", ID: name}
	}
	return c.showQueues(ctx, []core.QueueStats{q})[0], at, nil
}

// LiveQueues reads the counters of the first queues by name, of all partitions together. A namespace that is not there has none.
func (s *Server) LiveQueues(ctx context.Context, in Space, limit int) ([]*pb.QueueStats, []core.At, error) {
	c, all, at, err := s.liveQueues(ctx, in, limit, nil)
	if err != nil || c == nil {
		return nil, at, err
	}
	return c.showQueues(ctx, all), at, nil
}

// liveQueues reads what LiveQueues shows. Without a namespace there is no call. each is told of the queues of each partition, one partition
// at a time; it may be nil.
func (s *Server) liveQueues(ctx context.Context, in Space, limit int, each func([]core.QueueStats)) (c *call, all []core.QueueStats, at []core.At, err error) {
	c, err = s.beginLive(ctx, in)
	if err != nil {
		return nil, nil, nil, unlessUnknown(err)
	}
	all, at, err = c.allQueues(ctx, limit, each)
	return c, all, at, err
}

// allQueues reads the counters of the first queues by name, of all partitions together, as liveQueues does.
func (c *call) allQueues(ctx context.Context, limit int, each func([]core.QueueStats)) (all []core.QueueStats, at []core.At, err error) {
	var mu sync.Mutex // guards all
	at, err = c.liveEach(func(p core.Partition) (core.At, error) {
		one, at, err := c.s.node.queues.Queues(ctx, p, "", limit, asLive)
		if err != nil {
			return at, err
		}
		mu.Lock()
		defer mu.Unlock()
		if each != nil {
			each(one)
		}
		all = mergeQueues(all, one, limit)
		return at, nil
	})
	return all, at, err
}

// LiveTask reads a task.
func (s *Server) LiveTask(ctx context.Context, in Space, id core.TaskID) (*pb.Task, []core.At, error) {
	c, err := s.beginLive(ctx, in)
	if err != nil {
		return nil, nil, noTask(err, id.String())
	}
	if err := c.goTo(ctx, id); err != nil {
		return nil, nil, err
	}
	t, at, err := s.node.tasks.Task(ctx, c.t.part, id, asLive)
	if err != nil {
		return nil, nil, err
	}
	return ShowTask(&t), []core.At{at}, nil
}

// liveSeen is to what the times of workers are rounded: they are heard of all the time, and nothing need be told of that alone.
const liveSeen = 10 * time.Second

// LiveWorkers reads who takes tasks of a namespace. A namespace that is not there has none. partial is as in a list of workers.
func (s *Server) LiveWorkers(ctx context.Context, in Space) (list []*pb.Worker, partial bool, err error) {
	c, err := s.beginLive(ctx, in)
	if err != nil {
		return nil, false, unlessUnknown(err)
	}
	found, partial := s.Workers().workers.Workers(ctx, c.partitions)
	for i := range found {
		w := &found[i]
		w.Since, w.Seen = liveTime(w.Since), liveTime(w.Seen)
	}
	list, cut := showWorkers(found, "")
	return list, partial || cut, nil
}

// liveTime rounds a time down to liveSeen.
func liveTime(t core.ShardTime) core.ShardTime { return t - t%core.ShardTime(liveSeen.Milliseconds()) }

// LiveBulk reads a job about many tasks, its parts in all partitions as one. NotFound: no partition has it.
func (s *Server) LiveBulk(ctx context.Context, in Space, id core.TaskID) (*pb.BulkJob, []core.At, error) {
	unknown := core.NotFound{Kind: "bulk", ID: id.String()}
	c, err := s.beginLive(ctx, in)
	if edge.UnknownNamespace(err) {
		return nil, nil, unknown
	}
	if err != nil {
		return nil, nil, err
	}
	parts := make([]*core.BulkJob, c.t.parts) // each is written by one reading
	at, err := c.liveEach(func(p core.Partition) (core.At, error) {
		list, at, err := s.node.bulk.Bulks(ctx, p, asLive)
		if i := slices.IndexFunc(list, func(j core.BulkJob) bool { return j.ID == id }); i >= 0 {
			estimate(list[i:i+1], s.wallTime(p))
			parts[p.Index] = &list[i]
		}
		return at, err
	})
	if err != nil {
		return nil, nil, err
	}
	var all []core.BulkJob
	for _, one := range parts {
		if one != nil {
			all = addJob(all, one)
		}
	}
	if len(all) == 0 {
		return nil, nil, unknown
	}
	return showJob(&all[0]), at, nil
}
