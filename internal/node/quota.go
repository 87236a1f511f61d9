package node

import (
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/store"
)

// Keyspaces with bounds, and namespaces with bounds on all of theirs. What they take on disk is measured by each node on its
// own replicas, of all partitions of the namespace; the leader of each partition commits the sum, which Apply compares with the bound. So replicas agree on what is
// refused, and no node asks another. Rates are for the edges, which find them in a table that is made anew every second.

// quotas is what looking after bounds remembers; it is owned by who tends the disk.
type quotas struct {
	measureAt time.Duration // next time; zero: nothing is bounded
	flushed   bool          // what is to be measured is on its way to files
}

// flushBefore is how long before a measurement what lies in memory is written out, so that it counts.
const flushBefore = time.Second

// measure tells what the keys in [from, to) of a shard take on the disk of this node.
type measure func(s *store.Shard, from, to []byte) (uint64, error)

// rateKey names a keyspace; all of a namespace without a name.
type rateKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	keyspace  string
}

type rates struct{ puts, bytes int64 }

// KeyRates are the puts, and the bytes of keys and values put, that a keyspace takes in a second; 0 is no bound. Without a
// name it is all keyspaces of the namespace together.
func (n *Node) KeyRates(p core.Partition, keyspace string) (puts, bytes int64) {
	table := n.rates.Load()
	if table == nil {
		return 0, 0
	}
	r := (*table)[rateKey{p.Tenant, p.Namespace, keyspace}]
	return r.puts, r.bytes
}

// boundedPart is a partition with bounds on keys: those of its namespace, and those of single keyspaces.
type boundedPart struct {
	shard  *shard
	p      core.Partition
	config core.NamespaceConfig
	used   uint64 // by all keyspaces, as measured last
	spaces []core.KeyspaceInfo
}

// tendQuotas publishes rates, and from time to time measures what keyspaces take.
func (n *Node) tendQuotas(now time.Duration) error {
	parts := n.boundedParts()
	table := make(map[rateKey]rates)
	measured := false
	for i := range parts {
		b := &parts[i]
		b.rate(table, "", rates{b.config.KeyRate, b.config.KeyByteRate})
		measured = measured || b.config.KeyBytes > 0
		for _, ks := range b.spaces {
			b.rate(table, ks.Name, rates{ks.Config.WriteRate, ks.Config.ByteRate})
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
		return n.measure(parts)
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

func (b *boundedPart) rate(table map[rateKey]rates, keyspace string, r rates) {
	if r != (rates{}) {
		table[b.key(keyspace)] = r
	}
}

// boundedParts lists the partitions of all shards that have a bound of any kind.
func (n *Node) boundedParts() (out []boundedPart) {
	for _, s := range n.shards {
		s.machineMu.RLock()
		s.machine.EachKV(func(p core.Partition, c core.NamespaceConfig, m *kv.Machine) {
			b := boundedPart{s, p, c, m.Used(), m.Bounded()}
			if len(b.spaces) > 0 || c.KeyBytes != 0 || c.KeyRate != 0 || c.KeyByteRate != 0 {
				out = append(out, b)
			}
		})
		s.machineMu.RUnlock()
	}
	return out
}

// measure sums up what the keyspaces of each namespace take, those with a bound each and all together where that has one,
// and proposes it where this node leads.
func (n *Node) measure(parts []boundedPart) error {
	sums := make(map[rateKey]uint64)
	for i := range parts {
		b := &parts[i]
		if b.config.KeyBytes > 0 {
			from, to := keys.KVs(b.p)
			bytes, err := n.o.measure(b.shard.store, from, to)
			if err != nil {
				return err
			}
			sums[b.key("")] += bytes
		}
		for _, ks := range b.spaces {
			from, to := keys.KVRange(b.p, ks.Incarnation, nil)
			bytes, err := n.o.measure(b.shard.store, from, to)
			if err != nil {
				return err
			}
			sums[b.key(ks.Name)] += bytes
		}
	}
	for i := range parts {
		b := &parts[i]
		op := new(core.KeyspaceUse)
		if sum := sums[b.key("")]; b.config.KeyBytes > 0 && sum != b.used {
			op.Items = append(op.Items, core.SpaceUse{Incarnation: core.AllKeyspaces, Bytes: sum})
		}
		for _, ks := range b.spaces {
			if sum := sums[b.key(ks.Name)]; sum != ks.Measured && ks.Config.Bytes > 0 {
				op.Items = append(op.Items, core.SpaceUse{Incarnation: ks.Incarnation, Bytes: sum})
			}
		}
		if len(op.Items) == 0 || !b.shard.ready.Load() {
			continue
		}
		commit := core.Commit{Partition: b.p, Principal: "millrace", Ops: []core.Op{op}}
		b.shard.enqueue(&proposal{
			commits: []core.Commit{commit}, bytes: commit.EncodedSize(), done: func(core.Proposed) {}, // the next one tells again
		}, false)
	}
	return nil
}
