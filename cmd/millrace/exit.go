package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// Exit codes of the whole command line. A code above 3 comes from the server (20 to 24, see
// server.ExitCode), from bench, or from another program whose codes a command repeats.
const (
	// exitOK says that everything that was asked for is done.
	exitOK = 0
	// The request was refused or failed: repeating it as it is does not help.
	exitRefused = 1
	// The command line is wrong; nothing was sent.
	exitUsage = 2
	// No server answered in time: the same command may succeed later.
	exitUnavailable = 3
)

// usageError is a command line that cannot be carried out as it is written. It exits with
// exitUsage.
type usageError struct{ error }

// Unwrap returns the error itself.
func (e usageError) Unwrap() error { return e.error }

// exitError carries an exit code that a command chose itself.
type exitError struct {
	// code is from 0 to 255.
	code int
	error
}

// Unwrap returns the error without the code.
func (e exitError) Unwrap() error { return e.error }

// errReported ends a command that has already printed what is wrong; report prints nothing more for
// it.
var errReported = errors.New("reported")

// exitCode returns the exit code for an error; it is the only such table. signalled says that a
// signal told the command to end: then a call that was cancelled is the command's own doing, and
// says nothing about whether the server is available.
func exitCode(err error, signalled bool) int {
	// The order matters: what a command decided itself comes first, then what the server refused,
	// then the errors of a server in this process.
	var usage usageError
	var chosen exitError
	var refused *millrace.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &chosen):
		return chosen.code
	case errors.As(err, &refused):
		if signalled && errors.Is(err, context.Canceled) {
			return exitRefused
		}
		if refused.Code == millrace.CodeUnavailable || refused.Code == millrace.CodeDeadlineExceeded {
			return exitUnavailable
		}
		return exitRefused
	}
	if code := server.ExitCode(err); code != 0 {
		return code
	}
	return exitRefused
}

// report prints err on the error stream: as text, or with --json as one object. An error of the SDK
// adds its code, reason, field, limit and outcome, where the outcome says whether the write may
// have happened.
func (a *app) report(err error) { a.reportOf("", err) }

// reportOf is report for an error about one of several things that the command line names, by its id.
func (a *app) reportOf(id string, err error) {
	if errors.Is(err, errReported) {
		return
	}
	if !a.json {
		if id != "" {
			err = fmt.Errorf("%s: %w", id, err)
		}
		a.tell("millrace:", err)
		return
	}
	// The fields after Error are set only for an error of the SDK. Names are those of errors over
	// REST.
	out := struct {
		ID     string `json:"id,omitempty"`
		Error  string `json:"error"`
		Code   string `json:"code,omitempty"`
		Reason string `json:"reason,omitempty"`
		Field  string `json:"field,omitempty"`
		// Which limit refused the request, and its value.
		Limit   string            `json:"limit,omitempty"`
		Max     int64             `json:"max,omitempty"`
		Details map[string]string `json:"details,omitempty"`
		Outcome string            `json:"outcome,omitempty"`
	}{ID: id, Error: err.Error()}
	var refused *millrace.Error
	if errors.As(err, &refused) {
		out.Code, out.Reason, out.Field = string(refused.Code), refused.Reason, refused.Field
		out.Limit, out.Max, out.Details = refused.Limit, refused.Max, refused.Details
		out.Outcome = refused.Outcome.String()
	}
	b, err := json.Marshal(out)
	if err == nil {
		_, _ = a.err.Write(append(escapedJSON(b), '\n')) // there is nowhere left to report to
	}
}
