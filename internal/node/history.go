package node

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/machine/queue"
)

// sampled is a partition of which this node has a replica.
type sampled struct {
	p core.Partition
	s *shard
}

// sampleHistory samples the counters of all queues, once in each step of the history. The applier goes on in between.
func (n *Node) sampleHistory(now time.Duration) {
	step := int64(now / history.Step)
	if n.sampledStep == step+1 {
		return
	}
	n.sampledStep = step + 1
	var all []sampled
	for _, s := range n.shards {
		for _, p := range s.knownPartitions() {
			if p != systemPartition {
				all = append(all, sampled{p, s})
			}
		}
	}
	slices.SortFunc(all, func(a, b sampled) int {
		return cmp.Or(cmp.Compare(a.p.Tenant, b.p.Tenant), cmp.Compare(a.p.Namespace, b.p.Namespace), cmp.Compare(a.p.Index, b.p.Index))
	})
	n.history.Begin(now, n.o.Clock.Wall())
	defer n.history.End()
	sum := make(map[string]history.Counters, n.sampledQueues) // of one namespace at a time
	n.sampledQueues = 0
	for len(all) > 0 {
		first := all[0].p
		clear(sum)
		for len(all) > 0 && all[0].p.Tenant == first.Tenant && all[0].p.Namespace == first.Namespace {
			all[0].sample(sum)
			all = all[1:]
		}
		n.sampledQueues = max(n.sampledQueues, len(sum))
		var total history.Counters
		for name, c := range sum {
			for i := range c {
				total[i] += c[i]
			}
			if name != "" {
				n.history.Add(history.Key{Tenant: first.Tenant, Namespace: first.Namespace, Queue: name}, c)
			}
		}
		n.history.Add(history.Key{Tenant: first.Tenant, Namespace: first.Namespace}, total)
	}
}

// sample adds the counters of a partition, by queue. Those of queues that were removed have no name.
func (a sampled) sample(sum map[string]history.Counters) {
	for at, more := uint32(0), true; more; {
		at, more = a.sampleSome(at, sum)
	}
}

// sampleSome adds the next queues of a partition, and returns where to go on, if there are more.
func (a sampled) sampleSome(at uint32, sum map[string]history.Counters) (next uint32, more bool) {
	a.s.applier.machineMu.RLock()
	defer a.s.applier.machineMu.RUnlock()
	m := a.s.applier.machine.Queue(a.p)
	if m == nil {
		return at, false
	}
	return m.EachTotals(at, totalsStep, func(name string, t *queue.Totals) {
		c := sum[name]
		c[history.Created] += t.Created
		c[history.Completed] += t.Completed
		c[history.Failed] += t.Failed
		c[history.Crashed] += t.Crashed
		c[history.Ready] += t.States[core.Ready]
		c[history.Running] += t.States[core.Running]
		sum[name] = c
	})
}

// knownPartitions returns the partitions that the machine knows.
func (s *shard) knownPartitions() []core.Partition {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	return s.applier.machine.Partitions()
}

// QueueRates returns what a queue did in the last minute and in each of the last half minutes, by this node's replicas; an empty queue:
// all of the namespace together. ok says whether the rates are known. A spark line of which nothing is known is nil.
func (n *Node) QueueRates(tenant core.TenantID, namespace core.NamespaceID, queue string) (rates history.Rates, spark []uint32, ok bool) {
	k, now := history.Key{Tenant: tenant, Namespace: namespace, Queue: queue}, n.o.Clock.Boot()
	rates, ok = n.history.Rates(k, now)
	return rates, n.history.Spark(k, now), ok
}
