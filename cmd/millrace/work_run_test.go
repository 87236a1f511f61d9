package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestTroubleThatMayPassIsMetAgain: a worker whose disk, or table of files, is full tries again, and one line tells of it. It stops at
// once for what cannot pass.
func TestTroubleThatMayPassIsMetAgain(t *testing.T) {
	for _, tc := range []struct {
		err   error
		tries int // of those that fail before it passes
		calls int
		ok    bool
	}{
		{&fs.PathError{Op: "open", Path: "f", Err: syscall.ENOSPC}, 3, 4, true},
		{fmt.Errorf("fork: %w", syscall.EAGAIN), 30, 31, true},
		{syscall.EMFILE, 1000, 31, false},
		{errSupervisorEnded, 2, 3, true},
		{syscall.ENOMEM, 1, 2, true},
		{&fs.PathError{Op: "open", Path: "f", Err: syscall.ENOENT}, 1, 1, false},
		{syscall.EACCES, 1, 1, false},
		{errors.New("odd"), 1, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			r := &runner{a: &app{err: &said}, wait: time.Second}
			calls, began := 0, time.Now()
			err := r.patiently(t.Context(), func() error {
				if calls++; calls <= tc.tries {
					return tc.err
				}
				return nil
			})
			if calls != tc.calls || (err == nil) != tc.ok || time.Since(began) != time.Duration(calls-1)*time.Second {
				t.Errorf("%v: %v after %d tries in %v, want %d tries, success %v", tc.err, err, calls, time.Since(began), tc.calls, tc.ok)
			}
			if lines := strings.Count(said.String(), "\n"); lines != min(calls-1, 1) {
				t.Errorf("%v: told\n%s", tc.err, said.String())
			}
		})
	}
}

func TestTroubleIsNotMetAgainOnceTheWorkerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		r := &runner{a: &app{err: new(bytes.Buffer)}, wait: time.Second}
		calls := 0
		if err := r.patiently(ctx, func() error { calls++; return syscall.ENOSPC }); err == nil || calls != 3 {
			t.Errorf("got %v after %d tries, want the trouble after 3", err, calls)
		}
	})
}

func TestCommandsHaveTheEnvironmentWithoutItsSecrets(t *testing.T) {
	got := environment([]string{
		"PATH=/bin", "MILLRACE_TOKEN=secret", "MILLRACE_URL=u", "MILLRACE_SERVE_JOIN_TOKEN=secret", "MILLRACE_TASK_ID=outer",
		"MILLRACE_TASK_TOKEN=7", "MILLRACE_EFFECTS=/outer", "MILLRACE_TOKENS=x",
	})
	if fmt.Sprint(got) != "[PATH=/bin MILLRACE_URL=u MILLRACE_TOKENS=x]" {
		t.Errorf("got %v", got)
	}
}
