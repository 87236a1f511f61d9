package node

import (
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
)

// Keyspaces with bounds. What they take on disk is measured by each node on its own replicas, of all partitions of the
// namespace; the leader of each partition commits the sum, which Apply compares with the bound. So replicas agree on what is
// refused, and no node asks another. Rates are for the edges, which find them in a table that is made anew every second.

// quotas is what looking after bounds remembers; it is owned by who tends the disk.
type quotas struct {
	measureAt time.Duration // next time; zero: nothing is bounded
	flushed   bool          // what is to be measured is on its way to files
}

// flushBefore is how long before a measurement what lies in memory is written out, so that it counts.
const flushBefore = time.Second

// rateKey names a keyspace.
type rateKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	keyspace  string
}

type rates struct{ puts, bytes int64 }

// KeyRates are the puts, and the bytes of keys and values put, that a keyspace takes in a second; 0 is no bound.
func (n *Node) KeyRates(p core.Partition, keyspace string) (puts, bytes int64) {
	table := n.rates.Load()
	if table == nil {
		return 0, 0
	}
	r := (*table)[rateKey{p.Tenant, p.Namespace, keyspace}]
	return r.puts, r.bytes
}

// boundedSpace is a keyspace of one partition.
type boundedSpace struct {
	shard *shard
	p     core.Partition
	core.KeyspaceInfo
}

// tendQuotas publishes rates, and from time to time measures what keyspaces take.
func (n *Node) tendQuotas(now time.Duration) error {
	spaces := n.boundedSpaces()
	table := make(map[rateKey]rates)
	measured := false
	for _, b := range spaces {
		if b.Config.WriteRate != 0 || b.Config.ByteRate != 0 {
			table[b.key()] = rates{b.Config.WriteRate, b.Config.ByteRate}
		}
		measured = measured || b.Config.Bytes > 0
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
		return n.measure(spaces)
	case !q.flushed && now >= q.measureAt-flushBefore:
		q.flushed = true
		n.o.Store.RequestFlush()
	}
	return nil
}

func (b *boundedSpace) key() rateKey { return rateKey{b.p.Tenant, b.p.Namespace, b.Name} }

// boundedSpaces lists the keyspaces of all shards that have a bound of any kind.
func (n *Node) boundedSpaces() (out []boundedSpace) {
	for _, s := range n.shards {
		s.machineMu.RLock()
		s.machine.EachKV(func(p core.Partition, m *kv.Machine) {
			for _, k := range m.Bounded() {
				out = append(out, boundedSpace{s, p, k})
			}
		})
		s.machineMu.RUnlock()
	}
	return out
}

// measure sums up what each keyspace takes, and proposes it where this node leads.
func (n *Node) measure(spaces []boundedSpace) error {
	sums := make(map[rateKey]uint64)
	for i := range spaces {
		b := &spaces[i]
		bytes, err := b.shard.store.RangeBytes(keys.KVRange(b.p, b.Incarnation, nil))
		if err != nil {
			return err
		}
		sums[b.key()] += bytes
	}
	for i := 0; i < len(spaces); {
		first := &spaces[i]
		op := new(core.KeyspaceUse)
		for ; i < len(spaces) && spaces[i].p == first.p; i++ {
			if b := &spaces[i]; sums[b.key()] != b.Measured && b.Config.Bytes > 0 {
				op.Items = append(op.Items, core.SpaceUse{Incarnation: b.Incarnation, Bytes: sums[b.key()]})
			}
		}
		if len(op.Items) == 0 || !first.shard.ready.Load() {
			continue
		}
		commit := core.Commit{Partition: first.p, Principal: "millrace", Ops: []core.Op{op}}
		first.shard.enqueue(&proposal{
			commits: []core.Commit{commit}, bytes: commit.EncodedSize(), done: func(core.Proposed) {}, // the next one tells again
		}, false)
	}
	return nil
}
