package api

import (
	"cmp"
	"context"
	"slices"
	"sync"

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
		}
	}
	if q.Queue == "" {
		return nil, nil, core.NotFound{Kind: "queue", ID: name}
	}
	return showStats(&q), at, nil
}

// LiveQueues reads the counters of the first queues by name, of all partitions together. A namespace that is not there has none.
func (s *Server) LiveQueues(ctx context.Context, in Space, limit int) ([]*pb.QueueStats, []core.At, error) {
	c, err := s.beginLive(ctx, in)
	if err != nil {
		if edge.UnknownNamespace(err) {
			err = nil
		}
		return nil, nil, err
	}
	var mu sync.Mutex // guards all
	var all []core.QueueStats
	at, err := c.liveEach(func(p core.Partition) (core.At, error) {
		one, at, err := s.node.queues.Queues(ctx, p, "", limit, asLive)
		if err == nil {
			mu.Lock()
			all = mergeQueues(all, one, limit)
			mu.Unlock()
		}
		return at, err
	})
	out := make([]*pb.QueueStats, len(all))
	for i := range all {
		out[i] = showStats(&all[i])
	}
	return out, at, err
}

// LiveTask reads a task.
func (s *Server) LiveTask(ctx context.Context, in Space, id core.TaskID) (*pb.Task, []core.At, error) {
	c, err := s.beginLive(ctx, in)
	if err != nil {
		return nil, nil, noTask(err, id.String())
	}
	if !c.goTo(id) {
		return nil, nil, core.NotFound{Kind: "task", ID: id.String()}
	}
	t, at, err := s.node.tasks.Task(ctx, c.t.part, id, asLive)
	if err != nil {
		return nil, nil, err
	}
	return showTask(&t), []core.At{at}, nil
}
