package rules

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzRuleset reads what is given as a ruleset, compiles it, and judges a full row and an empty one. What is refused is an
// *Error with a message. What is read is written and read as the same rules; what compiles holds to the documented limits,
// compiles from its own rules, with the defaults filled in, and judges alike each time, with a score within 0 and 2.
func FuzzRuleset(f *testing.F) {
	for _, seed := range []string{
		`{"rules":[{"id":"a","when":"years < p.min","severity":"block","reason":"too new"},{"id":"b","when":"'day' in shifts","severity":"bonus","weight":0.25}]}`,
		`[{"id":"c","when":"night","severity":"penalty","weight":2,"on_missing":"block"},{"id":"d","when":"!night","severity":"conditional","on_missing":"conditional"}]`,
		`[{"id":"e","when":"km(home, p.site) <= 40.0","severity":"bonus","weight":1e-300,"on_missing":"ignore"}]`, `[{"id":"a","when":"true","severity":"block","weight":1}]`,
		`[{"id":"a","when":"true","severity":"block"},{"id":"a","when":"true","severity":"block"}]`, `{"rules":[{"id":"a","when":"p.min","severity":"block"}]}`,
		`{"rules":[],"more":1}`, `{"rules":[]} []`, `[]`, `null`, `{"rules":null}`, "", "[\n\n {]", `[{"id":"\ud800","when":"status == '\u2028'","severity":"block"}]`,
		`{"rules":[{"id":"x","when":"age > 3","severity":"block"}]}`, `{"Rules":[{"ID":"x","WHEN":"true","severity":"block"}]}`,
	} {
		f.Add([]byte(seed))
	}
	s := testSchema(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		refused := func(err error) bool {
			if err == nil {
				return false
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.Message == "" || e.Message == compilerFailed || e.Reason == "" {
				t.Errorf("%q: %v", data, err)
			}
			return true
		}
		list, err := ParseRules(data)
		if refused(err) {
			return
		}
		if len(data) > MaxRuleset {
			t.Fatalf("%d bytes were read", len(data))
		}
		written, err := json.Marshal(map[string]any{"rules": list})
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseRules(written)
		if len(written) <= MaxRuleset && (err != nil || !slices.Equal(list, again)) {
			t.Fatalf("%q is written as %q, and read as %v, %v", data, written, again, err)
		}
		set, err := s.Ruleset(list)
		if refused(err) {
			return
		}
		ids := map[string]bool{}
		for _, r := range set.Rules() {
			if ids[r.ID] || r.ID == "" || len(r.ID) > maxID || !utf8.ValidString(r.ID) || len(r.Reason) > maxReason || r.OnMissing == "" || r.Weight < 0 || r.Weight > maxWeight {
				t.Errorf("%q: the rule %+v was taken", data, r)
			}
			ids[r.ID] = true
		}
		twice, err := s.Ruleset(set.Rules())
		if err != nil {
			t.Fatalf("%q: what it compiled to does not compile: %v", data, err)
		}
		if !slices.Equal(twice.Rules(), set.Rules()) || len(ids) > MaxRules {
			t.Fatalf("%q: %v compiles to %v", data, set.Rules(), twice.Rules())
		}
		judgeAlike(t, data, set, twice)
	})
}

// judgeAlike judges a full row and an empty one by two equal rulesets.
func judgeAlike(t *testing.T, data []byte, one, two *Ruleset) {
	t.Helper()
	a, err := one.Bind(testInputs())
	b, err2 := two.Bind(testInputs())
	if (err == nil) != (err2 == nil) {
		t.Fatalf("%q: %v and %v", data, err, err2)
	}
	if err != nil {
		return
	}
	for _, row := range []Row{fullRow(), mapRow{}} {
		x, y := []Outcome{}, []Outcome{}
		verdict, score := a.Judge(row, &x)
		verdict2, score2 := b.Judge(row, &y)
		if verdict != verdict2 || score != score2 || !(score >= 0 && score <= maxWeight) || verdict > Ineligible || len(x) != len(one.Rules()) || !reflect.DeepEqual(x, y) {
			t.Errorf("%q over %v: %v %v and %v %v", data, row, verdict, score, verdict2, score2)
		}
		for i, e := range one.exprs {
			holdAlike(t, one.rules[i].When, e, a.bound, row)
		}
	}
}
