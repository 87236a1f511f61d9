package main

import (
	"context"
	"fmt"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A command that a signal ends is not told as a server that cannot be reached, whatever call the signal met.
func TestACommandThatASignalEndsIsNotUnavailable(t *testing.T) {
	cut := fmt.Errorf("%w: %w", &millrace.Error{Code: millrace.CodeDeadlineExceeded, Outcome: millrace.Unknown}, context.Canceled)
	late := fmt.Errorf("%w: %w", &millrace.Error{Code: millrace.CodeDeadlineExceeded}, context.DeadlineExceeded)
	for _, c := range []struct {
		err       error
		signalled bool
		want      int
	}{
		{cut, true, exitRefused},
		{cut, false, exitUnavailable},
		{late, true, exitUnavailable},
		{&millrace.Error{Code: millrace.CodeUnavailable}, true, exitUnavailable},
		{usageError{cut}, true, exitUsage},
		{nil, true, exitOK},
	} {
		if got := exitCode(c.err, c.signalled); got != c.want {
			t.Errorf("%v, signalled %v: exit code %d, want %d", c.err, c.signalled, got, c.want)
		}
	}
}
