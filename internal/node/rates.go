package node

import (
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/rate"
)

// KeyPace tells what is put in a second in all keyspaces of a partition's namespace, or of its tenant, where that has a rate.
func (n *Node) KeyPace(p core.Partition, ofTenant bool) core.KeyPace {
	k := rate.Key{Tenant: p.Tenant, Namespace: p.Namespace}
	if ofTenant {
		k.Namespace = 0
	}
	return n.rates.Pace(k, n.o.Clock.Boot())
}

// TakeRate takes what ops put in keyspaces of a partition from the rates of these, of the namespace and of the tenant: all of it,
// or nothing. It returns how long to wait before it is asked again, and the limit that is the reason; zero: it is taken. Where
// another node leads the partition nothing is taken, as the client is sent there, unless the ops are carried there.
func (n *Node) TakeRate(p core.Partition, ops []core.Op, carried bool) (wait time.Duration, by core.RateHeld) {
	if !n.rates.Any() {
		return 0, by
	}
	if s, err := n.shardOf(p); err != nil || !carried && !s.view.ready.Load() {
		return 0, by
	}
	return n.rates.Take(p, ops, n.o.Clock.Boot())
}

// TakeCreates takes tasks that are created in partitions of a tenant from its rate, as TakeRate does.
func (n *Node) TakeCreates(p core.Partition, tasks int, carried bool) (wait time.Duration, by core.RateHeld) {
	if !n.rates.Any() {
		return 0, by
	}
	if s, err := n.shardOf(p); err != nil || !carried && !s.view.ready.Load() {
		return 0, by
	}
	return n.rates.TakeCreates(p.Tenant, tasks, n.o.Clock.Boot())
}

// CreatePace tells how many tasks a tenant creates in a second, as puts, where that has a rate.
func (n *Node) CreatePace(tenant core.TenantID) core.KeyPace {
	return n.rates.Pace(rate.TasksOf(tenant), n.o.Clock.Boot())
}

// shareRates tells the leader of shard 0 what this node took. The leader itself is told at once.
func (n *Node) shareRates(now time.Duration) {
	if !n.rates.Any() {
		return
	}
	used := n.rates.Report(now)
	if term, serves := n.Leads(0); serves {
		n.rates.Learn(n.rates.Settle(term, n.o.Replica, used, now), now, now)
		return
	}
	msg := binary.BigEndian.AppendUint64([]byte{peerRatesUsed}, uint64(now))
	n.send(n.shards[0].view.leader.Load(), 0, Control, rate.AppendUsed(msg, used))
}

// takeUsed answers another node, when this one leads shard 0.
func (n *Node) takeUsed(from uint64, b []byte) {
	used, ok := rate.DecodeUsed(b)
	term, serves := n.Leads(0)
	if !ok || !serves || !n.rates.Any() {
		return
	}
	shared := n.rates.Settle(term, from, used, n.o.Clock.Boot())
	n.send(from, 0, Control, rate.AppendShared(append([]byte{peerRatesShared}, b[:8]...), shared))
}

// takeShared takes an answer.
func (n *Node) takeShared(from uint64, b []byte) {
	shared, ok := rate.DecodeShared(b)
	if !ok || n.shards[0].view.leader.Load() != from || !n.rates.Any() {
		return
	}
	now := n.o.Clock.Boot()
	n.rates.Learn(shared, min(time.Duration(binary.BigEndian.Uint64(b)), now), now)
}
