package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// This file reads live what is set or opened by people and programs: crons, limiters and batches. What their tasks are made of is shown
// without its payload, which may be long and does not change by itself.

// LiveCrons reads the first crons by name, of all partitions together, each with its last run. A namespace that is not there has none.
func (s *Server) LiveCrons(ctx context.Context, in Space, limit int) (list []*pb.Cron, at []core.At, err error) {
	c, err := s.beginLive(ctx, in)
	if err != nil {
		return nil, nil, unlessUnknown(err)
	}
	all, at, _, err := s.Crons().page(ctx, c, core.CronQuery{Limit: limit, Runs: 1}, "", asLive)
	for i := range all {
		one := showCron(&all[i], 0)
		one.Config.Template.Payload = nil
		list = append(list, one)
	}
	return list, at, err
}

// LiveLimiters reads all limiters by name, with what is used of each in all partitions. A namespace that is not there has none.
func (s *Server) LiveLimiters(ctx context.Context, in Space) (list []*pb.Limiter, at []core.At, err error) {
	c, err := s.beginLive(ctx, in)
	if err != nil {
		return nil, nil, unlessUnknown(err)
	}
	all, at, err := s.Limiters().page(ctx, c, limiterPage{limit: core.MaxNamespaceLimiters}, asLive)
	for i := range all {
		list = append(list, c.showLimiter(&all[i]))
	}
	return list, at, err
}

// LiveBatch reads a batch and its counts.
func (s *Server) LiveBatch(ctx context.Context, in Space, id core.TaskID) (*pb.Batch, []core.At, error) {
	unknown := core.NotFound{Kind: "batch", ID: id.String()}
	c, err := s.beginLive(ctx, in)
	if edge.UnknownNamespace(err) {
		return nil, nil, unknown
	}
	if err != nil {
		return nil, nil, err
	}
	p, ok := c.t.partOf(id)
	if !ok {
		return nil, nil, unknown
	}
	b, at, err := s.node.batches.Batch(ctx, p, id, asLive)
	if err != nil {
		return nil, nil, err
	}
	out := showBatch(&b)
	for _, follow := range [...]*pb.TaskTemplate{out.OnDone, out.OnSuccess} {
		if follow != nil {
			follow.Payload = nil
		}
	}
	return out, []core.At{at}, nil
}
