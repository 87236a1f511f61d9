package apitest

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/history"
)

// QueueRates tells the rates that a test has set, each with a spark line of one half minute.
func (n *Node) QueueRates(_ core.TenantID, _ core.NamespaceID, queue string) (history.Rates, []uint32, bool) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	r, ok := n.QueueHas[queue]
	if !ok {
		return r, nil, false
	}
	return r, []uint32{uint32(30 * r.Completed)}, true
}

// Recent tells what a test has set.
func (n *Node) Recent(_ core.TenantID, _ core.NamespaceID, queue string) (history.Recent, bool) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	r, ok := n.QueueDid[queue]
	return r, ok
}

// History tells what a test has set: the series of every queue.
func (n *Node) History(k history.Key, _ bool) ([]history.Line, bool) {
	n.reach(core.Partition{Tenant: k.Tenant, Namespace: k.Namespace})
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.Lines, n.Lines != nil
}

// NodeAt knows this node alone, whose number is 1.
func (n *Node) NodeAt(node uint64) (address string, here, known bool) {
	return "", node == 1, node == 1
}

// CountRefusal counts a refusal.
func (n *Node) CountRefusal(b core.Bound) {
	n.step()
	n.refusals.Add(b, n.Clock.Boot(), n.Clock.Wall())
}

// Refusals tells what was counted.
func (n *Node) Refusals(_ context.Context, tenant core.TenantID, namespace core.NamespaceID) core.Refusals {
	n.step()
	list, partial := n.refusals.Of(tenant, namespace, n.Clock.Boot())
	return core.Refusals{Bounds: list, Nodes: []core.Counting{{Node: "n1", Since: n.Clock.Wall()}}, Partial: partial}
}
