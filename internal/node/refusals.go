package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// What bounds refused. Each node counts in its memory what it refused itself: what it applied for its own clients, and what it held to
// rates. A restart begins at 0. Who asks is told the sum of the nodes that answer.

// refusalsWait is for how long a node waits for the counts of another one. They are figures to look at: a node that hangs must not hold
// up who reads a configuration.
const refusalsWait = 500 * time.Millisecond

// CountRefusal counts that a bound refused something, or held it up.
func (n *Node) CountRefusal(b core.Bound) {
	if b.Tenant != 0 {
		n.refusals.Add(b, n.o.Clock.Boot(), n.o.Clock.Wall())
	}
}

// countRefused counts the commits of a partition that bounds refused.
func (n *Node) countRefused(p core.Partition, results []core.Result) {
	for i := range results {
		if r := results[i].Refusal; r != nil {
			if b, ok := core.BoundOf(p, r.Fact); ok {
				n.CountRefusal(b)
			}
		}
	}
}

// refusalsHere is what this node counted of a namespace, or of a tenant.
func (n *Node) refusalsHere(tenant core.TenantID, namespace core.NamespaceID) core.Refusals {
	list, partial := n.refusals.Of(tenant, namespace, n.o.Clock.Boot())
	return core.Refusals{Bounds: list, Nodes: []core.Counting{{Node: n.o.Name, Since: n.started}}, Partial: partial}
}

// Refusals returns what the bounds of a namespace, or of a tenant where namespace is 0, refused in the last day, as all nodes count it that
// answer. Partial says that not all did.
func (n *Node) Refusals(ctx context.Context, tenant core.TenantID, namespace core.NamespaceID) core.Refusals {
	all := []uint64{n.o.Replica}
	n.others(func(m *core.Member) { all = append(all, m.Replica) })
	answers, answered := n.askWorkers(ctx, all, workersAsk{Tenant: tenant, Namespace: namespace, Refusals: true})
	out := core.Refusals{Partial: answered < len(all)}
	for _, a := range answers {
		if a.Refusals == nil { // of an older program
			out.Partial = true
			continue
		}
		out.Partial = out.Partial || a.Refusals.Partial
		out.Nodes = append(out.Nodes, a.Refusals.Nodes...)
		out.Bounds = sumRefused(out.Bounds, a.Refusals.Bounds)
	}
	slices.SortFunc(out.Nodes, func(a, b core.Counting) int { return strings.Compare(a.Node, b.Node) })
	slices.SortFunc(out.Bounds, func(a, b core.Refused) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
	})
	return out
}

// sumRefused adds the counts of another node.
func sumRefused(sum, more []core.Refused) []core.Refused {
	for _, m := range more {
		i := slices.IndexFunc(sum, func(s core.Refused) bool { return s.Name == m.Name })
		if i < 0 {
			sum = append(sum, m)
			continue
		}
		sum[i].Count += m.Count
		if m.Last.After(sum[i].Last) {
			sum[i].Last = m.Last
		}
	}
	return sum
}
