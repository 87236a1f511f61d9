package api

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// SearchBackend is the node as the search side of this edge needs it. Errors as in Backend.
type SearchBackend interface {
	// Definition finds a collection in this node's copy of a partition, without waiting for anything.
	Definition(p core.Partition, name string) (core.Collection, bool)
	// Collection reads a collection. NotFound when it is unknown.
	Collection(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (core.CollectionInfo, core.At, error)
	// Collections lists the collections of a partition by name.
	Collections(ctx context.Context, p core.Partition, o core.ReadOptions) ([]core.CollectionInfo, core.At, error)
	// CheckDefinition refuses a definition whose fields no expression could read.
	CheckDefinition(def *core.Collection) core.Fact
	// CheckPayload holds a payload to a definition, and returns the text of it that is embedded. A refusal names the field by
	// its path within the payload.
	CheckPayload(def *core.Collection, payload []byte) (text string, fact core.Fact)
	// RoomFor refuses points for which this node has no memory.
	RoomFor(p core.Partition, def *core.Collection, points int) core.Fact
	// Points reads points by id, in their order; those that are absent are left out.
	Points(ctx context.Context, p core.Partition, collection string, ids []string, o core.ReadOptions) ([]core.StoredPoint, core.At, error)
	// Loading reports whether the index of a collection has yet to be read here. Loaded waits until it is; a collection that is
	// not there is none to wait for.
	Loading(p core.Partition, name string) bool
	Loaded(ctx context.Context, p core.Partition, name string) error
	// Reading begins a linearizable read and does not wait: may reports whether this node's copy shows, by now, all that was
	// acknowledged before.
	Reading(p core.Partition) (may func() bool, err error)
	// Search finds rows. Count only counts those that pass a gate.
	Search(ctx context.Context, p core.Partition, q *core.SearchQuery) (*core.SearchAnswer, error)
	Count(ctx context.Context, p core.Partition, q *core.SearchQuery) (core.GateCounts, core.At, error)
	// SearchStats tells of the index that this node has of a collection.
	SearchStats(p core.Partition, collection string) core.SearchStats
	// CheckRules compiles rules against the fields of a collection. A refusal names the rule, line and column.
	CheckRules(def *core.Collection, rules []core.Rule) core.Fact
	// Ruleset reads a version of a ruleset, 0 is the newest. NotFound when there is none.
	Ruleset(ctx context.Context, p core.Partition, name string, version uint32, o core.ReadOptions) (core.Ruleset, core.At, error)
	// Rulesets lists rulesets by name, each in its newest version, without rules.
	Rulesets(ctx context.Context, p core.Partition, o core.ReadOptions) ([]core.Ruleset, core.At, error)
	// Recording reads a recording. NotFound when there is none.
	Recording(ctx context.Context, p core.Partition, uid, id uint64, o core.ReadOptions) (core.Recording, core.At, error)
}

// Embedder makes vectors of texts. Errors that satisfy core.Fact are for the client.
type Embedder interface {
	// Model finds an embedder by name; empty is the default one.
	Model(name string) (core.EmbedModel, bool)
	// Models lists the embedders by name.
	Models() []core.EmbedModel
	// Dim is the dimension of an embedder's vectors, which it may have to ask for; 0 where clients bring them and say it.
	Dim(ctx context.Context, tenant, name string) (int, error)
	// Embed returns a vector per text.
	Embed(ctx context.Context, r core.EmbedRequest) ([]core.Embedding, error)
	// Prepare brings a client's own vector into the form that is stored and searched with, in place, or says what is wrong
	// with it.
	Prepare(v []float32, metric core.Metric) error
}

// SearchService serves collections, points, rulesets and searches.
type SearchService struct {
	pb.UnimplementedSearchServiceServer
	s      *Server // what all services share
	search SearchBackend
}

// pointVersion reads what ShowVersion wrote.
func pointVersion(field, s string) (version uint64, has bool, fact core.Fact) {
	if s == "" {
		return 0, false, nil
	}
	if s == "0" {
		return 0, true, nil
	}
	part, number, ok := strings.Cut(s, "/")
	_, wrong := strictjson.ParseUnsigned(part)
	version, alsoWrong := strictjson.ParseUnsigned(number)
	if !ok || wrong != "" || alsoWrong != "" {
		return 0, false, edge.Invalid(field, "must be a version, such as 0/88123")
	}
	return version, true, nil
}

// SetCollection makes a collection in all partitions of the namespace.
func (ss *SearchService) SetCollection(ctx context.Context, in *pb.SetCollectionRequest) (*pb.SetCollectionResponse, error) {
	def, fact := ss.s.definition(in.GetCollection())
	if fact != nil {
		return nil, fact
	}
	c, err := ss.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	// A read, for the node's copy at hand may still have a collection whose removal was answered.
	was, _, err := ss.search.Collection(ctx, c.t.part, def.Name, core.ReadOptions{})
	switch {
	case err == nil:
		ss.s.repeat(&def, &was.Collection, in.GetCollection())
	case edge.Is[core.NotFound](err):
		err = c.newDefinition(ctx, &def)
	}
	if err != nil {
		return nil, err
	}
	// Never 0. Points and recordings name it, so that those of a collection that was removed are not
	// taken for those of the next one of its name.
	def.UID = c.s.o.Rand.Uint64() | 1
	r, at, err := c.proposeOp(ctx, &core.CollectionSet{Collection: def})
	if err != nil {
		return nil, err
	}
	def.UID = r.Version // of the one that is there
	if c.t.several() {
		if err := c.carry(ctx, &core.CollectionSet{Collection: def}); err != nil {
			return nil, err
		}
	}
	return &pb.SetCollectionResponse{Collection: showCollection(&def), Replayed: r.Replayed, At: ShowAt(at)}, nil
}

// definition reads a definition. What depends on no model is judged by Apply too.
func (s *Server) definition(in *pb.Collection) (def core.Collection, fact core.Fact) {
	if in == nil {
		return def, edge.Invalid("collection", "is required")
	}
	if fact = edge.SpaceName("name", in.GetName()); fact != nil {
		return def, fact
	}
	def = core.Collection{
		Name: in.GetName(), Embedder: in.GetEmbedder(), Dim: in.GetDim(), Metric: core.Metric(in.GetMetric()), MaxPoints: in.GetMaxPoints(),
	}
	if def.Metric == 0 {
		def.Metric = core.MetricCosine
	}
	if def.Metric > core.MetricDot {
		return def, edge.Invalid("metric", "must be cosine or dot")
	}
	if def.MaxPoints < 0 {
		return def, edge.Invalid("max_points", "must not be negative")
	}
	if def.Embedder == "" {
		def.Embedder = "default"
	}
	if fact = s.fillModel(&def, in.GetModel()); fact != nil {
		return def, fact
	}
	if def.Dim != 0 && (def.Dim < core.MinDim || def.Dim > core.MaxDim) {
		return def, edge.Beyond("dim", "dim", core.MaxDim, "is not 2 to 4096")
	}
	return def, fillSchema(&def, in)
}

// fillModel sets model and dim by the embedder.
func (s *Server) fillModel(def *core.Collection, model string) core.Fact {
	if s.o.Embedder == nil {
		return core.SearchState{Reason: "embedder_missing", Field: "embedder", Want: def.Embedder}
	}
	m, ok := s.o.Embedder.Model(def.Embedder)
	switch {
	case !ok:
		return core.NotFound{Kind: "embedder", ID: core.Cut(def.Embedder, NameBytes)}
	// A model that the embedder has replaced is still known by it.
	case model != "" && model != m.Model && !slices.Contains(m.Older, model):
		return core.SearchState{Reason: "model_mismatch", Field: "model", Want: m.Model, Got: core.Cut(model, 2*NameBytes)}
	case m.Dim != 0 && def.Dim != 0 && int(def.Dim) != m.Dim:
		return core.DimMismatch{Field: "dim", Want: int64(m.Dim), Got: int64(def.Dim)}
	}
	def.Model = cmp.Or(model, m.Model)
	if def.Dim == 0 {
		def.Dim = uint32(m.Dim)
	}
	return nil
}

// repeat fills what a definition leaves open from the collection that is there: the same definition again is the same, whatever new
// collections get now. Whether it is the same is judged in Apply.
func (s *Server) repeat(def, was *core.Collection, in *pb.Collection) {
	if in.GetDim() == 0 {
		def.Dim = was.Dim
	}
	if _, fact := s.embedderOf(was); fact == nil && in.GetModel() == "" {
		def.Model = was.Model
	}
}

// newDefinition refuses a definition with which later calls would fail, and learns the dimension from the embedder.
func (c *call) newDefinition(ctx context.Context, def *core.Collection) error {
	if fact := textFieldsFit(def); fact != nil {
		return fact
	}
	if fact := c.s.node.search.CheckDefinition(def); fact != nil {
		return fact
	}
	dim, err := c.s.o.Embedder.Dim(ctx, c.who.Tenant, def.Embedder)
	switch {
	case edge.Is[core.EmbedUnavailable](err) && def.Dim != 0: // the client knows, and the embedder may come later
		return nil
	case err != nil:
		return searchFailed(ctx, "embed", edge.FactOf(err, false))
	case dim != 0 && def.Dim != 0 && dim != int(def.Dim):
		return core.DimMismatch{Field: "dim", Want: int64(dim), Got: int64(def.Dim)}
	case dim == 0 && def.Dim == 0:
		return edge.Invalid("dim", "is required: this server does not know the embedder's dimension")
	}
	def.Dim = cmp.Or(def.Dim, uint32(dim))
	return nil
}

// textFieldsFit refuses a text field that is declared as something else than a string: no payload with a text would fit.
func textFieldsFit(def *core.Collection) core.Fact {
	for i, t := range def.Texts {
		for _, f := range def.Fields {
			if f.Name == t.Name && f.Type != core.FieldText && f.Type != core.FieldKeyword {
				return edge.Invalid(edge.Item("text_fields", i)+".name", "must be of type text or keyword where the schema declares it")
			}
		}
	}
	return nil
}

// fillSchema reads the fields of payloads and texts. Names and their number are judged by Apply too.
func fillSchema(def *core.Collection, in *pb.Collection) core.Fact {
	if n := len(in.GetSchema()); n > core.MaxCollectionFields {
		return edge.TooLarge("schema", "collection_fields", core.MaxCollectionFields)
	}
	for i, f := range in.GetSchema() {
		if t := f.GetType(); t < pb.FieldType_FIELD_TYPE_KEYWORD || t > pb.FieldType_FIELD_TYPE_CREDENTIALS {
			return edge.Invalid(edge.Item("schema", i)+".type", "must be a type of a field")
		}
		if g := f.GetGate(); g < 0 || g > pb.FieldGate_FIELD_GATE_BLOCK {
			return edge.Invalid(edge.Item("schema", i)+".gate", "must be a kind of gate")
		}
		def.Fields = append(def.Fields, core.SchemaField{
			Name: f.GetName(), Type: core.FieldType(f.GetType()), Index: f.Index == nil || f.GetIndex(), Gate: core.Gate(f.GetGate()), Protected: f.GetProtected(),
		})
	}
	for i, t := range in.GetTextFields() {
		weight := t.GetWeight()
		// Not given means 1.
		if weight == 0 {
			weight = 1
		}
		if math.IsNaN(weight) || weight < 0.01 || weight > 10 {
			return edge.Invalid(edge.Item("text_fields", i)+".weight", "must be from 0.01 to 10")
		}
		def.Texts = append(def.Texts, core.TextField{Name: t.GetName(), Weight: uint32(math.Round(weight * 100))})
	}
	// What most payloads call it.
	if len(def.Texts) == 0 {
		def.Texts = []core.TextField{{Name: "text", Weight: 100}}
	}
	return nil
}

// showCollection shows a definition, with what was filled in.
func showCollection(def *core.Collection) *pb.Collection {
	out := &pb.Collection{
		Name: def.Name, Embedder: def.Embedder, Model: def.Model, Dim: def.Dim, Metric: pb.Metric(def.Metric), MaxPoints: def.MaxPoints,
	}
	for _, t := range def.Texts {
		out.TextFields = append(out.TextFields, &pb.TextField{Name: t.Name, Weight: float64(t.Weight) / 100})
	}
	for _, f := range def.Fields {
		out.Schema = append(out.Schema, &pb.SchemaField{
			Name: f.Name, Type: pb.FieldType(f.Type), Index: &f.Index, Gate: pb.FieldGate(f.Gate), Protected: f.Protected,
		})
	}
	return out
}

// errSearchOff says that this server was told to answer no search.
var errSearchOff = core.Invalid{Field: "search", Reason: "not_supported", Message: "is disabled on this server"}

// begin begins a call of this service.
func (ss *SearchService) begin(ctx context.Context, makes bool) (*call, error) {
	if ss.s.o.NoSearch {
		return nil, errSearchOff
	}
	return ss.s.begin(ctx, makes)
}

// noCollection makes of an unknown namespace an unknown thing of it: a reader cannot tell which, nor whose.
func noCollection(err error, kind, id string) error {
	if edge.UnknownNamespace(err) {
		return core.NotFound{Kind: kind, ID: id}
	}
	return err
}

// ofCollection begins a call about a collection that need not exist.
func (ss *SearchService) ofCollection(ctx context.Context, name string) (*call, error) {
	if fact := edge.SpaceName("collection", name); fact != nil {
		return nil, fact
	}
	c, err := ss.begin(ctx, false)
	return c, noCollection(err, "collection", name)
}

// GetCollection reads a definition.
func (ss *SearchService) GetCollection(ctx context.Context, in *pb.GetCollectionRequest) (*pb.GetCollectionResponse, error) {
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if err != nil {
		return nil, err
	}
	info, at, err := ss.search.Collection(ctx, c.t.part, in.GetCollection(), readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	return &pb.GetCollectionResponse{Collection: showCollection(&info.Collection), At: ShowAt(at)}, nil
}

// ListCollections reads a page of definitions.
func (ss *SearchService) ListCollections(ctx context.Context, in *pb.ListCollectionsRequest) (*pb.ListCollectionsResponse, error) {
	limit, fact := ss.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	c, err := ss.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListCollectionsResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	after, fact := readNameCursor(in.GetCursor(), false)
	if fact != nil {
		return nil, fact
	}
	// There are few: a page is cut out of all.
	all, at, err := ss.search.Collections(ctx, c.t.part, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	out := &pb.ListCollectionsResponse{At: ShowAt(at)}
	// NUL is below all bytes of names: the first name after the last one that was shown.
	first, _ := slices.BinarySearchFunc(all, after+"\x00", func(i core.CollectionInfo, name string) int {
		return strings.Compare(i.Collection.Name, name)
	})
	for i := first; i < len(all); i++ {
		if len(out.Collections) == limit {
			out.Cursor = showCursor([]byte(all[i-1].Collection.Name))
			break
		}
		out.Collections = append(out.Collections, showCollection(&all[i].Collection))
	}
	return out, nil
}

// DeleteCollection removes a collection from all partitions.
func (ss *SearchService) DeleteCollection(ctx context.Context, in *pb.DeleteCollectionRequest) (*pb.DeleteCollectionResponse, error) {
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if edge.Is[core.NotFound](err) {
		return &pb.DeleteCollectionResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	// Deleted from the first partition, and then from the others; a repetition does what is left.
	op := &core.CollectionDelete{Name: in.GetCollection()}
	r, at, err := c.proposeOp(ctx, op)
	if err == nil && c.t.several() {
		err = c.carry(ctx, op)
	}
	if err != nil {
		return nil, err
	}
	return &pb.DeleteCollectionResponse{Existed: r.Existed, At: ShowAt(at)}, nil
}

// CollectionStats counts what is in a collection, in all partitions.
func (ss *SearchService) CollectionStats(ctx context.Context, in *pb.CollectionStatsRequest) (*pb.CollectionStatsResponse, error) {
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if err != nil {
		return nil, err
	}
	out := &pb.CollectionStatsResponse{}
	var at core.At
	for i := range c.t.parts {
		p := c.t.in(i)
		info, one, err := ss.search.Collection(ctx, p, in.GetCollection(), readOptions(0, in.GetStale()))
		if err != nil {
			return nil, err
		}
		// Of this node's index: another node may have another one.
		st := ss.search.SearchStats(p, in.GetCollection())
		out.Points += info.Points
		out.Slots += info.Slots
		out.Recordings += info.Recordings
		out.MemoryBytes += uint64(st.Memory)
		out.GraphRows += st.GraphRows
		out.TailRows += st.TailRows
		out.Model = info.Collection.Model
		if at = one; c.t.several() {
			merge(&at, one)
		}
	}
	out.At = ShowAt(at)
	return out, nil
}
