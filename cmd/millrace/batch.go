package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// batchCmd makes the command of batches.
func (a *app) batchCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "batch",
		Short: "Count tasks together, and make a task when all of them have ended",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	c.AddCommand(a.batchOpenCmd(), a.batchListCmd(), a.batchGetCmd(), a.batchWaitCmd(), a.batchSealCmd(), a.batchCancelCmd())
	return c
}

// batchFlags are the flags of batch open.
type batchFlags struct {
	id, tag string
	labels  map[string]string
	// QUEUE, or QUEUE=PAYLOAD.
	onDone, onSuccess string
}

// batchOpenCmd makes the command that opens a batch.
func (a *app) batchOpenCmd() *cobra.Command {
	var f batchFlags
	c := &cobra.Command{
		Use:   "open",
		Short: "Open a batch and print its id",
		Long: `Open a batch and print its id. Tasks are added to it by task create --batch, until batch seal says that there are no more. When all of
them have ended, the tasks of --on-done and --on-success are made.`,
		Example: `  batch=$(millrace batch open --on-done 'reports={"of":"import"}')
  millrace task create import '{"file":1}' --batch "$batch"
  millrace batch seal "$batch"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			opts := f.options()
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				b, err := client.OpenBatch(ctx, opts...)
				if err != nil {
					return err
				}
				return a.print(batchViewOf(b), func(w io.Writer) { fmt.Fprintln(w, b.ID) })
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.id, "id", "", "id, which makes the open safe to repeat; default a new one")
	flags.StringVar(&f.tag, "tag", "", "tag: the batch is in its partition, as tasks with the tag are")
	flags.StringToStringVar(&f.labels, "label", nil, "label NAME=VALUE; may be repeated")
	flags.StringVar(&f.onDone, "on-done", "", "QUEUE or QUEUE=PAYLOAD of the task that is made when the batch finishes")
	flags.StringVar(&f.onSuccess, "on-success", "", "QUEUE or QUEUE=PAYLOAD of the task that is made then if each task was completed")
	c.MarkFlagsMutuallyExclusive("id", "tag")
	return c
}

// options returns what the flags say.
func (f *batchFlags) options() (opts []millrace.BatchOption) {
	if f.id != "" {
		opts = append(opts, millrace.BatchID(f.id))
	}
	if f.tag != "" {
		opts = append(opts, millrace.BatchTag(f.tag))
	}
	if len(f.labels) > 0 {
		opts = append(opts, millrace.BatchLabels(f.labels))
	}
	if f.onDone != "" {
		opts = append(opts, followUpOf(f.onDone, millrace.OnDone[any, []byte]))
	}
	if f.onSuccess != "" {
		opts = append(opts, followUpOf(f.onSuccess, millrace.OnSuccess[any, []byte]))
	}
	return opts
}

// followUpOf reads QUEUE or QUEUE=PAYLOAD. A payload that is one JSON value is sent as JSON, anything else as bytes.
func followUpOf(s string, option func(*millrace.JobOf[any, []byte], any, ...millrace.AddOption) millrace.BatchOption) millrace.BatchOption {
	queue, payload, _ := strings.Cut(s, "=")
	var body any = []byte(payload)
	if v, ok := jsonOf([]byte(payload)); ok {
		body = v
	}
	return option(millrace.Job[any, []byte](queue), body)
}

// batchView is a batch as the command line prints it.
type batchView struct {
	ID          string            `json:"id"`
	State       string            `json:"state"`
	Total       int               `json:"total"`
	Waiting     int               `json:"waiting"`
	Running     int               `json:"running"`
	Completed   int               `json:"completed"`
	Dead        int               `json:"dead"`
	Cancelled   int               `json:"cancelled"`
	Labels      map[string]string `json:"labels,omitempty"`
	OnDone      string            `json:"on_done,omitempty"`
	OnSuccess   string            `json:"on_success,omitempty"`
	Opened      time.Time         `json:"opened_at,omitzero"`
	Sealed      time.Time         `json:"sealed_at,omitzero"`
	Finished    time.Time         `json:"finished_at,omitzero"`
	By          string            `json:"by,omitempty"`
	Cancel      *cancelView       `json:"cancel,omitempty"`
	DoneTask    string            `json:"done_task,omitempty"`
	SuccessTask string            `json:"success_task,omitempty"`
	Refused     string            `json:"refused,omitempty"`
	Replayed    bool              `json:"replayed,omitempty"`
}

func batchViewOf(b *millrace.TaskBatch) batchView {
	v := batchView{
		ID: b.ID, State: b.State.String(), Total: b.Counts.Total, Waiting: b.Counts.Waiting, Running: b.Counts.Running, Completed: b.Counts.Completed,
		Dead: b.Counts.Dead, Cancelled: b.Counts.Cancelled, Labels: b.Labels, OnDone: b.OnDone, OnSuccess: b.OnSuccess, Opened: b.Opened, Sealed: b.Sealed,
		Finished: b.Finished, By: b.By, Cancel: cancelOf(b.Cancel), DoneTask: b.DoneTask, SuccessTask: b.SuccessTask, Replayed: b.Replayed,
	}
	if b.RefusedCode != "" {
		v.Refused = b.RefusedCode + ": " + b.RefusedMessage
	}
	return v
}

// printBatch prints a batch on one line.
func (a *app) printBatch(b *millrace.TaskBatch) error {
	v := batchViewOf(b)
	return a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s  %d tasks: %d waiting, %d running, %d completed, %d dead, %d cancelled", v.ID, v.State, v.Total, v.Waiting, v.Running, v.Completed, v.Dead, v.Cancelled)
		if made := strings.TrimSpace(v.DoneTask + " " + v.SuccessTask); made != "" {
			fmt.Fprintf(w, "  made %s", made)
		}
		if v.Refused != "" {
			fmt.Fprintf(w, "  refused %s", oneLine(v.Refused))
		}
		if len(v.Labels) > 0 {
			fmt.Fprintf(w, "  %s", labelText(v.Labels))
		}
		fmt.Fprintln(w)
	})
}

// batchListCmd makes the command that lists batches.
func (a *app) batchListCmd() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List batches, those that have finished too, the last opened first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return eachOf(ctx, limit, client.Batches, a.printBatch)
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", 0, "print at most this many batches; 0 = all")
	return c
}

// listPage is how many things a command that lists all of them asks for at once.
const listPage = 1000

// eachOf prints what a list has, page by page, up to limit things; 0: all. page returns up to n of them, and the cursor of the next page;
// empty: there is none.
func eachOf[T any](
	ctx context.Context, limit int, page func(ctx context.Context, n int, cursor string) (list []T, next string, err error), print func(T) error,
) error {
	printed := 0
	for cursor := ""; ; {
		n := listPage
		if limit > 0 {
			n = min(n, limit-printed)
		}
		list, next, err := page(ctx, n, cursor)
		if err != nil {
			return err
		}
		for _, one := range list {
			if err := print(one); err != nil {
				return err
			}
		}
		printed += len(list)
		if cursor = next; cursor == "" || limit > 0 && printed >= limit {
			return nil
		}
	}
}

// batchNamed makes a command about one batch.
func (a *app) batchNamed(use, short string, run func(ctx context.Context, client *millrace.Client, id string) (*millrace.TaskBatch, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				b, err := run(ctx, client, args[0])
				if err != nil {
					return err
				}
				return a.printBatch(b)
			})
		},
	}
}

// batchGetCmd makes the command that shows a batch.
func (a *app) batchGetCmd() *cobra.Command {
	return a.batchNamed("get ID", "Show a batch and how many of its tasks are in which state", func(ctx context.Context, client *millrace.Client, id string) (*millrace.TaskBatch, error) {
		return client.Batch(ctx, id)
	})
}

// batchSealCmd makes the command that seals a batch.
func (a *app) batchSealCmd() *cobra.Command {
	return a.batchNamed("seal ID", "Say that a batch gets no more tasks", func(ctx context.Context, client *millrace.Client, id string) (*millrace.TaskBatch, error) {
		return client.SealBatch(ctx, id)
	})
}

// batchWaitCmd makes the command that waits for the end of a batch.
func (a *app) batchWaitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a batch has finished and print it; exit 3 after --timeout",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.waiting(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				b, err := client.WaitBatch(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printBatch(b)
			})
		},
	}
}

// batchCancelCmd makes the command that cancels a batch.
func (a *app) batchCancelCmd() *cobra.Command {
	var how millrace.BatchCancel
	c := a.batchNamed("cancel ID", "Seal a batch and cancel its tasks, by a job of the server", func(ctx context.Context, client *millrace.Client, id string) (*millrace.TaskBatch, error) {
		return client.CancelBatch(ctx, id, how)
	})
	c.Flags().StringVar(&how.Reason, "reason", "", "why, at most 256 bytes")
	c.Flags().IntVar(&how.Rate, "rate", 1000, "tasks per second, 1 to 1,000,000")
	c.Flags().BoolVar(&how.Force, "force", false, "take running tasks from their workers at once")
	return c
}
