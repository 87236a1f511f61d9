package millrace

import (
	"context"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// InBatch adds the task to an open batch, by its ID. The task is made in the partition of the batch, so a tag, key or unique key that it
// has must name that one: in a namespace of several partitions open the batch with BatchTag, and give its tasks the same Tag.
func InBatch(id string) AddOption {
	return addFunc(func(s *millracev1.TaskSpec) { s.Batch = id })
}

// BatchState says how far a batch is.
type BatchState int

// The states of a batch.
const (
	BatchOpen       BatchState = BatchState(millracev1.Batch_OPEN)       // it takes tasks
	BatchSealed     BatchState = BatchState(millracev1.Batch_SEALED)     // it takes none, and some have not ended
	BatchCancelling BatchState = BatchState(millracev1.Batch_CANCELLING) // it was cancelled, and some have not ended
	BatchFinished   BatchState = BatchState(millracev1.Batch_FINISHED)   // it takes none, and all had ended
)

// batchStates are the names of the states.
var batchStates = []string{BatchOpen: "open", BatchSealed: "sealed", BatchCancelling: "cancelling", BatchFinished: "finished"}

// String returns open, sealed, cancelling or finished.
func (s BatchState) String() string { return nameAt(batchStates, int(s)) }

// BatchOption is an option of OpenBatch.
type BatchOption interface {
	batch(s *batchSettings)
}

// batchSettings are what the options set.
type batchSettings struct {
	req *millracev1.OpenBatchRequest
	tag string
	// Each makes one of the follow-ups of the request.
	follows []func(codec Codec) error
}

// batchFunc makes an option of a function.
type batchFunc func(s *batchSettings)

func (f batchFunc) batch(s *batchSettings) { f(s) }

// BatchID sets the id of the batch, 26 characters as of a task. Opened again with the same id and options, a batch is the one that is
// there. Default: a new one.
func BatchID(id string) BatchOption { return batchFunc(func(s *batchSettings) { s.req.Id = id }) }

// BatchTag puts the batch into the partition of a tag, as Tag does with tasks.
func BatchTag(tag string) BatchOption { return batchFunc(func(s *batchSettings) { s.tag = tag }) }

// BatchLabels sets labels of the batch, at most 16.
func BatchLabels(labels map[string]string) BatchOption {
	return batchFunc(func(s *batchSettings) { s.req.Labels = labels })
}

// OnDone has a task of the job made when the batch finishes, in the same log entry, however its tasks ended. It has the header
// millrace-batch with the id of the batch.
func OnDone[A, R any](j *JobOf[A, R], args A, opts ...AddOption) BatchOption {
	return followUp("on_done", j, args, opts, func(r *millracev1.OpenBatchRequest, t *millracev1.TaskTemplate) { r.OnDone = t })
}

// OnSuccess is OnDone for a batch of which each task was completed, and which was not cancelled.
func OnSuccess[A, R any](j *JobOf[A, R], args A, opts ...AddOption) BatchOption {
	return followUp("on_success", j, args, opts, func(r *millracev1.OpenBatchRequest, t *millracev1.TaskTemplate) { r.OnSuccess = t })
}

func followUp[A, R any](field string, j *JobOf[A, R], args A, opts []AddOption, put func(*millracev1.OpenBatchRequest, *millracev1.TaskTemplate)) BatchOption {
	return batchFunc(func(s *batchSettings) {
		s.follows = append(s.follows, func(codec Codec) error {
			spec := new(millracev1.TaskSpec)
			if err := j.fill(spec, codec, args, opts); err != nil {
				return err
			}
			t, err := templateOf(field, spec)
			put(s.req, t)
			return err
		})
	})
}

// BatchCounts counts the tasks of a batch by what became of them, those too that were removed after their end.
type BatchCounts struct {
	Total, Waiting, Running, Completed, Dead, Cancelled int
}

// TaskBatch is a batch, and where it stands.
type TaskBatch struct {
	ID     string
	State  BatchState
	Counts BatchCounts
	Labels map[string]string
	// Queues of the tasks that it makes when it finishes; empty: it makes none.
	OnDone, OnSuccess string

	Opened   time.Time
	Sealed   time.Time // zero: it takes tasks
	Finished time.Time // zero: it has not
	By       string    // name of the token that opened it
	Cancel   *CancelAsked

	// The ids of the tasks that it made; empty: it has not.
	DoneTask, SuccessTask string
	// Why the server could not make one of them when it tried last, such as RESOURCE_EXHAUSTED; it tries again. Empty: it could.
	RefusedCode, RefusedMessage string

	Replayed bool // the call that returned it found that it was so before
}

// batchOf reads a batch of the contract.
func batchOf(b *millracev1.Batch, replayed bool) *TaskBatch {
	n := b.GetCounts()
	return &TaskBatch{
		ID: b.GetId(), State: BatchState(b.GetState()), Labels: b.GetLabels(), OnDone: b.GetOnDone().GetQueue(), OnSuccess: b.GetOnSuccess().GetQueue(),
		Counts: BatchCounts{
			Total: int(n.GetTotal()), Waiting: int(n.GetWaiting()), Running: int(n.GetRunning()), Completed: int(n.GetCompleted()), Dead: int(n.GetDead()),
			Cancelled: int(n.GetCancelled()),
		},
		Opened: timeOf(b.GetOpenedAt()), Sealed: timeOf(b.GetSealedAt()), Finished: timeOf(b.GetFinishedAt()), By: b.GetBy(), Cancel: cancelAsked(b.GetCancel()),
		DoneTask: b.GetDoneTask(), SuccessTask: b.GetSuccessTask(), RefusedCode: b.GetRefused().GetCode(), RefusedMessage: b.GetRefused().GetMessage(),
		Replayed: replayed,
	}
}

// batchSettingsOf applies options.
func batchSettingsOf(codec Codec, opts []BatchOption) (s batchSettings, err error) {
	s.req = new(millracev1.OpenBatchRequest)
	for _, o := range opts {
		o.batch(&s)
	}
	for _, follow := range s.follows {
		if err := follow(codec); err != nil {
			return s, err
		}
	}
	for field, text := range map[string]string{"id": s.req.Id, "tag": s.tag} {
		if !utf8.ValidString(text) {
			return s, badText(field)
		}
	}
	if err := checkLabels(s.req.Labels); err != nil {
		return s, err
	}
	if s.req.Id != "" && s.tag != "" {
		return s, errorOf(fault.Invalid("id", "and tag are mutually exclusive"))
	}
	return s, nil
}

// followsPinned reports whether a task that the batch makes without a tag is of a pinned queue: then the batch must be in that partition.
// pinned tells which queues are.
func (s *batchSettings) followsPinned(pinned func(queue string) bool) bool {
	for _, t := range []*millracev1.TaskTemplate{s.req.OnDone, s.req.OnSuccess} {
		if t != nil && t.Tag == "" && pinned(t.Queue) {
			return true
		}
	}
	return false
}

// OpenBatch opens a batch (needs the scope task:create). Tasks are added to it by the option InBatch with its ID, at most 1,000,000, until
// SealBatch says that there are no more.
//
// Errors: ErrAlreadyExists if the id is that of a batch that was opened with something else; ErrInvalid and ErrTooLarge with the field;
// ErrExhausted when too many batches have not finished.
func (c *Client) OpenBatch(ctx context.Context, opts ...BatchOption) (*TaskBatch, error) {
	s, err := batchSettingsOf(c.opts.codec, opts)
	if err != nil {
		return nil, err
	}
	if s.req.Id == "" { // so that it is safe to repeat
		n, f := c.calls.Learn(ctx)
		if f != nil {
			return nil, errorOf(f)
		}
		home := c.hub.Next(n)
		if s.tag != "" {
			home = place.Text(s.tag, n)
		} else if n > 1 && s.followsPinned(func(queue string) bool { c.learnPinned(ctx, queue); return c.hub.Pinned(queue) }) {
			home = place.Pinned
		}
		s.req.Id = place.IDIn(home, n)
	}
	var resp *millracev1.OpenBatchResponse
	if err := c.change(ctx, place.Of(s.req.Id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.batches.Open(ctx, s.req)
		return err
	}); err != nil {
		return nil, err
	}
	return batchOf(resp.GetBatch(), resp.GetReplayed()), nil
}

// Batch reads a batch. One that is not there, or was kept for a week after it finished, is ErrNotFound.
func (c *Client) Batch(ctx context.Context, id string) (*TaskBatch, error) {
	var resp *millracev1.GetBatchResponse
	if err := c.read(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.batches.Get(ctx, &millracev1.GetBatchRequest{Id: id})
		return err
	}); err != nil {
		return nil, err
	}
	return batchOf(resp.GetBatch(), false), nil
}

// Batches reads a page of batches, the last opened first, partition after partition: at most limit of them, from 1 to 1,000; 0: 100.
// cursor is empty, or that of the page before; next is empty after the last page.
func (c *Client) Batches(ctx context.Context, limit int, cursor string) (batches []*TaskBatch, next string, err error) {
	var resp *millracev1.ListBatchesResponse
	if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.batches.List(ctx, &millracev1.ListBatchesRequest{Limit: uint32(max(limit, 0)), Cursor: cursor})
		return err
	}); err != nil {
		return nil, "", err
	}
	for _, one := range resp.GetBatches() {
		batches = append(batches, batchOf(one, false))
	}
	return batches, resp.GetCursor(), nil
}

// SealBatch says that a batch gets no more tasks (needs the scope task:create). It finishes when all of them have ended: at once if that
// is so by now.
func (c *Client) SealBatch(ctx context.Context, id string) (*TaskBatch, error) {
	var resp *millracev1.SealBatchResponse
	if err := c.change(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.batches.Seal(ctx, &millracev1.SealBatchRequest{Id: id})
		return err
	}); err != nil {
		return nil, err
	}
	return batchOf(resp.GetBatch(), resp.GetReplayed()), nil
}

// BatchCancel says how a batch is cancelled. The zero value: without a reason, 1,000 tasks per second, and workers are asked to stop.
type BatchCancel struct {
	Reason string // at most 256 B
	Rate   int    // tasks per second, at most 1,000,000; 0: 1,000
	Force  bool   // running tasks are taken from their workers at once
}

// check refuses what no message can hold.
func (how BatchCancel) check() error {
	switch {
	case !utf8.ValidString(how.Reason):
		return badText("reason")
	case how.Rate < 0 || int64(how.Rate) > math.MaxUint32:
		return errorOf(fault.Invalid("rate", "must not be "+strconv.Itoa(how.Rate)))
	}
	return nil
}

// CancelBatch seals a batch and starts a job that cancels its tasks (needs the scope task:operate or admin). One that has finished is
// ErrWrongState.
func (c *Client) CancelBatch(ctx context.Context, id string, how BatchCancel) (*TaskBatch, error) {
	if err := how.check(); err != nil {
		return nil, err
	}
	req := &millracev1.CancelBatchRequest{Id: id, Reason: how.Reason, Rate: uint32(how.Rate), Force: how.Force}
	var resp *millracev1.CancelBatchResponse
	if err := c.change(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.batches.Cancel(ctx, req)
		return err
	}); err != nil {
		return nil, err
	}
	return batchOf(resp.GetBatch(), resp.GetReplayed()), nil
}

// WaitBatch returns a batch when it has finished, however long that takes while ctx lasts. The server tells when: nothing is asked for
// again and again. It goes on over a lost connection.
func (c *Client) WaitBatch(ctx context.Context, id string) (*TaskBatch, error) {
	var resp *millracev1.WaitBatchResponse
	if err := c.last(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.batches.Wait(ctx, &millracev1.WaitBatchRequest{Id: id})
		return err
	}); err != nil {
		return nil, err
	}
	return batchOf(resp.GetBatch(), false), nil
}
