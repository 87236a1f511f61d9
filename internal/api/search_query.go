package api

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime/pprof"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Defaults of a search.
const (
	searchKDefault       = 10
	searchTimeoutDefault = 5 * time.Second
	// A walk that keeps fewer rows in sight finds too little; one that keeps more costs as much as a scan.
	SearchWidthMin, SearchWidthMax = 16, 1000
)

// gate reads who may be found.
// The names of fields that it reads are those of the collection, so what it means is known to the node
// alone. A gate that is left out lets all rows pass.
func (t *Translator) gate(in *pb.Gate) (out core.SearchGate, fact core.Fact) {
	if in == nil {
		in = new(pb.Gate)
	}
	// As they came: the node compiles the filter and checks what it names.
	out = core.SearchGate{
		Roles: in.GetRoles(), Credentials: in.GetCredentialsAll(), Client: in.GetClient(), IDsIn: in.GetIdsIn(), IDsNotIn: in.GetIdsNotIn(),
		Filter: in.GetFilter(), Params: in.GetParams(),
	}
	// exact: a row must hold one of the roles; any: roles are not asked for.
	switch in.GetRoleMode() {
	case "", "exact":
	case "any":
		out.AnyRole = true
	default:
		return out, edge.Invalid("role_mode", "must be exact or any")
	}
	names := t.l.GateNames
	switch {
	case int64(len(out.Roles)) > names:
		return out, edge.TooLarge("roles", "gate_names", names)
	case int64(len(out.Credentials)) > names:
		return out, edge.TooLarge("credentials_all", "gate_names", names)
	case int64(len(out.IDsIn)) > t.l.GateIDs:
		return out, edge.TooLarge("ids_in", "gate_ids", t.l.GateIDs)
	case int64(len(out.IDsNotIn)) > t.l.GateIDs:
		return out, edge.TooLarge("ids_not_in", "gate_ids", t.l.GateIDs)
	case int64(len(out.Filter)) > t.l.FilterBytes:
		return out, edge.TooLarge("filter", "filter_bytes", t.l.FilterBytes)
	case int64(len(out.Params)) > t.l.FilterBytes:
		return out, edge.TooLarge("params", "filter_bytes", t.l.FilterBytes)
	}
	if in.GetValidAt() == nil {
		// Now, by the later of the shard's time and this node's clock. Nanoseconds since 1970, as rows
		// have it.
		out.ValidAt = max(t.now.Time().UnixNano(), t.edge.s.o.Clock.Wall().UnixNano())
		return out, nil
	}
	if err := in.GetValidAt().CheckValid(); err != nil {
		return out, edge.Invalid("valid_at", "must be a valid timestamp")
	}
	at := in.GetValidAt().AsTime()
	// What nanoseconds in 64 bits can say, with some room.
	if at.Year() < 1700 || at.Year() > 2200 {
		return out, edge.Invalid("valid_at", "must be in the years 1700 to 2200")
	}
	out.ValidAt = at.UnixNano()
	return out, nil
}

// query reads a search, all but its vector.
// Whether collection, fields and ruleset are there is found out later, by the read.
func (t *Translator) query(in *pb.SearchRequest) (q *core.SearchQuery, fact core.Fact) {
	// 0 stands for what is not given, where the node has a default.
	q = &core.SearchQuery{
		Collection: in.GetCollection(), K: int(cmp.Or(in.GetK(), searchKDefault)), Exact: in.GetExact(),
		Candidates: int(in.GetCandidates()), Width: int(in.GetEf()), Partial: in.GetPartialOk(), Payload: in.Payload == nil || in.GetPayload(), Explain: in.GetExplain(),
		Read: core.ReadOptions{MinIndex: in.GetMinIndex()},
	}
	if fact = edge.SpaceName("collection", q.Collection); fact != nil {
		return nil, fact
	}
	switch in.GetConsistency() {
	case "", "linearizable":
	// This node's copy as it is, without asking a majority.
	case "stale":
		q.Read.Stale = true
	default:
		return nil, edge.Invalid("consistency", "must be linearizable or stale")
	}
	switch {
	// Limits one after the other, in the order of the fields.
	case int64(q.K) > t.l.SearchK:
		return nil, edge.Beyond("k", "search_k", t.l.SearchK, "is out of range")
	case int64(q.Candidates) > t.l.SearchCandidates:
		return nil, edge.Beyond("candidates", "search_candidates", t.l.SearchCandidates, "is out of range")
	case q.Width != 0 && (q.Width < SearchWidthMin || q.Width > SearchWidthMax):
		return nil, edge.Invalid("ef", "must be from 16 to 1000")
	case int64(len(in.GetQueryText())) > t.l.QueryTextBytes:
		return nil, edge.TooLarge("query_text", "query_text_bytes", t.l.QueryTextBytes)
	// Exactly one of the two.
	case (in.GetQueryText() == "") == (len(in.GetVector()) == 0):
		return nil, edge.Invalid("query_text", "give either query_text or vector")
	}
	if q.Gate, fact = t.gate(in.GetGate()); fact != nil {
		return nil, edge.Within("gate", fact)
	}
	if fact = t.judge(q, in.GetJudge()); fact != nil {
		return nil, edge.Within("judge", fact)
	}
	if fact = t.mergeOf(q, in.GetMerge()); fact != nil {
		return nil, edge.Within("merge", fact)
	}
	return q, nil
}

// judge reads by which rules rows are judged. Rules themselves are found by the node, as of the read.
func (t *Translator) judge(q *core.SearchQuery, in *pb.Judge) (fact core.Fact) {
	if in == nil {
		return nil
	}
	if in.GetRuleset() == "" {
		return edge.Invalid("ruleset", "is required")
	}
	if q.Ruleset, q.Version, fact = rulesetName("ruleset", in.GetRuleset()); fact != nil {
		return fact
	}
	if q.JudgeParams = in.GetParams(); int64(len(q.JudgeParams)) > t.l.FilterBytes {
		return edge.TooLarge("params", "filter_bytes", t.l.FilterBytes)
	}
	switch in.GetInclude() {
	// Rows that are conditional stand in the answer, marked as such.
	case "", "conditional":
	case "eligible":
		q.EligibleOnly = true
	default:
		return edge.Invalid("include", "must be eligible or conditional")
	}
	return nil
}

// WeightMax bounds a weight: beyond it a score has no six decimals left.
const WeightMax = 1e6

// weightFits reports whether a weight can be used; nil: it was not given. NaN fits no bound.
func weightFits(w *float64) bool { return w == nil || *w >= 0 && *w <= WeightMax }

// mergeOf reads how nearness and words are weighed, and how scores fade with age.
func (t *Translator) mergeOf(q *core.SearchQuery, in *pb.Merge) core.Fact {
	if in == nil {
		return nil
	}
	// Other methods are reserved.
	if m := in.GetMethod(); m != "" && m != "convex" {
		return edge.NotSupported("method")
	}
	switch {
	case !weightFits(in.Dense):
		return edge.Invalid("dense", "must be from 0 to 1000000")
	case !weightFits(in.Lexical):
		return edge.Invalid("lexical", "must be from 0 to 1000000")
	}
	if in.MinScore != nil {
		q.HasMinScore, q.MinScore = true, in.GetMinScore()
		if math.IsNaN(q.MinScore) || math.IsInf(q.MinScore, 0) {
			return edge.Invalid("min_score", "must be finite")
		}
	}
	d := in.GetDecay()
	if d == nil {
		return nil
	}
	if d.GetField() == "" {
		return edge.Invalid("decay.field", "is required")
	}
	// That it is a time in the collection is checked by the node.
	q.DecayField = d.GetField()
	var fact core.Fact
	if d.GetHalfLife() == nil {
		return edge.Invalid("decay.half_life", "is required")
	}
	q.HalfLife, fact = Millis("decay.half_life", d.GetHalfLife(), Span{1, t.l.HorizonMs, "horizon_ms"})
	return fact
}

// Weights of a text's nearness and of its words where a search names none. What an embedder of meaning finds near is near, and
// words settle little; one that only hashes words adds little to the words themselves.
const (
	more = 0.9
	less = 0.1
)

// weigh sets the weights of a search, once it is known what its embedder knows.
// A search by vector has no words, so it needs a weight for nearness only. Refused are weights that
// make all scores 0.
func weigh(q *core.SearchQuery, in *pb.SearchRequest, semantic bool) core.Fact {
	m := in.GetMerge()
	q.Dense, q.Lexical = 1, 0
	if in.GetQueryText() == "" {
		// Without a text there are no words to find.
		if m.GetLexical() > 0 {
			return edge.Invalid("merge.lexical", "needs query_text")
		}
	} else {
		if q.Dense, q.Lexical = less, more; semantic {
			q.Dense, q.Lexical = more, less
		}
		q.Words = in.GetQueryText()
	}
	// What is given counts, 0 too.
	if m != nil && m.Dense != nil {
		q.Dense = m.GetDense()
	}
	if m != nil && m.Lexical != nil {
		q.Lexical = m.GetLexical()
	}
	if q.Dense == 0 && q.Lexical == 0 {
		return edge.Invalid("merge", "dense and lexical must not both be 0: all scores would be")
	}
	return nil
}

// Search finds who passes the gate, and of them who fits best.
// Errors: NotFound without the collection, Denied where the gate or the texts are protected,
// SearchState where the embedder does not fit, DeadlineExceeded with the stage in which the time was
// over, Unavailable where too many searches wait.
func (ss *SearchService) Search(ctx context.Context, in *pb.SearchRequest) (*pb.SearchResponse, error) {
	f, err := ss.Find(ctx, in, time.Duration(ss.s.Limits.SearchTimeoutMs)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	f.Response.Results = f.rows()
	return f.Response, nil
}

// Found is a search that was answered, and of its answer all but the rows, which gRPC and JSON take from what was found.
// def, Query and Answer are what the rows are shown by; they belong to this call.
type Found struct {
	*call
	def      *core.Collection
	Query    *core.SearchQuery
	Answer   *core.SearchAnswer
	Response *pb.SearchResponse
}

// Find searches for at most the given time, and keeps the search if that is asked for.
// It is Search without the rows as messages. Stages are in this order because each costs more than the
// one before: reading the request, rights, vector, turn, search.
func (ss *SearchService) Find(ctx context.Context, in *pb.SearchRequest, most time.Duration) (*Found, error) {
	pprof.SetGoroutineLabels(ParseStage)
	defer pprof.SetGoroutineLabels(NoStage)
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if err != nil {
		return nil, err
	}
	q, fact := c.t.query(in)
	if fact != nil {
		return nil, fact
	}
	timeout, fact := Millis("timeout", in.GetTimeout(), Span{1, ss.s.Limits.SearchTimeoutMs, "search_timeout_ms"})
	if fact != nil {
		return nil, fact
	}
	// All stages together: embedding, waiting for a turn, reading.
	ctx, cancel := context.WithTimeout(ctx, min(most, cmp.Or(timeout.Duration(), searchTimeoutDefault)))
	defer cancel()
	out := &pb.SearchResponse{Consistency: "linearizable", TookUs: new(pb.TookMicros)}
	if q.Read.Stale {
		out.Consistency = "stale"
	}
	def, err := c.definition(ctx, q)
	if err != nil {
		return nil, err
	}
	// Before anything is embedded: a caller without the right must not make the server work.
	if fact := c.maySearch(def, &q.Gate); fact != nil {
		return nil, fact
	}
	began := ss.s.o.Clock.Boot()
	if err := c.queryVector(ctx, def, in, q, out); err != nil {
		return nil, err
	}
	embedNanos := int64(ss.s.o.Clock.Boot() - began)
	out.TookUs.Embed = uint64(embedNanos / 1000)
	answer, err := c.searchInTurn(ctx, q, out)
	if err != nil {
		return nil, err
	}
	ss.s.searched.count(answer, embedNanos)
	f := &Found{c, def, q, answer, out}
	f.showAnswer()
	// The answer waits until the recording is durable, whose id it tells.
	if in.GetRecord() {
		if err := f.record(ctx, in); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// searchFailed tells a search whose deadline has passed from one that was refused. Stage is where it passed, unless the error
// knows better.
// A stage is embed, wait, read or one that the node names.
func searchFailed(ctx context.Context, stage string, err error) error {
	f, late := errors.AsType[core.DeadlineExceeded](err)
	switch {
	case late && f.Stage == "":
		f.Stage = stage
		return f
	case ctx.Err() != nil && !edge.Is[core.Fact](err):
		return core.DeadlineExceeded{Stage: stage}
	}
	return err
}

// definition finds the collection of a search, as it is now where this node's copy has none.
// The first partition tells, where it has been carried first.
func (c *call) definition(ctx context.Context, q *core.SearchQuery) (*core.Collection, error) {
	read := q.Read
	read.Elsewhere = c.t.several()
	return c.definitionIn(ctx, c.t.part, q.Collection, read)
}

// definitionIn finds a collection in a partition, reading as o says where this node's copy has none.
func (c *call) definitionIn(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (*core.Collection, error) {
	def, ok := c.s.node.search.Definition(p, name)
	if ok {
		return &def, nil
	}
	info, _, err := c.s.node.search.Collection(ctx, p, name, o)
	return &info.Collection, err
}

// queryVector makes the vector of a search, of its text or of the client's own.
// It also sets the weights, which depend on what the embedder knows, and what the answer tells of the
// embedder.
func (c *call) queryVector(ctx context.Context, def *core.Collection, in *pb.SearchRequest, q *core.SearchQuery, out *pb.SearchResponse) error {
	// A vector of the client's own is copied and brought into the form that is searched.
	if v := in.GetVector(); len(v) > 0 {
		own, fact := c.t.ownVector("vector", def, in.GetModel(), v)
		if fact != nil {
			return fact
		}
		q.Vector = own
		if m, fact := c.s.embedderOf(def); fact == nil {
			out.Semantic = m.Semantic
		}
		if fact := weigh(q, in, out.Semantic); fact != nil {
			return fact
		}
		return nil
	}
	if fact := c.s.embeds(def); fact != nil {
		return fact
	}
	m, fact := c.s.embedderOf(def)
	if fact != nil {
		return fact
	}
	if in.GetModel() != "" && in.GetModel() != def.Model {
		return core.SearchState{Reason: "model_mismatch", Field: "model", Want: def.Model, Got: core.Cut(in.GetModel(), 2*NameBytes)}
	}
	got, err := c.s.embed(ctx, core.EmbedRequest{Tenant: c.who.Tenant, Embedder: def.Embedder, Model: def.Model, Query: true, Texts: []string{in.GetQueryText()}})
	if err != nil {
		return searchFailed(ctx, "embed", ofText("query_text", err))
	}
	if fact := fitEmbedded(def, got[0]); fact != nil {
		return fact
	}
	if fact := weigh(q, in, m.Semantic); fact != nil {
		return fact
	}
	q.Vector, q.Embedded = got[0].Vector, got[0].Text
	out.Embedder, out.Semantic = def.Embedder+"/"+def.Model, m.Semantic
	return nil
}

// inTurn waits until the indexes of a collection are loaded, then until this node shows what the search must see, and then runs
// search in its turn. It is done in this order, so that those that wait for something else than a processor take no turn from the
// others. reads has one entry for each partition. An error says that search was not run.
func (c *call) inTurn(ctx context.Context, q *core.SearchQuery, search func(reads []settled)) error {
	// First what may take longest: an index that is read from the disk.
	for i := range c.t.parts {
		p := c.t.in(i)
		if !c.s.node.search.Loading(p, q.Collection) {
			continue
		}
		if err := c.awaitLoaded(ctx, p, q.Collection); err != nil {
			return err
		}
	}
	if err := c.ofSome(ctx, &q.Read); err != nil {
		return err
	}
	// One wait for each partition, before the turn: a call that waits for a majority uses no processor.
	reads := make([]settled, c.t.parts)
	for i := range c.t.parts {
		reads[i] = c.settle(ctx, c.t.in(i), q)
	}
	return c.s.searches.do(ctx, c.who.Tenant, c.s.Limits.SearchesWaiting, func() { search(reads) })
}

// awaitLoaded waits until the index of a collection is loaded, as one of the searches that may wait.
func (c *call) awaitLoaded(ctx context.Context, p core.Partition, collection string) error {
	// Counted among those that wait, so that a large index that loads does not gather calls without
	// bound.
	back, err := c.s.searches.aside(c.s.Limits.SearchesWaiting)
	if err != nil {
		return err
	}
	defer back()
	return c.s.node.search.Loaded(ctx, p, collection)
}

// searchInTurn waits for a turn and searches.
func (c *call) searchInTurn(ctx context.Context, q *core.SearchQuery, out *pb.SearchResponse) (answer *core.SearchAnswer, err error) {
	var failed error
	err = c.inTurn(ctx, q, func(reads []settled) { answer, failed = c.searchAll(ctx, q, reads, out) })
	if err == nil && failed != nil {
		err = searchFailed(ctx, "read", failed)
	}
	return answer, err
}

// settled is how a partition is read once what must be waited for is there, or why it cannot be read.
type settled struct {
	// read is stale, for what must be waited for is there already; err says why there is no read.
	read core.ReadOptions
	err  error
}

// settle waits until this node's copy of a partition shows what a search must see.
// Afterwards the search itself reads this node's copy without waiting, for it holds a turn then.
func (c *call) settle(ctx context.Context, p core.Partition, q *core.SearchQuery) settled {
	asks := q.Read
	// Whatever this node has will do.
	if asks.Stale && asks.MinIndex == 0 && asks.MaxStale == 0 {
		return settled{read: asks}
	}
	// Where this node's copy has already what was acknowledged before, nothing is waited for.
	if !asks.Stale && asks.MinIndex == 0 {
		may, err := c.s.node.search.Reading(p)
		if err != nil || may() {
			return settled{core.ReadOptions{Stale: true}, err}
		}
	}
	_, at, err := c.s.node.search.Collection(ctx, p, q.Collection, asks)
	return settled{core.ReadOptions{Stale: true, MinIndex: at.Index}, err}
}

// of is a query that reads so.
func (s *settled) of(q *core.SearchQuery) *core.SearchQuery {
	// Partitions share all but how they are read.
	one := *q
	one.Read = s.read
	return &one
}

// searchAll searches every partition and merges what they found.
// A partition that did not answer in time ends the search, unless the caller takes a part. Numbers and
// times are added up, since partitions are searched one after the other.
func (c *call) searchAll(ctx context.Context, q *core.SearchQuery, reads []settled, out *pb.SearchResponse) (*core.SearchAnswer, error) {
	var all *core.SearchAnswer
	for i := range c.t.parts {
		var one *core.SearchAnswer
		err := reads[i].err
		if err == nil {
			one, err = c.s.node.search.Search(ctx, c.t.in(i), reads[i].of(q))
		}
		// A part of the answer is better than none for who asked for that, if there is a part.
		if f, late := errors.AsType[core.DeadlineExceeded](err); late && q.Partial && all != nil {
			noteGap(out, i, cmp.Or(f.Stage, "read"), 0)
			continue
		}
		if err != nil {
			return nil, err
		}
		// It was cut off within the partition: some of what it found was not judged.
		if one.Stopped != "" {
			noteGap(out, i, one.Stopped, one.Gate.Passed-min(one.Judged, one.Gate.Passed))
		}
		out.At = append(out.At, &pb.PartitionIndex{Partition: uint32(i), Index: one.At.Index})
		if all == nil {
			all = one
			continue
		}
		// Each partition gives its best k: the best k of all are among them.
		all.Hits = append(all.Hits, one.Hits...)
		all.Gate.Add(one.Gate)
		all.Judged += one.Judged
		all.Blocked += one.Blocked
		all.Conditional += one.Conditional
		all.Numbers.Add(one.Numbers)
		all.GateNanos += one.GateNanos
		all.RetrieveNanos += one.RetrieveNanos
		all.JudgeNanos += one.JudgeNanos
		all.MergeNanos += one.MergeNanos
	}
	if c.t.several() {
		slices.SortFunc(all.Hits, func(a, b core.SearchHit) int {
			// Equal scores stand in the order of their ids, so that an answer is the same each time.
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
		})
		all.Hits = all.Hits[:min(len(all.Hits), q.K)]
	}
	return all, nil
}

// noteGap tells what an answer lacks of a partition.
// stage is where the time was over; unjudged are rows that passed the gate and were not judged.
func noteGap(out *pb.SearchResponse, partition int, stage string, unjudged uint64) {
	if out.Gap == nil {
		out.Gap = &pb.Gap{Stage: stage}
	}
	out.Gap.Partitions = append(out.Gap.Partitions, uint32(partition))
	out.Gap.Unjudged += unjudged
}

// showGate shows how many rows a gate let pass, and what kept the others out.
func showGate(g *core.GateCounts) *pb.GateCounts {
	return &pb.GateCounts{
		Considered: g.Considered, Passed: g.Passed,
		BlockedBy: &pb.BlockedBy{Ids: g.IDs, Role: g.Role, Credential: g.Credential, Block: g.Block, Filter: g.Filter},
		ValidAt:   timestamppb.New(time.Unix(0, g.ValidAt)),
	}
}

// showAnswer makes the answer of what was found, without its rows.
// Times are in microseconds. Plan and ruleset are those of the first partition: all have the same.
func (f *Found) showAnswer() {
	q, a, out := f.Query, f.Answer, f.Response
	out.Gate, out.Plan = showGate(&a.Gate), a.Plan
	if q.Ruleset != "" {
		out.Judge = &pb.JudgeCounts{Judged: a.Judged, Blocked: a.Blocked, Conditional: a.Conditional, Ruleset: showRuleset(q.Ruleset, a.Version)}
	}
	// Nanoseconds of one.
	const micro = 1000
	out.TookUs.Gate, out.TookUs.Retrieve = uint64(a.GateNanos/micro), uint64(a.RetrieveNanos/micro)
	out.TookUs.Judge, out.TookUs.Merge = uint64(a.JudgeNanos/micro), uint64(a.MergeNanos/micro)
	if n := &a.Numbers; q.Explain {
		out.PlanNumbers = &pb.PlanNumbers{Compared: n.Compared, Ef: n.Width, Rounds: n.Rounds, GraphRows: n.GraphRows, TailRows: n.TailRows}
	}
}

// rows makes the rows of the answer as messages.
// Payloads are without the fields that the caller may not see.
func (f *Found) rows() []*pb.SearchResult {
	hits := f.Answer.Hits
	// One allocation for all rows.
	rows, out := make([]pb.SearchResult, len(hits)), make([]*pb.SearchResult, len(hits))
	for i := range hits {
		h, r := &hits[i], &rows[i]
		r.Id, r.Score, r.JudgeScore, r.Version, r.Verdict = h.ID, h.Score, h.JudgeScore, edge.ShowVersion(h.Partition, h.Version), verdictOf(h)
		if f.Query.Explain {
			r.Parts = &pb.ScoreParts{Dense: h.Dense, Lexical: h.Lexical, Decay: h.Decay}
			for _, u := range h.Reasons {
				r.Reasons = append(r.Reasons, &pb.RuleReason{Rule: u.Rule, Ok: u.OK, Reason: u.Reason, Missing: u.Missing})
			}
		}
		if f.Query.Payload {
			r.Payload = f.visible(f.def, h.Payload)
		}
		out[i] = r
	}
	return out
}

// verdictOf is the word for how a row was judged. Rows that rules block are not in answers.
func verdictOf(h *core.SearchHit) string {
	if h.Eligible {
		return "eligible"
	}
	return "conditional"
}

// CountPoints counts the points that pass a gate.
// A count costs as much as a search that is exact, so it takes a turn too. Errors as in Search.
func (ss *SearchService) CountPoints(ctx context.Context, in *pb.CountPointsRequest) (*pb.CountPointsResponse, error) {
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if err != nil {
		return nil, err
	}
	q := &core.SearchQuery{
		Collection: in.GetCollection(), Read: readOptions(in.GetMinIndex(), in.GetStale()),
	}
	var fact core.Fact
	if q.Gate, fact = c.t.gate(in.GetGate()); fact != nil {
		return nil, edge.Within("gate", fact)
	}
	def, err := c.definition(ctx, q)
	if err != nil {
		return nil, err
	}
	if fact := c.mayGate(def, &q.Gate); fact != nil {
		return nil, fact
	}
	var all core.GateCounts
	var at core.At
	var failed error
	err = c.inTurn(ctx, q, func(reads []settled) { all, at, failed = c.countAll(ctx, q, reads) })
	if err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, searchFailed(ctx, "read", failed)
	}
	return &pb.CountPointsResponse{Count: all.Passed, Gate: showGate(&all), At: ShowAt(at)}, nil
}

// countAll counts in each partition.
func (c *call) countAll(ctx context.Context, q *core.SearchQuery, reads []settled) (all core.GateCounts, at core.At, err error) {
	for i := range c.t.parts {
		if err := reads[i].err; err != nil {
			return all, at, err
		}
		one, oneAt, err := c.s.node.search.Count(ctx, c.t.in(i), reads[i].of(q))
		if err != nil {
			return all, at, err
		}
		all.Add(one)
		if at = oneAt; c.t.several() {
			merge(&at, oneAt)
		}
	}
	return all, at, nil
}

// Embed makes vectors of texts.
// It needs no collection and no namespace: the token is enough.
func (ss *SearchService) Embed(ctx context.Context, in *pb.EmbedRequest) (*pb.EmbedResponse, error) {
	m, got, give, err := ss.EmbedTexts(ctx, in, false)
	if err != nil {
		return nil, err
	}
	defer give()
	out := &pb.EmbedResponse{
		Model: m.Model, Semantic: m.Semantic, Vectors: make([]*pb.EmbedVector, len(got)), Tokens: make([]uint32, len(got)),
		Cached: make([]bool, len(got)), Truncated: make([]bool, len(got)),
	}
	for i, e := range got {
		out.Dim = uint32(len(e.Vector))
		out.Vectors[i] = &pb.EmbedVector{Values: e.Vector}
		out.Tokens[i], out.Cached[i], out.Truncated[i] = uint32(e.Tokens), e.Cached, e.Truncated
	}
	return out, nil
}

// EmbedTexts is Embed before its answer is made: REST writes it from what the cache holds. Give must follow when it is written.
// Tokens says that each text is a JSON array of the model's tokens.
// Errors: NotFound without the embedder, SearchState without any, Unavailable beyond embed_numbers or
// where the provider does not answer.
func (ss *SearchService) EmbedTexts(ctx context.Context, in *pb.EmbedRequest, tokens bool) (m core.EmbedModel, out []core.Embedding, give func(), err error) {
	s := ss.s
	who, ok := edge.CallerOf(ctx)
	if !ok {
		return m, nil, nil, core.Unauthenticated{}
	}
	r, fact := s.embedRequest(in)
	switch {
	case fact != nil:
		return m, nil, nil, fact
	case s.o.NoSearch:
		return m, nil, nil, errSearchOff
	case s.o.Embedder == nil:
		return m, nil, nil, core.SearchState{Reason: "embedder_missing", Field: "model", Want: "default"}
	}
	// The name is the client's, so it is cut before it is shown.
	if m, ok = s.embedModel(r.Embedder); !ok {
		return m, nil, nil, core.NotFound{Kind: "embedder", ID: core.Cut(r.Embedder, NameBytes)}
	}
	// Such an embedder stands for a model that clients run themselves.
	if m.Given {
		return m, nil, nil, edge.Invalid("model", "does not make vectors of texts: clients send their own")
	}
	r.Tenant, r.Embedder, r.Model, r.Tokens = who.Tenant, m.Name, m.Model, tokens
	// Before the vectors are made, which is when they take memory.
	taken, fact := s.embedding.take(r.Tenant, len(r.Texts), m.Dim, s.Limits.EmbedNumbers)
	if fact != nil {
		return m, nil, nil, fact
	}
	defer func() {
		if give == nil { // it failed, or panicked
			taken()
		}
	}()
	if out, err = s.embed(ctx, r); err != nil {
		return m, nil, nil, searchFailed(ctx, "embed", err)
	}
	return m, out, taken, nil
}

// embedModel finds what a request names as its model: an embedder, or the id of a model as answers tell it. Its Model is that which
// was asked for.
func (s *Server) embedModel(name string) (core.EmbedModel, bool) {
	if m, ok := s.o.Embedder.Model(name); ok {
		return m, true
	}
	for _, m := range s.o.Embedder.Models() {
		if m.Model == name || slices.Contains(m.Older, name) {
			// Vectors are those of the model that was asked for, also if the embedder has a newer one.
			m.Model = name
			return m, true
		}
	}
	return core.EmbedModel{}, false
}

// embedRequest reads what is to be embedded: one text or several, as documents or as queries.
func (s *Server) embedRequest(in *pb.EmbedRequest) (r core.EmbedRequest, fact core.Fact) {
	r = core.EmbedRequest{Embedder: in.GetModel(), Texts: in.GetTexts()}
	if (in.GetText() == "") == (len(r.Texts) == 0) {
		return r, edge.Invalid("text", "give either text or texts")
	}
	if len(r.Texts) == 0 {
		r.Texts = []string{in.GetText()}
	}
	if int64(len(r.Texts)) > s.Limits.EmbedTexts {
		return r, edge.TooLarge("texts", "embed_texts", s.Limits.EmbedTexts)
	}
	var bytes int64
	for i, text := range r.Texts {
		if text == "" {
			return r, edge.Invalid(edge.Item("texts", i), "must not be empty")
		}
		bytes += int64(len(text))
	}
	if bytes > s.Limits.EmbedBytes {
		return r, edge.TooLarge("texts", "embed_bytes", s.Limits.EmbedBytes)
	}
	switch in.GetKind() {
	case "", "document":
	case "query":
		r.Query = true
	default:
		return r, edge.Invalid("kind", "must be query or document")
	}
	switch in.GetTruncate() {
	case "", "cut":
	case "error":
		r.Whole = true
	default:
		return r, edge.Invalid("truncate", "must be cut or error")
	}
	return r, nil
}

// Models are the ids that /v1/embeddings takes as model: those of the models, and the names of their embedders.
// They are in the order of their embedders' names, each once.
func (ss *SearchService) Models() ([]string, error) {
	switch {
	case ss.s.o.NoSearch:
		return nil, errSearchOff
	case ss.s.o.Embedder == nil:
		return nil, nil
	}
	var out []string
	for _, m := range ss.s.o.Embedder.Models() {
		if m.Given {
			continue // which makes no vectors
		}
		// A client may name either; older names of a model stay good.
		for _, id := range append([]string{m.Model, m.Name}, m.Older...) {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out, nil
}
