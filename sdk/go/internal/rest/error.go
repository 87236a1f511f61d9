package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/restjson"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// restStatuses has a row for every code of the contract: what gRPC calls it.
var restStatuses = map[string]codes.Code{
	wire.InvalidArgument: codes.InvalidArgument, wire.TooLarge: codes.InvalidArgument,
	wire.Unauthenticated: codes.Unauthenticated, wire.PermissionDenied: codes.PermissionDenied,
	wire.NotFound: codes.NotFound, wire.AlreadyExists: codes.AlreadyExists, wire.LeaseLost: codes.FailedPrecondition,
	wire.WrongState: codes.FailedPrecondition, wire.PreconditionFailed: codes.FailedPrecondition,
	wire.WrongPartition: codes.FailedPrecondition, wire.RateLimited: codes.ResourceExhausted,
	wire.ResourceExhausted: codes.ResourceExhausted, wire.NotLeader: codes.Unavailable, wire.Unavailable: codes.Unavailable,
	wire.DeadlineExceeded: codes.DeadlineExceeded, wire.Internal: codes.Internal, wire.DataLoss: codes.DataLoss,
}

// restOrigin says who ended a request.
type restOrigin uint8

const (
	byServer  restOrigin = iota // Millrace answered
	byOther                     // something between here and the server did
	byNobody                    // no answer came
	byContext                   // the caller's context ended first
)

// Fault is the error of a request. For gRPC's status package it is a status with the error of the contract in it.
type Fault struct {
	// origin says who ended the request.
	origin restOrigin
	// wire is nil when a context ended and the request may have left.
	wire *millracev1.Error
	// cause is what ended the request on this side; nil for an answer.
	cause error
}

// Error says what the error of the contract says.
func (f *Fault) Error() string {
	if f.wire != nil {
		return f.wire.Message
	}
	return f.cause.Error()
}

// Unwrap returns what ended the request on this side.
func (f *Fault) Unwrap() error { return f.cause }

// GRPCStatus returns the fault as a gRPC call would have it.
func (f *Fault) GRPCStatus() *status.Status {
	if f.wire == nil {
		return status.FromContextError(f.cause)
	}
	// A newer server may have codes that this client does not know.
	code, ok := restStatuses[f.wire.Code]
	if !ok {
		code = codes.Unknown
	}
	// What a context ended is told as gRPC tells it, though the request is known not to have left.
	if f.origin == byContext {
		code = status.FromContextError(f.cause).Code()
	}
	st := status.New(code, f.wire.Message)
	if with, err := st.WithDetails(f.wire); err == nil { // it fails for code OK only
		st = with
	}
	return st
}

// patience is how long a call is repeated after the fault; 0 means not at all, such as for a caller whose context ended.
func (f *Fault) patience() time.Duration {
	if f.origin == byContext {
		return 0
	}
	return retry.Patience(f.wire.GetCode(), f.wire.GetReason())
}

// Ended returns the error of the caller's context if that is what ended the request, else nil.
func (f *Fault) Ended() error {
	if f.origin == byContext {
		return f.cause
	}
	return nil
}

// left reports whether the request may have reached the server.
func (f *Fault) left() bool { return f.wire == nil || f.wire.Outcome == millracev1.Error_UNKNOWN }

// refusedHere is the error of a request that no server would take.
func refusedHere(field, message string) error {
	return &Fault{wire: &millracev1.Error{Code: wire.InvalidArgument, Field: field, Message: message}}
}

// restUnanswered is the fault of a request without an answer. One that never left changed nothing.
func restUnanswered(ctx context.Context, host string, left bool, err error) *Fault {
	if ctx.Err() != nil {
		f := &Fault{origin: byContext, cause: ctx.Err()}
		if !left {
			f.wire = &millracev1.Error{Code: wire.DeadlineExceeded, Message: "the call ended before its request left"}
		}
		return f
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the path and the method, which mean nothing to a caller
	}
	w := &millracev1.Error{Code: wire.Unavailable, Message: "REST at " + host + ": " + err.Error()}
	if left {
		w.Outcome = millracev1.Error_UNKNOWN
	}
	return &Fault{origin: byNobody, wire: w, cause: err}
}

// restRefused is the fault of an answer that is not a success.
func restRefused(a *restAnswer) *Fault {
	if w := new(millracev1.Error); a.isJSON() && restjson.Decode(restjson.Member(a.body, "error"), w.ProtoReflect()) == nil {
		// An object with an error of some other form is not Millrace's.
		if _, known := restStatuses[w.GetCode()]; known {
			// A wait may be told in the body or in the header.
			if w.RetryAfter == nil {
				w.RetryAfter = a.retryAfter()
			}
			return &Fault{origin: byServer, wire: w}
		}
	}
	return restBetween(a)
}

// restBetween is the fault of an answer that Millrace did not write: by a proxy, or by another server.
func restBetween(a *restAnswer) *Fault {
	w := &millracev1.Error{
		Code: wire.Unavailable, RetryAfter: a.retryAfter(),
		Message: "something between here and the server answered " + strconv.Itoa(a.status) + " " + http.StatusText(a.status),
	}
	// These statuses are of what looked at the request and did not pass it on.
	switch a.status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		w.Code = wire.Unauthenticated
	case http.StatusForbidden:
		w.Code = wire.PermissionDenied
	case http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		w.Code = wire.TooLarge
	case http.StatusTooManyRequests:
		w.Code = wire.RateLimited
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		w.Code = wire.InvalidArgument
	default: // whether it had passed the request on is not known
		w.Outcome = millracev1.Error_UNKNOWN
	}
	return &Fault{origin: byOther, wire: w}
}

// retryAfter reads how long the answer asks to wait; nil when it does not.
func (a *restAnswer) retryAfter() *durationpb.Duration {
	text := a.header.Get("Retry-After")
	if text == "" {
		return nil
	}
	// HTTP allows seconds or a date.
	if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); err == nil {
		return durationpb.New(time.Duration(n) * time.Second)
	}
	if t, err := http.ParseTime(text); err == nil {
		return durationpb.New(max(time.Until(t), 0))
	}
	return nil
}

// enclosed puts the name of the message around a field: a route of one thing calls by its own name what is a part of a
// message here. What stands outside of that part keeps its name.
func enclosed(err error, message string) error {
	f, ok := errors.AsType[*Fault](err)
	if !ok || f.wire.GetField() == "" {
		return err
	}
	switch f.wire.Field {
	case "queue", "if_version", "headers":
		if message == "config" {
			return err
		}
	case "If-Match":
		f.wire.Field = "if_version"
		return err
	case "body":
		f.wire.Field = message
		return err
	}
	f.wire.Field = message + "." + f.wire.Field
	return err
}
