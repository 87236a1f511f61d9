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

// limiterCmd makes the command for limiters.
func (a *app) limiterCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "limiter",
		Short: "Bound what tasks of several queues share: set, read and remove limiters",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.limiterSetCmd(), a.limiterGetCmd(), a.limiterListCmd(), a.limiterRmCmd())
	return c
}

// limiterSetCmd makes the command that sets a limiter.
func (a *app) limiterSetCmd() *cobra.Command {
	var config millrace.LimiterConfig
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a limiter, or replace what it bounds; without flags it bounds nothing",
		Example: `  millrace limiter set openai --concurrency 8 --rate 500/1m
  millrace task create summary '{"of":"report"}' --limiter openai`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				got, err := client.SetLimiter(ctx, args[0], config)
				if err != nil {
					return err
				}
				return a.printLimiter(got)
			})
		},
	}
	f := c.Flags()
	f.Int64Var(&config.Concurrency, "concurrency", 0, "limit of what its running tasks cost together, per partition; default none")
	f.Var(rateFlag{&config.Rate}, "rate", "limit of what begins in a time, as LIMIT/PER or LIMIT/PER/BURST, such as 100/1m; default none")
	return c
}

// limiterGetCmd makes the command that shows a limiter.
func (a *app) limiterGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a limiter, with the tasks that hold it and the queues that name it", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				got, err := client.Limiter(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printLimiter(got)
			})
		},
	}
}

// limiterListCmd makes the command that lists limiters.
func (a *app) limiterListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List limiters by name, with what is used of each", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return eachOf(ctx, 0, client.Limiters, a.printLimiter)
			})
		},
	}
}

// limiterRmCmd makes the command that removes a limiter.
func (a *app) limiterRmCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Remove a limiter that no queue names, and no task that has not ended", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				if err := client.DeleteLimiter(ctx, args[0]); err != nil {
					return err
				}
				return a.print(map[string]any{"removed": args[0]}, func(w io.Writer) { fmt.Fprintf(w, "removed %s\n", oneLine(args[0])) })
			})
		},
	}
}

// limiterView is a limiter as the command line prints it.
type limiterView struct {
	Name        string       `json:"name"`
	Concurrency int64        `json:"concurrency,omitempty"`
	Rate        string       `json:"rate,omitempty"`
	Version     uint64       `json:"version"`
	Used        uint64       `json:"used"`
	Tasks       uint64       `json:"tasks"`
	Until       time.Time    `json:"until,omitzero"`
	HeldBy      []holderView `json:"held_by,omitempty"`
	Queues      []string     `json:"queues,omitempty"`
}

// holderView is a task that holds a limiter.
type holderView struct {
	Task  string `json:"task"`
	Queue string `json:"queue"`
}

// printLimiter prints a limiter on one line, and who holds it on others.
func (a *app) printLimiter(x *millrace.Limiter) error {
	v := limiterView{
		Name: x.Name, Concurrency: x.Concurrency, Version: x.Version, Used: x.Used, Tasks: x.Tasks, Until: x.Until, Queues: x.Queues,
	}
	if x.Rate.Limit > 0 {
		v.Rate = rateValue(x.Rate)
	}
	for _, h := range x.HeldBy {
		v.HeldBy = append(v.HeldBy, holderView(h))
	}
	return a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s\tused %d", v.Name, v.Used)
		if v.Concurrency > 0 {
			fmt.Fprintf(w, " of %d", v.Concurrency)
		}
		if v.Rate != "" {
			fmt.Fprintf(w, "\tat most %s", v.Rate)
		}
		if !v.Until.IsZero() {
			fmt.Fprintf(w, "\tuntil %s", stamp(v.Until))
		}
		fmt.Fprintf(w, "\ttasks %d", v.Tasks)
		if len(v.Queues) > 0 {
			fmt.Fprintf(w, "\tqueues %s", strings.Join(v.Queues, ", "))
		}
		fmt.Fprintln(w)
		for _, h := range v.HeldBy {
			fmt.Fprintf(w, "  held by %s of %s\n", h.Task, h.Queue)
		}
	})
}
