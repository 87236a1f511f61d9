package node

import (
	"maps"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Quotas of tasks. Each node has a replica of every partition, so it knows what a tenant has in all of them; the leader of a partition
// tells it what the bounds are, where they are not the defaults, and what the others have, while the tenant is near a bound. What is
// taken beyond it over several partitions is what they take between two looks.

// nearPart is the part of a bound that is left where a tenant is near it.
const nearPart = 16

// taskPart is a partition, as far as its tenant's quota of tasks goes.
type taskPart struct {
	// The shard that it lies in.
	shard *shard
	p     core.Partition
	// What its tasks take.
	use core.TaskUse
	// What it was told.
	told core.TenantQuota
}

// tendTasks tells partitions what their tenants may have of tasks, and keeps what tenants have for those who ask.
func (n *Node) tendTasks(tenants map[core.TenantID]core.TenantConfig) {
	var parts []taskPart
	sums := make(map[core.TenantID]core.TaskUse)
	for _, s := range n.shards {
		parts = s.taskParts(parts)
	}
	for i := range parts {
		b := &parts[i]
		sums[b.p.Tenant] = sums[b.p.Tenant].Plus(b.use)
	}
	had := n.taskUse.Swap(&sums)
	if had == nil || n.Format() < core.FormatShare {
		return
	}
	for i := range parts {
		b := &parts[i]
		if !b.shard.view.ready.Load() {
			continue
		}
		sum, before := sums[b.p.Tenant], (*had)[b.p.Tenant]
		op := b.news(tenants[b.p.Tenant].Tasks, sum, sum.Less(before))
		if op == b.told {
			continue
		}
		commit := core.Commit{Partition: b.p, Principal: "millrace", Ops: []core.Op{&op}}
		b.shard.enqueue(&proposal{
			commits: []core.Commit{commit}, bytes: commit.EncodedSize(), done: func(core.Proposed) {}, // the next look tells again
		}, false)
	}
}

// taskParts adds the partitions of a shard, without its own.
func (s *shard) taskParts(out []taskPart) []taskPart {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	s.applier.machine.EachQueues(func(p core.Partition, m *queue.Machine) {
		if p.Tenant != 0 {
			out = append(out, taskPart{s, p, m.Use(), m.Quota()})
		}
	})
	return out
}

// news is what the partition is to know. What others have matters only where the tenant has nearly all that it may have, or may come
// there before the next looks, growing as it did since the last one: far below the bound nothing is told.
func (b *taskPart) news(bounds core.TaskBounds, sum, grown core.TaskUse) core.TenantQuota {
	out, most, others := core.TenantQuota{Bounds: bounds}, bounds.OrDefault(), sum.Less(b.use)
	near := func(sum, grown uint64, most int64) bool { return sum+pressLooks*grown >= uint64(most-most/nearPart) }
	if near(sum.Tasks, grown.Tasks, most.Tasks) {
		out.Others.Tasks = others.Tasks
	}
	if near(sum.Bytes, grown.Bytes, most.Bytes) {
		out.Others.Bytes = others.Bytes
	}
	if near(sum.Running, grown.Running, most.Running) {
		out.Others.Running = others.Running
	}
	return out
}

// weighTenants tells all shards how much of an entry tenants may take while others wait too.
func (n *Node) weighTenants(tenants map[core.TenantID]core.TenantConfig) {
	weights := make(map[core.TenantID]int64)
	for id, c := range tenants {
		if c.Weight > 0 {
			weights[id] = c.Weight
		}
	}
	if maps.Equal(weights, n.weights) {
		return
	}
	n.weights = weights
	for _, s := range n.shards {
		s.in.weigh(weights)
	}
}
