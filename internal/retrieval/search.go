package retrieval

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/rules"
	"github.com/millrace/millrace/internal/vector"
)

// Limits of a search.
const (
	MaxK          = 1000
	MaxCandidates = 20_000
)

// Plan is how candidates were found.
type Plan string

// The plans.
const (
	PlanScan     Plan = "scan"      // codes of every row that passes
	PlanExact    Plan = "exact"     // float32 of every row that passes
	PlanWalk     Plan = "hnsw"      // a walk over the graph, and codes of what it does not cover
	PlanWalkScan Plan = "hnsw+scan" // the same, and codes of every row because that left too few
)

// Stage names a part of a search, for time and profiles.
type Stage string

// The stages, in order.
const (
	StageGate     Stage = "gate"
	StageRetrieve Stage = "retrieve"
	StageJudge    Stage = "judge"
	StageMerge    Stage = "merge"
)

// Request is a search. The caller has checked k and candidates against their limits.
type Request struct {
	Query        *vector.Query // of the collection's dimension and checked
	K            int           // 1 to MaxK
	Candidates   int           // 0 = the larger of 5·K and 50
	Width        int           // candidates that a walk over the graph keeps in sight; 0 = the larger of 120 and 4·K
	Gate         Gate
	Ruleset      *rules.Ruleset // compiled against this index's schema; nil = all rows are eligible
	RuleParams   map[string]any // as params of the rules; nil = those of the gate
	OnlyEligible bool           // conditional rows do not count
	DenseWeight  float64        // of the dot product
	Words        []string       // of the query, as QueryWords cuts them, for texts that have them
	WordWeight   float64        // of how well texts fit; 0 = words do not count
	DecayField   string         // of type time; empty = no decay
	HalfLife     time.Duration  // positive if there is a decay field
	MinScore     *float64
	Exact        bool
	Explain      bool // results say what each rule did
	Partial      bool // when Stop says so, what was found by then is the answer
	Stop         func() bool
	At           func(Stage) // called as each stage begins; may be nil
}

// Result is one row of an answer.
type Result struct {
	ID         string
	Version    uint64
	Payload    []byte // as it was stored
	Score      float64
	Verdict    rules.Verdict
	JudgeScore float64
	Dense      float64
	Lexical    float64 // 0 to below 1
	Decay      float64
	Outcomes   []rules.Outcome // of all rules, in order; nil unless explained
}

// Answer is what a search found.
type Answer struct {
	Results []Result
	Gate    Counts
	Plan    Plan
	// Of the judge: rows that it saw, that are ineligible, and that are conditional.
	Judged, Blocked, Conditional int
	// Compared is how many rows were compared one by one, by their codes or vectors.
	Compared int
	// Width is that of the last walk; 0: there was none.
	Width int
	// Rounds is how often candidates were asked for.
	Rounds int
	// Covered is how many rows the graph of a walk covers, and Tail how many newer ones there are.
	Covered, Tail int
	// Stopped is the stage that was cut short, of a partial answer; empty if the search ran to its
	// end.
	Stopped Stage
}

// search is a request under way.
type search struct {
	*Request
	index *Index
	// gated is what the gate left, once it was evaluated.
	gated *gated
	// judge applies the rules; nil if the request has none.
	judge *rules.Judge
	// decay is the place of the decay field in the schema; −1 if there is none.
	decay int
	// row is what the judge reads, set to one candidate after another.
	row cursor
	// stage is the last one that began.
	stage Stage
	lex   *lexical // nil: words do not count
	// weighed says that scratch.extra belongs to the rows that pass. It is computed once, in
	// whatever round needs it first.
	weighed bool
	out     *Answer
	*scratch
}

// scratch is what a search works in, used again by later ones. The slices keep their room, not
// their content.
type scratch struct {
	// rows are those that pass the gate, and cols are the columns of the view.
	rows []uint32
	cols []column
	// hits are the candidates, best first, and kept those that were judged and let through.
	hits []vector.Hit
	kept []kept
	// extra is what words add to the score of each of rows, by place; sums is by row number.
	extra []float32
	sums  []float64
}

// release gives scratch back. It holds on to no column of an index that may be gone.
func (s *scratch) release() {
	clear(s.cols)
	scratches.Put(s)
}

// kept is a candidate that the judge lets through. score is what results are ordered by; the others
// are its factors and terms, as Result names them.
type kept struct {
	row                                 uint32
	verdict                             rules.Verdict
	score, judge, dense, lexical, decay float64
}

// scratches are idle *scratch.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Search answers a request. Errors: *rules.Error, *UnknownRole, ErrNoRoleField, vector.DimError,
// ErrStopped. The stages follow each other as the package says; retrieval and judging repeat until
// enough rows are left or none remain.
func (x *Index) Search(r *Request) (*Answer, error) {
	s := &search{Request: r, index: x, decay: -1, out: &Answer{Plan: PlanScan}}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	s.scratch = scratches.Get().(*scratch)
	s.hits, s.kept = s.hits[:0], s.kept[:0]
	defer s.release()
	s.enter(StageGate)
	if r.WordWeight > 0 {
		s.lex = &lexical{words: r.Words}
	}
	var err error
	if s.gated, err = x.pass(&r.Gate, s.lex, s.scratch, r.Stop); err != nil {
		return s.partly(err)
	}
	s.row = cursor{view: &s.gated.view, now: r.Gate.ValidAt.UnixNano()}
	s.out.Gate = s.gated.counts
	if r.Exact {
		s.gated.graph = nil
	}
	if err := s.run(); err != nil {
		if _, err := s.partly(err); err != nil {
			return nil, err
		}
	}
	s.enter(StageMerge)
	s.merge()
	return s.out, nil
}

// partly makes a partial answer of a search that was told to stop, if that is wanted.
func (s *search) partly(err error) (*Answer, error) {
	if !s.Partial || !errors.Is(err, ErrStopped) {
		return nil, err
	}
	s.out.Stopped = s.stage
	return s.out, nil
}

// enter notes that a stage begins, and tells the caller.
func (s *search) enter(stage Stage) {
	s.stage = stage
	if s.At != nil {
		s.At(stage)
	}
}

// JudgeError is what is wrong with the parameters that rules get.
type JudgeError struct{ error }

// Unwrap returns the error of the rules.
func (e *JudgeError) Unwrap() error { return e.error }

// prepare checks what does not depend on rows. What is wrong with the inputs of the ruleset is a
// JudgeError; what is wrong with those of the gate is found by pass.
func (s *search) prepare() error {
	if n := len(s.Query.Vector()); n != s.index.dim {
		return vector.DimError{Want: s.index.dim, Got: n}
	}
	if s.K < 1 || s.K > MaxK || s.Candidates < 0 || s.Candidates > MaxCandidates {
		return fmt.Errorf("k %d or candidates %d is out of range", s.K, s.Candidates)
	}
	if s.DecayField != "" {
		var err error
		if s.decay, err = s.index.schema.rules.Decay(s.DecayField); err != nil {
			return err
		}
		if s.HalfLife <= 0 {
			return &rules.Error{Reason: rules.ExpressionInvalid, Message: "half_life must be positive"}
		}
	}
	if s.Ruleset == nil {
		return nil
	}
	in := s.Gate.inputs()
	if s.RuleParams != nil {
		in.Params = s.RuleParams
	}
	var err error
	if s.judge, err = s.Ruleset.Bind(in); err != nil {
		return &JudgeError{err}
	}
	return nil
}

// run takes candidates, nearest first, and judges them, doubling their number until enough are left
// or none remain. A round judges only what the round before did not have: the order of candidates
// is fixed, so that earlier ones stay in front when more are asked for. Rows that a walk found were
// judged with it and are skipped in the scan that follows.
func (s *search) run() error {
	want := max(cmp.Or(s.Candidates, max(5*s.K, 50)), s.K)
	var walked map[uint32]bool
	if s.gated.graph != nil {
		enough, err := s.runWalk(want)
		if enough || err != nil {
			return err
		}
		s.out.Plan = PlanWalkScan
		walked = make(map[uint32]bool, len(s.hits))
		for _, h := range s.hits {
			walked[h.Row] = true
		}
		s.hits = s.hits[:0]
	}
	for done := 0; ; want *= 2 {
		s.enter(StageRetrieve)
		s.out.Rounds++
		if err := s.retrieve(want); err != nil {
			return err
		}
		s.enter(StageJudge)
		if err := s.considerAll(s.hits[done:], walked); err != nil {
			return err
		}
		done = len(s.hits)
		if len(s.kept) >= s.K || done == len(s.gated.rows) {
			return nil
		}
	}
}

// considerAll judges hits, except the rows in but. It asks Stop every 16 rows.
func (s *search) considerAll(hits []vector.Hit, but map[uint32]bool) error {
	for i, h := range hits {
		if i&15 == 15 && s.Stop != nil && s.Stop() {
			return ErrStopped
		}
		if !but[h.Row] {
			s.consider(h)
		}
	}
	return nil
}

// runWalk takes candidates by the graph, and says whether enough are left of them. The graph covers
// rows below covered, and the newer ones, the tail, are compared one by one. A walk can find fewer
// rows than pass, where few of a region do: it is repeated once with twice the width. The answer is
// enough if K rows are left, or if every row that passes was judged.
func (s *search) runWalk(want int) (enough bool, err error) {
	s.enter(StageRetrieve)
	s.out.Plan = PlanWalk
	g, v := s.gated, &s.gated.view.vectors
	set := g.set()
	covered := g.graph.Built() // before the walk: what is added meanwhile is in the tail as well
	width := max(cmp.Or(s.Width, max(120, 4*s.K)), want)
	s.out.Covered, s.out.Tail = int(covered), v.Len()-int(covered)
	least := min(s.K, g.counts.Passed)
	for range 2 {
		s.out.Rounds, s.out.Width = s.out.Rounds+1, width
		s.hits = g.graph.Search(v, s.Query, width, set, s.hits[:0])
		s.hits = slices.DeleteFunc(s.hits, func(h vector.Hit) bool { return h.Row >= covered })
		var ok bool
		tail := g.tail(covered)
		s.out.Compared += len(tail)
		if s.lex != nil {
			ok = s.addByWords(want, tail, covered)
		} else {
			s.hits, ok = v.Scan(s.Query, tail, want, s.hits, s.Stop)
		}
		if !ok {
			return false, ErrStopped
		}
		if len(s.hits) >= least {
			break
		}
		width *= 2
	}
	slices.SortFunc(s.hits, byScore)
	s.hits = s.hits[:min(want, len(s.hits))]
	s.enter(StageJudge)
	if err := s.considerAll(s.hits, nil); err != nil {
		return false, err
	}
	return len(s.kept) >= s.K || len(s.hits) == g.counts.Passed, nil
}

// retrieve makes hits the nearest rows that pass. What was there before stays in front. If all of
// them are wanted, there is nothing to choose, and they are taken without a comparison, except
// where the request asks for an exact search.
func (s *search) retrieve(want int) error {
	rows, v := s.gated.list(), &s.gated.view.vectors
	if s.Exact {
		s.out.Plan = PlanExact
	}
	ok := true
	if s.Exact || len(rows) > want {
		s.out.Compared += len(rows)
	}
	if s.lex != nil && !s.weighed && (s.Exact || len(rows) > want) {
		s.lex.extras(&s.gated.view, rows, s.WordWeight, s.scratch)
		s.weighed = true
	}
	weight := float32(s.DenseWeight)
	switch {
	case s.Exact && s.lex != nil:
		s.hits, ok = v.ScanExactSum(s.Query, rows, want, weight, s.scratch.extra, s.hits[:0], s.Stop)
	case s.lex != nil && len(rows) > want:
		s.hits, ok = v.ScanSum(s.Query, rows, want, weight, s.scratch.extra, s.hits[:0], s.Stop)
	case s.Exact:
		s.hits, ok = v.ScanExact(s.Query, rows, want, s.hits[:0], s.Stop)
	case len(rows) <= want:
		seen := make(map[uint32]bool, len(s.hits))
		for _, h := range s.hits {
			seen[h.Row] = true
		}
		for _, row := range rows {
			if !seen[row] {
				s.hits = append(s.hits, vector.Hit{Row: row})
			}
		}
	default:
		s.hits, ok = v.Scan(s.Query, rows, want, s.hits[:0], s.Stop)
	}
	if !ok {
		return ErrStopped
	}
	return nil
}

// addByWords makes of what a walk found, by nearness alone, candidates by the sum: it adds what words say of them, the tail, and
// the rows whose texts fit best.
func (s *search) addByWords(want int, tail []uint32, covered uint32) bool {
	v, weight := &s.gated.view, float32(s.DenseWeight)
	seen := make(map[uint32]bool, len(s.hits))
	for i := range s.hits {
		h := &s.hits[i]
		h.Score = weight*h.Score + float32(s.WordWeight*s.lex.score(v, h.Row))
		seen[h.Row] = true
	}
	more := s.lex.best(v, want, s.gated.set(), s.scratch)
	more = slices.DeleteFunc(more, func(row uint32) bool { return seen[row] || row >= covered })
	more = append(more, tail...) // which begins where the graph ends
	var ok bool
	s.hits, ok = v.vectors.ScanSum(s.Query, more, want, weight, s.lex.extras(v, more, s.WordWeight, s.scratch), s.hits, s.Stop)
	return ok
}

// consider judges one candidate and keeps it if its verdict allows. Scores come from the float32
// vectors: codes only choose candidates.
func (s *search) consider(h vector.Hit) {
	k := kept{row: h.Row, verdict: rules.Eligible, judge: 1, decay: 1}
	s.out.Judged++
	if s.judge != nil {
		s.row.row = h.Row
		switch k.verdict, k.judge = s.judge.Judge(&s.row, nil); k.verdict {
		case rules.Ineligible:
			s.out.Blocked++
			return
		case rules.ConditionallyEligible:
			s.out.Conditional++
			if s.OnlyEligible {
				return
			}
		}
	}
	k.dense = float64(s.gated.view.vectors.Exact(s.Query, h.Row))
	if s.lex != nil {
		k.lexical = s.lex.score(&s.gated.view, h.Row)
	}
	if s.decay >= 0 {
		k.decay = s.decayOf(h.Row)
	}
	k.score = Round((s.DenseWeight*k.dense + s.WordWeight*k.lexical) * k.judge * k.decay)
	s.kept = append(s.kept, k)
}

// decayOf halves with each half-life that has gone by since the row's time; 0.5 where it has none.
// A row whose time is after the instant of the search counts as new.
func (s *search) decayOf(row uint32) float64 {
	at := s.gated.view.cols[s.decay].ints.at(row)
	if at == missing {
		return 0.5
	}
	age := max(0, float64(s.Gate.ValidAt.UnixNano())-float64(at))
	return math.Exp2(-age / float64(s.HalfLife))
}

// Round keeps six decimals of a score, so that replicas with other arithmetic units agree.
func Round(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// merge orders what is kept and cuts it. Of equal scores the smaller id is first, so that replicas
// return the same order.
func (s *search) merge() {
	view := &s.gated.view
	slices.SortFunc(s.kept, func(a, b kept) int {
		if c := cmp.Compare(b.score, a.score); c != 0 {
			return c
		}
		return cmp.Compare(view.ids.at(a.row), view.ids.at(b.row))
	})
	if s.MinScore != nil {
		s.kept = slices.DeleteFunc(s.kept, func(k kept) bool { return k.score < *s.MinScore })
	}
	s.out.Results = make([]Result, min(s.K, len(s.kept)))
	for i := range s.out.Results {
		k := &s.kept[i]
		s.out.Results[i] = Result{
			ID: view.ids.at(k.row), Version: view.versions.at(k.row), Payload: view.payloads.at(k.row),
			Score: k.score, Verdict: k.verdict, JudgeScore: k.judge, Dense: k.dense, Lexical: k.lexical, Decay: k.decay, Outcomes: s.outcomes(k.row),
		}
	}
}

// outcomes says what each rule did to a row, if that is asked for.
func (s *search) outcomes(row uint32) []rules.Outcome {
	if !s.Explain || s.judge == nil {
		return nil
	}
	out := []rules.Outcome{}
	s.row.row = row
	s.judge.Judge(&s.row, &out)
	return out
}
