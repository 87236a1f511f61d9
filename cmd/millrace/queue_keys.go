package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	millrace "github.com/millrace/millrace/sdk/go"
)

// rateFlag is a rate as LIMIT/PER, or LIMIT/PER/BURST, such as 100/1m or 100/1m/10.
type rateFlag struct{ to *millrace.Rate }

func (f rateFlag) Type() string { return "rate" }

func (f rateFlag) String() string {
	if f.to == nil || *f.to == (millrace.Rate{}) {
		return ""
	}
	return rateValue(*f.to)
}

// rateValue is a rate as the flag has it.
func rateValue(r millrace.Rate) string {
	text := fmt.Sprintf("%d/%s", r.Limit, r.Per)
	if r.Burst > 0 {
		text += "/" + strconv.FormatInt(r.Burst, 10)
	}
	return text
}

func (f rateFlag) Set(text string) error {
	parts := strings.Split(text, "/")
	if len(parts) != 2 && len(parts) != 3 {
		return fmt.Errorf("must be LIMIT/PER or LIMIT/PER/BURST, such as 100/1m or 100/1m/10")
	}
	var r millrace.Rate
	var err error
	if r.Limit, err = strconv.ParseInt(parts[0], 10, 64); err != nil || r.Limit < 1 {
		return fmt.Errorf("the limit must be a number from 1 on")
	}
	if r.Per, err = time.ParseDuration(parts[1]); err != nil || r.Per < time.Millisecond {
		return fmt.Errorf("the time must be a duration from 1ms on, such as 1m")
	}
	if len(parts) == 3 {
		if r.Burst, err = strconv.ParseInt(parts[2], 10, 64); err != nil || r.Burst < 1 {
			return fmt.Errorf("the burst must be a number from 1 on")
		}
	}
	*f.to = r
	return nil
}

// shareFlags adds the flags that say how a queue is shared and limited.
func shareFlags(f *pflag.FlagSet, cfg *millrace.QueueConfig) {
	f.StringVar(&cfg.Fairness, "fairness", "", "lanes: keys get shares by their weights; none: the first task of all goes first; default lanes")
	f.StringVar(&cfg.Order, "order", "", "fifo, or strict: one task of a key at a time, and one that waits to be tried again holds up its key; default fifo")
	f.Int64Var(&cfg.Concurrency, "concurrency", 0, "limit of tasks that run at once, per partition; default none")
	f.Var(rateFlag{&cfg.Rate}, "rate", "limit of what begins in a time, as LIMIT/PER or LIMIT/PER/BURST, such as 100/1m; default none")
	f.Int64Var(&cfg.PerKey.Concurrency, "key-concurrency", 0, "limit of tasks of one key that run at once; default none")
	f.Var(rateFlag{&cfg.PerKey.Rate}, "key-rate", "limit of what begins of one key in a time; default none")
	f.StringSliceVar(&cfg.Limiters, "limiter", nil, "name of a limiter that each task needs besides its own; may be repeated, at most 4")
	f.IntVar(&cfg.MaxWorkers, "max-workers", 0, "limit of workers that have tasks at once, per partition; default none")
}

// queueKeyCmd makes the commands about keys of a queue.
func (a *app) queueKeyCmd() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Keys of a queue: their weights, limits and pauses"}
	c.AddCommand(a.queueKeyListCmd(), a.queueKeySetCmd(), a.queueKeyPauseCmd(), a.queueKeyResumeCmd())
	return c
}

// queueKeyListCmd makes the command that lists the keys of a queue.
func (a *app) queueKeyListCmd() *cobra.Command {
	var q millrace.KeysQuery
	c := &cobra.Command{
		Use:   "list QUEUE",
		Short: "List the keys of a queue that have tasks, or for which something is set",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				keys, cursor, err := client.Queue(args[0]).Keys(ctx, q)
				if err != nil {
					return err
				}
				return a.print(map[string]any{"keys": keys, "cursor": cursor}, func(w io.Writer) {
					for i := range keys {
						k := &keys[i]
						fmt.Fprintf(w, "%s\ttasks %d\tready %d\trunning %d%s\n", k.Key, k.Tasks, k.Ready, k.Running, keyNotes(k))
					}
				})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&q.Sort, "sort", "", "name, backlog, oldest or owed; default name")
	f.StringVar(&q.Prefix, "prefix", "", "only keys that begin with this")
	f.IntVar(&q.Limit, "limit", 100, "length of the page, 1 to 1,000")
	f.StringVar(&q.Cursor, "cursor", "", "cursor of the page before")
	return c
}

// keyNotes says what is set for a key and what holds it up.
func keyNotes(k *millrace.QueueKey) string {
	var notes string
	if k.Settings.Weight > 1 {
		notes += fmt.Sprintf("\tweight %d", k.Settings.Weight)
	}
	if k.Settings.Concurrency > 0 {
		notes += fmt.Sprintf("\tat most %d at once", k.Settings.Concurrency)
	}
	if k.Settings.Rate.Limit > 0 {
		notes += "\tat most " + rateValue(k.Settings.Rate)
	}
	if k.WaitsFor != "" {
		notes += "\twaits for " + k.WaitsFor
	}
	return notes
}

// queueKeySetCmd makes the command that sets the weight and the limits of a key.
func (a *app) queueKeySetCmd() *cobra.Command {
	var s millrace.KeySettings
	c := &cobra.Command{
		Use:   "set QUEUE KEY",
		Short: "Set the weight and the limits of a key; without flags the queue rules it",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				replayed, err := client.Queue(args[0]).SetKey(ctx, args[1], s)
				return a.changedKey(args[1], "set", replayed, err)
			})
		},
	}
	f := c.Flags()
	f.IntVar(&s.Weight, "weight", 0, "share among the keys that have tasks ready, 1 to 1,000; default 1")
	f.Int64Var(&s.Concurrency, "concurrency", 0, "limit of its tasks that run at once; default the queue's")
	f.Var(rateFlag{&s.Rate}, "rate", "limit of what begins of it in a time, such as 100/1m; default the queue's")
	return c
}

// queueKeyPauseCmd makes the command that pauses a key.
func (a *app) queueKeyPauseCmd() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:   "pause QUEUE KEY",
		Short: "Stop giving out the tasks of a key",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				replayed, err := client.Queue(args[0]).PauseKey(ctx, args[1], millrace.PauseReason(why))
				return a.changedKey(args[1], "paused", replayed, err)
			})
		},
	}
	c.Flags().StringVar(&why, "reason", "", "why, which readers see")
	return c
}

// queueKeyResumeCmd makes the command that lets a key go on.
func (a *app) queueKeyResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "resume QUEUE KEY",
		Short: "Give out the tasks of a paused key again",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				replayed, err := client.Queue(args[0]).ResumeKey(ctx, args[1])
				return a.changedKey(args[1], "resumed", replayed, err)
			})
		},
	}
}

// changedKey prints what became of a key.
func (a *app) changedKey(key, what string, replayed bool, err error) error {
	if err != nil {
		return err
	}
	return a.print(map[string]any{"key": key, "replayed": replayed}, func(w io.Writer) {
		if replayed {
			fmt.Fprintf(w, "key %s: no change\n", key)
			return
		}
		fmt.Fprintf(w, "key %s: %s\n", key, what)
	})
}
