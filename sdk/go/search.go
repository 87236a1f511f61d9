package millrace

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Collection is one collection of the namespace: points, each a vector with a payload.
type Collection struct {
	c    *Client
	name string
}

// Collection names a collection, which Create makes.
func (c *Client) Collection(name string) Collection { return Collection{c, name} }

// CollectionConfig defines a collection. It is fixed when the collection is made.
type CollectionConfig struct {
	Embedder string // that makes vectors of texts; default the server's, which is called default
	Model    string // read-only: what the embedder stood for; vectors of two models do not compare
	Dim      int    // of vectors; default the model's
	Dot      bool   // compare by dot product; default by cosine, and vectors are brought to length 1
	// TextFields are what the text of a point is made of, and Schema the fields that filters, rules and gates may read.
	TextFields []TextField
	Schema     []SchemaField
	MaxPoints  int64 // of a partition; default 1,048,576
}

// TextField is a field of payloads whose text is embedded when a point comes without vector. Without any it is text.
type TextField struct {
	// Name is that of a member of the payload.
	Name   string
	Weight float64 // 0.01 to 10; 0 = 1
}

// SchemaField declares a field of payloads.
type SchemaField struct {
	// Name is that of a member of the payload.
	Name string
	// Type is keyword, keywords, int, float, bool, time, geo, text or credentials.
	Type      string
	Unindexed bool   // no filter, rule or decay reads it, which saves its memory
	Gate      string // role, credential or block; empty = none
	Protected bool   // read by no rule; returned, gated by and searched in its texts only with the scope search:protected
}

// wire is d in the contract, as the definition of the collection name.
func (d CollectionConfig) wire(name string) (*millracev1.Collection, error) {
	out := &millracev1.Collection{
		Name: name, Embedder: d.Embedder, Model: d.Model, Dim: uint32(max(d.Dim, 0)), MaxPoints: d.MaxPoints, Metric: millracev1.Metric_METRIC_COSINE,
	}
	if d.Dot {
		out.Metric = millracev1.Metric_METRIC_DOT
	}
	for _, t := range d.TextFields {
		out.TextFields = append(out.TextFields, &millracev1.TextField{Name: t.Name, Weight: t.Weight})
	}
	for i, f := range d.Schema {
		kind, ok := wire.Number(wire.FieldTypes, f.Type)
		gate, known := wire.Number(wire.FieldGates, f.Gate)
		if !ok || !known {
			return nil, refused(fmt.Sprintf("schema[%d]", i), "has no such type or gate")
		}
		out.Schema = append(out.Schema, &millracev1.SchemaField{
			Name: f.Name, Type: millracev1.FieldType(kind), Gate: millracev1.FieldGate(gate), Index: new(!f.Unindexed), Protected: f.Protected,
		})
	}
	return out, nil
}

// refused is an error of this client: nothing was sent.
func refused(field, message string) *Error {
	return &Error{Code: CodeInvalidArgument, Field: field, Message: message, Op: OpNone, Outcome: Refused}
}

// collectionConfig reads the definition of the contract.
func collectionConfig(c *millracev1.Collection) CollectionConfig {
	out := CollectionConfig{
		Embedder: c.GetEmbedder(), Model: c.GetModel(), Dim: int(c.GetDim()), Dot: c.GetMetric() == millracev1.Metric_METRIC_DOT, MaxPoints: c.GetMaxPoints(),
	}
	for _, t := range c.GetTextFields() {
		out.TextFields = append(out.TextFields, TextField{t.GetName(), t.GetWeight()})
	}
	for _, f := range c.GetSchema() {
		out.Schema = append(out.Schema, SchemaField{
			Name: f.GetName(), Type: wire.FieldTypes[f.GetType()], Unindexed: !f.GetIndex(), Gate: wire.FieldGates[f.GetGate()], Protected: f.GetProtected(),
		})
	}
	return out
}

// Create makes the collection (needs the scope search:admin). existed says that it was there with the same definition; with
// another one it is ErrAlreadyExists.
func (k Collection) Create(ctx context.Context, def CollectionConfig) (existed bool, err error) {
	in, err := def.wire(k.name)
	if err != nil {
		return false, err
	}
	var out *millracev1.SetCollectionResponse
	err = k.c.change(ctx, 0, func(ctx context.Context) (err error) {
		out, err = k.c.search.SetCollection(ctx, &millracev1.SetCollectionRequest{Collection: in})
		return err
	})
	return out.GetReplayed(), err
}

// Config reads the collection's definition.
func (k Collection) Config(ctx context.Context) (CollectionConfig, error) {
	var out *millracev1.GetCollectionResponse
	err := k.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = k.c.search.GetCollection(ctx, &millracev1.GetCollectionRequest{Collection: k.name})
		return err
	})
	if err != nil {
		return CollectionConfig{}, err
	}
	return collectionConfig(out.GetCollection()), nil
}

// Delete removes the collection with all its points and recordings.
func (k Collection) Delete(ctx context.Context) error {
	return k.c.change(ctx, 0, func(ctx context.Context) error {
		_, err := k.c.search.DeleteCollection(ctx, &millracev1.DeleteCollectionRequest{Collection: k.name})
		return err
	})
}

// CollectionStats count what is in a collection.
type CollectionStats struct {
	// Points are those that there are, and Slots the rows that they and removed ones take; Recordings are of searches.
	Points, Slots, Recordings uint64
	MemoryBytes               uint64 // of the index on the node that answered
	// Model is the one whose vectors the collection holds.
	Model               string
	GraphRows, TailRows uint64 // that the node's graph has, and newer ones, which searches compare one by one
}

// Stats counts what is in the collection.
func (k Collection) Stats(ctx context.Context) (CollectionStats, error) {
	var out *millracev1.CollectionStatsResponse
	err := k.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = k.c.search.CollectionStats(ctx, &millracev1.CollectionStatsRequest{Collection: k.name})
		return err
	})
	return CollectionStats{
		Points: out.GetPoints(), Slots: out.GetSlots(), Recordings: out.GetRecordings(), MemoryBytes: out.GetMemoryBytes(), Model: out.GetModel(),
		GraphRows: out.GetGraphRows(), TailRows: out.GetTailRows(),
	}, err
}

// Collections lists a page of names of collections.
func (c *Client) Collections(ctx context.Context, limit int, cursor string) (names []string, next string, err error) {
	var out *millracev1.ListCollectionsResponse
	err = c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = c.search.ListCollections(ctx, &millracev1.ListCollectionsRequest{Limit: uint32(max(limit, 0)), Cursor: cursor})
		return err
	})
	for _, one := range out.GetCollections() {
		names = append(names, one.GetName())
	}
	return names, out.GetCursor(), err
}

// Point is one thing that is searched for. Without a vector the text of its payload is embedded by the server.
type Point struct {
	// ID names the point in its collection.
	ID string
	// Vector has as many numbers as the collection's model; nil: the server makes it.
	Vector  []float32
	Model   string // of the vector; needed with one
	Payload any    // what encodes to a JSON object; json.RawMessage as it is
	// IfVersion is the version that the write expects; "0" = the point is absent.
	IfVersion string
	// IfAbsent refuses the write with ErrPrecondition where there is a point of that id.
	IfAbsent bool
}

// wire is p in the contract. A payload that is not a JSON object is for the server to refuse.
func (p Point) wire() (*millracev1.Point, error) {
	out := &millracev1.Point{Id: p.ID, Vector: p.Vector, Model: p.Model, IfVersion: p.IfVersion, IfAbsent: p.IfAbsent}
	if !utf8.ValidString(p.ID) {
		return nil, badText("id")
	}
	switch raw := p.Payload.(type) {
	case nil:
		return out, nil
	case json.RawMessage:
		out.Payload = raw
		return out, nil
	}
	raw, err := json.Marshal(p.Payload)
	if err != nil {
		return nil, fmt.Errorf("payload of point %s: %w", p.ID, err)
	}
	out.Payload = raw
	return out, nil
}

// Upserted is what became of one point.
type Upserted struct {
	Version   string // of the point now
	Existed   bool   // it was there
	Truncated bool   // its text was longer than the model takes
	Err       error  // nil: stored
}

// Upsert stores up to 1,000 points, each by itself: what became of each is at its place. It may be repeated.
func (k Collection) Upsert(ctx context.Context, points ...Point) ([]Upserted, error) {
	return k.upsert(ctx, false, points)
}

// UpsertAll stores points in one commit: all, or none.
func (k Collection) UpsertAll(ctx context.Context, points ...Point) ([]Upserted, error) {
	return k.upsert(ctx, true, points)
}

// upsert stores points, each by itself or with atomic all in one commit.
func (k Collection) upsert(ctx context.Context, atomic bool, points []Point) ([]Upserted, error) {
	in := &millracev1.UpsertPointsRequest{Collection: k.name, Atomic: atomic, Points: make([]*millracev1.Point, len(points))}
	for i := range points {
		var err error
		if in.Points[i], err = points[i].wire(); err != nil {
			return nil, err
		}
	}
	var out *millracev1.UpsertPointsResponse
	err := k.c.change(ctx, k.home(points), func(ctx context.Context) (err error) {
		out, err = k.c.search.UpsertPoints(ctx, in)
		return err
	})
	if err != nil {
		return nil, err
	}
	result := make([]Upserted, len(out.GetResults()))
	for i, r := range out.GetResults() {
		result[i] = Upserted{Version: r.GetVersion(), Existed: r.GetExisted(), Truncated: r.GetTruncated()}
		if e := r.GetError(); e != nil {
			result[i].Err = fromWire(e)
		}
	}
	return result, nil
}

// home is the partition that all points are of, or anywhere.
func (k Collection) home(points []Point) int {
	n := k.c.hub.Partitions()
	if n <= 1 || len(points) == 0 {
		return anywhere
	}
	home := place.Key(points[0].ID, n)
	for _, p := range points[1:] {
		if place.Key(p.ID, n) != home {
			return anywhere
		}
	}
	return home
}

// Remove removes points by their ids, and reports of each whether it was there.
func (k Collection) Remove(ctx context.Context, ids ...string) (existed []bool, err error) {
	in := &millracev1.DeletePointsRequest{Collection: k.name}
	for _, id := range ids {
		in.Points = append(in.Points, &millracev1.PointVersion{Id: id})
	}
	var out *millracev1.DeletePointsResponse
	err = k.c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = k.c.search.DeletePoints(ctx, in)
		return err
	})
	for _, r := range out.GetResults() {
		if e := r.GetError(); e != nil && err == nil {
			err = fromWire(e)
		}
		existed = append(existed, r.GetExisted())
	}
	return existed, err
}

// StoredPoint is a point as it is stored.
type StoredPoint struct {
	// ID and Payload are as they were stored.
	ID string
	// Version is fit for Point.IfVersion.
	Version string
	Vector  []float32
	Payload json.RawMessage
}

// Points reads points by their ids, with their vectors; those that are absent are left out.
func (k Collection) Points(ctx context.Context, ids []string, opts ...ReadOption) ([]StoredPoint, error) {
	in := &millracev1.GetPointsRequest{Collection: k.name, Ids: ids, Vectors: true, MinIndex: readOptionsOf(opts).minIndex}
	var out *millracev1.GetPointsResponse
	err := k.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = k.c.search.GetPoints(ctx, in)
		return err
	})
	var list []StoredPoint
	for _, p := range out.GetPoints() {
		list = append(list, StoredPoint{p.GetId(), p.GetVersion(), p.GetVector(), p.GetPayload()})
	}
	return list, err
}

// Gate is who may be found at all: all of it must hold.
type Gate struct {
	Roles []string // a field of gate role holds one of them
	// AnyRole says that Roles are not asked for.
	AnyRole     bool
	Credentials []string  // each is held, and valid at ValidAt
	ValidAt     time.Time // zero = now
	Client      string    // no field of gate block holds it
	// IDsIn are the only points that may be found, nil: any; IDsNotIn are never found.
	IDsIn    []string
	IDsNotIn []string
	Filter   string // an expression over indexed fields
	Params   any    // what encodes to a JSON object: what Filter names as p.NAME
}

// wire is g in the contract.
func (g Gate) wire() (*millracev1.Gate, error) {
	out := &millracev1.Gate{
		Roles: g.Roles, CredentialsAll: g.Credentials, Client: g.Client, IdsIn: g.IDsIn, IdsNotIn: g.IDsNotIn, Filter: g.Filter,
	}
	if g.IDsIn != nil && len(g.IDsIn) == 0 {
		return nil, refused("gate.ids_in", "is empty: nothing would pass; leave it nil to let any pass")
	}
	if g.AnyRole {
		out.RoleMode = "any"
	}
	if !g.ValidAt.IsZero() {
		out.ValidAt = timestamppb.New(g.ValidAt)
	}
	var err error
	out.Params, err = objectOf("gate.params", g.Params)
	return out, err
}

// objectOf encodes what is to be a JSON object; nil stays nil. Errors name the field.
func objectOf(field string, v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return raw, nil
}

// GateCounts count rows: Considered is Passed and all that were stopped, each by the first condition it fails.
type GateCounts struct {
	// Considered are the rows that there are.
	Considered, Passed                   uint64
	IDs, Role, Credential, Block, Filter uint64
	// ValidAt is the time by which credentials were judged.
	ValidAt time.Time
}

// gateCounts reads the counts of the contract.
func gateCounts(g *millracev1.GateCounts) GateCounts {
	b := g.GetBlockedBy()
	return GateCounts{
		g.GetConsidered(), g.GetPassed(), b.GetIds(), b.GetRole(), b.GetCredential(), b.GetBlock(), b.GetFilter(), g.GetValidAt().AsTime(),
	}
}

// Count counts exactly the points that pass a gate.
func (k Collection) Count(ctx context.Context, gate Gate) (GateCounts, error) {
	g, err := gate.wire()
	if err != nil {
		return GateCounts{}, err
	}
	var out *millracev1.CountPointsResponse
	err = k.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = k.c.search.CountPoints(ctx, &millracev1.CountPointsRequest{Collection: k.name, Gate: g})
		return err
	})
	return gateCounts(out.GetGate()), err
}

// Search is a search of a collection, by text or vector.
type Search struct {
	// Text is embedded by the collection's embedder; Vector is taken as it is. One of them is given.
	Text   string
	Vector []float32
	Model  string // of the vector; needed with one
	K      int    // results; default 10, at most 1,000
	// Gate is judged first: only what passes it is found.
	Gate Gate

	Ruleset string // NAME or NAME@VERSION
	Params  any    // what encodes to a JSON object: what rules name as params.NAME
	// OnlyEligible leaves out rows for which a rule says conditional.
	OnlyEligible bool

	// DecayField is a field of type time. HalfLife is required with it: what lies that far back counts half.
	DecayField string
	HalfLife   time.Duration
	// MinScore leaves out rows below it; nil: none.
	MinScore *float64
	// Weights of nearness and of the query's words in a point's texts. Nil: of a vector nearness alone, of a text 0.9 and 0.1, or
	// 0.1 and 0.9 where the embedder knows words alone.
	Dense, Lexical *float64

	Exact bool // compare all rows that pass by their 32-bit vectors
	Stale bool // read what the node has, without asking a majority
	// AtLeast is a place that the read must have reached, as the option of that name.
	AtLeast Place
	Record  bool // keep the search durably before it is answered
	// Explain adds the parts of each score and the numbers of the plan.
	Explain  bool
	NoFields bool // leave payloads out
	// Timeout bounds the search on the server; 0 means 5 s.
	Timeout time.Duration
	Partial bool // when the time is up, take what was found by then: Found.Gap says what is missing
	Width   int  // rows that a walk over the graph keeps in sight, 16 to 1,000; default the larger of 120 and 4 K
}

// Found is the answer to a search.
type Found struct {
	Results []Result // best first
	// Gate counts who was stopped by what; Judged and Blocked count rows that rules looked at, and stopped.
	Gate    GateCounts
	Judged  uint64
	Blocked uint64
	Ruleset string // NAME@VERSION
	// Plan is how rows were found: scan, exact, hnsw or hnsw+scan.
	Plan string
	// Semantic says that the embedder knows what words mean; else it only counts them.
	Semantic bool
	SearchID string // with Record
	Gap      *Gap   // with Partial, when the answer is not whole
}

// Gap is what an answer lacks because the time was up.
type Gap struct {
	Stage    string // that was cut short: read, gate, retrieve or judge
	Unjudged uint64 // rows that pass the gate, as far as that is known, and were not judged
}

// Result is a row that was found.
type Result struct {
	// ID is the point's.
	ID string
	// Score is what results are ordered by: nearness times JudgeScore, which rules move within 0 and 2, times Decay.
	Score      float64
	Eligible   bool // else conditional
	JudgeScore float64
	Dense      float64 // with Explain, as the next three
	Lexical    float64
	Decay      float64
	// Reasons are of the rules that had something to say, in their order.
	Reasons []Reason
	// Version and Payload are those of the point; Payload is nil with NoFields.
	Version string
	Payload json.RawMessage
}

// Reason is what a rule said of a row.
type Reason struct {
	// Rule is its id. OK says that it does not stand against the row, and Reason is its text for people.
	Rule    string
	OK      bool
	Reason  string
	Missing bool // the row lacks a field that the rule reads
}

// wire is s in the contract, as a search of a collection.
func (s Search) wire(collection string) (*millracev1.SearchRequest, error) {
	g, err := s.Gate.wire()
	if err != nil {
		return nil, err
	}
	out := &millracev1.SearchRequest{
		Collection: collection, QueryText: s.Text, Vector: s.Vector, Model: s.Model, K: uint32(max(s.K, 0)), Gate: g, Exact: s.Exact,
		MinIndex: s.AtLeast.Index, Record: s.Record, Explain: s.Explain, Timeout: durationOf(s.Timeout),
		PartialOk: s.Partial, Ef: uint32(max(s.Width, 0)),
	}
	if s.Stale {
		out.Consistency = "stale"
	}
	if s.NoFields {
		out.Payload = new(bool)
	}
	if s.Ruleset != "" {
		out.Judge = &millracev1.Judge{Ruleset: s.Ruleset}
		if out.Judge.Params, err = objectOf("params", s.Params); err != nil {
			return nil, err
		}
		if s.OnlyEligible {
			out.Judge.Include = "eligible"
		}
	}
	if s.MinScore != nil || s.DecayField != "" || s.Dense != nil || s.Lexical != nil {
		out.Merge = &millracev1.Merge{MinScore: s.MinScore, Dense: s.Dense, Lexical: s.Lexical}
		if s.DecayField != "" {
			out.Merge.Decay = &millracev1.Decay{Field: s.DecayField, HalfLife: durationpb.New(s.HalfLife)}
		}
	}
	return out, nil
}

// Search finds who passes the gate, and of them who fits best. There are never fewer results than K, or than rows that pass.
func (k Collection) Search(ctx context.Context, s Search) (*Found, error) {
	in, err := s.wire(k.name)
	if err != nil {
		return nil, err
	}
	var out *millracev1.SearchResponse
	if err = k.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = k.c.search.Search(ctx, in)
		return err
	}); err != nil {
		return nil, err
	}
	f := &Found{
		Gate: gateCounts(out.GetGate()), Judged: out.GetJudge().GetJudged(), Blocked: out.GetJudge().GetBlocked(), Ruleset: out.GetJudge().GetRuleset(),
		Plan: out.GetPlan(), Semantic: out.GetSemantic(), SearchID: out.GetSearchId(), Results: make([]Result, len(out.GetResults())),
	}
	if g := out.GetGap(); g != nil {
		f.Gap = &Gap{g.GetStage(), g.GetUnjudged()}
	}
	for i, r := range out.GetResults() {
		one := Result{
			ID: r.GetId(), Score: r.GetScore(), Eligible: r.GetVerdict() == "eligible", JudgeScore: r.GetJudgeScore(), Dense: r.GetParts().GetDense(),
			Lexical: r.GetParts().GetLexical(), Decay: r.GetParts().GetDecay(), Version: r.GetVersion(), Payload: r.GetPayload(),
		}
		for _, u := range r.GetReasons() {
			one.Reasons = append(one.Reasons, Reason{u.GetRule(), u.GetOk(), u.GetReason(), u.GetMissing()})
		}
		f.Results[i] = one
	}
	return f, nil
}

// Recording reads a search that was recorded: a JSON object of request, vector, ruleset and answer.
func (c *Client) Recording(ctx context.Context, searchID string) (json.RawMessage, error) {
	var out *millracev1.GetRecordingResponse
	err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = c.search.GetRecording(ctx, &millracev1.GetRecordingRequest{SearchId: searchID})
		return err
	})
	return out.GetRecording(), err
}

// Rule is one rule of a ruleset.
type Rule struct {
	// ID names the rule in reasons.
	ID        string  `json:"id"`
	When      string  `json:"when"`                 // an expression over indexed fields, req, params and now
	Severity  string  `json:"severity"`             // block, conditional, penalty or bonus
	Weight    float64 `json:"weight,omitempty"`     // of a penalty or bonus
	Reason    string  `json:"reason,omitempty"`     // for people
	OnMissing string  `json:"on_missing,omitempty"` // block, conditional or ignore
}

// PublishRules publishes the next version of a ruleset (needs the scope search:admin), and returns its number. A rule that
// does not compile is refused with line and column in the error's Details. The newest rules again give their number.
func (c *Client) PublishRules(ctx context.Context, ruleset, collection string, rules []Rule) (version int, err error) {
	in := &millracev1.PutRulesetRequest{Ruleset: ruleset, Collection: collection}
	for _, r := range rules {
		in.Rules = append(in.Rules, &millracev1.Rule{Id: r.ID, When: r.When, Severity: r.Severity, Weight: r.Weight, Reason: r.Reason, OnMissing: r.OnMissing})
	}
	var out *millracev1.PutRulesetResponse
	err = c.change(ctx, 0, func(ctx context.Context) (err error) {
		out, err = c.search.PutRuleset(ctx, in)
		return err
	})
	return int(out.GetNumber()), err
}

// Rules reads a ruleset by NAME or NAME@VERSION; name is NAME@VERSION.
func (c *Client) Rules(ctx context.Context, ruleset string) (name, collection string, rules []Rule, err error) {
	var out *millracev1.GetRulesetResponse
	err = c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = c.search.GetRuleset(ctx, &millracev1.GetRulesetRequest{Ruleset: ruleset})
		return err
	})
	for _, r := range out.GetRules() {
		rules = append(rules, Rule{r.GetId(), r.GetWhen(), r.GetSeverity(), r.GetWeight(), r.GetReason(), r.GetOnMissing()})
	}
	return out.GetRuleset(), out.GetCollection(), rules, err
}

// Rulesets lists the rulesets by name, each as NAME@NEWEST.
func (c *Client) Rulesets(ctx context.Context) ([]string, error) {
	var out *millracev1.ListRulesetsResponse
	err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = c.search.ListRulesets(ctx, &millracev1.ListRulesetsRequest{})
		return err
	})
	return out.GetRulesets(), err
}

// DeleteRules removes a ruleset, by its name, with all its versions (needs the scope search:admin). Numbers of versions that
// were removed are not used again: a version that is published later under the name gets a higher one. An absent ruleset is not
// an error.
func (c *Client) DeleteRules(ctx context.Context, ruleset string) error {
	return c.change(ctx, 0, func(ctx context.Context) error {
		_, err := c.search.DeleteRuleset(ctx, &millracev1.DeleteRulesetRequest{Ruleset: ruleset})
		return err
	})
}

// Embedding is the vector of one text.
type Embedding struct {
	// Vector has as many numbers as the model says, and Tokens is how many parts the model saw of the text.
	Vector []float32
	Tokens int
	// Cached says that the vector was known before.
	Cached bool
	// Truncated says that the text was longer than the model reads.
	Truncated bool
}

// Embed makes vectors of texts by an embedder of the server; empty is the default one. model is the id of its model.
func (c *Client) Embed(ctx context.Context, embedder string, texts ...string) (list []Embedding, model string, err error) {
	var out *millracev1.EmbedResponse
	err = c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		out, err = c.search.Embed(ctx, &millracev1.EmbedRequest{Texts: texts, Model: embedder})
		return err
	})
	for i, v := range out.GetVectors() {
		list = append(list, Embedding{v.GetValues(), int(out.GetTokens()[i]), out.GetCached()[i], out.GetTruncated()[i]})
	}
	return list, out.GetModel(), err
}

// Collection names a collection to change within a Tx.
func (tx *Tx) Collection(name string) TxCollection { return TxCollection{tx, name} }

// TxCollection changes a collection within a Tx: with the task's completion, or not at all.
type TxCollection struct {
	tx   *Tx
	name string
}

// Upsert stores a point. The server embeds its text, if it has no vector, before the commit is proposed.
func (k TxCollection) Upsert(p Point) {
	w, err := p.wire()
	if err != nil {
		k.tx.fail(err)
		return
	}
	op := &millracev1.VectorUpsert{Collection: k.name, Point: w}
	k.tx.ops = append(k.tx.ops, &millracev1.Op{Op: &millracev1.Op_VectorUpsert{VectorUpsert: op}})
}

// Remove removes a point. An absent point is not an error.
func (k TxCollection) Remove(id string) {
	op := &millracev1.VectorDelete{Collection: k.name, Id: id}
	k.tx.ops = append(k.tx.ops, &millracev1.Op{Op: &millracev1.Op_VectorDelete{VectorDelete: op}})
}
