package retrieval

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/rules"
	"github.com/millrace/millrace/internal/vector"
)

func point(id string, payload string, v ...float32) Change {
	full := make([]float32, testDim)
	copy(full, v)
	return Change{ID: id, Version: 1, Vector: packed(full), Payload: []byte(payload)}
}

func axis(v ...float32) *vector.Query {
	full := make([]float32, testDim)
	copy(full, v)
	return vector.NewQuery(full)
}

func find(t *testing.T, x *Index, change func(*Request)) *Answer {
	t.Helper()
	q := &Request{Query: axis(1), K: 10, DenseWeight: 1, Gate: Gate{ValidAt: noon}}
	if change != nil {
		change(q)
	}
	a, err := x.Search(q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func idsOf(a *Answer) string {
	var out []string
	for i := range a.Results {
		out = append(out, a.Results[i].ID)
	}
	return strings.Join(out, " ")
}

func TestScoresAreWhatASpreadsheetOfTheFormulaGives(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	age := func(decay float64) string { // hours ago at which a half-life of 720 h gives this decay
		return noon.Add(-time.Duration(-math.Log2(decay) * 720 * float64(time.Hour))).Format(time.RFC3339Nano)
	}
	apply(t, x,
		point("w123", fmt.Sprintf(`{"years":4,"last_seen":%q}`, age(0.99)), 0.66, 0.5),
		point("w077", fmt.Sprintf(`{"years":9,"last_seen":%q}`, age(0.80)), 0.70, 0.1))
	rs := ruleset(t, x, rules.Rule{ID: "a", When: "years < 5", Severity: rules.Penalty, Weight: 0.07},
		rules.Rule{ID: "b", When: "years > 5", Severity: rules.Bonus, Weight: 0.05})
	a := find(t, x, func(q *Request) {
		q.Ruleset, q.DecayField, q.HalfLife, q.DenseWeight = rs, "last_seen", 720*time.Hour, 0.9
	})
	// 0.9 · 0.66 · 0.93 · 0.99 and 0.9 · 0.70 · 1.05 · 0.80
	if idsOf(a) != "w123 w077" || a.Results[0].Score != 0.546896 || a.Results[1].Score != 0.5292 {
		t.Errorf("%s with %v and %v", idsOf(a), a.Results[0].Score, a.Results[1].Score)
	}
}

func TestEqualScoresAreInOrderOfTheirIDs(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	for _, id := range []string{"c", "a", "d", "b"} {
		apply(t, x, point(id, `{}`, 1))
	}
	if got := idsOf(find(t, x, nil)); got != "a b c d" {
		t.Errorf("order %s", got)
	}
}

func TestMinScoreCutsAfterTheOrder(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	apply(t, x, point("a", ``, 0.9), point("b", ``, 0.5), point("c", ``, -0.2))
	least := 0.5
	if got := idsOf(find(t, x, func(q *Request) { q.MinScore = &least })); got != "a b" {
		t.Errorf("results %s", got)
	}
}

func TestACredentialCountsUntilTheInstantThatItEnds(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	end := noon.Add(time.Hour)
	apply(t, x, point("w", fmt.Sprintf(`{"certs":[{"id":"rn","expires_at":%q}]}`, end.Format(time.RFC3339)), 1))
	for at, want := range map[time.Time]int{end.Add(-1): 1, end: 0, end.Add(1): 0} {
		a := find(t, x, func(q *Request) { q.Gate.CredentialsAll, q.Gate.ValidAt = []string{"rn"}, at })
		if len(a.Results) != want || a.Gate.Credential != 1-want {
			t.Errorf("at %v: %d results, %+v", at, len(a.Results), a.Gate)
		}
	}
}

func TestManyCredentialsThatEndAreJudgedAtEachInstant(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	r := rand.New(rand.NewPCG(1, 1))
	ends := map[string]time.Time{}
	for i := range 3000 {
		id := numbered("w", i%2500)
		ends[id] = noon.Add(time.Duration(r.IntN(1000)) * time.Minute)
		apply(t, x, point(id, fmt.Sprintf(`{"certs":[{"id":"rn","expires_at":%q}]}`, ends[id].Format(time.RFC3339)), 1))
		if i%100 != 99 {
			continue
		}
		at := noon.Add(time.Duration(r.IntN(1000)) * time.Minute)
		want := 0
		for _, end := range ends {
			if end.After(at) {
				want++
			}
		}
		got, err := x.Count(&Gate{CredentialsAll: []string{"rn"}, ValidAt: at}, nil)
		if err != nil || got.Passed != want {
			t.Fatalf("%+v of %d pass, want %d (%v)", got, len(ends), want, err)
		}
	}
}

func TestAnUnknownRoleIsRefusedWithNamesThatAreNear(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	apply(t, x, point("a", `{"role":"welder.mig"}`, 1), point("b", `{"role":"welder.tig","also":["welder.arc"]}`, 1), point("c", `{"role":"nurse"}`, 1))
	_, err := x.Search(&Request{Query: axis(1), K: 1, Gate: Gate{ValidAt: noon, Roles: []string{"welder.mag"}}})
	e, ok := errors.AsType[*UnknownRole](err)
	if !ok || e.Role != "welder.mag" || strings.Join(e.Near, " ") != "welder.mig welder.tig welder.arc" {
		t.Errorf("%+v", err)
	}
	apply(t, x, Change{ID: "c", Gone: true})
	if _, err := x.Count(&Gate{ValidAt: noon, Roles: []string{"nurse"}}, nil); err == nil {
		t.Error("a role that no point has any more was taken")
	}
	plain, err := NewIndex(&core.Collection{Dim: testDim}, vector.Kernels()[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Count(&Gate{ValidAt: noon, Roles: []string{"x"}}, nil); !errors.Is(err, ErrNoRoleField) {
		t.Errorf("%v", err)
	}
}

func TestBlocksThatLeaveTooFewMakeTheJudgeAskForMore(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	for i := range 3000 {
		apply(t, x, point(numbered("w", i), fmt.Sprintf(`{"years":%d}`, i), 1, float32(i)/3000))
	}
	rs := ruleset(t, x, rules.Rule{ID: "far", When: "years % 500 != 499", Severity: rules.Block})
	for _, exact := range []bool{false, true} {
		a := find(t, x, func(q *Request) { q.Query, q.K, q.Ruleset, q.Exact = axis(0, -1), 5, rs, exact })
		if len(a.Results) != 5 || a.Judged < 2000 || a.Blocked != a.Judged-6 && a.Blocked != a.Judged-5 {
			t.Errorf("exact %v: %d results, judged %d, blocked %d", exact, len(a.Results), a.Judged, a.Blocked)
		}
		all := find(t, x, func(q *Request) { q.Query, q.K, q.Ruleset, q.Exact = axis(0, -1), 50, rs, exact })
		if len(all.Results) != 6 || all.Judged != 3000 {
			t.Errorf("exact %v: %d results of 6, judged %d", exact, len(all.Results), all.Judged)
		}
	}
}

func TestExplainNamesEveryRuleInOrder(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	apply(t, x, point("a", `{"years":4}`, 1))
	rs := ruleset(t, x, rules.Rule{ID: "one", When: "years > 3", Severity: rules.Bonus, Weight: 0.5},
		rules.Rule{ID: "two", When: "pay > 3.0", Severity: rules.Block}, rules.Rule{ID: "three", When: "years > 9", Severity: rules.Block})
	a := find(t, x, func(q *Request) { q.Ruleset, q.Explain = rs, true })
	var got []string
	for _, o := range a.Results[0].Outcomes {
		got = append(got, fmt.Sprint(o.Rule.ID, " ", o.OK(), " ", o.Missing))
	}
	if s := strings.Join(got, ", "); s != "one true false, two false true, three true false" {
		t.Errorf("outcomes %s", s)
	}
	if a.Results[0].Verdict != rules.ConditionallyEligible || a.Conditional != 1 {
		t.Errorf("verdict %v", a.Results[0].Verdict)
	}
}

func TestPayloadsThatDoNotFitAreRefusedByPath(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	for payload, path := range map[string]string{
		`[]`: "payload", `null`: "payload", `{"role":7}`: "payload.role", `{"also":["x",7]}`: "payload.also[1]",
		`{"years":1.5}`: "payload.years", `{"years":"7"}`: "payload.years", `{"pay":"x"}`: "payload.pay", `{"night":1}`: "payload.night",
		`{"last_seen":"yesterday"}`: "payload.last_seen", `{"last_seen":"1492-01-01T00:00:00Z"}`: "payload.last_seen",
		`{"home":[91,0]}`: "payload.home", `{"home":[1]}`: "payload.home", `{"home":{"lat":1}}`: "payload.home", `{"home":[null,1]}`: "payload.home",
		`{"certs":["x"]}`: "payload.certs[0]", `{"certs":[{"id":"a"},{"id":"b","expires_at":"x"}]}`: "payload.certs[1].expires_at",
		`{"certs":[{"id":"a","expires":"x"}]}`: "payload.certs[0]", `{"bio":7}`: "payload.bio",
		`{"role":"` + strings.Repeat("x", MaxKeyword+1) + `"}`: "payload.role",
	} {
		err := x.Schema().Check([]byte(payload))
		if e, ok := errors.AsType[*FieldError](err); !ok || e.Path != path {
			t.Errorf("%s: %v, want a fault at %s", payload, err, path)
		}
	}
	for _, payload := range []string{
		``, `{}`, `{"role":null,"extra":{"a":[1]}}`, `{"home":{"lat":1,"lon":2},"pay":7,"certs":[],"last_seen":"2026-01-01T00:00:00+02:00"}`,
	} {
		if err := x.Schema().Check([]byte(payload)); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

func TestAPointWhoseBytesMakeNoSenseIsFoundByNobody(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	apply(t, x, point("a", `{"role":"x"}`, 1))
	err := x.Apply([]Change{point("a", `{"role":7}`, 1), point("b", `{}`, 1), {ID: "c", Vector: []byte{1}}})
	if err == nil || idsOf(find(t, x, nil)) != "b" {
		t.Errorf("%v, found %s", err, idsOf(find(t, x, nil)))
	}
}

func TestProtectedFieldsAreLeftOutOfPayloads(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	if got := string(x.Schema().Public([]byte(`{"age":50,"years":3}`))); got != `{"years":3}` {
		t.Errorf("public part %s", got)
	}
	for _, filter := range []string{"age > 3", "has(age)", "years > 3 || age > 3"} {
		_, err := x.Count(&Gate{ValidAt: noon, Filter: filter}, nil)
		if e, ok := errors.AsType[*rules.Error](err); !ok || e.Reason != rules.ProtectedField {
			t.Errorf("%s: %v", filter, err)
		}
	}
}

func TestABatchIsSeenWhollyOrNotAtAllAndARevokedPointNotAtAll(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	pair := func(role string) []Change {
		return []Change{point("a", `{"role":"`+role+`"}`, 1), point("b", `{"role":"`+role+`"}`, 1)}
	}
	apply(t, x, pair("in")...)
	apply(t, x, point("keeper", `{"role":"in"}`, 1), point("other", `{"role":"out"}`, 1))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, err := x.Search(&Request{Query: axis(1), K: 10, DenseWeight: 1, Gate: Gate{ValidAt: noon, Roles: []string{"in"}}})
				if err != nil || len(a.Results) != 1 && len(a.Results) != 3 {
					t.Errorf("%v, %d results", err, len(a.Results))
					return
				}
			}
		})
	}
	for i := range 600 {
		apply(t, x, pair([]string{"out", "in"}[i%2])...)
		if i%50 == 0 {
			x.Compact(nil)
		}
		if i%2 == 0 {
			a := find(t, x, func(q *Request) { q.Gate.Roles = []string{"in"} })
			if idsOf(a) != "keeper" {
				t.Fatalf("after its role was taken: %s", idsOf(a))
			}
		}
	}
	close(stop)
	wg.Wait()
}

func TestBuildingAnewDropsDeadRowsAndChangesNoAnswer(t *testing.T) {
	w := newWorld(t, 9, vector.Kernels()[0])
	for range 60 {
		w.change(200)
	}
	if !w.index.Wasteful() {
		t.Fatal("nothing to do")
	}
	var before []*Answer
	var asked []*Request
	for range 50 {
		q, _ := w.request()
		q.Exact = true
		if a, err := w.index.Search(q); err == nil {
			before, asked = append(before, a), append(asked, q)
		}
	}
	if x := w.index; x.Compact(func() bool { return true }) || !x.Wasteful() {
		t.Error("it went on though told to stop")
	}
	if !w.index.Compact(nil) {
		t.Fatal("not built")
	}
	if s := w.index.Stats(); s.Rows != s.Points || s.Points != len(w.people) || w.index.Wasteful() {
		t.Errorf("%+v with %d people", s, len(w.people))
	}
	for i, q := range asked {
		a, err := w.index.Search(q)
		if err != nil {
			t.Fatal(err)
		}
		was, _ := json.Marshal(before[i])
		is, _ := json.Marshal(a)
		if !slices.Equal(was, is) {
			t.Fatalf("another answer:\n%s\n%s", was, is)
		}
	}
}

func TestASearchThatIsToldToStopStops(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	for i := range 2000 {
		apply(t, x, point(numbered("w", i), `{"years":1}`, 1))
	}
	for _, change := range []func(*Request){
		func(q *Request) { q.Gate.Filter = "years > 0" },
		func(q *Request) {},
		func(q *Request) { q.Exact = true },
		func(q *Request) { q.K, q.Candidates = 1000, 2000 },
	} {
		q := &Request{Query: axis(1), K: 1, Gate: Gate{ValidAt: noon}, Stop: func() bool { return true }}
		change(q)
		if _, err := x.Search(q); !errors.Is(err, ErrStopped) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestAPartialAnswerIsWhatWasFoundAndNamesTheStageThatWasCutShort(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	for i := range 2000 {
		apply(t, x, point(numbered("w", i), `{"years":1}`, 1))
	}
	for _, c := range []struct {
		name   string
		asked  int // how often Stop says no
		change func(*Request)
		stage  Stage
		some   bool
	}{
		{"gate", 0, func(q *Request) { q.Gate.Filter = "years > 0" }, StageGate, false},
		{"retrieve", 0, func(q *Request) {}, StageRetrieve, false},
		{"judge", 5, func(q *Request) { q.K, q.Candidates = 1000, 1500 }, StageJudge, true},
	} {
		left := c.asked
		q := &Request{Query: axis(1), K: 1, Partial: true, Gate: Gate{ValidAt: noon}, Stop: func() bool { left--; return left < 0 }}
		c.change(q)
		a, err := x.Search(q)
		if err != nil || a.Stopped != c.stage || (len(a.Results) > 0) != c.some {
			t.Errorf("%s: %+v, %v", c.name, a, err)
			continue
		}
		if c.some && (len(a.Results) >= q.K || a.Judged >= a.Gate.Passed || a.Judged < len(a.Results)) {
			t.Errorf("%s: %d results of %d judged", c.name, len(a.Results), a.Judged)
		}
	}
}

func TestStagesAreToldInOrder(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	apply(t, x, point("a", ``, 1))
	var got []Stage
	find(t, x, func(q *Request) { q.At = func(s Stage) { got = append(got, s) } })
	if !slices.Equal(got, []Stage{StageGate, StageRetrieve, StageJudge, StageMerge}) {
		t.Errorf("stages %v", got)
	}
}

func BenchmarkSearch5k(b *testing.B) {
	x, err := NewIndex(&core.Collection{Dim: 384, Fields: testFields}, vector.Kernels()[0])
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	big := func() []float32 {
		v := make([]float32, 384)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		vector.Normalize(v)
		return v
	}
	var batch []Change
	for i := range 5000 {
		p := randomPerson(r, numbered("w", i), 1)
		p.vector = big()
		batch = append(batch, p.change())
	}
	if err := x.Apply(batch); err != nil {
		b.Fatal(err)
	}
	rs := ruleset(b, x, oracleRules...)
	for name, g := range map[string]Gate{
		"gated":   {ValidAt: noon, Roles: roleNames[:1], CredentialsAll: certNames[:1], Client: "acme", Filter: "status == 'available' && years >= p.least", Params: oracleParams},
		"ungated": {ValidAt: noon},
	} {
		b.Run(name, func(b *testing.B) {
			q := &Request{Query: vector.NewQuery(big()), K: 10, DenseWeight: 1, Gate: g, Ruleset: rs}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Search(q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAGraphFindsWhatIsNewWhatIsLeftAndNearlyAllOfTheBest(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	x.scan = 100 * testDim
	r := rand.New(rand.NewPCG(4, 4))
	vectors := map[string][]float32{}
	add := func(from, to int) {
		var batch []Change
		for i := from; i < to; i++ {
			id := numbered("w", i)
			vectors[id] = randomVector(r)
			batch = append(batch, point(id, `{"status":"new"}`, vectors[id]...))
		}
		apply(t, x, batch...)
	}
	goOn := func() bool { return false }
	add(0, 3000)
	x.Tend(goOn)
	measure := func() float64 {
		sum := 0.0
		for range 50 {
			q := vector.NewQuery(randomVector(r))
			walk := find(t, x, func(s *Request) { s.Query = q })
			best := find(t, x, func(s *Request) { s.Query, s.Exact = q, true })
			if walk.Plan != PlanWalk || best.Plan != PlanExact {
				t.Fatalf("plans %s and %s", walk.Plan, best.Plan)
			}
			for i := range best.Results {
				if slices.ContainsFunc(walk.Results, func(r Result) bool { return r.ID == best.Results[i].ID }) {
					sum++
				}
			}
			for _, one := range walk.Results {
				if vectors[one.ID] == nil {
					t.Fatalf("%s is returned after it was deleted", one.ID)
				}
			}
		}
		return sum / 500
	}
	if got := measure(); got < 0.98 {
		t.Errorf("recall %.3f", got)
	}
	add(3000, 3400) // not in the graph
	for i := 3000; i < 3400; i += 20 {
		id := numbered("w", i)
		if a := find(t, x, func(s *Request) { s.Query, s.K = vector.NewQuery(vectors[id]), 1 }); a.Plan != PlanWalk || idsOf(a) != id {
			t.Fatalf("%s by plan %s found %s", id, a.Plan, idsOf(a))
		}
	}
	tail, built := x.Stats().Tail, 0
	for n := x.BuildGraph(1000); n > 0; n = x.BuildGraph(1000) {
		built += n
	}
	if tail != 400 || built != 400 {
		t.Errorf("a tail of %d rows, of which %d were built", tail, built)
	}
	for i := 0; i < 3400; i += 2 {
		id := numbered("w", i)
		delete(vectors, id)
		apply(t, x, Change{ID: id, Gone: true})
	}
	if got := measure(); got < 0.98 {
		t.Errorf("recall %.3f when half is deleted", got)
	}
	if !x.Compact(goOn) {
		t.Fatal("not built again")
	}
	if got := measure(); got < 0.98 {
		t.Errorf("recall %.3f after a rebuild", got)
	}
}

func TestAMetricOfLengthsHasNoGraph(t *testing.T) {
	x, err := NewIndex(&core.Collection{Dim: testDim, Metric: core.MetricDot}, vector.Kernels()[0])
	if err != nil {
		t.Fatal(err)
	}
	x.scan = 0
	apply(t, x, point("a", ``, 5), point("b", ``, 1))
	if n := x.BuildGraph(10); n != 0 || idsOf(find(t, x, nil)) != "a b" {
		t.Errorf("%d rows in a graph", n)
	}
}

// Points that are copies of each other are found as long as they are there, whichever of them is changed, deleted or gated away,
// and so are those near which they lie.
func TestCopiesAreFoundAndHideNothing(t *testing.T) {
	x := newTestIndex(t, vector.Kernels()[0])
	x.scan = 100 * testDim
	r := rand.New(rand.NewPCG(9, 4))
	shared, others := randomVector(r), map[string][]float32{}
	var batch []Change
	for i := range 2000 {
		id := numbered("w", i)
		if i%4 == 0 {
			batch = append(batch, point(id, fmt.Sprintf(`{"status":"s%d"}`, i%3), shared...))
			continue
		}
		others[id] = randomVector(r)
		batch = append(batch, point(id, `{"status":"new"}`, others[id]...))
	}
	apply(t, x, batch...)
	goOn := func() bool { return false }
	x.Tend(goOn)
	check := func(copies int) {
		t.Helper()
		q := vector.NewQuery(shared)
		a := find(t, x, func(s *Request) { s.Query, s.K = q, 450 })
		equal := 0
		for i := range a.Results {
			if a.Results[i].Dense > 0.9999 {
				equal++
			}
		}
		if a.Plan != PlanWalk || equal != min(450, copies) {
			t.Errorf("plan %s: %d of %d copies", a.Plan, equal, copies)
		}
		a = find(t, x, func(s *Request) { s.Query, s.K, s.Gate.Filter = q, 5, `status in ["s1", "new"]` })
		for i := range a.Results {
			if a.Results[i].Dense < 0.9999 || !strings.Contains(string(a.Results[i].Payload), "s1") {
				t.Errorf("by a filter, %s: %s", a.Results[i].ID, a.Results[i].Payload)
			}
		}
		lost := 0
		for id, v := range others {
			if a := find(t, x, func(s *Request) { s.Query = vector.NewQuery(v) }); !strings.Contains(idsOf(a), id) {
				lost++
			}
		}
		if lost > len(others)/100 {
			t.Errorf("%d of %d others do not find themselves", lost, len(others))
		}
	}
	check(500)
	for i := 0; i < 400; i += 4 { // among them the first, on which the others hang
		if id := numbered("w", i); i%8 == 0 {
			apply(t, x, Change{ID: id, Gone: true})
		} else {
			others[id] = randomVector(r)
			apply(t, x, point(id, `{"status":"new"}`, others[id]...))
		}
	}
	check(400) // of which some others are in the tail
	x.Tend(goOn)
	check(400)
	if !x.Compact(goOn) {
		t.Fatal("not built again")
	}
	check(400)
}
