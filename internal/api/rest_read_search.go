package api

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Bodies of search. A field that is null counts as left out.

// Names of the numbers of an enumeration, by number.
var (
	metricWords    = []string{"", "cosine", "dot"}
	fieldTypeWords = []string{"", "keyword", "keywords", "int", "float", "bool", "time", "geo", "text", "credentials"}
	fieldGateWords = []string{"", "role", "credential", "block"}
)

// Words that are texts in the contract too.
var (
	roleModes     = []string{"exact", "any"}
	severities    = []string{"block", "conditional", "penalty", "bonus"}
	missingWords  = []string{"block", "conditional", "ignore"}
	embedKinds    = []string{"query", "document"}
	truncateWords = []string{"cut", "error"}
	includeWords  = []string{"eligible", "conditional"}
	mergeMethods  = []string{"convex"}
	consistencies = []string{"linearizable", "stale"}
)

// nullable lets each field be null, which is as if it was left out.
func nullable[T any](fields []jsonField[T]) []jsonField[T] {
	for i := range fields {
		read := fields[i].read
		fields[i].read = func(d *jsonReader, m *T) {
			if !d.null() {
				read(d, m)
			}
		}
	}
	return fields
}

// null passes a null, and says whether there was one.
func (d *jsonReader) null() bool {
	if d.fact != nil || d.space() != 'n' || !bytes.HasPrefix(d.b[d.i:], []byte("null")) {
		return false
	}
	d.i += len("null")
	return true
}

// objectText reads an object as it stands.
func (d *jsonReader) objectText() []byte {
	if d.fact != nil {
		return nil
	}
	if d.space() != '{' {
		d.mistyped("must be an object")
		return nil
	}
	return d.raw()
}

// floats reads a vector: a list of numbers, or base64 of numbers of 32 bits, little-endian.
func (d *jsonReader) floats(top int64) []float32 {
	if d.fact != nil {
		return nil
	}
	if d.space() == '"' {
		return d.packedFloats(top)
	}
	return d.listedFloats(top)
}

func (d *jsonReader) listedFloats(top int64) []float32 {
	if !d.enter('[', "must be a list of numbers, or base64") {
		return nil
	}
	var out []float32
	for first := true; d.next(']', first); first = false {
		if int64(len(out)) >= top {
			d.fact = tooLarge(d.at(), "dim", top)
			return nil
		}
		c := d.space()
		if c != '-' && (c < '0' || c > '9') {
			d.path = append(d.path, step{index: len(out)})
			d.mistyped("must be a number")
			return nil
		}
		text, _ := d.number()
		if d.fact != nil {
			return nil
		}
		// Beyond 32 bits it is infinite, which is refused with the vector: of several points the others are stored.
		v, _ := strconv.ParseFloat(string(text), 32)
		if out == nil {
			out = make([]float32, 0, 384)
		}
		out = append(out, float32(v))
	}
	if d.fact == nil && out == nil {
		d.refuse("must not be empty; leave the field out instead")
	}
	return out
}

func (d *jsonReader) packedFloats(top int64) []float32 {
	s := d.str()
	if d.fact != nil {
		return nil
	}
	if int64(len(s)) > base64Len(4*top) {
		d.fact = tooLarge(d.at(), "dim", top)
		return nil
	}
	raw, err := base64.StdEncoding.Strict().AppendDecode(nil, s)
	if err != nil || len(raw)%4 != 0 || len(raw) == 0 {
		d.refuse("must be base64 of 32-bit numbers")
		return nil
	}
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func base64Len(n int64) int64 { return (n + 2) / 3 * 4 }

// texts reads a list of strings.
func (d *jsonReader) texts(limit string, top int64) (out []string) {
	d.array(limit, top, func() { out = append(out, d.text()) })
	return out
}

// ids is texts for what means another thing when it is empty than when it is left out.
func (d *jsonReader) ids() []string {
	out := d.texts("gate_ids", d.l.GateIDs)
	if d.fact == nil && len(out) == 0 {
		d.refuse("must not be empty, since no row would pass; leave the field out to let all rows pass")
	}
	return out
}

// vectorTop is how many numbers a vector has at most.
const vectorTop = core.MaxDim

var collectionFields = nullable([]jsonField[pb.Collection]{
	{"name", func(d *jsonReader, m *pb.Collection) { m.Name = d.filled() }},
	{"embedder", func(d *jsonReader, m *pb.Collection) { m.Embedder = d.filled() }},
	{"model", func(d *jsonReader, m *pb.Collection) { m.Model = d.filled() }},
	{"dim", func(d *jsonReader, m *pb.Collection) { m.Dim = d.uint32() }},
	{"metric", func(d *jsonReader, m *pb.Collection) { m.Metric = pb.Metric(d.oneOf(metricWords)) }},
	{"text_fields", func(d *jsonReader, m *pb.Collection) {
		d.array("text_fields", core.MaxTextFields, func() { m.TextFields = append(m.TextFields, readNew(d, textFieldFields)) })
	}},
	{"schema", func(d *jsonReader, m *pb.Collection) {
		d.array("collection_fields", core.MaxCollectionFields, func() { m.Schema = append(m.Schema, readNew(d, schemaFieldFields)) })
	}},
	{"max_points", func(d *jsonReader, m *pb.Collection) { m.MaxPoints = d.integer(0, math.MaxInt64) }},
})

var textFieldFields = []jsonField[pb.TextField]{
	{"name", func(d *jsonReader, m *pb.TextField) { m.Name = d.text() }},
	{"weight", func(d *jsonReader, m *pb.TextField) { m.Weight = d.float() }},
}

var schemaFieldFields = []jsonField[pb.SchemaField]{
	{"name", func(d *jsonReader, m *pb.SchemaField) { m.Name = d.text() }},
	{"type", func(d *jsonReader, m *pb.SchemaField) { m.Type = pb.FieldType(d.oneOf(fieldTypeWords)) }},
	{"index", func(d *jsonReader, m *pb.SchemaField) { on := d.boolean(); m.Index = &on }},
	{"gate", func(d *jsonReader, m *pb.SchemaField) { m.Gate = pb.FieldGate(d.oneOf(fieldGateWords)) }},
	{"protected", func(d *jsonReader, m *pb.SchemaField) { m.Protected = d.boolean() }},
}

var pointFields = nullable([]jsonField[pb.Point]{
	{"id", func(d *jsonReader, m *pb.Point) { m.Id = d.text() }},
	{"vector", func(d *jsonReader, m *pb.Point) { m.Vector = d.floats(vectorTop) }},
	{"model", func(d *jsonReader, m *pb.Point) { m.Model = d.filled() }},
	{"payload", func(d *jsonReader, m *pb.Point) { m.Payload = d.objectText() }},
	{"if_version", func(d *jsonReader, m *pb.Point) { m.IfVersion = d.filled() }},
	{"if_absent", func(d *jsonReader, m *pb.Point) { m.IfAbsent = d.boolean() }},
})

// On a route of one collection its name is in the path, and not in the body.

var upsertFields = []jsonField[pb.UpsertPointsRequest]{
	{"points", func(d *jsonReader, m *pb.UpsertPointsRequest) {
		d.array("points_request", d.l.PointsRequest, func() { m.Points = append(m.Points, readNew(d, pointFields)) })
	}},
	{"atomic", func(d *jsonReader, m *pb.UpsertPointsRequest) { m.Atomic = d.boolean() }},
}

var pointVersionFields = nullable([]jsonField[pb.PointVersion]{
	{"id", func(d *jsonReader, m *pb.PointVersion) { m.Id = d.text() }},
	{"if_version", func(d *jsonReader, m *pb.PointVersion) { m.IfVersion = d.filled() }},
})

var deletePointsFields = []jsonField[pb.DeletePointsRequest]{
	{"points", func(d *jsonReader, m *pb.DeletePointsRequest) {
		d.array("points_request", d.l.PointsRequest, func() { m.Points = append(m.Points, readNew(d, pointVersionFields)) })
	}},
	{"atomic", func(d *jsonReader, m *pb.DeletePointsRequest) { m.Atomic = d.boolean() }},
}

var getPointsFields = nullable([]jsonField[pb.GetPointsRequest]{
	{"ids", func(d *jsonReader, m *pb.GetPointsRequest) { m.Ids = d.texts("points_request", d.l.PointsRequest) }},
	{"vectors", func(d *jsonReader, m *pb.GetPointsRequest) { m.Vectors = d.boolean() }},
	{"min_index", func(d *jsonReader, m *pb.GetPointsRequest) { m.MinIndex = d.unsigned() }},
	{"stale", func(d *jsonReader, m *pb.GetPointsRequest) { m.Stale = d.boolean() }},
})

var gateFields = nullable([]jsonField[pb.Gate]{
	{"roles", func(d *jsonReader, m *pb.Gate) { m.Roles = d.texts("gate_names", d.l.GateNames) }},
	{"role_mode", func(d *jsonReader, m *pb.Gate) { m.RoleMode = d.choice(roleModes) }},
	{"credentials_all", func(d *jsonReader, m *pb.Gate) { m.CredentialsAll = d.texts("gate_names", d.l.GateNames) }},
	{"valid_at", func(d *jsonReader, m *pb.Gate) { m.ValidAt = d.time() }},
	{"client", func(d *jsonReader, m *pb.Gate) { m.Client = d.filled() }},
	{"ids_in", func(d *jsonReader, m *pb.Gate) { m.IdsIn = d.ids() }},
	{"ids_not_in", func(d *jsonReader, m *pb.Gate) { m.IdsNotIn = d.texts("gate_ids", d.l.GateIDs) }},
	{"filter", func(d *jsonReader, m *pb.Gate) { m.Filter = d.filled() }},
	{"params", func(d *jsonReader, m *pb.Gate) { m.Params = d.objectText() }},
})

var countPointsFields = nullable([]jsonField[pb.CountPointsRequest]{
	{"gate", func(d *jsonReader, m *pb.CountPointsRequest) { m.Gate = readNew(d, gateFields) }},
	{"min_index", func(d *jsonReader, m *pb.CountPointsRequest) { m.MinIndex = d.unsigned() }},
	{"stale", func(d *jsonReader, m *pb.CountPointsRequest) { m.Stale = d.boolean() }},
})

var ruleFields = nullable([]jsonField[pb.Rule]{
	{"id", func(d *jsonReader, m *pb.Rule) { m.Id = d.text() }},
	{"when", func(d *jsonReader, m *pb.Rule) { m.When = d.text() }},
	{"severity", func(d *jsonReader, m *pb.Rule) { m.Severity = d.choice(severities) }},
	{"weight", func(d *jsonReader, m *pb.Rule) { m.Weight = d.float() }},
	{"reason", func(d *jsonReader, m *pb.Rule) { m.Reason = d.text() }},
	{"on_missing", func(d *jsonReader, m *pb.Rule) { m.OnMissing = d.choice(missingWords) }},
})

var putRulesetFields = nullable([]jsonField[pb.PutRulesetRequest]{
	{"collection", func(d *jsonReader, m *pb.PutRulesetRequest) { m.Collection = d.text() }},
	{"rules", func(d *jsonReader, m *pb.PutRulesetRequest) {
		d.array("ruleset_rules", d.l.RulesetRules, func() { m.Rules = append(m.Rules, readNew(d, ruleFields)) })
	}},
	{"number", func(d *jsonReader, m *pb.PutRulesetRequest) { m.Number = d.uint32() }},
})

var embedFields = nullable([]jsonField[pb.EmbedRequest]{
	{"text", func(d *jsonReader, m *pb.EmbedRequest) { m.Text = d.text() }},
	{"texts", func(d *jsonReader, m *pb.EmbedRequest) { m.Texts = d.texts("embed_texts", d.l.EmbedTexts) }},
	{"model", func(d *jsonReader, m *pb.EmbedRequest) { m.Model = d.filled() }},
	{"kind", func(d *jsonReader, m *pb.EmbedRequest) { m.Kind = d.choice(embedKinds) }},
	{"truncate", func(d *jsonReader, m *pb.EmbedRequest) { m.Truncate = d.choice(truncateWords) }},
})

var judgeFields = nullable([]jsonField[pb.Judge]{
	{"ruleset", func(d *jsonReader, m *pb.Judge) { m.Ruleset = d.text() }},
	{"params", func(d *jsonReader, m *pb.Judge) { m.Params = d.objectText() }},
	{"include", func(d *jsonReader, m *pb.Judge) { m.Include = d.choice(includeWords) }},
})

var decayFields = []jsonField[pb.Decay]{
	{"field", func(d *jsonReader, m *pb.Decay) { m.Field = d.text() }},
	{"half_life", func(d *jsonReader, m *pb.Decay) { m.HalfLife = d.duration() }},
}

var mergeFields = nullable([]jsonField[pb.Merge]{
	{"method", func(d *jsonReader, m *pb.Merge) { m.Method = d.filled() }},
	{"dense", func(d *jsonReader, m *pb.Merge) { m.Dense = new(d.float()) }},
	{"min_score", func(d *jsonReader, m *pb.Merge) { m.MinScore = new(d.float()) }},
	{"lexical", func(d *jsonReader, m *pb.Merge) { m.Lexical = new(d.float()) }},
	{"decay", func(d *jsonReader, m *pb.Merge) { m.Decay = readNew(d, decayFields) }},
})

var searchFields = nullable([]jsonField[pb.SearchRequest]{
	{"collection", func(d *jsonReader, m *pb.SearchRequest) { m.Collection = d.text() }},
	{"query_text", func(d *jsonReader, m *pb.SearchRequest) { m.QueryText = d.filled() }},
	{"vector", func(d *jsonReader, m *pb.SearchRequest) { m.Vector = d.floats(vectorTop) }},
	{"k", func(d *jsonReader, m *pb.SearchRequest) { m.K = d.uint32() }},
	{"gate", func(d *jsonReader, m *pb.SearchRequest) { m.Gate = readNew(d, gateFields) }},
	{"judge", func(d *jsonReader, m *pb.SearchRequest) { m.Judge = readNew(d, judgeFields) }},
	{"merge", func(d *jsonReader, m *pb.SearchRequest) { m.Merge = readNew(d, mergeFields) }},
	{"consistency", func(d *jsonReader, m *pb.SearchRequest) { m.Consistency = d.choice(consistencies) }},
	{"min_index", func(d *jsonReader, m *pb.SearchRequest) { m.MinIndex = d.unsigned() }},
	{"exact", func(d *jsonReader, m *pb.SearchRequest) { m.Exact = d.boolean() }},
	{"candidates", func(d *jsonReader, m *pb.SearchRequest) { m.Candidates = d.uint32() }},
	{"payload", func(d *jsonReader, m *pb.SearchRequest) { m.Payload = new(d.boolean()) }},
	{"record", func(d *jsonReader, m *pb.SearchRequest) { m.Record = d.boolean() }},
	{"explain", func(d *jsonReader, m *pb.SearchRequest) { m.Explain = d.boolean() }},
	{"timeout", func(d *jsonReader, m *pb.SearchRequest) { m.Timeout = d.duration() }},
	{"model", func(d *jsonReader, m *pb.SearchRequest) { m.Model = d.filled() }},
	{"partial_ok", func(d *jsonReader, m *pb.SearchRequest) { m.PartialOk = d.boolean() }},
	{"ef", func(d *jsonReader, m *pb.SearchRequest) { m.Ef = d.uint32() }},
})

var vectorUpsertFields = []jsonField[pb.VectorUpsert]{
	{"collection", func(d *jsonReader, m *pb.VectorUpsert) { m.Collection = d.text() }},
	{"point", func(d *jsonReader, m *pb.VectorUpsert) { m.Point = readNew(d, pointFields) }},
}

var vectorDeleteFields = nullable([]jsonField[pb.VectorDelete]{
	{"collection", func(d *jsonReader, m *pb.VectorDelete) { m.Collection = d.text() }},
	{"id", func(d *jsonReader, m *pb.VectorDelete) { m.Id = d.text() }},
	{"if_version", func(d *jsonReader, m *pb.VectorDelete) { m.IfVersion = d.filled() }},
})
