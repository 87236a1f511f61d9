package node

import (
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/rate"
	"github.com/millrace/millrace/internal/store"
)

// Keyspaces with bounds, and namespaces and tenants with bounds on all of theirs. What they take on disk is measured by each
// node on its own replicas, of all partitions; the leader of each partition commits the sum, which Apply compares with the
// bound. So replicas agree on what is refused, and no node asks another. What is bounded as a whole is measured more often while
// what is put could take it beyond its bound: so that this is by no more than what is put in two seconds. Rates are for rate.go,
// which gets a new table of them every half a second.

// quotas is what looking after bounds remembers; it is owned by who tends the disk.
type quotas struct {
	// Boot time of the next measurement; zero: nothing is bounded.
	measureAt time.Duration
	// What is to be measured is on its way to files.
	flushed bool
	// Boot time at which it was asked to be written out.
	flushedAt time.Duration
	// By shard: the index up to which its state must be in files.
	marks []uint64
	// What was measured last, in bytes.
	last map[rate.Key]uint64
	// Bytes put up to what was measured last, and up to what is measured next.
	put [2]map[rate.Key]uint64
	// Bytes put at the last look.
	seen map[rate.Key]uint64
}

const (
	// flushBefore is how long before a measurement what lies in memory is written out, so that it counts. One that cannot be
	// written out is not waited for.
	flushBefore = time.Second
	// pressLooks is how many looks ahead something is measured whose bound may be passed until then.
	pressLooks = 3
)

// measure tells what the keys in [from, to) of a shard take on the disk of this node.
type measure func(s *store.Shard, from, to []byte) (uint64, error)

// boundedPart is a partition with bounds on keys: those of its tenant and its namespace, and those of single keyspaces.
type boundedPart struct {
	// The shard that the partition lies in.
	shard *shard
	// The partition, which this node leads or follows.
	p core.Partition
	// The bounds of its tenant, as this node's copy of the directory has them.
	tenant core.TenantConfig
	// What the partition was told of its tenant.
	told core.TenantUse
	// The bounds of its namespace.
	config core.NamespaceConfig
	// Bytes of all keyspaces of the namespace, as measured last.
	used uint64
	// Bytes of keys and values that were put since the start.
	put uint64
	// The keyspaces that have a bound or a rate of their own.
	spaces []core.KeyspaceInfo
}

// tendQuotas publishes rates, and from time to time measures what keyspaces take.
func (n *Node) tendQuotas(now time.Duration) error {
	tenants, err := n.tenantConfigs()
	if err != nil {
		return err
	}
	n.weighTenants(tenants)
	n.tendTasks(tenants)
	n.boundStreams(tenants)
	parts := n.boundedParts(tenants)
	table := make(map[rate.Key]core.KeyRate)
	measured := false
	for id, c := range tenants {
		addRate(table, rate.Key{Tenant: id}, core.KeyRate{Puts: c.KeyRate, Bytes: c.KeyByteRate})
		addRate(table, rate.TasksOf(id), core.KeyRate{Puts: c.CreateRate})
		measured = measured || c.KeyBytes > 0 // also of nothing, which is what is told then
	}
	for i := range parts {
		b := &parts[i]
		addRate(table, b.key(""), core.KeyRate{Puts: b.config.KeyRate, Bytes: b.config.KeyByteRate})
		measured = measured || b.config.KeyBytes > 0 || b.told.Bound > 0
		for _, ks := range b.spaces {
			addRate(table, b.key(ks.Name), core.KeyRate{Puts: ks.Config.WriteRate, Bytes: ks.Config.ByteRate})
			measured = measured || ks.Config.Bytes > 0
		}
	}
	n.rates.Publish(table, len(n.who().list), now)
	q := &n.quotas
	if !measured {
		*q = quotas{}
		return nil
	}
	put := make(map[rate.Key]uint64)
	for i := range parts {
		put[parts[i].key("")] += parts[i].put
		put[rate.Key{Tenant: parts[i].p.Tenant}] += parts[i].put
	}
	pressed := q.pressed(put, tenants, parts)
	q.seen = put
	switch {
	case q.flushed && (n.inFiles(q.marks) || now >= q.flushedAt+flushBefore):
		q.flushed, q.measureAt, q.put[0] = false, now+n.o.QuotaEvery, q.put[1]
		sums, err := n.measure(tenants, parts)
		q.last = sums
		return err
	case q.flushed:
	case q.measureAt == 0 || now >= q.measureAt-flushBefore || pressed && now >= q.flushedAt+flushBefore:
		q.flushed, q.flushedAt, q.put[1], q.marks = true, now, put, q.marks[:0]
		for _, s := range n.shards {
			q.marks = append(q.marks, s.view.applied.Load())
		}
		n.o.Store.RequestFlush()
	}
	return nil
}

// pressed reports whether a namespace or a tenant may have passed its bound since it was measured, or may soon: it took as much
// less as what was put since, or was never measured. What was put over something else counts as well, so this only says when to
// measure.
func (q *quotas) pressed(put map[rate.Key]uint64, tenants map[core.TenantID]core.TenantConfig, parts []boundedPart) bool {
	beyond := func(k rate.Key, bound int64) bool {
		had, known := q.last[k]
		if bound <= 0 || known && had > uint64(bound) {
			return false
		}
		since, now := put[k]-min(q.put[0][k], put[k]), put[k]-min(q.seen[k], put[k])
		return !known || had+since+pressLooks*now > uint64(bound)
	}
	for i := range parts {
		if b := &parts[i]; beyond(b.key(""), b.config.KeyBytes) || beyond(rate.Key{Tenant: b.p.Tenant}, tenants[b.p.Tenant].KeyBytes) {
			return true
		}
	}
	return false
}

// inFiles reports whether all shards' states are in files up to an entry each.
func (n *Node) inFiles(marks []uint64) bool {
	for i, s := range n.shards {
		if s.store.Durable() < marks[i] {
			return false
		}
	}
	return true
}

// key names a keyspace of the partition's namespace; all of them without a name.
func (b *boundedPart) key(keyspace string) rate.Key {
	return rate.Key{Tenant: b.p.Tenant, Namespace: b.p.Namespace, Keyspace: keyspace}
}

// addRate enters a rate; one without any bound is left out.
func addRate(table map[rate.Key]core.KeyRate, k rate.Key, r core.KeyRate) {
	if r != (core.KeyRate{}) {
		table[k] = r
	}
}

// boundedParts lists the partitions of all shards that have a bound of any kind.
func (n *Node) boundedParts(tenants map[core.TenantID]core.TenantConfig) (out []boundedPart) {
	for _, s := range n.shards {
		out = s.boundedParts(tenants, out)
	}
	return out
}

// boundedParts adds the partitions of a shard that have a bound of any kind.
func (s *shard) boundedParts(tenants map[core.TenantID]core.TenantConfig, out []boundedPart) []boundedPart {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	s.applier.machine.EachKV(func(p core.Partition, c core.NamespaceConfig, m *kv.Machine) {
		b := boundedPart{s, p, tenants[p.Tenant], m.Tenant(), c, m.Used(), m.Put(), m.Bounded()}
		if len(b.spaces) > 0 || c.KeyBytes != 0 || c.KeyRate != 0 || c.KeyByteRate != 0 || b.tenant.KeyBytes != 0 || b.told.Bound != 0 {
			out = append(out, b)
		}
	})
	return out
}

// measure sums up what the keyspaces of each namespace take, those with a bound each and all together where the namespace or
// the tenant has one, and proposes it where this node leads.
func (n *Node) measure(tenants map[core.TenantID]core.TenantConfig, parts []boundedPart) (sums map[rate.Key]uint64, err error) {
	sums = make(map[rate.Key]uint64)
	for i := range parts {
		if err := parts[i].sum(n.o.measure, sums); err != nil {
			return nil, err
		}
	}
	n.noteTenants(tenants, sums)
	for i := range parts {
		b := &parts[i]
		var ops []core.Op
		if op := b.news(sums); len(op.Items) > 0 {
			ops = append(ops, op)
		}
		if op := b.newsOfTenant(sums); op != nil {
			ops = append(ops, op)
		}
		if len(ops) == 0 || !b.shard.view.ready.Load() {
			continue
		}
		commit := core.Commit{Partition: b.p, Principal: "millrace", Ops: ops}
		b.shard.enqueue(&proposal{
			commits: []core.Commit{commit}, bytes: commit.EncodedSize(), done: func(core.Proposed) {}, // the next one tells again
		}, false)
	}
	return sums, nil
}

// sum adds what the partition's keyspaces take, as far as it is bounded.
func (b *boundedPart) sum(of measure, sums map[rate.Key]uint64) error {
	if b.config.KeyBytes > 0 || b.tenant.KeyBytes > 0 {
		from, to := keys.KVs(b.p)
		bytes, err := of(b.shard.store, from, to)
		if err != nil {
			return err
		}
		sums[b.key("")] += bytes
		sums[rate.Key{Tenant: b.p.Tenant}] += bytes
	}
	for _, ks := range b.spaces {
		from, to := keys.KVRange(b.p, ks.Incarnation, nil)
		bytes, err := of(b.shard.store, from, to)
		if err != nil {
			return err
		}
		sums[b.key(ks.Name)] += bytes
	}
	return nil
}

// news is what the partition does not know yet of its namespace and its keyspaces.
func (b *boundedPart) news(sums map[rate.Key]uint64) *core.KeyspaceUse {
	op := new(core.KeyspaceUse)
	if sum := sums[b.key("")]; b.config.KeyBytes > 0 && sum != b.used {
		op.Items = append(op.Items, core.SpaceUse{Incarnation: core.AllKeyspaces, Bytes: sum})
	}
	for _, ks := range b.spaces {
		if sum := sums[b.key(ks.Name)]; sum != ks.Measured && ks.Config.Bytes > 0 {
			op.Items = append(op.Items, core.SpaceUse{Incarnation: ks.Incarnation, Bytes: sum})
		}
	}
	return op
}
