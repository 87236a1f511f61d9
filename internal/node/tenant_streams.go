package node

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Streams of tenants that have a bound on them. Each node counts its own, and tells all others at each look how many those are; it lets one
// more in while its own and what it was told of others are below the bound. So what is opened beyond it is what is opened at several
// nodes between two looks. Nothing of it is replicated: a node that is gone counts for toldFor.

// toldFor is for how long what another node told of its streams counts.
const toldFor = 3 * time.Second

// maxTold bounds the tenants of one message.
const maxTold = 10_000

// tenantStreams counts streams by tenant.
type tenantStreams struct {
	mu sync.Mutex // guards all fields
	// bounds are those of tenants that have one.
	bounds map[core.TenantID]int64
	// own are the streams of this node, of tenants that have any.
	own map[core.TenantID]int64
	// told is what other nodes told, by replica.
	told map[uint64]toldStreams
}

// toldStreams is what another node told.
type toldStreams struct {
	// at is the boot time at which it came.
	at time.Duration
	// open are its streams, of tenants that have a bound.
	open map[core.TenantID]int64
}

// all is how many streams a tenant has at this node and, as it was told, at others. ts.mu is held.
func (ts *tenantStreams) all(tenant core.TenantID, now time.Duration) int64 {
	n := ts.own[tenant]
	for _, t := range ts.told {
		if now-t.at <= toldFor {
			n += t.open[tenant]
		}
	}
	return n
}

// OpenStream counts a stream of a partition's tenant in, unless the tenant has as many as it may. CloseStream must follow one that
// was counted.
func (n *Node) OpenStream(p core.Partition) core.Fact {
	ts := &n.streams
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if most := ts.bounds[p.Tenant]; most > 0 && ts.all(p.Tenant, n.o.Clock.Boot()) >= most {
		n.CountRefusal(core.Bound{Tenant: p.Tenant, Name: "streams"})
		return core.Exhausted{Limit: "tenant_streams", Max: most}
	}
	if ts.own == nil {
		ts.own = make(map[core.TenantID]int64)
	}
	ts.own[p.Tenant]++
	return nil
}

// CloseStream counts a stream out.
func (n *Node) CloseStream(p core.Partition) {
	ts := &n.streams
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.own[p.Tenant]--; ts.own[p.Tenant] <= 0 {
		delete(ts.own, p.Tenant)
	}
}

// openStreams is how many streams a tenant has, as far as this node knows.
func (n *Node) openStreams(tenant core.TenantID) int64 {
	n.streams.mu.Lock()
	defer n.streams.mu.Unlock()
	return n.streams.all(tenant, n.o.Clock.Boot())
}

// boundStreams takes over how many streams tenants may have, and tells the other nodes how many of theirs are here.
func (n *Node) boundStreams(tenants map[core.TenantID]core.TenantConfig) {
	bounds := make(map[core.TenantID]int64)
	for id, c := range tenants {
		if c.Streams > 0 {
			bounds[id] = c.Streams
		}
	}
	msg := n.streams.bound(bounds)
	if len(bounds) > 0 {
		n.others(func(m *core.Member) { n.send(m.Replica, 0, Control, msg) })
	}
}

// bound takes over the bounds, and returns what other nodes are told: a tenant and its streams here (4 bytes each), for each tenant that
// has a bound and a stream.
func (ts *tenantStreams) bound(bounds map[core.TenantID]int64) []byte {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.bounds = bounds
	msg := []byte{peerStreams}
	for _, id := range slices.Sorted(maps.Keys(bounds)) {
		if own := ts.own[id]; own > 0 && len(msg) < 8*maxTold {
			msg = binary.BigEndian.AppendUint32(msg, uint32(id))
			msg = binary.BigEndian.AppendUint32(msg, uint32(min(own, 1<<31)))
		}
	}
	return msg
}

// takeStreams takes what another node tells.
func (n *Node) takeStreams(from uint64, b []byte) {
	if len(b)%8 != 0 || len(b) > 8*maxTold {
		return
	}
	t := toldStreams{at: n.o.Clock.Boot(), open: make(map[core.TenantID]int64, len(b)/8)}
	for ; len(b) > 0; b = b[8:] {
		t.open[core.TenantID(binary.BigEndian.Uint32(b))] += int64(binary.BigEndian.Uint32(b[4:]))
	}
	ts := &n.streams
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.told == nil {
		ts.told = make(map[uint64]toldStreams)
	}
	ts.told[from] = t
	for id, old := range ts.told { // replicas that were removed
		if t.at-old.at > toldFor {
			delete(ts.told, id)
		}
	}
}
