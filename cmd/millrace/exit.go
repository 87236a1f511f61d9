package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// Exit codes of the whole command line.
const (
	exitOK          = 0
	exitRefused     = 1
	exitUsage       = 2
	exitUnavailable = 3
)

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitError carries an exit code that a command chose.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

// errReported ends a command that has said what is wrong in a form of its own.
var errReported = errors.New("reported")

// exitCode is the only table from errors to exit codes. signalled says that a signal told the command to end: a call that it
// cut off says nothing about the server.
func exitCode(err error, signalled bool) int {
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

// report prints err for a person, or as JSON with --json, on the error stream.
func (a *app) report(err error) {
	if errors.Is(err, errReported) {
		return
	}
	if !a.json {
		a.tell("millrace:", err)
		return
	}
	out := struct {
		Error   string            `json:"error"`
		Code    string            `json:"code,omitempty"`
		Reason  string            `json:"reason,omitempty"`
		Field   string            `json:"field,omitempty"`
		Limit   string            `json:"limit,omitempty"`
		Max     int64             `json:"max,omitempty"`
		Details map[string]string `json:"details,omitempty"`
		Outcome string            `json:"outcome,omitempty"`
	}{Error: err.Error()}
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
