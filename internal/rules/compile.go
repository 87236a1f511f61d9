package rules

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// Limits of one expression.
const (
	MaxExpression = 4 << 10 // characters: what a person writes is a tenth
	maxNodes      = 2000    // of the parsed form; each has an allocation or two
	maxCost       = 20_000  // in CEL's units, one for a step: a millisecond or two for a row
	maxRunCost    = 50_000  // where a row has more than the estimate assumes; beyond it the expression is undecided
)

// Sizes that costs are estimated with. They say what common rows hold, and are not limits: where a
// row has more, maxRunCost ends the run.
const (
	typicalString = 128
	typicalList   = 64
)

// presencePrefix makes of a field's name that of a variable which no source can spell: whether the row has the field.
const presencePrefix = "@has:"

// macros are CEL's, but has also takes the name of a field. CEL's own has takes p.name alone. Here
// has(field) becomes a variable of type bool, which each row answers.
func macros() []cel.Macro {
	out := slices.DeleteFunc(slices.Clone(cel.StandardMacros), func(m cel.Macro) bool { return m.Function() == "has" })
	return append(out, cel.GlobalMacro("has", 1,
		func(h parser.ExprHelper, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
			switch a := args[0]; {
			case a.Kind() == ast.IdentKind:
				return h.NewIdent(presencePrefix + a.AsIdent()), nil
			case a.Kind() == ast.SelectKind && !a.AsSelect().IsTestOnly():
				return h.NewPresenceTest(a.AsSelect().Operand(), a.AsSelect().FieldName()), nil
			}
			return nil, h.NewError(args[0].ID(), "has() wants a field or a parameter")
		}))
}

// expr is one compiled expression of type bool.
//
// build makes it. The closure is nearly always the one that runs; the interpreter gives the same
// answers, and takes the expressions and the parameters that closures do not know.
type expr struct {
	fast   boolFn      // nil: the interpreter runs it
	slow   cel.Program // made at once, for parameters of kinds that closures do not take
	schema *Schema
	params *paramTable
}

// paramTable numbers the members of p and req that expressions name; the number is called a slot.
// The rules of a set share one table, so that each parameter is looked up once for a search. It
// does not change once the expressions are built.
type paramTable struct {
	// names are the members by slot, and place is the slot of each.
	names []paramName
	place map[paramName]int
	// asked has those that has() asks for: such a parameter may be absent.
	asked map[paramName]bool
	// times has those that are compared with a time. No parameter is a time, so such a comparison
	// could never be decided.
	times map[paramName]bool
}

// paramName is a member of req, or else of p, for which params is another name.
type paramName struct {
	req  bool
	name string
}

func newParamTable() *paramTable {
	return &paramTable{place: make(map[paramName]int), asked: make(map[paramName]bool), times: make(map[paramName]bool)}
}

// slot returns the slot of a member; a new one gets the next.
func (t *paramTable) slot(n paramName) int {
	if i, ok := t.place[n]; ok {
		return i
	}
	t.place[n] = len(t.names)
	t.names = append(t.names, n)
	return len(t.names) - 1
}

// check parses and type-checks a source that must be of type bool. Then it refuses what the type
// checker lets pass: fields that may not be read, patterns that cannot be used, and an expression
// that could cost too much for one row. Its error is an *Error with the place of the first fault.
func (s *Schema) check(source string) (checked *cel.Ast, err error) {
	defer refusePanic(&err)
	if len(source) > 4*MaxExpression || strings.TrimSpace(source) == "" {
		return nil, &Error{Reason: ExpressionInvalid, Line: 1, Column: 1, Message: "an expression has 1 to 4096 characters"}
	}
	checked, issues := s.env.Compile(source)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, &Error{
			Reason: ExpressionInvalid, Line: max(1, first.Location.Line()), Column: max(1, first.Location.Column()+1),
			Message: strings.ReplaceAll(first.Message, presencePrefix, ""),
		}
	}
	if err := s.allowed(checked.NativeRep()); err != nil {
		return nil, err
	}
	if err := checkPatterns(checked.NativeRep()); err != nil {
		return nil, err
	}
	if !checked.OutputType().IsExactType(cel.BoolType) {
		return nil, &Error{
			Reason: ExpressionInvalid, Line: 1, Column: 1,
			Message: "an expression must be true or false, this one is " + cel.FormatCELType(checked.OutputType()),
		}
	}
	cost, err := s.env.EstimateCost(checked, sizes{s})
	if err != nil {
		return nil, &Error{Reason: ExpressionInvalid, Line: 1, Column: 1, Message: "its cost cannot be told"}
	}
	if cost.Max > maxCost {
		return nil, &Error{Reason: ExpressionInvalid, Line: 1, Column: 1, Message: "it may cost more than 20000 steps for a row"}
	}
	return checked, nil
}

// allowed refuses fields that expressions may not read, and members that req does not have.
func (s *Schema) allowed(a *ast.AST) error {
	var bad *Error
	at := func(id int64) *Error {
		l := a.SourceInfo().GetStartLocation(id)
		return &Error{Line: max(1, l.Line()), Column: max(1, l.Column()+1)}
	}
	walk(a.Expr(), func(e ast.Expr) {
		if bad != nil {
			return
		}
		if name, ok := memberOf(e); ok && name.req && !requestKeys[name.name] {
			bad = at(e.ID())
			bad.Reason, bad.Message = ExpressionInvalid, "req has roles, credentials and client, not "+name.name
			return
		}
		if e.Kind() != ast.IdentKind {
			return
		}
		name := strings.TrimPrefix(e.AsIdent(), presencePrefix)
		i, ok := s.index[name]
		if _, isVar := a.ReferenceMap()[e.ID()]; !ok || !isVar {
			return
		}
		if err := s.readable(i); err != nil {
			bad = at(e.ID())
			bad.Reason, bad.Message = err.Reason, err.Message
		}
	})
	if bad != nil {
		return bad
	}
	return nil
}

// readable says why expressions may not read a field.
func (s *Schema) readable(field int) *Error {
	f := s.fields[field]
	switch {
	case f.Protected:
		return &Error{Reason: ProtectedField, Message: "field " + f.Name + " is protected"}
	case !f.Indexed || f.Type == Text:
		return &Error{Reason: FieldNotIndexed, Message: "field " + f.Name + " is not indexed"}
	}
	return nil
}

// Decay returns the place of a field that decay may be computed from: an indexed time that is not
// protected. Its error is an *Error.
func (s *Schema) Decay(name string) (int, error) {
	i, ok := s.index[name]
	if !ok {
		return 0, &Error{Reason: UnknownField, Message: "there is no field " + name}
	}
	if err := s.readable(i); err != nil {
		return 0, err
	}
	if s.fields[i].Type != Time {
		return 0, &Error{Reason: ExpressionInvalid, Message: "decay wants a field of type time, not " + name}
	}
	return i, nil
}

// memberOf reads p.name, params.name and req.name.
func memberOf(e ast.Expr) (paramName, bool) {
	if e.Kind() != ast.SelectKind {
		return paramName{}, false
	}
	of := e.AsSelect().Operand()
	if of.Kind() != ast.IdentKind {
		return paramName{}, false
	}
	switch of.AsIdent() {
	case nameP, nameParams:
		return paramName{name: e.AsSelect().FieldName()}, true
	case nameReq:
		return paramName{req: true, name: e.AsSelect().FieldName()}, true
	}
	return paramName{}, false
}

// walk calls fn for an expression and all below it. It goes through the tree from the leaves up.
func walk(e ast.Expr, fn func(ast.Expr)) { ast.PostOrderVisit(e, ast.NewExprVisitor(fn)) }

// comparisons are the operators between values of one type.
var comparisons = []string{
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.In,
}

// noteTimes finds the parameters that an expression compares with times as they are. A bare
// parameter is compared with a time only by mistake: requests cannot hold a time, they hold a text.
func (t *paramTable) noteTimes(a *ast.AST) {
	walk(a.Expr(), func(e ast.Expr) {
		if e.Kind() != ast.CallKind || !slices.Contains(comparisons, e.AsCall().FunctionName()) {
			return
		}
		args := e.AsCall().Args()
		for i, arg := range args {
			if name, ok := memberOf(args[1-i]); ok && !name.req && a.GetType(arg.ID()).Kind() == types.TimestampKind {
				t.times[name] = true
			}
		}
	})
}

// build makes the runnable form of a checked expression. It gives every member a slot first, also
// those that only the interpreter reads, so that bind knows all parameters that the expression
// needs. The interpreter's program is made in any case: a parameter of a request may be of a kind
// that the closure does not take.
func (s *Schema) build(a *ast.AST, params *paramTable) (x *expr, err error) {
	defer refusePanic(&err)
	walk(a.Expr(), func(e ast.Expr) {
		if name, ok := memberOf(e); ok {
			params.slot(name)
			if e.AsSelect().IsTestOnly() {
				params.asked[name] = true
			}
		}
	})
	params.noteTimes(a)
	x = &expr{schema: s, params: params}
	c := compiler{schema: s, ast: a, params: params}
	if fast, ok := c.boolean(a.Expr()); ok {
		x.fast = fast
	}
	x.slow, err = s.env.PlanProgram(a, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxRunCost),
		cel.CustomDecoratorV2(s.patterns.planMatches))
	if err != nil {
		return nil, &Error{Reason: ExpressionInvalid, Line: 1, Column: 1, Message: err.Error()}
	}
	return x, nil
}

// sizes estimates what rows and parameters hold.
type sizes struct{ schema *Schema }

// EstimateSize returns typical sizes by type; what is of no known type counts as a list.
func (sizes) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	top := uint64(typicalList)
	if k := n.Type().Kind(); k == types.StringKind || k == types.BytesKind {
		top = typicalString
	}
	return &checker.SizeEstimate{Min: 0, Max: top}
}

// EstimateCallCost prices the functions that are not CEL's.
func (sizes) EstimateCallCost(function, _ string, _ *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
	if function == "km" {
		return &checker.CallEstimate{CostEstimate: checker.FixedCostEstimate(10)}
	}
	return nil
}
