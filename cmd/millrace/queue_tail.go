package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

const (
	// tailGlance is the first page of a look, which mostly finds nothing new; tailPage is that of the others.
	tailGlance = 20
	tailPage   = 1000
	// tailPages bounds the pages of one look at one state.
	tailPages = 10
	// tailOverlap is how far behind the last end a look goes back: partitions have clocks of their own.
	tailOverlap = 5 * time.Second
	// maxTailLast bounds the tasks that had ended before. They are of the first look.
	maxTailLast = 1000
)

// tailFlags are the flags of queue tail.
type tailFlags struct {
	states listValue
	every  time.Duration
	last   int
	limit  int
}

// queueTailCmd makes the command that prints tasks as they end.
func (a *app) queueTailCmd() *cobra.Command {
	f := tailFlags{states: listValue{millrace.Completed.String(), millrace.Dead.String(), millrace.Cancelled.String()}}
	c := &cobra.Command{
		Use:   "tail QUEUE",
		Short: "Print the tasks of a queue as they end",
		Long: `Print the tasks of a queue as they end, until a signal or --timeout ends it. The list of ended tasks is read
again and again, so tasks of a queue that keeps none after their end are not seen. If more end than can be read in
time, a line on the error stream says so.`,
		Example: `  millrace queue tail mail --state dead
  millrace queue tail mail --last 10 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := f.tail(args[0])
			if err != nil {
				return err
			}
			return a.waiting(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				printed := 0
				return again(ctx, f.every, func() (bool, error) {
					found, missed, err := t.look(ctx, client)
					if err != nil {
						return false, err
					}
					if missed {
						a.tell("more tasks ended than were read: some are not shown")
					}
					for _, task := range found {
						if err := a.printEnded(task); err != nil {
							return false, err
						}
						if printed++; printed == f.limit {
							return true, nil
						}
					}
					return false, nil
				})
			})
		},
	}
	c.Flags().Var(&f.states, "state", "only tasks that end so: completed, dead or cancelled, separated by commas")
	spanVar(c.Flags(), &f.every, "interval", time.Second, "time between two readings")
	c.Flags().IntVar(&f.last, "last", 0, "begin with this many that have ended before, at most 1,000")
	c.Flags().IntVar(&f.limit, "limit", 0, "end after this many tasks; 0 = never")
	return c
}

// tail makes what the flags say.
func (f *tailFlags) tail(queue string) (*tail, error) {
	switch {
	case f.every < leastInterval:
		return nil, usageError{fmt.Errorf("--interval must be at least %s", leastInterval)}
	case f.last < 0 || f.last > maxTailLast:
		return nil, usageError{fmt.Errorf("--last must be from 0 to %d", maxTailLast)}
	case f.limit < 0:
		return nil, usageError{fmt.Errorf("--limit must not be negative")}
	}
	t := &tail{queue: queue, last: f.last}
	for _, name := range f.states {
		state, ok := millrace.ParseState(name)
		if !ok || !state.Terminal() {
			return nil, usageError{fmt.Errorf("--state: %q must be completed, dead or cancelled", name)}
		}
		if !slices.ContainsFunc(t.ends, func(e *tailEnd) bool { return e.state == state }) {
			t.ends = append(t.ends, &tailEnd{state: state})
		}
	}
	return t, nil
}

// tail follows the ended tasks of a queue.
type tail struct {
	queue string
	ends  []*tailEnd
	last  int
	begun bool // the first look is done
}

// tailEnd follows the tasks that ended in one state.
type tailEnd struct {
	state millrace.State
	// newest is the last end that was seen. What ended before floor is not looked at.
	newest, floor time.Time
	// seen has the ends from newest minus tailOverlap on: at most what the pages of a look have, and those before.
	seen map[ended]bool
}

// ended is one end of a task, which can end again after a retry.
type ended struct {
	id string
	at int64 // Unix milliseconds
}

// look returns what has ended since the last look, in the order of the ends. missed says that there was more than a look reads.
func (t *tail) look(ctx context.Context, c *millrace.Client) (found []*millrace.TaskInfo, missed bool, err error) {
	for _, e := range t.ends {
		list, more, err := e.look(ctx, c, t.queue)
		if err != nil {
			return nil, false, err
		}
		found, missed = append(found, list...), missed || more
	}
	slices.SortStableFunc(found, func(a, b *millrace.TaskInfo) int { return a.FinishedAt.Compare(b.FinishedAt) })
	if !t.begun {
		t.begun = true
		return found[max(len(found)-t.last, 0):], false, nil
	}
	return found, missed, nil
}

// look is tail.look for one state. The first look is one page.
func (e *tailEnd) look(ctx context.Context, c *millrace.Client, queue string) (found []*millrace.TaskInfo, missed bool, err error) {
	first := e.seen == nil
	q := millrace.ListQuery{Queue: queue, State: e.state, Newest: true, Limit: tailGlance}
	if first {
		q.Limit = tailPage
	}
	until := e.newest.Add(-tailOverlap)
	if until.Before(e.floor) {
		until = e.floor
	}
	seen := e.seen
	if first {
		seen = map[ended]bool{}
	}
	newest := e.newest
	for page := 1; ; page++ {
		list, next, err := c.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		over := next == ""
		for _, t := range list {
			if t.FinishedAt.Before(until) {
				over = true // partitions are merged by their ends, so all that follow ended before too
				break
			}
			if k := (ended{t.ID, t.FinishedAt.UnixMilli()}); !seen[k] {
				seen[k] = true
				found = append(found, t)
			}
			if t.FinishedAt.After(newest) {
				newest = t.FinishedAt
			}
		}
		if first && !over && len(list) > 0 {
			e.floor = list[len(list)-1].FinishedAt
		}
		if over || first || page == tailPages {
			e.seen, e.newest = seen, newest
			e.forget()
			slices.Reverse(found)
			return found, !over && !first, nil
		}
		q.Cursor, q.Limit = next, tailPage
	}
}

// forget drops ends that no look goes back to.
func (e *tailEnd) forget() {
	until := e.newest.Add(-tailOverlap).UnixMilli()
	for k := range e.seen {
		if k.at < until {
			delete(e.seen, k)
		}
	}
}

// printEnded prints a task that has ended on one line.
func (a *app) printEnded(t *millrace.TaskInfo) error {
	v := viewOf(t, false)
	return a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %-9s  %s  attempt %d", stamp(v.FinishedAt), v.State, v.ID, v.Attempt)
		if v.Kind != "" {
			fmt.Fprintf(w, "  kind %s", oneLine(v.Kind))
		}
		if v.Reason != "" {
			fmt.Fprintf(w, "  %s", v.Reason)
		}
		if v.State != millrace.Completed.String() && v.Error != "" {
			fmt.Fprintf(w, "  %s", oneLine(v.Error))
		}
		fmt.Fprintln(w)
	})
}
