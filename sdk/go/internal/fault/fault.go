// Package fault is the error of a call as the engine of the SDK sees it: what a server answered, or what ended the call on this
// side, and how long the call is repeated after it.
//
// A Fault does not implement error, on purpose: users get the type Error of the package millrace, and the compiler finds each place
// that forgot to convert.
package fault

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

// Fault is why a call did not succeed. A nil *Fault is success. Its fields have the meaning that those of millrace.Error have.
type Fault struct {
	Code       string            // one of the codes of the package wire
	Reason     string            // snake_case; may be empty
	Message    string            // for a person
	Field      string            // path of the bad field, counted within the frame that was sent
	Limit      string            // name of the limit that was exceeded
	Max        int64             // its value
	Op         int               // index of the refused op, OpFence, OpCondition-i, or OpNone
	Details    map[string]string // what was found instead, such as rev and value
	RetryAfter time.Duration     // the server's wish; 0 when it has none
	Failures   []Failure         // of a transaction of refs
	Leader     string            // host:port that the error names; empty if unknown
	Unknown    bool              // it may have been applied; false: nothing was changed
	Cause      error             // what ended the call on this side, such as context.DeadlineExceeded; nil for an answer
}

// Failure is one of several reasons for one refusal, as a transaction of refs has them: one for each change that failed, and one for
// the whole where there is such a reason.
type Failure struct {
	Change  int // position in the transaction; -1 = the whole
	Code    string
	Reason  string
	Message string
	Details map[string]string
}

// Places of a refusal other than an op.
const (
	OpFence     = -1       // the fence of a commit was refused
	OpCondition = -2       // condition i is OpCondition-i
	OpNone      = -1 << 31 // the fault names no op
)

// ErrClosed is the cause of what a closed client refuses.
var ErrClosed = errors.New("the client is closed")

// ErrStopped is the cause of the contexts of handlers that were still running when their worker's time to drain was over.
var ErrStopped = errors.New("the worker stopped and gave the task back")

// ErrCancelled is the cause of the context of a handler whose task's cancel was asked for.
var ErrCancelled = errors.New("the task's cancel was asked for")

// Text returns the code, what is known, and the outcome if it is unknown: the text of the user's error.
func (f *Fault) Text() string {
	var b strings.Builder
	b.WriteString(f.Code)
	if f.Reason != "" {
		b.WriteString(" (" + f.Reason + ")")
	}
	if f.Op != OpNone {
		b.WriteString(" at " + f.at())
	}
	// Many messages begin with the name of their field.
	if f.Field != "" && !strings.HasPrefix(f.Message, f.Field) {
		b.WriteString(" in " + f.Field)
	}
	if f.Message != "" {
		b.WriteString(": " + f.Message)
	}
	if f.Limit != "" {
		fmt.Fprintf(&b, " (limit %s = %d)", f.Limit, f.Max)
	}
	if f.Unknown {
		b.WriteString("; the outcome is unknown")
	}
	return b.String()
}

// at names the part of a commit that Op points to.
func (f *Fault) at() string {
	switch {
	case f.Op == OpFence:
		return "the fence"
	case f.Op <= OpCondition:
		return fmt.Sprintf("conditions[%d]", OpCondition-f.Op)
	default:
		return fmt.Sprintf("ops[%d]", f.Op)
	}
}

// FromWire converts an error of the contract; nil stays nil.
func FromWire(w *millracev1.Error) *Fault {
	if w == nil {
		return nil
	}
	f := &Fault{
		Code: w.Code, Reason: w.Reason, Message: w.Message, Field: w.Field, Limit: w.Limit, Max: w.Max, Op: OpNone,
		Details: w.Details, RetryAfter: w.RetryAfter.AsDuration(), Failures: Failures(w.Failures), Leader: w.Leader,
		Unknown: w.Outcome == millracev1.Error_UNKNOWN,
	}
	// Op 0 is the first op, so none is told from it by its absence.
	if w.Op != nil {
		f.Op = int(*w.Op)
	}
	return f
}

// Failures converts the list of the contract; an empty one is nil.
func Failures(in []*millracev1.Failure) []Failure {
	if len(in) == 0 {
		return nil
	}
	out := make([]Failure, len(in))
	for i, f := range in {
		out[i] = Failure{
			Change: int(f.GetChange()), Code: f.GetCode(), Reason: f.GetReason(), Message: f.GetMessage(), Details: f.GetDetails(),
		}
	}
	return out
}

// FromStatus converts the error of a gRPC call; err must not be nil. Without details, what may have been applied is unknown.
func FromStatus(err error) *Fault {
	// Every error of Millrace has one of the contract in its details, over gRPC and over REST.
	st := status.Convert(err)
	for _, d := range st.Details() {
		if w, ok := d.(*millracev1.Error); ok {
			f := FromWire(w)
			// An error of REST may have been made on this side, when a context ended.
			if r, ok := errors.AsType[*rest.Fault](err); ok {
				f.Cause = r.Ended()
			}
			return f
		}
	}
	// Without an error of the contract nothing says whether a server has seen the call, unless the code alone does: a refusal of the
	// request itself, or of who made it.
	f := &Fault{Code: wire.Unavailable, Message: st.Message(), Op: OpNone, Unknown: true}
	switch st.Code() {
	case codes.InvalidArgument, codes.Unimplemented, codes.OutOfRange:
		f.Code, f.Unknown = wire.InvalidArgument, false
	case codes.Unauthenticated:
		f.Code, f.Unknown = wire.Unauthenticated, false
	case codes.PermissionDenied:
		f.Code, f.Unknown = wire.PermissionDenied, false
	case codes.NotFound:
		f.Code, f.Unknown = wire.NotFound, false
	case codes.AlreadyExists:
		f.Code, f.Unknown = wire.AlreadyExists, false
	case codes.FailedPrecondition:
		f.Code, f.Unknown = wire.PreconditionFailed, false
	// The rest leaves open whether a server has applied the call.
	case codes.ResourceExhausted:
		f.Code = wire.ResourceExhausted
	case codes.DeadlineExceeded:
		f.Code, f.Cause = wire.DeadlineExceeded, context.DeadlineExceeded
	case codes.Canceled:
		f.Code, f.Cause = wire.DeadlineExceeded, context.Canceled
	case codes.Internal:
		f.Code = wire.Internal
	case codes.DataLoss:
		f.Code = wire.DataLoss
	}
	return f
}

// Patience is how long a call is repeated after a fault of its kind; 0 means not at all.
func (f *Fault) Patience() time.Duration {
	// What this side ended is not repeated, unless a limit asked for a wait.
	if f.Cause != nil && retry.Patience(f.Code, "") == retry.ResendFor {
		return 0
	}
	return retry.Patience(f.Code, f.Reason)
}

// Refusal is what the transport needs to know of f; nil stays nil.
func (f *Fault) Refusal() *transport.Refusal {
	if f == nil {
		return nil
	}
	return &transport.Refusal{Code: f.Code, Reason: f.Reason, Leader: f.Leader, Patient: f.Patience() > 0}
}

// NoLeader reports whether the node that was asked knows of no leader.
func (f *Fault) NoLeader() bool {
	return f != nil && f.Code == wire.Unavailable && f.Reason == wire.ReasonNoLeader
}

// After makes f the end of a call; unsure says that an earlier try of it may have been applied. It changes f and returns it.
func (f *Fault) After(unsure bool) *Fault {
	f.Unknown = unsure
	return f
}

// Copy returns a fault that may be changed without changing f.
func (f *Fault) Copy() *Fault {
	out := *f
	return &out
}
