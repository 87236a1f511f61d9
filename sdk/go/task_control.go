package millrace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/session"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// CancelAsked says who asked for the cancel of a task.
type CancelAsked struct {
	// At is when it was asked for, by the cluster's clock.
	At     time.Time
	By     string // name of the token
	Reason string // empty: none was given
	Force  bool   // the worker was not waited for
	// Until is when the lease of a running task ends at the latest; zero for a task that does not run.
	Until time.Time
}

// cancelAsked reads a cancel of the contract; nil stays nil.
func cancelAsked(c *millracev1.CancelAsked) *CancelAsked {
	if c == nil {
		return nil
	}
	return &CancelAsked{At: timeOf(c.At), By: c.By, Reason: c.Reason, Force: c.Force, Until: timeOf(c.Until)}
}

// cancelSettings are what options of a cancel set.
type cancelSettings struct {
	reason string
	force  bool
}

// CancelOption changes how a task is cancelled.
type CancelOption interface{ cancel(s *cancelSettings) }

// cancelFunc is a CancelOption that sets fields of cancelSettings.
type cancelFunc func(s *cancelSettings)

func (f cancelFunc) cancel(s *cancelSettings) { f(s) }

// CancelReason says why, at most 256 B. The worker sees it in Task.CancelReason, readers in TaskInfo.Cancel.
func CancelReason(text string) CancelOption {
	return cancelFunc(func(s *cancelSettings) { s.reason = text })
}

// ForceCancel does not wait for the worker of a running task: the task is cancelled at once, and its worker loses the lease.
func ForceCancel() CancelOption { return cancelFunc(func(s *cancelSettings) { s.force = true }) }

// cancelSettingsOf applies options.
func cancelSettingsOf(opts []CancelOption) (s cancelSettings, err error) {
	for _, o := range opts {
		o.cancel(&s)
	}
	if !utf8.ValidString(s.reason) {
		return s, badText("reason")
	}
	return s, nil
}

// CancelResult is the answer to a cancel.
type CancelResult struct {
	// State is Cancelled, or Running: the worker was told to stop.
	State    State
	Replayed bool // it was cancelled, or asked for, before
}

// Cancel cancels a task that has not ended (needs the scope task:create, task:operate or admin). One that waits is cancelled at
// once. The worker of one that runs is told to stop: the context of its handler ends with ErrCancelled. The task is cancelled when the
// attempt ends in any way but a completion, or when the queue's CancelGrace is over. A task that completed or died before is
// ErrWrongState.
func (c *Client) Cancel(ctx context.Context, id string, opts ...CancelOption) (CancelResult, error) {
	s, err := cancelSettingsOf(opts)
	if err != nil {
		return CancelResult{}, err
	}
	req := &millracev1.CancelRequest{Id: id, Reason: s.reason, Force: s.force, RequestId: wire.Random16()}
	var resp *millracev1.CancelResponse
	if err := c.operate(ctx, id, func(ctx context.Context) (err error) {
		resp, err = c.tasks.Cancel(ctx, req)
		return err
	}); err != nil {
		return CancelResult{}, err
	}
	return CancelResult{State: State(resp.State), Replayed: resp.Replayed}, nil
}

// Retry makes a dead or cancelled task ready, and returns its state then (needs the scope task:operate or admin). Its failures,
// crashes, snoozes and deliveries count from 0 again; its attempts stay. A task in another state is ErrWrongState.
func (c *Client) Retry(ctx context.Context, id string) (State, error) {
	req := &millracev1.RetryRequest{Id: id, RequestId: wire.Random16()}
	var resp *millracev1.RetryResponse
	if err := c.operate(ctx, id, func(ctx context.Context) (err error) {
		resp, err = c.tasks.Retry(ctx, req)
		return err
	}); err != nil {
		return 0, err
	}
	return State(resp.State), nil
}

// ForceReleaseOption changes how a task is taken from its worker.
type ForceReleaseOption interface {
	forceRelease(r *millracev1.ForceReleaseRequest)
}

// forceReleaseFunc is a ForceReleaseOption that fills in the request.
type forceReleaseFunc func(r *millracev1.ForceReleaseRequest)

func (f forceReleaseFunc) forceRelease(r *millracev1.ForceReleaseRequest) { f(r) }

// OfAttempt takes the task only while the attempt with this number runs; another one is ErrWrongState. Default: any attempt.
func OfAttempt(number int) ForceReleaseOption {
	return forceReleaseFunc(func(r *millracev1.ForceReleaseRequest) { r.Attempt = uint32(max(number, 0)) })
}

// ForceRelease takes a running task from its worker, which loses the lease, and puts it back to its old place (needs the scope
// task:operate or admin). It returns the task's state then. The attempt counts only as a delivery. A task that does not run is
// ErrWrongState.
func (c *Client) ForceRelease(ctx context.Context, id string, opts ...ForceReleaseOption) (State, error) {
	req := &millracev1.ForceReleaseRequest{Id: id, RequestId: wire.Random16()}
	for _, o := range opts {
		o.forceRelease(req)
	}
	var resp *millracev1.ForceReleaseResponse
	if err := c.operate(ctx, id, func(ctx context.Context) (err error) {
		resp, err = c.tasks.ForceRelease(ctx, req)
		return err
	}); err != nil {
		return 0, err
	}
	return State(resp.State), nil
}

// TaskEdit says what of a task changes. A zero field stays as it is.
type TaskEdit struct {
	Priority *int // 0 to 9
	// RunAt makes the task ready then, a past time now; Delay the same from now, 0 now. They are mutually exclusive.
	RunAt time.Time
	Delay *time.Duration
	// Payload replaces the payload if it is not nil: bytes, text and json.RawMessage as they are, anything else by the client's codec.
	Payload any
	// ContentType says how to read the payload, at most 128 B. Default: that of the new one, or without Payload, as it was.
	ContentType string
	// Labels replace all labels if the map is not nil; an empty map removes them.
	Labels map[string]string
	// ExpiresAt is when the task is dead if no worker got it by then; NeverExpires removes that. They are mutually exclusive.
	ExpiresAt    time.Time
	NeverExpires bool
}

// request is e in the contract.
func (e TaskEdit) request(id string, codec Codec) (*millracev1.UpdateRequest, error) {
	r := &millracev1.UpdateRequest{Id: id, ContentType: e.ContentType, NeverExpires: e.NeverExpires, RequestId: wire.Random16()}
	if e.Priority != nil {
		r.Priority = proto.Uint32(uint32(*e.Priority))
	}
	if !e.RunAt.IsZero() {
		r.RunAt = timestamppb.New(e.RunAt)
	}
	if e.Delay != nil {
		r.Delay = durationpb.New(*e.Delay)
	}
	if e.Payload != nil {
		payload, contentType, err := encode(codec, e.Payload)
		if err != nil {
			return nil, fmt.Errorf("edit %s: %w", id, err)
		}
		if payload == nil {
			payload = []byte{} // an empty one, not the old one
		}
		r.Payload, r.ContentType = payload, cmp.Or(e.ContentType, contentType)
	}
	if !e.ExpiresAt.IsZero() {
		r.ExpiresAt = timestamppb.New(e.ExpiresAt)
	}
	r.Labels, r.ClearLabels = e.Labels, e.Labels != nil && len(e.Labels) == 0
	if !utf8.ValidString(r.ContentType) {
		return nil, badText("content_type")
	}
	if proto.Size(r) > session.FrameBytes {
		return nil, tooLarge("payload", "frame_bytes", session.FrameBytes)
	}
	return r, checkLabels(e.Labels)
}

// Edit changes a task that waits, and returns its state then (needs the scope task:create or admin). Of a dead task the payload, the
// priority and the labels can be changed. A task that runs, or ended otherwise, is ErrWrongState.
func (c *Client) Edit(ctx context.Context, id string, edit TaskEdit) (State, error) {
	req, err := edit.request(id, c.opts.codec)
	if err != nil {
		return 0, err
	}
	var resp *millracev1.UpdateResponse
	if err := c.operate(ctx, id, func(ctx context.Context) (err error) {
		resp, err = c.tasks.Update(ctx, req)
		return err
	}); err != nil {
		return 0, err
	}
	return State(resp.State), nil
}

// operate carries out a change of one task, whose request has an id of its own: repeated after an answer that was lost, it is applied
// once.
func (c *Client) operate(ctx context.Context, id string, call func(ctx context.Context) error) error {
	if !utf8.ValidString(id) {
		return badText("id")
	}
	return c.change(ctx, place.Of(id, c.hub.Partitions()), call)
}

// Labels adds labels to the task, at most 16: names of 1 to 63 B, values of at most 128 B.
func Labels(labels map[string]string) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) {
		if s.Labels == nil {
			s.Labels = make(map[string]string, len(labels))
		}
		maps.Copy(s.Labels, labels)
	})
}

// ExpiresAt makes the task dead, with the reason expired, if no worker got it by t. It replaces ExpiresIn. Default: the queue's
// DefaultTTL, or never.
func ExpiresAt(t time.Time) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { s.ExpiresAt = timestamppb.New(t) })
}

// ExpiresIn is ExpiresAt, d from now by this machine's clock. A create that is repeated under an id of one's own expires at another
// time, and is another task then: give it ExpiresAt.
func ExpiresIn(d time.Duration) AddOption { return ExpiresAt(time.Now().Add(d)) }

// checkLabels refuses labels that the contract cannot carry.
func checkLabels(labels map[string]string) error {
	for name, value := range labels {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return badText("labels")
		}
	}
	return nil
}

// CancelTask cancels a task of the commit's partition, as Client.Cancel does.
func (tx *Tx) CancelTask(id string, opts ...CancelOption) {
	s, err := cancelSettingsOf(opts)
	if err == nil && !utf8.ValidString(id) {
		err = badText("id")
	}
	if err != nil {
		tx.fail(err)
		return
	}
	tx.ops = append(tx.ops, &millracev1.Op{Op: &millracev1.Op_TaskCancel{TaskCancel: &millracev1.TaskCancel{Id: id, Reason: s.reason, Force: s.force}}})
}
