package millrace

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// AddOption changes one task.
type AddOption func(spec *millracev1.TaskSpec)

// ID names the task: 26 characters as NewID makes them. The same id with other content is ErrAlreadyExists.
func ID(id string) AddOption { return func(s *millracev1.TaskSpec) { s.Id = id } }

// In makes the task ready after d, at most 10 years.
func In(d time.Duration) AddOption {
	return func(s *millracev1.TaskSpec) { s.Delay, s.RunAt = durationpb.New(d), nil }
}

// At makes the task ready at t; a past t is now.
func At(t time.Time) AddOption {
	return func(s *millracev1.TaskSpec) { s.RunAt, s.Delay = timestamppb.New(t), nil }
}

// Priority is this task's instead of its job's.
func Priority(n int) AddOption { return func(s *millracev1.TaskSpec) { s.Priority = uint32(n) } }

// UniqueKey allows one task of the queue per key, at most 256 B, for ttl: a second Add returns the first task. 0 means
// 24 h, at most 30 days.
func UniqueKey(key string, ttl time.Duration) AddOption {
	return func(s *millracev1.TaskSpec) {
		u := unique(s)
		u.Key = key
		if ttl != 0 {
			u.Ttl = durationpb.New(ttl)
		}
	}
}

// UniqueReject makes a second Add under the unique key fail with ErrAlreadyExists.
func UniqueReject() AddOption {
	return func(s *millracev1.TaskSpec) { unique(s).OnConflict = millracev1.Unique_REJECT }
}

func unique(s *millracev1.TaskSpec) *millracev1.Unique {
	if s.Unique == nil {
		s.Unique = &millracev1.Unique{}
	}
	return s.Unique
}

// Header adds a header, which reaches the worker; at most 32, together 4 KiB.
func Header(name, value string) AddOption {
	return func(s *millracev1.TaskSpec) {
		s.Headers = append(s.Headers, &millracev1.Header{Name: name, Value: value})
	}
}

// BatchError says which tasks of a batch were not added.
type BatchError struct {
	Errors []error // one per task, nil for those that were added
}

// Error counts the failures and shows the first.
func (e *BatchError) Error() string {
	n, first := 0, -1
	for i, err := range e.Errors {
		if err != nil {
			if first < 0 {
				first = i
			}
			n++
		}
	}
	return fmt.Sprintf("%d of %d tasks were not added; the first, %d: %v", n, len(e.Errors), first, e.Errors[first])
}

// Unwrap returns the errors of the tasks that were not added.
func (e *BatchError) Unwrap() []error {
	var out []error
	for _, err := range e.Errors {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// AddMany creates one task per element of args, each on its own: some may be refused. opts apply to all of them. It
// returns one handle per element, nil where there is an error, and then a *BatchError.
func (j *JobOf[A, R]) AddMany(ctx context.Context, c *Client, args []A, opts ...AddOption) ([]*Handle[R], error) {
	return j.addMany(ctx, c, args, false, opts)
}

// AddAll creates one task per element of args, at most 512, all or none.
func (j *JobOf[A, R]) AddAll(ctx context.Context, c *Client, args []A, opts ...AddOption) ([]*Handle[R], error) {
	if len(args) > frameItems {
		return nil, tooLarge("tasks", "frame_items", frameItems)
	}
	return j.addMany(ctx, c, args, true, opts)
}

func (j *JobOf[A, R]) addMany(ctx context.Context, c *Client, args []A, all bool, opts []AddOption) ([]*Handle[R], error) {
	specs := make([]*millracev1.TaskSpec, len(args))
	for i, a := range args {
		specs[i] = &millracev1.TaskSpec{}
		if err := j.fill(specs[i], c.opts.codec, a, opts); err != nil {
			return nil, err
		}
	}
	b := &batch[A, R]{
		j: j, c: c, all: all, specs: specs, invoke: c.ledger.now(),
		handles: make([]*Handle[R], len(args)), errs: make([]error, len(args)),
	}
	for from := 0; from < len(specs); {
		from = b.add(ctx, from)
	}
	switch {
	case !b.failed:
		return b.handles, nil
	case all:
		return nil, b.errs[0]
	default:
		return b.handles, &BatchError{Errors: b.errs}
	}
}

type batch[A, R any] struct {
	j       *JobOf[A, R]
	c       *Client
	all     bool
	specs   []*millracev1.TaskSpec
	invoke  int64
	handles []*Handle[R]
	errs    []error
	failed  bool
}

// add sends the tasks from index from that fit one frame, and returns the index after them.
func (b *batch[A, R]) add(ctx context.Context, from int) int {
	to, bytes := from, 0
	for to < len(b.specs) && to-from < frameItems {
		n := size(b.specs[to])
		if !b.all && to > from && bytes+n > frameAim {
			break
		}
		bytes += n
		to++
	}
	if bytes > frameBytes && b.all {
		b.fail(from, to, tooLarge("tasks", "frame_bytes", frameBytes))
		return to
	}
	k := b.c.prod.newCall()
	k.specs, k.bytes, k.atomic = b.specs[from:to], bytes, b.all
	ended, e := b.c.prod.do(ctx, k)
	if e != nil {
		if to-from == 1 {
			e.Field = reindex(e.Field, from)
		}
		b.fail(from, to, e)
	} else {
		for i, r := range k.created {
			b.result(ctx, from+i, r, k.at)
		}
	}
	if ended {
		b.c.prod.free(k)
	}
	return to
}

// result takes the answer for one task; one that may be repeated is tried again alone.
func (b *batch[A, R]) result(ctx context.Context, i int, r *millracev1.CreateResult, at *millracev1.At) {
	e := fromWire(r.Error)
	if e != nil && e.patience() > 0 && !b.all {
		k := b.c.prod.newCall()
		k.specs, k.bytes, k.unsure = b.specs[i:i+1], size(b.specs[i]), e.Outcome == Unknown
		ended, again := b.c.prod.do(ctx, k)
		if again == nil {
			r, at = k.created[0], k.at
		}
		e = again
		if ended {
			b.c.prod.free(k)
		}
	}
	if e != nil {
		e.Field = reindex(e.Field, i)
		b.failed, b.errs[i] = true, e
		b.c.ledger.write(b.line(i), nil, e)
		return
	}
	b.handles[i] = newHandle(b.j, b.c, r)
	line := b.line(i)
	line.Answer, line.Replayed = b.handles[i].ID, b.handles[i].Replayed
	b.c.ledger.write(line, at, nil)
}

func (b *batch[A, R]) fail(from, to int, e *Error) {
	b.failed = true
	for i := from; i < to; i++ {
		b.errs[i] = e
		b.c.ledger.write(b.line(i), nil, e)
	}
}

func (b *batch[A, R]) line(i int) ledgerLine {
	s := b.specs[i]
	return ledgerLine{Op: "create", ID: s.Id, Queue: s.Queue, Key: s.Unique.GetKey(), Invoke: b.invoke}
}

// trimItem drops the index of a gathered frame from a field, which means nothing to the caller of one item.
func trimItem(field string) string {
	if strings.HasPrefix(field, "tasks[") || strings.HasPrefix(field, "items[") {
		if _, rest, ok := strings.Cut(field, "]"); ok {
			return strings.TrimPrefix(rest, ".")
		}
	}
	return field
}

// reindex gives a field the index of the caller's own batch.
func reindex(field string, i int) string {
	rest := trimItem(field)
	if rest == field {
		return field
	}
	if rest != "" {
		rest = "." + rest
	}
	return "tasks[" + strconv.Itoa(i) + "]" + rest
}
