package api

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime/pprof"
	"slices"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// pointOps are the ops on points.
var pointOps = []opRow{
	opOf(core.OpVectorUpsert, auth.SearchWrite, func(t *Translator, in *pb.Op_VectorUpsert) (core.Op, core.Fact) {
		return asOp(t.vectorUpsert(in.VectorUpsert))
	}),
	opOf(core.OpVectorDelete, auth.SearchWrite, func(t *Translator, in *pb.Op_VectorDelete) (core.Op, core.Fact) {
		return asOp(t.vectorDelete(in.VectorDelete))
	}),
}

// pointEdge is what translates points: who offers definitions and vectors, and for how long to wait for them.
type pointEdge struct {
	// s is nil in tests of translation alone; ctx bounds how long a vector is waited for.
	s   *Server
	ctx context.Context
}

// embedWait bounds how long the points of a commit wait for their vectors.
const embedWait = 30 * time.Second

// definitionOf finds the collection of a point in its partition. One that only other partitions have is not ready.
// It reads this node's copy and waits for nothing: translation of a commit must not. Errors: NotFound,
// Unavailable.
func (t *Translator) definitionOf(p core.Partition, name string) (*core.Collection, core.Fact) {
	if fact := edge.SpaceName("collection", name); fact != nil {
		return nil, fact
	}
	if t.edge.s != nil && t.edge.s.o.NoSearch {
		return nil, errSearchOff
	}
	def, ok := t.points.Definition(p, name)
	if ok {
		return &def, nil
	}
	// A collection is made in the first partition and then in the others.
	if p.Index != 0 {
		if _, ok := t.points.Definition(t.in(0), name); ok {
			return nil, core.Unavailable{Reason: "collection_not_ready"}
		}
	}
	return nil, core.NotFound{Kind: "collection", ID: name}
}

// partOfPoint returns the partition of a point.
// Unlike a task's, the id of a point is the client's own text, so its hash decides.
func (t *Translator) partOfPoint(id string) core.Partition {
	if !t.several() {
		return t.part
	}
	return t.in(int(core.PlacePoint(id, t.parts)))
}

// elsewhere names the node that leads a partition, when this one knows that it is another.
// nil: this node leads it, or no leader is known.
func (t *Translator) elsewhere(p core.Partition) core.Fact {
	// A leader that is not known yet may be this node.
	if address, here, known := t.leads.Leader(p); known && !here {
		return core.NotLeader{Leader: address}
	}
	return nil
}

// pointID refuses what cannot be the id of a point.
func pointID(field, id string) core.Fact {
	if id == "" || len(id) > NameBytes {
		return edge.Invalid(field, "must have 1 to 128 characters")
	}
	for i := range len(id) {
		// They would be lost in the texts of filters and logs.
		if id[i] <= ' ' || id[i] == 0x7f {
			return edge.Invalid(field, "must not hold white space or control characters")
		}
	}
	return plainText(field, id)
}

// point reads a point, all but its vector. needs is the text that is to be embedded when it comes without one.
// Errors: Invalid, TooLarge, SearchState where the point's model is not the collection's.
func (t *Translator) point(def *core.Collection, in *pb.Point) (op *core.VectorUpsert, needs string, fact core.Fact) {
	if in == nil {
		return nil, "", edge.Invalid("", "is required")
	}
	if fact = pointID("id", in.GetId()); fact != nil {
		return nil, "", fact
	}
	// The uid names the collection that the point was read for: one that is made again under the name
	// takes no point of the old one.
	op = &core.VectorUpsert{
		Collection: def.Name, UID: def.UID, ID: in.GetId(), Model: def.Model, Payload: in.GetPayload(), IfAbsent: in.GetIfAbsent(),
	}
	if op.IfVersion, op.HasVersion, fact = pointVersion("if_version", in.GetIfVersion()); fact != nil {
		return nil, "", fact
	}
	// Version 0 says the same as if_absent.
	if op.IfAbsent && op.IfVersion != 0 {
		return nil, "", edge.Invalid("if_version", "and if_absent are mutually exclusive")
	}
	if len(op.Payload) > core.MaxPointPayload {
		return nil, "", edge.TooLarge("payload", "point_payload_bytes", core.MaxPointPayload)
	}
	// By the definition, which says which fields there are and of which the text is made.
	whole, fact := t.points.CheckPayload(def, op.Payload)
	if fact != nil {
		return nil, "", fact
	}
	// A vector of the client's own needs no text.
	if len(in.GetVector()) > 0 {
		op.Vector, fact = t.vector("vector", def, in.GetModel(), in.GetVector())
		return op, "", fact
	}
	// A model may be named with a text too; then it must be the collection's.
	if in.GetModel() != "" && in.GetModel() != def.Model {
		return nil, "", core.SearchState{Reason: "model_mismatch", Field: "model", Want: def.Model, Got: core.Cut(in.GetModel(), 2*NameBytes)}
	}
	if fact := t.edge.s.embeds(def); fact != nil {
		return nil, "", fact
	}
	if whole == "" {
		return nil, "", edge.Invalid("vector", "is required: the payload has no text to embed")
	}
	return op, whole, nil
}

// vector brings a client's own vector into the form that is stored.
func (t *Translator) vector(field string, def *core.Collection, model string, in []float32) ([]byte, core.Fact) {
	v, fact := t.ownVector(field, def, model, in)
	if fact != nil {
		return nil, fact
	}
	return packFloats(v), nil
}

// ownVector holds a client's own vector to the model and the length of its collection, and returns a copy in the form that is
// searched.
func (t *Translator) ownVector(field string, def *core.Collection, model string, in []float32) ([]float32, core.Fact) {
	switch {
	case model == "":
		return nil, edge.Invalid("model", "is required: it names the model of the vector")
	case model != def.Model:
		return nil, core.SearchState{Reason: "model_mismatch", Field: "model", Want: def.Model, Got: core.Cut(model, 2*NameBytes)}
	case len(in) != int(def.Dim):
		return nil, core.DimMismatch{Field: field, Want: int64(def.Dim), Got: int64(len(in))}
	// It prepares clients' vectors too.
	case t.edge.s.o.Embedder == nil:
		return nil, core.SearchState{Reason: "embedder_missing", Field: "embedder", Want: def.Embedder}
	}
	// Prepare changes it in place, and the message is the client's.
	v := append([]float32(nil), in...)
	if err := t.edge.s.o.Embedder.Prepare(v, def.Metric); err != nil {
		return nil, core.Invalid{Field: field, Reason: "vector_invalid", Message: err.Error()}
	}
	return v, nil
}

// packFloats writes numbers as they are stored: little-endian, four bytes each.
func packFloats(v []float32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// unpackFloats reads what packFloats wrote.
func unpackFloats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// embed makes the vectors of documents or of a query.
// A text that the model refuses fails the whole call, unless the request says that each text stands
// alone.
func (s *Server) embed(ctx context.Context, r core.EmbedRequest) ([]core.Embedding, error) {
	if s.o.Embedder == nil {
		return nil, core.SearchState{Reason: "embedder_missing", Field: "embedder", Want: r.Embedder}
	}
	// Profiles tell it from the rest of the call.
	pprof.SetGoroutineLabels(embedStage)
	defer pprof.SetGoroutineLabels(NoStage)
	out, err := s.o.Embedder.Embed(ctx, r)
	if err != nil {
		return nil, edge.FactOf(err, false)
	}
	// An embedder that answers another number of vectors cannot be told which is whose.
	if len(out) != len(r.Texts) {
		return nil, core.Unavailable{Reason: "embed_invalid"}
	}
	return out, nil
}

// ofText says of the field that a text came from what was said of the text.
func ofText(field string, err error) error {
	return edge.Refielded(err, func(string) string { return field })
}

// fitEmbedded refuses a vector of another length than the collection's: the embedder was changed since it was made.
func fitEmbedded(def *core.Collection, e core.Embedding) core.Fact {
	if len(e.Vector) != int(def.Dim) {
		return core.Unavailable{Reason: "embed_invalid"}
	}
	return nil
}

// embedderOf says whether a collection's embedder still stands for its model.
// Errors: SearchState, which tells the model that is wanted and the one that the embedder has.
func (s *Server) embedderOf(def *core.Collection) (core.EmbedModel, core.Fact) {
	if s.o.Embedder == nil {
		return core.EmbedModel{}, core.SearchState{Reason: "embedder_missing", Field: "embedder", Want: def.Embedder}
	}
	m, ok := s.o.Embedder.Model(def.Embedder)
	switch {
	case !ok:
		return m, core.SearchState{Reason: "embedder_missing", Field: "embedder", Want: def.Embedder}
	// Vectors of another model do not compare with those that are stored.
	case m.Model != def.Model && !slices.Contains(m.Older, def.Model):
		return m, core.SearchState{Reason: "model_mismatch", Field: "embedder", Want: def.Model, Got: m.Model}
	}
	return m, nil
}

// embeds refuses what comes without a vector to a collection whose vectors all come from clients.
func (s *Server) embeds(def *core.Collection) core.Fact {
	if s.o.Embedder == nil {
		return nil
	}
	if m, ok := s.o.Embedder.Model(def.Embedder); ok && m.Given {
		return edge.Invalid("vector", "is required: the collection's embedder makes no vectors of texts")
	}
	return nil
}

// vectorUpsert reads the op of a commit, and embeds its text: before it is proposed, and after it is known that this node
// leads the partition.
// The op carries the vector: Apply stores it, and computes nothing with it.
func (t *Translator) vectorUpsert(in *pb.VectorUpsert) (*core.VectorUpsert, core.Fact) {
	p := t.partOfPoint(in.GetPoint().GetId())
	def, fact := t.definitionOf(p, in.GetCollection())
	if fact != nil {
		// This node's copy may be old: the leader knows.
		if _, missing := fact.(core.NotFound); missing {
			if away := t.elsewhere(p); away != nil {
				return nil, away
			}
		}
		return nil, fact
	}
	op, needs, fact := t.point(def, in.GetPoint())
	if fact != nil {
		return nil, edge.Within("point", fact)
	}
	// Before the text is embedded, which costs most.
	if fact := t.points.RoomFor(p, def, 1); fact != nil {
		return nil, fact
	}
	if needs == "" {
		return op, nil
	}
	if away := t.elsewhere(p); away != nil {
		return nil, away
	}
	if _, fact := t.edge.s.embedderOf(def); fact != nil {
		return nil, fact
	}
	ctx, cancel := context.WithTimeout(t.edge.ctx, embedWait)
	defer cancel()
	// Protected texts are kept apart, so that others do not learn that one was known.
	got, err := t.edge.s.embed(ctx, core.EmbedRequest{Tenant: t.who.Tenant, Embedder: def.Embedder, Model: def.Model, Texts: []string{needs}, Protected: protectsTexts(def)})
	if err != nil {
		return nil, edge.Within("point", asFact(ofText("payload", err)))
	}
	if fact := fitEmbedded(def, got[0]); fact != nil {
		return nil, fact
	}
	op.Vector = packFloats(got[0].Vector)
	return op, nil
}

// asFact makes a fact of any error: one that is none is a fault of the embedder.
// Its text is not for the client.
func asFact(err error) core.Fact {
	var f core.Fact
	if errors.As(edge.FactOf(err, false), &f) {
		return f
	}
	return core.Unavailable{Reason: "embed_unavailable"}
}

// vectorDelete reads an op that removes a point.
// Whether the point, or its collection, is there is judged in Apply.
func (t *Translator) vectorDelete(in *pb.VectorDelete) (*core.VectorDelete, core.Fact) {
	if fact := edge.SpaceName("collection", in.GetCollection()); fact != nil {
		return nil, fact
	}
	if fact := pointID("id", in.GetId()); fact != nil {
		return nil, fact
	}
	op := &core.VectorDelete{Collection: in.GetCollection(), ID: in.GetId()}
	var fact core.Fact
	op.IfVersion, op.HasVersion, fact = pointVersion("if_version", in.GetIfVersion())
	return op, fact
}

// upsertOne is one point of a request on its way.
type upsertOne struct {
	// op is the point as it will be proposed, part where it belongs.
	op   *core.VectorUpsert
	part core.Partition
	// text is what is to be embedded; empty: the point has its vector.
	text string
	// truncated says that the text was longer than the model reads.
	truncated bool
	// fact says why the point is refused; nil: it is not.
	fact core.Fact
}

// UpsertPoints stores points: each by itself, or all or none.
// A point that is refused has its error in the answer, unless all or none are to be written. Errors of
// the whole call: NotFound without the collection, Exhausted without memory, those of the embedder,
// and what atomic makes of an item's.
func (ss *SearchService) UpsertPoints(ctx context.Context, in *pb.UpsertPointsRequest) (*pb.UpsertPointsResponse, error) {
	s := ss.s
	if fact := pointsSize(&s.Limits, len(in.GetPoints())); fact != nil {
		return nil, fact
	}
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if err != nil {
		return nil, err
	}
	defs, err := c.definitions(ctx, in.GetCollection(), pointIDs(in.GetPoints()))
	if err != nil {
		return nil, err
	}
	// Vectors are waited for as long as the call.
	c.t.edge.ctx = ctx
	all := make([]upsertOne, len(in.GetPoints()))
	texts := false
	for i, pt := range in.GetPoints() {
		u := &all[i]
		u.part = c.t.partOfPoint(pt.GetId())
		u.op, u.text, u.fact = c.t.point(defs[u.part.Index], pt)
		if u.fact = namePoint(i, u.fact); u.fact != nil && in.GetAtomic() {
			return nil, u.fact
		}
		texts = texts || u.fact == nil && u.text != ""
	}
	// As if all points were of each: how many are is not counted.
	for part, def := range defs {
		if fact := s.node.search.RoomFor(c.t.in(int(part)), def, len(all)); fact != nil {
			return nil, fact
		}
	}
	if texts {
		if err := c.embedAll(ctx, defs, all, in.GetAtomic()); err != nil {
			return nil, err
		}
	}
	return c.upsertAll(ctx, in.GetAtomic(), all)
}

// namePoint says which point of a list a refusal is about.
func namePoint(i int, f core.Fact) core.Fact {
	if f == nil {
		return nil
	}
	return edge.Within(edge.Item("points", i), f)
}

// pointsSize refuses an empty list of points and one that is too long.
func pointsSize(l *edge.Limits, n int) core.Fact {
	switch {
	case n == 0:
		return edge.Invalid("points", "must not be empty")
	case int64(n) > l.PointsRequest:
		return edge.TooLarge("points", "points_request", l.PointsRequest)
	}
	return nil
}

// pointIDs are the ids of points, in their order.
func pointIDs(points []*pb.Point) []string {
	out := make([]string, len(points))
	for i, p := range points {
		out[i] = p.GetId()
	}
	return out
}

// definitions finds the definition of a collection in all partitions that ids belong to, reading again, as it is now, where
// this node's copy has none.
// Partitions have the same definition, and each its own copy. The map has a row for each partition
// that an id belongs to.
func (c *call) definitions(ctx context.Context, name string, ids []string) (map[uint16]*core.Collection, error) {
	out := make(map[uint16]*core.Collection)
	for _, id := range ids {
		p := c.t.partOfPoint(id)
		if out[p.Index] != nil {
			continue
		}
		// With several partitions the points are carried to their leaders.
		if away := c.t.elsewhere(p); away != nil && !c.t.several() {
			return nil, away
		}
		def, fact := c.t.definitionOf(p, name)
		if _, missing := fact.(core.NotFound); missing {
			info, _, err := c.s.node.search.Collection(ctx, p, name, core.ReadOptions{})
			if err != nil {
				return nil, err
			}
			def, fact = &info.Collection, nil
		}
		if fact != nil {
			return nil, fact
		}
		out[p.Index] = def
	}
	return out, nil
}

// embedAll makes the vectors of points that came without one. When that fails, so does the request: nothing is written. A point
// whose text the model refuses is refused by itself, unless all or none are to be written.
func (c *call) embedAll(ctx context.Context, defs map[uint16]*core.Collection, all []upsertOne, atomic bool) error {
	var def *core.Collection
	// All partitions have the same definition.
	for _, def = range defs {
		break
	}
	// Whole request: all points of it would be refused for this.
	if _, fact := c.s.embedderOf(def); fact != nil {
		return fact
	}
	var texts []string
	var places []int
	for i := range all {
		if all[i].fact == nil && all[i].text != "" {
			texts, places = append(texts, all[i].text), append(places, i)
		}
	}
	// An embedder takes a bounded number of texts at a time.
	for from := 0; from < len(texts); from += int(c.s.Limits.EmbedTexts) {
		to := min(from+int(c.s.Limits.EmbedTexts), len(texts))
		got, err := c.s.embed(ctx, core.EmbedRequest{
			Tenant: c.who.Tenant, Embedder: def.Embedder, Model: def.Model, Texts: texts[from:to], Protected: protectsTexts(def), Each: true,
		})
		if err != nil {
			return err
		}
		for i, e := range got {
			u := &all[places[from+i]]
			// The model refuses this text alone.
			if e.Fact != nil {
				if u.fact = namePoint(places[from+i], asFact(ofText("payload", e.Fact))); atomic {
					return u.fact
				}
				continue
			}
			if fact := fitEmbedded(def, e); fact != nil {
				return fact
			}
			u.op.Vector, u.truncated = packFloats(e.Vector), e.Truncated
		}
	}
	return nil
}

// upsertAll proposes the points that are not refused: each in a commit of its own, or all in one.
// A failure of the proposal is that of the call: nothing is known of any point then.
func (c *call) upsertAll(ctx context.Context, atomic bool, all []upsertOne) (*pb.UpsertPointsResponse, error) {
	out := &pb.UpsertPointsResponse{Results: make([]*pb.UpsertResult, len(all))}
	// places are the points that ops are of: refused ones are left out.
	ops, parts, places := make([]core.Op, 0, len(all)), make([]core.Partition, 0, len(all)), make([]int, 0, len(all))
	for i := range all {
		if f := all[i].fact; f != nil {
			out.Results[i] = &pb.UpsertResult{Error: c.s.Wire("UpsertPoints", f, false)}
			continue
		}
		ops, parts, places = append(ops, all[i].op), append(parts, all[i].part), append(places, i)
	}
	results, at, err := c.proposePoints(ctx, atomic, ops, parts)
	if err != nil {
		return nil, err
	}
	for j, r := range results {
		i := places[j]
		if r.fact != nil {
			out.Results[i] = &pb.UpsertResult{Error: c.s.Wire("UpsertPoints", namePoint(i, r.fact), false)}
			continue
		}
		out.Results[i] = &pb.UpsertResult{
			Version: edge.ShowVersion(all[i].part.Index, r.op.Rev), Existed: r.op.Existed, Truncated: all[i].truncated,
		}
	}
	out.At = ShowAt(at)
	return out, nil
}

// pointResult is what became of one op on a point.
type pointResult struct {
	op   core.OpResult
	fact core.Fact
}

// proposePoints proposes ops on points, each by itself or all in one commit, and waits for what became of them.
func (c *call) proposePoints(ctx context.Context, atomic bool, ops []core.Op, parts []core.Partition) ([]pointResult, core.At, error) {
	if len(ops) == 0 {
		return nil, core.At{}, nil
	}
	if atomic {
		return c.proposeAtomic(ctx, ops, parts)
	}
	commits := make([]core.Commit, len(ops))
	for i := range ops {
		// The capacity is cut, so that no commit can grow into the next one's op.
		commits[i] = c.t.commitIn(parts[i], ops[i:i+1:i+1])
	}
	p, err := c.proposeEach(ctx, commits)
	if err != nil {
		return nil, p.At, err
	}
	out := make([]pointResult, len(ops))
	for i, r := range p.Results {
		if r.Refusal != nil {
			out[i].fact = r.Refusal.Fact
		} else {
			out[i].op = r.Ops[0]
		}
	}
	return out, p.At, nil
}

// proposeAtomic proposes all points as one commit of one partition: all are written, or none.
// Errors: WrongPartition names the first point that lies elsewhere than the first one.
func (c *call) proposeAtomic(ctx context.Context, ops []core.Op, parts []core.Partition) ([]pointResult, core.At, error) {
	for i := range parts {
		// A commit is of one partition.
		if parts[i] != parts[0] {
			return nil, core.At{}, edge.Within(edge.Item("points", i), edge.Belongs("id", int(parts[i].Index)))
		}
	}
	commit := c.t.commitIn(parts[0], ops)
	if fact := c.t.commitSize(0, len(ops)); fact != nil {
		return nil, core.At{}, fact
	}
	if fact := FitsLog(c.t.l, &commit); fact != nil {
		return nil, core.At{}, fact
	}
	p, err := c.propose(ctx, commit)
	if err != nil {
		return nil, p.At, err
	}
	r := p.Results[0]
	if r.Refusal != nil {
		named := *r.Refusal // what was answered belongs to the node
		if named.Op >= 0 {
			named.Fact = namePoint(named.Op, named.Fact)
		}
		return nil, p.At, edge.Refused(&named, 0)
	}
	out := make([]pointResult, len(ops))
	for i := range r.Ops {
		out[i].op = r.Ops[i]
	}
	return out, p.At, nil
}

// DeletePoints removes points: each by itself, or all or none.
// For a point that is not there existed is false in its result.
func (ss *SearchService) DeletePoints(ctx context.Context, in *pb.DeletePointsRequest) (*pb.DeletePointsResponse, error) {
	if fact := pointsSize(&ss.s.Limits, len(in.GetPoints())); fact != nil {
		return nil, fact
	}
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if err != nil {
		return nil, err
	}
	out := &pb.DeletePointsResponse{Results: make([]*pb.DeleteResult, len(in.GetPoints()))}
	var ops []core.Op
	var parts []core.Partition
	var places []int
	for i, pt := range in.GetPoints() {
		// As in a commit, so both have the same rules.
		op, fact := c.t.vectorDelete(&pb.VectorDelete{Collection: in.GetCollection(), Id: pt.GetId(), IfVersion: pt.GetIfVersion()})
		if fact = namePoint(i, fact); fact != nil {
			if in.GetAtomic() {
				return nil, fact
			}
			out.Results[i] = &pb.DeleteResult{Error: ss.s.Wire("DeletePoints", fact, false)}
			continue
		}
		ops, parts, places = append(ops, op), append(parts, c.t.partOfPoint(op.ID)), append(places, i)
	}
	results, at, err := c.proposePoints(ctx, in.GetAtomic(), ops, parts)
	if err != nil {
		return nil, err
	}
	for j, r := range results {
		if edge.Is[core.NotFound](r.fact) {
			return nil, r.fact // the collection: it is the same for all
		}
		if out.Results[places[j]] = (&pb.DeleteResult{Existed: r.op.Existed}); r.fact != nil {
			out.Results[places[j]].Error = ss.s.Wire("DeletePoints", namePoint(places[j], r.fact), false)
		}
	}
	out.At = ShowAt(at)
	return out, nil
}

// GetPoints reads points by their ids.
// Errors: NotFound without the collection; Denied where vectors would tell of a protected text;
// TooLarge where the answer would not fit a message, and fewer ids must be asked for.
func (ss *SearchService) GetPoints(ctx context.Context, in *pb.GetPointsRequest) (*pb.GetPointsResponse, error) {
	switch n := len(in.GetIds()); {
	case n == 0:
		return nil, edge.Invalid("ids", "must not be empty")
	case int64(n) > ss.s.Limits.PointsRequest:
		return nil, edge.TooLarge("ids", "points_request", ss.s.Limits.PointsRequest)
	}
	for i, id := range in.GetIds() {
		if fact := pointID(edge.Item("ids", i), id); fact != nil {
			return nil, fact
		}
	}
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if err != nil {
		return nil, err
	}
	// One index for all partitions: ofSome has each wait for no more than it has.
	o := readOptions(in.GetMinIndex(), in.GetStale())
	if err := c.ofSome(ctx, &o); err != nil {
		return nil, err
	}
	// By id, since partitions answer in their own order.
	found := make(map[string]*pb.StoredPoint)
	var at core.At
	for i := range c.t.parts {
		p := c.t.in(i)
		var ids []string
		for _, id := range in.GetIds() {
			if c.t.partOfPoint(id) == p {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			continue
		}
		points, one, err := ss.search.Points(ctx, p, in.GetCollection(), ids, o)
		if err != nil {
			return nil, err
		}
		if at = one; c.t.several() {
			merge(&at, one)
		}
		// The definition as of the points: it says which fields are protected.
		def, err := c.definitionIn(ctx, p, in.GetCollection(), core.ReadOptions{Stale: true, MinIndex: one.Index})
		if err != nil {
			return nil, err
		}
		// A vector can be turned back into words.
		if in.GetVectors() && protectsTexts(def) && !c.who.Scopes.Has(mayReadProtected) {
			return nil, deniedProtected
		}
		for _, pt := range points {
			show := &pb.StoredPoint{Id: pt.ID, Version: edge.ShowVersion(p.Index, pt.Version), Payload: c.visible(def, pt.Payload)}
			if in.GetVectors() {
				show.Vector = unpackFloats(pt.Vector)
			}
			found[pt.ID] = show
		}
	}
	out := &pb.GetPointsResponse{At: ShowAt(at)}
	room := AnswerBytes
	for _, id := range in.GetIds() {
		if pt := found[id]; pt != nil {
			if room -= len(pt.GetPayload()) + 4*len(pt.GetVector()); room < 0 {
				return nil, edge.TooLarge("ids", "answer_bytes", AnswerBytes)
			}
			out.Points = append(out.Points, pt)
			// An id that is named twice is answered once.
			delete(found, id)
		}
	}
	return out, nil
}
