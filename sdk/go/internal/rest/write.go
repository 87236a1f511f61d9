package rest

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// restBody appends the JSON of one request. Fields that say their default are left out. Payloads, results, keys and
// values go as base64: any bytes then arrive as they are, whatever their type says.
type restBody struct {
	b     []byte
	comma bool // the next element needs one before it
}

// restDocument makes a document of one object.
func restDocument(room int, fields func(w *restBody)) []byte {
	w := &restBody{b: make([]byte, 0, room)}
	w.braces(func() { fields(w) })
	return w.b
}

func (w *restBody) sep() {
	if w.comma {
		w.b = append(w.b, ',')
	}
	w.comma = false
}

func (w *restBody) braces(fields func()) {
	w.sep()
	w.b = append(w.b, '{')
	fields()
	w.b = append(w.b, '}')
	w.comma = true
}

// key begins a field. Names are this package's own and need no escapes.
func (w *restBody) key(name string) {
	w.sep()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

func (w *restBody) object(name string, fields func()) {
	w.key(name)
	w.braces(fields)
}

func restList[T any](w *restBody, name string, list []T, element func(T)) {
	if len(list) == 0 {
		return
	}
	w.key(name)
	w.b = append(w.b, '[')
	for _, x := range list {
		w.braces(func() { element(x) })
	}
	w.b = append(w.b, ']')
	w.comma = true
}

func (w *restBody) text(name, s string) {
	if s == "" {
		return
	}
	w.key(name)
	w.quote(s)
}

// prose is text for people, of which the routes refuse one character that the contract allows.
func (w *restBody) prose(name, s string) {
	w.text(name, strings.ReplaceAll(s, "\x00", "\ufffd"))
}

func (w *restBody) quote(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			b, _ := json.Marshal(s) // strings always encode
			w.b = append(w.b, b...)
			w.comma = true
			return
		}
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, s...)
	w.b = append(w.b, '"')
	w.comma = true
}

func (w *restBody) bytes(name string, b []byte) {
	if len(b) > 0 {
		w.anyBytes(name, b)
	}
}

// anyBytes writes bytes that mean something even when there are none.
func (w *restBody) anyBytes(name string, b []byte) {
	w.sep()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, `_base64":"`...)
	w.b = base64.StdEncoding.AppendEncode(w.b, b)
	w.b = append(w.b, '"')
	w.comma = true
}

func (w *restBody) int(name string, n int64) {
	if n != 0 {
		w.anyInt(name, n)
	}
}

func (w *restBody) anyInt(name string, n int64) {
	w.key(name)
	w.b = strconv.AppendInt(w.b, n, 10)
	w.comma = true
}

// exact is a number that is compared: as text, so that nothing between here and the server rounds it.
func (w *restBody) exact(name string, n uint64) {
	w.key(name)
	w.b = append(w.b, '"')
	w.b = strconv.AppendUint(w.b, n, 10)
	w.b = append(w.b, '"')
	w.comma = true
}

func (w *restBody) float(name string, f float64) {
	if f == 0 {
		return
	}
	w.key(name)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		w.b = append(w.b, "null"...) // which no field takes: the server refuses it by its name
	} else {
		w.b = strconv.AppendFloat(w.b, f, 'g', -1, 64)
	}
	w.comma = true
}

func (w *restBody) flag(name string, v bool) {
	if v {
		w.key(name)
		w.b = append(w.b, "true"...)
		w.comma = true
	}
}

func (w *restBody) duration(name string, d *durationpb.Duration) {
	if d != nil {
		w.text(name, d.AsDuration().String())
	}
}

func (w *restBody) time(name string, t *timestamppb.Timestamp) {
	if t != nil {
		w.text(name, t.AsTime().Format(time.RFC3339Nano))
	}
}

// word is a member of an enumeration; one that has no word here is left to the server to refuse.
func (w *restBody) word(name string, words []string, n int32) {
	switch {
	case n == 0:
	case n > 0 && int(n) < len(words):
		w.text(name, words[n])
	default:
		w.text(name, "unknown-"+strconv.Itoa(int(n)))
	}
}

// The words of enumerations, by number.
var (
	restBackoffs  = []string{"", "fixed", "linear", "exponential", "full_jitter", "equal_jitter"}
	restUntils    = []string{"ttl", "start", "terminal"}
	restConflicts = []string{"return", "reject", "replace"}
	restCompares  = []string{"", "exists", "absent", "equal", "not_equal", "less", "greater"}
)

func (w *restBody) spec(t *millracev1.TaskSpec) {
	w.text("id", t.GetId())
	w.text("queue", t.GetQueue())
	w.text("kind", t.GetKind())
	w.bytes("payload", t.GetPayload())
	w.text("content_type", t.GetContentType())
	restList(w, "headers", t.GetHeaders(), func(h *millracev1.Header) {
		w.text("name", h.GetName())
		w.text("value", h.GetValue())
	})
	w.int("priority", int64(t.GetPriority()))
	w.time("run_at", t.GetRunAt())
	w.duration("delay", t.GetDelay())
	w.int("max_attempts", int64(t.GetMaxAttempts()))
	w.int("max_crashes", int64(t.GetMaxCrashes()))
	if t != nil && t.MaxDeliveries != nil {
		w.anyInt("max_deliveries", int64(t.GetMaxDeliveries()))
	}
	w.duration("lease", t.GetLease())
	w.duration("max_run", t.GetMaxRun())
	w.retry(t.GetRetry())
	if u := t.GetUnique(); u != nil {
		w.object("unique", func() {
			w.text("key", u.GetKey())
			w.word("until", restUntils, int32(u.GetUntil()))
			w.duration("ttl", u.GetTtl())
			w.word("on_conflict", restConflicts, int32(u.GetOnConflict()))
		})
	}
	w.text("tag", t.GetTag())
	w.reserved(t)
}

// reserved names the fields that no server takes yet: it says so.
func (w *restBody) reserved(t *millracev1.TaskSpec) {
	for _, f := range [...]struct {
		name string
		set  bool
	}{
		{"labels", len(t.GetLabels()) > 0},
		{"key", t.GetKey() != ""},
		{"cost", t.GetCost() != 0},
		{"expires_at", t.GetExpiresAt() != nil},
		{"after", len(t.GetAfter()) > 0},
		{"webhook", t.GetWebhook() != ""},
	} {
		w.flag(f.name, f.set)
	}
}

func (w *restBody) retry(r *millracev1.Retry) {
	if r == nil {
		return
	}
	w.object("retry", func() {
		w.word("backoff", restBackoffs, int32(r.GetBackoff()))
		w.duration("base", r.GetBase())
		w.float("factor", r.GetFactor())
		w.duration("max", r.GetMax())
	})
}

func (w *restBody) hold(h *millracev1.Hold) {
	w.text("id", h.GetId())
	w.exact("token", h.GetToken())
}

func (w *restBody) settleItem(it *millracev1.SettleItem) {
	w.text("id", it.GetId())
	w.exact("token", it.GetToken())
	switch o := it.GetOutcome().(type) {
	case *millracev1.SettleItem_Complete:
		w.complete(o.Complete)
	case *millracev1.SettleItem_Fail:
		w.fail(o.Fail)
	case *millracev1.SettleItem_Snooze:
		w.snooze(o.Snooze)
	case *millracev1.SettleItem_Release:
		w.object("release", func() {})
	}
	if e := it.GetEffects(); e != nil {
		w.object("effects", func() {
			restList(w, "conditions", e.GetConditions(), w.check)
			restList(w, "ops", e.GetOps(), w.op)
			w.flag("fail_on_refusal", e.GetFailOnRefusal())
		})
	}
}

func (w *restBody) complete(c *millracev1.Complete) {
	w.object("complete", func() {
		w.bytes("result", c.GetResult())
		w.text("result_type", c.GetResultType())
	})
}

func (w *restBody) fail(f *millracev1.Fail) {
	w.object("fail", func() {
		if e := f.GetError(); e != nil {
			w.object("error", func() {
				w.prose("code", e.GetCode())
				w.prose("message", e.GetMessage())
				w.prose("stack", e.GetStack())
			})
		}
		w.flag("fatal", f.GetFatal())
		w.duration("retry_after", f.GetRetryAfter())
	})
}

func (w *restBody) snooze(s *millracev1.Snooze) {
	w.object("snooze", func() {
		w.time("until", s.GetUntil())
		w.duration("delay", s.GetDelay())
	})
}

func (w *restBody) commit(c *millracev1.CommitRequest) {
	if f := c.GetFence(); f != nil {
		w.object("fence", func() {
			w.text("task", f.GetTask())
			w.exact("token", f.GetToken())
		})
	}
	restList(w, "conditions", c.GetConditions(), w.check)
	restList(w, "ops", c.GetOps(), w.op)
	if id := c.GetRequestId(); len(id) > 0 {
		w.text("request_id", restHex(id))
	}
}

func (w *restBody) op(op *millracev1.Op) {
	switch o := op.GetOp().(type) {
	case *millracev1.Op_TaskCreate:
		w.object("task_create", func() { w.spec(o.TaskCreate) })
	case *millracev1.Op_TaskComplete:
		w.object("task_complete", func() {
			w.ofTask(o.TaskComplete.GetTask())
			w.complete(o.TaskComplete.GetComplete())
		})
	case *millracev1.Op_TaskFail:
		w.object("task_fail", func() {
			w.ofTask(o.TaskFail.GetTask())
			w.fail(o.TaskFail.GetFail())
		})
	case *millracev1.Op_TaskSnooze:
		w.object("task_snooze", func() {
			w.ofTask(o.TaskSnooze.GetTask())
			w.snooze(o.TaskSnooze.GetSnooze())
		})
	case *millracev1.Op_KvPut:
		w.object("kv_put", func() { w.put(o.KvPut) })
	case *millracev1.Op_KvDelete:
		w.object("kv_delete", func() {
			w.text("keyspace", o.KvDelete.GetKeyspace())
			w.bytes("key", o.KvDelete.GetKey())
			w.ifRev(o.KvDelete.IfRev)
		})
	case *millracev1.Op_KvCheck:
		w.object("kv_check", func() { w.check(o.KvCheck) })
	case *millracev1.Op_KvAdd:
		w.object("kv_add", func() { w.add(o.KvAdd) })
	case *millracev1.Op_KvDeleteRange:
		w.object("kv_delete_range", func() { w.deleteRange(o.KvDeleteRange) })
	case *millracev1.Op_RefTransaction:
		w.object("ref_transaction", func() { w.refTransaction(o.RefTransaction) })
	case *millracev1.Op_VectorUpsert:
		w.object("vector_upsert", func() { w.vectorUpsert(o.VectorUpsert) })
	case *millracev1.Op_VectorDelete:
		w.object("vector_delete", func() { w.vectorDelete(o.VectorDelete) })
	case *millracev1.Op_Reserved:
		w.flag("kv_get", true) // any op that is not built is refused alike
	}
}

func (w *restBody) ofTask(h *millracev1.Hold) {
	if h != nil {
		w.object("task", func() { w.hold(h) })
	}
}

func (w *restBody) put(p *millracev1.KVPut) {
	w.text("keyspace", p.GetKeyspace())
	w.bytes("key", p.GetKey())
	w.bytes("value", p.GetValue())
	w.ifRev(p.IfRev)
	w.flag("if_absent", p.GetIfAbsent())
	w.flag("want_prev", p.GetWantPrev())
}

func (w *restBody) ifRev(rev *uint64) {
	if rev != nil {
		w.exact("if_rev", *rev)
	}
}

func (w *restBody) check(c *millracev1.KVCheck) {
	w.text("keyspace", c.GetKeyspace())
	w.bytes("key", c.GetKey())
	w.word("compare", restCompares, int32(c.GetCompare()))
	switch o := c.GetOperand().(type) {
	case *millracev1.KVCheck_Rev:
		w.exact("rev", o.Rev)
	case *millracev1.KVCheck_Value:
		w.anyBytes("value", o.Value)
	}
}

func (w *restBody) queueConfig(c *millracev1.QueueConfig) {
	w.int("max_attempts", int64(c.GetMaxAttempts()))
	w.int("max_crashes", int64(c.GetMaxCrashes()))
	if c != nil && c.MaxDeliveries != nil {
		w.anyInt("max_deliveries", int64(c.GetMaxDeliveries()))
	}
	w.duration("lease", c.GetLease())
	w.duration("max_run", c.GetMaxRun())
	w.retry(c.GetRetry())
	w.int("max_payload", c.GetMaxPayload())
	w.duration("aging", c.GetAging())
	w.duration("retain_completed", c.GetRetainCompleted())
	w.duration("retain_cancelled", c.GetRetainCancelled())
	w.duration("retain_dead", c.GetRetainDead())
}
