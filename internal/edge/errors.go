package edge

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/strictjson"
)

// retry is what a client may do about a refusal.
type retry uint8

const (
	never    retry = iota // the same call gets the same answer
	later                 // after a pause
	sameID                // after a pause, under the same id, token or request id: it may have been applied
	atLeader              // at the node that the error names
)

// row says how an error of one code leaves the process.
type row struct {
	code  errs.Code
	GRPC  codes.Code
	HTTP  int
	retry retry
}

// statuses is the only table from a code to its statuses and retry class, by code.
var statuses = [...]row{
	errs.InvalidArgument:    {errs.InvalidArgument, codes.InvalidArgument, http.StatusBadRequest, never},
	errs.TooLarge:           {errs.TooLarge, codes.InvalidArgument, http.StatusRequestEntityTooLarge, never},
	errs.Unauthenticated:    {errs.Unauthenticated, codes.Unauthenticated, http.StatusUnauthorized, never},
	errs.PermissionDenied:   {errs.PermissionDenied, codes.PermissionDenied, http.StatusForbidden, never},
	errs.NotFound:           {errs.NotFound, codes.NotFound, http.StatusNotFound, never},
	errs.AlreadyExists:      {errs.AlreadyExists, codes.AlreadyExists, http.StatusConflict, never},
	errs.LeaseLost:          {errs.LeaseLost, codes.FailedPrecondition, http.StatusConflict, never},
	errs.WrongState:         {errs.WrongState, codes.FailedPrecondition, http.StatusConflict, never},
	errs.PreconditionFailed: {errs.PreconditionFailed, codes.FailedPrecondition, http.StatusPreconditionFailed, never},
	errs.WrongPartition:     {errs.WrongPartition, codes.FailedPrecondition, http.StatusUnprocessableEntity, never},
	errs.RateLimited:        {errs.RateLimited, codes.ResourceExhausted, http.StatusTooManyRequests, later},
	errs.ResourceExhausted:  {errs.ResourceExhausted, codes.ResourceExhausted, http.StatusTooManyRequests, later},
	errs.NotLeader:          {errs.NotLeader, codes.Unavailable, http.StatusTemporaryRedirect, atLeader},
	errs.Unavailable:        {errs.Unavailable, codes.Unavailable, http.StatusServiceUnavailable, sameID},
	errs.DeadlineExceeded:   {errs.DeadlineExceeded, codes.DeadlineExceeded, http.StatusGatewayTimeout, sameID},
	errs.Internal:           {errs.Internal, codes.Internal, http.StatusInternalServerError, never},
	errs.DataLoss:           {errs.DataLoss, codes.DataLoss, http.StatusInternalServerError, never},
}

// exception is a fact with another status or retry class than its code has.
type exception struct {
	is func(error) bool
	row
}

// exceptions are all of them; the first that matches counts.
var exceptions = []exception{
	{Is[WrongMethod], row{errs.InvalidArgument, codes.InvalidArgument, http.StatusMethodNotAllowed, never}},
	{isHeaders, row{errs.TooLarge, codes.InvalidArgument, http.StatusRequestHeaderFieldsTooLarge, never}},
	{isDiskFull, row{errs.ResourceExhausted, codes.ResourceExhausted, http.StatusInsufficientStorage, later}},
	{Is[core.EmbedUnavailable], row{errs.Unavailable, codes.Unavailable, http.StatusServiceUnavailable, later}}, // nothing was proposed
}

// Is reports whether err is of a type, or wraps one that is.
func Is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// isDiskFull tells the one used-up limit that has a status of its own.
func isDiskFull(err error) bool {
	f, ok := errors.AsType[core.Exhausted](err)
	return ok && f.Limit == "disk"
}

// shown is damage whose text its caller may read: an operator's.
type shown struct{ error }

// Unwrap returns the damage.
func (s shown) Unwrap() error { return s.error }

// Show lets the caller read the text of damage: an operator may.
func Show(damage error) error { return shown{damage} }

// RowOf finds the row of err. What is neither a fact nor damage is INTERNAL, and its text stays in the log.
func RowOf(err error) row {
	// Exceptions come first, since each is a fact that has a row by its code too.
	for _, e := range exceptions {
		if e.is(err) {
			return e.row
		}
	}
	if fact, ok := errors.AsType[core.Fact](err); ok {
		return statuses[fact.Code()]
	}
	if Is[*errs.Corruption](err) {
		return statuses[errs.DataLoss]
	}
	return statuses[errs.Internal]
}

// FactOf turns what a context or the backend returned into an error that the table knows. sent says that a proposal
// had left.
func FactOf(err error, sent bool) error {
	switch {
	case Is[core.Fact](err):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return core.DeadlineExceeded{Unknown: sent}
	case errors.Is(err, context.Canceled):
		return core.Unavailable{Reason: "cancelled", Unknown: sent} // for the log: who cancelled reads no answer
	}
	return err
}

const (
	// messageBytes bounds the text of an error, which travels in a header.
	messageBytes = 512
	// shownValueBytes bounds the value that a failed condition shows, for the same reason.
	shownValueBytes = 1 * kib
	// damagedText is what those are told who may not read what is damaged.
	damagedText = "stored data is damaged"
)

// Wire gives an error its one shape. values says that the caller may read the values of keys.
func Wire(err error, values bool) *pb.Error {
	r := RowOf(err)
	e := &pb.Error{Code: r.code.String(), Message: core.Cut(Text(err), messageBytes)}
	if fact, ok := errors.AsType[core.Fact](err); ok {
		describe(e, fact, values)
	}
	return e
}

// Text is what a caller may read of an error: the words of a fact, and of all else only of what kind it is.
func Text(err error) string {
	if fact, ok := errors.AsType[core.Fact](err); ok {
		return fact.Error()
	}
	if !Is[*errs.Corruption](err) {
		return "internal error"
	}
	if text, ok := errors.AsType[shown](err); ok {
		return damagedText + ": " + text.Error()
	}
	return damagedText
}

// describe fills in what the contract tells of a fact besides its code and text. A fact without a case
// has no more to tell.
func describe(e *pb.Error, fact core.Fact, values bool) {
	switch f := fact.(type) {
	case core.Invalid:
		e.Field, e.Reason = f.Field, f.Reason
	case core.OutOfRange:
		e.Field, e.Reason, e.Limit, e.Max = f.Field, f.Reason, f.Limit, f.Max
	case WrongMethod:
		e.Field = f.Field
	case Misplaced:
		e.Field, e.Details = f.Field, f.details()
	case AtOp:
		describe(e, f.Fact, values)
		op := int32(f.Op)
		e.Op = &op
	case core.TooLarge:
		e.Field, e.Limit, e.Max = f.Field, f.Limit, f.Max
	case core.Exhausted:
		e.Limit, e.Max, e.Reason = f.Limit, f.Max, searchReasons[f.Limit]
	case core.RateLimited:
		e.Limit = f.Limit
		e.RetryAfter = durationpb.New(f.RetryAfter.Duration())
	case core.WrongState:
		e.Details = map[string]string{"state": f.State.String()}
	case core.WrongBatch:
		e.Reason, e.Details = "batch_closed", map[string]string{"state": f.State.String(), "batch": f.Batch.String()}
	case core.NotEmpty:
		e.Reason, e.Details = "namespace_not_empty", map[string]string{"held": strings.Join(f.Held, ",")}
	case core.NotFound:
		if f.Kind == "limiter" { // a task or a queue may name several
			e.Details = map[string]string{"limiter": f.ID}
		}
	case core.InUse:
		e.Reason, e.Details = f.Kind+"_in_use", map[string]string{f.Kind: f.ID, "by": f.By}
	case core.WrongMembership:
		e.Reason = f.Reason
		e.Details = map[string]string{"node": strconv.FormatUint(f.Node, 10)}
		if f.Reason == "learner_behind" {
			e.Details["lag"] = strconv.FormatUint(f.Lag, 10)
		}
	case core.NotMoved:
		e.Reason = "not_moved"
	case core.FormatHeld:
		e.Reason = "format_held"
		e.Details = map[string]string{"format": strconv.Itoa(int(f.Format)), "older": numbers(f.Older), "silent": numbers(f.Silent)}
	case core.SessionExpired:
		e.Reason = "session_expired"
	case core.RevMismatch:
		e.Details = mismatch(f, values)
	case core.NotAdded:
		e.Reason, e.Details = f.Reason, map[string]string{"rev": strconv.FormatUint(f.Rev, 10)}
	case core.WrongPartition:
		ops := make([]string, len(f.Ops))
		for i, op := range f.Ops {
			ops[i] = strconv.Itoa(op)
		}
		e.Details = map[string]string{"ops": strings.Join(ops, ",")}
	case core.QueuePinned:
		e.Reason, e.Details = "queue_pinned", map[string]string{"partition": strconv.Itoa(core.PinnedPartition), "queue": f.Queue}
	case core.RefRefused:
		describeRefused(e, f)
	case txnState:
		e.Field, e.Reason, e.Details = f.Field, f.Reason, map[string]string{"expected": f.expected, "actual": f.actual}
	case core.SearchInvalid, core.DimMismatch, core.VersionMismatch, core.SearchState, core.EmbedUnavailable:
		describeSearch(e, fact)
	case core.NotLeader:
		e.Leader = f.Leader
	case core.Unavailable:
		e.Reason, e.Limit = f.Reason, f.Limit
		e.Outcome = showOutcome(f.Unknown)
	case EndedMeanwhile:
		e.Outcome = showOutcome(true)
	case core.DeadlineExceeded:
		e.Outcome = showOutcome(f.Unknown)
		if f.Stage != "" {
			e.Details = map[string]string{"stage": f.Stage}
		}
	}
}

// mismatch tells the revision that a key has, and its value if the caller may read it and it fits a
// header.
func mismatch(f core.RevMismatch, values bool) map[string]string {
	d := map[string]string{"rev": strconv.FormatUint(f.Rev, 10)}
	if values && !f.Missing && len(f.Value) <= shownValueBytes && utf8.Valid(f.Value) {
		d["value"] = string(f.Value)
	}
	return d
}

// showOutcome says whether a call has surely changed nothing, or may have been applied.
func showOutcome(unknown bool) pb.Error_Outcome {
	if unknown {
		return pb.Error_UNKNOWN
	}
	return pb.Error_REFUSED
}

// Refusal is the refusal of a commit as an error. shift is how many ops the edge put before the caller's own.
type Refusal struct {
	*core.Refusal
	shift int
}

// Refused is the refusal of a commit as an error. shift is how many ops the edge put before the caller's own.
func Refused(r *core.Refusal, shift int) Refusal { return Refusal{r, shift} }

// Error says what the fact says.
func (r Refusal) Error() string { return r.Fact.Error() }

// Unwrap returns the fact.
func (r Refusal) Unwrap() error { return r.Fact }

// wire gives the refusal its shape. One of an op that the edge put is of the item itself, and names no op.
func (r Refusal) wire(values bool) *pb.Error {
	e := Wire(r.Fact, values)
	if r.Op == core.CommitOp {
		return e
	}
	op := int32(r.Op)
	if r.Op >= 0 {
		op = int32(r.Op - r.shift)
		field := e.GetField()
		e.Field = shiftField(field, r.shift)
		if rest, ok := strings.CutPrefix(e.GetMessage(), field); ok && field != "" {
			e.Message = e.Field + rest
		}
	}
	if r.Op < 0 || op >= 0 {
		e.Op = &op
	}
	return e
}

// shiftField turns a path such as ops[2].key, which counts the ops that the edge put, into the caller's.
func shiftField(field string, shift int) string {
	rest, ok := strings.CutPrefix(field, "ops[")
	number, tail, closed := strings.Cut(rest, "]")
	n, err := strconv.Atoi(number)
	if shift == 0 || !ok || !closed || err != nil || n < shift {
		return field
	}
	return Item("effects.ops", n-shift) + tail
}

// Status turns an error into what ends a call, and logs what a client may not see.
func (e *Edge) Status(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok && !Is[core.Fact](err) {
		return err // the transport's own: it has ended the call already
	}
	who, _ := CallerOf(ctx)
	err = FactOf(err, false)
	told := e.Wire(method, err, who.Scopes.Has(ReadsValues))
	st := status.New(RowOf(err).GRPC, told.GetMessage())
	if with, err := st.WithDetails(told); err == nil { // it fails for code OK only
		st = with
	}
	return st.Err()
}

// Wire gives an error its shape, logs what a client may not see, and counts refusals by a limit.
func (e *Edge) Wire(method string, err error, values bool) *pb.Error {
	var out *pb.Error
	if r, ok := errors.AsType[Refusal](err); ok {
		out = r.wire(values)
	} else {
		out = Wire(err, values)
	}
	if code := RowOf(err).code; code == errs.Internal || code == errs.DataLoss {
		e.Log.Error("call failed", "method", method, "code", code.String(), "err", err)
	}
	e.Refusals.count(out)
	return out
}

// Within puts the path of what encloses it before the field that a fact names.
func Within(prefix string, f core.Fact) core.Fact {
	switch f := f.(type) {
	case AtOp:
		f.Fact = Within(prefix, f.Fact)
		return f
	case core.Invalid:
		f.Field = join(prefix, f.Field)
		return f
	case core.OutOfRange:
		f.Field = join(prefix, f.Field)
		return f
	case Misplaced:
		f.Field = join(prefix, f.Field)
		return f
	case core.TooLarge:
		f.Field = join(prefix, f.Field)
		return f
	case core.SearchInvalid:
		f.Field = join(prefix, f.Field)
		return f
	case core.DimMismatch:
		f.Field = join(prefix, f.Field)
		return f
	case core.SearchState:
		f.Field = join(prefix, f.Field)
		return f
	}
	return f
}

// Item is the path of element i of a list.
func Item(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// join puts a path before a field; an empty field is what the path names itself.
func join(prefix, field string) string {
	if field == "" {
		return prefix
	}
	return prefix + "." + field
}

// Invalid refuses a field.
func Invalid(field, message string) core.Fact { return core.Invalid{Field: field, Message: message} }

// NotSupported refuses a field that is reserved.
func NotSupported(field string) core.Fact {
	return core.Invalid{Field: field, Reason: "not_supported", Message: "is reserved and not supported yet"}
}

// Beyond refuses a field that breaks a limit.
func Beyond(field, limit string, top int64, message string) core.Fact {
	return core.OutOfRange{Invalid: core.Invalid{Field: field, Message: message}, Limit: limit, Max: top}
}

// TooLarge refuses a field that is longer than a limit allows.
func TooLarge(field, limit string, top int64) core.Fact {
	return core.TooLarge{Field: field, Limit: limit, Max: top}
}

// LimitHeader is the one limit of sizes whose refusal has a status of its own.
const LimitHeader = "http_header"

// WrongMethod says that a path has other methods than the one asked for.
type WrongMethod struct {
	core.Invalid
	Allow string
}

// isHeaders tells the one size that has a status of its own.
func isHeaders(err error) bool {
	f, ok := errors.AsType[core.TooLarge](err)
	return ok && f.Limit == LimitHeader
}

// Unprefixed takes the path of what encloses it off the field that a fact names: on a route of one thing the body is
// that thing.
func Unprefixed(prefix string, err error) error {
	return Refielded(err, func(field string) string { return cutPath(prefix, field) })
}

// Refielded puts the field that a fact names in other words.
func Refielded(err error, field func(string) string) error {
	if f, ok := errors.AsType[AtOp](err); ok {
		if fact, ok := errors.AsType[core.Fact](Refielded(f.Fact, field)); ok {
			f.Fact = fact
		}
		return f
	}
	if f, ok := errors.AsType[core.Invalid](err); ok {
		f.Field = field(f.Field)
		return f
	}
	if f, ok := errors.AsType[core.OutOfRange](err); ok {
		f.Field = field(f.Field)
		return f
	}
	if f, ok := errors.AsType[Misplaced](err); ok {
		f.Field = field(f.Field)
		return f
	}
	if f, ok := errors.AsType[core.TooLarge](err); ok {
		f.Field = field(f.Field)
		return f
	}
	return err
}

// cutPath takes a prefix off a path, if it is there as a whole: ops is not a prefix of opsets.
func cutPath(prefix, field string) string {
	if field == prefix {
		return strictjson.Document
	}
	if len(field) > len(prefix) && field[:len(prefix)] == prefix && field[len(prefix)] == '.' {
		return field[len(prefix)+1:]
	}
	return field
}

// Code is a code of errors, and the status that it has.
type Code struct {
	Code   string
	Status int
}

// Codes lists the codes of errors, each with its statuses.
func Codes() []Code {
	var out []Code
	for _, r := range statuses[1:] { // the first code is OK
		out = append(out, Code{r.code.String(), r.HTTP})
	}
	for _, e := range exceptions {
		if c := (Code{e.code.String(), e.HTTP}); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// SettleRefusal refuses the settle of one task. failed says that the attempt was failed instead, as its effects asked.
type SettleRefusal struct {
	Refusal
	Failed bool
}

// Unwrap returns the refusal.
func (r SettleRefusal) Unwrap() error { return r.Refusal }
