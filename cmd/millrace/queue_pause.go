package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// pausedView is the pause of a queue as the command line prints it.
type pausedView struct {
	// Since is when it was paused, Until when it goes on by itself; zero: when it is resumed.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// By is the name of the token.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// pausedOf makes the view of a pause; nil stays nil.
func pausedOf(p *millrace.QueuePaused) *pausedView {
	if p == nil {
		return nil
	}
	return &pausedView{Since: p.Since, Until: p.Until, By: p.By, Reason: p.Reason}
}

// text shows the pause on one line.
func (v *pausedView) text() string {
	s := "since " + stamp(v.Since)
	if !v.Until.IsZero() {
		s += " until " + stamp(v.Until)
	}
	if v.By != "" {
		s += " by " + oneLine(v.By)
	}
	if v.Reason != "" {
		s += ": " + oneLine(v.Reason)
	}
	return s
}

// queuePauseCmd makes the command that pauses a queue.
func (a *app) queuePauseCmd() *cobra.Command {
	var until time.Time
	var span time.Duration
	var reason string
	c := &cobra.Command{
		Use:   "pause QUEUE",
		Short: "Stop giving out a queue's tasks, until it is resumed or until a time",
		Long: `Stop giving out a queue's tasks, until it is resumed or until a time. Tasks that run go on, new ones are
taken, and delays come due.`,
		Example: `  millrace queue pause mail --for 30m --reason 'the mail server is down'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			opts := []millrace.PauseOption{millrace.PauseReason(reason)}
			switch {
			case c.Flags().Changed("for"):
				opts = append(opts, millrace.PauseUntil(time.Now().Add(span)))
			case !until.IsZero():
				opts = append(opts, millrace.PauseUntil(until))
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				replayed, err := client.Queue(args[0]).Pause(ctx, opts...)
				return a.turned(args[0], "paused", replayed, err)
			})
		},
	}
	momentVar(c.Flags(), &until, "until", "time at which the queue goes on by itself; default when it is resumed")
	spanVar(c.Flags(), &span, "for", 0, "time after which the queue goes on by itself")
	c.Flags().StringVar(&reason, "reason", "", "why, at most 256 bytes")
	c.MarkFlagsMutuallyExclusive("until", "for")
	return c
}

// queueResumeCmd makes the command that lets a paused queue go on.
func (a *app) queueResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "resume QUEUE",
		Short: "Give out the tasks of a paused queue again",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				replayed, err := client.Queue(args[0]).Resume(ctx)
				return a.turned(args[0], "resumed", replayed, err)
			})
		},
	}
}

// turned prints that a queue was paused or resumed, or passes on the error.
func (a *app) turned(queue, done string, replayed bool, err error) error {
	if err != nil {
		return err
	}
	return a.print(map[string]any{done: queue, "replayed": replayed}, func(w io.Writer) {
		if replayed {
			fmt.Fprintf(w, "%s was %s before\n", queue, map[string]string{"paused": "paused so", "resumed": "not paused"}[done])
			return
		}
		fmt.Fprintf(w, "%s %s\n", done, queue)
	})
}
