package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/retrieval"
	"github.com/millrace/millrace/internal/rules"
	"github.com/millrace/millrace/internal/strictjson"
	"github.com/millrace/millrace/internal/vector"
)

// Search finds the rows of a partition that pass the gate, and of them those that fit best.
func (n *Node) Search(ctx context.Context, p core.Partition, q *core.SearchQuery) (*core.SearchAnswer, error) {
	s, at, c, err := n.searched(ctx, p, q)
	if err != nil {
		return nil, err
	}
	r := &retrieval.Request{
		Query: queryOf(q), K: q.K, Candidates: q.Candidates, OnlyEligible: q.EligibleOnly, DenseWeight: q.Dense,
		WordWeight: q.Lexical,
		DecayField: q.DecayField, HalfLife: q.HalfLife.Duration(), Exact: q.Exact, Explain: q.Explain, Width: q.Width, Partial: q.Partial,
		Stop: func() bool { return ctx.Err() != nil },
	}
	if q.Lexical > 0 {
		r.Words = wordsOf(q)
	}
	out := &core.SearchAnswer{At: at}
	if r.Gate, err = gateOf(&q.Gate); err != nil {
		return nil, err
	}
	if q.HasMinScore {
		r.MinScore = &q.MinScore
	}
	if q.Ruleset != "" {
		if r.Ruleset, out.Version, err = n.compiled(ctx, s, p, c, q); err != nil {
			return nil, err
		}
		if r.RuleParams, err = paramsOf("judge.params", q.JudgeParams); err != nil {
			return nil, err
		}
	}
	clock := stageClock{n: n, out: out}
	r.At = clock.enter
	defer pprof.SetGoroutineLabels(context.Background())
	found, err := c.index.Search(r)
	stage := clock.stage
	clock.end()
	if err != nil {
		return nil, searchFault(ctx, q, stage, err)
	}
	fillAnswer(out, p, q.Gate.ValidAt, found)
	return out, nil
}

// queryOf is the vector of a search in the form that kernels want, made once for a text that the embedder keeps.
func queryOf(q *core.SearchQuery) *vector.Query {
	if kept, ok := q.Embedded.(interface{ Query() *vector.Query }); ok {
		return kept.Query()
	}
	return vector.NewQuery(q.Vector)
}

// wordsOf are the words of a search, cut once for a text that the embedder keeps.
func wordsOf(q *core.SearchQuery) []string {
	if q.Embedded != nil {
		return q.Embedded.Words(q.Words, retrieval.QueryWords)
	}
	return retrieval.QueryWords(q.Words)
}

// searched waits until a search may read, and for the index of its collection.
func (n *Node) searched(ctx context.Context, p core.Partition, q *core.SearchQuery) (*shard, core.At, *indexed, error) {
	s, at, err := n.fresh(ctx, p, q.Read)
	if err != nil {
		return nil, at, nil, err
	}
	if !s.searches() {
		return nil, at, nil, core.Unavailable{Reason: "search_off"}
	}
	c, err := n.index(ctx, s, p, q.Collection)
	return s, at, c, err
}

// gateOf makes of a search's gate what the index takes. An error names the field of the request.
func gateOf(g *core.SearchGate) (retrieval.Gate, error) {
	params, err := paramsOf("gate.params", g.Params)
	out := retrieval.Gate{
		Roles: g.Roles, AnyRole: g.AnyRole, CredentialsAll: g.Credentials, ValidAt: time.Unix(0, g.ValidAt).UTC(), Client: g.Client,
		IDsIn: g.IDsIn, HasIDsIn: len(g.IDsIn) > 0, IDsNotIn: g.IDsNotIn, Filter: g.Filter, Params: params,
	}
	return out, err
}

// paramDepth bounds what strictjson reads of parameters; deeper ones are left to encoding/json and its bound.
const paramDepth = 64

// paramsOf reads the parameters of a filter or of rules: a JSON object, whose whole numbers stay whole.
func paramsOf(field string, text []byte) (map[string]any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	doc, fact := strictjson.ParseObject(text, paramDepth)
	if fact != nil { // encoding/json takes more, and costs several times as much
		var err error
		if doc, err = anyParams(field, text); err != nil {
			return nil, err
		}
	}
	if err := rules.CheckParams(doc); err != nil {
		return nil, ruleFact(field, err)
	}
	return doc, nil
}

// anyParams reads every JSON object.
func anyParams(field string, text []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc map[string]any
	if err := d.Decode(&doc); err != nil || doc == nil {
		return nil, core.Invalid{Field: field, Message: "is no JSON object"}
	}
	if more := d.More(); more {
		return nil, core.Invalid{Field: field, Message: "goes on after its end"}
	}
	for name, v := range doc {
		plain, ok := plainParam(v)
		if !ok {
			return nil, core.Invalid{Field: field + "." + name, Message: "holds a number that is out of range"}
		}
		doc[name] = plain
	}
	return doc, nil
}

// plainParam makes numbers of json.Number, all the way down. Depth is bounded by the decoder.
func plainParam(v any) (any, bool) {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n, true
		}
		f, err := strconv.ParseFloat(string(v), 64)
		return f, err == nil
	case []any:
		for i := range v {
			var ok bool
			if v[i], ok = plainParam(v[i]); !ok {
				return nil, false
			}
		}
	case map[string]any:
		for name := range v {
			var ok bool
			if v[name], ok = plainParam(v[name]); !ok {
				return nil, false
			}
		}
	}
	return v, true
}

// searchFault tells the faults of a request from those of this node.
func searchFault(ctx context.Context, q *core.SearchQuery, stage retrieval.Stage, err error) error {
	if f, ok := errors.AsType[*retrieval.UnknownRole](err); ok {
		return core.SearchInvalid{Field: "gate.roles", Reason: "unknown_role", Message: f.Error(), Near: f.Near}
	}
	if f, ok := errors.AsType[vector.DimError](err); ok {
		return core.DimMismatch{Field: "vector", Want: int64(f.Want), Got: int64(f.Got)}
	}
	if f, ok := errors.AsType[*rules.Error](err); ok {
		field := "gate.filter"
		_, judged := errors.AsType[*retrieval.JudgeError](err)
		switch {
		case judged, f.Rule != "":
			field = "judge.params"
		case q.DecayField != "" && f.Line == 0:
			field = "merge.decay.field"
		}
		return ruleFact(field, f)
	}
	switch {
	case errors.Is(err, retrieval.ErrNoRoleField):
		return core.SearchInvalid{Field: "gate.roles", Reason: "no_role_field", Message: "the collection has no field that holds roles"}
	case errors.Is(err, retrieval.ErrStopped), ctx.Err() != nil:
		return core.DeadlineExceeded{Stage: string(stage)}
	}
	return err
}

// fillAnswer copies what was found into the answer. It adds nothing and leaves nothing out.
func fillAnswer(out *core.SearchAnswer, p core.Partition, validAt int64, found *retrieval.Answer) {
	out.Gate, out.Plan = countsOf(&found.Gate, validAt), string(found.Plan)
	out.Judged, out.Blocked, out.Conditional = uint64(found.Judged), uint64(found.Blocked), uint64(found.Conditional)
	out.Stopped, out.Numbers = string(found.Stopped), core.SearchNumbers{
		Compared: uint64(found.Compared), Width: uint64(found.Width), Rounds: uint64(found.Rounds),
		GraphRows: uint64(found.Covered), TailRows: uint64(found.Tail),
	}
	out.Hits = make([]core.SearchHit, len(found.Results))
	for i := range found.Results {
		r := &found.Results[i]
		h := &out.Hits[i]
		*h = core.SearchHit{
			ID: r.ID, Partition: p.Index, Version: r.Version, Score: r.Score, Eligible: r.Verdict == rules.Eligible, JudgeScore: r.JudgeScore,
			Dense: r.Dense, Lexical: r.Lexical, Decay: r.Decay, Payload: r.Payload,
		}
		for j := range r.Outcomes {
			o := &r.Outcomes[j]
			h.Reasons = append(h.Reasons, core.SearchReason{Rule: o.Rule.ID, OK: o.OK(), Reason: o.Rule.Reason, Missing: o.Missing})
		}
	}
}

// countsOf copies the counts of a gate.
func countsOf(c *retrieval.Counts, validAt int64) core.GateCounts {
	return core.GateCounts{
		Considered: uint64(c.Considered), Passed: uint64(c.Passed), IDs: uint64(c.IDs), Role: uint64(c.Role),
		Credential: uint64(c.Credential), Block: uint64(c.Block), Filter: uint64(c.Filter), ValidAt: validAt,
	}
}

// Count counts the rows of a partition that pass a gate.
func (n *Node) Count(ctx context.Context, p core.Partition, q *core.SearchQuery) (core.GateCounts, core.At, error) {
	_, at, c, err := n.searched(ctx, p, q)
	if err != nil {
		return core.GateCounts{}, at, err
	}
	g, err := gateOf(&q.Gate)
	if err != nil {
		return core.GateCounts{}, at, err
	}
	found, err := c.index.Count(&g, func() bool { return ctx.Err() != nil })
	if err != nil {
		return core.GateCounts{}, at, searchFault(ctx, q, retrieval.StageGate, err)
	}
	return countsOf(&found, q.Gate.ValidAt), at, nil
}

// stageClock times the stages of one search, and names them to profiles.
type stageClock struct {
	// Whose clock is read.
	n *Node
	// Gets the nanoseconds of each stage.
	out *core.SearchAnswer
	// The stage under way; empty: none.
	stage retrieval.Stage
	// Boot time at which it began.
	began time.Duration
}

// stageLabels carry the labels of profiles, made once.
var stageLabels = map[retrieval.Stage]context.Context{
	retrieval.StageGate: labelled(retrieval.StageGate), retrieval.StageRetrieve: labelled(retrieval.StageRetrieve),
	retrieval.StageJudge: labelled(retrieval.StageJudge), retrieval.StageMerge: labelled(retrieval.StageMerge),
}

// labelled returns a context with the label of a stage.
func labelled(s retrieval.Stage) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels("stage", string(s)))
}

// enter ends the stage under way and begins another one.
func (c *stageClock) enter(stage retrieval.Stage) {
	c.end()
	c.stage, c.began = stage, c.n.o.Clock.Boot()
	pprof.SetGoroutineLabels(stageLabels[stage])
}

// end adds the time since the stage began to that stage, if one is under way. A stage may come more than once.
func (c *stageClock) end() {
	if c.stage == "" {
		return
	}
	took := int64(c.n.o.Clock.Boot() - c.began)
	switch c.stage {
	case retrieval.StageGate:
		c.out.GateNanos += took
	case retrieval.StageRetrieve:
		c.out.RetrieveNanos += took
	case retrieval.StageJudge:
		c.out.JudgeNanos += took
	case retrieval.StageMerge:
		c.out.MergeNanos += took
	}
	c.stage = ""
}
