package millrace

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// State of a task. Blocked waits for other tasks, Scheduled for a time, Ready for a worker; the last three are terminal.
type State uint8

// The states.
const (
	Blocked State = iota + 1
	Scheduled
	Ready
	Running
	Completed
	Dead
	Cancelled
)

// String returns the state as it is written everywhere, such as completed.
func (s State) String() string {
	return wire.State(int32(s))
}

// ParseState reads what String returns.
func ParseState(name string) (State, bool) {
	for s, n := range wire.States {
		if n == name && n != "" {
			return State(s), true
		}
	}
	return 0, false
}

// Terminal reports whether a task in this state has ended.
func (s State) Terminal() bool { return s >= Completed }

// TaskInfo is a task as a reader sees it. Times that are not known are zero.
type TaskInfo struct {
	// ID, Queue and Kind say which task it is.
	ID      string
	Queue   string
	Kind    string
	State   State
	Reason  string // of waiting: delay, retry, snooze, cron; of the end: max_attempts, max_crashes, max_deliveries, fatal, expired, dependency
	Payload []byte // empty in lists
	// Head has the first bytes of the payload, and PayloadSize its whole length, where a list asked for them.
	Head        []byte
	PayloadSize int
	// ContentType says how to read Payload; Headers are nil when there are none.
	ContentType string
	Headers     map[string]string
	Priority    int
	// UniqueKey and Tag are as they were added; empty: there is none.
	UniqueKey string
	Tag       string
	Key       string
	Cost      int               // what it weighs in shares, rates and limiters; at least 1
	Limiters  []string          // that it names itself
	Labels    map[string]string // nil when there are none

	// The limits in force: the task's own, or the queue's.
	MaxAttempts   int
	MaxCrashes    int
	MaxDeliveries int // 0 = no bound
	// MaxRun 0 means that there is no bound.
	Lease  time.Duration
	MaxRun time.Duration

	Attempt int // number of the last delivery; 0 before the first
	// Failures, Crashes and Snoozes count how attempts ended; Redrives how often the task was begun again after its end.
	Failures int
	Crashes  int
	Snoozes  int
	Redrives int

	// RunAt is when a task that waits for a time becomes ready, and ExpiresAt when one that no worker got yet is dead.
	RunAt     time.Time
	ExpiresAt time.Time
	CreatedAt time.Time
	// ReadyAt and StartedAt are of the last delivery, FinishedAt is of the end, and LeaseUntil is while it runs.
	ReadyAt    time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	LeaseUntil time.Time

	// Creator is the subject of the token that added it, and Worker the name of the worker that has it, or had it last.
	Creator string
	Worker  string

	Result []byte // empty in lists
	// ResultType says how to read Result. HasResult tells an empty result from none.
	ResultType   string
	HasResult    bool
	ErrorCode    string // of the last failure
	ErrorMessage string
	ErrorStack   string
	// Fingerprint is that of the last error since the last redrive, also where a lease was lost or the task expired: see Errors.
	Fingerprint string

	// Cancel says who asked for the cancel of a task that runs or is cancelled; nil: no one did.
	Cancel *CancelAsked
	// Progress is what the worker of the last attempt told with Task.Progress; nil: nothing.
	Progress *Progress

	// After are the tasks that it was made to wait for, and OnDepFailure what becomes of it when one of them is not completed. Pending is
	// how many of them a blocked task waits for, Dependents how many blocked tasks wait for this one.
	After        []Dependency
	OnDepFailure DepFailure
	Pending      int
	Dependents   int
	Batch        string // id of the batch that it was added to; empty: none

	At Place // where the read stands in the log
}

// taskInfo reads a task of the contract.
func taskInfo(t *millracev1.Task, at *millracev1.At) *TaskInfo {
	return &TaskInfo{
		ID: t.Id, Queue: t.Queue, Kind: t.Kind, State: State(t.State), Reason: t.Reason, Payload: t.Payload,
		Head: t.Head, PayloadSize: int(t.GetPayloadSize()), ContentType: t.ContentType, Headers: headerMap(t.Headers), Priority: int(t.Priority), UniqueKey: t.UniqueKey, Tag: t.Tag,
		Key: t.Key, Cost: max(int(t.Cost), 1), Limiters: t.Limiters,
		Labels: t.Labels, ExpiresAt: timeOf(t.ExpiresAt), Cancel: cancelAsked(t.Cancel), Progress: progressOf(t.Progress),
		MaxAttempts: int(t.MaxAttempts), MaxCrashes: int(t.MaxCrashes), MaxDeliveries: int(t.MaxDeliveries),
		Lease: t.Lease.AsDuration(), MaxRun: t.MaxRun.AsDuration(), Attempt: int(t.Attempt), Failures: int(t.Failures),
		Crashes: int(t.Crashes), Snoozes: int(t.Snoozes), Redrives: int(t.Redrives), RunAt: timeOf(t.RunAt),
		CreatedAt: timeOf(t.CreatedAt), ReadyAt: timeOf(t.ReadyAt), StartedAt: timeOf(t.StartedAt),
		FinishedAt: timeOf(t.FinishedAt), LeaseUntil: timeOf(t.LeaseUntil), Creator: t.Creator, Worker: t.Worker,
		Result: t.Result, ResultType: t.ResultType, HasResult: t.HasResult, ErrorCode: t.Error.GetCode(),
		ErrorMessage: t.Error.GetMessage(), ErrorStack: t.Error.GetStack(), Fingerprint: t.Fingerprint, At: placeOf(at),
		After: dependencies(t.After), OnDepFailure: DepFailure(max(t.OnDepFailure-millracev1.OnDepFailure_HOLD, 0)), Pending: int(t.Pending), Dependents: int(t.Dependents), Batch: t.Batch,
	}
}

// timeOf is a time of the contract; nil is the zero time.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// headerMap is headers by name. Of several with one name the last counts.
func headerMap(hs []*millracev1.Header) map[string]string {
	if len(hs) == 0 {
		return nil
	}
	m := make(map[string]string, len(hs))
	for _, h := range hs {
		m[h.Name] = h.Value
	}
	return m
}

// Task reads a task. It sees every write that was acknowledged before. Unknown ids are ErrNotFound.
func (c *Client) Task(ctx context.Context, id string, opts ...ReadOption) (*TaskInfo, error) {
	line := ledger.Line{Op: "get", ID: id, Invoke: c.hub.Ledger.Now()}
	req := &millracev1.GetRequest{Id: id, MinIndex: readOptionsOf(opts).minIndex}
	var resp *millracev1.GetResponse
	err := c.read(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.tasks.Get(ctx, req)
		return err
	})
	c.record(line, resp.GetAt(), err)
	if err != nil {
		return nil, err
	}
	return taskInfo(resp.Task, resp.At), nil
}

// Wait returns the task when it has ended, however long that takes while ctx lasts. It goes on over a lost connection.
func (c *Client) Wait(ctx context.Context, id string) (*TaskInfo, error) {
	line := ledger.Line{Op: "wait", ID: id, Invoke: c.hub.Ledger.Now()}
	var resp *millracev1.WaitResponse
	err := c.last(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.tasks.Wait(ctx, &millracev1.WaitRequest{Id: id})
		return err
	})
	c.record(line, resp.GetAt(), err)
	if err != nil {
		return nil, err
	}
	return taskInfo(resp.Task, resp.At), nil
}

// Attempt is one delivery of a task.
type Attempt struct {
	// Number counts deliveries, from 1; Worker is the name of the one that had it.
	Number int
	Worker string
	// Start and End are by the cluster's clock.
	Start   time.Time
	End     time.Time // zero while it runs
	Outcome string    // completed, failed, timeout, crashed, snoozed, released, cancelled; empty while it runs
	// Code, Message and Stack are of a failure; Stack is at most 16 KiB.
	Code    string
	Message string
	Stack   string
	Index   uint64 // of the log entry that ended it
	// Fingerprint is of its error, also where the lease was lost; empty: it had none.
	Fingerprint string
	// Ready is when the task was ready for it. LeaseUntil is when its lease ends, or would have ended without its end. Retry is when
	// the task was to run next; the zero time: it was not to wait.
	Ready, LeaseUntil, Retry time.Time
}

// Attempts reads the last 20 attempts of a task, oldest first.
func (c *Client) Attempts(ctx context.Context, id string) ([]Attempt, error) {
	resp, err := c.attempts(ctx, id)
	if err != nil {
		return nil, err
	}
	out := make([]Attempt, len(resp.Attempts))
	for i, a := range resp.Attempts {
		out[i] = Attempt{
			Number: int(a.Number), Worker: a.Worker, Start: timeOf(a.Start), End: timeOf(a.End),
			Code: a.Error.GetCode(), Message: a.Error.GetMessage(), Stack: a.Error.GetStack(), Index: a.Index,
			Fingerprint: a.Fingerprint, Ready: timeOf(a.ReadyAt), LeaseUntil: timeOf(a.LeaseUntil), Retry: timeOf(a.RetryAt),
			Outcome: outcomeOf(a.Outcome),
		}
	}
	return out, nil
}

// OlderAttempts reads how many attempts of a task before those of Attempts ended in which way, by outcome; "unknown": it is not known
// how they ended.
func (c *Client) OlderAttempts(ctx context.Context, id string) (map[string]uint64, error) {
	resp, err := c.attempts(ctx, id)
	if err != nil {
		return nil, err
	}
	out := make(map[string]uint64, len(resp.Older))
	for _, o := range resp.Older {
		out[cmp.Or(outcomeOf(o.Outcome), "unknown")] += o.Count
	}
	return out, nil
}

// attempts reads what the server knows of the attempts of a task.
func (c *Client) attempts(ctx context.Context, id string) (resp *millracev1.ListAttemptsResponse, err error) {
	err = c.read(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.tasks.ListAttempts(ctx, &millracev1.ListAttemptsRequest{Id: id})
		return err
	})
	return resp, err
}

// outcomeOf returns the name of an outcome; empty for none, and for one that this SDK does not know.
func outcomeOf(o millracev1.Outcome) string {
	if n := int(o); n >= 0 && n < len(wire.AttemptOutcomes) {
		return wire.AttemptOutcomes[n]
	}
	return ""
}

// ListQuery asks for a page of the tasks that have everything that it names: those of a queue in a state in the order of that state,
// else about in the order of their creation; partition after partition. Ended tasks of a queue with the last ones first, of which no more
// is asked, come in one order over all partitions.
type ListQuery struct {
	Queue  string // empty: any
	State  State  // 0: any
	Limit  int    // 1 to 1,000; default 100
	Cursor string // of the page before; empty for the first
	Newest bool   // the last ones first
	Kind   string // empty: any
	Worker string // that runs them, or completed them; empty: any
	Unique string // the unique key they were created under; empty: any
	Labels map[string]string
	// From and To bound the creation: From on, and before To. Zero: no bound.
	From, To time.Time

	Fingerprint string // of their last error; empty: any
	Batch       string // id of the batch that they were added to; empty: any, or none

	Head int // first bytes of each payload that are read too, at most 256; 0: none
}

// ListPage is a page of a list. It may be short, and even empty, where more is to be looked at.
type ListPage struct {
	Tasks []*TaskInfo // without payloads and results
	Next  string      // cursor of the next page; empty at the end
	// Inspected is how many tasks were looked at. Reached is how far that came: creation of the last of them, or, of ended tasks of a
	// queue, its end. It is zero at the end of the list, where the order is that of another time, and where the list goes partition after
	// partition.
	Inspected int
	Reached   time.Time
}

// List is ListPage with the tasks and the cursor of the next page alone.
func (c *Client) List(ctx context.Context, q ListQuery) (tasks []*TaskInfo, next string, err error) {
	page, err := c.ListPage(ctx, q)
	return page.Tasks, page.Next, err
}

// ListPage reads a page of tasks, and how far it looked for them.
func (c *Client) ListPage(ctx context.Context, q ListQuery) (page ListPage, err error) {
	req := &millracev1.ListRequest{
		Queue: q.Queue, State: millracev1.State(q.State), Limit: uint32(max(q.Limit, 0)), Cursor: q.Cursor, Desc: q.Newest,
		Kind: q.Kind, Worker: q.Worker, Unique: q.Unique, From: momentOf(q.From), To: momentOf(q.To),
		Fingerprint: q.Fingerprint, Batch: q.Batch, Head: uint32(max(q.Head, 0)),
	}
	for _, name := range slices.Sorted(maps.Keys(q.Labels)) {
		req.Label = append(req.Label, name+"="+q.Labels[name])
	}
	line := ledger.Line{Op: "list", Queue: q.Queue, Invoke: c.hub.Ledger.Now()}
	var resp *millracev1.ListResponse
	err = c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.tasks.List(ctx, req)
		return err
	})
	c.record(line, resp.GetAt(), err)
	if err != nil {
		return page, err
	}
	page = ListPage{
		Tasks: make([]*TaskInfo, len(resp.Tasks)), Next: resp.Cursor, Inspected: int(resp.Inspected), Reached: timeOf(resp.Reached),
	}
	for i, t := range resp.Tasks {
		page.Tasks[i] = taskInfo(t, resp.At)
	}
	return page, nil
}

// RunNow makes a scheduled task ready (needs the scope task:operate or admin). A task in another state is ErrWrongState.
func (c *Client) RunNow(ctx context.Context, id string) error {
	return c.change(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) error {
		_, err := c.tasks.RunNow(ctx, &millracev1.RunNowRequest{Id: id})
		return err
	})
}

// Delete removes a task that has ended (needs the scope admin). A task that has not is ErrWrongState.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.change(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) error {
		_, err := c.tasks.Delete(ctx, &millracev1.DeleteRequest{Id: id})
		return err
	})
}

// ServerStatus tells what a server is and has done since it started.
type ServerStatus struct {
	// Version is that of the program.
	Version    string
	Durability string // fsync or none
	// Node is the name of the one that answered, and Shards how many logs it keeps.
	Node         string
	Shards       int
	AppliedIndex uint64 // of shard 0
	// What it did since its start: fsyncs of the log, bytes and entries written to it, and keys written to the store.
	Fsyncs         uint64
	LogBytes       uint64
	Entries        uint64
	StoreMutations uint64
	// DiskFull says that writes are refused until there is room again.
	StartedAt time.Time
	DiskFull  bool
}

// Status asks the server what it is.
func (c *Client) Status(ctx context.Context) (*ServerStatus, error) {
	var r *millracev1.StatusResponse
	err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		r, err = c.server.Status(ctx, &millracev1.StatusRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &ServerStatus{
		Version: r.Version, Durability: r.Durability, Node: r.Node, Shards: int(r.Shards), AppliedIndex: r.AppliedIndex,
		Fsyncs: r.Fsyncs, LogBytes: r.LogBytes, Entries: r.Entries, StoreMutations: r.StoreMutations,
		StartedAt: timeOf(r.StartedAt), DiskFull: r.DiskFull,
	}, nil
}

// durationOf is a duration of the contract; 0 is none.
func durationOf(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
