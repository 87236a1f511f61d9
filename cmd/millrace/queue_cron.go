package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// queueCronCmd makes the command of crons.
func (a *app) queueCronCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "cron",
		Short: "Make tasks by schedules: set, list, preview, pause, run by hand and remove crons",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	c.AddCommand(a.cronSetCmd(), a.cronListCmd(), a.cronShowCmd(), a.cronRunsCmd(), a.cronPreviewCmd(), a.cronTriggerCmd(), a.cronPauseCmd(), a.cronResumeCmd(), a.cronRmCmd())
	return c
}

// cronFlags are the flags of queue cron set.
type cronFlags struct {
	zone, kind, overlap, catchUp string
	key                          string
	labels                       map[string]string
	limiters                     []string
	jitter                       time.Duration
	start, end                   time.Time
	paused                       bool
	priority, attempts, cost     int
}

// cronSetCmd makes the command that sets a cron.
func (a *app) cronSetCmd() *cobra.Command {
	var f cronFlags
	c := &cobra.Command{
		Use:   "set NAME SCHEDULE QUEUE [PAYLOAD|-]",
		Short: "Make a cron, or replace it, and print when it is due",
		Long: `Make a cron, or replace it, and print when it is due. SCHEDULE has five fields as in crontab(5), or six with seconds first, or is
@every with a duration, @hourly, @daily, @weekly, @monthly or @yearly. With another schedule, zone, start or end the slots are counted
from now on.`,
		Example: `  millrace queue cron set nightly '0 2 * * *' reports '{"of":"yesterday"}' --zone Europe/Berlin
  millrace queue cron set poll '@every 30s' poll --overlap queue_one`,
		Args: cobra.RangeArgs(3, 4),
		RunE: func(c *cobra.Command, args []string) error {
			var payload []byte
			if len(args) == 4 {
				var err error
				if payload, err = a.argument(args[3]); err != nil {
					return err
				}
			}
			opts, err := f.options()
			if err != nil {
				return err
			}
			var body any = payload
			if v, ok := jsonOf(payload); ok {
				body = v
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				job := millrace.Job[any, []byte](cmp.Or(f.kind, args[2])).Queue(args[2]).Priority(f.priority).Attempts(f.attempts).Limiters(f.limiters...)
				got, err := job.Cron(ctx, client, args[0], args[1], body, opts...)
				if err != nil {
					return err
				}
				return a.printCron(got)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.zone, "zone", "", "zone of the schedule in the IANA database, such as Europe/Berlin; default UTC")
	flags.StringVar(&f.kind, "kind", "", "kind of the tasks; default the queue's name")
	flags.StringToStringVar(&f.labels, "label", nil, "label NAME=VALUE of the tasks; may be repeated")
	flags.StringVar(&f.key, "key", "", "key of the tasks: the line of the queue that they wait in, which has its share and limits")
	flags.IntVar(&f.cost, "cost", 0, "what each task weighs in shares and rates; default 1")
	flags.StringSliceVar(&f.limiters, "limiter", nil, "name of a limiter that the tasks need; may be repeated, at most 4")
	flags.IntVar(&f.priority, "priority", 0, "priority of the tasks, 0 to 9")
	flags.IntVar(&f.attempts, "attempts", 0, "number of failed attempts after which a task is dead; default the queue's")
	flags.StringVar(&f.overlap, "overlap", "skip", "what a slot does while the task before has not ended: skip, allow, queue_one or cancel_previous")
	flags.StringVar(&f.catchUp, "catch-up", "one", "which slots that were missed run: one, none or all")
	spanVar(flags, &f.jitter, "jitter", 0, "time of which each task waits for a part")
	momentVar(flags, &f.start, "start", "time before which no slot is")
	momentVar(flags, &f.end, "end", "time after which no slot is")
	flags.BoolVar(&f.paused, "paused", false, "let the slots go by until the cron is resumed")
	return valuesFrom(c, 3)
}

// options returns what the flags say.
func (f *cronFlags) options() ([]millrace.CronOption, error) {
	overlap, ok := millrace.ParseCronOverlap(f.overlap)
	if !ok {
		return nil, usageError{fmt.Errorf("--overlap: %q must be skip, allow, queue_one or cancel_previous", f.overlap)}
	}
	catchUp, ok := millrace.ParseCronCatchUp(f.catchUp)
	if !ok {
		return nil, usageError{fmt.Errorf("--catch-up: %q must be one, none or all", f.catchUp)}
	}
	opts := []millrace.CronOption{
		millrace.CronZone(f.zone), millrace.CronOverlaps(overlap), millrace.CronCatchesUp(catchUp), millrace.CronBetween(f.start, f.end),
	}
	if f.jitter != 0 {
		opts = append(opts, millrace.CronJitter(f.jitter))
	}
	if f.paused {
		opts = append(opts, millrace.CronPaused())
	}
	if len(f.labels) > 0 {
		opts = append(opts, millrace.CronTask(millrace.Labels(f.labels)))
	}
	if f.key != "" {
		opts = append(opts, millrace.CronTask(millrace.Key(f.key)))
	}
	if f.cost != 0 {
		opts = append(opts, millrace.CronTask(millrace.Cost(f.cost)))
	}
	return opts, nil
}

// cronView is a cron as the command line prints it.
type cronView struct {
	Name     string    `json:"name"`
	Schedule string    `json:"schedule"`
	Zone     string    `json:"zone,omitempty"`
	Words    string    `json:"words"`
	Queue    string    `json:"queue"`
	Kind     string    `json:"kind"`
	Key      string    `json:"key,omitempty"`
	Cost     int       `json:"cost,omitempty"`
	Next     time.Time `json:"next_at,omitzero"`
	Waiting  time.Time `json:"waiting_at,omitzero"`
	Paused   bool      `json:"paused"`
	Overlap  string    `json:"overlap"`
	CatchUp  string    `json:"catch_up"`
	Jitter   string    `json:"jitter,omitempty"`
	Start    time.Time `json:"start,omitzero"`
	End      time.Time `json:"end,omitzero"`
	Version  uint64    `json:"version"`
	Runs     uint64    `json:"runs"`
	LastRun  *runView  `json:"last_run,omitempty"`
}

// printCron prints a cron on one line.
func (a *app) printCron(c *millrace.Cron) error {
	v := cronView{
		Name: c.Name, Schedule: c.Schedule, Zone: c.Zone, Words: c.Words, Queue: c.Queue, Kind: c.Kind, Key: c.Key, Next: c.Next, Waiting: c.Waiting, Paused: c.Paused,
		Overlap: c.Overlap.String(), CatchUp: c.CatchUp.String(), Start: c.Start, End: c.End, Version: c.Version, Runs: c.Runs,
	}
	if c.Cost > 1 {
		v.Cost = c.Cost
	}
	if c.Jitter > 0 {
		v.Jitter = c.Jitter.String()
	}
	if c.LastRun != nil {
		last := runViewOf(c.LastRun)
		v.LastRun = &last
	}
	return a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s  %s %s  queue %s", oneLine(v.Name), oneLine(v.Schedule), v.Words, cmp.Or(oneLine(v.Zone), "UTC"), oneLine(v.Queue))
		switch {
		case v.Paused:
			fmt.Fprint(w, "  paused")
		case v.Next.IsZero():
			fmt.Fprint(w, "  no slot is left")
		default:
			fmt.Fprintf(w, "  next %s", stamp(v.Next))
		}
		if v.LastRun != nil {
			fmt.Fprintf(w, "  last %s", v.LastRun.text())
		}
		fmt.Fprintln(w)
	})
}

// runView is a run of a cron as the command line prints it.
type runView struct {
	Number  uint64    `json:"number"`
	Slot    time.Time `json:"slot"`
	At      time.Time `json:"at"`
	ByHand  bool      `json:"by_hand,omitempty"`
	Outcome string    `json:"outcome"`
	Skipped string    `json:"skipped,omitempty"`
	Task    string    `json:"task,omitempty"`
	State   string    `json:"state,omitempty"`
	Passed  int       `json:"passed,omitempty"`
	Code    string    `json:"code,omitempty"`
	Message string    `json:"message,omitempty"`
}

func runViewOf(r *millrace.CronRun) runView {
	v := runView{
		Number: r.Number, Slot: r.Slot, At: r.At, ByHand: r.ByHand, Outcome: r.Outcome, Skipped: r.Skipped, Task: r.Task, Passed: r.Passed, Code: r.Code,
		Message: r.Message,
	}
	if r.State != 0 {
		v.State = r.State.String()
	}
	return v
}

// text is what a run came to, in words.
func (v *runView) text() string {
	out := v.Outcome
	switch {
	case v.Skipped != "":
		out += ": " + v.Skipped
	case v.Code != "":
		out += ": " + v.Code + " " + oneLine(v.Message)
	case v.Task != "":
		out += " " + v.Task
		if v.State != "" {
			out += " " + v.State
		}
	}
	return out
}

// printRun prints a run on one line.
func (a *app) printRun(r *millrace.CronRun) error {
	v := runViewOf(r)
	return a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%d  %s  %s", v.Number, stamp(v.Slot), v.text())
		if v.ByHand {
			fmt.Fprint(w, "  by hand")
		}
		if v.Passed > 0 {
			fmt.Fprintf(w, "  after %d that were passed over", v.Passed)
		}
		fmt.Fprintln(w)
	})
}

// cronListCmd makes the command that lists crons.
func (a *app) cronListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List crons by name, with their next slots and last runs",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return eachOf(ctx, 0, client.Crons, a.printCron)
			})
		},
	}
}

// cronShowCmd makes the command that shows a cron.
func (a *app) cronShowCmd() *cobra.Command {
	return a.cronNamed("show NAME", "Show a cron with its last run", func(ctx context.Context, client *millrace.Client, name string) error {
		got, err := client.Cron(ctx, name)
		if err != nil {
			return err
		}
		return a.printCron(got)
	})
}

// cronNamed makes a command about one cron.
func (a *app) cronNamed(use, short string, run func(ctx context.Context, client *millrace.Client, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error { return run(ctx, client, args[0]) })
		},
	}
}

// cronRunsCmd makes the command that lists the runs of a cron.
func (a *app) cronRunsCmd() *cobra.Command {
	return a.cronNamed("runs NAME", "List the last runs of a cron, at most 100, the last one first", func(ctx context.Context, client *millrace.Client, name string) error {
		runs, err := client.CronRuns(ctx, name)
		for _, r := range runs {
			if err := a.printRun(r); err != nil {
				return err
			}
		}
		return err
	})
}

// cronTriggerCmd makes the command that runs a cron by hand.
func (a *app) cronTriggerCmd() *cobra.Command {
	return a.cronNamed("trigger NAME", "Run a cron now; its next slot stays", func(ctx context.Context, client *millrace.Client, name string) error {
		run, err := client.TriggerCron(ctx, name)
		if err != nil {
			return err
		}
		return a.printRun(run)
	})
}

// cronPauseCmd makes the command that pauses a cron.
func (a *app) cronPauseCmd() *cobra.Command {
	return a.cronNamed("pause NAME", "Let the slots of a cron go by until it is resumed", func(ctx context.Context, client *millrace.Client, name string) error {
		replayed, err := client.PauseCron(ctx, name)
		return a.turned(name, "paused", replayed, err)
	})
}

// cronResumeCmd makes the command that lets a paused cron go on.
func (a *app) cronResumeCmd() *cobra.Command {
	return a.cronNamed("resume NAME", "Let a paused cron go on", func(ctx context.Context, client *millrace.Client, name string) error {
		replayed, err := client.ResumeCron(ctx, name)
		return a.turned(name, "resumed", replayed, err)
	})
}

// cronRmCmd makes the command that removes a cron.
func (a *app) cronRmCmd() *cobra.Command {
	return a.cronNamed("rm NAME", "Remove a cron with the list of its runs; its tasks stay", func(ctx context.Context, client *millrace.Client, name string) error {
		if err := client.DeleteCron(ctx, name); err != nil {
			return err
		}
		return a.print(map[string]any{"removed": name}, func(w io.Writer) { fmt.Fprintf(w, "removed %s\n", oneLine(name)) })
	})
}

// cronPreviewCmd makes the command that says when a schedule holds.
func (a *app) cronPreviewCmd() *cobra.Command {
	var zone string
	var count int
	c := &cobra.Command{
		Use:     "preview SCHEDULE",
		Short:   "Say in words when a schedule holds, and list its next slots",
		Example: `  millrace queue cron preview '30 2 * * *' --zone Europe/Berlin`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				p, err := client.PreviewCron(ctx, args[0], zone, count)
				if err != nil {
					return err
				}
				return a.printPreview(p)
			})
		},
	}
	c.Flags().StringVar(&zone, "zone", "", "zone of the schedule; default UTC")
	c.Flags().IntVar(&count, "count", 5, "number of slots, 1 to 100")
	return c
}

// printPreview prints when a schedule holds.
func (a *app) printPreview(p *millrace.CronPreview) error {
	type change struct {
		At    time.Time `json:"at"`
		By    string    `json:"by"`
		Words string    `json:"words"`
		Slots []string  `json:"slots,omitempty"`
	}
	v := struct {
		Words string   `json:"words"`
		Times []string `json:"times"`
		DST   []change `json:"dst"`
	}{Words: p.Words, Times: p.Times}
	for _, c := range p.Changes {
		v.DST = append(v.DST, change{At: c.At, By: c.By.String(), Words: c.Words, Slots: c.Slots})
	}
	return a.print(v, func(w io.Writer) {
		fmt.Fprintln(w, v.Words)
		for _, t := range v.Times {
			fmt.Fprintf(w, "  %s\n", t)
		}
		for _, c := range v.DST {
			fmt.Fprintf(w, "clocks change at %s by %s: %s\n", stamp(c.At), c.By, c.Words)
		}
	})
}
