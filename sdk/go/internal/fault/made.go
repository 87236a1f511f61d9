package fault

import (
	"context"
	"errors"

	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Closed is the fault of a call on a closed client.
func Closed() *Fault {
	return &Fault{Code: wire.Unavailable, Reason: "closed", Message: "the client is closed", Op: OpNone, Cause: ErrClosed}
}

// Ended is the fault of a call whose context ended, or whose time was over. unsure says that the call had left, and may be applied.
func Ended(ctx context.Context, unsure bool, message string) *Fault {
	f := &Fault{Code: wire.DeadlineExceeded, Message: message, Op: OpNone, Unknown: unsure, Cause: context.Cause(ctx)}
	if f.Cause == nil {
		f.Cause = context.DeadlineExceeded
		return f
	}
	// The caller may look for either: the reason that it gave itself, or that of the package context.
	if !errors.Is(f.Cause, ctx.Err()) {
		f.Cause = errors.Join(ctx.Err(), f.Cause)
	}
	return f
}

// Expired ends what was repeated for retry.For without an answer.
func Expired() *Fault {
	return &Fault{Code: wire.Unavailable, Reason: wire.ReasonExpired, Message: "no answer came in the time that a call is repeated", Op: OpNone, Unknown: true}
}

// Lacking ends what an ack answered without saying how; part names what the ack lacks.
func Lacking(part string) *Fault {
	return &Fault{Code: wire.Internal, Message: "the ack lacks " + part, Op: OpNone, Unknown: true}
}

// TooLarge refuses what no server would take: a field that passes the bound most of a limit.
func TooLarge(field, limit string, most int64) *Fault {
	return &Fault{Code: wire.TooLarge, Field: field, Message: "too large", Limit: limit, Max: most, Op: OpNone}
}

// Invalid refuses what no server would take.
func Invalid(field, message string) *Fault {
	return &Fault{Code: wire.InvalidArgument, Field: field, Message: message, Op: OpNone}
}

// BadText refuses a text that is not UTF-8, which the contract cannot carry.
func BadText(field string) *Fault {
	return &Fault{Code: wire.InvalidArgument, Field: field, Message: "must be valid UTF-8", Op: OpNone}
}
