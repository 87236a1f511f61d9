package millrace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
)

type diskError struct{}

func (diskError) Error() string { return "the disk is full" }

// TooSlow is an error with a name that users may look for.
type TooSlow struct{}

func (*TooSlow) Error() string { return "too slow" }

func TestAFailureHasTheCodeOfItsErrorOrTheNameOfItsType(t *testing.T) {
	_, missing := os.Open("/does/not/exist")
	for want, err := range map[string]error{
		"error":        fmt.Errorf("wrapped: %w", errors.New("plain")),
		"TooSlow":      fmt.Errorf("wrapped: %w", &TooSlow{}),
		"PathError":    RetryIn(0, missing),
		"NOT_FOUND":    Fatal(&Error{Code: CodeNotFound}),
		"panic":        &panicError{value: 1},
		"invalid_args": Fatal(invalidArgsError{&TooSlow{}}),
	} {
		if got := codeOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if got := codeOf(diskError{}); got != "error" {
		t.Errorf("a type that is not exported is told as %s", got)
	}
	if _, ok := errors.AsType[*fs.PathError](missing); !ok {
		t.Error("the test opens something")
	}
}

func TestArgumentsThatCannotBeReadEndTheTask(t *testing.T) {
	job := Job[int, int]("n")
	run := RunHandler(context.Background(), job, func(context.Context, *Task, int) (int, error) { return 1, nil }, 7, func(t *Task) {
		t.Payload = []byte(`"seven"`)
	})
	if run.Settle != "fail" || !run.Fatal || codeOf(run.Err) != "invalid_args" {
		t.Errorf("%+v", run)
	}
}
