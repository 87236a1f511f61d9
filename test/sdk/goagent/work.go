package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// jobSpec is a job that a worker handles.
type jobSpec struct {
	adding
	Handler json.RawMessage `json:"handler"`
}

// stepSpec is one step of a handler.
type stepSpec struct {
	Fx        []op     `json:"fx"`
	Gate      string   `json:"gate"`
	SleepMS   int64    `json:"sleep_ms"`
	BlockMS   int64    `json:"block_ms"`
	HoldGILMS int64    `json:"hold_gil_ms"`
	Return    *string  `json:"return"`
	Fail      *string  `json:"fail"`
	Code      string   `json:"code"`
	Fatal     *string  `json:"fatal"`
	RetryInMS *int64   `json:"retry_in_ms"`
	Message   string   `json:"message"`
	SnoozeMS  *int64   `json:"snooze_ms"`
	Release   bool     `json:"release"`
	Panic     string   `json:"panic"`
	Exit      *int     `json:"exit"`
	Add       *adding  `json:"add"`
	Commit    *command `json:"commit"`
	OnRefused []op     `json:"on_refused"`
}

// scripts reads a handler: one script for all attempts, or a list of them.
func scripts(raw json.RawMessage) (out [][]stepSpec, err error) {
	if len(raw) == 0 {
		return [][]stepSpec{nil}, nil
	}
	if json.Unmarshal(raw, &out) == nil && len(out) > 0 {
		return out, nil
	}
	var one []stepSpec
	err = json.Unmarshal(raw, &one)
	return [][]stepSpec{one}, err
}

// work starts a worker, which says exit when it has returned.
func (a *agent) work(c *command) error {
	if c.Renew == "process" {
		return errUnsupported
	}
	opts := []millrace.WorkerOption{millrace.OnSettled(a.settled)}
	if c.Slots > 0 {
		opts = append(opts, millrace.Slots(c.Slots))
	}
	if len(c.Queues) > 0 {
		opts = append(opts, millrace.Queues(c.Queues...))
	}
	if len(c.Weights) > 0 {
		opts = append(opts, millrace.Weights(c.Weights))
	}
	if c.InOrder {
		opts = append(opts, millrace.InOrder())
	}
	if c.DrainMS > 0 {
		opts = append(opts, millrace.DrainTimeout(millis(c.DrainMS)))
	}
	if c.LeaseMS > 0 {
		opts = append(opts, millrace.Lease(millis(c.LeaseMS)))
	}
	w := a.c.Worker(opts...)
	for i := range c.Jobs {
		j := &c.Jobs[i]
		script, err := scripts(j.Handler)
		if err != nil {
			return fmt.Errorf("handler: %w", err)
		}
		h := &handler{a: a, spec: &j.adding, scripts: script}
		switch j.Codec {
		case "text":
			textJob(&j.adding).Handle(w, func(ctx context.Context, t *millrace.Task, args string) (string, error) {
				b, err := h.run(ctx, t, args)
				return string(b), err
			})
		case "bytes":
			bytesJob(&j.adding).Handle(w, func(ctx context.Context, t *millrace.Task, args []byte) ([]byte, error) {
				return h.run(ctx, t, toText("bytes", args))
			})
		default:
			jsonJob(&j.adding).Handle(w, func(ctx context.Context, t *millrace.Task, args json.RawMessage) (json.RawMessage, error) {
				return h.run(ctx, t, string(args))
			})
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	a.mu.Lock()
	a.stop, a.worked = stop, make(chan struct{})
	worked := a.worked
	a.mu.Unlock()
	go func() {
		err := w.Run(ctx)
		fields := map[string]any{"event": "exit"}
		if err != nil && !errors.Is(err, context.Canceled) {
			fields["err"] = showError(err)
		}
		a.say(fields)
		close(worked)
	}()
	return nil
}

// drain ends the worker, if one runs, and waits until it has returned.
func (a *agent) drain() {
	a.mu.Lock()
	stop, worked := a.stop, a.worked
	a.mu.Unlock()
	if stop != nil {
		stop()
		<-worked
	}
}

func (a *agent) settled(s millrace.Settlement) {
	fields := map[string]any{"event": "settled", "id": s.Task.ID, "attempt": s.Task.Attempt, "op": s.Op, "replayed": s.Replayed}
	if s.Err != nil {
		fields["err"] = showError(s.Err)
	}
	a.say(fields)
}

// handler runs the scripts of a job.
type handler struct {
	a       *agent
	spec    *adding
	scripts [][]stepSpec
}

func (h *handler) run(ctx context.Context, t *millrace.Task, args string) (result []byte, err error) {
	h.a.say(map[string]any{"event": "begin", "id": t.ID, "job": t.Kind, "attempt": t.Attempt, "args": args})
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-t.Stopping():
			h.a.say(map[string]any{"event": "stopping", "id": t.ID})
		case <-ended:
		}
	}()
	defer func() {
		why := "returned"
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, millrace.ErrLeaseLost):
			why = "lost"
		case errors.Is(cause, millrace.ErrCancelled):
			why = "cancelled"
		case cause != nil:
			why = "stopped"
		case err != nil:
			why = "raised"
		}
		h.a.say(map[string]any{"event": "end", "id": t.ID, "attempt": t.Attempt, "why": why})
	}()
	script := h.scripts[min(t.Attempt, len(h.scripts))-1]
	for i := range script {
		s := &script[i]
		done, result, err := h.step(ctx, t, s, args)
		if done || err != nil {
			return result, err
		}
	}
	if h.spec.Codec == "" || h.spec.Codec == "json" {
		return []byte("null"), nil
	}
	return nil, nil
}

// step does one step. done says that the handler ends with it.
func (h *handler) step(ctx context.Context, t *millrace.Task, s *stepSpec, args string) (done bool, result []byte, err error) {
	switch {
	case s.Fx != nil:
		return false, nil, applyAll(s.Fx, t.Effects())
	case s.OnRefused != nil:
		t.OnRefused(func(context.Context, *millrace.Error) error {
			t.Effects().Reset()
			return applyAll(s.OnRefused, t.Effects())
		})
	case s.Gate != "":
		h.a.say(map[string]any{"event": "gate", "id": t.ID, "name": s.Gate})
		select {
		case <-h.a.gate(s.Gate):
		case <-ctx.Done():
			return true, nil, ctx.Err()
		}
	case s.SleepMS > 0:
		select {
		case <-time.After(millis(s.SleepMS)):
		case <-ctx.Done():
			return true, nil, ctx.Err()
		}
	case s.BlockMS > 0:
		time.Sleep(millis(s.BlockMS))
	case s.Return != nil:
		if *s.Return == "$args" {
			result, err = fromText(h.spec.Codec, args)
			return true, result, err
		}
		result, err = fromText(h.spec.Codec, *s.Return)
		return true, result, err
	case s.Add != nil:
		if _, err := h.a.add(ctx, s.Add); err != nil {
			return true, nil, err
		}
	case s.Commit != nil:
		if _, err := h.a.commit(ctx, s.Commit, t); err != nil {
			return true, nil, err
		}
	default:
		return h.end(s)
	}
	return false, nil, nil
}

// codedError is an error with a code of its own.
type codedError struct{ code, message string }

func (e codedError) Error() string { return e.message }

// ErrorCode is what the task's error has as its code.
func (e codedError) ErrorCode() string { return e.code }

// end does a step by which a handler ends without a result.
func (h *handler) end(s *stepSpec) (done bool, result []byte, err error) {
	switch {
	case s.Fail != nil && s.Code != "":
		return true, nil, codedError{s.Code, *s.Fail}
	case s.Fail != nil:
		return true, nil, errors.New(*s.Fail)
	case s.Fatal != nil:
		return true, nil, millrace.Fatal(errors.New(*s.Fatal))
	case s.RetryInMS != nil:
		return true, nil, millrace.RetryIn(millis(*s.RetryInMS), errors.New(s.Message))
	case s.SnoozeMS != nil:
		return true, nil, millrace.Snooze(millis(*s.SnoozeMS))
	case s.Release:
		return true, nil, millrace.Release()
	case s.Panic != "":
		panic(s.Panic)
	case s.Exit != nil:
		os.Exit(*s.Exit)
	}
	return true, nil, errUnsupported
}

func applyAll(ops []op, tx *millrace.Tx) error {
	for i := range ops {
		if err := ops[i].apply(tx); err != nil {
			return err
		}
	}
	return nil
}
