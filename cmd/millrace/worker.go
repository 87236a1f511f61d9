package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// workerCmd makes the commands about who takes tasks.
func (a *app) workerCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "worker",
		Short: "List workers, and make them quiet",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.workerListCmd(), a.workerQuietCmd())
	return c
}

// workerView is a worker as the command line prints it.
type workerView struct {
	ID string `json:"id"`
	// Sessions of its streams; none: a caller of claims.
	Sessions []string `json:"sessions,omitempty"`
	Host     string   `json:"host,omitempty"`
	SDK      string   `json:"sdk,omitempty"`
	Queues   []string `json:"queues"`
	Kinds    []string `json:"kinds"`
	Slots    int      `json:"slots"`
	Running  int      `json:"running"`
	// OldestLease is when the oldest attempt began that it runs; ConnectedAt and SeenAt are zero for one that only has leases.
	OldestLease time.Time `json:"oldest_lease,omitzero"`
	ConnectedAt time.Time `json:"connected_at,omitzero"`
	SeenAt      time.Time `json:"seen_at,omitzero"`
	Nodes       []string  `json:"nodes"`
	Quiet       bool      `json:"quiet"`
}

// workerListCmd makes the command that lists workers.
func (a *app) workerListCmd() *cobra.Command {
	var queue string
	c := &cobra.Command{
		Use:   "list",
		Short: "List who takes tasks",
		Long: `List who takes tasks: streams with subscriptions, and callers of claims, which are shown for five minutes
after the last one. An election forgets them until they come again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				list, err := client.Workers(ctx, queue)
				if err != nil {
					return err
				}
				for _, w := range list.Workers {
					v := workerView(w)
					if err := a.print(v, func(out io.Writer) { v.text(out) }); err != nil {
						return err
					}
				}
				if list.Partial {
					fmt.Fprintln(a.err, "not all: a node did not answer, or there are more than 10,000")
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&queue, "queue", "", "name of a queue that the workers take tasks of")
	return c
}

// text prints the worker on one line.
func (v *workerView) text(w io.Writer) {
	fmt.Fprintf(w, "%-20s running %d of %d  queues %s", oneLine(v.ID), v.Running, v.Slots, strings.Join(v.Queues, ","))
	if v.Host != "" {
		fmt.Fprintf(w, "  host %s", oneLine(v.Host))
	}
	if v.SDK != "" {
		fmt.Fprintf(w, "  sdk %s", oneLine(v.SDK))
	}
	if !v.SeenAt.IsZero() {
		fmt.Fprintf(w, "  seen %s", stamp(v.SeenAt))
	} else {
		fmt.Fprint(w, "  not connected")
	}
	if v.Quiet {
		fmt.Fprint(w, "  quiet")
	}
	fmt.Fprintln(w)
}

// workerQuietCmd makes the command that gives a worker no further tasks.
func (a *app) workerQuietCmd() *cobra.Command {
	var off bool
	c := &cobra.Command{
		Use:   "quiet ID",
		Short: "Give a worker no further tasks, or take that back",
		Long: `Give a worker no further tasks, by any of its streams and claims, until --off takes that back. Tasks that it
runs go on. The nodes forget it once the worker was away for ten minutes; an election may forget it too.`,
		Example: `  millrace worker quiet w-7
  millrace worker quiet w-7 --off`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				replayed, err := client.QuietWorker(ctx, args[0], !off)
				if err != nil {
					return err
				}
				v := map[string]any{"id": args[0], "quiet": !off, "replayed": replayed}
				return a.print(v, func(w io.Writer) {
					state := map[bool]string{true: "quiet", false: "given tasks"}[!off]
					if replayed {
						fmt.Fprintf(w, "%s was %s before\n", oneLine(args[0]), state)
						return
					}
					fmt.Fprintf(w, "%s is %s\n", oneLine(args[0]), state)
				})
			})
		},
	}
	c.Flags().BoolVar(&off, "off", false, "give it tasks again")
	return c
}
