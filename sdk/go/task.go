package millrace

import (
	"context"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Task is one attempt at a task, as its handler sees it.
type Task struct {
	ID          string
	Queue       string
	Kind        string
	Attempt     int // number of this delivery, from 1
	Failures    int // before it
	Crashes     int
	MaxAttempts int
	Priority    int
	Headers     map[string]string
	Payload     []byte
	ContentType string
	CreatedAt   time.Time
	// ResultType is the media type of the bytes that a handler of HandleRaw, HandleAny or HandleBatch returns, at most 128 B; such a
	// handler may set it. Empty: application/octet-stream.
	ResultType string

	w      *Worker
	l      *workerStream
	token  uint64
	lease  time.Duration
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
	fx     *Tx

	onRefused func(ctx context.Context, refused *Error) error

	// Guarded by the worker's mu.
	stage     stage
	lost      bool      // the lease is gone: nothing is sent any more
	cancelled bool      // the server asked to stop
	stopped   bool      // the handler was told to stop, for the worker ends: its task goes back whatever it returns
	outlived  bool      // with lost: the handler holds its slot until it returns
	unbound   bool      // claimed without a session: no session's stream knows of it
	released  bool      // given back while the handler still runs
	renewAt   time.Time // when the lease is to be renewed next
	unsure    bool      // its settle left, and no answer came
	first     time.Time // when its settle left first
	tries     int       // settles that were answered "later"
	plainly   bool      // its failure was refused once, and replaced
	solo      bool      // its settle goes in a frame of its own
	refusal   *Error    // its effects were refused and onRefused is to be called

	// The settle, made by the goroutine that ran the handler.
	item     millracev1.SettleItem
	complete millracev1.Complete
	outcome  millracev1.SettleItem_Complete
	op       string // of the ledger
	invoke   int64
	bytes    int
}

// stage is how far a task got with its worker.
type stage uint8

const (
	waiting  stage = iota // for a goroutine
	running               // in its handler
	settling              // its settle waits to be written
	settled               // its settle was written
)

func (t *Task) key() wire.Lease { return wire.Lease{ID: t.ID, Token: t.token} }

func (t *Task) hold() *millracev1.Hold { return &millracev1.Hold{Id: t.ID, Token: t.token} }

// Token is the fencing token of this attempt: strictly increasing, fit to fence writes to other systems.
func (t *Task) Token() uint64 { return t.token }

// Effects collects changes that are applied exactly when the task completes, in the same log entry, or not at all. When
// they are refused the attempt fails, unless OnRefused is set. Errors of other kinds drop them. In a namespace of several
// partitions all of them are of the task's own: with its tag.
func (t *Task) Effects() *Tx {
	if t.fx == nil {
		t.fx = &Tx{codec: JSON, task: t.ID}
		if t.w != nil {
			t.fx.client, t.fx.codec = t.w.c, t.w.c.opts.codec
		}
	}
	return t.fx
}

// OnRefused is called when the effects were refused, such as by a condition that is false, while the lease is still held.
// refused names the op or condition and, in Details, what was found. f may change Effects, after a Reset for instance,
// and return nil to complete again with the same result; an error ends the attempt like one of the handler.
func (t *Task) OnRefused(f func(ctx context.Context, refused *Error) error) { t.onRefused = f }

// to moves t on. A task whose settle has left takes no slot. It needs mu.
func (t *Task) to(s stage) {
	if t.stage == settled {
		t.l.away--
	}
	if s == settled {
		t.l.away++
	}
	t.stage = s
}

func newTask(l *workerStream, a *millracev1.Assignment, now time.Time) *Task {
	t := &Task{
		ID: a.Id, Queue: a.Queue, Kind: a.Kind, Attempt: int(a.Attempt), Failures: int(a.Failures), Crashes: int(a.Crashes),
		MaxAttempts: int(a.MaxAttempts), Priority: int(a.Priority), Headers: headerMap(a.Headers), Payload: a.Payload,
		ContentType: a.ContentType, CreatedAt: time.UnixMilli(a.CreatedMs), w: l.w, l: l, token: a.Token,
		lease: max(time.Duration(a.LeaseMs)*time.Millisecond, time.Second),
	}
	t.ctx, t.cancel = context.WithCancelCause(l.w.base)
	left := time.Duration(a.LeaseLeftMs) * time.Millisecond
	t.renewAt = now.Add(max(left-t.lease*2/3, 0))
	return t
}
