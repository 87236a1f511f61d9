package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	millrace "github.com/millrace/millrace/sdk/go"
)

// queueCmd makes the command for queues.
func (a *app) queueCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "List queues, read their counters and errors, configure, pause and remove them",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.queueListCmd(), a.queueTopCmd(), a.queueTailCmd(), a.queueStatsCmd(), a.queueErrorsCmd(), a.queueSetCmd(), a.queuePauseCmd(), a.queueResumeCmd(), a.queueRedriveCmd(), a.queueRmCmd(), a.queueKeyCmd(), a.queueCronCmd())
	return c
}

// statsView is a queue's counters as the command line prints them. Blocked to Cancelled count tasks
// by their state now; Created, Purged, Failed and Crashed count events since the queue exists.
type statsView struct {
	// Queue is the name.
	Queue string `json:"queue"`
	// Waiting for tasks that they depend on.
	Blocked uint64 `json:"blocked"`
	// Waiting for their time.
	Scheduled uint64 `json:"scheduled"`
	// Waiting for a worker.
	Ready uint64 `json:"ready"`
	// Leased to a worker.
	Running uint64 `json:"running"`
	// Ended and still kept, by how they ended.
	Completed uint64 `json:"completed"`
	Dead      uint64 `json:"dead"`
	Cancelled uint64 `json:"cancelled"`
	// Created counts the tasks that were ever created.
	Created uint64 `json:"created"`
	// Created tasks that are no longer stored.
	Purged uint64 `json:"purged"`
	// Attempts, not tasks.
	Failed uint64 `json:"failed_total"`
	// Crashed counts the attempts whose lease ran out.
	Crashed uint64 `json:"crashed_total"`
	// Size of the payloads and results of the stored tasks.
	Bytes uint64 `json:"bytes"`
	// When the task that has waited longest became ready; zero if none is ready.
	OldestReady time.Time `json:"oldest_ready,omitzero"`
	// Why the queue gives out no tasks; nil: it does.
	Paused *pausedView `json:"paused,omitempty"`
}

// statsOf makes the view of a queue's counters.
func statsOf(s millrace.QueueStats) statsView {
	return statsView{
		Queue: s.Queue, Blocked: s.Blocked, Scheduled: s.Scheduled, Ready: s.Ready, Running: s.Running,
		Completed: s.Completed, Dead: s.Dead, Cancelled: s.Cancelled, Created: s.Created, Purged: s.Purged,
		Failed: s.FailedTotal, Crashed: s.CrashedTotal, Bytes: s.Bytes, OldestReady: s.OldestReady,
		Paused: pausedOf(s.Paused),
	}
}

// queueListCmd makes the command that lists queues, page by page.
func (a *app) queueListCmd() *cobra.Command {
	var f queueFlags
	c := &cobra.Command{
		Use:   "list",
		Short: "List queues with their counters",
		Example: `  millrace queue list --sort oldest
  millrace queue list --only dead --prefix mail.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				q := f.q
				q.Limit = 1000
				// Queues come in pages; an empty cursor after a page says that it was the last.
				for {
					page, next, err := client.FindQueues(ctx, q)
					if err != nil {
						return err
					}
					for _, q := range page {
						v := statsOf(q)
						if err := a.print(v, func(w io.Writer) {
							fmt.Fprintf(w, "%-30s ready %d  running %d  scheduled %d  completed %d  dead %d",
								v.Queue, v.Ready, v.Running, v.Scheduled, v.Completed, v.Dead)
							if v.Paused != nil {
								fmt.Fprint(w, "  paused")
							}
							fmt.Fprintln(w)
						}); err != nil {
							return err
						}
					}
					if next == "" {
						return nil
					}
					q.Cursor = next
				}
			})
		},
	}
	f.flags(c)
	return c
}

// queueStatsCmd makes the command that prints one queue's counters.
func (a *app) queueStatsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats QUEUE",
		Short: "Print a queue's counters",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				s, err := client.Queue(args[0]).Stats(ctx)
				if err != nil {
					return err
				}
				v := statsOf(s)
				return a.print(v, func(w io.Writer) {
					fmt.Fprintf(w, "queue      %s\nblocked    %d\nscheduled  %d\nready      %d\nrunning    %d\ncompleted  %d\ndead       %d\ncancelled  %d\n",
						v.Queue, v.Blocked, v.Scheduled, v.Ready, v.Running, v.Completed, v.Dead, v.Cancelled)
					fmt.Fprintf(w, "created    %d (of them purged %d)\nattempts   %d failed, %d crashed\nbytes      %d\n",
						v.Created, v.Purged, v.Failed, v.Crashed, v.Bytes)
					if v.Paused != nil {
						fmt.Fprintf(w, "paused     %s\n", v.Paused.text())
					}
				})
			})
		},
	}
}

// queueSetCmd makes the command that replaces a queue's configuration. Settings for which 0 has a
// meaning of its own are pointers in the SDK: they are set only if their flag was given.
func (a *app) queueSetCmd() *cobra.Command {
	var cfg millrace.QueueConfig
	var deliveries int
	var aging, completed, dead, cancelled, grace time.Duration
	c := &cobra.Command{
		Use:   "set QUEUE",
		Short: "Replace a queue's configuration; settings that are not given get their defaults",
		Example: `  millrace queue set mail --attempts 8 --lease 2m
  millrace queue set audit --retain-completed 0s`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f := c.Flags()
			if f.Changed("deliveries") {
				cfg.MaxDeliveries = &deliveries
			}
			// Only flags that were given are set: nil leaves the setting at its default, while a
			// pointer to 0 is the value 0.
			for name, to := range map[string]struct {
				value *time.Duration
				field **time.Duration
			}{
				"aging": {&aging, &cfg.Aging}, "retain-completed": {&completed, &cfg.RetainCompleted},
				"retain-dead": {&dead, &cfg.RetainDead}, "retain-cancelled": {&cancelled, &cfg.RetainCancelled},
				"cancel-grace": {&grace, &cfg.CancelGrace},
			} {
				if f.Changed(name) {
					*to.field = to.value
				}
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				v, err := client.Queue(args[0]).Set(ctx, cfg)
				if err != nil {
					return err
				}
				return a.print(map[string]uint64{"version": v}, func(w io.Writer) { fmt.Fprintf(w, "version %d\n", v) })
			})
		},
	}
	f := c.Flags()
	// When a task is dead.
	f.IntVar(&cfg.MaxAttempts, "attempts", 0, "number of failed attempts after which a task is dead; default 5")
	f.IntVar(&cfg.MaxCrashes, "crashes", 0, "number of crashes (leases that ran out) after which a task is dead; default 10")
	f.IntVar(&deliveries, "deliveries", 0, "number of deliveries of any outcome after which a task is dead; 0 = no limit; default 1000")
	// How long attempts take and tasks wait.
	f.DurationVar(&cfg.Lease, "lease", 0, "how long a worker keeps a task without renewing its lease; default 60s")
	f.DurationVar(&cfg.MaxRun, "max-run", 0, "limit of the time of one attempt; default none")
	f.DurationVar(&aging, "aging", 0, "waiting time that raises a task by one priority; 0 = strict priority; default 60s")
	f.DurationVar(&cfg.DefaultTTL, "default-ttl", 0, "time after its create at which a task is dead that no worker got and that names no time; default none")
	f.DurationVar(&grace, "cancel-grace", 0, "how long the worker of a cancelled task may go on; 0 = not at all; default 30s")
	// How long ended tasks are kept.
	f.DurationVar(&completed, "retain-completed", 0, "how long completed tasks are kept; default 24h")
	f.DurationVar(&dead, "retain-dead", 0, "how long dead tasks are kept; default 336h")
	f.DurationVar(&cancelled, "retain-cancelled", 0, "how long cancelled tasks are kept; default 24h")
	f.StringVar(&cfg.DeadLetter, "dead-letter", "", "queue in which a copy is made of each task that dies; default none")
	limitFlags(f, &cfg)
	shareFlags(f, &cfg)
	f.Uint64Var(&cfg.Version, "if-version", 0, "only if the configuration has this version")
	return c
}

// limitFlags adds the flags that bound a queue, and what its tasks may ask for themselves. 0 bounds nothing.
func limitFlags(f *pflag.FlagSet, cfg *millrace.QueueConfig) {
	f.Int64Var(&cfg.MaxTasks, "max-tasks", 0, "limit of tasks that have not ended, per partition; default none")
	f.Int64Var(&cfg.MaxBytes, "max-bytes", 0, "limit of payloads and results in bytes, per partition; default none")
	ceilings := &cfg.Ceilings
	f.IntVar(&ceilings.MaxAttempts, "ceiling-attempts", 0, "most failed attempts that a task may ask for; default no ceiling")
	f.IntVar(&ceilings.MaxCrashes, "ceiling-crashes", 0, "most crashes that a task may ask for; default no ceiling")
	f.IntVar(&ceilings.MaxDeliveries, "ceiling-deliveries", 0, "most deliveries that a task may ask for; default no ceiling")
	f.DurationVar(&ceilings.Lease, "ceiling-lease", 0, "longest lease that a task may ask for; default no ceiling")
	f.DurationVar(&ceilings.MaxRun, "ceiling-max-run", 0, "longest time of an attempt that a task may ask for; default no ceiling")
	f.IntVar(&ceilings.Priority, "ceiling-priority", 0, "highest priority that a task may ask for; default no ceiling")
}

// queueRmCmd makes the command that removes a queue.
func (a *app) queueRmCmd() *cobra.Command {
	var purge bool
	var version uint64
	c := &cobra.Command{
		Use:   "rm QUEUE",
		Short: "Remove a queue with its tasks and its configuration; needs --purge while some tasks have not ended",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var opts []millrace.QueueDeleteOption
			if purge {
				opts = append(opts, millrace.Purge())
			}
			if c.Flags().Changed("if-version") {
				opts = append(opts, millrace.IfVersion(version))
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				if err := client.Queue(args[0]).Delete(ctx, opts...); err != nil {
					return err
				}
				return a.print(map[string]string{"removed": args[0]}, func(w io.Writer) { fmt.Fprintf(w, "removed %s\n", args[0]) })
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&purge, "purge", false, "cancel tasks that have not ended, and remove the queue with them")
	f.Uint64Var(&version, "if-version", 0, "only if the configuration has this version")
	return c
}
