package rest

import (
	"net/http"
	"strconv"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/gen/openapi"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// getKey serves GET /v1/kv/{keyspace}/keys/{key}.
// It is written by hand: the answer is the value.
func (c *restCall) getKey() error {
	minIndex, stale, fact := c.readOptions()
	if fact != nil {
		return fact
	}
	keyspace, key := c.params[0], c.params[1]
	in := &pb.KVGetRequest{Keyspace: keyspace, Key: []byte(key), MinIndex: minIndex, Stale: stale}
	if in.MaxStaleness, fact = c.maxStaleness(); fact != nil {
		return fact
	}
	out, err := c.s.Keys().Get(c.ctx, in)
	if err != nil {
		return err
	}
	if !out.GetFound() {
		return core.NotFound{Kind: "key", ID: key}
	}
	c.showIndex(out.GetAt())
	h := c.w.Header()
	h[headerRev] = []string{strconv.FormatUint(out.GetRev(), 10)}
	if by := out.GetWriter(); by != nil {
		h[headerWriter] = []string{by.GetTask() + " " + strconv.FormatUint(by.GetToken(), 10)}
	}
	h[headerDisposition] = asFile
	return c.bytes(contentBytes, out.GetValue())
}

// bytes answers with bytes as they are.
func (c *restCall) bytes(contentType []string, b []byte) error {
	c.head(http.StatusOK, contentType, len(b))
	if _, err := c.w.Write(b); err != nil {
		return errGone
	}
	return nil
}

// setQueue serves PUT /v1/queues/{queue}. It is 201 for a queue that had no configuration of its own before.
// It is written by hand: it says whether the queue is new.
func (c *restCall) setQueue() error {
	in := &pb.SetQueueRequest{Queue: c.params[0], Config: new(pb.QueueConfig)}
	var fact core.Fact
	if in.IfVersion, fact = c.ifMatch(); fact != nil {
		return fact
	}
	if err := readBody(c, in.GetConfig(), queueConfigFields); err != nil {
		return err
	}
	status := http.StatusOK
	// Asked before the change. Of two changes at once both may say that they made the queue; nothing
	// depends on it.
	before, err := c.s.Queues().Get(c.ctx, &pb.GetQueueRequest{Queue: c.params[0]})
	if edge.Is[core.NotFound](err) || before.GetConfig().GetVersion() == 0 && err == nil {
		status = http.StatusCreated
	}
	out, err := c.s.Queues().Set(c.ctx, in)
	if err != nil {
		return edge.Unprefixed("config", err)
	}
	if out.GetVersion() == 0 {
		status = http.StatusOK // nothing changed
	}
	return c.configured(status, out.GetVersion(), out.GetAt())
}

// configured answers a change of a configuration.
func (c *restCall) configured(status int, version uint64, at *pb.At) error {
	c.tag(version)
	return c.ok(status, at, func(w *jsonWriter) {
		w.Exact("version", version)
		w.Exact("index", at.GetIndex())
	})
}

// tag tells the version of a configuration.
func (c *restCall) tag(version uint64) {
	c.w.Header()["Etag"] = []string{`"` + strconv.FormatUint(version, 10) + `"`}
}

// ifMatch reads the version that a change expects, in the quotes of an ETag or without.
func (c *restCall) ifMatch() (*uint64, core.Fact) {
	values := c.r.Header["If-Match"]
	if len(values) == 0 {
		return nil, nil
	}
	s := values[0]
	// A version that came as an ETag is sent back as one. Without quotes it is taken too, as people
	// write it.
	bare, quoted := strings.CutPrefix(s, `"`)
	if quoted {
		bare, quoted = strings.CutSuffix(bare, `"`)
	}
	n, wrong := strictjson.ParseUnsigned(bare)
	if len(values) > 1 || wrong != "" || quoted != (bare != s) {
		return nil, edge.Invalid("If-Match", "must be a version, such as \"3\"")
	}
	return &n, nil
}

// status serves GET /v1/status.
// It is written by hand: what is told depends on who asks.
func (c *restCall) status() error {
	out, err := c.s.Info().Status(c.ctx, new(pb.StatusRequest))
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		// Counters of the node are of all tenants: only an operator sees them.
		w.lean = !api.SeesNode(c.who.Principal)
		writeStatusResponse(w, out)
	})
}

// openAPI serves GET /v1/openapi.json.
// The document is a part of the program, so it always describes what this server does.
func (c *restCall) openAPI() error { return c.bytes(contentJSON, openapi.Document) }
