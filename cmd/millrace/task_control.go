package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// perTask is what each id adds to the time limit of a command that takes several: a write to a slow disk.
const perTask = 100 * time.Millisecond

// fate is what became of one task of a command that takes several.
type fate struct {
	// ID is as it was given.
	ID string `json:"id"`
	// State is empty where the task is removed.
	State    string `json:"state,omitempty"`
	Removed  bool   `json:"removed,omitempty"`
	Replayed bool   `json:"replayed,omitempty"`
	text     string // for a person; empty: State
}

// each tries do with each id, and prints a line for each: what became of the task on the output, or why it was refused on the error
// stream. The command exits with 1 if any was refused, or else with 3 if the server did not answer for any.
func (a *app) each(ctx context.Context, ids []string, do func(ctx context.Context, c *millrace.Client, id string) (fate, error)) error {
	limit := cmp.Or(a.conn.timeout, defaultTimeout+time.Duration(len(ids))*perTask)
	return a.within(ctx, limit, func(ctx context.Context, c *millrace.Client) error {
		code := exitOK
		for _, id := range ids {
			f, err := do(ctx, c, id)
			if err != nil {
				a.reportOf(id, err)
				if code != exitRefused {
					code = exitCode(err, a.told.ctx.Err() != nil)
				}
				continue
			}
			f.ID = id
			if err := a.print(f, func(w io.Writer) { fmt.Fprintf(w, "%s  %s\n", id, cmp.Or(f.text, f.State)) }); err != nil {
				return err
			}
		}
		if code != exitOK {
			return exitError{code, errReported}
		}
		return nil
	})
}

// taskCancelCmd makes the command that cancels tasks.
func (a *app) taskCancelCmd() *cobra.Command {
	var reason string
	var force bool
	c := &cobra.Command{
		Use:   "cancel ID...",
		Short: "Cancel tasks; the worker of one that runs is told to stop",
		Long: `Cancel tasks that have not ended. One that waits is cancelled at once. The worker of one that runs is told
to stop, and the task is cancelled when its attempt ends in any way but a completion, or when the
queue's cancel_grace is over. With --force the worker is not waited for: it loses its lease.`,
		Example: `  millrace task cancel $ID --reason 'ordered twice'`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			opts := []millrace.CancelOption{millrace.CancelReason(reason)}
			if force {
				opts = append(opts, millrace.ForceCancel())
			}
			return a.each(c.Context(), args, func(ctx context.Context, client *millrace.Client, id string) (fate, error) {
				r, err := client.Cancel(ctx, id, opts...)
				f := fate{State: r.State.String(), Replayed: r.Replayed}
				if r.State == millrace.Running {
					f.text = "running, told to stop"
				}
				return f, err
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, at most 256 bytes; the worker and readers see it")
	c.Flags().BoolVar(&force, "force", false, "do not wait for the worker of a running task")
	return c
}

// taskRetryCmd makes the command that makes ended tasks ready.
func (a *app) taskRetryCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "retry ID...",
		Short:   "Make dead or cancelled tasks ready; their failures and crashes count from 0 again",
		Example: `  millrace task list -q mail --state dead --json | jq -r .id | xargs millrace task retry`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.each(c.Context(), args, func(ctx context.Context, client *millrace.Client, id string) (fate, error) {
				s, err := client.Retry(ctx, id)
				return fate{State: s.String()}, err
			})
		},
	}
}

// taskReleaseCmd makes the command that takes running tasks from their workers. It demands --force, because a worker that is well
// gives its tasks back by itself.
func (a *app) taskReleaseCmd() *cobra.Command {
	var force bool
	var attempt int
	c := &cobra.Command{
		Use:   "release ID... --force",
		Short: "Take running tasks from their workers, and put them back to their old places",
		Long: `Take running tasks from their workers, which lose their leases: what they still do changes nothing. The
tasks go back to their old places. It counts as a delivery, and neither as a failure nor as a crash.`,
		Example: `  millrace task release $ID --force --attempt 2`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if !force {
				return usageError{errors.New("--force is required: the workers of the tasks are not asked")}
			}
			var opts []millrace.ForceReleaseOption
			if c.Flags().Changed("attempt") {
				if attempt < 1 {
					return usageError{errors.New("--attempt must be 1 or more")}
				}
				opts = append(opts, millrace.OfAttempt(attempt))
			}
			return a.each(c.Context(), args, func(ctx context.Context, client *millrace.Client, id string) (fate, error) {
				s, err := client.ForceRelease(ctx, id, opts...)
				return fate{State: s.String()}, err
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "do not ask the worker (required)")
	c.Flags().IntVar(&attempt, "attempt", 0, "only while the attempt with this number runs; default any")
	return c
}

// taskRmCmd makes the command that removes ended tasks.
func (a *app) taskRmCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID...",
		Short: "Remove tasks that have ended (admin)",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.each(c.Context(), args, func(ctx context.Context, client *millrace.Client, id string) (fate, error) {
				return fate{Removed: true, text: "removed"}, client.Delete(ctx, id)
			})
		},
	}
}

// editFlags are the flags of task edit.
type editFlags struct {
	edit          millrace.TaskEdit
	priority      int
	delay         time.Duration
	payload, file string
	labels        map[string]string
	clearLabels   bool
}

// taskEditCmd makes the command that edits a task.
func (a *app) taskEditCmd() *cobra.Command {
	var f editFlags
	c := &cobra.Command{
		Use:   "edit ID",
		Short: "Edit a task that waits; what no flag names stays",
		Long: `Edit a task that waits. Of a dead task the payload, the priority and the labels can be edited. A
repetition of its create is still known by what that sent.`,
		Example: `  millrace task edit $ID --priority 9 --delay 0s
  millrace task edit $ID --label env=prod --label order=7 --never-expires
  millrace task edit $ID --payload-file job.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.readEdit(c, &f); err != nil {
				return err
			}
			return a.each(c.Context(), args, func(ctx context.Context, client *millrace.Client, id string) (fate, error) {
				s, err := client.Edit(ctx, id, f.edit)
				return fate{State: s.String()}, err
			})
		},
	}
	flags := c.Flags()
	flags.IntVar(&f.priority, "priority", 0, "priority, 0 to 9; 9 is delivered first")
	momentVar(flags, &f.edit.RunAt, "run-at", "time at which the task is ready")
	flags.DurationVar(&f.delay, "delay", 0, "how long until the task is ready; 0s = now")
	flags.StringVar(&f.payload, "payload", "", "payload in place of the old one")
	flags.StringVar(&f.file, "payload-file", "", "file with the payload; - is the standard input")
	flags.StringVar(&f.edit.ContentType, "content-type", "", "how to read the payload, such as image/png")
	flags.StringToStringVar(&f.labels, "label", nil, "label NAME=VALUE in place of all that there are; may be repeated")
	flags.BoolVar(&f.clearLabels, "clear-labels", false, "remove all labels")
	momentVar(flags, &f.edit.ExpiresAt, "expires-at", "time at which the task is dead if no worker got it")
	flags.BoolVar(&f.edit.NeverExpires, "never-expires", false, "the task does not expire")
	mayBeEmpty(flags, "payload")
	for _, pair := range [][]string{
		{"run-at", "delay"}, {"payload", "payload-file"}, {"label", "clear-labels"}, {"expires-at", "never-expires"},
	} {
		c.MarkFlagsMutuallyExclusive(pair...)
	}
	c.MarkFlagsOneRequired("priority", "run-at", "delay", "payload", "payload-file", "content-type", "label", "clear-labels", "expires-at", "never-expires")
	return c
}

// readEdit fills in what flags whose zero value means something were given.
func (a *app) readEdit(c *cobra.Command, f *editFlags) error {
	given := c.Flags().Changed
	if given("priority") {
		f.edit.Priority = &f.priority
	}
	if given("delay") {
		f.edit.Delay = &f.delay
	}
	switch {
	case f.clearLabels:
		f.edit.Labels = map[string]string{}
	case given("label"):
		f.edit.Labels = f.labels
	}
	payload := []byte(f.payload)
	switch {
	case given("payload-file"):
		var err error
		if payload, err = a.file(f.file); err != nil {
			return fmt.Errorf("--payload-file: %w", err)
		}
	case !given("payload"):
		return nil
	}
	f.edit.Payload = payload
	if v, ok := jsonOf(payload); ok {
		f.edit.Payload = v
	}
	return nil
}

// file returns what is in a file: standard input for "-".
func (a *app) file(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.in)
	}
	return os.ReadFile(name)
}

// labelText shows labels on one line, by name.
func labelText(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+plain(labels[name]))
	}
	return strings.Join(parts, " ")
}

// cancelView is the cancel of a task as the command line prints it.
type cancelView struct {
	// At is when it was asked for, By the name of the token.
	At     time.Time `json:"at,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Force  bool      `json:"force"`
	// Until is when the lease of a running task ends at the latest.
	Until time.Time `json:"until,omitzero"`
}

// cancelOf makes the view of a cancel; nil stays nil.
func cancelOf(c *millrace.CancelAsked) *cancelView {
	if c == nil {
		return nil
	}
	return &cancelView{At: c.At, By: c.By, Reason: c.Reason, Force: c.Force, Until: c.Until}
}

// text shows the cancel on one line.
func (v *cancelView) text() string {
	s := stamp(v.At)
	if v.By != "" {
		s += " by " + oneLine(v.By)
	}
	if v.Force {
		s += ", by force"
	}
	if !v.Until.IsZero() {
		s += ", the worker has until " + stamp(v.Until)
	}
	if v.Reason != "" {
		s += ": " + oneLine(v.Reason)
	}
	return s
}
