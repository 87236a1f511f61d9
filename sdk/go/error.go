package millrace

import (
	"context"
	"errors"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
)

// Code says what kind of error a server answered. The set is closed.
type Code string

// The codes.
const (
	CodeInvalidArgument    Code = "INVALID_ARGUMENT"
	CodeTooLarge           Code = "TOO_LARGE"
	CodeUnauthenticated    Code = "UNAUTHENTICATED"
	CodePermissionDenied   Code = "PERMISSION_DENIED"
	CodeNotFound           Code = "NOT_FOUND"
	CodeAlreadyExists      Code = "ALREADY_EXISTS"
	CodeLeaseLost          Code = "LEASE_LOST"
	CodeWrongState         Code = "WRONG_STATE"
	CodePreconditionFailed Code = "PRECONDITION_FAILED"
	CodeWrongPartition     Code = "WRONG_PARTITION"
	CodeRateLimited        Code = "RATE_LIMITED"
	CodeResourceExhausted  Code = "RESOURCE_EXHAUSTED"
	CodeNotLeader          Code = "NOT_LEADER"
	CodeUnavailable        Code = "UNAVAILABLE"
	CodeDeadlineExceeded   Code = "DEADLINE_EXCEEDED"
	CodeInternal           Code = "INTERNAL"
	CodeDataLoss           Code = "DATA_LOSS"
)

// Outcome says how a call ended.
type Outcome uint8

// The outcomes.
const (
	OK      Outcome = iota // done, and on disk
	Refused                // nothing was changed
	Unknown                // it may have been applied; repeating it under the same id or token is safe
)

// String returns ok, refused or unknown.
func (o Outcome) String() string {
	switch o {
	case OK:
		return "ok"
	case Refused:
		return "refused"
	default:
		return "unknown"
	}
}

// Error is the one shape of an error, from a server or from this client.
type Error struct {
	// Code says what kind of error it is; programs decide by it, and by Reason.
	Code       Code
	Reason     string            // snake_case, such as session_expired; may be empty
	Message    string            // for a person
	Field      string            // path of the bad field, such as tasks[3].unique.ttl; in Add without the index
	Limit      string            // name of the limit that was exceeded; may be empty
	Max        int64             // its value
	Op         int               // index of the refused op: OpNone, OpFence, OpCondition-i for condition i, or 0 and up
	Details    map[string]string // rev, state, value, ...
	RetryAfter time.Duration     // the server's wish; 0 when it has none
	Failures   []RefFailure      // of a transaction of refs: all changes that failed, as far as they were told
	Leader     string            // of CodeNotLeader: host:port of the node that serves; empty if unknown
	Outcome    Outcome           // Refused or Unknown

	cause error // what ended the call, such as context.DeadlineExceeded
}

// Places of a refusal other than an op.
const (
	OpFence     = fault.OpFence     // the fence of a commit was refused
	OpCondition = fault.OpCondition // condition i is OpCondition-i
	OpNone      = fault.OpNone      // the error names no op
)

// Error returns the code, what is known and the outcome if it is unknown.
func (e *Error) Error() string { return e.fault().Text() }

// Is reports whether target is the sentinel of e's code, such as ErrLeaseLost.
func (e *Error) Is(target error) bool {
	c, ok := target.(codeError)
	return ok && Code(c) == e.Code
}

// Unwrap returns what ended the call on this side, such as context.DeadlineExceeded; nil for an answer of the server.
func (e *Error) Unwrap() error { return e.cause }

// codeError is the sentinel of a code: errors.Is finds it in an Error of that code.
type codeError Code

func (c codeError) Error() string { return string(c) }

// Sentinels for errors.Is.
var (
	ErrNotFound      error = codeError(CodeNotFound)
	ErrAlreadyExists error = codeError(CodeAlreadyExists)
	ErrLeaseLost     error = codeError(CodeLeaseLost)
	ErrWrongState    error = codeError(CodeWrongState)
	ErrPrecondition  error = codeError(CodePreconditionFailed)
	ErrUnavailable   error = codeError(CodeUnavailable)
	ErrExhausted     error = codeError(CodeResourceExhausted)
	ErrTooLarge      error = codeError(CodeTooLarge)
	ErrInvalid       error = codeError(CodeInvalidArgument)
	ErrPartition     error = codeError(CodeWrongPartition)
)

// ErrClosed is returned by calls on a client after Close.
var ErrClosed = fault.ErrClosed

// ErrCancelled is what the cause of a handler's context is when the task's cancel was asked for: errors.Is(context.Cause(ctx),
// ErrCancelled). It differs from ErrLeaseLost in that the handler may still complete.
var ErrCancelled = fault.ErrCancelled

// ErrStopped is what the cause of a handler's context is when its worker stops and the time of DrainTimeout is over: the task is given
// back, whatever the handler returns. Task.Stopping tells of the stop before that.
var ErrStopped = fault.ErrStopped

// OutcomeOf tells how the call that returned err ended. An error that this package did not make, such as that of an
// encoder, refused the call; one that only says that a context ended leaves it unknown.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Outcome
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unknown
	}
	return Refused
}

// RefFailure is one of several reasons for one refusal.
type RefFailure struct {
	Change  int // position in the transaction; -1 = the whole
	Code    Code
	Reason  string
	Message string
	Details map[string]string
}

// errorOf makes the error that users get of a fault of the engine; nil stays nil.
func errorOf(f *fault.Fault) *Error {
	if f == nil {
		return nil
	}
	e := &Error{
		Code: Code(f.Code), Reason: f.Reason, Message: f.Message, Field: f.Field, Limit: f.Limit, Max: f.Max, Op: f.Op,
		Details: f.Details, RetryAfter: f.RetryAfter, Failures: failuresOf(f.Failures), Leader: f.Leader, Outcome: Refused, cause: f.Cause,
	}
	if f.Unknown {
		e.Outcome = Unknown
	}
	return e
}

// failuresOf makes what users get of a list of failures; an empty one is nil.
func failuresOf(in []fault.Failure) []RefFailure {
	if len(in) == 0 {
		return nil
	}
	out := make([]RefFailure, len(in))
	for i, f := range in {
		out[i] = RefFailure{Change: f.Change, Code: Code(f.Code), Reason: f.Reason, Message: f.Message, Details: f.Details}
	}
	return out
}

// fault is e as the engine judges it, but for its Failures, which it does not look at.
func (e *Error) fault() *fault.Fault {
	return &fault.Fault{
		Code: string(e.Code), Reason: e.Reason, Message: e.Message, Field: e.Field, Limit: e.Limit, Max: e.Max, Op: e.Op,
		Details: e.Details, RetryAfter: e.RetryAfter, Leader: e.Leader, Unknown: e.Outcome == Unknown, Cause: e.cause,
	}
}

// faultOf is the error of a call, which must not be nil, as the engine judges it.
func faultOf(err error) *fault.Fault {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.fault()
	}
	return fault.FromStatus(err)
}

// fromWire converts an error of the contract; nil stays nil.
func fromWire(w *millracev1.Error) *Error { return errorOf(fault.FromWire(w)) }

// fromStatus converts the error of a call, which must not be nil. One of this package stays as it is.
func fromStatus(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return errorOf(fault.FromStatus(err))
}

// tooLarge refuses what no server would take.
func tooLarge(field, limit string, most int64) *Error {
	return errorOf(fault.TooLarge(field, limit, most))
}

// badText refuses a name that is not UTF-8, which the contract cannot carry.
func badText(field string) *Error { return errorOf(fault.BadText(field)) }
