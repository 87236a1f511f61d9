package rest

import (
	"encoding/hex"
	"mime"
	"slices"
	"strconv"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
)

// What the generated readers and writers of bodies stand on, and the bodies that are written by hand: of routes whose JSON is not one
// message of the contract. A field that holds any bytes has two names, of which one may be given: NAME is a JSON value of the client's
// own for payloads and results, and text for keys and values; NAME_base64 is any bytes.

// content is the payload of a task, or a result, while it is read.
type content struct {
	// bytes are the value; nil: it was not given.
	bytes []byte
	// raw says that it is a JSON value of the document, and not base64.
	raw bool
}

// readRaw reads a JSON value as it stands in the document, byte for byte.
func (c *content) readRaw(d *jsonReader) {
	c.once(d)
	c.bytes, c.raw = d.Raw(), true
}

// readBase64 reads a value that is any bytes.
func (c *content) readBase64(d *jsonReader) {
	c.once(d)
	c.bytes = d.Base64()
}

// once refuses a second value: whichever of two were taken, a client could mean the other.
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
	// The two names of a field are two fields to the reader, which refuses a repeated one only.
	case *m != nil:
		d.Refuse("must be given only once, as text or as base64")
	case base64:
		*m = d.Base64()
	default:
		*m = []byte(d.Text())
	}
}

// readNew reads an object into a message of its own.
func readNew[T any](d *jsonReader, fields []jsonField[T]) *T {
	m := new(T)
	readObject(d, m, fields)
	return m
}

// heartbeatOneFields are the body of one task's heartbeat.
var heartbeatOneFields = []jsonField[pb.HeartbeatRequest]{
	{"token", func(d *jsonReader, m *pb.HeartbeatRequest) { m.Items = []*pb.Hold{{Token: d.Unsigned()}} }},
	{"extend", func(d *jsonReader, m *pb.HeartbeatRequest) { m.Extend = d.duration() }},
}

// readToken reads the token of an attempt, readEffects what commits together with its end. On these
// routes they stand next to the fields of the outcome.
func readToken(d *jsonReader, m *pb.SettleItem)   { m.Token = d.Unsigned() }
func readEffects(d *jsonReader, m *pb.SettleItem) { m.Effects = readNew(d, effectsFields) }

// oneBody is the body of a route that settles one task: the item, and the outcome whose fields stand next to the token.
type oneBody[T any] struct {
	// item has the token and the effects; outcome is a Complete, a Fail or the like.
	item    *pb.SettleItem
	outcome T
}

// besideToken makes the fields of such a body.
func besideToken[T any](fields []jsonField[T], more ...jsonField[pb.SettleItem]) []jsonField[oneBody[T]] {
	var out []jsonField[oneBody[T]]
	// Each field of either message becomes one of the body, which reads into its own part.
	for _, f := range append([]jsonField[pb.SettleItem]{{"token", readToken}}, more...) {
		out = append(out, jsonField[oneBody[T]]{f.name, func(d *jsonReader, m *oneBody[T]) { f.read(d, m.item) }})
	}
	for _, f := range fields {
		out = append(out, jsonField[oneBody[T]]{f.name, func(d *jsonReader, m *oneBody[T]) { f.read(d, &m.outcome) }})
	}
	return out
}

var (
	// Only a completion has effects.
	completeOneFields = besideToken(completeFields, jsonField[pb.SettleItem]{"effects", readEffects})
	failOneFields     = besideToken(failFields)
	snoozeOneFields   = besideToken(snoozeFields)
	releaseOneFields  = besideToken([]jsonField[pb.Release]{})
	stopOneFields     = besideToken(stopFields)
)

// anyTexts is anyBytes for a list.
func (d *jsonReader) anyTexts(m *[][]byte, limit string, top int64, base64 bool) {
	if *m != nil {
		d.Refuse("must be given only once, as text or as base64")
		return
	}
	d.Array(limit, top, func() {
		if base64 {
			*m = append(*m, d.Base64())
		} else {
			*m = append(*m, []byte(d.Text()))
		}
	})
}

// only refuses a member of a oneof of which another is set.
func (d *jsonReader) only(set bool, what string) {
	if set {
		d.Refuse("must be the only " + what)
	}
}

// filledTexts is Texts for what means another thing when it is empty than when it is left out.
func (d *jsonReader) filledTexts(limit string, top int64) []string {
	out := d.Texts(limit, top)
	if d.Fact() == nil && len(out) == 0 {
		d.Refuse("must not be empty, since no row would pass; leave the field out to let all rows pass")
	}
	return out
}

// requestID reads 16 bytes as 32 hexadecimal digits, with the hyphens of a UUID or without.
func (d *jsonReader) requestID() []byte {
	s := strings.ReplaceAll(d.Text(), "-", "")
	if d.Fact() != nil {
		return nil
	}
	id, err := hex.DecodeString(s)
	if err != nil || len(id) != api.RequestIDBytes || !slices.ContainsFunc(id, func(b byte) bool { return b != 0 }) {
		d.Refuse("must be 32 hexadecimal digits and not all 0; hyphens are allowed")
	}
	return id
}

// nullable lets each field be null, which is as if it was left out.
func nullable[T any](fields []jsonField[T]) []jsonField[T] {
	for i := range fields {
		read := fields[i].read
		fields[i].read = func(d *jsonReader, m *T) {
			if !d.Null() {
				read(d, m)
			}
		}
	}
	return fields
}

// fieldNames lists the fields of a body that are not reserved, for the test that holds the document to them.
func fieldNames[T any](fields []jsonField[T]) []string {
	var out []string
	for _, f := range fields {
		if f.read != nil {
			out = append(out, f.name)
		}
	}
	return out
}

// mergeMethods are the words of a method to merge, of which an unknown one is refused later, by what it would do.
var mergeMethods = []string{"convex"}

const (
	vectorTop    = core.MaxDim // numbers of a vector at most
	maxRESTTexts = 1000        // of a list of names or globs
)

// wordOf is the name of a number of an enumeration.
func wordOf(words []string, n int32) string {
	if n < 0 || int(n) >= len(words) {
		return ""
	}
	return words[n]
}

// exactInt is Exact for a number with a sign.
func (w *jsonWriter) exactInt(name string, n int64) { w.Str(name, strconv.FormatInt(n, 10)) }

// writeErrorAnswer writes an error as the answer.
func writeErrorAnswer(w *jsonWriter, e *pb.Error) { w.Object("error", func() { writeError(w, e) }) }

// writeResult is what became of a task, for those who wait for its end.
func writeResult(w *jsonWriter, t *pb.Task) {
	w.Str("state", wordOf(stateWords, int32(t.GetState())))
	// States after Completed are ends too.
	w.Bool("done", t.GetState() >= pb.State_COMPLETED)
	w.OptStr("reason", t.GetReason())
	if t.GetHasResult() {
		w.content("result", t.GetResult(), t.GetResultType())
		w.OptStr("result_type", t.GetResultType())
	}
	if e := t.GetError(); e != nil {
		w.Object("error", func() { writeTaskError(w, e) })
	}
}

// writeEmbedded writes vectors, as the text that they have already where they have one.
func writeEmbedded(w *jsonWriter, m core.EmbedModel, out []core.Embedding) {
	w.Str("model", m.Model)
	w.Count("dim", uint64(len(out[0].Vector)))
	w.Bool("semantic", m.Semantic)
	// A text that was embedded before may have its vector as JSON already, which is not made again.
	w.List("vectors", len(out), func(i int) {
		if e := out[i]; e.Text != nil {
			w.Raw(e.Text.JSON())
		} else {
			w.Floats(e.Vector)
		}
	})
	w.List("tokens", len(out), func(i int) { w.Raw(strconv.AppendInt(nil, int64(out[i].Tokens), 10)) })
	w.List("cached", len(out), func(i int) { w.Raw(strconv.AppendBool(nil, out[i].Cached)) })
	w.List("truncated", len(out), func(i int) { w.Raw(strconv.AppendBool(nil, out[i].Truncated)) })
}

// writeSearch writes the rows that were found.
func writeSearch(w *jsonWriter, f *api.Found) {
	out := f.Response
	w.List("results", len(f.Answer.Hits), func(i int) { f.WriteHit(&w.Writer, &f.Answer.Hits[i], f.Query.Payload) })
	api.WriteFound(&w.Writer, out)
	w.OptStr("degraded", out.GetDegraded())
	w.OptStr("search_id", out.GetSearchId())
	// Microseconds of each stage.
	t := out.GetTookUs()
	w.Object("took_us", func() {
		w.Count("embed", t.GetEmbed())
		w.Count("gate", t.GetGate())
		w.Count("retrieve", t.GetRetrieve())
		w.Count("judge", t.GetJudge())
		w.Count("merge", t.GetMerge())
	})
	if g := out.GetGap(); g != nil {
		w.Object("gap", func() {
			w.Str("stage", g.GetStage())
			w.List("partitions", len(g.GetPartitions()), func(i int) { w.Raw(strconv.AppendUint(nil, uint64(g.GetPartitions()[i]), 10)) })
			w.Count("unjudged", g.GetUnjudged())
		})
	}
	if n := out.GetPlanNumbers(); n != nil {
		w.Object("plan_numbers", func() {
			w.Count("compared", n.GetCompared())
			w.Count("ef", n.GetEf())
			w.Count("rounds", n.GetRounds())
			w.Count("graph_rows", n.GetGraphRows())
			w.Count("tail_rows", n.GetTailRows())
		})
	}
}
