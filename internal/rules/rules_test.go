package rules

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// testFields is a schema with a field of each type, and some that rules may not read.
var testFields = []Field{
	{Name: "status", Type: Keyword, Indexed: true},
	{Name: "shifts", Type: Keywords, Indexed: true},
	{Name: "years", Type: Int, Indexed: true},
	{Name: "pay", Type: Float, Indexed: true},
	{Name: "night", Type: Bool, Indexed: true},
	{Name: "last_seen", Type: Time, Indexed: true},
	{Name: "home", Type: Geo, Indexed: true},
	{Name: "certs", Type: Credentials, Indexed: true},
	{Name: "bio", Type: Text, Indexed: true},
	{Name: "nick", Type: Keyword},
	{Name: "age", Type: Int, Indexed: true, Protected: true},
}

func testSchema(t testing.TB) *Schema {
	t.Helper()
	s, err := NewSchema(testFields)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mapRow is a row by field name.
type mapRow map[string]any

func read[T any](r mapRow, field int) (T, bool) {
	v, ok := r[testFields[field].Name].(T)
	return v, ok
}

func (r mapRow) Int(f int) (int64, bool) {
	if b, ok := read[bool](r, f); ok {
		return boolOf(b).Int, true
	}
	if t, ok := read[time.Time](r, f); ok {
		return t.UnixNano(), true
	}
	return read[int64](r, f)
}
func (r mapRow) Float(f int) (float64, bool)    { return read[float64](r, f) }
func (r mapRow) String(f int) (string, bool)    { return read[string](r, f) }
func (r mapRow) Strings(f int) ([]string, bool) { return read[[]string](r, f) }
func (r mapRow) Geo(f int) ([2]float64, bool)   { return read[[2]float64](r, f) }

func fullRow() mapRow {
	return mapRow{
		"status": "available", "shifts": []string{"day", "swing"}, "years": int64(7), "pay": 31.5, "night": true,
		"last_seen": noon.Add(-48 * time.Hour), "home": [2]float64{41.5, -88.1}, "certs": []string{"aws_d1.1"},
	}
}

func testInputs() *Inputs {
	return &Inputs{
		Params: map[string]any{
			"site": []any{41.6, int64(-88)}, "min": int64(5), "rate": 30.0, "who": "available", "any": []any{"day", "night"},
			"flag": true, "mixed": []any{"a", int64(1)}, "nothing": nil, "nums": []any{int64(7), 1.5, int64(9)},
		},
		Roles: []string{"welder.mig"}, Credentials: []string{"aws_d1.1"}, Client: "acme", Now: noon,
	}
}

// both evaluates by closure (if there is one) and by interpreter.
func both(t *testing.T, s *Schema, source string, in *Inputs, row Row) (fast, slow tri, closure bool) {
	t.Helper()
	checked, err := s.check(source)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	table := newParamTable()
	x, err := s.build(checked.NativeRep(), table)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	b, err := table.bind(s, in)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return x.run(b, row), x.interpret(b, row), x.fast != nil
}

func TestExpressionsGiveTheSameByClosureAndInterpreter(t *testing.T) {
	s := testSchema(t)
	for _, c := range []struct {
		source  string
		want    tri
		closure bool
	}{
		{`status == 'available'`, yes, true},
		{`status != "available"`, no, true},
		{`'available' == status`, yes, true},
		{`status == p.who && years >= p.min`, yes, true},
		{`years >= params.rate`, no, true},
		{`years > 6.5`, yes, true},
		{`pay * 2.0 < 63.5`, yes, true},
		{`pay < 32`, yes, true},
		{`years + 1 == 8`, yes, true},
		{`years / 0 == 1`, undecided, true},
		{`years / 0 == 1 || night`, yes, true},
		{`!(years % 0 == 1)`, undecided, true},
		{`9223372036854775807 + years > 0`, undecided, true},
		{`pay / 0.0 > 5.0`, yes, true},
		{`0.0 / 0.0 < pay`, no, true},
		{`0.0 / 0.0 == pay`, no, true},
		{`'day' in shifts`, yes, true},
		{`p.who in shifts`, no, true},
		{`status in ['busy', 'available']`, yes, true},
		{`status in p.any`, no, true},
		{`years in [1, 7]`, yes, true},
		{`years in p.nums`, yes, true},
		{`pay in p.nums`, no, true},
		{`'aws_d1.1' in certs`, yes, true},
		{`'welder.mig' in req.roles && req.client == 'acme'`, yes, true},
		{`km(home, p.site) <= 40.0`, yes, true},
		{`km(home, [41.5, -88.1]) < 0.001`, yes, true},
		{`km(home, [941.5, -88.1]) < 0.001`, undecided, true},
		{`now - last_seen > duration('24h')`, yes, true},
		{`last_seen >= timestamp('2026-11-29T12:00:00Z')`, yes, true},
		{`last_seen + duration('72h') > now`, yes, false},
		{`has(status) && !has(p.zero)`, yes, true},
		{`has(p.min) ? years > 3 : night`, yes, true},
		{`night == true`, yes, true},
		{`night == p.flag`, yes, true},
		{`night`, yes, true},
		{`!night`, no, true},
		{`true`, yes, true},
		{`status.startsWith('avail') && status.contains('lab') && !status.endsWith('x')`, yes, true},
		{`size(shifts) == 2 && size(status) == 9 && shifts.size() < 3`, yes, true},
		{`status.matches('^a.*e$')`, yes, false},
		{`shifts.exists(x, x.startsWith('sw'))`, yes, false},
		{`p.mixed.size() == 2`, yes, false},
		{`status in p.mixed`, no, true},
		{`p.nothing == null`, yes, false},
		{`status == p.any`, no, true},
		{`status != p.min`, yes, true},
		{`status < p.min`, undecided, true},
		{`-years < 0 && -pay < 0.0`, yes, true},
		{`-9223372036854775808 < years`, yes, true},
		{`years > p.who || pay > 1.0`, yes, true},
		{`home == [41.5, -88.1]`, yes, false},
	} {
		fast, slow, closure := both(t, s, c.source, testInputs(), fullRow())
		if fast != c.want || slow != c.want || closure != c.closure {
			t.Errorf("%s: %d by closure (%v), %d by interpreter, want %d", c.source, fast, closure, slow, c.want)
		}
	}
}

// Distances are compared by latitudes alone where those decide; what comes of it must be what the formula says, at the limit too.
func TestDistancesCompareAsTheFormulaDoes(t *testing.T) {
	s := testSchema(t)
	r := rand.New(rand.NewPCG(3, 14))
	for range 2000 {
		from, to := [2]float64{r.Float64()*180 - 90, r.Float64()*360 - 180}, [2]float64{r.Float64()*180 - 90, r.Float64()*360 - 180}
		switch r.IntN(4) {
		case 0:
			to[1] = from[1] // all of the distance is latitude
		case 1:
			to = [2]float64{-from[0], from[1] - math.Copysign(180, from[1])} // the other side of the Earth
		case 2:
			from[0], to[0] = 90, -90
		}
		far := Kilometres(from, to)
		var limit any = []float64{far, math.Nextafter(far, 0), math.Nextafter(far, 1e6), far * r.Float64() * 2, -1, math.NaN(), math.Inf(1)}[r.IntN(7)]
		switch r.IntN(8) {
		case 0:
			limit = int64(far)
		case 1:
			limit = "near"
		}
		in, row := testInputs(), fullRow()
		in.Params = map[string]any{"site": []any{to[0], to[1]}, "limit": limit}
		row["home"] = from
		op := []string{"<", "<=", ">", ">="}[r.IntN(4)]
		source := []string{"km(home, p.site) ", "km(p.site, home) "}[r.IntN(2)] + op + " p.limit"
		fast, slow, closure := both(t, s, source, in, row)
		if fast != slow || !closure {
			t.Fatalf("%s, from %v to %v (%v km), limit %v: %d by closure (%v), %d by interpreter", source, from, to, far, limit, fast, closure, slow)
		}
	}
}

func TestWhatARowDoesNotHaveLeavesExpressionsUndecided(t *testing.T) {
	s := testSchema(t)
	for source, want := range map[string]tri{
		`status == 'available'`:            undecided,
		`status != 'available'`:            undecided,
		`!(status == 'available')`:         undecided,
		`status == 'available' || true`:    yes,
		`status == 'available' && false`:   no,
		`has(status)`:                      no,
		`has(status) && status == 'a'`:     no,
		`years + 1 > 0`:                    undecided,
		`'x' in shifts`:                    undecided,
		`'x' in certs`:                     undecided,
		`km(home, p.site) < 1.0`:           undecided,
		`night ? true : true`:              undecided,
		`shifts.exists(x, x == 'day')`:     undecided,
		`now - last_seen > duration('1s')`: undecided,
		`size(status) == 0`:                undecided,
	} {
		fast, slow, _ := both(t, s, source, testInputs(), mapRow{})
		if fast != want || slow != want {
			t.Errorf("%s: %d by closure, %d by interpreter, want %d", source, fast, slow, want)
		}
	}
}

func TestBadExpressionsAreRefusedWithTheirPlace(t *testing.T) {
	s := testSchema(t)
	for _, c := range []struct {
		source, reason string
		line, column   int
	}{
		{`status ==`, ExpressionInvalid, 1, 10},
		{"night &&\n  statis == 'x'", ExpressionInvalid, 2, 3},
		{`years == 'x'`, ExpressionInvalid, 1, 7},
		{`years`, ExpressionInvalid, 1, 1},
		{``, ExpressionInvalid, 1, 1},
		{`night && age > 3`, ProtectedField, 1, 10},
		{`has(age)`, ProtectedField, 1, 4},
		{`nick == 'x'`, FieldNotIndexed, 1, 1},
		{`bio == 'x'`, FieldNotIndexed, 1, 1},
		{`has(nope)`, ExpressionInvalid, 1, 4},
		{`req.token == 'x'`, ExpressionInvalid, 1, 4},
		{`shifts.all(a, shifts.all(b, shifts.all(c, a + b + c == 'x')))`, ExpressionInvalid, 1, 1},
		{`status.matches('(')`, ExpressionInvalid, 0, 0},
		{strings.Repeat("(", 100) + "night" + strings.Repeat(")", 100), ExpressionInvalid, 0, 0},
		{strings.Repeat("night && ", 600) + "night", ExpressionInvalid, 0, 0},
	} {
		_, err := s.Filter(c.source)
		got, ok := errors.AsType[*Error](err)
		if !ok {
			t.Errorf("%.60s: %v", c.source, err)
			continue
		}
		if got.Reason != c.reason || c.line > 0 && (got.Line != c.line || got.Column != c.column) {
			t.Errorf("%.60s: %s at %d:%d (%s), want %s at %d:%d", c.source, got.Reason, got.Line, got.Column, got.Message, c.reason, c.line, c.column)
		}
	}
}

func TestParametersThatAreMissingOrUnfitAreRefused(t *testing.T) {
	s := testSchema(t)
	f, err := s.Filter(`years > p.least && (!has(p.most) || years < p.most)`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Bind(&Inputs{Now: noon}); err == nil || !strings.Contains(err.Error(), "parameter least is missing") {
		t.Errorf("a missing parameter: %v", err)
	}
	in := &Inputs{Now: noon, Params: map[string]any{"least": int64(1)}}
	b, err := f.Bind(in)
	if err != nil || !b.Passes(fullRow()) {
		t.Errorf("an optional parameter that is absent: %v", err)
	}
	for name, v := range map[string]any{
		"type": struct{}{}, "text": strings.Repeat("x", 1025), "list": make([]any, 1025), "deep": []any{[]any{[]any{[]any{int64(1)}}}},
	} {
		if _, err := f.Bind(&Inputs{Now: noon, Params: map[string]any{"least": int64(1), name: v}}); err == nil {
			t.Errorf("parameter %s was taken", name)
		}
	}
	if _, err := f.Bind(&Inputs{Now: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), Params: in.Params}); err == nil {
		t.Error("an instant that nanoseconds cannot hold was taken")
	}
}

func TestAFilterIsItsProbesAndTheRest(t *testing.T) {
	s := testSchema(t)
	f, err := s.Filter(`status == 'available' && 'day' in shifts && (status in ['a', 'available']) && years > 3 && status == p.who && 'aws_d1.1' in certs`)
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Bind(testInputs())
	if err != nil {
		t.Fatal(err)
	}
	want := []Probe{{0, []string{"available"}}, {1, []string{"day"}}, {0, []string{"a", "available"}}, {0, []string{"available"}}}
	if got := fmt.Sprint(b.Probes()); got != fmt.Sprint(want) {
		t.Errorf("probes %v, want %v", got, want)
	}
	if !b.HasRest() || !b.Rest(fullRow()) || !b.Passes(fullRow()) || b.Rest(mapRow{"years": int64(9)}) {
		t.Error("the rest is judged wrongly")
	}
	again, err := s.Filter(f.source)
	if err != nil || again != f {
		t.Error("a filter was compiled twice")
	}
	for i := range cachedFilters + 10 {
		if _, err := s.Filter(fmt.Sprintf("years == %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.recent.Len(); n != cachedFilters || len(s.known) != n {
		t.Errorf("%d filters are kept, want %d", n, cachedFilters)
	}
}

// randomRow has each field in two of three cases.
func randomRow(r *rand.Rand) mapRow {
	row := mapRow{}
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	for name, v := range map[string]any{
		"status": pick("available", "busy", "away"), "shifts": []string{pick("day", "night"), pick("swing", "day")}[:r.IntN(3)],
		"years": int64(r.IntN(12)), "pay": math.Round(r.Float64()*400) / 10, "night": r.IntN(2) == 0,
		"last_seen": noon.Add(-time.Duration(r.IntN(1000)) * time.Hour), "home": [2]float64{41 + r.Float64(), -88 - r.Float64()},
		"certs": []string{pick("aws_d1.1", "osha10")}[:r.IntN(2)],
	} {
		if r.IntN(3) > 0 {
			row[name] = v
		}
	}
	return row
}

// randomExpr makes an expression of type bool.
func randomExpr(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(3) > 0 {
		a, b := randomExpr(r, depth-1), randomExpr(r, depth-1)
		return fmt.Sprintf([]string{"(%s && %s)", "(%s || %s)", "(!(%s) && %s)", "(%s ? night : %s)"}[r.IntN(4)], a, b)
	}
	cmp := []string{"==", "!=", "<", "<=", ">", ">="}[r.IntN(6)]
	switch r.IntN(14) {
	case 0:
		return "status " + cmp + " 'busy'"
	case 1:
		return fmt.Sprintf("years %s %d", cmp, r.IntN(12))
	case 2:
		return fmt.Sprintf("pay %s %d.0", cmp, r.IntN(40))
	case 3:
		return "years " + cmp + " p." + []string{"min", "rate", "who", "mixed"}[r.IntN(4)]
	case 4:
		return fmt.Sprintf("km(home, p.site) < %d", r.IntN(90))
	case 5:
		return "'day' in shifts"
	case 6:
		return "p.who in ['available', 'x']"
	case 7:
		return "has(" + []string{"status", "pay", "home", "certs", "p.min", "p.none"}[r.IntN(6)] + ")"
	case 8:
		return fmt.Sprintf("now - last_seen %s duration('%dh')", cmp, r.IntN(1000))
	case 9:
		return fmt.Sprintf("(years * %d - 3) %% %d == 1", r.IntN(5), r.IntN(4))
	case 10:
		return fmt.Sprintf("pay / %d.0 + 1.5 %s 20.0", r.IntN(3), cmp)
	case 11:
		return "'aws_d1.1' in certs"
	case 12:
		return fmt.Sprintf("size(shifts) %s %d", cmp, r.IntN(3))
	}
	return "night"
}

func TestHundredRulesetsJudgeAThousandRowsAlikeByClosureAndInterpreter(t *testing.T) {
	s := testSchema(t)
	sets, each := 100, 1000
	if testing.Short() {
		sets, each = 20, 200
	}
	r := rand.New(rand.NewPCG(11, 12))
	rows := make([]mapRow, each)
	for i := range rows {
		rows[i] = randomRow(r)
	}
	closures, outcomes := 0, map[tri]int{}
	for n := range sets {
		var list []Rule
		for i := range 3 {
			sev := []Severity{Block, Conditional, Penalty, Bonus}[r.IntN(4)]
			rule := Rule{ID: fmt.Sprint(i), When: randomExpr(r, 2), Severity: sev}
			if sev == Penalty || sev == Bonus {
				rule.Weight = float64(r.IntN(100)) / 100
			}
			list = append(list, rule)
		}
		rs, err := s.Ruleset(list)
		if err != nil {
			t.Fatalf("set %d: %v: %v", n, list, err)
		}
		j, err := rs.Bind(testInputs())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			for i, x := range rs.exprs {
				if x.fast == nil {
					continue
				}
				closures++
				j.bound.frame.row = row
				fast, slow := x.fast(&j.bound.frame), x.interpret(j.bound, row)
				outcomes[fast]++
				if fast != slow {
					t.Fatalf("%s over %v: %d by closure, %d by interpreter", list[i].When, row, fast, slow)
				}
			}
		}
	}
	if closures < sets*each || outcomes[yes] < 1000*each/1000 || outcomes[no] < each || outcomes[undecided] < each {
		t.Errorf("%d closures compared, outcomes %v: the expressions are too tame", closures, outcomes)
	}
}

func BenchmarkJudge(b *testing.B) {
	s := testSchema(b)
	rs, err := s.Ruleset([]Rule{
		{ID: "a", When: "status != 'available'", Severity: Block},
		{ID: "b", When: "years < p.min", Severity: Conditional},
		{ID: "c", When: "km(home, p.site) > 40.0", Severity: Penalty, Weight: 0.2},
		{ID: "d", When: "'day' in shifts", Severity: Bonus, Weight: 0.1},
		{ID: "e", When: "pay > p.rate && night", Severity: Penalty, Weight: 0.3},
	})
	if err != nil {
		b.Fatal(err)
	}
	j, err := rs.Bind(testInputs())
	if err != nil {
		b.Fatal(err)
	}
	row := fixedRow{}
	for b.Loop() {
		j.Judge(row, nil)
	}
}

// fixedRow costs nothing to read, so that a benchmark measures rules.
type fixedRow struct{}

var fixedShifts = []string{"day", "swing"}

func (fixedRow) Int(int) (int64, bool)        { return 7, true }
func (fixedRow) Float(int) (float64, bool)    { return 31.5, true }
func (fixedRow) String(int) (string, bool)    { return "available", true }
func (fixedRow) Strings(int) ([]string, bool) { return fixedShifts, true }
func (fixedRow) Geo(int) ([2]float64, bool)   { return [2]float64{41.5, -88.1}, true }

func BenchmarkCompileFilter(b *testing.B) {
	s := testSchema(b)
	for b.Loop() {
		if _, err := s.compileFilter(`status == 'available' && km(home, p.site) <= 40.0`); err != nil {
			b.Fatal(err)
		}
	}
}
