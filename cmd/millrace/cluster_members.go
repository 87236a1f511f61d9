package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

// parseNode reads the number of a node, with or without an n before it: n4 or 4. 0 is not a node.
func parseNode(text string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "n"), 10, 64)
	if err != nil || n == 0 {
		return 0, usageError{fmt.Errorf("%q is not a node; give its number, such as n4 or 4", text)}
	}
	return n, nil
}

// memberCommand is a command that changes the membership of a cluster.
type memberCommand struct {
	operator
	// The last part of the request's path, such as add or remove; see changeMembers for what each
	// does over gRPC.
	verb string
	// The parameters of the request. The command fills them before run.
	query url.Values
}

// run sends the change and prints the members and the job that resulted. more, if not nil, prints
// before the table. The change itself goes on in the cluster after the command has ended.
func (m *memberCommand) run(a *app, c *cobra.Command, more func(io.Writer, server.Membership)) error {
	var out server.Membership
	if err := m.call(c.Context(), http.MethodPost, "/cluster/members/"+m.verb, m.query, &out); err != nil {
		return err
	}
	return a.print(out, func(w io.Writer) {
		if more != nil {
			more(w, out)
		}
		writeMembers(w, out)
	})
}

// writeMembers prints the table of members, and the change that is under way.
func writeMembers(out io.Writer, m server.Membership) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tREPLICA\tNAME\tPEER\tSTATE")
	for _, x := range m.Members {
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\n", x.Node, x.Replica, cmp.Or(x.Name, "-"), cmp.Or(x.Peer, "-"), stateOf(x.State, x.Drained))
	}
	_ = w.Flush() // of a writer whose errors the last write shows
	writeJob(out, m.Job)
}

// writeJob prints the change of membership that is under way, and why it waits or is being undone;
// nothing if there is none.
func writeJob(out io.Writer, j *server.JobStatus) {
	if j == nil {
		return
	}
	fmt.Fprintf(out, "\njob %d: %s node %d: %s", j.ID, j.Kind, j.Node, j.State)
	if j.Ending != "" {
		fmt.Fprintf(out, ", being undone (%s)", j.Ending)
	}
	if j.Reason != "" {
		fmt.Fprintf(out, ": %s", j.Reason)
	}
	fmt.Fprintln(out)
}

// clusterAddCmd makes the command that admits a node. The token that it prints is the only secret
// that the new node needs besides its certificate.
func (a *app) clusterAddCmd() *cobra.Command {
	m := &memberCommand{verb: "add", query: url.Values{}}
	var peer, name string
	var learner bool
	c := &cobra.Command{
		Use:   "add NODE",
		Short: "Let a node join, and print the token that it joins with",
		Long: `Add enters a node that is to join, under the number given, and prints a token: serve --join takes it,
once, within an hour. The node then gets the state of all shards, and becomes a voter when it is at most
1,000 entries and one second behind in each: cluster status shows how far that is. With --learner it stays a learner,
which cluster promote or replace takes on.

The node announces its own addresses when it joins, under its certificate: see serve --advertise-peer.

One change of membership runs at a time. What is not done within an hour is undone.`,
		Example: `  millrace cluster add n4
  millrace serve --config n4.yaml --join 10.0.0.1:7082 --join-token-file join`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			node, err := parseNode(args[0])
			if err != nil {
				return err
			}
			m.query.Set("node", strconv.FormatUint(node, 10))
			m.query.Set("name", cmp.Or(name, fmt.Sprint("n", node)))
			if learner {
				m.query.Set("learner", "1")
			}
			return m.run(a, c, func(w io.Writer, out server.Membership) {
				fmt.Fprintf(w, "join token, for one hour: %s\n\n", out.Token)
			})
		},
	}
	m.flags(c)
	c.Flags().StringVar(&peer, "peer", "", "not used: the node announces its own address when it joins")
	_ = c.Flags().MarkHidden("peer") // scripts of earlier versions give it
	c.Flags().StringVar(&name, "name", "", "name of the node; default n followed by its number")
	c.Flags().BoolVar(&learner, "learner", false, "the node stays a learner: it has all data but does not vote")
	return c
}

// nodeCmd makes a command that applies verb to the one node that its argument names.
func (a *app) nodeCmd(verb, short, long, example string) *cobra.Command {
	m := &memberCommand{verb: verb, query: url.Values{}}
	c := &cobra.Command{
		Use: verb + " NODE", Short: short, Long: long, Example: example, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			node, err := parseNode(args[0])
			if err != nil {
				return err
			}
			m.query.Set("node", strconv.FormatUint(node, 10))
			return m.run(a, c, nil)
		},
	}
	m.flags(c)
	return c
}

// clusterRemoveCmd makes the command that removes a node for good.
func (a *app) clusterRemoveCmd() *cobra.Command {
	return a.nodeCmd("remove", "Take a node out of the cluster for good",
		`Remove has other nodes lead what the node leads, and takes it out of all shards. It then stops by itself
with exit code 23, and never starts again with the data that it has. A node that does not run is removed
too, if the others that are reached are a majority without it; otherwise that is refused as quorum_loss.`,
		`  millrace cluster remove n2`)
}

// clusterPromoteCmd makes the command that turns a learner into a voter.
func (a *app) clusterPromoteCmd() *cobra.Command {
	return a.nodeCmd("promote", "Make a voter of a learner",
		`Promote makes a voter of a node that was added with --learner. One that is more than 1,000 entries behind
in any shard is refused as learner_behind, with how many, and one that is more than a second behind as
learner_late.`,
		`  millrace cluster promote n4`)
}

// clusterReplaceCmd makes the command that swaps a voter for a learner in one configuration change
// per shard, so that the number of voters never falls in between.
func (a *app) clusterReplaceCmd() *cobra.Command {
	m := &memberCommand{verb: "replace", query: url.Values{}}
	c := &cobra.Command{
		Use:   "replace OLD NEW",
		Short: "Replace a node by a learner, in one step per shard",
		Long: `Replace makes a voter of NEW, which was added with --learner, and takes OLD out, in one step of each
shard: the number of voters stays what it is. OLD may be down. It ends as a removed node does.`,
		Example: `  millrace cluster add n4 --learner
  millrace cluster replace n2 n4`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			// The request names the member that leaves "node", and the one that comes "with".
			for i, name := range []string{"node", "with"} {
				node, err := parseNode(args[i])
				if err != nil {
					return err
				}
				m.query.Set(name, strconv.FormatUint(node, 10))
			}
			return m.run(a, c, nil)
		},
	}
	m.flags(c)
	return c
}

// clusterCancelCmd makes the command that undoes the change under way. At most one change runs at a
// time, so it needs no argument.
func (a *app) clusterCancelCmd() *cobra.Command {
	m := &memberCommand{verb: "cancel", query: url.Values{}}
	c := &cobra.Command{
		Use:   "cancel",
		Short: "Undo the change of membership that is under way",
		Long: `Cancel brings back the voters that there were before. A node that was joining leaves again; what was
done already is undone shard by shard, and cluster status shows when that has ended.`,
		Example: `  millrace cluster cancel`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return m.run(a, c, nil) },
	}
	m.flags(c)
	return c
}
