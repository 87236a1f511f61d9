package millrace

import (
	"cmp"
	"context"
	"maps"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// BulkAction is what a bulk job does to each of its tasks.
type BulkAction int

// The actions of bulk jobs.
const (
	// BulkCancel cancels tasks that are scheduled, ready or running, as Client.Cancel does.
	BulkCancel BulkAction = BulkAction(millracev1.BulkJob_CANCEL)
	// BulkRetry makes dead and cancelled tasks ready, as Client.Retry does.
	BulkRetry BulkAction = BulkAction(millracev1.BulkJob_RETRY)
	// BulkDelete removes completed, dead and cancelled tasks, as Client.Delete does. It needs the scope admin.
	BulkDelete BulkAction = BulkAction(millracev1.BulkJob_DELETE)
	// BulkPrioritize gives scheduled and ready tasks the priority of BulkPriority.
	BulkPrioritize BulkAction = BulkAction(millracev1.BulkJob_PRIORITIZE)
)

// bulkActions are the names of the actions.
var bulkActions = map[BulkAction]string{BulkCancel: "cancel", BulkRetry: "retry", BulkDelete: "delete", BulkPrioritize: "prioritize"}

// String returns the name of the action in lower case; that of a number without a name says so.
func (a BulkAction) String() string { return cmp.Or(bulkActions[a], "unknown") }

// ParseBulkAction returns the action of a name that String returns.
func ParseBulkAction(name string) (BulkAction, bool) {
	for a, n := range bulkActions {
		if n == name {
			return a, true
		}
	}
	return 0, false
}

// TaskFilter says which tasks a bulk job is about: those that have everything that it names. The zero value means all tasks that the
// action is about.
type TaskFilter struct {
	Queue  string // empty: any
	State  State  // one that the action is about; 0: all of these
	Kind   string // empty: any
	Worker string // that runs them, or completed them; empty: any
	Unique string // the unique key they were created under; empty: any
	Labels map[string]string
	// From and To bound the creation: From on, and before To. Zero: no bound.
	From, To time.Time

	Fingerprint string // of their last error; empty: any
	Batch       string // id of the batch that they were added to; empty: any, or none
}

// message makes the filter of a request.
func (f *TaskFilter) message() (*millracev1.TaskFilter, error) {
	for name, text := range map[string]string{"queue": f.Queue, "kind": f.Kind, "worker": f.Worker, "unique": f.Unique, "fingerprint": f.Fingerprint, "batch": f.Batch} {
		if !utf8.ValidString(text) {
			return nil, badText("filter." + name)
		}
	}
	for name, value := range f.Labels {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, badText("filter.labels")
		}
	}
	return &millracev1.TaskFilter{
		Queue: f.Queue, State: millracev1.State(f.State), Kind: f.Kind, Worker: f.Worker, Unique: f.Unique, Labels: maps.Clone(f.Labels),
		From: momentOf(f.From), To: momentOf(f.To), Fingerprint: f.Fingerprint, Batch: f.Batch,
	}, nil
}

// momentOf makes a time of the contract; the zero time is none.
func momentOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// taskFilter reads a filter of the contract.
func taskFilter(f *millracev1.TaskFilter) TaskFilter {
	return TaskFilter{
		Queue: f.GetQueue(), State: State(f.GetState()), Kind: f.GetKind(), Worker: f.GetWorker(), Unique: f.GetUnique(),
		Labels: maps.Clone(f.GetLabels()), From: timeOf(f.GetFrom()), To: timeOf(f.GetTo()),
		Fingerprint: f.GetFingerprint(), Batch: f.GetBatch(),
	}
}

// BulkState says how far a bulk job is.
type BulkState int

// The states of bulk jobs.
const (
	BulkRunning BulkState = BulkState(millracev1.BulkJob_RUNNING)
	BulkDone    BulkState = BulkState(millracev1.BulkJob_DONE)
	// BulkStopped is of a job that was stopped, or whose queue was removed.
	BulkStopped BulkState = BulkState(millracev1.BulkJob_STOPPED)
)

// String returns the name of the state in lower case.
func (s BulkState) String() string {
	return cmp.Or(map[BulkState]string{BulkRunning: "running", BulkDone: "done", BulkStopped: "stopped"}[s], "unknown")
}

// BulkJob is a job of the server that does one thing to many tasks.
type BulkJob struct {
	ID       string
	Action   BulkAction
	Filter   TaskFilter
	Priority int  // of BulkPrioritize
	Force    bool // of BulkCancel
	Rate     int  // tasks per second, in each partition
	Reason   string
	ToQueue  string // of BulkRetry: the queue that the tasks move to
	Patch    []byte // of BulkRetry: the merge patch of their payloads
	By       string // name of the token
	State    BulkState
	Started  time.Time // by the cluster's clock
	Ended    time.Time // zero while it runs
	Matched  uint64    // tasks that were found before the start
	Exact    bool      // Matched is the number of all of them, and not of a part
	Looked   uint64    // rows of indexes that were looked at
	Done     uint64    // tasks that the action was done to
	// Refused counts the tasks that refused the action, by the code of the error. CHANGED: they were found before the start, and were
	// in another state when their turn came.
	Refused map[string]uint64
	// ETA is when it will be done, at the pace that it had so far; zero: it does not run, or Matched is not exact.
	ETA time.Time
}

// bulkJob reads a job of the contract.
func bulkJob(j *millracev1.BulkJob) *BulkJob {
	out := &BulkJob{
		ID: j.GetId(), Action: BulkAction(j.GetAction()), Filter: taskFilter(j.GetFilter()), Priority: int(j.GetPriority()), Force: j.GetForce(),
		Rate: int(j.GetRate()), Reason: j.GetReason(), By: j.GetBy(), State: BulkState(j.GetState()), Started: timeOf(j.GetStartedAt()),
		Ended: timeOf(j.GetEndedAt()), Matched: j.GetMatched(), Exact: j.GetExact(), Looked: j.GetLooked(), Done: j.GetDone(),
		ETA: timeOf(j.GetEta()), ToQueue: j.GetToQueue(), Patch: j.GetPatch(),
	}
	for _, r := range j.GetRefused() {
		if out.Refused == nil {
			out.Refused = make(map[string]uint64)
		}
		out.Refused[r.GetCode()] += r.GetCount()
	}
	return out
}

// BulkCount is what a bulk job would find.
type BulkCount struct {
	Count     uint64
	Exact     bool   // all were looked at; else there may be more
	Inspected uint64 // rows of indexes that were looked at
	// Oldest and Newest are the creations of those that were looked at; zero: none was.
	Oldest, Newest time.Time
	Sample         []*TaskInfo // the first ones, at most 10, without payload and result
}

// bulkCount reads a count of the contract.
func bulkCount(c *millracev1.BulkCount) BulkCount {
	out := BulkCount{
		Count: c.GetCount(), Exact: c.GetExact(), Inspected: c.GetInspected(), Oldest: timeOf(c.GetOldest()), Newest: timeOf(c.GetNewest()),
	}
	for _, t := range c.GetSample() {
		out.Sample = append(out.Sample, taskInfo(t, nil))
	}
	return out
}

// BulkOption changes how a bulk job is run.
type BulkOption interface {
	bulk(r *millracev1.StartBulkRequest)
}

// bulkFunc is a BulkOption that fills in the request.
type bulkFunc func(r *millracev1.StartBulkRequest)

func (f bulkFunc) bulk(r *millracev1.StartBulkRequest) { f(r) }

// BulkID sets the id of the job, as NewID makes it: a start with the id of a job that asks for the same is a replay. Default: a new
// one for each call.
func BulkID(id string) BulkOption {
	return bulkFunc(func(r *millracev1.StartBulkRequest) { r.Id = id })
}

// BulkRate sets how many tasks a second are acted on in each partition, 1 to 1,000,000. Default: 1,000.
func BulkRate(perSecond int) BulkOption {
	return bulkFunc(func(r *millracev1.StartBulkRequest) { r.Rate = uint32(max(perSecond, 0)) })
}

// BulkReason says why, at most 256 B.
func BulkReason(text string) BulkOption {
	return bulkFunc(func(r *millracev1.StartBulkRequest) { r.Reason = text })
}

// BulkToQueue moves the tasks to another queue, as the same tasks: ids, attempts and labels stay. Those that it has no room for are
// refused. It goes with BulkRetry alone.
func BulkToQueue(name string) BulkOption {
	return bulkFunc(func(r *millracev1.StartBulkRequest) { r.ToQueue = name })
}

// BulkPatch changes each payload by a merge patch (RFC 7396), a JSON object of at most 16 KiB: it changes the members that it names, and
// null takes one away. A task whose payload is not JSON is refused. It goes with BulkRetry alone.
func BulkPatch(patch []byte) BulkOption {
	return bulkFunc(func(r *millracev1.StartBulkRequest) { r.Patch = patch })
}

// BulkForce takes running tasks from their workers at once. It goes with BulkCancel alone.
func BulkForce() BulkOption { return bulkFunc(func(r *millracev1.StartBulkRequest) { r.Force = true }) }

// BulkPriority is the priority that BulkPrioritize sets, 0 to 9. Default: 0.
func BulkPriority(p int) BulkOption {
	return bulkFunc(func(r *millracev1.StartBulkRequest) { r.Priority = uint32(max(p, 0)) })
}

// bulkRequest makes a request.
func bulkRequest(a BulkAction, f TaskFilter, opts []BulkOption) (*millracev1.StartBulkRequest, error) {
	filter, err := f.message()
	if err != nil {
		return nil, err
	}
	req := &millracev1.StartBulkRequest{Id: place.NewID(), Action: millracev1.BulkJob_Action(a), Filter: filter}
	for _, o := range opts {
		o.bulk(req)
	}
	if !utf8.ValidString(req.Reason) {
		return nil, badText("reason")
	}
	if !utf8.ValidString(req.ToQueue) {
		return nil, badText("to_queue")
	}
	return req, nil
}

// CountBulk counts what a bulk job would find, and changes nothing (needs the scope task:operate or admin). It takes a few seconds at
// most: where that is too short, the count is not exact.
func (c *Client) CountBulk(ctx context.Context, a BulkAction, f TaskFilter, opts ...BulkOption) (BulkCount, error) {
	req, err := bulkRequest(a, f, opts)
	if err != nil {
		return BulkCount{}, err
	}
	req.DryRun = true
	var resp *millracev1.StartBulkResponse
	err = c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.bulk.Start(ctx, req)
		return err
	})
	return bulkCount(resp.GetFound()), err
}

// StartBulk begins a job that acts on every task of the filter, in all partitions (needs the scope task:operate or admin; BulkDelete
// needs admin). The server goes on with it when the client is gone. Tasks that are created after the start are left alone. At most 10
// jobs run at once in a namespace: one more is ErrExhausted. A queue that is not there is ErrNotFound.
func (c *Client) StartBulk(ctx context.Context, a BulkAction, f TaskFilter, opts ...BulkOption) (*BulkJob, error) {
	req, err := bulkRequest(a, f, opts)
	if err != nil {
		return nil, err
	}
	var resp *millracev1.StartBulkResponse
	if err := c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.bulk.Start(ctx, req)
		return err
	}); err != nil {
		return nil, err
	}
	return bulkJob(resp.GetJob()), nil
}

// Redrive begins a job that makes the dead tasks of the queue ready: it is StartBulk with BulkRetry and the state Dead.
func (q Queue) Redrive(ctx context.Context, opts ...BulkOption) (*BulkJob, error) {
	return q.c.StartBulk(ctx, BulkRetry, TaskFilter{Queue: q.name, State: Dead}, opts...)
}

// Bulk reads how far a job is. One that ended more than a day ago is ErrNotFound.
func (c *Client) Bulk(ctx context.Context, id string) (*BulkJob, error) {
	var resp *millracev1.GetBulkResponse
	if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.bulk.Get(ctx, &millracev1.GetBulkRequest{Id: id})
		return err
	}); err != nil {
		return nil, err
	}
	return bulkJob(resp.GetJob()), nil
}

// Bulks reads the jobs that run and those that ended within a day, the last begun first.
func (c *Client) Bulks(ctx context.Context) ([]*BulkJob, error) {
	var resp *millracev1.ListBulkResponse
	if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.bulk.List(ctx, &millracev1.ListBulkRequest{})
		return err
	}); err != nil {
		return nil, err
	}
	out := make([]*BulkJob, len(resp.GetJobs()))
	for i, j := range resp.GetJobs() {
		out[i] = bulkJob(j)
	}
	return out, nil
}

// StopBulk ends a job before its end (needs the scope task:operate or admin), and reports whether it had ended before. What it did
// stays.
func (c *Client) StopBulk(ctx context.Context, id string) (replayed bool, err error) {
	var resp *millracev1.CancelBulkResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.bulk.Cancel(ctx, &millracev1.CancelBulkRequest{Id: id})
		return err
	})
	return resp.GetReplayed(), err
}
