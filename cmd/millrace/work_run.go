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

// maxResult bounds the output of a command that becomes the task's result, in bytes. It is the
// server's limit of a result.
const maxResult = 1 << 20

// How often trouble of this machine is tried again before the worker gives up, and the pause in
// between: half a minute in all.
const (
	troubleTries = 30
	troubleWait  = time.Second
)

// run runs the command for one task and returns the task's result. Its error decides what happens
// to the task; trouble of this machine never counts against the task, which is given back instead.
//
//  1. It makes the effects file. Its directory is removed at the end, also when the command was
//     killed.
//  2. It makes the pipes for standard error and progress, and the file with the checkpoint.
//  3. It runs the command below a supervisor and waits until nothing of it is left.
//  4. A command that was told to end may have stopped half-way, so its task is given back whatever
//     its exit status is. If it was told because of a cancel, the SDK confirms that instead.
//  5. Otherwise outcome turns the exit status, the effects and the output into the task's end.
//
// If the worker dies at any point, the task's lease ends and another attempt begins; the effects of
// this one were never sent.
func (r *runner) run(ctx context.Context, t *millrace.Task) ([]byte, error) {
	// With --once, tasks that were granted together with the first one go back without an attempt.
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
	var told *telling
	err = r.patiently(ctx, func() (err error) {
		told, err = r.tell(t, filepath.Dir(file))
		return err
	})
	if err != nil {
		return nil, r.unfit(ctx, fmt.Errorf("a pipe cannot be made here: %w", err))
	}
	err = r.patiently(ctx, func() error {
		a, err := r.attempt(t, file, told)
		if err != nil {
			return err
		}
		end, err = r.pool.run(ctx, r.a.told.hurry, a)
		return err
	})
	told.end(err == nil && !end.told && end.Signal == 0 && end.Status == 0)
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

// attempt returns what a supervisor is to run for t. The variables in Own identify the attempt: the
// token is different for each.
func (r *runner) attempt(t *millrace.Task, file string, told *telling) (*attempt, error) {
	// Looked up for each attempt: the program may be replaced, or appear, while the worker runs.
	path, err := exec.LookPath(r.argv[0])
	if err != nil {
		return nil, err
	}
	own := []string{"MILLRACE_TASK_ID=" + t.ID, "MILLRACE_TASK_TOKEN=" + strconv.FormatUint(t.Token(), 10)}
	return &attempt{
		Path: path, Argv: r.argv, Own: own, Stdin: t.Payload, Stderr: told.errors, Most: maxResult, Dir: filepath.Dir(file),
		Env: slices.Concat(r.env, own, []string{
			"MILLRACE_TASK_KIND=" + t.Kind, "MILLRACE_TASK_QUEUE=" + t.Queue, "MILLRACE_TASK_ATTEMPT=" + strconv.Itoa(t.Attempt),
			"MILLRACE_EFFECTS=" + file, "MILLRACE_PROGRESS=" + told.progress, "MILLRACE_CHECKPOINT=" + told.checkpoint,
		}),
	}, nil
}

// passing are errors of the system that may pass by themselves: a full disk, too many open files or
// processes, too little memory, a program file that is just being written.
var passing = []error{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ETXTBSY, errSupervisorEnded,
}

// patiently calls do again while it fails with one of the passing errors, at most troubleTries
// times. It reports each such error once. It returns the last error, or nil.
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

// unfit gives the task back and stops the worker, which cannot run commands. When ctx has ended the
// worker is stopping anyway, and the error may be a consequence of that, so it is not reported.
func (r *runner) unfit(ctx context.Context, why error) error {
	if ctx.Err() == nil {
		r.fail(why)
	}
	return millrace.Release()
}

// fail stops the worker. Only the first reason is kept.
func (r *runner) fail(why error) {
	r.mu.Lock()
	if r.why == nil {
		r.why = why
	}
	r.mu.Unlock()
	r.stop()
}

// outcome turns the end of a command into the end of its task: an error as of the exit status, or
// the result with the effects that it reads from file into the task's transaction. The result is
// typed as JSON, text or bytes by what it is.
//
// If the server refuses the effects, OnRefused names the line that is at fault.
func (r *runner) outcome(ctx context.Context, t *millrace.Task, file string, end *ending) ([]byte, error) {
	switch status := end.Status; {
	// A signal may come from outside, such as the kernel when memory is short, so it is a failed
	// attempt and not the end of the task.
	case end.Signal != 0:
		return nil, fmt.Errorf("the command was ended by a signal: %v", end.Signal)
	case status == statusSnooze:
		return nil, millrace.Snooze(30 * time.Second)
	case status >= statusUsage && status <= statusNoInput, status == statusConfig:
		return nil, millrace.Fatal(fmt.Errorf("exit status %d", status))
	// A shell reports a missing program by these, so the task is not to blame.
	case status == statusNotRunnable, status == statusNotFound:
		return nil, r.unfit(ctx, fmt.Errorf("%s cannot be run here: exit status %d", r.argv[0], status))
	case status != 0:
		return nil, fmt.Errorf("exit status %d", status)
	// A result that is cut off would be wrong, so a command that prints too much ends its task.
	case end.Over:
		return nil, millrace.Fatal(fmt.Errorf("the result must be at most %d bytes", maxResult))
	}
	var lines []int
	err := r.patiently(ctx, func() (err error) {
		// A second try must not add the lines of the first one again.
		t.Effects().Reset()
		lines, err = readEffects(file, t.Effects())
		return err
	})
	if _, ok := errors.AsType[effectsFault](err); ok {
		return nil, millrace.Fatal(err)
	} else if err != nil {
		return nil, r.unfit(ctx, fmt.Errorf("the effects file cannot be read here: %w", err))
	}
	// The server names an op by its index; the lines turn that into what the user wrote.
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

// refusedEffects returns the error for effects that the server refused, with the number of the line
// if one op is at fault. What a server never accepts ends the task for good; a condition that does
// not hold now fails the attempt only.
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
