package millrace

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// effectLine builds a JSON object, whose fields stay in the order in which they are added.
type effectLine struct{ out bytes.Buffer }

// field adds a field.
func (l *effectLine) field(name string, value any) {
	if l.out.Len() == 0 {
		l.out.WriteByte('{')
	} else {
		l.out.WriteByte(',')
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		b.Reset()
		b.WriteString("null") // bytes that are said to be JSON and are not
	}
	l.out.WriteString(strconv.Quote(name) + ":")
	l.out.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// bytes adds bytes: as text, or in base64 if they are not UTF-8.
func (l *effectLine) bytes(name string, b []byte) {
	if utf8.Valid(b) {
		l.field(name, string(b))
	} else {
		l.field(name+"_base64", b)
	}
}

// text adds a text that is not empty.
func (l *effectLine) text(name, s string) {
	if s != "" {
		l.field(name, s)
	}
}

// flag adds a true.
func (l *effectLine) flag(name string, on bool) {
	if on {
		l.field(name, true)
	}
}

// count adds a number that is not 0.
func (l *effectLine) count(name string, n int64) {
	if n != 0 {
		l.field(name, n)
	}
}

// present adds what is there.
func present[T any](l *effectLine, name string, v *T) {
	if v != nil {
		l.field(name, *v)
	}
}

// span adds a duration, in seconds.
func (l *effectLine) span(name string, d *durationpb.Duration) {
	if d != nil {
		l.field(name, strconv.FormatFloat(d.AsDuration().Seconds(), 'f', -1, 64)+"s")
	}
}

// moment adds a time.
func (l *effectLine) moment(name string, at *timestamppb.Timestamp) {
	if at != nil {
		l.field(name, at.AsTime().Format(time.RFC3339Nano))
	}
}

// end is the object.
func (l *effectLine) end() json.RawMessage { return append(l.out.Bytes(), '}') }

// effectLines are ops in order: one line for each, and one for each change of refs.
func effectLines(ops []*millracev1.Op) (out []json.RawMessage) {
	for _, op := range ops {
		if t := op.GetRefTransaction(); t != nil {
			for _, c := range t.Changes {
				out = append(out, refLine(t, c))
			}
			continue
		}
		out = append(out, opLine(op))
	}
	return out
}

// opLine is the line of an op that is not of refs.
func opLine(op *millracev1.Op) json.RawMessage {
	l := new(effectLine)
	switch x := op.Op.(type) {
	case *millracev1.Op_KvPut, *millracev1.Op_KvDelete, *millracev1.Op_KvAdd, *millracev1.Op_KvDeleteRange:
		keyLine(l, op)
	case *millracev1.Op_VectorUpsert:
		pointLine(l, x.VectorUpsert)
	case *millracev1.Op_VectorDelete:
		l.field("op", "vector_delete")
		l.field("collection", x.VectorDelete.Collection)
		l.field("id", x.VectorDelete.Id)
		l.text("if_version", x.VectorDelete.IfVersion)
	case *millracev1.Op_TaskCreate:
		taskLine(l, x.TaskCreate)
	case *millracev1.Op_TaskCancel:
		l.field("op", "task_cancel")
		l.field("id", x.TaskCancel.Id)
		l.text("reason", x.TaskCancel.Reason)
		l.flag("force", x.TaskCancel.Force)
	case *millracev1.Op_QueuePause:
		l.field("op", "queue_pause")
		l.field("queue", x.QueuePause.Queue)
		l.moment("until", x.QueuePause.Until)
		l.text("reason", x.QueuePause.Reason)
		l.flag("resume", x.QueuePause.Resume)
	case *millracev1.Op_BatchOpen, *millracev1.Op_BatchSeal, *millracev1.Op_BatchCancel:
		batchLine(l, op)
	}
	return l.end()
}

// batchLine describes an op of batches.
func batchLine(l *effectLine, op *millracev1.Op) {
	switch x := op.Op.(type) {
	case *millracev1.Op_BatchOpen:
		l.field("op", "batch_open")
		l.field("id", x.BatchOpen.Id)
		if len(x.BatchOpen.Labels) > 0 {
			l.field("labels", x.BatchOpen.Labels)
		}
		for _, f := range []struct {
			name string
			of   *millracev1.TaskTemplate
		}{{"on_done", x.BatchOpen.OnDone}, {"on_success", x.BatchOpen.OnSuccess}} {
			if f.of != nil {
				l.field(f.name, templateLine(f.of))
			}
		}
	case *millracev1.Op_BatchSeal:
		l.field("op", "batch_seal")
		l.field("id", x.BatchSeal.Id)
	case *millracev1.Op_BatchCancel:
		l.field("op", "batch_cancel")
		l.field("id", x.BatchCancel.Id)
		l.text("reason", x.BatchCancel.Reason)
		l.count("rate", int64(x.BatchCancel.Rate))
		l.flag("force", x.BatchCancel.Force)
	}
}

// templateLine describes a task that a batch makes.
func templateLine(t *millracev1.TaskTemplate) json.RawMessage {
	l := new(effectLine)
	taskFields(l, &millracev1.TaskSpec{
		Queue: t.Queue, Kind: t.Kind, Payload: t.Payload, ContentType: t.ContentType, Headers: t.Headers, Priority: t.Priority, MaxAttempts: t.MaxAttempts,
		MaxCrashes: t.MaxCrashes, MaxDeliveries: t.MaxDeliveries, Lease: t.Lease, MaxRun: t.MaxRun, Labels: t.Labels, Tag: t.Tag, Key: t.Key, Cost: t.Cost,
		Limiters: t.Limiters,
	})
	return l.end()
}

// keyLine describes an op of keys.
func keyLine(l *effectLine, op *millracev1.Op) {
	switch x := op.Op.(type) {
	case *millracev1.Op_KvPut:
		l.field("op", "kv_put")
		l.field("keyspace", x.KvPut.Keyspace)
		l.bytes("key", x.KvPut.Key)
		l.bytes("value", x.KvPut.Value)
		present(l, "if_rev", x.KvPut.IfRev)
		l.flag("if_absent", x.KvPut.IfAbsent)
	case *millracev1.Op_KvDelete:
		l.field("op", "kv_delete")
		l.field("keyspace", x.KvDelete.Keyspace)
		l.bytes("key", x.KvDelete.Key)
		present(l, "if_rev", x.KvDelete.IfRev)
	case *millracev1.Op_KvAdd:
		l.field("op", "kv_add")
		l.field("keyspace", x.KvAdd.Keyspace)
		l.bytes("key", x.KvAdd.Key)
		l.field("delta", x.KvAdd.Delta)
		present(l, "floor", x.KvAdd.Floor)
		present(l, "ceiling", x.KvAdd.Ceiling)
		present(l, "if_rev", x.KvAdd.IfRev)
	case *millracev1.Op_KvDeleteRange:
		l.field("op", "kv_delete_range")
		l.field("keyspace", x.KvDeleteRange.Keyspace)
		all := true
		for _, bound := range []struct {
			name string
			b    []byte
		}{{"prefix", x.KvDeleteRange.Prefix}, {"from", x.KvDeleteRange.From}, {"to", x.KvDeleteRange.To}} {
			if len(bound.b) > 0 {
				l.bytes(bound.name, bound.b)
				all = false
			}
		}
		l.flag("all", all)
	}
}

// refLine describes a change of one ref. An empty old or new means that the ref is not there before or after.
func refLine(t *millracev1.RefTransaction, c *millracev1.RefChange) json.RawMessage {
	l := new(effectLine)
	l.field("op", "ref_update")
	l.field("repo", t.Repo)
	l.text("tag", t.Tag)
	l.field("ref", c.Name)
	switch old := strings.TrimLeft(c.GetOld(), "0"); {
	case c.Old != nil && old != "":
		l.field("old", *c.Old)
	case c.Old != nil, c.Kind == millracev1.RefChange_CREATE, c.Kind == millracev1.RefChange_VERIFY:
		l.field("old", "")
	}
	switch c.Kind {
	case millracev1.RefChange_CREATE, millracev1.RefChange_UPDATE, millracev1.RefChange_DELETE:
		l.field("new", c.New)
	default: // commands have no word for these
		l.field("change", strings.ToLower(c.Kind.String()))
		l.text("target", c.Target)
		present(l, "old_target", c.OldTarget)
	}
	return l.end()
}

// pointLine describes what is written to a collection.
func pointLine(l *effectLine, u *millracev1.VectorUpsert) {
	p := u.Point
	l.field("op", "vector_upsert")
	l.field("collection", u.Collection)
	l.field("id", p.GetId())
	if len(p.GetPayload()) > 0 {
		l.field("payload", json.RawMessage(p.Payload))
	}
	if len(p.GetVector()) > 0 {
		l.field("vector", p.Vector)
	}
	l.text("model", p.GetModel())
	l.text("if_version", p.GetIfVersion())
	l.flag("if_absent", p.GetIfAbsent())
}

// taskLine describes a task that is made.
func taskLine(l *effectLine, s *millracev1.TaskSpec) {
	l.field("op", "task_create")
	taskFields(l, s)
}

// taskFields adds what is said of a task.
func taskFields(l *effectLine, s *millracev1.TaskSpec) {
	l.field("queue", s.Queue)
	l.field("kind", s.Kind)
	l.text("id", s.Id)
	isJSON := s.ContentType == "" || strings.HasPrefix(s.ContentType, "application/json")
	switch {
	case len(s.Payload) == 0:
	case isJSON && json.Valid(s.Payload):
		l.field("payload", json.RawMessage(s.Payload))
	default:
		l.field("payload_base64", s.Payload)
	}
	if !isJSON && s.ContentType != typeBytes {
		l.field("content_type", s.ContentType)
	}
	l.text("tag", s.Tag)
	l.text("key", s.Key)
	l.count("cost", int64(s.Cost))
	if len(s.Limiters) > 0 {
		l.field("limiters", s.Limiters)
	}
	l.count("priority", int64(s.Priority))
	l.span("delay", s.Delay)
	l.moment("run_at", s.RunAt)
	l.moment("expires_at", s.ExpiresAt)
	if len(s.Labels) > 0 {
		l.field("labels", s.Labels)
	}
	if len(s.Headers) > 0 {
		headers := make([]json.RawMessage, len(s.Headers))
		for i, h := range s.Headers {
			one := new(effectLine)
			one.field("name", h.Name)
			one.field("value", h.Value)
			headers[i] = one.end()
		}
		l.field("headers", headers)
	}
	l.text("batch", s.Batch)
	if len(s.After) > 0 {
		after := make([]json.RawMessage, len(s.After))
		for i, a := range s.After {
			one := new(effectLine)
			one.field("id", a.Id)
			if a.On == millracev1.After_TERMINAL {
				one.field("on", "terminal")
			}
			after[i] = one.end()
		}
		l.field("after", after)
	}
	if d := DepFailure(s.OnDepFailure - millracev1.OnDepFailure_HOLD); d > DepHold {
		l.field("on_dep_failure", d.String())
	}
	l.text("batch", s.Batch)
	if u := s.Unique; u != nil {
		one := new(effectLine)
		one.field("key", u.Key)
		one.span("ttl", u.Ttl)
		if u.OnConflict == millracev1.Unique_REJECT {
			one.field("on_conflict", "reject")
		}
		if u.OnConflict == millracev1.Unique_REPLACE {
			one.field("on_conflict", "replace")
		}
		if u.Until != millracev1.Unique_TTL {
			one.field("until", strings.ToLower(u.Until.String()))
		}
		l.field("unique", one.end())
	}
	l.count("max_attempts", int64(s.MaxAttempts))
	l.count("max_crashes", int64(s.MaxCrashes))
	present(l, "max_deliveries", s.MaxDeliveries)
	l.span("lease", s.Lease)
	l.span("max_run", s.MaxRun)
}

// compares are the words for comparisons, by their numbers in the contract.
var compares = [...]string{
	millracev1.KVCheck_EXISTS: "exists", millracev1.KVCheck_ABSENT: "absent", millracev1.KVCheck_EQUAL: "equal",
	millracev1.KVCheck_NOT_EQUAL: "not_equal", millracev1.KVCheck_LESS: "less", millracev1.KVCheck_GREATER: "greater",
}

// checkLines are conditions, in order.
func checkLines(conditions []*millracev1.KVCheck) (out []json.RawMessage) {
	for _, c := range conditions {
		l := new(effectLine)
		l.field("keyspace", c.Keyspace)
		l.bytes("key", c.Key)
		l.field("compare", compares[c.Compare])
		switch x := c.Operand.(type) {
		case *millracev1.KVCheck_Rev:
			l.field("rev", x.Rev)
		case *millracev1.KVCheck_Value:
			l.bytes("value", x.Value)
		}
		out = append(out, l.end())
	}
	return out
}
