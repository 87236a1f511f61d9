package rest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Search over REST.

const routeCollections = "/v1/collections"

func collectionPath(name, tail string) (string, error) {
	if name == "" {
		return "", refusedHere("collection", "is required")
	}
	return routeCollections + "/" + restSegment(name) + tail, nil
}

// real is a number, left out when nil.
func (w *restBody) real(name string, f *float64) {
	if f != nil {
		b, err := json.Marshal(*f)
		if err != nil {
			b = []byte(`"NaN"`) // refused by its name
		}
		w.raw(name, b)
	}
}

// raw is JSON already, left out when empty.
func (w *restBody) raw(name string, b []byte) {
	if len(b) > 0 {
		w.key(name)
		w.b = append(w.b, b...)
		w.comma = true
	}
}

// vector is base64 of numbers of 32 bits, left out when empty.
func (w *restBody) vector(v []float32) {
	if len(v) > 0 {
		w.text("vector", base64.StdEncoding.EncodeToString(floatBytes(v)))
	}
}

func (w *restBody) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.key(name)
	w.b = append(w.b, '[')
	for _, s := range list {
		w.sep()
		w.quote(s)
	}
	w.b = append(w.b, ']')
	w.comma = true
}

func (w *restBody) point(p *millracev1.Point) {
	w.text("id", p.GetId())
	w.vector(p.GetVector())
	w.text("model", p.GetModel())
	w.raw("payload", p.GetPayload())
	w.text("if_version", p.GetIfVersion())
	w.flag("if_absent", p.GetIfAbsent())
}

func (w *restBody) vectorUpsert(op *millracev1.VectorUpsert) {
	w.text("collection", op.GetCollection())
	if p := op.GetPoint(); p != nil {
		w.object("point", func() { w.point(p) })
	}
}

func (w *restBody) vectorDelete(op *millracev1.VectorDelete) {
	w.text("collection", op.GetCollection())
	w.text("id", op.GetId())
	w.text("if_version", op.GetIfVersion())
}

func (w *restBody) gate(g *millracev1.Gate) {
	if g == nil {
		return
	}
	w.object("gate", func() {
		w.texts("roles", g.GetRoles())
		w.text("role_mode", g.GetRoleMode())
		w.texts("credentials_all", g.GetCredentialsAll())
		w.time("valid_at", g.GetValidAt())
		w.text("client", g.GetClient())
		w.texts("ids_in", g.GetIdsIn())
		w.texts("ids_not_in", g.GetIdsNotIn())
		w.text("filter", g.GetFilter())
		w.raw("params", g.GetParams())
	})
}

var restMetrics = []string{"", "cosine", "dot"}

type restCollection struct {
	Name, Embedder, Model string
	Dim                   uint32
	Metric                string
	TextFields            []*millracev1.TextField `json:"text_fields"`
	Schema                []struct {
		Name, Type, Gate string
		Protected        bool
		Index            *bool
	}
	MaxPoints int64 `json:"max_points"`
}

func (c *restCollection) wire() *millracev1.Collection {
	metric, _ := wire.Number(restMetrics, c.Metric)
	out := &millracev1.Collection{
		Name: c.Name, Embedder: c.Embedder, Model: c.Model, Dim: c.Dim, Metric: millracev1.Metric(metric), MaxPoints: c.MaxPoints, TextFields: c.TextFields,
	}
	for _, f := range c.Schema {
		kind, _ := wire.Number(wire.FieldTypes, f.Type)
		gate, _ := wire.Number(wire.FieldGates, f.Gate)
		out.Schema = append(out.Schema, &millracev1.SchemaField{
			Name: f.Name, Type: millracev1.FieldType(kind), Gate: millracev1.FieldGate(gate), Index: f.Index, Protected: f.Protected,
		})
	}
	return out
}

func (r *Conn) setCollection(ctx context.Context, in *millracev1.SetCollectionRequest, out *millracev1.SetCollectionResponse) error {
	c := in.GetCollection()
	path, err := collectionPath(c.GetName(), "")
	if err != nil {
		return err
	}
	q := put(path, nil, func(w *restBody) {
		w.text("embedder", c.GetEmbedder())
		w.text("model", c.GetModel())
		w.int("dim", int64(c.GetDim()))
		w.word("metric", restMetrics, int32(c.GetMetric()))
		restList(w, "text_fields", c.GetTextFields(), func(t *millracev1.TextField) {
			w.text("name", t.GetName())
			if t.GetWeight() != 0 {
				w.real("weight", &t.Weight)
			}
		})
		restList(w, "schema", c.GetSchema(), func(f *millracev1.SchemaField) {
			w.text("name", f.GetName())
			w.word("type", wire.FieldTypes, int32(f.GetType()))
			w.word("gate", wire.FieldGates, int32(f.GetGate()))
			w.flag("index", f.GetIndex())
			w.flag("protected", f.GetProtected())
		})
		w.int("max_points", c.GetMaxPoints())
	})
	var body struct {
		Collection restCollection
		Replayed   bool
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Collection, out.Replayed, out.At = body.Collection.wire(), body.Replayed, a.at()
	return nil
}

func (r *Conn) getCollection(ctx context.Context, in *millracev1.GetCollectionRequest, out *millracev1.GetCollectionResponse) error {
	path, err := collectionPath(in.GetCollection(), "")
	if err != nil {
		return err
	}
	var body restCollection
	a, err := r.call(ctx, get(path, nil), &body)
	if err != nil {
		return err
	}
	out.Collection, out.At = body.wire(), a.at()
	return nil
}

func (r *Conn) listCollections(ctx context.Context, in *millracev1.ListCollectionsRequest, out *millracev1.ListCollectionsResponse) error {
	var body struct {
		Collections []restCollection
		Cursor      string
	}
	a, err := r.call(ctx, get(routeCollections, pageOf(in.GetLimit(), in.GetCursor())), &body)
	if err != nil {
		return err
	}
	out.Collections, out.Cursor, out.At = restWire(body.Collections, (*restCollection).wire), body.Cursor, a.at()
	return nil
}

func (r *Conn) deleteCollection(ctx context.Context, in *millracev1.DeleteCollectionRequest, out *millracev1.DeleteCollectionResponse) error {
	path, err := collectionPath(in.GetCollection(), "")
	if err != nil {
		return err
	}
	var body struct{ Existed bool }
	a, err := r.call(ctx, restRequest{method: http.MethodDelete, path: path}, &body)
	if err != nil {
		return err
	}
	out.Existed, out.At = body.Existed, a.at()
	return nil
}

func (r *Conn) collectionStats(ctx context.Context, in *millracev1.CollectionStatsRequest, out *millracev1.CollectionStatsResponse) error {
	path, err := collectionPath(in.GetCollection(), "/stats")
	if err != nil {
		return err
	}
	var body struct {
		Points, Slots, Recordings uint64
		MemoryBytes               uint64 `json:"memory_bytes"`
		Model                     string
		GraphRows                 uint64 `json:"graph_rows"`
		TailRows                  uint64 `json:"tail_rows"`
	}
	a, err := r.call(ctx, get(path, nil), &body)
	if err != nil {
		return err
	}
	out.Points, out.Slots, out.Recordings, out.MemoryBytes = body.Points, body.Slots, body.Recordings, body.MemoryBytes
	out.Model, out.GraphRows, out.TailRows, out.At = body.Model, body.GraphRows, body.TailRows, a.at()
	return nil
}

func (r *Conn) upsertPoints(ctx context.Context, in *millracev1.UpsertPointsRequest, out *millracev1.UpsertPointsResponse) error {
	path, err := collectionPath(in.GetCollection(), "/points:upsert")
	if err != nil {
		return err
	}
	q := post(path, 64+2048*len(in.GetPoints()), func(w *restBody) {
		restList(w, "points", in.GetPoints(), w.point)
		w.flag("atomic", in.GetAtomic())
	})
	var body struct {
		Results []struct {
			Version            string
			Existed, Truncated bool
			Error              *restError
		}
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	for _, one := range body.Results {
		out.Results = append(out.Results, &millracev1.UpsertResult{
			Version: one.Version, Existed: one.Existed, Truncated: one.Truncated, Error: one.Error.wire(),
		})
	}
	out.At = a.at()
	return nil
}

func (r *Conn) deletePoints(ctx context.Context, in *millracev1.DeletePointsRequest, out *millracev1.DeletePointsResponse) error {
	path, err := collectionPath(in.GetCollection(), "/points:delete")
	if err != nil {
		return err
	}
	q := post(path, 64+64*len(in.GetPoints()), func(w *restBody) {
		restList(w, "points", in.GetPoints(), func(p *millracev1.PointVersion) {
			w.text("id", p.GetId())
			w.text("if_version", p.GetIfVersion())
		})
		w.flag("atomic", in.GetAtomic())
	})
	var body struct {
		Results []struct {
			Existed bool
			Error   *restError
		}
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	for _, one := range body.Results {
		out.Results = append(out.Results, &millracev1.DeleteResult{Existed: one.Existed, Error: one.Error.wire()})
	}
	out.At = a.at()
	return nil
}

func (r *Conn) getPoints(ctx context.Context, in *millracev1.GetPointsRequest, out *millracev1.GetPointsResponse) error {
	path, err := collectionPath(in.GetCollection(), "/points:get")
	if err != nil {
		return err
	}
	q := post(path, 256, func(w *restBody) {
		w.texts("ids", in.GetIds())
		w.flag("vectors", in.GetVectors())
		w.exact("min_index", in.GetMinIndex())
		w.flag("stale", in.GetStale())
	})
	var body struct {
		Points []struct {
			ID, Version string
			Vector      []float32
			Payload     json.RawMessage
		}
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	for _, p := range body.Points {
		out.Points = append(out.Points, &millracev1.StoredPoint{Id: p.ID, Version: p.Version, Vector: p.Vector, Payload: p.Payload})
	}
	out.At = a.at()
	return nil
}

type restGateCounts struct {
	Considered, Passed uint64
	BlockedBy          struct{ IDs, Role, Credential, Block, Filter uint64 } `json:"blocked_by"`
	ValidAt            *time.Time                                            `json:"valid_at"`
}

func (g *restGateCounts) wire() *millracev1.GateCounts {
	b := g.BlockedBy
	return &millracev1.GateCounts{
		Considered: g.Considered, Passed: g.Passed, ValidAt: restTime(g.ValidAt),
		BlockedBy: &millracev1.BlockedBy{Ids: b.IDs, Role: b.Role, Credential: b.Credential, Block: b.Block, Filter: b.Filter},
	}
}

func (r *Conn) countPoints(ctx context.Context, in *millracev1.CountPointsRequest, out *millracev1.CountPointsResponse) error {
	path, err := collectionPath(in.GetCollection(), "/points:count")
	if err != nil {
		return err
	}
	q := post(path, 256, func(w *restBody) {
		w.gate(in.GetGate())
		w.exact("min_index", in.GetMinIndex())
		w.flag("stale", in.GetStale())
	})
	var body struct {
		Count uint64
		Gate  restGateCounts
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Count, out.Gate, out.At = body.Count, body.Gate.wire(), a.at()
	return nil
}

func rulesetPath(name string) (string, error) {
	if name == "" {
		return "", refusedHere("ruleset", "is required")
	}
	return "/v1/rulesets/" + restSegment(name), nil
}

func (r *Conn) putRuleset(ctx context.Context, in *millracev1.PutRulesetRequest, out *millracev1.PutRulesetResponse) error {
	path, err := rulesetPath(in.GetRuleset())
	if err != nil {
		return err
	}
	q := put(path, nil, func(w *restBody) {
		w.text("collection", in.GetCollection())
		restList(w, "rules", in.GetRules(), func(u *millracev1.Rule) {
			w.text("id", u.GetId())
			w.text("when", u.GetWhen())
			w.text("severity", u.GetSeverity())
			w.real("weight", &u.Weight)
			w.text("reason", u.GetReason())
			w.text("on_missing", u.GetOnMissing())
		})
		w.int("number", int64(in.GetNumber()))
	})
	var body struct {
		Number   uint32
		Replayed bool
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Number, out.Replayed, out.At = body.Number, body.Replayed, a.at()
	return nil
}

// restRule is one rule of a ruleset.
type restRule struct {
	ID        string  `json:"id"`
	When      string  `json:"when"`
	Severity  string  `json:"severity"`
	Weight    float64 `json:"weight"`
	Reason    string  `json:"reason"`
	OnMissing string  `json:"on_missing"`
}

func (r *Conn) getRuleset(ctx context.Context, in *millracev1.GetRulesetRequest, out *millracev1.GetRulesetResponse) error {
	path, err := rulesetPath(in.GetRuleset())
	if err != nil {
		return err
	}
	var body struct {
		Ruleset, Collection string
		Rules               []restRule
	}
	a, err := r.call(ctx, get(path, nil), &body)
	if err != nil {
		return err
	}
	out.Ruleset, out.Collection, out.At = body.Ruleset, body.Collection, a.at()
	for _, u := range body.Rules {
		out.Rules = append(out.Rules, &millracev1.Rule{
			Id: u.ID, When: u.When, Severity: u.Severity, Weight: u.Weight, Reason: u.Reason, OnMissing: u.OnMissing,
		})
	}
	return nil
}

func (r *Conn) listRulesets(ctx context.Context, _ *millracev1.ListRulesetsRequest, out *millracev1.ListRulesetsResponse) error {
	var body struct{ Rulesets []string }
	a, err := r.call(ctx, get("/v1/rulesets", nil), &body)
	if err != nil {
		return err
	}
	out.Rulesets, out.At = body.Rulesets, a.at()
	return nil
}

func (r *Conn) deleteRuleset(ctx context.Context, in *millracev1.DeleteRulesetRequest, out *millracev1.DeleteRulesetResponse) error {
	path, err := rulesetPath(in.GetRuleset())
	if err != nil {
		return err
	}
	var body struct{ Existed bool }
	a, err := r.call(ctx, restRequest{method: http.MethodDelete, path: path}, &body)
	if err != nil {
		return err
	}
	out.Existed, out.At = body.Existed, a.at()
	return nil
}

func (r *Conn) embed(ctx context.Context, in *millracev1.EmbedRequest, out *millracev1.EmbedResponse) error {
	q := post("/v1/embed", 256, func(w *restBody) {
		w.text("text", in.GetText())
		w.texts("texts", in.GetTexts())
		w.text("model", in.GetModel())
		w.text("kind", in.GetKind())
		w.text("truncate", in.GetTruncate())
	})
	var body struct {
		Model             string
		Dim               uint32
		Semantic          bool
		Vectors           [][]float32
		Tokens            []uint32
		Cached, Truncated []bool
	}
	if _, err := r.call(ctx, q, &body); err != nil {
		return err
	}
	out.Model, out.Dim, out.Semantic, out.Tokens, out.Cached, out.Truncated = body.Model, body.Dim, body.Semantic, body.Tokens, body.Cached, body.Truncated
	for _, v := range body.Vectors {
		out.Vectors = append(out.Vectors, &millracev1.EmbedVector{Values: v})
	}
	return nil
}

func searchBody(in *millracev1.SearchRequest) restRequest {
	return post("/v1/matrix/search", 512, func(w *restBody) {
		w.text("collection", in.GetCollection())
		w.text("query_text", in.GetQueryText())
		w.vector(in.GetVector())
		w.text("model", in.GetModel())
		w.int("k", int64(in.GetK()))
		w.gate(in.GetGate())
		if j := in.GetJudge(); j != nil {
			w.object("judge", func() {
				w.text("ruleset", j.GetRuleset())
				w.raw("params", j.GetParams())
				w.text("include", j.GetInclude())
			})
		}
		if m := in.GetMerge(); m != nil {
			w.object("merge", func() {
				w.text("method", m.GetMethod())
				w.real("dense", m.Dense)
				w.real("lexical", m.Lexical)
				w.real("min_score", m.MinScore)
				if d := m.GetDecay(); d != nil {
					w.object("decay", func() {
						w.text("field", d.GetField())
						w.duration("half_life", d.GetHalfLife())
					})
				}
			})
		}
		w.text("consistency", in.GetConsistency())
		w.exact("min_index", in.GetMinIndex())
		w.flag("exact", in.GetExact())
		w.int("candidates", int64(in.GetCandidates()))
		if in.Payload != nil && !in.GetPayload() {
			w.raw("payload", []byte("false"))
		}
		w.flag("record", in.GetRecord())
		w.flag("explain", in.GetExplain())
		w.duration("timeout", in.GetTimeout())
		w.flag("partial_ok", in.GetPartialOk())
		w.int("ef", int64(in.GetEf()))
	})
}

// restReason says what one rule had to do with a point.
type restReason struct {
	Rule    string
	OK      bool
	Reason  string
	Missing bool
}

type restHit struct {
	ID         string
	Score      float64
	Verdict    string
	JudgeScore float64 `json:"judge_score"`
	Parts      *millracev1.ScoreParts
	Reasons    []restReason
	Version    string
	Payload    json.RawMessage
}

func (h *restHit) wire() *millracev1.SearchResult {
	out := &millracev1.SearchResult{
		Id: h.ID, Score: h.Score, Verdict: h.Verdict, JudgeScore: h.JudgeScore, Parts: h.Parts, Version: h.Version, Payload: h.Payload,
	}
	for _, u := range h.Reasons {
		out.Reasons = append(out.Reasons, &millracev1.RuleReason{Rule: u.Rule, Ok: u.OK, Reason: u.Reason, Missing: u.Missing})
	}
	return out
}

func (r *Conn) search(ctx context.Context, in *millracev1.SearchRequest, out *millracev1.SearchResponse) error {
	var body struct {
		Results []restHit
		Gate    restGateCounts
		Judge   *millracev1.JudgeCounts
		Plan    string
		At      []struct {
			Partition uint32
			Index     uint64 `json:",string"`
		}
		Consistency, Embedder, Degraded string
		Semantic                        bool
		SearchID                        string                 `json:"search_id"`
		TookUs                          *millracev1.TookMicros `json:"took_us"`
		Gap                             *millracev1.Gap
		PlanNumbers                     *millracev1.PlanNumbers `json:"plan_numbers"`
	}
	if _, err := r.call(ctx, searchBody(in), &body); err != nil {
		return err
	}
	out.Results, out.Gate, out.Judge, out.Plan = restWire(body.Results, (*restHit).wire), body.Gate.wire(), body.Judge, body.Plan
	out.Consistency, out.Embedder, out.Degraded, out.Semantic = body.Consistency, body.Embedder, body.Degraded, body.Semantic
	out.SearchId, out.TookUs, out.Gap, out.PlanNumbers = body.SearchID, body.TookUs, body.Gap, body.PlanNumbers
	for _, at := range body.At {
		out.At = append(out.At, &millracev1.PartitionIndex{Partition: at.Partition, Index: at.Index})
	}
	return nil
}

func (r *Conn) getRecording(ctx context.Context, in *millracev1.GetRecordingRequest, out *millracev1.GetRecordingResponse) error {
	if in.GetSearchId() == "" {
		return refusedHere("search_id", "is required")
	}
	var body struct {
		SearchID   string     `json:"search_id"`
		RecordedAt *time.Time `json:"recorded_at"`
		ExpiresAt  *time.Time `json:"expires_at"`
		Recording  json.RawMessage
	}
	a, err := r.call(ctx, get("/v1/recordings/"+restSegment(in.GetSearchId()), nil), &body)
	if err != nil {
		return err
	}
	out.SearchId, out.Recording, out.At = body.SearchID, body.Recording, a.at()
	out.RecordedAt, out.ExpiresAt = restTime(body.RecordedAt), restTime(body.ExpiresAt)
	return nil
}

// floatBytes are numbers of 32 bits, little-endian.
func floatBytes(v []float32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}
