package rules

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// keywordIs compiles the commonest comparison: a keyword and a literal. Like the others in this
// file it does what the general form in value.go does, with fewer calls and no Value for a row, and
// must give the same answer. It returns false where it does not apply.
func (c *compiler) keywordIs(left, right ast.Expr, negate bool) (boolFn, bool) {
	if left.Kind() != ast.IdentKind || right.Kind() != ast.LiteralKind {
		return nil, false
	}
	i, ok := c.schema.index[left.AsIdent()]
	want, isString := right.AsLiteral().(types.String)
	if !ok || !isString || c.schema.fields[i].Type != Keyword {
		return nil, false
	}
	return func(f *frame) tri {
		v, ok := f.row.String(i)
		if !ok {
			return undecided
		}
		return decide((v == string(want)) != negate)
	}, true
}

// numberOrder is the commonest order without a detour: a field that is a number, and a literal or parameter.
func (c *compiler) numberOrder(left, right ast.Expr, op string) (boolFn, bool) {
	if left.Kind() != ast.IdentKind {
		return nil, false
	}
	i, ok := c.schema.index[left.AsIdent()]
	if !ok || c.schema.fields[i].Type != Int && c.schema.fields[i].Type != Float {
		return nil, false
	}
	isInt := c.schema.fields[i].Type == Int
	given, ok := c.given(right)
	return func(f *frame) tri {
		y := given(f)
		x := Value{Kind: IntValue}
		var has bool
		if isInt {
			x.Int, has = f.row.Int(i)
		} else {
			x.Kind = FloatValue
			x.Float, has = f.row.Float(i)
		}
		if !has || y.Kind == Absent {
			return undecided
		}
		if y.isNaN() {
			return no
		}
		return ordered(&x, y, op)
	}, ok
}

// distanceOrder is the commonest order of a distance without a detour: of a field that is a place
// and one that is the same for all rows, against a number that is too. Most rows that are too far
// away are so by their latitude alone, which beyond tells without trigonometry.
func (c *compiler) distanceOrder(left, right ast.Expr, op string) (boolFn, bool) {
	if left.Kind() != ast.CallKind || left.AsCall().FunctionName() != "km" {
		return nil, false
	}
	field, place := left.AsCall().Args()[0], left.AsCall().Args()[1]
	if field.Kind() != ast.IdentKind {
		field, place = place, field
	}
	if field.Kind() != ast.IdentKind {
		return nil, false
	}
	i, ok := c.schema.index[field.AsIdent()]
	if !ok || c.schema.fields[i].Type != Geo {
		return nil, false
	}
	there, ok := c.given(place)
	limit, ok2 := c.given(right)
	return func(f *frame) tri {
		from, has := f.row.Geo(i)
		to, most := there(f), limit(f)
		if !has || to.Kind != PlaceValue || most.Kind == Absent || !ValidPlace(from) || !ValidPlace(to.Place) {
			return undecided
		}
		if most.isNaN() {
			return no
		}
		if most.Kind == FloatValue || most.Kind == IntValue {
			over, known := true, true
			if n := most.number(); !beyond(from, to.Place, n) {
				over, known = further(from, to.Place, n)
			}
			if known {
				return decide(over == (op == operators.Greater || op == operators.GreaterEquals))
			}
		}
		x := Value{Kind: FloatValue, Float: Kilometres(from, to.Place)}
		return ordered(&x, most, op)
	}, ok && ok2
}

// given compiles what is the same for all rows of a search. It returns a pointer, so that the value
// is not copied for each row.
func (c *compiler) given(e ast.Expr) (func(*frame) *Value, bool) {
	switch e.Kind() {
	case ast.LiteralKind:
		v := literal(e.AsLiteral())
		return func(*frame) *Value { return &v }, v.Kind != Absent
	case ast.SelectKind:
		name, ok := memberOf(e)
		if !ok || e.AsSelect().IsTestOnly() {
			return nil, false
		}
		slot := c.params.slot(name)
		return func(f *frame) *Value { return &f.params[slot] }, true
	}
	return nil, false
}

// wordIn is the commonest membership without a detour: a literal or parameter, and a field that is a list of words.
func (c *compiler) wordIn(item, list ast.Expr) (boolFn, bool) {
	if list.Kind() != ast.IdentKind {
		return nil, false
	}
	i, ok := c.schema.index[list.AsIdent()]
	if !ok || c.schema.fields[i].Type != Keywords && c.schema.fields[i].Type != Credentials {
		return nil, false
	}
	given, ok := c.given(item)
	return func(f *frame) tri {
		x := given(f)
		words, has := f.row.Strings(i)
		if !has || x.Kind == Absent {
			return undecided
		}
		return decide(x.Kind == StringValue && slices.Contains(words, x.Str))
	}, ok
}
