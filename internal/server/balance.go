package server

import (
	"context"
	"net/http"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// balance asks every node that is reached to hand the shards that it leads to their home nodes. It
// returns the status from before, as the moves go on after the call. A node that is not reached
// leads nothing for long, so it is left out.
func (c *coordinator) balance(ctx context.Context) (ClusterStatus, error) {
	if c.peers == nil {
		return ClusterStatus{}, core.Unavailable{Reason: "no_cluster"}
	}
	before := c.status(ctx)
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	// All nodes are asked at the same time, so that one slow node does not keep the others from
	// moving.
	var all sync.WaitGroup
	for _, n := range before.Nodes {
		all.Go(func() {
			if n.ID == c.o.Cluster.Node {
				c.node.Balance()
			} else if n.Reachable {
				_, _ = c.ask(ctx, n.ID, query{Do: "balance"}) // a node that is gone by now leads nothing
			}
		})
	}
	all.Wait()
	c.o.audit(ctx, "balance", nil)
	return before, nil
}

// clusterBalance serves the balance over the operator's socket.
func (a *admin) clusterBalance(w http.ResponseWriter, r *http.Request) {
	p := a.parts.Load()
	if p == nil {
		plain(w, http.StatusServiceUnavailable, a.unready())
		return
	}
	s, err := p.asks.balance(r.Context())
	if err != nil {
		code, text := refusedChange(err)
		plain(w, code, text)
		return
	}
	asJSON(w, s)
}
