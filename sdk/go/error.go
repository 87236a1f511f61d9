package millrace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/rest"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/transport"
	"github.com/millrace/millrace/sdk/go/internal/wire"
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
	OpFence     = -1       // the fence of a commit was refused
	OpCondition = -2       // condition i is OpCondition-i
	OpNone      = -1 << 31 // the error names no op
)

// Error returns the code, what is known and the outcome if it is unknown.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	if e.Reason != "" {
		b.WriteString(" (" + e.Reason + ")")
	}
	if e.Op != OpNone {
		b.WriteString(" at " + e.place())
	}
	if e.Field != "" && !strings.HasPrefix(e.Message, e.Field) {
		b.WriteString(" in " + e.Field)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Limit != "" {
		fmt.Fprintf(&b, " (limit %s = %d)", e.Limit, e.Max)
	}
	if e.Outcome == Unknown {
		b.WriteString("; the outcome is unknown")
	}
	return b.String()
}

func (e *Error) place() string {
	switch {
	case e.Op == OpFence:
		return "the fence"
	case e.Op <= OpCondition:
		return fmt.Sprintf("conditions[%d]", OpCondition-e.Op)
	default:
		return fmt.Sprintf("ops[%d]", e.Op)
	}
}

// Is reports whether target is the sentinel of e's code, such as ErrLeaseLost.
func (e *Error) Is(target error) bool {
	c, ok := target.(codeError)
	return ok && Code(c) == e.Code
}

// Unwrap returns what ended the call on this side, such as context.DeadlineExceeded; nil for an answer of the server.
func (e *Error) Unwrap() error { return e.cause }

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
var ErrClosed = errors.New("the client is closed")

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

// fromWire converts an error of the contract; nil stays nil.
func fromWire(w *millracev1.Error) *Error {
	if w == nil {
		return nil
	}
	e := &Error{
		Code: Code(w.Code), Reason: w.Reason, Message: w.Message, Field: w.Field, Limit: w.Limit, Max: w.Max,
		Op: OpNone, Details: w.Details, RetryAfter: w.RetryAfter.AsDuration(), Leader: w.Leader,
		Outcome: Refused,
	}
	if w.Op != nil {
		e.Op = int(*w.Op)
	}
	if w.Outcome == millracev1.Error_UNKNOWN {
		e.Outcome = Unknown
	}
	e.Failures = failuresOf(w.Failures)
	return e
}

// RefFailure is one of several reasons for one refusal.
type RefFailure struct {
	Change  int // position in the transaction; -1 = the whole
	Code    Code
	Reason  string
	Message string
	Details map[string]string
}

func failuresOf(in []*millracev1.Failure) []RefFailure {
	if len(in) == 0 {
		return nil
	}
	out := make([]RefFailure, len(in))
	for i, f := range in {
		out[i] = RefFailure{
			Change: int(f.GetChange()), Code: Code(f.GetCode()), Reason: f.GetReason(), Message: f.GetMessage(), Details: f.GetDetails(),
		}
	}
	return out
}

// fromStatus converts the error of a gRPC call. Without details, what may have been applied is unknown.
func fromStatus(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if w, ok := d.(*millracev1.Error); ok {
			e := fromWire(w)
			if f, ok := errors.AsType[*rest.Fault](err); ok {
				e.cause = f.Ended()
			}
			return e
		}
	}
	e := &Error{Code: CodeUnavailable, Message: st.Message(), Op: OpNone, Outcome: Unknown}
	switch st.Code() {
	case codes.InvalidArgument, codes.Unimplemented, codes.OutOfRange:
		e.Code, e.Outcome = CodeInvalidArgument, Refused
	case codes.Unauthenticated:
		e.Code, e.Outcome = CodeUnauthenticated, Refused
	case codes.PermissionDenied:
		e.Code, e.Outcome = CodePermissionDenied, Refused
	case codes.NotFound:
		e.Code, e.Outcome = CodeNotFound, Refused
	case codes.AlreadyExists:
		e.Code, e.Outcome = CodeAlreadyExists, Refused
	case codes.FailedPrecondition:
		e.Code, e.Outcome = CodePreconditionFailed, Refused
	case codes.ResourceExhausted:
		e.Code = CodeResourceExhausted
	case codes.DeadlineExceeded:
		e.Code, e.cause = CodeDeadlineExceeded, context.DeadlineExceeded
	case codes.Canceled:
		e.Code, e.cause = CodeDeadlineExceeded, context.Canceled
	case codes.Internal:
		e.Code = CodeInternal
	case codes.DataLoss:
		e.Code = CodeDataLoss
	}
	return e
}

// patience is how long a call is repeated after an error of its kind; 0 means not at all.
func (e *Error) patience() time.Duration {
	if e.cause != nil && retry.Patience(string(e.Code), "") == retry.ResendFor {
		return 0
	}
	return retry.Patience(string(e.Code), e.Reason)
}

// refusal is what the transport needs to know of e; nil stays nil.
func (e *Error) refusal() *transport.Refusal {
	if e == nil {
		return nil
	}
	return &transport.Refusal{Code: string(e.Code), Reason: e.Reason, Leader: e.Leader, Patient: e.patience() > 0}
}

// noLeader reports whether the node that was asked knows of no leader.
func (e *Error) noLeader() bool {
	return e != nil && e.Code == CodeUnavailable && e.Reason == wire.ReasonNoLeader
}

const (
	reasonGap      = "gap"      // a sequence number before a commit's own was never judged
	reasonUnplaced = "unplaced" // a call has yet to be placed: it never reaches a caller

	limitRequestIDs = "request_ids" // how many request ids a partition keeps
)

// ended is the error of a call whose context ended. unsure says that it had left.
func ended(ctx context.Context, unsure bool, message string) *Error {
	e := &Error{Code: CodeDeadlineExceeded, Message: message, Op: OpNone, Outcome: Refused, cause: context.Cause(ctx)}
	if !errors.Is(e.cause, ctx.Err()) {
		e.cause = errors.Join(ctx.Err(), e.cause)
	}
	if unsure {
		e.Outcome = Unknown
	}
	return e
}

// expiredError ends what was repeated for retry.For without an answer.
func expiredError() *Error {
	return &Error{Code: CodeUnavailable, Reason: wire.ReasonExpired, Message: "no answer came in the time that a call is repeated", Op: OpNone, Outcome: Unknown}
}

// unplacedError sends a call back to be placed, now that it is known how many partitions there are.
func unplacedError() *Error {
	return &Error{Code: CodeWrongPartition, Reason: reasonUnplaced, Op: OpNone, Outcome: Refused}
}

// tooLarge refuses what no server would take.
func tooLarge(field, limit string, most int64) *Error {
	return &Error{Code: CodeTooLarge, Field: field, Message: "too large", Limit: limit, Max: most, Op: OpNone, Outcome: Refused}
}

// badText refuses a name that is no UTF-8, which the contract cannot carry.
func badText(field string) *Error {
	return &Error{Code: CodeInvalidArgument, Field: field, Message: "must be valid UTF-8", Op: OpNone, Outcome: Refused}
}
