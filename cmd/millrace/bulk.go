package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	millrace "github.com/millrace/millrace/sdk/go"
)

// filterFlags are the flags that say which tasks a command is about.
type filterFlags struct {
	f millrace.TaskFilter
	// state is a word; any stands for none.
	state string
}

// flags defines the flags. state is the default.
func (f *filterFlags) flags(to *pflag.FlagSet, state string) {
	to.StringVarP(&f.f.Queue, "queue", "q", "", "queue of the tasks; default any")
	to.StringVar(&f.state, "state", state, "state of the tasks: any, blocked, scheduled, ready, running, completed, dead or cancelled")
	f.others(to)
}

// others defines the flags but for queue and state.
func (f *filterFlags) others(to *pflag.FlagSet) {
	to.StringVar(&f.f.Kind, "kind", "", "kind of the tasks")
	to.StringVar(&f.f.Worker, "worker", "", "worker that runs the tasks, or completed them")
	to.StringVar(&f.f.Unique, "unique", "", "unique key that the tasks were created under")
	to.StringToStringVar(&f.f.Labels, "label", nil, "label NAME=VALUE that the tasks have; may be repeated")
	to.StringVar(&f.f.Fingerprint, "fingerprint", "", "fingerprint of the last error of the tasks, as queue errors prints it")
	to.StringVar(&f.f.Batch, "batch", "", "id of the batch that the tasks were added to")
	momentVar(to, &f.f.From, "from", "tasks created then or later")
	momentVar(to, &f.f.To, "to", "tasks created before then")
}

// filter returns what the flags say.
func (f *filterFlags) filter() (millrace.TaskFilter, error) {
	if f.state == "" || f.state == "any" {
		return f.f, nil
	}
	s, ok := millrace.ParseState(f.state)
	if !ok {
		return f.f, usageError{fmt.Errorf("--state: %q is not a state of a task", f.state)}
	}
	f.f.State = s
	return f.f, nil
}

// bulkFlags are the flags of a command that begins a job.
type bulkFlags struct {
	id, reason string
	rate       int
	dry, wait  bool
	// Of retries: where the tasks go, and what becomes of their payloads.
	toQueue, patch string
}

// flags defines the flags.
func (f *bulkFlags) flags(to *pflag.FlagSet) {
	to.StringVar(&f.id, "id", "", "id of the job, 26 characters: a start with the id of a job that asks for the same is a replay; default a new one")
	to.IntVar(&f.rate, "rate", 1000, "tasks per second, in each partition, 1 to 1,000,000")
	to.StringVar(&f.reason, "reason", "", "why, at most 256 bytes")
	to.BoolVar(&f.dry, "dry-run", false, "count what the job would find, and change nothing")
	to.BoolVar(&f.wait, "wait", false, "print how far the job is until it has ended")
}

// moves defines the flags of commands that may retry tasks.
func (f *bulkFlags) moves(to *pflag.FlagSet) {
	to.StringVar(&f.toQueue, "to-queue", "", "with retry: queue that the tasks move to, as the same tasks; default they stay")
	to.StringVar(&f.patch, "patch", "", "with retry: merge patch (RFC 7396) of each payload, a JSON object of at most 16 KiB")
}

// options returns what the flags say.
func (f *bulkFlags) options() []millrace.BulkOption {
	opts := []millrace.BulkOption{millrace.BulkRate(f.rate), millrace.BulkReason(f.reason)}
	if f.id != "" {
		opts = append(opts, millrace.BulkID(f.id))
	}
	if f.toQueue != "" {
		opts = append(opts, millrace.BulkToQueue(f.toQueue))
	}
	if f.patch != "" {
		opts = append(opts, millrace.BulkPatch([]byte(f.patch)))
	}
	return opts
}

// bulkCmd makes the commands of jobs about many tasks.
func (a *app) bulkCmd() *cobra.Command {
	c := &cobra.Command{Use: "bulk", Short: "Act on many tasks by jobs of the server"}
	c.AddCommand(a.bulkStartCmd(), a.bulkListCmd(), a.bulkGetCmd(), a.bulkStopCmd())
	return c
}

// bulkStartCmd makes the command that begins a job.
func (a *app) bulkStartCmd() *cobra.Command {
	var which filterFlags
	var how bulkFlags
	var force bool
	var priority int
	c := &cobra.Command{
		Use:   "start ACTION",
		Short: "Begin a job that acts on every task that the flags name, or count what it would find",
		Long: `Begin a job that acts on every task that the flags name. ACTION is one of

  cancel      tasks that are scheduled, ready or running; the workers of running ones are told to stop
  retry       dead and cancelled tasks become ready
  delete      completed, dead and cancelled tasks are removed (needs the scope admin)
  prioritize  scheduled and ready tasks get the priority of --priority

The server goes on with the job when this command has ended, and after a change of leaders. Tasks that are
created after the start are left alone. At most 10 jobs run at once in a namespace.`,
		Example: `  millrace bulk start retry -q mail --label customer=7 --dry-run
  millrace bulk start cancel --label build=1234 --reason 'superseded' --wait`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			action, ok := millrace.ParseBulkAction(args[0])
			if !ok {
				return usageError{fmt.Errorf("%q must be cancel, retry, delete or prioritize", args[0])}
			}
			filter, err := which.filter()
			if err != nil {
				return err
			}
			opts := how.options()
			if force {
				opts = append(opts, millrace.BulkForce())
			}
			if c.Flags().Changed("priority") {
				opts = append(opts, millrace.BulkPriority(priority))
			}
			return a.runBulk(c.Context(), action, filter, &how, opts)
		},
	}
	which.flags(c.Flags(), "any")
	how.flags(c.Flags())
	c.Flags().BoolVar(&force, "force", false, "with cancel: take running tasks from their workers at once")
	c.Flags().IntVar(&priority, "priority", 0, "with prioritize: 0 to 9")
	how.moves(c.Flags())
	return c
}

// queueRedriveCmd makes the command that makes the dead tasks of a queue ready.
func (a *app) queueRedriveCmd() *cobra.Command {
	var which filterFlags
	var how bulkFlags
	c := &cobra.Command{
		Use:   "redrive QUEUE",
		Short: "Begin a job that makes the dead tasks of a queue ready, or count what it would find",
		Long: `Begin a job that makes the dead tasks of a queue ready: their failures and crashes count from 0 again. It is
the job of "bulk start retry --state dead", and "bulk get" tells how far it is.`,
		Example: `  millrace queue redrive mail --dry-run
  millrace queue redrive mail --rate 200 --reason 'the mail server is back' --wait
  millrace queue redrive mail --to-queue mail-v2 --patch '{"version":2,"legacy":null}'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			filter := which.f
			filter.Queue, filter.State = args[0], millrace.Dead
			return a.runBulk(c.Context(), millrace.BulkRetry, filter, &how, how.options())
		},
	}
	which.others(c.Flags())
	how.flags(c.Flags())
	how.moves(c.Flags())
	return c
}

// countView is what a job would find, as the command line prints it.
type countView struct {
	Count uint64 `json:"count"`
	Exact bool   `json:"exact"`
	// Inspected is the number of rows that were looked at.
	Inspected uint64     `json:"inspected"`
	Oldest    time.Time  `json:"oldest,omitzero"`
	Newest    time.Time  `json:"newest,omitzero"`
	Sample    []taskView `json:"sample,omitempty"`
}

// runBulk counts, or begins a job and prints how far it is.
func (a *app) runBulk(ctx context.Context, action millrace.BulkAction, filter millrace.TaskFilter, how *bulkFlags, opts []millrace.BulkOption) error {
	if how.dry {
		return a.with(ctx, func(ctx context.Context, c *millrace.Client) error {
			n, err := c.CountBulk(ctx, action, filter, opts...)
			if err != nil {
				return err
			}
			v := countView{Count: n.Count, Exact: n.Exact, Inspected: n.Inspected, Oldest: n.Oldest, Newest: n.Newest}
			for _, t := range n.Sample {
				v.Sample = append(v.Sample, viewOf(t, false))
			}
			return a.print(v, v.text)
		})
	}
	var job *millrace.BulkJob
	if err := a.with(ctx, func(ctx context.Context, c *millrace.Client) (err error) {
		if job, err = c.StartBulk(ctx, action, filter, opts...); err != nil {
			return err
		}
		return a.printJob(job)
	}); err != nil || !how.wait {
		return err
	}
	return a.followJob(ctx, job.ID)
}

// counted is a number of things.
func counted(n uint64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// text prints a count for a person.
func (v *countView) text(w io.Writer) {
	more := ""
	if !v.Exact {
		more = " at least: looking at all would take too long"
	}
	fmt.Fprintf(w, "%s%s\n", counted(v.Count, "task"), more)
	for i := range v.Sample {
		t := &v.Sample[i]
		fmt.Fprintf(w, "%s  %-9s  %s  %s\n", t.ID, t.State, oneLine(t.Queue), stamp(t.CreatedAt))
	}
}

// followWait is how long a command waits before it asks again how far a job is.
const followWait = 500 * time.Millisecond

// followJob prints how far a job is until it has ended.
func (a *app) followJob(ctx context.Context, id string) error {
	for done := uint64(0); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followWait):
		}
		var job *millrace.BulkJob
		if err := a.with(ctx, func(ctx context.Context, c *millrace.Client) (err error) {
			job, err = c.Bulk(ctx, id)
			return err
		}); err != nil {
			return err
		}
		if job.State == millrace.BulkRunning && job.Done == done {
			continue
		}
		if err := a.printJob(job); err != nil || job.State != millrace.BulkRunning {
			return err
		}
		done = job.Done
	}
}

// jobView is a job as the command line prints it.
type jobView struct {
	ID     string `json:"id"`
	Action string `json:"action"`
	State  string `json:"state"`
	// Matched is how many tasks were found before the start, and Exact whether these are all.
	Matched uint64            `json:"matched"`
	Exact   bool              `json:"exact"`
	Done    uint64            `json:"done"`
	Refused map[string]uint64 `json:"refused,omitempty"`
	Looked  uint64            `json:"looked"`
	Rate    int               `json:"rate"`
	Queue   string            `json:"queue,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	By      string            `json:"by,omitempty"`
	Started time.Time         `json:"started_at,omitzero"`
	Ended   time.Time         `json:"ended_at,omitzero"`
	ETA     time.Time         `json:"eta,omitzero"`
}

// printJob prints a job on one line.
func (a *app) printJob(j *millrace.BulkJob) error {
	v := jobView{
		ID: j.ID, Action: j.Action.String(), State: j.State.String(), Matched: j.Matched, Exact: j.Exact, Done: j.Done, Refused: j.Refused,
		Looked: j.Looked, Rate: j.Rate, Queue: j.Filter.Queue, Reason: j.Reason, By: j.By, Started: j.Started, Ended: j.Ended, ETA: j.ETA,
	}
	return a.print(v, func(w io.Writer) {
		of := fmt.Sprint(v.Matched)
		if !v.Exact {
			of = "more than " + of
		}
		fmt.Fprintf(w, "%s  %-10s  %-7s  %d of %s done", v.ID, v.Action, v.State, v.Done, of)
		for _, code := range slices.Sorted(maps.Keys(v.Refused)) {
			fmt.Fprintf(w, ", %d refused as %s", v.Refused[code], oneLine(code))
		}
		if !v.ETA.IsZero() {
			fmt.Fprintf(w, ", until about %s", stamp(v.ETA))
		}
		if v.Queue != "" {
			fmt.Fprintf(w, "  queue %s", oneLine(v.Queue))
		}
		if v.Reason != "" {
			fmt.Fprintf(w, "  %s", oneLine(v.Reason))
		}
		fmt.Fprintln(w)
	})
}

// bulkListCmd makes the command that lists jobs.
func (a *app) bulkListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the jobs that run and those that ended within a day, the last begun first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				jobs, err := client.Bulks(ctx)
				for _, j := range jobs {
					if err := a.printJob(j); err != nil {
						return err
					}
				}
				return err
			})
		},
	}
}

// bulkGetCmd makes the command that tells how far a job is.
func (a *app) bulkGetCmd() *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use:   "get ID",
		Short: "Tell how far a job is",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var job *millrace.BulkJob
			if err := a.with(c.Context(), func(ctx context.Context, client *millrace.Client) (err error) {
				if job, err = client.Bulk(ctx, args[0]); err != nil {
					return err
				}
				return a.printJob(job)
			}); err != nil || !wait || job.State != millrace.BulkRunning {
				return err
			}
			return a.followJob(c.Context(), args[0])
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "print how far the job is until it has ended")
	return c
}

// bulkStopCmd makes the command that ends a job.
func (a *app) bulkStopCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stop ID",
		Short: "End a job before its end; what it did stays",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				replayed, err := client.StopBulk(ctx, args[0])
				if err != nil {
					return err
				}
				return a.print(map[string]any{"stopped": args[0], "replayed": replayed}, func(w io.Writer) {
					if replayed {
						fmt.Fprintf(w, "%s had ended before\n", args[0])
						return
					}
					fmt.Fprintf(w, "stopped %s\n", args[0])
				})
			})
		},
	}
}
