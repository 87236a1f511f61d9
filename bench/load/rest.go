package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// restRun is the queue's load of one run through REST: one request per operation. Pumps and workers
// call its methods at once.
type restRun struct {
	rig *bench.Rig
	// http is the client of all goroutines.
	http *http.Client
	// The operations of a task, each of which is recorded by itself.
	create   *bench.Op
	claim    *bench.Op
	complete *bench.Op
	// body is the request of a create, and choose makes the next one; nil: all are body.
	body []byte
	// choose makes the body of the next create. Pumps call it at once; nil: every create has the
	// same body.
	choose func() []byte
	// claims is the request of a claim.
	claims []byte
	// requests counts what was sent.
	requests atomic.Uint64
}

// restTimeout bounds one request. restWait is how long a claim waits for a task, which is less.
const (
	restTimeout = 30 * time.Second
	restWait    = time.Second
)

// REST drives the queue through a standard HTTP client: pumps that create, and a goroutine for each
// slot of each worker that claims and completes.
func REST(ctx context.Context, rig *bench.Rig) error {
	r, err := newRESTRun(rig)
	if err != nil {
		return err
	}
	defer r.http.CloseIdleConnections()
	return r.run(ctx)
}

// newRESTRun makes a client with a connection for each goroutine, so that none waits for one.
func newRESTRun(rig *bench.Rig) (*restRun, error) {
	if rig.Servers[0].HTTP == "" {
		return nil, errors.New("the server has no REST door")
	}
	// The 8 more are a reserve.
	conns := max(rig.Shape.Loops(), rig.Concurrency) + rig.Shape.Workers*rig.Shape.Slots + 8
	transport := &http.Transport{MaxIdleConns: conns, MaxIdleConnsPerHost: conns, DisableCompression: true}
	r := &restRun{
		rig: rig, http: &http.Client{Transport: transport, Timeout: restTimeout},
		create: rig.Op("create"), claim: rig.Op("claim"), complete: rig.Op("complete"),
	}
	return r, r.bodies()
}

// run prefills, starts workers and pumps, measures and drains. Requests are counted over the window
// for their rate, and over the whole run for their number per operation.
func (r *restRun) run(ctx context.Context) error {
	rig := r.rig
	q := &queueRun{rig: rig, job: millrace.Job[[]byte, []byte](rig.Queue)}
	if err := q.prefill(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var workers sync.WaitGroup
	for i := range rig.Shape.Workers * rig.Shape.Slots {
		workers.Go(func() { r.work(working, i) })
	}
	done := rig.Generate(ctx, rig.Shape.Loops(), r.post)
	var before atomic.Uint64 // requests when the window began
	go func() {
		select {
		case <-rig.Began():
			before.Store(r.requests.Load())
		case <-working.Done():
		}
	}()
	err := rig.Measure(ctx)
	within := r.requests.Load() - before.Load()
	<-done
	if err == nil && rig.Shape.Workers > 0 {
		err = rig.Drain(ctx)
	}
	stop()
	workers.Wait()
	rig.Metric("requests_per_s", float64(within)/rig.Window.Seconds(), "requests/s")
	if ops := max(r.create.Acked(), r.complete.Acked()); ops > 0 {
		rig.Metric("requests_per_op", float64(r.requests.Load())/float64(ops), "requests")
	}
	return err
}

// bodies makes the requests that are sent over and over, once.
func (r *restRun) bodies() (err error) {
	create := map[string]any{"queue": r.rig.Queue, "payload": json.RawMessage(r.rig.Payload)}
	claim := map[string]any{"queues": []string{r.rig.Queue}, "max": 1, "wait": restWait.String(), "worker": "bench"}
	if l := r.rig.Shape.Lease; l > 0 {
		create["lease"], claim["lease"] = seconds(l), seconds(l)
	}
	if r.body, err = json.Marshal(create); err != nil {
		return err
	}
	r.claims, err = json.Marshal(claim)
	return err
}

// seconds prints a duration as the REST door takes it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }

// refusedError is an answer with a status other than success. The body is cut.
type refusedError struct {
	// status is that of HTTP.
	status int
	// body is the beginning of what the server said.
	body string
}

// errNoID says that a create was answered without an id.
var errNoID = errors.New("the answer to a create has no id")

// refused reports whether a server said that it did nothing. Without such an answer the outcome is unknown.
func refused(err error) bool {
	if _, ok := errors.AsType[*refusedError](err); ok {
		return true
	}
	e, ok := errors.AsType[*millrace.Error](err)
	return ok && e.Outcome == millrace.Refused
}

// Error tells the status and what the server said.
func (e *refusedError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.status, e.body) }

// call posts one request to the first server and reads its answer into out. none reports an answer
// without content (204).
func (r *restRun) call(ctx context.Context, path string, body []byte, out any) (none bool, err error) {
	r.requests.Add(1)
	return postJSON(ctx, r.http, r.rig, r.rig.Servers[0].HTTP+path, body, out)
}

// postJSON posts a request about the rig's namespace and reads its answer into out. none reports an answer
// without content (204). The body of any answer is read to its end, so that the connection is used again.
func postJSON(ctx context.Context, client *http.Client, rig *bench.Rig, target string, body []byte, out any) (none bool, err error) {
	target += "?ns=" + url.QueryEscape(rig.Namespace)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+rig.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end, or the connection is given up
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, err
	case resp.StatusCode == http.StatusNoContent:
		return true, nil
	case resp.StatusCode/100 != 2:
		return false, &refusedError{resp.StatusCode, string(b[:min(len(b), 1000)])}
	}
	return false, json.Unmarshal(b, out)
}

// post creates one task. An answer without an id is an error of unknown outcome.
func (r *restRun) post(ctx context.Context, p *bench.Pump) {
	var made struct {
		ID string `json:"id"`
	}
	body := r.body
	if r.choose != nil {
		body = r.choose()
	}
	_, err := r.call(ctx, "/v1/tasks", body, &made)
	if err == nil && made.ID == "" {
		err = errNoID
	}
	r.create.Record(p.Number, p.Intended, 1, err)
	switch {
	case err == nil:
		r.rig.Ledger.Created(made.ID)
	case !refused(err):
		r.rig.Ledger.CreateUnknown(1)
	}
}

// claimedTasks is the answer to a claim.
type claimedTasks struct {
	Tasks []struct {
		ID string `json:"id"`
		// The token is a string in JSON, because it may exceed what a double holds exactly.
		Token uint64 `json:"token,string"`
	} `json:"tasks"`
}

// work claims and completes until ctx ends. A claim that no task came of is asked again.
func (r *restRun) work(ctx context.Context, i int) {
	for ctx.Err() == nil {
		var got claimedTasks
		began := time.Now()
		none, err := r.call(ctx, "/v1/tasks:claim", r.claims, &got)
		// A claim that the end of the run has cut off is not recorded.
		if ctx.Err() != nil {
			return
		}
		if none {
			continue
		}
		r.claim.Record(i, began, len(got.Tasks), err)
		for _, t := range got.Tasks {
			r.settle(ctx, i, t.ID, t.Token)
		}
	}
}

// settle completes one task. Any failure leaves its outcome unknown.
func (r *restRun) settle(ctx context.Context, i int, id string, token uint64) {
	body := completion(token, r.rig.Result)
	began := time.Now()
	var done struct {
		Replayed bool `json:"replayed"`
	}
	_, err := r.call(ctx, "/v1/tasks/"+id+"/complete", body, &done)
	r.complete.Record(i, began, 1, err)
	if err != nil {
		r.rig.Ledger.CompleteUnknown(id, token)
		return
	}
	r.rig.Ledger.Completed(id, token, done.Replayed)
}

// completion is the request that completes a task.
func completion(token uint64, result []byte) []byte {
	return fmt.Appendf(nil, `{"token":"%d","result":%s}`, token, result)
}
