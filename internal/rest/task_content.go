package rest

import (
	"context"
	"math"
	"net/http"
	"strconv"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Headers of answers that are the payload or the result of a task: how long it is as a whole, in bytes, its content type, and what a
// browser is to do with it.
const (
	headerSize        = "Millrace-Size"
	headerType        = "Millrace-Type"
	headerDisposition = "Content-Disposition"
)

// asFile makes a browser store an answer. Clients write what they like into payloads, results and values of keys, also pages with
// scripts, which must not run as pages of the server.
var asFile = []string{"attachment"}

// contentHeaders are those of both routes.
var contentHeaders = []string{headerSize, headerType, headerDisposition}

// payloadRoute answers with the payload of a task.
func payloadRoute() *Route {
	return &Route{
		Method: http.MethodGet, Path: "/v1/tasks/{id}/payload", Native: tasksService + "Get", Headers: contentHeaders, Status: statusOK,
		Query: []Param{{Name: "max", Type: "integer", Form: wholes(1, defaults.PayloadBytes), Doc: "Most bytes of the answer; default: the whole payload."}, minIndex, freshly},
		Doc:   "Read the payload of a task, byte for byte, or its beginning. The headers Millrace-Size and Millrace-Type are its whole length and its content type; the answer is an attachment, so that a browser does not show it.", handle: (*restCall).taskPayload,
	}
}

// outputRoute answers with the result of a task; /result waits for one.
func outputRoute() *Route {
	return &Route{
		Method: http.MethodGet, Path: "/v1/tasks/{id}/output", Native: tasksService + "Get", Headers: contentHeaders, Status: statusOK,
		Query: []Param{{Name: "max", Type: "integer", Form: wholes(1, defaults.ResultBytes), Doc: "Most bytes of the answer; default: the whole result."}, minIndex, freshly},
		Doc:   "Read the result of a task, byte for byte, or its beginning, with the headers of the payload. Not found: there is no such task, or it has no result.", handle: (*restCall).taskOutput,
	}
}

// readTask reads the request of the routes that read one task.
func (c *restCall) readTask() (*pb.GetRequest, core.Fact) {
	in := &pb.GetRequest{Id: c.params[0]}
	var fact core.Fact
	in.MinIndex, in.Stale, fact = c.readOptions()
	return in, fact
}

// getTask serves GET /v1/tasks/{id}.
// It is written by hand: a view is a word.
func (c *restCall) getTask() error {
	in, fact := c.readTask()
	if fact != nil {
		return fact
	}
	view, _ := c.query.get("view")
	in.Meta = view == "meta"
	out, err := c.s.Tasks().Get(c.ctx, in)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) {
		w.lean = in.GetMeta()
		writeTask(w, out.GetTask())
	})
}

// taskPayload serves GET /v1/tasks/{id}/payload.
// It is written by hand: the answer is the payload.
func (c *restCall) taskPayload() error {
	return c.taskContent("payload_bytes", c.s.Limits.PayloadBytes, c.s.Tasks().Payload)
}

// taskOutput serves GET /v1/tasks/{id}/output.
// It is written by hand: the answer is the result.
func (c *restCall) taskOutput() error {
	return c.taskContent("result_bytes", c.s.Limits.ResultBytes, c.s.Tasks().Output)
}

// taskContent answers with content that read gives. limit names the limit of max, which is top.
func (c *restCall) taskContent(limit string, top int64, read func(ctx context.Context, in *pb.GetRequest, most int) (api.Content, error)) error {
	in, fact := c.readTask()
	if fact != nil {
		return fact
	}
	most := math.MaxInt
	switch n, given, fact := c.number("max"); {
	case fact != nil:
		return fact
	case given && (n == 0 || n > uint64(top)):
		return edge.Beyond("max", limit, top, "is out of range")
	case given:
		most = int(n)
	}
	out, err := read(c.ctx, in, most)
	if err != nil {
		return err
	}
	c.showIndex(out.At)
	h := c.w.Header()
	h[headerSize] = []string{strconv.Itoa(out.Size)}
	h[headerType] = []string{out.Type}
	h[headerDisposition] = asFile
	return c.bytes(contentBytes, out.Bytes)
}
