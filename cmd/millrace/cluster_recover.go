package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

// clusterRecoverCmd makes the command that turns the data of one survivor into a new cluster.
// Without --force-new-cluster it changes nothing and only reports, because the step loses
// acknowledged data and cannot be undone.
func (a *app) clusterRecoverCmd() *cobra.Command {
	var o server.RecoverOptions
	var force bool
	c := &cobra.Command{
		Use:   "recover --data DIR --force-new-cluster",
		Short: "Last resort: make one survivor of a lost majority a cluster of its own",
		Long: `Recover is for a cluster whose majority is lost for good: more than half of the data directories are gone.
It makes the directory of one survivor that of the only node of a new cluster, which has everything that
the survivor has, and can grow again. What the others acknowledged without the survivor is lost; the
command cannot list it. While a majority can be brought back, bring it back instead; if a backup
is newer than what the survivor has, restore that.

The server of the directory must not run. Without --force-new-cluster the command only says what the
directory has. The log with the old votes is set aside in the directory. Never start other nodes of the
old cluster again: they refuse the new one, whose id is another, and it refuses them.

Serve the directory with the new cluster's id, and itself as the only one of the peers; its certificate
must name that cluster. millrace cluster init --nodes 1 makes both, and an id for --cluster-id.

A recovery that is cut short leaves a directory that no server starts on; the same command goes on.`,
		Example: `  millrace cluster recover --data ./n2/data
  millrace cluster recover --data ./n2/data --force-new-cluster`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if o.Dir == "" {
				return usageError{errors.New("--data is required")}
			}
			if o.Dir, err = filepath.Abs(o.Dir); err != nil {
				return err
			}
			server.PrivateFiles()
			if !force {
				return a.assess(o.Dir)
			}
			return a.recover(o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Dir, "data", "", "data directory of the survivor (required)")
	f.BoolVar(&force, "force-new-cluster", false, "make the new cluster; what only the lost nodes had is lost")
	f.StringVar(&o.Cluster, "cluster-id", "", "id of the new cluster, 32 hexadecimal digits; default a random one")
	f.Uint64Var(&o.Node, "node-id", 0, "number of the node in the new cluster; default its number in the old one")
	return c
}

// standingView is a shard of a survivor as the command line prints it. All values but Shard are
// indexes of log entries, and Stored <= Committed <= Last as a rule.
type standingView struct {
	Shard int `json:"shard"`
	// Up to here the effects of the log are in the store.
	Stored uint64 `json:"stored"`
	// Up to here the survivor knows that a majority had the entry.
	Committed uint64 `json:"committed"`
	// The last entry of the survivor's log. What is between Committed and Last may never have been
	// acknowledged.
	Last uint64 `json:"last"`
}

// writeStandings prints how far each shard of the survivor is.
func writeStandings(w io.Writer, shards []standingView) {
	for _, s := range shards {
		fmt.Fprintf(w, "shard %d    known to be committed up to entry %d, has up to %d", s.Shard, s.Committed, s.Last)
		if n := s.Last - s.Committed; n > 0 {
			fmt.Fprintf(w, ": %d may not have been acknowledged, and would be kept", n)
		}
		fmt.Fprintln(w)
	}
}

// assess prints what a survivor has, changes nothing, and returns an error that asks for
// --force-new-cluster. The members are those of the last stored change of membership, or without
// one those that the cluster began with; a node that has several replicas is listed once.
func (a *app) assess(dir string) error {
	s, err := server.AssessSurvivor(dir)
	if err != nil {
		return err
	}
	out := struct {
		Dir     string         `json:"dir"`
		Cluster string         `json:"cluster_id"`
		Node    uint64         `json:"node_id"`
		Nodes   []uint64       `json:"nodes"` // the members, as of what the directory has stored
		Shards  []standingView `json:"shards"`

		Members []server.MemberStatus `json:"members,omitempty"` // none: those that the cluster began with
	}{Dir: dir, Cluster: s.Member.Cluster, Node: s.Member.Node, Nodes: s.Member.Nodes, Members: s.Members}
	// A node may be listed several times, once for each replica that it has had.
	if len(s.Members) > 0 {
		out.Nodes = nil
		for _, m := range s.Members {
			if !slices.Contains(out.Nodes, m.Node) {
				out.Nodes = append(out.Nodes, m.Node)
			}
		}
	}
	for _, st := range s.Shards {
		out.Shards = append(out.Shards, standingView{int(st.Shard), st.Stored, st.Commit, st.Last})
	}
	err = a.print(out, func(w io.Writer) {
		fmt.Fprintf(w, "node %d of cluster %s, nodes %s\n", out.Node, out.Cluster, strings.Trim(fmt.Sprint(out.Nodes), "[]"))
		for _, m := range out.Members {
			fmt.Fprintf(w, "node %d    %s at %s\n", m.Node, m.State, m.Peer)
		}
		writeStandings(w, out.Shards)
		fmt.Fprint(w, "What is behind that in the logs of the other nodes would be lost, though it was acknowledged.\n")
	})
	if err != nil {
		return err
	}
	return exitError{exitRefused, errors.New("nothing was changed: a new cluster is made with --force-new-cluster only")}
}

// recover makes the new cluster. server.Recover keeps a mark in the directory while it works: if
// the process dies in between, no server starts on the directory and the same command continues.
func (a *app) recover(o server.RecoverOptions) error {
	r, m, err := server.Recover(o)
	if err != nil {
		return err
	}
	out := struct {
		Dir     string         `json:"dir"`
		Cluster string         `json:"cluster_id"`
		Node    uint64         `json:"node_id"`
		OldLog  string         `json:"old_log"`
		Shards  []standingView `json:"shards"`
	}{Dir: o.Dir, Cluster: m.Cluster, Node: m.Node, OldLog: r.OldLog}
	for _, s := range r.Shards {
		out.Shards = append(out.Shards, standingView{int(s.Shard), s.Stored, s.Commit, s.Last})
	}
	return a.print(out, func(w io.Writer) {
		fmt.Fprintf(w, "%s is now node %d, the only one, of cluster %s\n", out.Dir, out.Node, out.Cluster)
		writeStandings(w, out.Shards)
		fmt.Fprintf(w, "What the other nodes acknowledged behind that is lost.\nThe log that it had is in %s\n\n", out.OldLog)
		fmt.Fprintf(w, "serve it with --cluster-id %s --node-id %d --shards %d, with itself alone in --peers\n", out.Cluster, out.Node, m.Shards)
	})
}
