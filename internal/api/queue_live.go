package api

import (
	"context"
	"math"
	"sync"
	"time"

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

const (
	// workersFor is how long a count of workers is shown: the leaders look at all running tasks for it, and counters are asked for often.
	workersFor = 5 * time.Second
	// maxWorkerCounts bounds the namespaces of which a count is kept, at about 10 KB each. Beyond it all are counted again.
	maxWorkerCounts = 1000
)

// workerSpace is a namespace whose workers were counted.
type workerSpace struct {
	tenant    core.TenantID
	namespace core.NamespaceID
}

// workerCount is who serves each queue of a namespace.
type workerCount struct {
	// When the count began, by the boot clock.
	at time.Duration
	// By queue; nil: a leader did not tell, or the first count is under way. It is not changed.
	queues map[string]uint32
}

// workerCounts are the counts of a node, of its doors together.
type workerCounts struct {
	// mu guards the fields below.
	mu     sync.Mutex
	spaces map[workerSpace]workerCount
}

// begin returns the count that there is of a namespace. stale says that the caller is to count again; all others have the old count until
// it has.
func (w *workerCounts) begin(k workerSpace, now time.Duration) (queues map[string]uint32, stale bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, there := w.spaces[k]
	if there && now-old.at < workersFor {
		return old.queues, false
	}
	if w.spaces == nil || len(w.spaces) >= maxWorkerCounts {
		w.spaces = make(map[workerSpace]workerCount)
	}
	w.spaces[k] = workerCount{now, old.queues}
	return nil, true
}

// end keeps a count.
func (w *workerCounts) end(k workerSpace, count workerCount) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.spaces[k]; there {
		w.spaces[k] = count
	}
}

// workersOf counts who serves each queue, as it was at most workersFor ago. known is false when a leader did not tell.
func (c *call) workersOf(ctx context.Context) (workers map[string]uint32, known bool) {
	k, now := workerSpace{c.t.part.Tenant, c.t.part.Namespace}, c.s.o.Clock.Boot()
	workers, stale := c.s.counted.begin(k, now)
	if !stale {
		return workers, workers != nil
	}
	list, partial := c.s.o.Backend.Workers(ctx, c.partitions)
	if !partial {
		workers = make(map[string]uint32)
		for i := range list {
			for _, queue := range list[i].Queues {
				workers[queue]++
			}
		}
	}
	c.s.counted.end(k, workerCount{now, workers})
	return workers, !partial
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
