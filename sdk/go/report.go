package millrace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Bounds of what one report carries. The server has the same.
const (
	reportLines     = 500
	reportBytes     = 64 << 10
	lineBytes       = 4 << 10
	messageBytes    = 256
	checkpointBytes = 64 << 10
	reportEvery     = time.Second
	reportPatient   = 30 * time.Second // for one report in the background
	reportLast      = 5 * time.Second  // for the last one of an attempt, which its settle waits for
)

// Checkpoint is what the attempts before saved last with SaveCheckpoint, or this one did; nil: nothing. It must not be changed.
func (t *Task) Checkpoint() []byte {
	if r := t.told.Load(); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
	}
	return t.checkpoint
}

// SaveCheckpoint saves how far the work is, at most 64 KiB, for the attempts after this one: each gets the last one by Checkpoint. An
// empty one removes it, and so does the completion of the task. It returns when the checkpoint is durable; more often than once a
// second it waits. An error that unwraps to ErrLeaseLost says that the task is no longer this attempt's.
func (t *Task) SaveCheckpoint(ctx context.Context, b []byte) error {
	if len(b) > checkpointBytes { // before it takes along the lines of its report
		return tooLarge("checkpoint", "checkpoint", checkpointBytes)
	}
	b = slices.Clone(b)
	if b == nil {
		b = []byte{}
	}
	if t.w == nil { // in a test of a handler
		t.checkpoint = b
		return nil
	}
	r := t.reports()
	r.mu.Lock()
	r.next.checkpoint = b
	r.mu.Unlock()
	for {
		if err := r.send(ctx); err != nil {
			return err
		}
		// Another goroutine may have had a report under way, from before.
		r.mu.Lock()
		done := r.unsent == nil && r.next.checkpoint == nil
		r.mu.Unlock()
		if done {
			return nil
		}
	}
}

// Progress tells how far the work is: percent from 0 to 100, and up to 256 B of text. It does not wait; of several within a second the
// last one is told. TaskInfo.Progress shows it while this attempt is the task's last one.
func (t *Task) Progress(percent int, message string) {
	if t.w == nil {
		return
	}
	r := t.reports()
	r.mu.Lock()
	r.next.progress = &millracev1.Progress{Percent: uint32(min(max(percent, 0), 100)), Message: clean(message, messageBytes)}
	r.mu.Unlock()
	r.start()
}

// Log adds a line to the task's log, of which about the last 1,000 lines or 256 KiB are kept over all attempts. It does not wait; lines
// are sent once a second. A line over 4 KiB is cut. Of more than 500 lines or 64 KiB within a second the first ones are dropped, and
// counted.
func (t *Task) Log(line string) {
	if t.w == nil {
		return
	}
	r := t.reports()
	r.mu.Lock()
	r.next.add(clean(strings.TrimRight(line, "\r\n"), lineBytes))
	r.mu.Unlock()
	r.start()
}

// clean makes text of at most most bytes that the contract allows: valid, and without NUL.
func clean(s string, most int) string {
	return wire.Cut(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\ufffd"), "\ufffd"), most)
}

// saying is what a report is to carry.
type saying struct {
	progress   *millracev1.Progress
	lines      []string
	bytes      int // of the lines
	dropped    uint64
	checkpoint []byte // nil: as it was
}

// add adds a line, and drops the first ones beyond what a report carries.
func (s *saying) add(line string) {
	s.lines = append(s.lines, line)
	s.bytes += len(line)
	drop := 0
	for len(s.lines)-drop > reportLines || s.bytes > reportBytes {
		s.bytes -= len(s.lines[drop])
		drop++
	}
	if drop > 0 {
		s.dropped += uint64(drop)
		s.lines = slices.Delete(s.lines, 0, drop)
	}
}

// empty reports whether there is nothing to say.
func (s *saying) empty() bool {
	return s.progress == nil && len(s.lines) == 0 && s.dropped == 0 && s.checkpoint == nil
}

// reporter sends what a handler tells of its work.
type reporter struct {
	t *Task
	// sending is held while a report is under way: there is one at a time, in the order of their numbers.
	sending chan struct{}
	wake    chan struct{} // has room for one
	done    chan struct{} // closed when the attempt ends
	begin   sync.Once     // starts the goroutine that sends
	end     sync.Once     // closes done

	mu     sync.Mutex // guards what follows
	next   saying
	number uint64
	// unsent is a report whose outcome is not known: it goes again, under its number.
	unsent *millracev1.ReportRequest
	ended  error // no more is sent, for this reason
}

// reports returns what sends the reports of t.
func (t *Task) reports() *reporter {
	if r := t.told.Load(); r != nil {
		return r
	}
	t.told.CompareAndSwap(nil, &reporter{t: t, sending: make(chan struct{}, 1), wake: make(chan struct{}, 1), done: make(chan struct{})})
	return t.told.Load()
}

// start makes sure that what waits is sent in the background.
func (r *reporter) start() {
	r.begin.Do(func() { go r.run() })
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run sends what waits, once a second at most, until the attempt ends.
func (r *reporter) run() {
	ctx := r.t.at.Context()
	for {
		select {
		case <-r.wake:
		case <-r.done:
			return
		case <-ctx.Done():
			return
		}
		one, cancel := context.WithTimeout(ctx, reportPatient)
		err := r.send(one)
		cancel()
		if err != nil && ctx.Err() == nil && !r.over() {
			r.start() // what is unsent goes again
		}
		select {
		case <-time.After(reportEvery):
		case <-r.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// over reports whether nothing more is sent.
func (r *reporter) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended != nil
}

// take makes a report of what waits; nil: there is nothing.
func (r *reporter) take() (*millracev1.ReportRequest, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil || r.unsent != nil {
		return r.unsent, r.ended
	}
	if r.next.empty() {
		return nil, nil
	}
	s := r.next
	r.next = saying{}
	r.number++
	r.unsent = &millracev1.ReportRequest{
		Id: r.t.ID, Token: r.t.Token(), Number: r.number, Progress: s.progress, Lines: s.lines, LinesDropped: s.dropped, Checkpoint: s.checkpoint,
	}
	return r.unsent, nil
}

// send sends one report, if there is something to say. What the server refuses for good is not sent again; its lines are lost.
func (r *reporter) send(ctx context.Context) error {
	select {
	case r.sending <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.sending }()
	req, err := r.take()
	if req == nil || err != nil {
		return err
	}
	c := r.t.w.c
	err = c.repeat(ctx, place.Of(req.Id, c.hub.Partitions()), true, func(ctx context.Context) error { // for as long as the attempt
		_, err := c.tasks.Report(ctx, req)
		return err
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	switch out := OutcomeOf(err); {
	case err == nil:
		if req.Checkpoint != nil {
			r.t.checkpoint = req.Checkpoint
		}
		r.unsent = nil
	case out == Refused && ctx.Err() == nil:
		r.unsent, r.ended = nil, err
		if !errors.Is(err, ErrLeaseLost) {
			c.opts.logger.Warn("the server takes no reports of a task", "task", req.Id, "error", err)
		}
	}
	return err
}

// finish sends what waits before the attempt is settled, for a while, and ends the reporter.
func (t *Task) finish() {
	r := t.told.Load()
	if r == nil {
		return
	}
	defer r.end.Do(func() { close(r.done) })
	// A task whose cancel was asked for tells its last lines too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.at.Context()), reportLast)
	defer cancel()
	for !errors.Is(context.Cause(t.at.Context()), ErrLeaseLost) {
		r.mu.Lock()
		more := r.ended == nil && (r.unsent != nil || !r.next.empty())
		r.mu.Unlock()
		if !more || r.send(ctx) != nil {
			return
		}
	}
}

// Progress is how far the worker of a task says that it is.
type Progress struct {
	Percent int // 0 to 100
	Message string
	At      time.Time // when it said so
}

// progressOf reads progress of the contract; nil stays nil.
func progressOf(p *millracev1.Progress) *Progress {
	if p == nil {
		return nil
	}
	return &Progress{Percent: int(p.Percent), Message: p.Message, At: timeOf(p.At)}
}

// LogLine is a line of a task's log.
type LogLine struct {
	Number  uint64 // among all lines of the task, from 1 on
	Attempt int
	At      time.Time
	Text    string
}

// LogQuery asks for a part of a task's log.
type LogQuery struct {
	Attempt int    // 0: of all attempts
	After   uint64 // only lines with a number above this one
	Limit   int    // 1 to 1,000; default 100
}

// TaskLog is a part of a task's log, oldest line first.
type TaskLog struct {
	Lines   []LogLine
	Dropped uint64 // lines of all attempts that are not kept, or that workers dropped
	Last    uint64 // LogQuery.After of the next part
	More    bool   // there are lines after it
}

// Logs reads a part of the log of a task: what its handlers told with Task.Log. A task that is not there is ErrNotFound.
func (c *Client) Logs(ctx context.Context, id string, q LogQuery) (*TaskLog, error) {
	req := &millracev1.LogsRequest{Id: id, Attempt: uint32(max(q.Attempt, 0)), After: q.After, Limit: uint32(max(q.Limit, 0))}
	var resp *millracev1.LogsResponse
	if err := c.read(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.tasks.Logs(ctx, req)
		return err
	}); err != nil {
		return nil, err
	}
	out := &TaskLog{Lines: make([]LogLine, len(resp.GetLines())), Dropped: resp.GetDropped(), Last: resp.GetLast(), More: resp.GetMore()}
	for i, l := range resp.GetLines() {
		out.Lines[i] = LogLine{Number: l.GetNumber(), Attempt: int(l.GetAttempt()), At: timeOf(l.GetAt()), Text: l.GetLine()}
	}
	return out, nil
}
