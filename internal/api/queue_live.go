package api

import (
	"context"
	"math"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/history"
)

// HistoryBackend tells what the counters of queues were, as this node has seen them.
type HistoryBackend interface {
	// QueueRates returns what a queue did per second in the last minute, and its completions in each of the last half minutes. ok
	// says whether the rates are known.
	QueueRates(tenant core.TenantID, namespace core.NamespaceID, queue string) (rates history.Rates, spark []uint32, ok bool)
}

// showQueues shows queues with what their counters do not tell: rates, workers and limits.
func (c *call) showQueues(ctx context.Context, stats []core.QueueStats) []*pb.QueueStats {
	out := make([]*pb.QueueStats, len(stats))
	if len(stats) == 0 {
		return out
	}
	workers, known := c.workersOf(ctx)
	for i := range stats {
		q := showStats(&stats[i])
		rates, spark, ok := c.queueRates(q.Queue)
		if ok {
			q.Rates = &pb.QueueRates{
				Created: shownRate(rates.Created), Completed: shownRate(rates.Completed), Failed: shownRate(rates.Failed), Crashed: shownRate(rates.Crashed),
			}
		}
		if known {
			n := workers[q.Queue]
			q.Workers = &n
		}
		q.Spark, q.Limits = spark, showLimits(&stats[i].Config)
		out[i] = q
	}
	return out
}

// queueRates is HistoryBackend.QueueRates of a queue of the call's namespace.
func (c *call) queueRates(queue string) (history.Rates, []uint32, bool) {
	return c.s.o.Backend.QueueRates(c.t.part.Tenant, c.t.part.Namespace, queue)
}

// workersOf counts who serves each queue. known is false when a leader did not tell.
func (c *call) workersOf(ctx context.Context) (workers map[string]uint32, known bool) {
	list, partial := c.s.o.Backend.Workers(ctx, c.partitions)
	if partial {
		return nil, false
	}
	workers = make(map[string]uint32)
	for i := range list {
		for _, queue := range list[i].Queues {
			workers[queue]++
		}
	}
	return workers, true
}

// shownRate rounds a rate to thousandths.
func shownRate(r float64) float64 { return math.Round(r*1000) / 1000 }

// showLimits shows what a configuration bounds; unset: nothing.
func showLimits(c *core.QueueConfig) *pb.QueueLimits {
	l := &c.Limits
	out := &pb.QueueLimits{MaxTasks: l.MaxTasks, MaxBytes: l.MaxBytes, DefaultTtl: spanOf(l.DefaultTTL), Ceilings: showCeilings(l)}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}
