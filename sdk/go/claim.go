package millrace

import (
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// ClaimQuery asks for ready tasks, one call at a time. A Worker is the usual way; this is for tools and for callers that
// keep no stream.
type ClaimQuery struct {
	Queues []string // 1 to 64, in turn
	// Weights are the shares of queues, 1 to 1,000, of what this and other claims are given where several have tasks ready; 1 for a
	// queue that it does not name.
	Weights map[string]int
	// InOrder gives tasks of a queue when those before it in Queues have nothing ready. InOrder and Weights are mutually exclusive.
	InOrder bool
	Max     int           // 1 to 128; 0 means 1
	Lease   time.Duration // 0 = each task's own
	Wait    time.Duration // how long to wait for a task, at most 60 s
	Worker  string        // name, at most 128 B
}

// Claimed is one task that was given to the caller, who must settle it under Token before LeaseUntil.
type Claimed struct {
	// ID, Queue, Kind and Payload are those of the task.
	ID string
	// Token names this attempt: it is for Complete and Fail, and is also fit to fence writes to other systems.
	Token uint64
	Queue string
	Kind  string
	// Attempt is the number of this delivery, from 1.
	Attempt    int
	Payload    []byte
	Headers    map[string]string
	LeaseUntil time.Time // by this machine's clock
}

// Claim takes ready tasks; an empty list is not an error. It is not repeated when its answer is lost: the tasks that it took are
// given out again when their leases end.
func (c *Client) Claim(ctx context.Context, q ClaimQuery) ([]Claimed, error) {
	req := &millracev1.ClaimRequest{Max: uint32(max(q.Max, 1)), Worker: q.Worker, Lease: durationOf(q.Lease), Wait: durationOf(q.Wait)}
	for _, name := range q.Queues {
		req.Queues = append(req.Queues, &millracev1.QueueWeight{Name: name, Weight: weight(q.Weights[name])})
	}
	req.Strict = q.InOrder
	resp, err := c.claim(ctx, req)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	out := make([]Claimed, len(resp.Tasks))
	for i, a := range resp.Tasks {
		out[i] = Claimed{
			ID: a.Id, Token: a.Token, Queue: a.Queue, Kind: a.Kind, Attempt: int(a.Attempt), Payload: a.Payload,
			Headers: headerMap(a.Headers), LeaseUntil: now.Add(time.Duration(a.LeaseLeftMs) * time.Millisecond),
		}
	}
	return out, nil
}

// weight is a weight as a message has it: one that no message can have is refused by the server.
func weight(n int) uint32 {
	if n < 0 {
		return math.MaxUint32
	}
	return uint32(min(n, math.MaxUint32))
}

// claim asks one leader at a time, so that no lease is left behind: the one that is asked says who has ready tasks.
func (c *Client) claim(ctx context.Context, req *millracev1.ClaimRequest) (*millracev1.ClaimResponse, error) {
	ctx, r := c.routed(ctx, anywhere)
	began := time.Now()
	for try := 0; ; try++ {
		resp, err := c.tasks.Claim(ctx, req)
		if err == nil {
			return resp, nil
		}
		f := faultOf(err)
		if f.NoLeader() {
			c.router.Redirect(r, f.Refusal()) // for the next call
		}
		if f.Code != wire.NotLeader || f.Unknown || ctx.Err() != nil || c.isClosed() {
			return nil, errorOf(f)
		}
		moved := c.router.Redirect(r, f.Refusal())
		left := req.Wait.AsDuration() - time.Since(began)
		if moved && try < retry.Hops {
			if req.Wait != nil {
				req.Wait = durationpb.New(max(left, 0))
			}
			continue
		}
		pause := f.Wait(try)
		if pause >= left || !retry.Sleep(ctx, pause) {
			return nil, errorOf(f)
		}
		req.Wait = durationpb.New(max(left-pause, 0))
	}
}

// Complete ends a claimed task with a result, encoded as a job's would be. Repeated after a lost answer it is answered,
// not done again. A token that is no longer live is ErrLeaseLost.
func (c *Client) Complete(ctx context.Context, id string, token uint64, result any) (State, error) {
	b, kind, err := encode(c.opts.codec, result)
	if err != nil {
		return 0, err
	}
	return c.settle(ctx, "complete", &millracev1.SettleItem{
		Id: id, Token: token,
		Outcome: &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{Result: b, ResultType: kind}},
	})
}

// Failure is what a failed attempt reports.
type Failure struct {
	// Code is for programs, at most 64 B; Message is for people, at most 4 KiB.
	Code       string
	Message    string
	Fatal      bool           // no further attempt
	RetryAfter *time.Duration // wins over the policy; 0 = at once, at most 24 h
}

// Fail reports a failed attempt at a claimed task and returns the state it left the task in.
func (c *Client) Fail(ctx context.Context, id string, token uint64, f Failure) (State, error) {
	fail := &millracev1.Fail{Error: &millracev1.TaskError{Code: f.Code, Message: f.Message}, Fatal: f.Fatal}
	if f.RetryAfter != nil {
		fail.RetryAfter = durationpb.New(*f.RetryAfter)
	}
	return c.settle(ctx, "fail", &millracev1.SettleItem{Id: id, Token: token, Outcome: &millracev1.SettleItem_Fail{Fail: fail}})
}

// settle ends one claimed task, and returns the state that it is in then. op is the ledger's word for it.
func (c *Client) settle(ctx context.Context, op string, item *millracev1.SettleItem) (State, error) {
	line := ledger.Line{Op: op, ID: item.Id, Token: ledger.Token(item.Token), Invoke: c.hub.Ledger.Now()}
	var resp *millracev1.SettleResponse
	err := c.change(ctx, place.Of(item.Id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.tasks.Settle(ctx, &millracev1.SettleRequest{Items: []*millracev1.SettleItem{item}})
		return err
	})
	if err == nil && resp.Results[0].Error != nil {
		err = fromWire(resp.Results[0].Error)
	}
	c.record(line, resp.GetAt(), err)
	if err != nil {
		return 0, err
	}
	return State(resp.Results[0].State), nil
}
