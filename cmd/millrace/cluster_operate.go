package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

// operator is how a cluster command reaches a node: over gRPC with a token that has the scope
// cluster, like every other command, or through the operator's socket of a node on this machine.
// Both ways give the same answers.
type operator struct {
	connection
	// Path of the operator's socket. If it is set, no server and no token may be.
	socket string
}

// flags adds the flags of both ways. They are not persistent: each cluster command has its own
// operator.
func (o *operator) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.address, "server", "", "host:port of any node's server; default MILLRACE_URL, then 127.0.0.1:7081")
	o.token.add(f, "token", "token with the scope cluster; default MILLRACE_TOKEN")
	f.BoolVar(&o.insecure, "insecure", false, "plain text to an address that is not loopback")
	f.StringVar(&o.socket, "socket", "", "operator socket of a node on this machine, such as ./data/operator.sock; replaces --server and the token")
	spanVar(f, &o.timeout, "timeout", defaultTimeout, "give up after this time")
}

// maxSocketAnswer bounds an answer of the operator's socket: the status of a cluster of 100 nodes with 64 shards.
const maxSocketAnswer = 4 << 20

// call sends one request and decodes the answer into out, a pointer to one of the types that ask
// knows. method and path are those of the operator's socket; over gRPC the path alone selects the
// call. An unreachable node is an error with exitUnavailable.
func (o *operator) call(ctx context.Context, method, path string, query url.Values, out any) error {
	switch {
	case o.socket == "":
		return o.ask(ctx, path, query, out)
	case o.address != "" || o.token.given() || o.insecure:
		return usageError{errors.New("--socket and --server, --token or --insecure are mutually exclusive")}
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	// The host is a placeholder: the connection always goes to the socket.
	to := url.URL{Scheme: "http", Host: "operator", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", o.socket)
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return exitError{exitUnavailable, fmt.Errorf("operator's socket %s: %w", o.socket, err)}
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSocketAnswer))
	if err != nil {
		return exitError{exitUnavailable, fmt.Errorf("operator's socket %s: %w", o.socket, err)}
	}
	return o.told(resp.StatusCode, body, out)
}

// told decodes an answer of the operator's socket. A status other than 200 is an error with the
// text of the answer. A plain 404, without the code NOT_FOUND, means that the server does not know
// the path: it is an older program, or the socket is not a Millrace server's.
func (o *operator) told(status int, body []byte, out any) error {
	switch status {
	case http.StatusOK:
		if err := json.Unmarshal(body, out); err != nil {
			return fmt.Errorf("operator's socket %s: read its answer: %w", o.socket, err)
		}
		return nil
	case http.StatusServiceUnavailable:
		return exitError{exitUnavailable, errors.New(strings.TrimSpace(string(body)))}
	// A refusal begins with its code; a 404 of the HTTP server itself does not.
	case http.StatusNotFound:
		if said := strings.TrimSpace(string(body)); strings.HasPrefix(said, "NOT_FOUND") {
			return errors.New(said)
		}
		return fmt.Errorf("%s is not the socket of a server that knows this command", o.socket)
	}
	return errors.New(strings.TrimSpace(string(body)))
}

// clusterStatusCmd makes the command that shows the cluster as one node sees it. It exits with 3 if
// anything is missing, so that a script can wait for a healthy cluster.
func (a *app) clusterStatusCmd() *cobra.Command {
	o := &operator{}
	shard := -1
	c := &cobra.Command{
		Use:   "status",
		Short: "Show every node of a cluster: the shards that it leads, its lag, and whether it is reached",
		Long: `Status asks one node, which asks the others. A node that it does not reach is shown with the reason. Lag is the number of log entries
that are committed and that the node has not applied yet.

Exit 0: all nodes are reached and all shards are led. 3: they are not, or no node answers.`,
		Example: `  millrace cluster status
  millrace cluster status --server 127.0.0.1:7401 --json
  millrace cluster status --socket ./cluster/n1/data/operator.sock`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var s server.ClusterStatus
			if err := o.call(c.Context(), http.MethodGet, "/cluster/status", nil, &s); err != nil {
				return err
			}
			if shard >= 0 {
				if err := onlyShard(&s, shard); err != nil {
					return err
				}
			}
			// The status is printed before the exit code is decided, as it shows what is missing.
			if err := a.print(s, func(w io.Writer) { writeCluster(w, s) }); err != nil {
				return err
			}
			if what := lacking(s); what != "" {
				return exitError{exitUnavailable, errors.New(what)}
			}
			return nil
		},
	}
	o.flags(c)
	c.Flags().IntVar(&shard, "shard", -1, "show only this shard")
	return c
}

// onlyShard reduces a status to one shard, in place; a node's lag becomes its lag in that shard. It
// returns an error if the shard does not exist.
func onlyShard(s *server.ClusterStatus, shard int) error {
	s.Shards = slices.DeleteFunc(s.Shards, func(x server.ShardStatus) bool { return x.Shard != shard })
	if len(s.Shards) == 0 {
		return fmt.Errorf("shard %d does not exist", shard)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Leads = slices.DeleteFunc(n.Leads, func(x int) bool { return x != shard })
		n.Replicas = slices.DeleteFunc(n.Replicas, func(x server.ReplicaRow) bool { return x.Shard != shard })
		// A node has at most one replica of a shard that is left, whose lag becomes the node's.
		n.Lag = 0
		for _, r := range n.Replicas {
			n.Lag = r.Lag
		}
	}
	return nil
}

// lacking returns what is wrong with a cluster: nodes that are not reached and shards without a
// leader. An empty text means nothing.
func lacking(s server.ClusterStatus) string {
	var out []string
	for _, n := range s.Nodes {
		if !n.Reachable {
			out = append(out, fmt.Sprintf("node %d is not reached", n.ID))
		}
	}
	for _, shard := range s.Shards {
		if shard.Leader == 0 {
			out = append(out, fmt.Sprintf("none of the nodes reached leads shard %d", shard.Shard))
		}
	}
	return strings.Join(out, "; ")
}

// writeCluster prints a cluster's status in two tables, nodes and shards, then the change of
// membership, warnings, and why nodes are not reached or not ready.
func writeCluster(out io.Writer, s server.ClusterStatus) {
	fmt.Fprintf(out, "cluster %s, as node %d sees it, writing format %d\n\n", cmp.Or(s.Cluster, "none: a server by itself"), s.Asked, s.Format)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tNAME\tSTATE\tADDRESS\tGRPC\tREACHED\tLEADS\tLAG")
	for _, n := range s.Nodes {
		// The lag of a node that is not reached is not known, so its column stays empty.
		reached, lag, leads := "yes", strconv.FormatUint(n.Lag, 10), strings.Trim(fmt.Sprint(n.Leads), "[]")
		switch {
		case !n.Reachable:
			reached, lag = "no", ""
		case n.Unready != "":
			reached = "not ready"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.ID, cmp.Or(n.Name, "-"), cmp.Or(stateOf(n.State, n.Drained), "-"), cmp.Or(n.Address, "-"), n.GRPC, reached, cmp.Or(leads, "-"), cmp.Or(lag, "-"))
	}
	_ = w.Flush() // of a writer whose errors the last write shows
	fmt.Fprintln(out)
	fmt.Fprintln(w, "SHARD\tLEADER\tTERM\tCOMMITTED\tAPPLIED (NODE:INDEX)")
	for _, shard := range s.Shards {
		leader := "none"
		if shard.Leader != 0 {
			leader = strconv.FormatUint(shard.Leader, 10)
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%s\n", shard.Shard, leader, shard.Term, shard.Commit, appliedOf(s, shard.Shard))
	}
	_ = w.Flush() // likewise
	writeJob(out, s.Job)
	for _, text := range s.Warnings() {
		fmt.Fprintln(out, "\nwarning:", text)
	}
	for _, n := range s.Nodes {
		if why := cmp.Or(n.Error, n.Unready); why != "" {
			fmt.Fprintf(out, "\nnode %d: %s\n", n.ID, why)
		}
	}
}

// appliedOf returns, for each node that has a replica of shard, the node's number and the index of
// the last entry that it applied.
func appliedOf(s server.ClusterStatus, shard int) string {
	var out []string
	for _, n := range s.Nodes {
		for _, r := range n.Replicas {
			if r.Shard == shard {
				out = append(out, fmt.Sprintf("%d:%d", n.ID, r.Applied))
			}
		}
	}
	return strings.Join(out, " ")
}

// clusterTransferCmd makes the command that moves the leadership of one shard.
func (a *app) clusterTransferCmd() *cobra.Command {
	o := &operator{}
	var shard uint16
	var to uint64
	c := &cobra.Command{
		Use:   "transfer --shard S --to NODE",
		Short: "Move the leadership of a shard to another node",
		Long: `Transfer asks one node to have a shard led by the node that --to names. It takes
milliseconds: the shard holds writes back meanwhile, and no write is left in doubt. The shard stays with
that node until the node stops or the shard is moved again. A shard that was not moved returns to its home,
which is node SHARD modulo NODES, about ten seconds after that node can lead it.

The node must have nearly all of the shard's log. Otherwise the request is refused, and the leader stays.`,
		Example: `  millrace cluster transfer --shard 2 --to 1`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("shard") || to == 0 {
				return usageError{errors.New("--shard and --to are required")}
			}
			query := url.Values{"shard": {strconv.Itoa(int(shard))}, "to": {strconv.FormatUint(to, 10)}}
			var out movedShard
			if err := o.call(c.Context(), http.MethodPost, "/cluster/transfer", query, &out); err != nil {
				return err
			}
			return a.print(out, func(w io.Writer) { fmt.Fprintf(w, "node %d leads shard %d\n", out.Leader, out.Shard) })
		},
	}
	o.flags(c)
	c.Flags().Uint16Var(&shard, "shard", 0, "number of the shard (required)")
	c.Flags().Uint64Var(&to, "to", 0, "number of the node (required)")
	return c
}
