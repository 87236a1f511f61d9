package millrace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/record"
	"github.com/millrace/millrace/sdk/go/internal/session"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Recorder stands for a server in tests of code that uses a Client. It keeps in memory what the client adds and commits, shows it, and
// runs the handlers of a worker on it. Nothing is dialled, and the environment has no part in it. It may be used by many goroutines.
//
// It judges tasks and keys as a server does: ids and unique keys, IfAbsent, IfRev, Check, the bounds of KV.Add, Tx.Fence, all of a Tx or
// nothing. It has one partition, and judges neither limits nor rights. Time does not pass in it: Drain does not wait for In, Snooze or
// RetryIn, and a unique key stays taken. It keeps changes of refs and of collections, and pauses of queues, for Effects, and does
// nothing with them. What else only a server does, such as lists, searches, reads of refs and claims, is ErrInvalid with the reason
// recorder. Worker.Run ends with that error too: Drain takes its place.
type Recorder struct {
	peer   *record.Server
	client *Client
}

// Addresses of a Recorder's client. They are names alone.
const (
	recorderAddress = "recorder:1"
	recorderREST    = "rest.recorder:1"
)

// NewRecorder makes a Recorder. Of opts those count that do not say how a server is reached: DefaultCodec, Logger, Ledger, Namespace.
// Close ends it, such as by t.Cleanup.
func NewRecorder(opts ...Option) *Recorder {
	r := &Recorder{peer: record.New()}
	o, err := optionsOver(func(string) string { return "" }, append(opts[:len(opts):len(opts)], dialFunc(func(o *options) {
		o.address, o.rest, o.transport, o.token = recorderAddress, recorderREST, TransportStream, ""
		o.tls, o.insecure, o.dial, o.dials = nil, true, r.dial, true
	})))
	if err == nil {
		r.client, err = newClient(o)
	}
	if err != nil {
		panic(err) // all that can be refused is set above
	}
	return r
}

// dial makes the connections of the client.
func (r *Recorder) dial(ctx context.Context, address string) (net.Conn, error) {
	if address != recorderAddress {
		return nil, fromWire(record.Lacking("REST"))
	}
	return r.peer.Dial(ctx)
}

// Client returns the client, for the code under test. It may be closed; what the Recorder shows stays.
func (r *Recorder) Client() *Client { return r.client }

// Close closes the client and ends what the Recorder runs in the background. What it shows stays. The error is always nil.
func (r *Recorder) Close() error {
	err := r.client.Close()
	r.peer.Close()
	return err
}

// Tasks returns all tasks as they are now, in the order in which they were added, those of transactions and effects too.
func (r *Recorder) Tasks() []*TaskInfo {
	var out []*TaskInfo
	for _, t := range r.peer.Tasks() {
		out = append(out, taskInfo(t, nil))
	}
	return out
}

// Added returns the arguments of the tasks of job j that r has, in the order in which they were added. It panics if a task's payload is
// not one of the job: then another job has its name.
func Added[A, R any](r *Recorder, j *JobOf[A, R]) []A {
	var out []A
	for _, t := range r.peer.Tasks() {
		if t.Kind != j.settings.kind {
			continue
		}
		var args A
		if err := decode(j.codecOr(r.client.opts.codec), t.Payload, t.ContentType, &args); err != nil {
			panic(fmt.Sprintf("arguments of %s %s: %v", t.Kind, t.Id, err)) // a mistake of the test, which no caller could mend
		}
		out = append(out, args)
	}
	return out
}

// Effects returns what was changed by commits, and by completions that Drain made, in order, each change in the form that TestRun.Effects
// has. Tasks that were added by themselves are not among it: see Added.
func (r *Recorder) Effects() []json.RawMessage { return effectLines(r.peer.Ops()) }

// RecordedRun is what one attempt came to that Drain made. Result is as the codec of its job encoded it.
type RecordedRun struct {
	ID      string // of the task
	Queue   string
	Kind    string
	Attempt int // from 1
	TestRun[[]byte]
}

// Drain runs the tasks of w's queues that w has a handler for, in the order in which they were added, one after the other, with those
// that are added meanwhile. An attempt that fails is followed by the next one at once, up to the task's Attempts. A task that is snoozed
// or released waits for the next call of Drain. Effects are applied when the attempt completes; when they are refused, OnRefused is
// asked, or the attempt fails. w must be of the Recorder's client; it needs no Run.
//
// It returns what each attempt came to. Its error is for a worker that cannot run, and for a ctx that ends, which is the handlers' too:
// an attempt that it ends is given back.
func (r *Recorder) Drain(ctx context.Context, w *Worker) ([]RecordedRun, error) {
	if w.c != r.client {
		return nil, errors.New("drain: the worker is of another client than the recorder's")
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	d := drain{r: r, w: w, put: map[string]bool{}}
	takes := func(kind string) bool { return w.handlers[kind] != nil || w.other != nil }
	for {
		if ctx.Err() != nil {
			return d.runs, context.Cause(ctx)
		}
		t := d.next(ctx, takes)
		switch {
		case t == nil:
			return d.runs, nil
		case w.batches[t.Kind] != nil:
			d.batch(ctx, t)
		default:
			h := w.handlers[t.Kind]
			if h == nil {
				h = w.other
			}
			result, contentType, err := invoke(h, t)
			d.settle(t, result, contentType, err)
		}
	}
}

// DrainOnWait makes calls that wait for a task, such as Handle.Wait, drain w first, in place of an error for a task that has not ended.
// It is for code that adds a task and waits for it. What Drain refuses, the call that waits ends with.
func (r *Recorder) DrainOnWait(w *Worker) {
	r.peer.OnWait(func(ctx context.Context) error {
		_, err := r.Drain(ctx, w)
		return err
	})
}

// drain is one call of Recorder.Drain.
type drain struct {
	r    *Recorder
	w    *Worker
	put  map[string]bool // tasks that were snoozed or released
	runs []RecordedRun
}

// next begins the next attempt; nil: no task waits.
func (d *drain) next(ctx context.Context, takes func(kind string) bool) *Task {
	a := d.r.peer.Next(d.w.queues, takes, d.put)
	if a == nil {
		return nil
	}
	t := newTask(d.w, a)
	t.at.Lease, t.at.Queue, t.at.Kind, t.at.Number = wire.Lease{ID: a.Id, Token: a.Token}, a.Queue, a.Kind, a.Attempt
	t.at.Bare(ctx)
	return t
}

// batch runs a task and the others of its kind that wait, as many as its handler takes.
func (d *drain) batch(ctx context.Context, first *Task) {
	b := d.w.batches[first.Kind]
	tasks := []*Task{first}
	for len(tasks) < b.n {
		t := d.next(ctx, func(kind string) bool { return kind == first.Kind })
		if t == nil {
			break
		}
		tasks = append(tasks, t)
	}
	outcome := b.invoke(ctx, append([]*Task(nil), tasks...)) // the handler may change its slice
	for i, t := range tasks {
		result, err := outcome(i)
		d.settle(t, result, cmp.Or(t.ResultType, typeBytes), err)
	}
}

// settle ends an attempt as its handler says, asks OnRefused when its effects are refused, and notes what it came to.
func (d *drain) settle(t *Task, result []byte, contentType string, err error) {
	defer t.at.End(nil)
	for {
		if err != nil && t.at.Context().Err() != nil {
			err = Release() // as a worker whose time to drain is over
		}
		err = t.settle(result, contentType, err)
		out := t.outcome(err)
		failed, refusal := d.r.peer.Settle(t.at.Item())
		refused := fault.FromWire(refusal)
		switch {
		case failed:
			out = TestRun[[]byte]{Settle: "fail", Err: errorOf(refused)}
			refused = nil
		case refused != nil && out.Settle == "complete" && t.onRefused != nil:
			err = invokeRefused(t, errorOf(refused))
			continue
		case refused != nil: // no server takes it: as a worker's, the attempt fails in place of it
			t.at.Fail(session.Failure{Code: refused.Code, Message: refused.Text()})
			_, _ = d.r.peer.Settle(t.at.Item()) // which refuses no failure
			out, refused = TestRun[[]byte]{Settle: "fail", Err: errorOf(refused)}, nil
		}
		runner{d.w}.Settled(t.engine(), out.Settle, false, refused)
		d.put[t.ID] = out.Settle == "snooze" || out.Settle == "release"
		d.runs = append(d.runs, RecordedRun{ID: t.ID, Queue: t.Queue, Kind: t.Kind, Attempt: t.Attempt, TestRun: out})
		return
	}
}
