package millrace

import (
	"context"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/session"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// JobOf declares one kind of task: what producers add and what a worker handles. A is the type of its arguments, R that of its
// result. Declare it once, usually in a package variable. Methods that configure it return a copy with that setting, and do not
// change the job that they are called on. A JobOf may be used by many goroutines.
type JobOf[A, R any] struct {
	settings taskSettings // what every task of this job has
	codec    Codec        // nil: the client's
}

// taskSettings is what a job says of its tasks. Zero and nil mean the queue's value. Its pointers are shared by copies and
// never written through.
type taskSettings struct {
	// kind and queue are names.
	kind, queue string
	// attempts and crashes bound how often a task may fail, and lose its lease.
	attempts   int32
	crashes    int32
	deliveries *int32 // 0: no bound
	priority   uint32
	// lease and maxRun are how long a worker may be silent, and how long an attempt may take.
	lease, maxRun *durationpb.Duration
	retry         *millracev1.Retry
	// Names of limiters.
	limiters []string
}

// Job declares a kind of task by its name, [A-Za-z0-9][A-Za-z0-9._:-]{0,127}. Its queue has the same name unless Queue
// says otherwise. []byte, string and json.RawMessage are passed as they are, other types by a codec. What has the type any is
// read by its content type: text as a string, JSON and what has the type of the codec by the codec, all else as []byte.
func Job[A, R any](name string) *JobOf[A, R] {
	return &JobOf[A, R]{settings: taskSettings{kind: name, queue: name}}
}

// Name returns the kind.
func (j *JobOf[A, R]) Name() string { return j.settings.kind }

// with returns a copy of j that change was made to.
func (j *JobOf[A, R]) with(change func(s *taskSettings)) *JobOf[A, R] {
	out := *j
	change(&out.settings)
	return &out
}

// Queue sets the queue that the tasks wait in. Default: the job's name.
func (j *JobOf[A, R]) Queue(name string) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.queue = name })
}

// Attempts sets how many failed attempts end a task as dead, 1 to 1,000; 0 means the default, which is the queue's, 5.
func (j *JobOf[A, R]) Attempts(n int) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.attempts = int32(n) })
}

// Crashes sets how many lost leases end a task as dead, 1 to 1,000; 0 means the default, which is the queue's, 10.
func (j *JobOf[A, R]) Crashes(n int) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.crashes = int32(n) })
}

// Deliveries sets how many deliveries of any outcome end a task as dead, at most 1,000,000; 0 means no bound. Default: the queue's,
// 1,000.
func (j *JobOf[A, R]) Deliveries(n int) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.deliveries = proto.Int32(int32(n)) })
}

// Lease sets how long a worker that has stopped answering keeps a task before another one gets it, 1 s to 24 h. Workers of this SDK
// renew it while the handler runs. Default: the queue's, 60 s.
func (j *JobOf[A, R]) Lease(d time.Duration) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.lease = durationpb.New(d) })
}

// MaxRun sets the longest time that one attempt may take, renewals of its lease included. Default: the queue's, none.
func (j *JobOf[A, R]) MaxRun(d time.Duration) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.maxRun = durationpb.New(d) })
}

// Priority sets which tasks of a queue are delivered first, 0 to 9; 9 is first. Default: 0.
func (j *JobOf[A, R]) Priority(n int) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.priority = uint32(n) })
}

// Retry sets how long a task waits after a failed attempt. Default: the queue's, full jitter from 5 s, doubling to 15 min.
func (j *JobOf[A, R]) Retry(p RetryPolicy) *JobOf[A, R] {
	return j.with(func(s *taskSettings) { s.retry = p.wire() })
}

// Codec sets what encodes arguments and results. Default: the client's.
func (j *JobOf[A, R]) Codec(c Codec) *JobOf[A, R] {
	out := *j
	out.codec = c
	return &out
}

// codecOr returns the job's codec, or d where it has none.
func (j *JobOf[A, R]) codecOr(d Codec) Codec {
	if j.codec != nil {
		return j.codec
	}
	return d
}

// Backoff is the shape of a retry policy; n is the number of the failure, from 1.
type Backoff uint8

// The shapes.
const (
	FullJitter  Backoff = iota // from 0 to the exponential wait
	EqualJitter                // from half of it to all of it
	Exponential                // Base * Factor^(n-1)
	Linear                     // Base * n
	Fixed                      // Base
)

// RetryPolicy says how long a failed task waits. A zero field means the queue's value.
type RetryPolicy struct {
	// Backoff is the shape of the waits.
	Backoff Backoff
	Base    time.Duration // default 5 s
	Factor  float64       // 1 to 100; default 2
	Max     time.Duration // default 15 min
}

// wire is p in the contract. A shape that is not known here counts as the last one.
func (p RetryPolicy) wire() *millracev1.Retry {
	shapes := [...]millracev1.Backoff{
		FullJitter: millracev1.Backoff_FULL_JITTER, EqualJitter: millracev1.Backoff_EQUAL_JITTER,
		Exponential: millracev1.Backoff_EXPONENTIAL, Linear: millracev1.Backoff_LINEAR, Fixed: millracev1.Backoff_FIXED,
	}
	r := &millracev1.Retry{Backoff: shapes[min(int(p.Backoff), len(shapes)-1)], Factor: p.Factor}
	if p.Base > 0 {
		r.Base = durationpb.New(p.Base)
	}
	if p.Max > 0 {
		r.Max = durationpb.New(p.Max)
	}
	return r
}

// fill makes spec a task of j, which may have no id yet.
func (j *JobOf[A, R]) fill(spec *millracev1.TaskSpec, codec Codec, args A, opts []AddOption) error {
	payload, contentType, err := encode(j.codecOr(codec), args)
	if err != nil {
		return fmt.Errorf("add %s: %w", j.settings.kind, err)
	}
	spec.Payload, spec.ContentType = payload, contentType
	set := &j.settings
	spec.Kind, spec.Queue, spec.Priority = set.kind, set.queue, set.priority
	spec.MaxAttempts, spec.MaxCrashes, spec.MaxDeliveries = set.attempts, set.crashes, set.deliveries
	spec.Lease, spec.MaxRun, spec.Retry, spec.Limiters = set.lease, set.maxRun, set.retry, set.limiters
	for _, o := range opts {
		o.task(spec)
	}
	return checkSpec(spec)
}

// checkSpec refuses what cannot be sent at all; everything else is for the server to judge.
func checkSpec(spec *millracev1.TaskSpec) error {
	for _, f := range [...]struct{ field, text string }{
		{"id", spec.Id},
		{"queue", spec.Queue},
		{"kind", spec.Kind},
		{"content_type", spec.ContentType},
		{"unique.key", spec.Unique.GetKey()},
		{"tag", spec.Tag},
		{"key", spec.Key},
		{"batch", spec.Batch},
	} {
		if !utf8.ValidString(f.text) {
			return badText(f.field)
		}
	}
	for i, h := range spec.Headers {
		if !utf8.ValidString(h.Name) || !utf8.ValidString(h.Value) {
			return badText("headers[" + strconv.Itoa(i) + "]")
		}
	}
	if err := checkLabels(spec.Labels); err != nil {
		return err
	}
	if err := checkAfter(spec.After); err != nil {
		return err
	}
	if wire.Size(spec) > session.FrameBytes {
		return tooLarge("payload", "frame_bytes", session.FrameBytes)
	}
	return nil
}

// Add creates a task and returns when it is on disk. Repeated under the same ID it returns the task that is there. With a unique
// key that is taken, the handle is of the task that holds the key.
//
// Errors: ErrAlreadyExists if the id holds other content, or the unique key is taken and UniqueReject was given; ErrTooLarge;
// ErrInvalid, with the field; ErrExhausted for a quota; ErrUnavailable. OutcomeOf says whether the task may exist all the same.
func (j *JobOf[A, R]) Add(ctx context.Context, c *Client, args A, opts ...AddOption) (*Handle[R], error) {
	k := c.calls.New()
	if err := j.fill(&k.Spec, c.opts.codec, args, opts); err != nil {
		c.calls.Free(k)
		return nil, err
	}
	k.Single()
	if f := c.calls.Place(k); f != nil {
		c.calls.Free(k)
		return nil, errorOf(f)
	}
	line := ledger.Line{Op: "create", ID: k.Spec.Id, Queue: k.Spec.Queue, Key: k.Spec.Unique.GetKey(), Invoke: c.hub.Ledger.Now()}
	ended, f := c.calls.Do(ctx, k)
	line.ID = k.Spec.Id // placing fills in what it left open
	if f != nil {
		if ended {
			c.calls.Free(k)
		}
		f.Field = trimItem(f.Field)
		e := errorOf(f)
		c.record(line, nil, e)
		return nil, e
	}
	h := newHandle(j, c, k.Created[0])
	line.Answer, line.Replayed = h.ID, h.Replayed
	c.record(line, k.At, nil)
	c.calls.Free(k)
	return h, nil
}

// AddTx creates a task as part of tx. The handle has its ID at once. With a unique key that is taken, Client.Commit sets the
// handle's ID to that of the task which holds the key; the effects of a task do not.
//
// In a namespace of several partitions a task without tag and unique key goes to the partition of the tx: that of its fence or of
// its handler's task, else that of its first op. Arguments that cannot be encoded fail the whole tx.
func (j *JobOf[A, R]) AddTx(tx *Tx, args A, opts ...AddOption) *Handle[R] {
	spec := &millracev1.TaskSpec{}
	h := &Handle[R]{job: j.Name(), codec: j.codecOr(tx.codec), c: tx.client}
	if err := j.fill(spec, tx.codec, args, opts); err != nil {
		tx.fail(err)
		return h
	}
	if err := tx.place(spec); err != nil {
		tx.fail(err)
		return h
	}
	h.ID = spec.Id
	tx.handles = append(tx.handles, txHandle{len(tx.ops), &h.ID})
	tx.ops = append(tx.ops, &millracev1.Op{Op: &millracev1.Op_TaskCreate{TaskCreate: spec}})
	return h
}
