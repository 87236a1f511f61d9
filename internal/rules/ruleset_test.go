package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func judge(t *testing.T, row Row, list ...Rule) (Verdict, float64, []Outcome) {
	t.Helper()
	rs, err := testSchema(t).Ruleset(list)
	if err != nil {
		t.Fatal(err)
	}
	j, err := rs.Bind(testInputs())
	if err != nil {
		t.Fatal(err)
	}
	outcomes := []Outcome{}
	v, score := j.Judge(row, &outcomes)
	return v, score, outcomes
}

func TestAVerdictFollowsTheWorstRuleThatFires(t *testing.T) {
	block := Rule{ID: "b", When: "years < 3", Severity: Block}
	cond := Rule{ID: "c", When: "pay > 30.0", Severity: Conditional}
	bonus := Rule{ID: "p", When: "'day' in shifts", Severity: Bonus, Weight: 0.25}
	penalty := Rule{ID: "m", When: "night", Severity: Penalty, Weight: 0.5}
	v, score, outcomes := judge(t, fullRow(), block, cond, bonus, penalty)
	if v != ConditionallyEligible || score != 0.75 {
		t.Errorf("%v with %v, want conditional with 0.75", v, score)
	}
	var shown []string
	for i := range outcomes {
		shown = append(shown, fmt.Sprint(outcomes[i].Rule.ID, outcomes[i].OK()))
	}
	if got := strings.Join(shown, " "); got != "btrue cfalse ptrue mfalse" {
		t.Errorf("outcomes %s", got)
	}
	block.When = "years > 3"
	if v, _, _ := judge(t, fullRow(), block, cond); v != Ineligible {
		t.Errorf("%v, want ineligible", v)
	}
	if v, _, _ := judge(t, fullRow(), bonus); v != Eligible {
		t.Errorf("%v, want eligible", v)
	}
}

func TestScoresStayWithinZeroAndTwo(t *testing.T) {
	up, down := Rule{ID: "u", When: "true", Severity: Bonus, Weight: 2}, Rule{ID: "d", When: "true", Severity: Penalty, Weight: 2}
	if _, s, _ := judge(t, fullRow(), up); s != 2 {
		t.Errorf("score %v, want 2", s)
	}
	if _, s, _ := judge(t, fullRow(), down); s != 0 {
		t.Errorf("score %v, want 0", s)
	}
	if _, s, _ := judge(t, fullRow(), up, down); s != 1 {
		t.Errorf("score %v, want 1", s)
	}
}

func TestAMissingFieldFollowsOnMissing(t *testing.T) {
	for _, c := range []struct {
		severity Severity
		missing  OnMissing
		want     Verdict
	}{
		{Block, "", ConditionallyEligible},
		{Block, MissingIgnore, Eligible},
		{Block, MissingBlock, Ineligible},
		{Conditional, "", Eligible},
		{Penalty, "", Eligible},
		{Bonus, "", Eligible},
		{Bonus, MissingConditional, ConditionallyEligible},
		{Penalty, MissingBlock, Ineligible},
	} {
		rule := Rule{ID: "r", When: "years > 3", Severity: c.severity, OnMissing: c.missing}
		v, score, outcomes := judge(t, mapRow{}, rule)
		if v != c.want || score != 1 || !outcomes[0].Missing || outcomes[0].OK() {
			t.Errorf("%s on missing %q: %v with %v, want %v", c.severity, c.missing, v, score, c.want)
		}
	}
}

func TestABadRuleIsRefusedByItsIdAndPlace(t *testing.T) {
	good := Rule{ID: "good", When: "night", Severity: Bonus, Weight: 1}
	for _, c := range []struct {
		rule Rule
		line int
		say  string
	}{
		{Rule{ID: "x", When: "night &&\nyeers > 1", Severity: Block}, 2, "yeers"},
		{Rule{ID: "x", When: "age > 1", Severity: Block}, 1, "protected"},
		{Rule{ID: "x", When: "night", Severity: "severe"}, 0, "severity"},
		{Rule{ID: "x", When: "night", Severity: Block, Weight: 1}, 0, "weight"},
		{Rule{ID: "x", When: "night", Severity: Bonus, Weight: 2.5}, 0, "weight"},
		{Rule{ID: "x", When: "night", Severity: Bonus, OnMissing: "maybe"}, 0, "on_missing"},
		{Rule{ID: "good", When: "night", Severity: Bonus}, 0, "second"},
		{Rule{When: "night", Severity: Bonus}, 0, "id"},
	} {
		_, err := testSchema(t).Ruleset([]Rule{good, c.rule})
		got, ok := errors.AsType[*Error](err)
		if !ok || got.Rule != c.rule.ID || got.Line != c.line || !strings.Contains(got.Message, c.say) {
			t.Errorf("%+v: %v", c.rule, err)
		}
	}
	if _, err := testSchema(t).Ruleset(nil); err == nil {
		t.Error("a ruleset without a rule was taken")
	}
	if _, err := testSchema(t).Ruleset(make([]Rule, MaxRules+1)); err == nil {
		t.Error("a ruleset beyond the limit was taken")
	}
}

func TestRulesetsAreReadStrictly(t *testing.T) {
	for _, good := range []string{
		`{"rules":[{"id":"a","when":"night","severity":"bonus","weight":0.5}]}`,
		` [{"id":"a","when":"night","severity":"bonus","weight":0.5}]`,
	} {
		list, err := ParseRules([]byte(good))
		if err != nil || len(list) != 1 || list[0].Weight != 0.5 {
			t.Errorf("%s: %v, %v", good, list, err)
		}
	}
	for _, bad := range []string{
		``, `{}x`, `{"rules":[{"id":"a","wen":"night"}]}`, "{\"rules\":[\n{\"id\":7}]}", `{"rules":[]} {}`, strings.Repeat(" ", MaxRuleset+1),
	} {
		if _, err := ParseRules([]byte(bad)); err == nil {
			t.Errorf("%.40s was taken", bad)
		}
	}
	_, err := ParseRules([]byte("{\"rules\":[\n{\"id\":7}]}"))
	if e, ok := errors.AsType[*Error](err); !ok || e.Line != 2 {
		t.Errorf("a fault in line 2 is reported as %v", err)
	}
}

func TestDecayWantsAnIndexedTime(t *testing.T) {
	s := testSchema(t)
	if i, err := s.Decay("last_seen"); err != nil || testFields[i].Name != "last_seen" {
		t.Errorf("last_seen: %v", err)
	}
	for name, reason := range map[string]string{"nope": UnknownField, "age": ProtectedField, "nick": FieldNotIndexed, "years": ExpressionInvalid} {
		_, err := s.Decay(name)
		if e, ok := errors.AsType[*Error](err); !ok || e.Reason != reason {
			t.Errorf("%s: %v, want %s", name, err, reason)
		}
	}
}
