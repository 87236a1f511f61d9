package rest

import (
	"mime"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// Bodies of requests, as tables from a field's name to how it is read. A field that holds any bytes has two names, of
// which one may be given: NAME is a JSON value of the client's own for payloads and results, and text for keys and
// values; NAME_base64 is any bytes.

// Names of the numbers of an enumeration, by number.
var (
	stateWords    = []string{"", "blocked", "scheduled", "ready", "running", "completed", "dead", "cancelled"}
	outcomeWords  = []string{"", "completed", "failed", "timeout", "crashed", "snoozed", "released", "cancelled"}
	backoffWords  = []string{"", "fixed", "linear", "exponential", "full_jitter", "equal_jitter"}
	untilWords    = []string{"ttl", "start", "terminal"}
	conflictWords = []string{"return", "reject", "replace"}
	compareWords  = []string{"", "exists", "absent", "equal", "not_equal", "less", "greater"}
)

// content is the payload of a task, or a result, while it is read.
type content struct {
	bytes []byte
	raw   bool // it is a JSON value of the document
}

func (c *content) readRaw(d *jsonReader) {
	c.once(d)
	c.bytes, c.raw = d.Raw(), true
}

func (c *content) readBase64(d *jsonReader) {
	c.once(d)
	c.bytes = d.Base64()
}

func (c *content) once(d *jsonReader) {
	if c.bytes != nil {
		d.Refuse("must be given only once, as JSON or as base64")
	}
}

// check refuses JSON whose type says that it is something else.
func (c *content) check(d *jsonReader, field, contentType string) {
	if c.raw && !jsonType(contentType) {
		d.RefuseField(field, "is JSON, which its type is not; give "+field+"_base64")
	}
}

// jsonType says whether a content type is one of JSON; the empty one is.
func jsonType(s string) bool {
	if s == "" || s == "application/json" {
		return true
	}
	t, _, err := mime.ParseMediaType(s)
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json"))
}

// anyBytes reads text, or base64, into a field that holds any bytes and was not given yet.
func (d *jsonReader) anyBytes(m *[]byte, base64 bool) {
	switch {
	case *m != nil:
		d.Refuse("must be given only once, as text or as base64")
	case base64:
		*m = d.Base64()
	default:
		*m = []byte(d.Text())
	}
}

type taskBody struct {
	*pb.TaskSpec
	payload content
}

var taskFields = append([]jsonField[taskBody]{
	{"id", func(d *jsonReader, m *taskBody) { m.Id = d.Filled() }},
	{"queue", func(d *jsonReader, m *taskBody) { m.Queue = d.Text() }},
	{"kind", func(d *jsonReader, m *taskBody) { m.Kind = d.Filled() }},
	{"payload", func(d *jsonReader, m *taskBody) { m.payload.readRaw(d) }},
	{"payload_base64", func(d *jsonReader, m *taskBody) { m.payload.readBase64(d) }},
	{"content_type", func(d *jsonReader, m *taskBody) { m.ContentType = d.Text() }},
	{"headers", func(d *jsonReader, m *taskBody) {
		d.Array("headers", d.l.Headers, func() { m.Headers = append(m.Headers, readNew(d, headerFields)) })
	}},
	{"priority", func(d *jsonReader, m *taskBody) { m.Priority = d.Uint32() }},
	{"run_at", func(d *jsonReader, m *taskBody) { m.RunAt = d.time() }},
	{"delay", func(d *jsonReader, m *taskBody) { m.Delay = d.duration() }},
	{"max_attempts", func(d *jsonReader, m *taskBody) { m.MaxAttempts = d.Int32() }},
	{"max_crashes", func(d *jsonReader, m *taskBody) { m.MaxCrashes = d.Int32() }},
	{"max_deliveries", func(d *jsonReader, m *taskBody) { m.MaxDeliveries = new(d.Int32()) }},
	{"lease", func(d *jsonReader, m *taskBody) { m.Lease = d.duration() }},
	{"max_run", func(d *jsonReader, m *taskBody) { m.MaxRun = d.duration() }},
	{"retry", func(d *jsonReader, m *taskBody) { m.Retry = readNew(d, retryFields) }},
	{"unique", func(d *jsonReader, m *taskBody) { m.Unique = readNew(d, uniqueFields) }},
	{"tag", func(d *jsonReader, m *taskBody) { m.Tag = d.Filled() }},
}, reservedFields[taskBody]("labels", "key", "cost", "expires_at", "after", "webhook")...)

// reservedFields are fields that are refused until they are built.
func reservedFields[T any](names ...string) []jsonField[T] {
	out := make([]jsonField[T], len(names))
	for i, name := range names {
		out[i] = jsonField[T]{name: name}
	}
	return out
}

// readNew reads an object into a message of its own.
func readNew[T any](d *jsonReader, fields []jsonField[T]) *T {
	m := new(T)
	readObject(d, m, fields)
	return m
}

func readTask(d *jsonReader) *pb.TaskSpec {
	b := taskBody{TaskSpec: new(pb.TaskSpec)}
	readObject(d, &b, taskFields)
	b.payload.check(d, "payload", b.ContentType)
	b.Payload = b.payload.bytes
	return b.TaskSpec
}

var headerFields = []jsonField[pb.Header]{
	{"name", func(d *jsonReader, m *pb.Header) { m.Name = d.Text() }},
	{"value", func(d *jsonReader, m *pb.Header) { m.Value = d.Text() }},
}

var retryFields = []jsonField[pb.Retry]{
	{"backoff", func(d *jsonReader, m *pb.Retry) { m.Backoff = pb.Backoff(d.OneOf(backoffWords)) }},
	{"base", func(d *jsonReader, m *pb.Retry) { m.Base = d.duration() }},
	{"factor", func(d *jsonReader, m *pb.Retry) { m.Factor = d.Float() }},
	{"max", func(d *jsonReader, m *pb.Retry) { m.Max = d.duration() }},
}

var uniqueFields = []jsonField[pb.Unique]{
	{"key", func(d *jsonReader, m *pb.Unique) { m.Key = d.Text() }},
	{"until", func(d *jsonReader, m *pb.Unique) { m.Until = pb.Unique_Until(d.OneOf(untilWords)) }},
	{"ttl", func(d *jsonReader, m *pb.Unique) { m.Ttl = d.duration() }},
	{"on_conflict", func(d *jsonReader, m *pb.Unique) { m.OnConflict = pb.Unique_OnConflict(d.OneOf(conflictWords)) }},
}

var batchFields = []jsonField[pb.BatchCreateRequest]{
	{"tasks", func(d *jsonReader, m *pb.BatchCreateRequest) {
		d.Array("frame_items", d.l.FrameItems, func() { m.Tasks = append(m.Tasks, readTask(d)) })
	}},
	{"atomic", func(d *jsonReader, m *pb.BatchCreateRequest) { m.Atomic = d.Boolean() }},
}

var claimFields = []jsonField[pb.ClaimRequest]{
	{"queues", func(d *jsonReader, m *pb.ClaimRequest) {
		d.Array("claim_queues", d.l.ClaimQueues, func() { m.Queues = append(m.Queues, readQueueWeight(d)) })
	}},
	{"max", func(d *jsonReader, m *pb.ClaimRequest) { m.Max = d.Uint32() }},
	{"lease", func(d *jsonReader, m *pb.ClaimRequest) { m.Lease = d.duration() }},
	{"wait", func(d *jsonReader, m *pb.ClaimRequest) { m.Wait = d.duration() }},
	{"worker", func(d *jsonReader, m *pb.ClaimRequest) { m.Worker = d.Text() }},
	{"partition", func(d *jsonReader, m *pb.ClaimRequest) { m.Partition = new(d.Uint32()) }},
}

// readQueueWeight reads a queue's name, or an object of name and weight.
func readQueueWeight(d *jsonReader) *pb.QueueWeight {
	if d.Fact() == nil && d.Peek() == '"' {
		return &pb.QueueWeight{Name: d.Text()}
	}
	return readNew(d, queueWeightFields)
}

var queueWeightFields = []jsonField[pb.QueueWeight]{
	{"name", func(d *jsonReader, m *pb.QueueWeight) { m.Name = d.Text() }},
	{"weight", func(d *jsonReader, m *pb.QueueWeight) { m.Weight = d.Uint32() }},
}

var holdFields = []jsonField[pb.Hold]{
	{"id", func(d *jsonReader, m *pb.Hold) { m.Id = d.Text() }},
	{"token", func(d *jsonReader, m *pb.Hold) { m.Token = d.Unsigned() }},
}

var heartbeatFields = []jsonField[pb.HeartbeatRequest]{
	{"items", func(d *jsonReader, m *pb.HeartbeatRequest) {
		d.Array("frame_items", d.l.FrameItems, func() { m.Items = append(m.Items, readNew(d, holdFields)) })
	}},
	{"extend", func(d *jsonReader, m *pb.HeartbeatRequest) { m.Extend = d.duration() }},
}

// heartbeatOneFields are the body of one task's heartbeat.
var heartbeatOneFields = []jsonField[pb.HeartbeatRequest]{
	{"token", func(d *jsonReader, m *pb.HeartbeatRequest) { m.Items = []*pb.Hold{{Token: d.Unsigned()}} }},
	{"extend", func(d *jsonReader, m *pb.HeartbeatRequest) { m.Extend = d.duration() }},
}

// Settles. Each outcome is an object of its own in a batch, and the body itself on the routes of one task.

type completeBody struct {
	*pb.Complete
	result content
}

var completeFields = []jsonField[completeBody]{
	{"result", func(d *jsonReader, m *completeBody) { m.result.readRaw(d) }},
	{"result_base64", func(d *jsonReader, m *completeBody) { m.result.readBase64(d) }},
	{"result_type", func(d *jsonReader, m *completeBody) { m.ResultType = d.Text() }},
}

func readComplete(d *jsonReader) *pb.Complete {
	b := completeBody{Complete: new(pb.Complete)}
	readObject(d, &b, completeFields)
	b.finish(d)
	return b.Complete
}

func (m *completeBody) finish(d *jsonReader) {
	m.result.check(d, "result", m.ResultType)
	m.Result = m.result.bytes
}

var failFields = []jsonField[pb.Fail]{
	{"error", func(d *jsonReader, m *pb.Fail) { m.Error = readNew(d, taskErrorFields) }},
	{"fatal", func(d *jsonReader, m *pb.Fail) { m.Fatal = d.Boolean() }},
	{"retry_after", func(d *jsonReader, m *pb.Fail) { m.RetryAfter = d.duration() }},
}

var taskErrorFields = []jsonField[pb.TaskError]{
	{"code", func(d *jsonReader, m *pb.TaskError) { m.Code = d.AnyText() }},
	{"message", func(d *jsonReader, m *pb.TaskError) { m.Message = d.AnyText() }},
	{"stack", func(d *jsonReader, m *pb.TaskError) { m.Stack = d.AnyText() }},
}

var snoozeFields = []jsonField[pb.Snooze]{
	{"until", func(d *jsonReader, m *pb.Snooze) { m.Until = d.time() }},
	{"delay", func(d *jsonReader, m *pb.Snooze) { m.Delay = d.duration() }},
}

var settleFields = []jsonField[pb.SettleRequest]{
	{"items", func(d *jsonReader, m *pb.SettleRequest) {
		d.Array("frame_items", d.l.FrameItems, func() { m.Items = append(m.Items, readNew(d, settleItemFields)) })
	}},
}

var settleItemFields = []jsonField[pb.SettleItem]{
	{"id", func(d *jsonReader, m *pb.SettleItem) { m.Id = d.Text() }},
	{"token", readToken},
	{"complete", func(d *jsonReader, m *pb.SettleItem) {
		oneOutcome(d, m)
		m.Outcome = &pb.SettleItem_Complete{Complete: readComplete(d)}
	}},
	{"fail", func(d *jsonReader, m *pb.SettleItem) {
		oneOutcome(d, m)
		m.Outcome = &pb.SettleItem_Fail{Fail: readNew(d, failFields)}
	}},
	{"snooze", func(d *jsonReader, m *pb.SettleItem) {
		oneOutcome(d, m)
		m.Outcome = &pb.SettleItem_Snooze{Snooze: readNew(d, snoozeFields)}
	}},
	{"release", func(d *jsonReader, m *pb.SettleItem) {
		oneOutcome(d, m)
		m.Outcome = &pb.SettleItem_Release{Release: readNew(d, []jsonField[pb.Release]{})}
	}},
	{"effects", readEffects},
}

func oneOutcome(d *jsonReader, m *pb.SettleItem) {
	if m.Outcome != nil {
		d.Refuse("must be the only outcome")
	}
}

func readToken(d *jsonReader, m *pb.SettleItem)   { m.Token = d.Unsigned() }
func readEffects(d *jsonReader, m *pb.SettleItem) { m.Effects = readNew(d, effectsFields) }

// oneBody is the body of a route that settles one task: the item, and the outcome whose fields stand next to the token.
type oneBody[T any] struct {
	item    *pb.SettleItem
	outcome T
}

// besideToken makes the fields of such a body.
func besideToken[T any](fields []jsonField[T], more ...jsonField[pb.SettleItem]) []jsonField[oneBody[T]] {
	var out []jsonField[oneBody[T]]
	for _, f := range append([]jsonField[pb.SettleItem]{{"token", readToken}}, more...) {
		out = append(out, jsonField[oneBody[T]]{f.name, func(d *jsonReader, m *oneBody[T]) { f.read(d, m.item) }})
	}
	for _, f := range fields {
		out = append(out, jsonField[oneBody[T]]{f.name, func(d *jsonReader, m *oneBody[T]) { f.read(d, &m.outcome) }})
	}
	return out
}

var (
	completeOneFields = besideToken(completeFields, jsonField[pb.SettleItem]{"effects", readEffects})
	failOneFields     = besideToken(failFields)
	snoozeOneFields   = besideToken(snoozeFields)
	releaseOneFields  = besideToken([]jsonField[pb.Release]{})
)
