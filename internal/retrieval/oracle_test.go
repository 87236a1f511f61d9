package retrieval

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/rules"
	"github.com/millrace/millrace/internal/vector"
)

// condition is a filter as source and as plain Go.
type condition struct {
	source string
	holds  func(p *person) bool
}

func is[T comparable](p *T, want T) bool { return p != nil && *p == want }

// conditions are filters that random searches choose from. Those with a parameter read p.least = 5 and p.site.
var conditions = []condition{
	{"", func(*person) bool { return true }},
	{"status == 'available'", func(p *person) bool { return is(p.Status, "available") }},
	{"status != 'available'", func(p *person) bool { return p.Status != nil && *p.Status != "available" }},
	{"status in ['busy', 'away']", func(p *person) bool { return is(p.Status, "busy") || is(p.Status, "away") }},
	{"status == p.who", func(p *person) bool { return is(p.Status, "busy") }},
	{"'day' in shifts", func(p *person) bool { return p.Shifts != nil && slices.Contains(*p.Shifts, "day") }},
	{"!('day' in shifts)", func(p *person) bool { return p.Shifts != nil && !slices.Contains(*p.Shifts, "day") }},
	{"years >= p.least", func(p *person) bool { return p.Years != nil && *p.Years >= 5 }},
	{"pay < 20.5", func(p *person) bool { return p.Pay != nil && *p.Pay < 20.5 }},
	{"night || years > 9", func(p *person) bool { return is(p.Night, true) || p.Years != nil && *p.Years > 9 }},
	{"!has(home) || km(home, p.site) < 60.0", func(p *person) bool { return p.Home == nil || plainKm(p.Home) < 60 }},
	{"last_seen > now - duration('1000h')", func(p *person) bool { return p.LastSeen != nil && p.at.After(noon.Add(-1000*time.Hour)) }},
	{"'osha10' in certs", func(p *person) bool { return p.Certs != nil && p.holds("osha10") }},
	{"!('osha10' in certs)", func(p *person) bool { return p.Certs != nil && !p.holds("osha10") }},
	{"role.startsWith('welder')", func(p *person) bool { return is(p.Role, "welder.mig") || is(p.Role, "welder.tig") }},
	{"shifts.exists(s, s == 'night')", func(p *person) bool { return p.Shifts != nil && slices.Contains(*p.Shifts, "night") }},
}

var oracleParams = map[string]any{"least": int64(5), "site": []any{41.5, -88.5}, "who": "busy"}

// plainKm is the distance to p.site by the law of cosines, which is another formula than the one tested.
func plainKm(home []float64) float64 {
	const rad = math.Pi / 180
	a, b := home[0]*rad, 41.5*rad
	c := math.Sin(a)*math.Sin(b) + math.Cos(a)*math.Cos(b)*math.Cos((home[1]+88.5)*rad)
	return 6371.0088 * math.Acos(min(1, c))
}

// holds says whether a credential is held beyond the instant of the search.
func (p *person) holds(id string) bool { return p.valid[id] }

// plainGate returns the first step that a person fails.
func plainGate(p *person, g *Gate, conds []condition) string {
	if g.HasIDsIn && !slices.Contains(g.IDsIn, p.ID) || slices.Contains(g.IDsNotIn, p.ID) {
		return "ids"
	}
	if !g.AnyRole && len(g.Roles) > 0 {
		ok := false
		for _, role := range g.Roles {
			ok = ok || is(p.Role, role) || slices.Contains(p.Also, role)
		}
		if !ok {
			return "role"
		}
	}
	for _, c := range g.CredentialsAll {
		if !p.holds(c) {
			return "credential"
		}
	}
	if g.Client != "" && slices.Contains(p.Blocked, g.Client) {
		return "block"
	}
	for _, c := range conds {
		if !c.holds(p) {
			return "filter"
		}
	}
	return ""
}

// plainJudge is the ruleset of oracleRules by hand.
func plainJudge(p *person) (rules.Verdict, float64) {
	verdict, score := rules.Eligible, 1.0
	switch {
	case p.Pay == nil:
		verdict = rules.ConditionallyEligible
	case *p.Pay > 38:
		return rules.Ineligible, 0
	}
	if is(p.Status, "away") {
		verdict = rules.ConditionallyEligible
	}
	if p.Years != nil && *p.Years < 3 {
		score -= 0.25
	}
	if p.Shifts != nil && slices.Contains(*p.Shifts, "day") {
		score += 0.125
	}
	return verdict, score
}

var oracleRules = []rules.Rule{
	{ID: "dear", When: "pay > 38.0", Severity: rules.Block},
	{ID: "away", When: "status == 'away'", Severity: rules.Conditional},
	{ID: "new", When: "years < 3", Severity: rules.Penalty, Weight: 0.25},
	{ID: "day", When: "'day' in shifts", Severity: rules.Bonus, Weight: 0.125},
}

func plainScore(p *person, q []float32, judge, decay float64) (score float64) {
	var dense float64
	for i, x := range p.vector {
		dense += float64(x) * float64(q[i])
	}
	return dense * judge * decay
}

func plainDecay(p *person, half time.Duration) float64 {
	if p.LastSeen == nil {
		return 0.5
	}
	return math.Pow(0.5, noon.Sub(p.at).Hours()/half.Hours())
}

// world is an index and what the oracle knows of it.
type world struct {
	t      *testing.T
	r      *rand.Rand
	index  *Index
	people map[string]*person
	next   uint64
	rules  *rules.Ruleset
	few    [][]float32 // vectors that most people share; none: each has one of their own
}

func newWorld(t *testing.T, seed uint64, kernel *vector.Kernel) *world {
	t.Helper()
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 77)), index: newTestIndex(t, kernel), people: make(map[string]*person)}
	w.rules = ruleset(t, w.index, oracleRules...)
	return w
}

// change upserts and deletes at random, in one batch.
func (w *world) change(n int) {
	var batch []Change
	for range n {
		id := numbered("w", w.r.IntN(400))
		w.next++
		if w.r.IntN(4) == 0 {
			delete(w.people, id)
			batch = append(batch, Change{ID: id, Gone: true})
			continue
		}
		p := randomPerson(w.r, id, w.next)
		if len(w.few) > 0 && w.r.IntN(4) > 0 {
			p.vector = oneOf(w.r, w.few)
		}
		w.people[id] = p
		batch = append(batch, p.change())
	}
	apply(w.t, w.index, batch...)
}

func (w *world) gate() (Gate, []condition) {
	r := w.r
	g := Gate{ValidAt: noon, Params: oracleParams, AnyRole: r.IntN(8) == 0}
	if r.IntN(2) == 0 {
		g.Roles = someOf(r, roleNames, 3)
	}
	if r.IntN(3) == 0 {
		g.CredentialsAll = someOf(r, certNames, 3)
	}
	if r.IntN(3) == 0 {
		g.Client = oneOf(r, append(clientNames, "unheard-of"))
	}
	ids := func() (out []string) {
		for range r.IntN(200) {
			out = append(out, numbered("w", r.IntN(420)))
		}
		return out
	}
	if r.IntN(8) == 0 {
		g.HasIDsIn, g.IDsIn = true, ids()
	}
	if r.IntN(8) == 0 {
		g.IDsNotIn = ids()
	}
	conds := []condition{oneOf(r, conditions)}
	g.Filter = conds[0].source
	if r.IntN(3) == 0 && g.Filter != "" {
		second := oneOf(r, conditions[1:])
		conds = append(conds, second)
		g.Filter = fmt.Sprintf("(%s) && (%s)", g.Filter, second.source)
	}
	return g, conds
}

func (w *world) request() (*Request, []condition) {
	g, conds := w.gate()
	q := &Request{
		Query: vector.NewQuery(randomVector(w.r)), K: 1 + w.r.IntN(30), Gate: g, DenseWeight: 1, Exact: w.r.IntN(3) == 0,
		OnlyEligible: w.r.IntN(3) == 0,
	}
	switch w.r.IntN(10) {
	case 0:
		q.K = 1 + w.r.IntN(1000)
	case 1:
		q.Candidates = q.K + w.r.IntN(10)
	}
	if w.r.IntN(2) == 0 {
		q.Ruleset = w.rules
	}
	if w.r.IntN(2) == 0 {
		q.DecayField, q.HalfLife = "last_seen", 720*time.Hour
	}
	return q, conds
}

// check holds an answer against the people.
func (w *world) check(q *Request, conds []condition, a *Answer) {
	w.t.Helper()
	want := Counts{Considered: len(w.people)}
	fit := map[string]float64{}
	for id, p := range w.people {
		switch plainGate(p, &q.Gate, conds) {
		case "ids":
			want.IDs++
			continue
		case "role":
			want.Role++
			continue
		case "credential":
			want.Credential++
			continue
		case "block":
			want.Block++
			continue
		case "filter":
			want.Filter++
			continue
		}
		want.Passed++
		verdict, judge, decay := rules.Eligible, 1.0, 1.0
		if q.Ruleset != nil {
			verdict, judge = plainJudge(p)
		}
		if q.DecayField != "" {
			decay = plainDecay(p, q.HalfLife)
		}
		if verdict == rules.Ineligible || q.OnlyEligible && verdict != rules.Eligible {
			continue
		}
		fit[id] = plainScore(p, q.Query.Vector(), judge, decay)
	}
	if a.Gate != want {
		w.t.Fatalf("%s: counts %+v, want %+v", q.Gate.Filter, a.Gate, want)
	}
	if len(a.Results) != min(q.K, len(fit)) {
		w.t.Fatalf("%d results of %d that fit, k %d", len(a.Results), len(fit), q.K)
	}
	seen := map[string]bool{}
	for i := range a.Results {
		r := &a.Results[i]
		score, ok := fit[r.ID]
		if !ok || seen[r.ID] {
			w.t.Fatalf("%s: %s is returned, and does not pass or is there twice", q.Gate.Filter, r.ID)
		}
		seen[r.ID] = true
		if math.Abs(score-r.Score) > 3e-6 || r.Version != w.people[r.ID].Version || string(r.Payload) != string(w.people[r.ID].bytes) {
			w.t.Fatalf("%s has score %v and version %d, want %v and %d", r.ID, r.Score, r.Version, score, w.people[r.ID].Version)
		}
		if i > 0 && cmp.Or(cmp.Compare(r.Score, a.Results[i-1].Score), cmp.Compare(a.Results[i-1].ID, r.ID)) >= 0 {
			w.t.Fatalf("results %d and %d are out of order", i-1, i)
		}
	}
	if q.Ruleset == nil && q.DecayField == "" && a.Plan != PlanWalk && (q.Exact || q.Candidates == 0) {
		w.checkBest(q, fit, a)
	}
}

// checkBest sees that nothing better was left out where scores are products alone.
func (w *world) checkBest(q *Request, fit map[string]float64, a *Answer) {
	w.t.Helper()
	if len(a.Results) == 0 || len(a.Results) == len(fit) {
		return
	}
	scores := slices.Sorted(maps.Values(fit))
	least := scores[len(scores)-len(a.Results)]
	if got := a.Results[len(a.Results)-1].Score; got < least-1e-5 {
		w.t.Fatalf("exact %v: the last result has %v, the best have at least %v", q.Exact, got, least)
	}
}

// checkNarrower repeats a search with one more condition: rows that remain keep their order.
func (w *world) checkNarrower(q *Request, a *Answer) {
	w.t.Helper()
	more := *q
	extra := condition{source: "a block list"}
	switch {
	case q.Gate.Filter == "":
		extra = oneOf(w.r, conditions[1:])
		more.Gate.Filter = extra.source
	case q.Gate.Client == "":
		more.Gate.Client = "acme"
	default:
		for range 100 {
			more.Gate.IDsNotIn = append(more.Gate.IDsNotIn, numbered("w", w.r.IntN(400)))
		}
	}
	b, err := w.index.Search(&more)
	if err != nil {
		w.t.Fatal(err)
	}
	place := map[string]int{}
	for i := range b.Results {
		place[b.Results[i].ID] = i
	}
	last := -1
	for i := range a.Results {
		at, ok := place[a.Results[i].ID]
		if !ok {
			continue
		}
		if at < last {
			w.t.Fatalf("with %s more, %s moved", extra.source, a.Results[i].ID)
		}
		if a.Results[i].Score != b.Results[at].Score {
			w.t.Fatalf("with %s more, %s scores %v, not %v", extra.source, a.Results[i].ID, b.Results[at].Score, a.Results[i].Score)
		}
		last = at
	}
}

// try makes random searches, with changes between them, and returns how many took each plan.
func (w *world) try(n int, between func(i int)) map[Plan]int {
	plans, unknown := map[Plan]int{}, 0
	for i := range n {
		if i%20 == 19 {
			w.change(1 + w.r.IntN(40))
		}
		between(i)
		q, conds := w.request()
		a, err := w.index.Search(q)
		if e, ok := errors.AsType[*UnknownRole](err); ok {
			if slices.ContainsFunc(slices.Collect(maps.Values(w.people)), func(p *person) bool { return is(p.Role, e.Role) }) {
				w.t.Fatalf("role %s is refused, and somebody has it", e.Role)
			}
			unknown++
			continue
		}
		if err != nil {
			w.t.Fatalf("%s: %v", q.Gate.Filter, err)
		}
		plans[a.Plan]++
		w.check(q, conds, a)
		if i%3 == 0 {
			w.checkNarrower(q, a)
		}
	}
	if unknown > n/10 {
		w.t.Errorf("%d searches were refused", unknown)
	}
	return plans
}

func TestRandomSearchesNeverLeakNeverMissAndCountExactly(t *testing.T) {
	all := vector.Kernels()
	for _, kernel := range all {
		t.Run(kernel.String(), func(t *testing.T) {
			w := newWorld(t, 5, kernel)
			w.change(900)
			plans := w.try(searches(t)/len(all), func(i int) {
				if i%700 == 699 && !w.index.Compact(nil) {
					t.Fatal("the index was not rebuilt")
				}
			})
			if plans[PlanScan] == 0 || plans[PlanExact] == 0 {
				t.Errorf("plans %v", plans)
			}
		})
	}
}

func TestRandomSearchesByTheGraphNeverLeakNeverMissAndCountExactly(t *testing.T) {
	randomSearchesByTheGraph(t, newWorld(t, 6, vector.Kernels()[0]))
}

// Most points share one of three vectors: they hang on few nodes of the graph, which come and go as all points do.
func TestRandomSearchesAmongCopiesNeverLeakNeverMissAndCountExactly(t *testing.T) {
	w := newWorld(t, 8, vector.Kernels()[0])
	w.few = [][]float32{randomVector(w.r), randomVector(w.r), randomVector(w.r)}
	randomSearchesByTheGraph(t, w)
}

func randomSearchesByTheGraph(t *testing.T, w *world) {
	t.Helper()
	w.index.scan = 10 * testDim // ten rows are large
	w.change(900)
	plans := w.try(max(searches(t)/5, 600), func(i int) {
		switch {
		case i%500 == 499:
			if !w.index.Compact(func() bool { return false }) {
				t.Fatal("the index was not rebuilt")
			}
		case i%7 == 0: // the graph lags behind
			w.index.BuildGraph(w.r.IntN(60))
		case i%41 == 0:
			w.index.Tend(func() bool { return false })
			if s := w.index.Stats(); s.Tail != 0 {
				t.Fatalf("%+v", s)
			}
		}
	})
	if plans[PlanWalk] < 100 || plans[PlanWalkScan] == 0 || plans[PlanScan] == 0 || plans[PlanExact] == 0 {
		t.Errorf("plans %v", plans)
	}
}
