package main

import (
	"context"
	"errors"
	"fmt"

	millrace "github.com/millrace/millrace/sdk/go"
)

// taskRaw writes the payload or the result of a task, as part names it, to standard output: its bytes and nothing else.
func (a *app) taskRaw(ctx context.Context, client *millrace.Client, id, part string) error {
	t, err := client.Task(ctx, id)
	switch {
	case err != nil:
		return err
	case part == "payload":
		return a.raw(t.Payload, false)
	case !t.HasResult:
		return fmt.Errorf("task %s has no result; it is %s", t.ID, t.State)
	}
	return a.raw(t.Result, false)
}

// checkRaw refuses a part of a task that there is not, and one in the form of JSON.
func (a *app) checkRaw(part string) error {
	switch {
	case part != "payload" && part != "result":
		return usageError{fmt.Errorf("--raw: %q must be payload or result", part)}
	case a.json:
		return usageError{errors.New("--raw and --json are mutually exclusive")}
	}
	return nil
}
