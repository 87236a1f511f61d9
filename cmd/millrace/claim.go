package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// taskClaimCmd makes the command that claims tasks by hand. It prints each with its fencing token,
// which complete and fail need. It exits with 1 if no task is ready, so that a script can tell.
func (a *app) taskClaimCmd() *cobra.Command {
	var q millrace.ClaimQuery
	c := &cobra.Command{
		Use:   "claim QUEUE",
		Short: "Take ready tasks and print them with their tokens",
		Long: `Claim takes ready tasks by hand: complete or fail them under the printed token before the lease
ends. Workers use the stream instead (millrace work, or an SDK).`,
		Example: `  millrace task claim mail --max 10 --wait 30s --json`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q.Queues = args
			return a.waiting(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				tasks, err := client.Claim(ctx, q)
				if err != nil {
					return err
				}
				for _, t := range tasks {
					v := map[string]any{
						"id": t.ID, "token": t.Token, "queue": t.Queue, "kind": t.Kind, "attempt": t.Attempt,
						"payload": content(t.Payload), "lease_until": t.LeaseUntil,
					}
					if err := a.print(v, func(w io.Writer) {
						fmt.Fprintf(w, "%s  token %d  attempt %d  %s\n", t.ID, t.Token, t.Attempt, content(t.Payload))
					}); err != nil {
						return err
					}
				}
				if len(tasks) == 0 {
					return exitError{exitRefused, fmt.Errorf("no task of queue %s is ready", args[0])}
				}
				return nil
			})
		},
	}
	c.Flags().IntVar(&q.Max, "max", 1, "claim at most this many tasks, 1 to 128")
	c.Flags().DurationVar(&q.Wait, "wait", 0, "wait this long for a task, at most 60s")
	c.Flags().DurationVar(&q.Lease, "lease", 0, "length of the lease; default the tasks' own")
	c.Flags().StringVar(&q.Worker, "worker", "cli", "name of the worker")
	return c
}

// taskCompleteCmd makes the command that completes a claimed task. A result that is one JSON value
// is sent as JSON, anything else as bytes.
func (a *app) taskCompleteCmd() *cobra.Command {
	var token uint64
	c := &cobra.Command{
		Use:   "complete ID [RESULT|-]",
		Short: "Complete a claimed task",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			// A result that is left out is an empty one.
			var result []byte
			if len(args) == 2 {
				var err error
				if result, err = a.argument(args[1]); err != nil {
					return err
				}
			}
			var body any = result
			if v, ok := jsonOf(result); ok {
				body = v
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				state, err := client.Complete(ctx, args[0], token, body)
				return a.settled(state, err)
			})
		},
	}
	c.Flags().Uint64Var(&token, "lease-token", 0, "fencing token that the claim printed (required)")
	_ = c.MarkFlagRequired("lease-token")
	return valuesFrom(c, 1)
}

// taskFailCmd makes the command that reports a failed attempt. --retry-in 0 is not the same as
// leaving it out: it retries at once.
func (a *app) taskFailCmd() *cobra.Command {
	var token uint64
	var f millrace.Failure
	var retry time.Duration
	c := &cobra.Command{
		Use:   "fail ID",
		Short: "Report that an attempt failed",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("retry-in") {
				f.RetryAfter = &retry
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				state, err := client.Fail(ctx, args[0], token, f)
				return a.settled(state, err)
			})
		},
	}
	c.Flags().Uint64Var(&token, "lease-token", 0, "fencing token that the claim printed (required)")
	c.Flags().StringVar(&f.Message, "message", "", "what went wrong")
	c.Flags().StringVar(&f.Code, "code", "", "short code of the error")
	mayBeEmpty(c.Flags(), "message", "code")
	c.Flags().BoolVar(&f.Fatal, "fatal", false, "the task is dead: no further attempt")
	c.Flags().DurationVar(&retry, "retry-in", 0, "time until the next attempt; default the queue's backoff")
	_ = c.MarkFlagRequired("lease-token")
	return c
}

// settled prints the state that a task has after it was completed or failed, or passes on the
// error.
func (a *app) settled(state millrace.State, err error) error {
	if err != nil {
		return err
	}
	return a.print(map[string]string{"state": state.String()}, func(w io.Writer) { fmt.Fprintln(w, state) })
}
