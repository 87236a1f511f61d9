package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// errorGroupView is a group of errors as the command line prints it.
type errorGroupView struct {
	// Fingerprint finds the tasks; other: the errors that found no room in a group.
	Fingerprint string    `json:"fingerprint"`
	Queue       string    `json:"queue"`
	Kind        string    `json:"kind,omitempty"`
	Code        string    `json:"code,omitempty"`
	Message     string    `json:"message,omitempty"`
	Count       uint64    `json:"count"`
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	// Trend counts the errors of each of the last 24 hours, the current one last.
	Trend []int `json:"trend"`
	// Sample has the ids of the tasks that had it last, the last one first.
	Sample []string `json:"sample"`
}

// queueErrorsCmd makes the command that lists groups of errors.
func (a *app) queueErrorsCmd() *cobra.Command {
	var q millrace.ErrorQuery
	c := &cobra.Command{
		Use:   "errors [QUEUE]",
		Short: "List the errors of a queue's tasks, or of all, in groups of those that are alike",
		Long: `List the errors of attempts in groups, those with the most errors first: errors are alike that have the same
kind of task and code, or without a code messages that differ in digits alone. The first word of a line is the
fingerprint, by which task list and bulk start find the tasks.`,
		Example: `  millrace queue errors mail --since 1h
  millrace task list -q mail --state dead --fingerprint 6de323c4180fb94f`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.Queue = args[0]
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				list, err := client.Errors(ctx, q)
				if err != nil {
					return err
				}
				for _, g := range list.Groups {
					v := errorGroupView(g)
					if err := a.print(v, func(out io.Writer) { v.text(out) }); err != nil {
						return err
					}
				}
				if list.Partial {
					fmt.Fprintln(a.err, "not all: there are more than 1,000 groups, or a queue has errors that found no room in one")
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&q.Kind, "kind", "", "kind of the tasks")
	spanVar(c.Flags(), &q.Since, "since", 0, "only groups of which an error was seen within this time; default all")
	return c
}

// text prints the group on one line. Kind, code and message are what clients chose.
func (v *errorGroupView) text(w io.Writer) {
	hour := 0
	if n := len(v.Trend); n > 0 {
		hour = v.Trend[n-1]
	}
	fmt.Fprintf(w, "%-16s  %6d, %d this hour  last %s  %s", oneLine(v.Fingerprint), v.Count, hour, stamp(v.Last), oneLine(v.Queue))
	if v.Kind != v.Queue && v.Kind != "" {
		fmt.Fprintf(w, "  kind %s", oneLine(v.Kind))
	}
	if v.Code != "" {
		fmt.Fprintf(w, "  %s", oneLine(v.Code))
	}
	if v.Message != "" {
		fmt.Fprintf(w, "  %s", oneLine(v.Message))
	}
	if len(v.Sample) > 0 {
		fmt.Fprintf(w, "  task %s", oneLine(v.Sample[0]))
	}
	fmt.Fprintln(w)
}
