package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	millrace "github.com/millrace/millrace/sdk/go"
)

// limiter carries out a command about limiters.
func (a *agent) limiter(ctx context.Context, c *command) (any, error) {
	var opts []millrace.LimiterOption
	if c.IfVersion != nil {
		opts = append(opts, millrace.LimiterIfVersion(*c.IfVersion))
	}
	switch c.Do {
	case "limiter_set":
		return showLimiter(a.c.SetLimiter(ctx, c.Name, millrace.LimiterConfig{Concurrency: c.Concurrency, Rate: c.Rate.rate()}, opts...))
	case "limiter_get":
		return showLimiter(a.c.Limiter(ctx, c.Name))
	case "limiters":
		list := []any{}
		for cursor := ""; ; {
			page, next, err := a.c.Limiters(ctx, 2, cursor)
			if err != nil {
				return nil, err
			}
			for _, l := range page {
				one, _ := showLimiter(l, nil)
				list = append(list, one)
			}
			if cursor = next; cursor == "" {
				return map[string]any{"limiters": list}, nil
			}
		}
	case "limiter_delete":
		return map[string]any{}, a.c.DeleteLimiter(ctx, c.Name, opts...)
	}
	return a.batch(ctx, c)
}

// showLimiter is a limiter as the protocol has it.
func showLimiter(l *millrace.Limiter, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	held := []any{}
	for _, h := range l.HeldBy {
		held = append(held, map[string]any{"task": h.Task, "queue": h.Queue})
	}
	return map[string]any{
		"name": l.Name, "concurrency": l.Concurrency, "rate": showRate(l.Rate), "version": strconv.FormatUint(l.Version, 10), "used": l.Used, "tasks": l.Tasks,
		"held_by": held, "queues": texts(l.Queues),
	}, nil
}

// texts is a list that is not null.
func texts(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// batch carries out a command about batches.
func (a *agent) batch(ctx context.Context, c *command) (any, error) {
	switch c.Do {
	case "batch_open":
		return a.openBatch(ctx, c)
	case "batch_get":
		return showBatch(a.c.Batch(ctx, c.ID))
	case "batch_seal":
		return showBatch(a.c.SealBatch(ctx, c.ID))
	case "batch_cancel":
		return showBatch(a.c.CancelBatch(ctx, c.ID, millrace.BatchCancel{Reason: c.Reason, Rate: c.PerSecond, Force: c.Force}))
	case "batch_wait":
		return showBatch(a.c.WaitBatch(ctx, c.ID))
	case "batches":
		list := []any{}
		for cursor := ""; ; {
			page, next, err := a.c.Batches(ctx, 2, cursor)
			if err != nil {
				return nil, err
			}
			for _, b := range page {
				one, _ := showBatch(b, nil)
				list = append(list, one)
			}
			if cursor = next; cursor == "" {
				return map[string]any{"batches": list}, nil
			}
		}
	}
	return nil, errUnsupported
}

func (a *agent) openBatch(ctx context.Context, c *command) (any, error) {
	opts := []millrace.BatchOption{millrace.BatchID(c.ID), millrace.BatchTag(c.Tag), millrace.BatchLabels(c.Labels)}
	for _, f := range []struct {
		task *adding
		of   func(*millrace.JobOf[json.RawMessage, json.RawMessage], json.RawMessage, ...millrace.AddOption) millrace.BatchOption
	}{{c.OnDone, millrace.OnDone[json.RawMessage, json.RawMessage]}, {c.OnSuccess, millrace.OnSuccess[json.RawMessage, json.RawMessage]}} {
		if f.task == nil {
			continue
		}
		var text string
		if err := json.Unmarshal(f.task.Args, &text); err != nil {
			return nil, fmt.Errorf("args: %w", err)
		}
		opts = append(opts, f.of(jsonJob(f.task), json.RawMessage(text), f.task.options()...))
	}
	b, err := a.c.OpenBatch(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": b.ID, "replayed": b.Replayed}, nil
}

// showBatch is a batch as the protocol has it.
func showBatch(b *millrace.TaskBatch, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	var cancel any
	if b.Cancel != nil {
		cancel = b.Cancel.Reason
	}
	n := b.Counts
	labels := b.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return map[string]any{
		"id": b.ID, "state": b.State.String(), "labels": labels, "on_done": b.OnDone, "on_success": b.OnSuccess, "done_task": b.DoneTask,
		"success_task": b.SuccessTask, "refused": b.RefusedCode, "cancel": cancel, "replayed": b.Replayed,
		"counts": map[string]any{
			"total": n.Total, "waiting": n.Waiting, "running": n.Running, "completed": n.Completed, "dead": n.Dead, "cancelled": n.Cancelled,
		},
	}, nil
}
