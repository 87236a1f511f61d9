package rest

import (
	"math"

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
			if !d.Null() {
				read(d, m)
			}
		}
	}
	return fields
}

// ids is Texts for what means another thing when it is empty than when it is left out.
func (d *jsonReader) ids() []string {
	out := d.Texts("gate_ids", d.l.GateIDs)
	if d.Fact() == nil && len(out) == 0 {
		d.Refuse("must not be empty, since no row would pass; leave the field out to let all rows pass")
	}
	return out
}

// vectorTop is how many numbers a vector has at most.
const vectorTop = core.MaxDim

var collectionFields = nullable([]jsonField[pb.Collection]{
	{"name", func(d *jsonReader, m *pb.Collection) { m.Name = d.Filled() }},
	{"embedder", func(d *jsonReader, m *pb.Collection) { m.Embedder = d.Filled() }},
	{"model", func(d *jsonReader, m *pb.Collection) { m.Model = d.Filled() }},
	{"dim", func(d *jsonReader, m *pb.Collection) { m.Dim = d.Uint32() }},
	{"metric", func(d *jsonReader, m *pb.Collection) { m.Metric = pb.Metric(d.OneOf(metricWords)) }},
	{"text_fields", func(d *jsonReader, m *pb.Collection) {
		d.Array("text_fields", core.MaxTextFields, func() { m.TextFields = append(m.TextFields, readNew(d, textFieldFields)) })
	}},
	{"schema", func(d *jsonReader, m *pb.Collection) {
		d.Array("collection_fields", core.MaxCollectionFields, func() { m.Schema = append(m.Schema, readNew(d, schemaFieldFields)) })
	}},
	{"max_points", func(d *jsonReader, m *pb.Collection) { m.MaxPoints = d.Integer(0, math.MaxInt64) }},
})

var textFieldFields = []jsonField[pb.TextField]{
	{"name", func(d *jsonReader, m *pb.TextField) { m.Name = d.Text() }},
	{"weight", func(d *jsonReader, m *pb.TextField) { m.Weight = d.Float() }},
}

var schemaFieldFields = []jsonField[pb.SchemaField]{
	{"name", func(d *jsonReader, m *pb.SchemaField) { m.Name = d.Text() }},
	{"type", func(d *jsonReader, m *pb.SchemaField) { m.Type = pb.FieldType(d.OneOf(fieldTypeWords)) }},
	{"index", func(d *jsonReader, m *pb.SchemaField) { on := d.Boolean(); m.Index = &on }},
	{"gate", func(d *jsonReader, m *pb.SchemaField) { m.Gate = pb.FieldGate(d.OneOf(fieldGateWords)) }},
	{"protected", func(d *jsonReader, m *pb.SchemaField) { m.Protected = d.Boolean() }},
}

var pointFields = nullable([]jsonField[pb.Point]{
	{"id", func(d *jsonReader, m *pb.Point) { m.Id = d.Text() }},
	{"vector", func(d *jsonReader, m *pb.Point) { m.Vector = d.Floats(vectorTop) }},
	{"model", func(d *jsonReader, m *pb.Point) { m.Model = d.Filled() }},
	{"payload", func(d *jsonReader, m *pb.Point) { m.Payload = d.RawObject() }},
	{"if_version", func(d *jsonReader, m *pb.Point) { m.IfVersion = d.Filled() }},
	{"if_absent", func(d *jsonReader, m *pb.Point) { m.IfAbsent = d.Boolean() }},
})

// On a route of one collection its name is in the path, and not in the body.

var upsertFields = []jsonField[pb.UpsertPointsRequest]{
	{"points", func(d *jsonReader, m *pb.UpsertPointsRequest) {
		d.Array("points_request", d.l.PointsRequest, func() { m.Points = append(m.Points, readNew(d, pointFields)) })
	}},
	{"atomic", func(d *jsonReader, m *pb.UpsertPointsRequest) { m.Atomic = d.Boolean() }},
}

var pointVersionFields = nullable([]jsonField[pb.PointVersion]{
	{"id", func(d *jsonReader, m *pb.PointVersion) { m.Id = d.Text() }},
	{"if_version", func(d *jsonReader, m *pb.PointVersion) { m.IfVersion = d.Filled() }},
})

var deletePointsFields = []jsonField[pb.DeletePointsRequest]{
	{"points", func(d *jsonReader, m *pb.DeletePointsRequest) {
		d.Array("points_request", d.l.PointsRequest, func() { m.Points = append(m.Points, readNew(d, pointVersionFields)) })
	}},
	{"atomic", func(d *jsonReader, m *pb.DeletePointsRequest) { m.Atomic = d.Boolean() }},
}

var getPointsFields = nullable([]jsonField[pb.GetPointsRequest]{
	{"ids", func(d *jsonReader, m *pb.GetPointsRequest) { m.Ids = d.Texts("points_request", d.l.PointsRequest) }},
	{"vectors", func(d *jsonReader, m *pb.GetPointsRequest) { m.Vectors = d.Boolean() }},
	{"min_index", func(d *jsonReader, m *pb.GetPointsRequest) { m.MinIndex = d.Unsigned() }},
	{"stale", func(d *jsonReader, m *pb.GetPointsRequest) { m.Stale = d.Boolean() }},
})

var gateFields = nullable([]jsonField[pb.Gate]{
	{"roles", func(d *jsonReader, m *pb.Gate) { m.Roles = d.Texts("gate_names", d.l.GateNames) }},
	{"role_mode", func(d *jsonReader, m *pb.Gate) { m.RoleMode = d.Choice(roleModes) }},
	{"credentials_all", func(d *jsonReader, m *pb.Gate) { m.CredentialsAll = d.Texts("gate_names", d.l.GateNames) }},
	{"valid_at", func(d *jsonReader, m *pb.Gate) { m.ValidAt = d.time() }},
	{"client", func(d *jsonReader, m *pb.Gate) { m.Client = d.Filled() }},
	{"ids_in", func(d *jsonReader, m *pb.Gate) { m.IdsIn = d.ids() }},
	{"ids_not_in", func(d *jsonReader, m *pb.Gate) { m.IdsNotIn = d.Texts("gate_ids", d.l.GateIDs) }},
	{"filter", func(d *jsonReader, m *pb.Gate) { m.Filter = d.Filled() }},
	{"params", func(d *jsonReader, m *pb.Gate) { m.Params = d.RawObject() }},
})

var countPointsFields = nullable([]jsonField[pb.CountPointsRequest]{
	{"gate", func(d *jsonReader, m *pb.CountPointsRequest) { m.Gate = readNew(d, gateFields) }},
	{"min_index", func(d *jsonReader, m *pb.CountPointsRequest) { m.MinIndex = d.Unsigned() }},
	{"stale", func(d *jsonReader, m *pb.CountPointsRequest) { m.Stale = d.Boolean() }},
})

var ruleFields = nullable([]jsonField[pb.Rule]{
	{"id", func(d *jsonReader, m *pb.Rule) { m.Id = d.Text() }},
	{"when", func(d *jsonReader, m *pb.Rule) { m.When = d.Text() }},
	{"severity", func(d *jsonReader, m *pb.Rule) { m.Severity = d.Choice(severities) }},
	{"weight", func(d *jsonReader, m *pb.Rule) { m.Weight = d.Float() }},
	{"reason", func(d *jsonReader, m *pb.Rule) { m.Reason = d.Text() }},
	{"on_missing", func(d *jsonReader, m *pb.Rule) { m.OnMissing = d.Choice(missingWords) }},
})

var putRulesetFields = nullable([]jsonField[pb.PutRulesetRequest]{
	{"collection", func(d *jsonReader, m *pb.PutRulesetRequest) { m.Collection = d.Text() }},
	{"rules", func(d *jsonReader, m *pb.PutRulesetRequest) {
		d.Array("ruleset_rules", d.l.RulesetRules, func() { m.Rules = append(m.Rules, readNew(d, ruleFields)) })
	}},
	{"number", func(d *jsonReader, m *pb.PutRulesetRequest) { m.Number = d.Uint32() }},
})

var embedFields = nullable([]jsonField[pb.EmbedRequest]{
	{"text", func(d *jsonReader, m *pb.EmbedRequest) { m.Text = d.Text() }},
	{"texts", func(d *jsonReader, m *pb.EmbedRequest) { m.Texts = d.Texts("embed_texts", d.l.EmbedTexts) }},
	{"model", func(d *jsonReader, m *pb.EmbedRequest) { m.Model = d.Filled() }},
	{"kind", func(d *jsonReader, m *pb.EmbedRequest) { m.Kind = d.Choice(embedKinds) }},
	{"truncate", func(d *jsonReader, m *pb.EmbedRequest) { m.Truncate = d.Choice(truncateWords) }},
})

var judgeFields = nullable([]jsonField[pb.Judge]{
	{"ruleset", func(d *jsonReader, m *pb.Judge) { m.Ruleset = d.Text() }},
	{"params", func(d *jsonReader, m *pb.Judge) { m.Params = d.RawObject() }},
	{"include", func(d *jsonReader, m *pb.Judge) { m.Include = d.Choice(includeWords) }},
})

var decayFields = []jsonField[pb.Decay]{
	{"field", func(d *jsonReader, m *pb.Decay) { m.Field = d.Text() }},
	{"half_life", func(d *jsonReader, m *pb.Decay) { m.HalfLife = d.duration() }},
}

var mergeFields = nullable([]jsonField[pb.Merge]{
	{"method", func(d *jsonReader, m *pb.Merge) { m.Method = d.Filled() }},
	{"dense", func(d *jsonReader, m *pb.Merge) { m.Dense = new(d.Float()) }},
	{"min_score", func(d *jsonReader, m *pb.Merge) { m.MinScore = new(d.Float()) }},
	{"lexical", func(d *jsonReader, m *pb.Merge) { m.Lexical = new(d.Float()) }},
	{"decay", func(d *jsonReader, m *pb.Merge) { m.Decay = readNew(d, decayFields) }},
})

var searchFields = nullable([]jsonField[pb.SearchRequest]{
	{"collection", func(d *jsonReader, m *pb.SearchRequest) { m.Collection = d.Text() }},
	{"query_text", func(d *jsonReader, m *pb.SearchRequest) { m.QueryText = d.Filled() }},
	{"vector", func(d *jsonReader, m *pb.SearchRequest) { m.Vector = d.Floats(vectorTop) }},
	{"k", func(d *jsonReader, m *pb.SearchRequest) { m.K = d.Uint32() }},
	{"gate", func(d *jsonReader, m *pb.SearchRequest) { m.Gate = readNew(d, gateFields) }},
	{"judge", func(d *jsonReader, m *pb.SearchRequest) { m.Judge = readNew(d, judgeFields) }},
	{"merge", func(d *jsonReader, m *pb.SearchRequest) { m.Merge = readNew(d, mergeFields) }},
	{"consistency", func(d *jsonReader, m *pb.SearchRequest) { m.Consistency = d.Choice(consistencies) }},
	{"min_index", func(d *jsonReader, m *pb.SearchRequest) { m.MinIndex = d.Unsigned() }},
	{"exact", func(d *jsonReader, m *pb.SearchRequest) { m.Exact = d.Boolean() }},
	{"candidates", func(d *jsonReader, m *pb.SearchRequest) { m.Candidates = d.Uint32() }},
	{"payload", func(d *jsonReader, m *pb.SearchRequest) { m.Payload = new(d.Boolean()) }},
	{"record", func(d *jsonReader, m *pb.SearchRequest) { m.Record = d.Boolean() }},
	{"explain", func(d *jsonReader, m *pb.SearchRequest) { m.Explain = d.Boolean() }},
	{"timeout", func(d *jsonReader, m *pb.SearchRequest) { m.Timeout = d.duration() }},
	{"model", func(d *jsonReader, m *pb.SearchRequest) { m.Model = d.Filled() }},
	{"partial_ok", func(d *jsonReader, m *pb.SearchRequest) { m.PartialOk = d.Boolean() }},
	{"ef", func(d *jsonReader, m *pb.SearchRequest) { m.Ef = d.Uint32() }},
})

var vectorUpsertFields = []jsonField[pb.VectorUpsert]{
	{"collection", func(d *jsonReader, m *pb.VectorUpsert) { m.Collection = d.Text() }},
	{"point", func(d *jsonReader, m *pb.VectorUpsert) { m.Point = readNew(d, pointFields) }},
}

var vectorDeleteFields = nullable([]jsonField[pb.VectorDelete]{
	{"collection", func(d *jsonReader, m *pb.VectorDelete) { m.Collection = d.Text() }},
	{"id", func(d *jsonReader, m *pb.VectorDelete) { m.Id = d.Text() }},
	{"if_version", func(d *jsonReader, m *pb.VectorDelete) { m.IfVersion = d.Filled() }},
})
