package session

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Attempt is one attempt at a task that a worker holds: its lease, how far it got, and the settle that ends it. What a handler sees of
// it is the caller's: it holds an Attempt by value, and names itself in Owner.
//
// Handlers end an attempt by Complete, Fail, Stop, Snooze or Release, once per run, from the goroutine that runs them.
type Attempt struct {
	// Lease names the task and the token of this attempt; length is how long the lease lasts.
	Lease  wire.Lease
	length time.Duration
	// Queue and Kind are those of the task, as the assignment says.
	Queue, Kind string
	// Number is that of this delivery, from 1.
	Number uint32
	// Owner is the caller's own, which is carried and not looked at.
	Owner any

	// l is the stream that the attempt is of now.
	l *workerStream
	// ctx is the handler's context, and cancel ends it with a cause that the handler can read.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// How far it got; guarded by the worker's mu.

	stage stage
	// lost says that the lease is gone: nothing is sent any more. With outlived the handler holds its slot until it returns.
	lost, outlived bool
	// cancelled says that the task's cancel was asked for: the attempt ends with a stop, unless it completes.
	cancelled bool
	// stopped says that the handler was told to stop as the worker ends: its task goes back whatever it returns.
	stopped bool
	// released says that the task was given back while the handler still runs.
	released bool
	// unbound says that it was claimed without a session: no session's stream knows of it.
	unbound bool
	// renewAt is when the lease is to be renewed next.
	renewAt time.Time

	// How far its settle got; guarded by the worker's mu.

	// first is when it left first; unsure says that no answer came then.
	first  time.Time
	unsure bool
	// tries counts the answers that said "later".
	tries int
	// solo gives the settle a frame of its own.
	solo bool
	// plainly says that a failure was refused, and replaced by one that every server takes.
	plainly bool
	// refusal says that the effects were refused, and the handlers are to be asked again.
	refusal *fault.Fault

	// The settle, made by the goroutine that ran the handler.

	item millracev1.SettleItem
	// complete and outcome are the parts of item for the usual end, so that a completion allocates nothing more.
	complete millracev1.Complete
	outcome  millracev1.SettleItem_Complete
	// op is the ledger's word for it: complete, fail, stop, snooze or release.
	op string
	// again sends a refusal of its effects to the handlers.
	again bool
	// invoke is when the handler returned, by the clock of the ledger.
	invoke int64
	// bytes is the encoded size of item, about.
	bytes int
}

// Stopping is closed when the attempt's worker takes no more tasks; nil, which is never closed, where there is no worker.
func (a *Attempt) Stopping() <-chan struct{} {
	if a.l == nil {
		return nil
	}
	return a.l.w.draining
}

// stage is how far an attempt got with its worker.
type stage uint8

// The stages, in the order in which an attempt passes through them. A settle that is sent again goes back to settling.
const (
	waiting  stage = iota // for a goroutine
	running               // in its handler
	settling              // its settle waits to be written
	settled               // its settle was written
)

// Cancelled is the cause of the context of a handler whose task's cancel was asked for. It is a fault.ErrCancelled.
type Cancelled struct {
	Reason string // why, as who asked for it says; empty: it is not known
}

// Error tells the reason.
func (c *Cancelled) Error() string {
	if c.Reason == "" {
		return fault.ErrCancelled.Error()
	}
	return fault.ErrCancelled.Error() + ": " + c.Reason
}

// Unwrap returns what errors.Is looks for.
func (c *Cancelled) Unwrap() error { return fault.ErrCancelled }

// Limits of what a failure reports, in bytes; the server cuts at the same places.
const (
	maxErrorCode    = 64
	maxErrorMessage = 4 << 10
	maxErrorStack   = 16 << 10
)

// Failure is what an attempt that failed reports.
type Failure struct {
	Code, Message, Stack string         // cut to the limits of the contract
	Fatal                bool           // no further attempt
	RetryAfter           *time.Duration // until the next attempt, in place of the policy's wait; below 0 counts as 0
}

// Bare gives an attempt that no worker holds its context, which ends with ctx or with End.
func (a *Attempt) Bare(ctx context.Context) { a.ctx, a.cancel = context.WithCancelCause(ctx) }

// Context is the handler's. It ends with a cause when the lease is lost or the worker stops.
func (a *Attempt) Context() context.Context { return a.ctx }

// End ends the handler's context with a cause; nil is context.Canceled.
func (a *Attempt) End(cause error) { a.cancel(cause) }

// Op names the settle that the handlers made, as the ledger does; empty before they did.
func (a *Attempt) Op() string { return a.op }

// Item is the settle that the handlers made.
func (a *Attempt) Item() *millracev1.SettleItem { return &a.item }

// Result returns the result of the last Complete.
func (a *Attempt) Result() (result []byte, contentType string) {
	return a.complete.Result, a.complete.ResultType
}

// Complete ends the attempt with a result, and with effects that may be nil. again has a refusal of the effects go to the handlers. It
// reports false if no frame takes as much: the attempt is then to be ended otherwise.
func (a *Attempt) Complete(result []byte, contentType string, effects *millracev1.Effects, again bool) bool {
	a.complete.Result, a.complete.ResultType = result, contentType
	a.outcome.Complete = &a.complete
	a.item.Id, a.item.Token, a.item.Outcome, a.item.Effects = a.Lease.ID, a.Lease.Token, &a.outcome, effects
	a.op, a.bytes, a.again = "complete", len(result)+128, again
	if effects != nil {
		a.bytes += proto.Size(effects)
	}
	return a.bytes <= FrameBytes
}

// Fail ends the attempt as a failure.
func (a *Attempt) Fail(f Failure) {
	fail := &millracev1.Fail{Fatal: f.Fatal, Error: &millracev1.TaskError{
		Code: wire.Cut(f.Code, maxErrorCode), Message: wire.Cut(f.Message, maxErrorMessage), Stack: wire.Cut(f.Stack, maxErrorStack),
	}}
	if f.RetryAfter != nil {
		fail.RetryAfter = durationpb.New(max(*f.RetryAfter, 0))
	}
	a.settle("fail")
	a.item.Outcome = &millracev1.SettleItem_Fail{Fail: fail}
	a.bytes += len(fail.Error.Message) + len(fail.Error.Stack)
}

// Snooze ends the attempt by putting the task off for d.
func (a *Attempt) Snooze(d time.Duration) {
	a.settle("snooze")
	a.item.Outcome = &millracev1.SettleItem_Snooze{Snooze: &millracev1.Snooze{Delay: durationpb.New(d)}}
}

// Stop ends the attempt of a task whose cancel was asked for. It reports the failure that the attempt ended with, if it did.
func (a *Attempt) Stop() {
	stop := &millracev1.Stop{Error: a.item.GetFail().GetError()}
	a.settle("stop")
	a.item.Outcome = &millracev1.SettleItem_Stop{Stop: stop}
	a.bytes += len(stop.Error.GetMessage()) + len(stop.Error.GetStack())
}

// Release ends the attempt by giving the task back.
func (a *Attempt) Release() {
	a.settle("release")
	a.item.Outcome = &millracev1.SettleItem_Release{Release: &millracev1.Release{}}
}

// settle begins a settle that has no effects.
func (a *Attempt) settle(op string) {
	a.item.Id, a.item.Token, a.item.Effects = a.Lease.ID, a.Lease.Token, nil
	a.op, a.bytes = op, 256
}

// failFor fails the attempt because its settle was refused.
func (a *Attempt) failFor(f *fault.Fault) { a.Fail(Failure{Code: f.Code, Message: f.Text()}) }

// failPlainly replaces a failure that the server refused by one that every server takes, or the lease would run out and count as
// a crash. A failure that was fatal still is.
func (a *Attempt) failPlainly(refused *fault.Fault) {
	fatal := a.item.GetFail().GetFatal()
	a.plainly = true
	a.failFor(refused)
	a.item.GetFail().Fatal = fatal
}

// hold names the lease to a server.
func (a *Attempt) hold() *millracev1.Hold {
	return &millracev1.Hold{Id: a.Lease.ID, Token: a.Lease.Token}
}

// to moves a on. A task whose settle has left takes no slot. It needs mu.
func (a *Attempt) to(s stage) {
	if a.stage == settled {
		a.l.away--
	}
	if s == settled {
		a.l.away++
	}
	a.stage = s
}

// begin makes an attempt of an assignment that came on l.
func (l *workerStream) begin(m *millracev1.Assignment, now time.Time) *Attempt {
	a := l.w.handlers.Begin(m)
	a.Lease, a.Queue, a.Kind, a.Number = wire.Lease{ID: m.Id, Token: m.Token}, m.Queue, m.Kind, m.Attempt
	a.l, a.length = l, max(time.Duration(m.LeaseMs)*time.Millisecond, time.Second)
	a.ctx, a.cancel = context.WithCancelCause(l.w.base)
	left := time.Duration(m.LeaseLeftMs) * time.Millisecond
	a.renewAt = now.Add(max(left-a.length*2/3, 0))
	return a
}

// double makes an attempt under the lease of a, which goes on in its handler, so that the lease can be given back meanwhile: the item
// of an attempt belongs to the goroutine that runs its handler.
func (l *workerStream) double(a *Attempt) *Attempt {
	b := l.w.handlers.Double(a)
	b.Lease, b.Queue, b.Kind, b.Number = a.Lease, a.Queue, a.Kind, a.Number
	b.l, b.length, b.ctx, b.cancel, b.renewAt, b.unbound = l, a.length, a.ctx, a.cancel, a.renewAt, a.unbound
	return b
}
