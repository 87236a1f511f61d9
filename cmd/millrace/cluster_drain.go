package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

// stateOf returns a member's state as tables show it: with "drained" behind it if an operator keeps
// it from leading.
func stateOf(state string, drained bool) string {
	if drained {
		return state + ", drained"
	}
	return state
}

const (
	// drainWait is how long drain waits by default until the node leads nothing.
	drainWait = 10 * time.Second
	// drainLook is how often drain polls the status meanwhile.
	drainLook = 100 * time.Millisecond
)

// clusterDrainCmd makes the command that drains a node. The request itself returns at once; the
// command then polls the status until the node leads no shard, so that a script can stop the node
// afterwards.
func (a *app) clusterDrainCmd() *cobra.Command {
	m := &memberCommand{query: url.Values{}}
	var undo bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Keep a node from leading shards, for maintenance",
		Long: `Drain moves the leadership of every shard that a node leads to other nodes, and keeps the node from
leading. If the node must lead a shard because another node failed, it hands the shard on as soon as it
can. The node still votes and keeps all data. The drain lasts until --undo, over restarts too.

The command waits until the node leads no shard. It ends with 3 if the node still leads one after --wait:
then no other node has all of the log yet, and the node hands its shards over as soon as one has. The
request is refused as nobody_leads if no other node could lead. A restart needs no drain: a node that is
stopped hands its shards over by itself.`,
		Example: `  millrace cluster drain n2
  millrace cluster drain n2 --undo`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			node, err := parseNode(args[0])
			if err != nil {
				return err
			}
			m.query.Set("node", strconv.FormatUint(node, 10))
			m.verb = "drain"
			if undo {
				m.verb = "undrain"
			}
			// Only a drain waits; its end takes effect at once.
			if err := m.run(a, c, nil); err != nil || undo {
				return err
			}
			return m.leadsNothing(c.Context(), node, wait)
		},
	}
	m.flags(c)
	c.Flags().BoolVar(&undo, "undo", false, "end the drain: the node may lead again")
	spanVar(c.Flags(), &wait, "wait", drainWait, "how long to wait until the node leads no shard; 0 = do not wait")
	return c
}

// leadsNothing polls the cluster's status until node leads no shard. After wait it returns an error
// with exitUnavailable; the drain stays in force. A wait of 0 returns at once.
func (o *operator) leadsNothing(ctx context.Context, node uint64, wait time.Duration) error {
	for end := time.Now().Add(wait); wait > 0; {
		var s server.ClusterStatus
		if err := o.call(ctx, http.MethodGet, "/cluster/status", nil, &s); err != nil {
			return err
		}
		left := leadOf(&s, node)
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return exitError{exitUnavailable, fmt.Errorf("node %d still leads %d shards: it hands them over as soon as another node has all of them", node, left)}
		}
		select {
		case <-time.After(drainLook):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// leadOf returns the number of shards that node leads according to s; 0 if s does not contain the
// node.
func leadOf(s *server.ClusterStatus, node uint64) int {
	for _, n := range s.Nodes {
		if n.ID == node {
			return len(n.Leads)
		}
	}
	return 0
}

// clusterBalanceCmd makes the command that sends every shard home. It prints the status from before
// the moves, which go on after the command has ended.
func (a *app) clusterBalanceCmd() *cobra.Command {
	o := &operator{}
	c := &cobra.Command{
		Use:   "balance",
		Short: "Move the leadership of every shard to its home node",
		Long: `Balance moves the leadership of every shard to its home node at once, so that the nodes lead equal numbers
of shards; without the command the cluster does so about ten seconds after all nodes are healthy. It also
undoes what transfer has moved. A shard stays where it is while its home node is drained, cannot be
reached, or does not have all of its log yet.`,
		Example: `  millrace cluster balance`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var s server.ClusterStatus
			if err := o.call(c.Context(), http.MethodPost, "/cluster/balance", nil, &s); err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) { fmt.Fprintln(w, "shards go home; before that:"); writeCluster(w, s) })
		},
	}
	o.flags(c)
	return c
}
