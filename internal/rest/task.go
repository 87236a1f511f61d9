package rest

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// readBody reads the body of a request as one object.
func readBody[T any](c *restCall, m *T, fields []jsonField[T]) error {
	b, err := c.body()
	if err != nil {
		return err
	}
	if fact := decodeJSON(b, &c.s.Limits, m, fields); fact != nil {
		return fact
	}
	return nil
}

// readIfGiven is readBody of a request whose body may be left out.
func readIfGiven[T any](c *restCall, m *T, fields []jsonField[T]) error {
	b, err := c.body()
	if err != nil || len(b) == 0 {
		return err
	}
	if fact := decodeJSON(b, &c.s.Limits, m, fields); fact != nil {
		return fact
	}
	return nil
}

// readWhole reads the body of a request as one message.
func readWhole[T any](c *restCall, read func(d *jsonReader) *T) (*T, error) {
	b, err := c.body()
	if err != nil {
		return nil, err
	}
	d := newJSONReader(b, &c.s.Limits)
	m := read(d)
	d.End()
	if d.Fact() != nil {
		return nil, d.Fact()
	}
	return m, nil
}

// create serves POST /v1/tasks.
// It is written by hand: it has a key in a header, and tells where the task is.
func (c *restCall) create() error {
	b, err := c.body()
	if err != nil {
		return err
	}
	d := newJSONReader(b, &c.s.Limits)
	spec := readTaskSpec(d)
	d.End()
	if d.Fact() != nil {
		return d.Fact()
	}
	// It becomes a unique key, so that the queue remembers it as long as one.
	key, fact := c.idempotencyKey(spec)
	if fact != nil {
		return fact
	}
	out, err := c.s.Tasks().CreateKeyed(c.ctx, spec, key != "")
	if err != nil {
		return edge.Unprefixed("task", err)
	}
	// The same key for another task is a mistake of the client: it must not take the first task for its
	// own.
	if key != "" && out.GetReplayed() && !out.GetPayloadMatches() {
		return core.AlreadyExists{Kind: "Idempotency-Key", ID: key}
	}
	status := http.StatusCreated
	if out.GetReplayed() || out.GetReplaced() {
		status = http.StatusOK
	}
	// Where the task is read from, in the namespace of the request.
	c.w.Header()["Location"] = []string{c.location("/v1/tasks/" + out.GetId())}
	return c.ok(status, out.GetAt(), func(w *jsonWriter) { writeCreateResponse(w, out) })
}

// location is a path within the namespace of the request.
// The namespace stands in it where the request named one: without it the address would lead to another
// task.
func (c *restCall) location(path string) string {
	if ns, ok := c.query.get("ns"); ok {
		return path + "?ns=" + url.QueryEscape(ns)
	}
	return path
}

// idempotencyKey reads the header of that name, which is like a unique key with the default window, in a space of its own.
func (c *restCall) idempotencyKey(spec *pb.TaskSpec) (string, core.Fact) {
	const name = headerKey
	values := c.r.Header[name]
	switch {
	case len(values) == 0:
		return "", nil
	case values[0] == "":
		return "", edge.Invalid(name, "must not be empty")
	case spec.GetUnique() != nil:
		return "", edge.Invalid(name, "and unique are mutually exclusive")
	}
	if fact := api.TextUpTo(name, values[0], "unique_key_bytes", c.s.Limits.UniqueKeyBytes); fact != nil {
		return "", fact
	}
	// The service keeps such keys apart from those that clients name as unique keys.
	spec.Unique = &pb.Unique{Key: values[0]}
	return values[0], nil
}

// readOptions reads how fresh a read must be.
func (c *restCall) readOptions() (minIndex uint64, stale bool, fact core.Fact) {
	if minIndex, _, fact = c.number("min_index"); fact != nil {
		return 0, false, fact
	}
	return minIndex, c.stale(), nil
}

// stale reads whether an answer may be what this node has.
func (c *restCall) stale() bool {
	s, _ := c.query.get("consistency")
	return s == "stale"
}

// number reads a parameter that is a number; 0 where it is not given.
func (c *restCall) number(name string) (n uint64, given bool, fact core.Fact) {
	s, given := c.query.get(name)
	if !given {
		return 0, false, nil
	}
	n, wrong := strictjson.ParseUnsigned(s)
	if wrong != "" {
		return 0, true, edge.Invalid(name, wrong)
	}
	return n, true, nil
}

// firstBytes reads how many of the first bytes of contents are asked for; 0: the parameter is not given.
func (c *restCall) firstBytes() (uint32, core.Fact) {
	n, given, fact := c.number("head")
	if fact == nil && given && n == 0 {
		fact = edge.Invalid("head", "must be at least 1")
	}
	return uint32(min(n, math.MaxInt32)), fact
}

// page reads the parameters of a page.
func (c *restCall) page() (limit uint32, cursor string, fact core.Fact) {
	cursor, _ = c.query.get("cursor")
	n, given, fact := c.number("limit")
	switch {
	case fact != nil:
		return 0, "", fact
	case !given:
		return 0, cursor, nil
	// A page of more is refused, and not cut: a client would take the end of a page for the end of the
	// list.
	case n == 0 || n > uint64(c.s.Limits.ListItems):
		return 0, "", edge.Beyond("limit", "list_items", c.s.Limits.ListItems, "is out of range")
	}
	return uint32(n), cursor, nil
}

// listTasks serves GET /v1/tasks.
// It is written by hand: tasks of a list are written without payload and result.
func (c *restCall) listTasks() error {
	in := new(pb.ListRequest)
	var fact core.Fact
	if in.Limit, in.Cursor, fact = c.page(); fact != nil {
		return fact
	}
	if in.Head, fact = c.firstBytes(); fact != nil {
		return fact
	}
	in.Queue, _ = c.query.get("queue")
	if s, ok := c.query.get("state"); ok {
		// The word is one of the parameter's set: that was checked before.
		state, _ := core.ParseState(s)
		in.State = pb.State(state)
	}
	order, _ := c.query.get("order")
	in.Desc = order == "desc"
	in.Kind, _ = c.query.get("kind")
	in.Worker, _ = c.query.get("worker")
	in.Unique, _ = c.query.get("unique")
	in.Fingerprint, _ = c.query.get("fingerprint")
	in.Batch, _ = c.query.get("batch")
	in.Label = c.query.values["label"]
	in.Stale = c.stale()
	if in.From, fact = c.moment("from"); fact != nil {
		return fact
	}
	if in.To, fact = c.moment("to"); fact != nil {
		return fact
	}
	out, err := c.s.Tasks().List(c.ctx, in)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) {
		w.lean = true
		writeListResponse(w, out)
	})
}

// getTasks serves POST /v1/tasks:get.
func (c *restCall) getTasks() error {
	in := new(pb.BatchGetRequest)
	if err := readBody(c, in, batchGetRequestFields); err != nil {
		return err
	}
	out, err := c.s.Tasks().BatchGet(c.ctx, in)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) {
		w.lean = true
		writeBatchGetResponse(w, out)
	})
}

// moment reads a time of the query.
func (c *restCall) moment(name string) (*timestamppb.Timestamp, core.Fact) {
	s, ok := c.query.get(name)
	if !ok {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return nil, edge.Invalid(name, "must be a time of RFC 3339, such as 2026-01-31T08:00:00Z")
	}
	return timestamppb.New(at), nil
}

// span reads a duration, in the form that durations in bodies have.
func (c *restCall) span(name string) (*durationpb.Duration, core.Fact) {
	s, ok := c.query.get(name)
	if !ok {
		return nil, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return nil, edge.Invalid(name, strictjson.NotDuration)
	}
	return durationpb.New(d), nil
}

// wait reads how long a caller waits.
func (c *restCall) wait() (time.Duration, core.Fact) {
	d, fact := c.span("wait")
	if fact != nil {
		return 0, fact
	}
	ms, fact := api.Millis("wait", d, api.Span{Max: c.s.Limits.ResultWaitMs, Limit: "result_wait_ms"})
	return ms.Duration(), fact
}

// result serves GET /v1/tasks/{id}/result: it is woken when the task ends, and answers with how it stands when the time
// is over.
// It is written by hand: it waits.
func (c *restCall) result() error {
	wait, fact := c.wait()
	if fact != nil {
		return fact
	}
	task, at, err := c.waitFor(wait)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, at, func(w *jsonWriter) {
		writeResult(w, task)
		w.Exact("index", at.GetIndex())
	})
}

// waitFor waits for the end of a task, or reads how it stands once the time is over.
func (c *restCall) waitFor(wait time.Duration) (*pb.Task, *pb.At, error) {
	if wait > 0 {
		ctx, cancel := context.WithTimeout(c.ctx, wait)
		defer cancel()
		out, err := c.s.Tasks().Wait(ctx, &pb.WaitRequest{Id: c.params[0]})
		if err == nil {
			return out.GetTask(), out.GetAt(), nil
		}
		// The time of the wait is over, not that of the request.
		over := errors.Is(ctx.Err(), context.DeadlineExceeded) && c.ctx.Err() == nil
		if !over || edge.Is[core.NotFound](err) {
			return nil, nil, err
		}
	}
	out, err := c.s.Tasks().Get(c.ctx, &pb.GetRequest{Id: c.params[0]})
	return out.GetTask(), out.GetAt(), err
}
