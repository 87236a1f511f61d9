package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// logLineView is a line of a task's log as the command line prints it.
type logLineView struct {
	Number  uint64    `json:"number"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Line    string    `json:"line"`
}

// text prints the line for a person.
func (v logLineView) text(w io.Writer) {
	fmt.Fprintf(w, "%s %d  %s\n", stamp(v.At), v.Attempt, oneLine(v.Line))
}

// progressView is how far the worker of a task says that it is.
type progressView struct {
	Percent int       `json:"percent"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// progressViewOf returns the view of progress; nil stays nil.
func progressViewOf(p *millrace.Progress) *progressView {
	if p == nil {
		return nil
	}
	return &progressView{p.Percent, p.Message, p.At}
}

// taskLogsCmd makes the command that prints the log of a task.
func (a *app) taskLogsCmd() *cobra.Command {
	var follow bool
	var attempt int
	var every time.Duration
	c := &cobra.Command{
		Use:   "logs ID",
		Short: "Print the log of a task: what its workers told of their work",
		Long: `Print the log of a task: what its workers told of their work, oldest line first, with the time and the number of
the attempt. A command of work tells each line of its standard error. About the last 1,000 lines or 256 KiB of
all attempts are kept. With --follow it goes on until the task has ended.`,
		Example: `  millrace task logs 01HF4Z3NDEKTSV4RRFFQ69G5FA
  millrace task logs 01HF4Z3NDEKTSV4RRFFQ69G5FA --follow --attempt 2`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if attempt < 0 {
				return usageError{errors.New("--attempt must not be negative")}
			}
			q := millrace.LogQuery{Attempt: attempt, Limit: 1000}
			print := func(ctx context.Context, client *millrace.Client) error {
				for {
					log, err := client.Logs(ctx, args[0], q)
					if err != nil {
						return err
					}
					if q.After == 0 && log.Dropped > 0 {
						a.tell(fmt.Sprintf("%d lines are not kept", log.Dropped))
					}
					for _, l := range log.Lines {
						v := logLineView{Number: l.Number, Attempt: l.Attempt, At: l.At, Line: l.Text}
						if err := a.print(v, v.text); err != nil {
							return err
						}
					}
					if q.After = log.Last; !log.More {
						return nil
					}
				}
			}
			if !follow {
				return a.with(c.Context(), print)
			}
			return a.waiting(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return again(ctx, every, func() (bool, error) {
					// Looked at before the log: lines that come in between are printed.
					t, err := client.Task(ctx, args[0])
					if err != nil {
						return false, err
					}
					return t.State.Terminal() && (attempt == 0 || attempt <= t.Attempt), print(ctx, client)
				})
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the task has ended")
	c.Flags().IntVar(&attempt, "attempt", 0, "only lines of this attempt; 0 = of all")
	spanVar(c.Flags(), &every, "interval", time.Second, "time between two readings with --follow")
	return c
}
