package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

// doctorCmd makes the command that checks a data directory. It takes the directory's lock, so it
// fails while a server runs on it, and opens everything read-only.
func (a *app) doctorCmd() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "doctor --data DIR",
		Short: "Open a data directory read-only, print what is in it and whether it is undamaged",
		Long: `Doctor reads the directory of a server that does not run, and changes nothing. It checks the checksums of
the log and the store, that counters equal a recount, that every task is in exactly one index, and that
the packs of git repositories exist and are unchanged.
Exit 0: whole. 21: damaged, with file and offset. 23: not a data directory, or in use.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				return usageError{errors.New("--data is required")}
			}
			server.PrivateFiles() // the lock file, if there was none
			r, err := server.Examine(dir)
			if err != nil {
				return err
			}
			if err := a.print(r, func(w io.Writer) { writeReport(w, r) }); err != nil {
				return err
			}
			if len(r.Findings) > 0 {
				return exitError{server.ExitDamaged, fmt.Errorf("%d findings; the first: %s", len(r.Findings), r.Findings[0])}
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "data", "", "data directory (required)")
	return c
}

// writeReport prints an examination for a person: what the directory holds, then warnings, then
// findings. A finding is damage, a warning is something that an operator should know; only findings
// change the exit code.
func writeReport(w io.Writer, r *server.Examination) {
	fmt.Fprintf(w, "directory  %s, format %d, node %s\n", r.Dir, r.Format, r.Node)
	if m := r.Member; m != nil && m.Cluster != "" {
		fmt.Fprintf(w, "cluster    %s, node %d of %s, %d shards\n", m.Cluster, m.Node, strings.Trim(fmt.Sprint(m.Nodes), "[]"), m.Shards)
	}
	fmt.Fprintf(w, "log        %d segments, %d bytes in whole records", r.Log.Segments, r.Log.Bytes)
	if r.Log.Torn {
		fmt.Fprint(w, "; the last batch may be torn, the next start looks after it")
	}
	fmt.Fprintln(w)
	for _, s := range r.Shards {
		fmt.Fprintf(w, "shard %d    log %d to %d, stored up to %d, %d keys\n", s.Shard, s.LogFirst, s.LogLast, s.Applied, s.Keys)
	}
	for _, n := range r.Namespaces {
		fmt.Fprintf(w, "namespace  %s/%s: %d queues, %d tasks stored\n", n.Tenant, n.Name, n.Queues, n.Tasks)
	}
	if r.Git.Repositories > 0 {
		fmt.Fprintf(w, "git        %d repositories have objects: %d packs, %d bytes\n", r.Git.Repositories, r.Git.Packs, r.Git.Bytes)
	}
	for _, m := range r.Members {
		fmt.Fprintf(w, "member     node %d, replica %d at %s: %s\n", m.Node, m.Replica, m.Peer, m.State)
	}
	for _, text := range r.Warnings {
		fmt.Fprintln(w, "warning   ", text)
	}
	for _, f := range r.Findings {
		fmt.Fprintln(w, "FINDING   ", f)
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(w, "whole")
	}
}
