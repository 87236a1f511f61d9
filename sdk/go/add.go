package millrace

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/session"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// AddOption changes one task.
type AddOption interface {
	task(spec *millracev1.TaskSpec)
}

// addFunc is an AddOption that fills in the message of a task.
type addFunc func(spec *millracev1.TaskSpec)

func (f addFunc) task(spec *millracev1.TaskSpec) { f(spec) }

// Each gives every task of AddMany and AddAll options of its own: those that options returns for its place in args, from 0. Add has one
// task, at place 0.
func Each(options func(i int) []AddOption) AddOption { return each(options) }

// each is the option of Each.
type each func(i int) []AddOption

func (e each) task(spec *millracev1.TaskSpec) {
	for _, o := range e(0) {
		o.task(spec)
	}
}

// optionsAt are options with those of the task at place i in the place of each Each.
func optionsAt(i int, opts []AddOption) []AddOption {
	if !slices.ContainsFunc(opts, func(o AddOption) bool { _, own := o.(each); return own }) {
		return opts
	}
	var out []AddOption
	for _, o := range opts {
		if e, own := o.(each); own {
			out = append(out, e(i)...)
		} else {
			out = append(out, o)
		}
	}
	return out
}

// ID sets the task's id: 26 characters as NewID makes them. The same id with other content is ErrAlreadyExists.
//
// In a namespace of several partitions the id names one. An id of the function NewID leaves it open: Add fills it in, and the
// handle has the id that results. An id that names another partition than the tag, the unique key or the id's own random bits is
// ErrPartition.
func ID(id string) AddOption { return addFunc(func(s *millracev1.TaskSpec) { s.Id = id }) }

// Tag sets the text that decides the task's partition, at most 128 B. In a namespace of several partitions, tasks and keys with the
// same tag share a partition, so that they can change together. A key's tag is the text in its first pair of braces.
func Tag(tag string) AddOption { return addFunc(func(s *millracev1.TaskSpec) { s.Tag = tag }) }

// In makes the task ready after d, at most 10 years. It replaces At.
func In(d time.Duration) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { s.Delay, s.RunAt = durationpb.New(d), nil })
}

// At makes the task ready at t, or at once if t is past. It replaces In.
func At(t time.Time) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { s.RunAt, s.Delay = timestamppb.New(t), nil })
}

// Priority sets the priority of this task in place of its job's, 0 to 9; 9 is delivered first.
func Priority(n int) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { s.Priority = uint32(n) })
}

// UniqueKey allows one task of the queue per key, at most 256 B, for the time ttl: a second Add returns the first task. ttl is at
// most 30 days; 0 means 24 h.
func UniqueKey(key string, ttl time.Duration) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) {
		u := unique(s)
		u.Key = key
		if ttl != 0 {
			u.Ttl = durationpb.New(ttl)
		}
	})
}

// UniqueReject makes a second Add under the unique key fail with ErrAlreadyExists.
func UniqueReject() AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { unique(s).OnConflict = millracev1.Unique_REJECT })
}

// UniqueUntil says what frees the unique key: UntilStart the first delivery of the task, UntilTerminal its end. At the latest it is free
// when the time of UniqueKey is over.
func UniqueUntil(u Until) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { unique(s).Until = millracev1.Unique_Until(u) })
}

// Until is what frees a unique key.
type Until int

// What frees a unique key.
const (
	UntilTTL      Until = Until(millracev1.Unique_TTL)      // the time of UniqueKey alone
	UntilStart    Until = Until(millracev1.Unique_START)    // the task is first given to a worker, or ends before that
	UntilTerminal Until = Until(millracev1.Unique_TERMINAL) // the task is completed, dead or cancelled
)

// UniqueReplace makes a second Add under the unique key replace what the task is that the first one made, as long as it has not started:
// payload, times, priority, labels and settings. With In each Add puts the task off (debounce). Handle.Replaced tells of it; a task that
// has started is returned.
func UniqueReplace() AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { unique(s).OnConflict = millracev1.Unique_REPLACE })
}

// unique returns the unique key of a task, made when it has none yet.
func unique(s *millracev1.TaskSpec) *millracev1.Unique {
	if s.Unique == nil {
		s.Unique = &millracev1.Unique{}
	}
	return s.Unique
}

// Header adds a header that the worker sees in Task.Headers; at most 32 headers, together 4 KiB.
func Header(name, value string) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) {
		s.Headers = append(s.Headers, &millracev1.Header{Name: name, Value: value})
	})
}

// ContentType says what a payload is whose type is bytes or text, such as image/png; at most 128 B. Default: text/plain for a
// string, application/octet-stream for bytes, and otherwise what the codec says.
func ContentType(name string) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { s.ContentType = name })
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

// AddMany creates one task per element of args, each on its own: some may be refused. opts apply to all of them; Each gives each
// its own. It returns one handle per element, nil where there is an error, and then a *BatchError.
func (j *JobOf[A, R]) AddMany(ctx context.Context, c *Client, args []A, opts ...AddOption) ([]*Handle[R], error) {
	return j.addMany(ctx, c, args, false, opts)
}

// AddAll creates one task per element of args, at most 512, all or none. In a namespace of several partitions all are of
// one: that of the tag, or of the unique keys or ids, which must agree, else it is ErrPartition.
func (j *JobOf[A, R]) AddAll(ctx context.Context, c *Client, args []A, opts ...AddOption) ([]*Handle[R], error) {
	if len(args) > wire.FrameItems {
		return nil, tooLarge("tasks", "frame_items", wire.FrameItems)
	}
	return j.addMany(ctx, c, args, true, opts)
}

// addMany is AddMany, and with all AddAll.
func (j *JobOf[A, R]) addMany(ctx context.Context, c *Client, args []A, all bool, opts []AddOption) ([]*Handle[R], error) {
	specs := make([]*millracev1.TaskSpec, len(args))
	for i, a := range args {
		specs[i] = &millracev1.TaskSpec{}
		if err := j.fill(specs[i], c.opts.codec, a, optionsAt(i, opts)); err != nil {
			return nil, err
		}
	}
	b := &batch[A, R]{
		j: j, c: c, all: all, specs: specs, invoke: c.hub.Ledger.Now(),
		handles: make([]*Handle[R], len(args)), errs: make([]error, len(args)),
	}
	if len(specs) > 0 {
		ctx, cancel := c.bounded(ctx) // all frames share it
		defer cancel()
		if n, f := c.calls.Learn(ctx); f != nil {
			b.fail(errorOf(f), 0, len(specs))
		} else {
			b.addEach(ctx, n)
		}
	}
	first := slices.IndexFunc(b.errs, func(err error) bool { return err != nil })
	switch {
	case first < 0:
		return b.handles, nil
	case all:
		return nil, b.errs[first]
	default:
		return b.handles, &BatchError{Errors: b.errs}
	}
}

// batch is the tasks of one call that go one way, to one partition.
type batch[A, R any] struct {
	// j and c are what the caller named; all asks for all tasks or none.
	j   *JobOf[A, R]
	c   *Client
	all bool
	// place is the partition of specs; invoke is when the call began, by the clock of the ledger.
	place  int
	specs  []*millracev1.TaskSpec
	index  []int // of specs in the caller's batch; nil: as they stand
	invoke int64
	// given are the ids that specs had before they were placed; nil: there is nothing to choose.
	given []string
	// moved has the partitions of specs that were placed again, by index, and renamed their new ids, by the ones they had before.
	moved   map[int]int
	renamed map[string]string

	handles []*Handle[R] // of the caller's batch
	errs    []error
}

// at is the place in the caller's batch of the task i of this one.
func (b *batch[A, R]) at(i int) int {
	if b.index == nil {
		return i
	}
	return b.index[i]
}

// addEach sends each task to its partition, all partitions at once.
func (b *batch[A, R]) addEach(ctx context.Context, partitions int) {
	parts := b.split(partitions)
	if len(parts) == 1 {
		parts[0].addAll(ctx)
		return
	}
	var ended sync.WaitGroup
	for _, part := range parts {
		ended.Go(func() { part.addAll(ctx) })
	}
	ended.Wait()
}

// runLength is how many tasks of a batch that nothing places go to one partition before the next one's turn: frames are
// then fewer and fuller.
const runLength = 32

// split names the tasks and divides them by partition. Those that cannot be placed are refused.
func (b *batch[A, R]) split(partitions int) []*batch[A, R] {
	if partitions <= 1 {
		for i, s := range b.specs {
			b.chain(i)
			_, _ = place.Space{Partitions: partitions}.Task(s, 0) // there is nothing to contradict
		}
		return []*batch[A, R]{b}
	}
	if b.all {
		return b.together(partitions)
	}
	var parts []*batch[A, R]
	by := map[int]*batch[A, R]{}
	turn, free := b.c.hub.Next(partitions), 0
	for i, s := range b.specs {
		if s.Id == "" && s.Tag == "" && s.Key == "" && s.Unique.GetKey() == "" {
			free++
		}
		b.chain(i)
		given := s.Id
		home, f := b.c.hub.Space().Task(s, (turn+max(free-1, 0)/runLength)%partitions)
		if f != nil {
			f.Field = "tasks[" + strconv.Itoa(i) + "]." + f.Field
			b.fail(errorOf(f), i, i+1)
			continue
		}
		p := by[home]
		if p == nil {
			p = &batch[A, R]{j: b.j, c: b.c, place: home, index: []int{}, invoke: b.invoke, handles: b.handles, errs: b.errs}
			by[home] = p
			parts = append(parts, p)
		}
		p.specs, p.index, p.given = append(p.specs, s), append(p.index, i), append(p.given, given)
	}
	return parts
}

// chain has task i wait for the one before it, where AfterPrevious asks for that. That one has its id by then.
func (b *batch[A, R]) chain(i int) {
	s := b.specs[i]
	for n, a := range s.After {
		switch {
		case a.Id != previous:
		case i == 0:
			s.After = slices.Delete(s.After, n, n+1)
			return
		default:
			a.Id = b.specs[i-1].Id
		}
	}
}

// together places all tasks in one partition, or refuses them.
func (b *batch[A, R]) together(partitions int) []*batch[A, R] {
	home, space := -1, b.c.hub.Space()
	for _, s := range b.specs {
		b.given = append(b.given, s.Id)
	}
	for _, s := range b.specs {
		if home = space.Create(s); home >= 0 {
			break
		}
	}
	if home < 0 {
		home = b.c.hub.Next(partitions)
	}
	var strays []string
	for i, s := range b.specs {
		b.chain(i)
		if other, f := space.Task(s, home); f != nil || other != home {
			strays = append(strays, "tasks["+strconv.Itoa(i)+"] of partition "+strconv.Itoa(other))
		}
	}
	if len(strays) > 0 {
		b.fail(&Error{
			Code: CodeWrongPartition, Op: OpNone, Outcome: Refused,
			Message: "outside the batch's partition " + strconv.Itoa(home) + ": " + strings.Join(strays, ", "),
		}, 0, len(b.specs))
		return nil
	}
	b.place = home
	return []*batch[A, R]{b}
}

// addAll sends the tasks, frame by frame.
func (b *batch[A, R]) addAll(ctx context.Context) {
	for from := 0; from < len(b.specs); {
		from = b.add(ctx, from)
	}
}

// add sends the tasks from index from that fit one frame, and returns the index after them.
func (b *batch[A, R]) add(ctx context.Context, from int) int {
	to, bytes := from, 0
	for to < len(b.specs) && to-from < wire.FrameItems {
		n := wire.Size(b.specs[to])
		if !b.all && to > from && bytes+n > session.FrameAim {
			break
		}
		bytes += n
		to++
	}
	if bytes > session.FrameBytes && b.all {
		b.fail(tooLarge("tasks", "frame_bytes", session.FrameBytes), from, to)
		return to
	}
	k := b.c.calls.New()
	k.Specs, k.Bytes, k.Atomic = b.specs[from:to], bytes, b.all
	k.PutIn(b.partition(from))
	ended, f := b.c.calls.Do(ctx, k)
	if f != nil && ended && b.all && !k.Unsure && b.replace(0, len(b.specs), f) {
		b.c.calls.Free(k)
		return b.add(ctx, from)
	}
	if f != nil {
		if to-from == 1 {
			f.Field = reindex(f.Field, b.at(from))
		}
		b.fail(errorOf(f), from, to)
	} else {
		for i, r := range k.Created {
			b.result(ctx, from+i, r, k.At)
		}
	}
	if ended {
		b.c.calls.Free(k)
	}
	return to
}

// replace places the tasks from index from up to to again, which were refused because of their partition. It reports whether they belong
// to another one by what is known now; else they stay as they are. A task is placed again once.
func (b *batch[A, R]) replace(from, to int, f *fault.Fault) bool {
	if _, again := b.moved[from]; again || b.given == nil || !b.c.hub.Repin(f, b.specs[from].Queue) {
		return false
	}
	space, had := b.c.hub.Space(), make([]string, 0, to-from)
	if b.moved == nil {
		b.moved, b.renamed = map[int]int{}, map[string]string{}
	}
	for i := from; i < to; i++ {
		s := b.specs[i]
		had = append(had, s.Id)
		s.Id = b.given[i]
		for _, a := range s.After { // of the same chain
			if id, ok := b.renamed[a.Id]; ok {
				a.Id = id
			}
		}
		home, f := space.Task(s, b.c.hub.Next(space.Partitions))
		if f != nil || home == b.place || i > from && home != b.moved[from] {
			for j, id := range had {
				b.specs[from+j].Id = id
			}
			return false
		}
		b.moved[i], b.renamed[had[i-from]] = home, s.Id
	}
	return true
}

// partition is where task i goes.
func (b *batch[A, R]) partition(i int) int {
	if home, again := b.moved[i]; again {
		return home
	}
	return b.place
}

// result takes the answer for one task; one that may be repeated is tried again alone.
func (b *batch[A, R]) result(ctx context.Context, i int, r *millracev1.CreateResult, at *millracev1.At) {
	f := fault.FromWire(r.Error)
	elsewhere := f != nil && !b.all && b.replace(i, i+1, f)
	if f != nil && !b.all && (elsewhere || f.Patience() > 0) {
		k := b.c.calls.New()
		k.Specs, k.Bytes, k.Unsure = b.specs[i:i+1], wire.Size(b.specs[i]), f.Unknown
		k.PutIn(b.partition(i))
		ended, again := b.c.calls.Do(ctx, k)
		if again == nil {
			r, at = k.Created[0], k.At
		}
		f = again
		if ended {
			b.c.calls.Free(k)
		}
	}
	if f != nil {
		f.Field = reindex(f.Field, b.at(i))
		e := errorOf(f)
		b.errs[b.at(i)] = e
		b.c.record(b.line(i), nil, e)
		return
	}
	h := newHandle(b.j, b.c, r)
	b.handles[b.at(i)] = h
	line := b.line(i)
	line.Answer, line.Replayed = h.ID, h.Replayed
	b.c.record(line, at, nil)
}

// fail ends the tasks from index from up to, without it, to with the same error.
func (b *batch[A, R]) fail(e *Error, from, to int) {
	for i := from; i < to; i++ {
		b.errs[b.at(i)] = e
		b.c.record(b.line(i), nil, e)
	}
}

// line begins the ledger's line about one task.
func (b *batch[A, R]) line(i int) ledger.Line {
	s := b.specs[i]
	return ledger.Line{Op: "create", ID: s.Id, Queue: s.Queue, Key: s.Unique.GetKey(), Invoke: b.invoke}
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
