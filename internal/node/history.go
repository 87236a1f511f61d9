package node

import (
	"cmp"
	"slices"
	"sync/atomic"
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
	n.history.Add(history.Key{Node: true}, n.sampleSelf())
	for _, s := range n.shards {
		s.view.pace.take(now, s.view.applied.Load())
	}
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

// sampleSelf returns the counters of the node itself.
func (n *Node) sampleSelf() (c history.Counters) {
	const kib, mib = 1 << 10, 1 << 20
	log, st := n.o.Log.Stats(), n.o.Store.Stats()
	c[history.Entries], c[history.Syncs], c[history.LogKiB], c[history.Mutations] = log.Entries, log.Syncs, log.Bytes/kib, st.Mutations
	c[history.LogOnDiskMiB] = log.SegmentBytes / mib
	if free, _, err := n.o.FS.Disk(n.o.Dir); err == nil {
		c[history.DiskFreeMiB] = free / mib
	}
	if n.o.Resident != nil {
		c[history.MemoryMiB] = n.o.Resident() / mib
	}
	return c
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
		c[history.Dead] += t.States[core.Dead]
		sum[name] = c
	})
}

// knownPartitions returns the partitions that the machine knows.
func (s *shard) knownPartitions() []core.Partition {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	return s.applier.machine.Partitions()
}

// History returns all series of a queue, of a namespace or of this node, as this node has seen them.
func (n *Node) History(k history.Key, day bool) ([]history.Line, bool) { return n.history.All(k, day) }

// NodeAt tells where a node is, by its number: here, or at the address that clients reach it by.
func (n *Node) NodeAt(node uint64) (address string, here, known bool) {
	if node == n.o.Node {
		return "", true, true
	}
	list := n.who().list
	for i := range list {
		if list[i].Node == node {
			return list[i].API, false, list[i].API != ""
		}
	}
	return "", false, false
}

// Recent returns what a queue did lately; ok says whether that is known.
func (n *Node) Recent(tenant core.TenantID, namespace core.NamespaceID, queue string) (r history.Recent, ok bool) {
	return n.history.Recent(history.Key{Tenant: tenant, Namespace: namespace, Queue: queue}, n.o.Clock.Boot())
}

// entryPace is how many entries a shard applied per second between the last two samples.
type entryPace struct {
	// The last sample: when, by the boot clock, and what was applied. Only the goroutine that samples has them.
	at      time.Duration
	applied uint64
	// Entries per second times 1,000; negative: not known.
	milli atomic.Int64
}

// take takes a sample.
func (p *entryPace) take(now time.Duration, applied uint64) {
	rate := int64(-1)
	if p.at > 0 && now > p.at && applied >= p.applied {
		rate = int64(float64(applied-p.applied) * 1000 / (now - p.at).Seconds())
	}
	p.at, p.applied = now, applied
	p.milli.Store(rate)
}

// QueueRates returns what a queue did in the last minute and in each of the last half minutes, by this node's replicas; an empty queue:
// all of the namespace together. ok says whether the rates are known. A spark line of which nothing is known is nil.
func (n *Node) QueueRates(tenant core.TenantID, namespace core.NamespaceID, queue string) (rates history.Rates, spark []uint32, ok bool) {
	k, now := history.Key{Tenant: tenant, Namespace: namespace, Queue: queue}, n.o.Clock.Boot()
	rates, ok = n.history.Rates(k, now)
	return rates, n.history.Spark(k, now), ok
}
