package millrace

import (
	"context"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// QueuePaused says why a queue gives out no tasks.
type QueuePaused struct {
	// Since is when it was paused, by the cluster's clock.
	Since  time.Time
	Until  time.Time // zero: until it is resumed
	By     string    // name of the token
	Reason string    // empty: none was given
}

// queuePaused reads a pause of the contract; nil stays nil.
func queuePaused(p *millracev1.QueuePaused) *QueuePaused {
	if p == nil {
		return nil
	}
	return &QueuePaused{Since: timeOf(p.Since), Until: timeOf(p.Until), By: p.By, Reason: p.Reason}
}

// pauseSettings are what options of a pause set.
type pauseSettings struct {
	until  *timestamppb.Timestamp // nil: until it is resumed
	reason string
}

// PauseOption changes how a queue is paused.
type PauseOption interface{ pause(s *pauseSettings) }

// pauseFunc is a PauseOption that sets fields of pauseSettings.
type pauseFunc func(s *pauseSettings)

func (f pauseFunc) pause(s *pauseSettings) { f(s) }

// PauseUntil lets the queue go on by itself at t. Default: when it is resumed.
func PauseUntil(t time.Time) PauseOption {
	return pauseFunc(func(s *pauseSettings) { s.until = timestamppb.New(t) })
}

// PauseReason says why, at most 256 B. Readers see it in QueueStats.Paused.
func PauseReason(text string) PauseOption {
	return pauseFunc(func(s *pauseSettings) { s.reason = text })
}

// pauseSettingsOf applies options.
func pauseSettingsOf(opts []PauseOption) (s pauseSettings, err error) {
	for _, o := range opts {
		o.pause(&s)
	}
	if !utf8.ValidString(s.reason) {
		return s, badText("reason")
	}
	return s, nil
}

// Pause stops giving out the queue's tasks (needs the scope task:operate or admin). Tasks that run go on, and delays come due. It
// reports whether the queue was paused so before. A queue that is not there is ErrNotFound.
func (q Queue) Pause(ctx context.Context, opts ...PauseOption) (replayed bool, err error) {
	s, err := pauseSettingsOf(opts)
	if err != nil {
		return false, err
	}
	req := &millracev1.PauseQueueRequest{Queue: q.name, Until: s.until, Reason: s.reason}
	var resp *millracev1.PauseQueueResponse
	err = q.c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.Pause(ctx, req)
		return err
	})
	return resp.GetReplayed(), err
}

// Resume lets a paused queue go on (needs the scope task:operate or admin). It reports whether the queue was not paused. A queue that
// is not there is ErrNotFound.
func (q Queue) Resume(ctx context.Context) (replayed bool, err error) {
	req := &millracev1.ResumeQueueRequest{Queue: q.name}
	var resp *millracev1.ResumeQueueResponse
	err = q.c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.Resume(ctx, req)
		return err
	})
	return resp.GetReplayed(), err
}

// PauseQueue pauses a queue in the commit's partition, as Queue.Pause does in all of them.
func (tx *Tx) PauseQueue(name string, opts ...PauseOption) {
	s, err := pauseSettingsOf(opts)
	if err != nil {
		tx.fail(err)
		return
	}
	tx.queuePause(&millracev1.QueuePause{Queue: name, Until: s.until, Reason: s.reason})
}

// ResumeQueue lets a queue go on in the commit's partition, as Queue.Resume does in all of them.
func (tx *Tx) ResumeQueue(name string) {
	tx.queuePause(&millracev1.QueuePause{Queue: name, Resume: true})
}

// queuePause adds a pause, or the end of one.
func (tx *Tx) queuePause(op *millracev1.QueuePause) {
	if !utf8.ValidString(op.Queue) {
		tx.fail(badText("queue"))
		return
	}
	tx.ops = append(tx.ops, &millracev1.Op{Op: &millracev1.Op_QueuePause{QueuePause: op}})
}
