package server

import (
	"context"
	"net/http"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// balance has every node that is reached lead home what it leads and is not at home with it, and returns how the cluster
// looked just before that began.
func (c *coordinator) balance(ctx context.Context) (ClusterStatus, error) {
	if c.peers == nil {
		return ClusterStatus{}, core.Unavailable{Reason: "no_cluster"}
	}
	before := c.status(ctx)
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
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

// clusterBalance has all shards go home.
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
