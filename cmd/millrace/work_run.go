package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	millrace "github.com/millrace/millrace/sdk/go"
)

// maxResult bounds what a command may print as its result, in bytes.
const maxResult = 1 << 20

// How often trouble of this machine is met again before the worker gives up, a second apart.
const (
	troubleTries = 30
	troubleWait  = time.Second
)

// run runs the command for one task. Its errors decide what becomes of the task: what the machine lacks is never the task's fault.
func (r *runner) run(ctx context.Context, t *millrace.Task) ([]byte, error) {
	if r.once && !r.one.CompareAndSwap(false, true) {
		return nil, millrace.Release()
	}
	if r.once {
		defer r.stop()
	}
	var file string
	err := r.patiently(ctx, func() (err error) {
		file, err = makeEffects()
		return err
	})
	if err != nil {
		return nil, r.unfit(ctx, fmt.Errorf("a temporary file cannot be made here: %w", err))
	}
	defer os.RemoveAll(filepath.Dir(file)) //nolint:errcheck // a directory of the system's temporary directory
	var end *ending
	err = r.patiently(ctx, func() error {
		a, err := r.attempt(t, file)
		if err != nil {
			return err
		}
		end, err = r.pool.run(ctx, r.a.told.hurry, a)
		return err
	})
	switch {
	case errors.Is(err, errSupervisorKilled):
		return nil, err
	case err != nil:
		return nil, r.unfit(ctx, fmt.Errorf("%s cannot be run here: %w", r.argv[0], err))
	case end.told:
		return nil, millrace.Release() // it may have stopped half-way, whatever its status is
	}
	return r.outcome(ctx, t, file, end)
}

// attempt is what a supervisor is to run for t.
func (r *runner) attempt(t *millrace.Task, file string) (*attempt, error) {
	path, err := exec.LookPath(r.argv[0])
	if err != nil {
		return nil, err
	}
	own := []string{"MILLRACE_TASK_ID=" + t.ID, "MILLRACE_TASK_TOKEN=" + strconv.FormatUint(t.Token(), 10)}
	return &attempt{
		Path: path, Argv: r.argv, Own: own, Stdin: t.Payload, Most: maxResult, Dir: filepath.Dir(file),
		Env: slices.Concat(r.env, own, []string{
			"MILLRACE_TASK_KIND=" + t.Kind, "MILLRACE_TASK_QUEUE=" + t.Queue, "MILLRACE_TASK_ATTEMPT=" + strconv.Itoa(t.Attempt),
			"MILLRACE_EFFECTS=" + file,
		}),
	}, nil
}

// passing are troubles of this machine that may pass by themselves: a full disk, too many files, processes or pages in use.
var passing = []error{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ETXTBSY, errSupervisorEnded,
}

// patiently does what this machine may lack the means for just now: it tries again for half a minute.
func (r *runner) patiently(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil || try > troubleTries || !slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) }) {
			return err
		}
		if _, told := r.told.LoadOrStore(err.Error(), true); !told {
			fmt.Fprintf(r.a.err, "millrace: this machine has trouble, trying again for %v: %v\n", troubleTries*troubleWait, err)
		}
		select {
		case <-time.After(r.wait):
		case <-ctx.Done():
			return err
		}
	}
}

// unfit gives the task back and stops the worker, which cannot run it.
func (r *runner) unfit(ctx context.Context, why error) error {
	if ctx.Err() == nil {
		r.fail(why)
	}
	return millrace.Release()
}

// fail stops the worker. The first reason is told.
func (r *runner) fail(why error) {
	r.mu.Lock()
	if r.why == nil {
		r.why = why
	}
	r.mu.Unlock()
	r.stop()
}

// outcome turns a command's end into its task's.
func (r *runner) outcome(ctx context.Context, t *millrace.Task, file string, end *ending) ([]byte, error) {
	switch status := end.Status; {
	case end.Signal != 0:
		return nil, fmt.Errorf("the command was ended by a signal: %v", end.Signal)
	case status == statusSnooze:
		return nil, millrace.Snooze(30 * time.Second)
	case status >= statusUsage && status <= statusNoInput, status == statusConfig:
		return nil, millrace.Fatal(fmt.Errorf("exit status %d", status))
	case status == statusNotRunnable, status == statusNotFound:
		return nil, r.unfit(ctx, fmt.Errorf("%s cannot be run here: exit status %d", r.argv[0], status))
	case status != 0:
		return nil, fmt.Errorf("exit status %d", status)
	case end.Over:
		return nil, millrace.Fatal(fmt.Errorf("the result must be at most %d bytes", maxResult))
	}
	var lines []int
	err := r.patiently(ctx, func() (err error) {
		t.Effects().Reset()
		lines, err = readEffects(file, t.Effects())
		return err
	})
	if _, ok := errors.AsType[effectsFault](err); ok {
		return nil, millrace.Fatal(err)
	} else if err != nil {
		return nil, r.unfit(ctx, fmt.Errorf("the effects file cannot be read here: %w", err))
	}
	if len(lines) > 0 {
		t.OnRefused(func(_ context.Context, refused *millrace.Error) error { return refusedEffects(refused, lines) })
	}
	switch v, ok := jsonOf(end.Output); {
	case ok:
		t.ResultType = "application/json"
		return v, nil
	case utf8.Valid(end.Output):
		t.ResultType = "text/plain; charset=utf-8"
	}
	return end.Output, nil
}

// refusedEffects says by which line a server refused effects. What no server ever takes ends the task; a condition that does not
// hold fails the attempt.
func refusedEffects(refused *millrace.Error, lines []int) error {
	err := error(refused)
	if i := refused.Op; i >= 0 && i < len(lines) {
		err = fmt.Errorf("effects line %d: %w", lines[i], err)
	}
	switch refused.Code {
	case millrace.CodeInvalidArgument, millrace.CodeTooLarge, millrace.CodeWrongPartition:
		return millrace.Fatal(err)
	}
	return err
}
