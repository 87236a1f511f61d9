package apitest

import (
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
