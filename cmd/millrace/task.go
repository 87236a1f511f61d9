package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// taskCmd makes the command for tasks.
func (a *app) taskCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "task",
		Short: "Create, read, claim, settle and operate tasks",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.taskCreateCmd(), a.taskGetCmd(), a.taskWhyCmd(), a.taskEffectsCmd(), a.taskLogsCmd(), a.taskListCmd(), a.taskWaitCmd(), a.taskClaimCmd(),
		a.taskCompleteCmd(), a.taskFailCmd(), a.taskCancelCmd(), a.taskRetryCmd(), a.taskReleaseCmd(), a.taskEditCmd(), a.taskRmCmd())
	return c
}

// taskView is a task as the command line prints it. Zero times and empty texts are left out.
type taskView struct {
	// The id, which also tells the partition.
	ID string `json:"id"`
	// Queue is the queue that the task is in; Kind says which handler it is for.
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	State string `json:"state"`
	// Why the task is in its state, as a code.
	Reason string `json:"reason,omitempty"`
	// The number of deliveries so far, how many of them failed, and in how many the lease ran out.
	Attempt int `json:"attempt"`
	// Failures counts the deliveries that a worker reported as failed.
	Failures int `json:"failures"`
	// Crashes counts those whose lease ran out.
	Crashes int `json:"crashes"`
	// 0 to 9; 9 is delivered first.
	Priority int `json:"priority"`
	// What places the task in a partition, if it was created with a tag.
	Tag     string            `json:"tag,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// By name, for people and tools.
	Labels map[string]string `json:"labels,omitempty"`
	// After are the tasks that it was made to wait for; Pending is how many of them a blocked task waits for.
	After        []afterView `json:"after,omitempty"`
	OnDepFailure string      `json:"on_dep_failure,omitempty"`
	Pending      int         `json:"pending,omitempty"`
	// Dependents is how many blocked tasks wait for this one.
	Dependents int `json:"dependents,omitempty"`
	// Of the batch that it was added to.
	Batch string `json:"batch,omitempty"`
	// Times of the server's clock. RunAt is when a delayed task becomes ready, StartedAt and
	// LeaseUntil belong to the last attempt.
	CreatedAt  time.Time `json:"created_at,omitzero"`
	RunAt      time.Time `json:"run_at,omitzero"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	Worker     string    `json:"worker,omitempty"`
	// ExpiresAt is when a task is dead that no worker got yet; Cancel says who asked for its cancel.
	ExpiresAt time.Time   `json:"expires_at,omitzero"`
	Cancel    *cancelView `json:"cancel,omitempty"`
	// Progress is what the worker of the last attempt told.
	Progress *progressView `json:"progress,omitempty"`
	// Nil in lists, which do not fetch payloads and results; Result is also nil if the task has
	// none.
	Payload *content `json:"payload,omitempty"`
	Result  *content `json:"result,omitempty"`
	// What the last failed attempt reported.
	Error     string `json:"error,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`
	// Of the last error, also where a lease was lost or the task expired.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// content is bytes that print as JSON: the value itself if they are JSON, else a string if they are
// UTF-8, else an object with the bytes in base64 under the key base64.
type content []byte

// MarshalJSON writes the content in one of its three forms. A string may be text that looks like a
// number: it is text all the same.
func (c content) MarshalJSON() ([]byte, error) {
	if v, ok := jsonOf(c); ok {
		return v, nil
	}
	if utf8.Valid(c) {
		return json.Marshal(string(c))
	}
	return json.Marshal(map[string][]byte{"base64": c})
}

// viewOf makes the view of a task. whole adds the payload and the result.
func viewOf(t *millrace.TaskInfo, whole bool) taskView {
	v := taskView{
		ID: t.ID, Queue: t.Queue, Kind: t.Kind, State: t.State.String(), Reason: t.Reason, Attempt: t.Attempt,
		Failures: t.Failures, Crashes: t.Crashes, Priority: t.Priority, Tag: t.Tag, Headers: t.Headers, CreatedAt: t.CreatedAt,
		RunAt: t.RunAt, StartedAt: t.StartedAt, FinishedAt: t.FinishedAt, LeaseUntil: t.LeaseUntil, Worker: t.Worker,
		Error: t.ErrorMessage, ErrorCode: t.ErrorCode, Labels: t.Labels, ExpiresAt: t.ExpiresAt, Cancel: cancelOf(t.Cancel), Progress: progressViewOf(t.Progress),
		Fingerprint: t.Fingerprint, Pending: t.Pending, Dependents: t.Dependents, Batch: t.Batch,
	}
	if v.After = aftersOf(t.After); len(v.After) > 0 {
		v.OnDepFailure = t.OnDepFailure.String()
	}
	if whole {
		v.Payload = (*content)(&t.Payload)
		if t.HasResult {
			v.Result = (*content)(&t.Result)
		}
	}
	return v
}

// text prints a task for a person. Texts that clients chose are kept on one line.
func (v taskView) text(w io.Writer) {
	fmt.Fprintf(w, "id        %s\nqueue     %s\nkind      %s\nstate     %s", v.ID, v.Queue, v.Kind, v.State)
	if v.Reason != "" {
		fmt.Fprintf(w, " (%s)", v.Reason)
	}
	fmt.Fprintf(w, "\nattempt   %d (failures %d, crashes %d)\ncreated   %s\n", v.Attempt, v.Failures, v.Crashes, stamp(v.CreatedAt))
	// Times that the task does not have are left out.
	for _, l := range []struct {
		name string
		t    time.Time
	}{{"run at", v.RunAt}, {"started", v.StartedAt}, {"lease", v.LeaseUntil}, {"finished", v.FinishedAt}, {"expires", v.ExpiresAt}} {
		if !l.t.IsZero() {
			fmt.Fprintf(w, "%-10s%s\n", l.name, stamp(l.t))
		}
	}
	for _, d := range v.After {
		fmt.Fprintf(w, "after     %s\n", d.text())
	}
	if v.Dependents > 0 {
		fmt.Fprintf(w, "holds up  %d\n", v.Dependents)
	}
	if v.Batch != "" {
		fmt.Fprintf(w, "batch     %s\n", v.Batch)
	}
	if v.Worker != "" {
		fmt.Fprintf(w, "worker    %s\n", oneLine(v.Worker))
	}
	if v.Tag != "" {
		fmt.Fprintf(w, "tag       %s\n", oneLine(v.Tag))
	}
	if len(v.Labels) > 0 {
		fmt.Fprintf(w, "labels    %s\n", labelText(v.Labels))
	}
	if p := v.Progress; p != nil {
		fmt.Fprintf(w, "progress  %d%% %s at %s\n", p.Percent, oneLine(p.Message), stamp(p.At))
	}
	if v.Cancel != nil {
		fmt.Fprintf(w, "cancel    %s\n", v.Cancel.text())
	}
	if v.Error != "" {
		fmt.Fprintf(w, "error     %s\n", oneLine(v.Error))
	}
	if v.Fingerprint != "" {
		fmt.Fprintf(w, "group     %s\n", v.Fingerprint)
	}
	if v.Payload != nil {
		fmt.Fprintf(w, "payload   %s\n", *v.Payload)
	}
	if v.Result != nil {
		fmt.Fprintf(w, "result    %s\n", *v.Result)
	}
}

// stamp returns a time in UTC with milliseconds, which is the precision of the server.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// taskFlags are the flags of task create. Zero values mean the defaults of the queue.
type taskFlags struct {
	// at is a time as in RFC 3339, which excludes delay.
	kind, id, unique, tag, key, batch, at string
	cost                                  int
	// Names of limiters.
	limiters []string
	// until and conflict are words about the unique key.
	until, conflict string
	// Tasks to wait for, each an id, or ID:terminal; onDepFailure is hold, cancel or run.
	after        []string
	onDepFailure string
	// Headers by name.
	headers map[string]string
	// Labels by name.
	labels map[string]string
	// When a task that no worker got is dead; the zero time and 0 mean the default of the queue.
	expiresAt time.Time
	expiresIn time.Duration
	// delay is how long until the task is ready; lease is 0 for the queue's default.
	delay, lease       time.Duration
	priority, attempts int
	// Wait for the task's end and print it.
	wait bool
}

// taskCreateCmd makes the command that creates a task. With --wait it also waits for the task's
// end, without a limit of time.
func (a *app) taskCreateCmd() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use:   "create QUEUE [PAYLOAD|-]",
		Short: "Create a task and print its id",
		Example: `  millrace task create mail '{"to":"ada"}'
  millrace task create build - --delay 5m < job.json
  millrace task create report --after "$fetch" --after "$clean:terminal"`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			var payload []byte
			if len(args) == 2 {
				var err error
				if payload, err = a.argument(args[1]); err != nil {
					return err
				}
			}
			run := a.with
			if f.wait {
				run = a.waiting
			}
			return run(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return a.createTask(ctx, client, args[0], payload, f)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.kind, "kind", "", "kind of the task; default the queue's name")
	flags.StringVar(&f.id, "id", "", "id, which makes the create safe to repeat; default a new one")
	flags.StringVar(&f.unique, "unique", "", "unique key: a second create answers with the first task for 24 h")
	flags.StringVar(&f.until, "unique-until", "ttl", "what frees the unique key: ttl, start or terminal")
	flags.StringVar(&f.conflict, "on-conflict", "return", "what a second create of the unique key does: return, reject or replace")
	flags.StringVar(&f.tag, "tag", "", "tag: tasks and keys with one tag share a partition and can change together")
	flags.StringVar(&f.key, "key", "", "key: the line of the queue that the task waits in, which has its share and limits")
	flags.IntVar(&f.cost, "cost", 0, "what the task weighs in shares, rates and limiters; default 1")
	flags.StringSliceVar(&f.limiters, "limiter", nil, "name of a limiter that the task needs; may be repeated, at most 4 together with those of its queue")
	flags.StringArrayVar(&f.after, "after", nil, "id of a task that must complete before; ID:terminal: that must only end; may be repeated")
	flags.StringVar(&f.batch, "batch", "", "id of the open batch that the task is added to")
	flags.StringVar(&f.onDepFailure, "on-dep-failure", "", "what follows when a task of --after is not completed: hold, cancel or run; default hold")
	flags.StringToStringVar(&f.headers, "header", nil, "header NAME=VALUE; may be repeated")
	flags.StringToStringVar(&f.labels, "label", nil, "label NAME=VALUE; may be repeated")
	momentVar(flags, &f.expiresAt, "expires-at", "time at which the task is dead if no worker got it")
	spanVar(flags, &f.expiresIn, "expires-in", 0, "time after which the task is dead if no worker got it; default the queue's")
	flags.DurationVar(&f.delay, "delay", 0, "how long until the task is ready")
	flags.StringVar(&f.at, "at", "", "time at which the task is ready, as in RFC 3339")
	flags.IntVar(&f.priority, "priority", 0, "priority, 0 to 9; 9 is delivered first")
	flags.IntVar(&f.attempts, "attempts", 0, "number of failed attempts after which the task is dead; default the queue's")
	flags.DurationVar(&f.lease, "lease", 0, "how long a worker keeps the task without renewing its lease; default the queue's")
	flags.BoolVar(&f.wait, "wait", false, "wait until the task ends, and print it")
	c.MarkFlagsMutuallyExclusive("delay", "at")
	c.MarkFlagsMutuallyExclusive("expires-at", "expires-in")
	return valuesFrom(c, 1)
}

// createTask creates one task and prints its id, or waits for its end. A payload that is one JSON
// value is sent as JSON, anything else as bytes. Headers are added in the order of their names, so
// that the same command makes the same task.
func (a *app) createTask(ctx context.Context, c *millrace.Client, queue string, payload []byte, f taskFlags) error {
	// Options are set only if their flags were given, so that everything else stays the queue's
	// default.
	job := millrace.Job[any, []byte](cmp.Or(f.kind, queue)).Queue(queue).Priority(f.priority).Attempts(f.attempts)
	if f.lease != 0 {
		job = job.Lease(f.lease)
	}
	var opts []millrace.AddOption
	if f.id != "" {
		opts = append(opts, millrace.ID(f.id))
	}
	if f.unique != "" {
		opts = append(opts, millrace.UniqueKey(f.unique, 0))
	}
	if f.key != "" {
		opts = append(opts, millrace.Key(f.key))
	}
	if f.cost != 0 {
		opts = append(opts, millrace.Cost(f.cost))
	}
	if len(f.limiters) > 0 {
		opts = append(opts, millrace.Limiters(f.limiters...))
	}
	more, err := uniqueOptions(f.until, f.conflict)
	switch {
	case err != nil:
		return usageError{err}
	case len(more) > 0 && f.unique == "":
		return usageError{errors.New("--unique-until and --on-conflict need --unique")}
	}
	opts = append(opts, more...)
	if f.tag != "" {
		opts = append(opts, millrace.Tag(f.tag))
	}
	if f.batch != "" {
		opts = append(opts, millrace.InBatch(f.batch))
	}
	for _, name := range slices.Sorted(maps.Keys(f.headers)) {
		opts = append(opts, millrace.Header(name, f.headers[name]))
	}
	if len(f.labels) > 0 {
		opts = append(opts, millrace.Labels(f.labels))
	}
	waits, err := f.waits()
	if err != nil {
		return err
	}
	opts = append(opts, waits...)
	switch {
	case !f.expiresAt.IsZero():
		opts = append(opts, millrace.ExpiresAt(f.expiresAt))
	case f.expiresIn != 0:
		opts = append(opts, millrace.ExpiresIn(f.expiresIn))
	}
	if f.delay != 0 {
		opts = append(opts, millrace.In(f.delay))
	}
	if f.at != "" {
		t, err := time.Parse(time.RFC3339Nano, f.at)
		if err != nil {
			return usageError{fmt.Errorf("--at: %w", err)}
		}
		opts = append(opts, millrace.At(t))
	}
	var body any = payload
	if v, ok := jsonOf(payload); ok {
		body = v
	}
	// Repeated after a lost answer, a create with the same id or unique key returns the task that
	// exists.
	h, err := job.Add(ctx, c, body, opts...)
	if err != nil {
		return err
	}
	if f.wait {
		return a.waitTask(ctx, c, h.ID)
	}
	return a.print(map[string]any{"id": h.ID, "replayed": h.Replayed, "replaced": h.Replaced}, func(w io.Writer) { fmt.Fprintln(w, h.ID) })
}

// uniqueOptions reads what frees a unique key, and what a second create of it does.
func uniqueOptions(until, conflict string) (opts []millrace.AddOption, err error) {
	switch until {
	case "ttl":
	case "start":
		opts = append(opts, millrace.UniqueUntil(millrace.UntilStart))
	case "terminal":
		opts = append(opts, millrace.UniqueUntil(millrace.UntilTerminal))
	default:
		return nil, fmt.Errorf("--unique-until: %q must be ttl, start or terminal", until)
	}
	switch conflict {
	case "return":
	case "reject":
		opts = append(opts, millrace.UniqueReject())
	case "replace":
		opts = append(opts, millrace.UniqueReplace())
	default:
		return nil, fmt.Errorf("--on-conflict: %q must be return, reject or replace", conflict)
	}
	return opts, nil
}

// waitTask waits until a task ends and prints it. A task that did not complete is an error, after
// it was printed.
func (a *app) waitTask(ctx context.Context, c *millrace.Client, id string) error {
	t, err := c.Wait(ctx, id)
	if err != nil {
		return err
	}
	v := viewOf(t, true)
	if err := a.print(v, v.text); err != nil {
		return err
	}
	if t.State != millrace.Completed {
		return fmt.Errorf("task %s is %s (%s)", t.ID, t.State, t.Reason)
	}
	return nil
}

// printAttempts prints how many attempts of a task before the last ones ended in which way, and the last ones.
func (a *app) printAttempts(ctx context.Context, client *millrace.Client, id string) error {
	list, err := client.Attempts(ctx, id)
	if err != nil {
		return err
	}
	if len(list) > 0 && list[0].Number > 1 {
		older, err := client.OlderAttempts(ctx, id)
		if err != nil {
			return err
		}
		if err := a.print(map[string]any{"older": older}, func(w io.Writer) {
			for _, outcome := range slices.Sorted(maps.Keys(older)) {
				fmt.Fprintf(w, "%d older attempts  %s\n", older[outcome], outcome)
			}
		}); err != nil {
			return err
		}
	}
	for _, at := range list {
		if err := a.print(at, func(w io.Writer) {
			fmt.Fprintf(w, "attempt %d  %s  %s  %s  %s\n", at.Number, stamp(at.Start), oneLine(at.Worker), cmp.Or(at.Outcome, "running"), oneLine(at.Message))
		}); err != nil {
			return err
		}
	}
	return nil
}

// taskGetCmd makes the command that prints one task.
func (a *app) taskGetCmd() *cobra.Command {
	var attempts bool
	var part string
	c := &cobra.Command{
		Use:   "get ID",
		Short: "Print a task",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			raw := c.Flags().Changed("raw")
			if raw {
				if err := a.checkRaw(part); err != nil {
					return err
				}
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				if raw {
					return a.taskRaw(ctx, client, args[0], part)
				}
				t, err := client.Task(ctx, args[0])
				if err != nil {
					return err
				}
				v := viewOf(t, true)
				if err := a.print(v, v.text); err != nil || !attempts {
					return err
				}
				return a.printAttempts(ctx, client, args[0])
			})
		},
	}
	c.Flags().BoolVar(&attempts, "attempts", false, "print its last attempts too")
	c.Flags().StringVar(&part, "raw", "", "print only the payload or the result (payload, result), byte for byte; on a terminal without control characters")
	c.MarkFlagsMutuallyExclusive("attempts", "raw")
	return c
}

// taskListCmd makes the command that lists tasks of one state.
func (a *app) taskListCmd() *cobra.Command {
	var f filterFlags
	var newest bool
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List tasks, in the order of their state or of their creation",
		Long: `List the tasks that have everything that the flags name. Those of a queue in one state come in the order of
that state, others about in the order of their creation. Without a queue and a state every task is looked at.`,
		Example: `  millrace task list -q mail --state dead --newest --limit 20
  millrace task list --label order=7 --state any`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			filter, err := f.filter()
			if err != nil {
				return err
			}
			q := millrace.ListQuery{
				Queue: filter.Queue, State: filter.State, Kind: filter.Kind, Worker: filter.Worker, Unique: filter.Unique,
				Labels: filter.Labels, From: filter.From, To: filter.To, Newest: newest,
				Fingerprint: filter.Fingerprint, Batch: filter.Batch,
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return a.listTasks(ctx, client, q, limit)
			})
		},
	}
	f.flags(c.Flags(), "ready")
	c.Flags().BoolVar(&newest, "newest", false, "the last ones first")
	c.Flags().IntVar(&limit, "limit", 100, "print at most this many tasks; 0 = all")
	return c
}

// listTasks prints up to limit tasks, all if it is 0, in pages of 1,000 at most. Each page is read
// at its own instant.
func (a *app) listTasks(ctx context.Context, c *millrace.Client, q millrace.ListQuery, limit int) error {
	for n := 0; ; {
		q.Limit = 1000
		if limit > 0 {
			q.Limit = min(limit-n, q.Limit)
		}
		page, next, err := c.List(ctx, q)
		if err != nil {
			return err
		}
		for _, t := range page {
			v := viewOf(t, false)
			if err := a.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %-9s  attempt %d  %s  %s", v.ID, v.State, v.Attempt, stamp(v.CreatedAt), v.Reason)
				if q.Queue == "" {
					fmt.Fprintf(w, "  queue %s", oneLine(v.Queue))
				}
				fmt.Fprintln(w)
			}); err != nil {
				return err
			}
			n++
		}
		if next == "" || limit > 0 && n >= limit {
			return nil
		}
		q.Cursor = next
	}
}

// taskWaitCmd makes the command that waits for a task that exists.
func (a *app) taskWaitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a task ends and print it; exit 1 unless it completed, 3 after --timeout",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.waiting(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return a.waitTask(ctx, client, args[0])
			})
		},
	}
}
