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
	// Recent returns what a queue did in the last minutes; ok says whether that is known.
	Recent(tenant core.TenantID, namespace core.NamespaceID, queue string) (recent history.Recent, ok bool)
	// History returns all series of a queue, of a namespace or of the node; ok says whether there are any.
	History(k history.Key, day bool) (lines []history.Line, ok bool)
	// NodeAt tells where a node is, by its number: here, or at an address.
	NodeAt(node uint64) (address string, here, known bool)
	// CountRefusal counts that a bound refused something, or held it up. The node counts by itself what it refuses.
	CountRefusal(b core.Bound)
	// Refusals returns what the bounds of a namespace, or of a tenant where namespace is 0, refused in the last day, as all nodes count
	// it that answer.
	Refusals(ctx context.Context, tenant core.TenantID, namespace core.NamespaceID) core.Refusals
}

// showQueues shows queues with what their counters do not tell: rates, workers and limits.
func (c *call) showQueues(ctx context.Context, stats []core.QueueStats) []*pb.QueueStats {
	out := make([]*pb.QueueStats, len(stats))
	if len(stats) == 0 {
		return out
	}
	workers := c.workersOf(ctx)
	for i := range stats {
		q := showStats(&stats[i])
		rates, spark, ok := c.queueRates(q.Queue)
		if ok {
			q.Rates = showRates(rates)
		}
		if workers.queues != nil {
			n := workers.queues[q.Queue]
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
	// slots are those of all workers together, and used those that have tasks.
	slots, used uint64
}

// workerCounts are the counts of a node, of its doors together.
type workerCounts struct {
	// mu guards the fields below.
	mu     sync.Mutex
	spaces map[workerSpace]workerCount
}

// begin returns the count that there is of a namespace. stale says that the caller is to count again; all others have the old count until
// it has.
func (w *workerCounts) begin(k workerSpace, now time.Duration) (count workerCount, stale bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, there := w.spaces[k]
	if there && now-old.at < workersFor {
		return old, false
	}
	if w.spaces == nil || len(w.spaces) >= maxWorkerCounts {
		w.spaces = make(map[workerSpace]workerCount)
	}
	next := old
	next.at = now
	w.spaces[k] = next
	return workerCount{at: now}, true
}

// end keeps a count.
func (w *workerCounts) end(k workerSpace, count workerCount) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.spaces[k]; there {
		w.spaces[k] = count
	}
}

// workersOf counts who serves each queue, as it was at most workersFor ago. Without queues a leader did not tell.
func (c *call) workersOf(ctx context.Context) workerCount {
	k, now := workerSpace{c.t.part.Tenant, c.t.part.Namespace}, c.s.o.Clock.Boot()
	count, stale := c.s.counted.begin(k, now)
	if !stale {
		return count
	}
	list, partial := c.s.o.Backend.Workers(ctx, c.partitions)
	if !partial {
		count.queues = make(map[string]uint32)
		for i := range list {
			w := &list[i]
			for _, queue := range w.Queues {
				count.queues[queue]++
			}
			count.slots += uint64(w.Slots)
			count.used += uint64(w.Running)
		}
	}
	c.s.counted.end(k, count)
	return count
}

// showRates shows rates, rounded.
func showRates(r history.Rates) *pb.QueueRates {
	return &pb.QueueRates{
		Created: shownRate(r.Created), Completed: shownRate(r.Completed), Failed: shownRate(r.Failed), Crashed: shownRate(r.Crashed),
	}
}

// shownRate rounds a rate to thousandths.
func shownRate(r float64) float64 { return math.Round(r*1000) / 1000 }

// showLimits shows what a configuration bounds; unset: nothing.
func showLimits(c *core.QueueConfig) *pb.QueueLimits {
	l := &c.Limits
	s := &c.Share
	out := &pb.QueueLimits{
		MaxTasks: l.MaxTasks, MaxBytes: l.MaxBytes, DefaultTtl: spanOf(l.DefaultTTL), Ceilings: showCeilings(l),
		Concurrency: s.Concurrency, Rate: showRate(s.Rate), PerKey: showPerKey(s), MaxWorkers: s.MaxWorkers, Limiters: s.LimiterNames(),
	}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}
