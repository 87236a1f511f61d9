package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Limits of a ruleset.
const (
	MaxRules   = 64       // a row is judged by each
	MaxRuleset = 64 << 10 // bytes as JSON
	maxID      = 128
	maxReason  = 1024
	maxWeight  = 2 // the score that weights are added to lies within 0 and 2
)

// Severity is what a rule that fires does.
type Severity string

// The severities. The values are what clients write.
const (
	// Block makes the row ineligible.
	Block Severity = "block"
	// Conditional makes the row conditional, unless another rule blocks it.
	Conditional Severity = "conditional"
	// Penalty subtracts the rule's weight from the score.
	Penalty Severity = "penalty"
	// Bonus adds the rule's weight to the score.
	Bonus Severity = "bonus"
)

// OnMissing is what happens where a rule is undecided.
type OnMissing string

// What can happen. The values are what clients write.
const (
	// MissingBlock makes the row ineligible, whatever the severity of the rule.
	MissingBlock OnMissing = "block"
	// MissingConditional makes it conditional.
	MissingConditional OnMissing = "conditional"
	// MissingIgnore leaves verdict and score as they are.
	MissingIgnore OnMissing = "ignore"
)

// Rule is one rule as users write it.
type Rule struct {
	// ID is unique within the set, and names the rule in errors and outcomes.
	ID        string    `json:"id"`
	When      string    `json:"when"`
	Severity  Severity  `json:"severity"`
	Weight    float64   `json:"weight,omitempty"`     // of penalty and bonus: 0 to 2
	Reason    string    `json:"reason,omitempty"`     // for people
	OnMissing OnMissing `json:"on_missing,omitempty"` // default: conditional for blocks, ignore for others
}

// ParseRules reads {"rules": [...]} or the bare list, strictly. Its error is an *Error.
func ParseRules(data []byte) ([]Rule, error) {
	refuse := func(format string, args ...any) ([]Rule, error) {
		return nil, &Error{Reason: ExpressionInvalid, Message: fmt.Sprintf(format, args...)}
	}
	if len(data) > MaxRuleset {
		return refuse("a ruleset of %d bytes, at most %d", len(data), MaxRuleset)
	}
	var doc struct {
		Rules []Rule `json:"rules"`
	}
	into := any(&doc)
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		into = &doc.Rules
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		line, column := position(data, d.InputOffset())
		return nil, &Error{Reason: ExpressionInvalid, Line: line, Column: column, Message: "not a ruleset: " + err.Error()}
	}
	if _, err := d.Token(); err != io.EOF {
		return refuse("something follows the ruleset")
	}
	return doc.Rules, nil
}

// position turns an offset into line and column. The column counts bytes.
func position(data []byte, offset int64) (line, column int) {
	head := data[:min(int(offset), len(data))]
	line = 1 + bytes.Count(head, []byte("\n"))
	return line, 1 + len(bytes.TrimPrefix(head[bytes.LastIndexByte(head, '\n')+1:], []byte("\n")))
}

// Ruleset is compiled rules. It is safe for concurrent use. All expressions share one table of
// parameters.
type Ruleset struct {
	rules []Rule
	// exprs are the conditions, in the order of rules.
	exprs  []*expr
	params *paramTable
	schema *Schema
}

// Ruleset compiles rules against the schema. Its error is an *Error that names the rule. The first
// rule that is bad ends it.
func (s *Schema) Ruleset(list []Rule) (*Ruleset, error) {
	if len(list) == 0 || len(list) > MaxRules {
		return nil, &Error{Reason: ExpressionInvalid, Message: fmt.Sprintf("%d rules, want 1 to %d", len(list), MaxRules)}
	}
	rs := &Ruleset{rules: slices.Clone(list), params: newParamTable(), schema: s}
	seen := make(map[string]bool)
	for i := range rs.rules {
		r := &rs.rules[i]
		if seen[r.ID] {
			return nil, &Error{Reason: ExpressionInvalid, Rule: r.ID, Message: "a second rule of this id"}
		}
		seen[r.ID] = true
		if err := r.check(); err != nil {
			return nil, err
		}
		checked, err := s.check(r.When)
		var x *expr
		if err == nil {
			x, err = s.build(checked.NativeRep(), rs.params)
		}
		if err != nil {
			if e, ok := errors.AsType[*Error](err); ok {
				e.Rule = r.ID
			}
			return nil, err
		}
		rs.exprs = append(rs.exprs, x)
	}
	return rs, nil
}

// check reports a bad rule and fills in defaults.
func (r *Rule) check() error {
	refuse := func(format string, args ...any) error {
		return &Error{Reason: ExpressionInvalid, Rule: r.ID, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.ID == "" || len(r.ID) > maxID:
		return refuse("an id has 1 to %d bytes", maxID)
	case len(r.Reason) > maxReason:
		return refuse("a reason has at most %d bytes", maxReason)
	case !slices.Contains([]Severity{Block, Conditional, Penalty, Bonus}, r.Severity):
		return refuse("severity is block, conditional, penalty or bonus, not %q", string(r.Severity))
	case !(r.Weight >= 0 && r.Weight <= maxWeight):
		return refuse("weight is 0 to %d", maxWeight)
	case r.Weight != 0 && (r.Severity == Block || r.Severity == Conditional):
		return refuse("only penalty and bonus have a weight")
	}
	switch r.OnMissing {
	case MissingBlock, MissingConditional, MissingIgnore:
	case "":
		r.OnMissing = MissingIgnore
		if r.Severity == Block {
			r.OnMissing = MissingConditional
		}
	default:
		return refuse("on_missing is block, conditional or ignore, not %q", string(r.OnMissing))
	}
	return nil
}

// Rules returns the rules with defaults filled in; the slice must not be changed.
func (rs *Ruleset) Rules() []Rule { return rs.rules }

// Verdict says what became of a row.
type Verdict uint8

// The verdicts, best first. Their order counts: a row's verdict only gets worse.
const (
	// Eligible: no rule speaks against the row.
	Eligible Verdict = iota
	// ConditionallyEligible: a rule says that the row may do under a condition, or a block could
	// not be decided.
	ConditionallyEligible
	// Ineligible: a rule blocks the row. A search does not return it.
	Ineligible
)

// String returns the verdict as clients see it.
func (v Verdict) String() string {
	return [...]string{"eligible", "conditional", "ineligible"}[v]
}

// Outcome is what one rule did.
type Outcome struct {
	Rule    *Rule
	Fired   bool
	Missing bool // undecided: OnMissing took its place
}

// OK says whether the rule speaks for the row: a bonus that fired, or any other that did not.
func (o *Outcome) OK() bool { return o.Fired == (o.Rule.Severity == Bonus) && !o.Missing }

// Judge is a ruleset with the inputs of one search. It is for one goroutine.
type Judge struct {
	set   *Ruleset
	bound *bound
}

// Bind sets the inputs, which must not change while the result is used. Its error is an *Error.
func (rs *Ruleset) Bind(in *Inputs) (*Judge, error) {
	b, err := rs.params.bind(rs.schema, in)
	if err != nil {
		return nil, err
	}
	return &Judge{set: rs, bound: b}, nil
}

// Judge applies all rules in order and returns verdict and score: 1 plus bonuses less penalties,
// within 0 and 2. It appends what each rule did to outcomes unless that is nil. The order of the
// rules does not change the result, but for the rounding of sums.
func (j *Judge) Judge(row Row, outcomes *[]Outcome) (Verdict, float64) {
	verdict, score := Eligible, 1.0
	for i, x := range j.set.exprs {
		r := &j.set.rules[i]
		t := x.run(j.bound, row)
		if outcomes != nil {
			*outcomes = append(*outcomes, Outcome{Rule: r, Fired: t == yes, Missing: t == undecided})
		}
		switch {
		case t == undecided && r.OnMissing == MissingBlock, t == yes && r.Severity == Block:
			verdict = Ineligible
		case t == undecided && r.OnMissing == MissingConditional, t == yes && r.Severity == Conditional:
			verdict = max(verdict, ConditionallyEligible)
		case t == yes && r.Severity == Bonus:
			score += r.Weight
		case t == yes && r.Severity == Penalty:
			score -= r.Weight
		}
	}
	return verdict, min(2, max(0, score))
}
