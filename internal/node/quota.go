package node

import (
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/store"
)

// Keyspaces with bounds, and namespaces and tenants with bounds on all of theirs. What they take on disk is measured by each
// node on its own replicas, of all partitions; the leader of each partition commits the sum, which Apply compares with the
// bound. So replicas agree on what is refused, and no node asks another. Rates are for the edges, which find them in a table
// that is made anew every second.

// quotas is what looking after bounds remembers; it is owned by who tends the disk.
type quotas struct {
	measureAt time.Duration // next time; zero: nothing is bounded
	flushed   bool          // what is to be measured is on its way to files
}

// flushBefore is how long before a measurement what lies in memory is written out, so that it counts.
const flushBefore = time.Second

// measure tells what the keys in [from, to) of a shard take on the disk of this node.
type measure func(s *store.Shard, from, to []byte) (uint64, error)

// rateKey names a keyspace; without a name all of a namespace, and without a namespace, of which none has the number 0, all of
// a tenant.
type rateKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	keyspace  string
}

// KeyRates are the rates that a put in a keyspace is held to: the keyspace's, its namespace's and its tenant's.
func (n *Node) KeyRates(p core.Partition, keyspace string) (of [3]core.KeyRate) {
	table := n.rates.Load()
	if table == nil {
		return of
	}
	for i, k := range [3]rateKey{{p.Tenant, p.Namespace, keyspace}, {p.Tenant, p.Namespace, ""}, {p.Tenant, 0, ""}} {
		of[i] = (*table)[k]
	}
	return of
}

// boundedPart is a partition with bounds on keys: those of its tenant and its namespace, and those of single keyspaces.
type boundedPart struct {
	shard  *shard
	p      core.Partition
	tenant core.TenantConfig
	told   core.TenantUse // what the partition was told of its tenant
	config core.NamespaceConfig
	used   uint64 // by all keyspaces of the namespace, as measured last
	spaces []core.KeyspaceInfo
}

// tendQuotas publishes rates, and from time to time measures what keyspaces take.
func (n *Node) tendQuotas(now time.Duration) error {
	tenants, err := n.tenantConfigs()
	if err != nil {
		return err
	}
	parts := n.boundedParts(tenants)
	table := make(map[rateKey]core.KeyRate)
	measured := false
	for id, c := range tenants {
		rate(table, rateKey{tenant: id}, core.KeyRate{Puts: c.KeyRate, Bytes: c.KeyByteRate})
		measured = measured || c.KeyBytes > 0 // also of nothing, which is what is told then
	}
	for i := range parts {
		b := &parts[i]
		rate(table, b.key(""), core.KeyRate{Puts: b.config.KeyRate, Bytes: b.config.KeyByteRate})
		measured = measured || b.config.KeyBytes > 0 || b.told.Bound > 0
		for _, ks := range b.spaces {
			rate(table, b.key(ks.Name), core.KeyRate{Puts: ks.Config.WriteRate, Bytes: ks.Config.ByteRate})
			measured = measured || ks.Config.Bytes > 0
		}
	}
	if len(table) > 0 || n.rates.Load() != nil {
		n.rates.Store(&table)
	}
	switch q := &n.quotas; {
	case !measured:
		*q = quotas{}
	case q.measureAt == 0:
		q.measureAt = now + n.o.QuotaEvery
	case now >= q.measureAt:
		*q = quotas{measureAt: now + n.o.QuotaEvery}
		return n.measure(tenants, parts)
	case !q.flushed && now >= q.measureAt-flushBefore:
		q.flushed = true
		n.o.Store.RequestFlush()
	}
	return nil
}

// key names a keyspace of the partition's namespace; all of them without a name.
func (b *boundedPart) key(keyspace string) rateKey {
	return rateKey{b.p.Tenant, b.p.Namespace, keyspace}
}

func rate(table map[rateKey]core.KeyRate, k rateKey, r core.KeyRate) {
	if r != (core.KeyRate{}) {
		table[k] = r
	}
}

// boundedParts lists the partitions of all shards that have a bound of any kind.
func (n *Node) boundedParts(tenants map[core.TenantID]core.TenantConfig) (out []boundedPart) {
	for _, s := range n.shards {
		s.machineMu.RLock()
		s.machine.EachKV(func(p core.Partition, c core.NamespaceConfig, m *kv.Machine) {
			b := boundedPart{s, p, tenants[p.Tenant], m.Tenant(), c, m.Used(), m.Bounded()}
			if len(b.spaces) > 0 || c.KeyBytes != 0 || c.KeyRate != 0 || c.KeyByteRate != 0 || b.tenant.KeyBytes != 0 || b.told.Bound != 0 {
				out = append(out, b)
			}
		})
		s.machineMu.RUnlock()
	}
	return out
}

// measure sums up what the keyspaces of each namespace take, those with a bound each and all together where the namespace or
// the tenant has one, and proposes it where this node leads.
func (n *Node) measure(tenants map[core.TenantID]core.TenantConfig, parts []boundedPart) error {
	sums := make(map[rateKey]uint64)
	for i := range parts {
		if err := parts[i].sum(n.o.measure, sums); err != nil {
			return err
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
		if len(ops) == 0 || !b.shard.ready.Load() {
			continue
		}
		commit := core.Commit{Partition: b.p, Principal: "millrace", Ops: ops}
		b.shard.enqueue(&proposal{
			commits: []core.Commit{commit}, bytes: commit.EncodedSize(), done: func(core.Proposed) {}, // the next one tells again
		}, false)
	}
	return nil
}

// sum adds what the partition's keyspaces take, as far as it is bounded.
func (b *boundedPart) sum(of measure, sums map[rateKey]uint64) error {
	if b.config.KeyBytes > 0 || b.tenant.KeyBytes > 0 {
		from, to := keys.KVs(b.p)
		bytes, err := of(b.shard.store, from, to)
		if err != nil {
			return err
		}
		sums[b.key("")] += bytes
		sums[rateKey{tenant: b.p.Tenant}] += bytes
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
func (b *boundedPart) news(sums map[rateKey]uint64) *core.KeyspaceUse {
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
