package rules

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// Kind is what a Value holds.
type Kind uint8

// The kinds of values. Other is one that only the interpreter can work with.
const (
	// Absent stands for no value: the row lacks the field, or the operation has no result.
	Absent Kind = iota
	BoolValue
	IntValue
	FloatValue
	StringValue
	StringsValue
	NumbersValue
	PlaceValue // a list of two numbers
	TimeValue
	DurationValue
	// Other is a value of a parameter that closures do not work with, such as an object.
	Other
)

// Value is one value of an expression. Only the part that fits the kind is set. It is passed by
// value through closures, so that a row costs no allocation.
type Value struct {
	Kind  Kind
	Int   int64 // also bool as 0 and 1, and nanoseconds
	Float float64
	Str   string
	// List is for StringsValue.
	List []string
	// Numbers are the elements of a list that was written or given as one. A place that comes from
	// a field has none.
	Numbers []Value
	// Place is latitude and longitude in degrees, for PlaceValue.
	Place [2]float64
}

// substrings are the functions that look for a part of a string, by their names in CEL.
var substrings = map[string]func(s, part string) bool{
	"startsWith": strings.HasPrefix, "endsWith": strings.HasSuffix, "contains": strings.Contains,
}

// literal returns a constant as a Value, and Absent if it is of a kind that closures do not take.
func literal(v ref.Val) Value {
	switch x := v.(type) {
	case types.Bool:
		return boolOf(bool(x))
	case types.Int:
		return Value{Kind: IntValue, Int: int64(x)}
	case types.Double:
		return Value{Kind: FloatValue, Float: float64(x)}
	case types.String:
		return Value{Kind: StringValue, Str: string(x)}
	}
	return Value{}
}

func boolOf(b bool) Value {
	if b {
		return Value{Kind: BoolValue, Int: 1}
	}
	return Value{Kind: BoolValue}
}

// listOf makes a list of values: strings, a place, numbers, or Other.
func listOf(items []Value) Value {
	strs, nums := true, true
	for _, v := range items {
		strs = strs && v.Kind == StringValue
		nums = nums && (v.Kind == IntValue || v.Kind == FloatValue)
	}
	switch {
	case strs:
		out := make([]string, len(items))
		for i, v := range items {
			out[i] = v.Str
		}
		return Value{Kind: StringsValue, List: out}
	case nums:
		out := Value{Kind: NumbersValue, Numbers: items}
		if len(items) == 2 {
			out.Kind, out.Place = PlaceValue, [2]float64{items[0].number(), items[1].number()}
		}
		return out
	}
	return Value{Kind: Other}
}

// number returns an int or a float as a float64.
func (v *Value) number() float64 {
	if v.Kind == IntValue {
		return float64(v.Int)
	}
	return v.Float
}

// nanosFit says whether a time can be held as nanoseconds since 1970. The years are those of which
// every instant fits into 64 bits.
func nanosFit(t time.Time) bool {
	return t.Year() > 1677 && t.Year() < 2262
}

// simple says whether a value of the kind is neither absent nor a list.
func simple(k Kind) bool {
	return k >= BoolValue && k <= StringValue || k == TimeValue || k == DurationValue
}

// equality is == and !=: values of two kinds differ, numbers compare across kinds.
func (c *compiler) equality(left, right ast.Expr, negate bool) (boolFn, bool) {
	if !c.comparable(left) || !c.comparable(right) {
		return nil, false
	}
	if out, ok := c.keywordIs(left, right, negate); ok {
		return out, true
	}
	a, ok := c.value(left)
	b, ok2 := c.value(right)
	return func(f *frame) tri {
		x, y := a(f), b(f)
		if x.Kind == Absent || y.Kind == Absent {
			return undecided
		}
		if !simple(x.Kind) || !simple(y.Kind) {
			return decide(equalLists(&x, &y) != negate)
		}
		return decide(equal(&x, &y) != negate)
	}, ok && ok2
}

// equalLists compares two values of which one is a list, or both are: parameters and members of req, for no field that gets
// here is a list. Lists are equal element by element, and a list equals nothing else.
func equalLists(x, y *Value) bool {
	if x.Kind == StringsValue || y.Kind == StringsValue {
		return x.Kind == y.Kind && slices.Equal(x.List, y.List)
	}
	return !simple(x.Kind) && !simple(y.Kind) &&
		slices.EqualFunc(x.Numbers, y.Numbers, func(a, b Value) bool { return equal(&a, &b) })
}

// comparable leaves out lists and what is computed to them: the interpreter compares those. A parameter may be a list.
func (c *compiler) comparable(e ast.Expr) bool {
	switch c.kindOf(e) {
	case types.BoolKind:
		return e.Kind() == ast.IdentKind || e.Kind() == ast.LiteralKind
	case types.IntKind, types.DoubleKind, types.StringKind, types.TimestampKind, types.DurationKind:
		return true
	case types.DynKind:
		return e.Kind() == ast.SelectKind
	}
	return false
}

// equal compares two values of simple kinds. NaN equals no number.
func equal(x, y *Value) bool {
	if x.Kind != y.Kind {
		if x.Kind == IntValue && y.Kind == FloatValue {
			return !y.isNaN() && compareIntFloat(x.Int, y.Float) == 0
		}
		if x.Kind == FloatValue && y.Kind == IntValue {
			return !x.isNaN() && compareIntFloat(y.Int, x.Float) == 0
		}
		return false
	}
	switch x.Kind {
	case StringValue:
		return x.Str == y.Str
	case FloatValue:
		return x.Float == y.Float
	}
	return x.Int == y.Int
}

// compareIntFloat orders an int and a number that is not NaN, as CEL does. An int beyond 2^53 is
// rounded to a float64 first, which CEL does too.
func compareIntFloat(i int64, d float64) int {
	if d < math.MinInt64 {
		return 1
	}
	if d > math.MaxInt64 {
		return -1
	}
	switch x := float64(i); {
	case x < d:
		return -1
	case x > d:
		return 1
	}
	return 0
}

// order is <, <=, > and >=.
func (c *compiler) order(left, right ast.Expr, op string) (boolFn, bool) {
	if !c.comparable(left) || !c.comparable(right) {
		return nil, false
	}
	if out, ok := c.numberOrder(left, right, op); ok {
		return out, true
	}
	if out, ok := c.distanceOrder(left, right, op); ok {
		return out, true
	}
	a, ok := c.value(left)
	b, ok2 := c.value(right)
	return func(f *frame) tri {
		x, y := a(f), b(f)
		if !simple(x.Kind) || y.Kind == Absent { // a list has no order, not even with NaN
			return undecided
		}
		if x.isNaN() || y.isNaN() {
			return no
		}
		return ordered(&x, &y, op)
	}, ok && ok2
}

// ordered compares two values that are neither absent nor NaN. Values of kinds without an order
// between them leave the comparison undecided.
func ordered(x, y *Value, op string) tri {
	cmp, ok := compare(x, y)
	if !ok {
		return undecided
	}
	switch op {
	case operators.Less:
		return decide(cmp < 0)
	case operators.LessEquals:
		return decide(cmp <= 0)
	case operators.Greater:
		return decide(cmp > 0)
	}
	return decide(cmp >= 0)
}

// isNaN reports whether the value is a float that is not a number.
func (v *Value) isNaN() bool { return v.Kind == FloatValue && v.Float != v.Float }

// compare orders two values, not NaN, of kinds that have an order between them.
func compare(x, y *Value) (int, bool) {
	switch {
	case x.Kind == IntValue && y.Kind == FloatValue:
		return compareIntFloat(x.Int, y.Float), true
	case x.Kind == FloatValue && y.Kind == IntValue:
		return -compareIntFloat(y.Int, x.Float), true
	case x.Kind != y.Kind:
		return 0, false
	}
	switch x.Kind {
	case FloatValue:
		return three(x.Float < y.Float, x.Float > y.Float), true
	case StringValue:
		return strings.Compare(x.Str, y.Str), true
	case IntValue, BoolValue, TimeValue, DurationValue:
		return three(x.Int < y.Int, x.Int > y.Int), true
	}
	return 0, false
}

// three is −1, 1 or 0.
func three(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

// membership is in: a value in a list of strings or numbers. A parameter that is not such a list
// leaves it undecided.
func (c *compiler) membership(item, list ast.Expr) (boolFn, bool) {
	if !c.comparable(item) {
		return nil, false
	}
	if k := c.kindOf(list); k != types.ListKind && (k != types.DynKind || list.Kind() != ast.SelectKind) {
		return nil, false
	}
	if out, ok := c.wordIn(item, list); ok {
		return out, true
	}
	a, ok := c.value(item)
	b, ok2 := c.value(list)
	return func(f *frame) tri {
		x, y := a(f), b(f)
		if x.Kind == Absent {
			return undecided
		}
		switch y.Kind {
		case StringsValue:
			return decide(x.Kind == StringValue && slices.Contains(y.List, x.Str))
		case NumbersValue, PlaceValue:
			if y.Numbers == nil {
				return decide(equal(&x, &Value{Kind: FloatValue, Float: y.Place[0]}) || equal(&x, &Value{Kind: FloatValue, Float: y.Place[1]}))
			}
			return decide(slices.ContainsFunc(y.Numbers, func(v Value) bool { return equal(&x, &v) }))
		}
		return undecided
	}, ok && ok2
}

// arithmetic works on two ints or two floats, and on the difference of two times. Left is nil for a
// negation. It has no result where CEL reports an error: an overflow, a division of ints by zero,
// or operands of two kinds.
func (c *compiler) arithmetic(e, left, right ast.Expr, op string) (valueFn, bool) {
	var want Kind
	switch c.kindOf(e) {
	case types.IntKind:
		want = IntValue
	case types.DoubleKind:
		want = FloatValue
	case types.DurationKind:
		want = TimeValue
		if op != operators.Subtract || c.kindOf(left) != types.TimestampKind || c.kindOf(right) != types.TimestampKind {
			return nil, false
		}
	default:
		return nil, false
	}
	b, ok := c.value(right)
	if left == nil {
		return func(f *frame) Value {
			y := b(f)
			if y.Kind != want || y.Int == math.MinInt64 {
				return Value{}
			}
			return Value{Kind: want, Int: -y.Int, Float: -y.Float}
		}, ok
	}
	a, ok2 := c.value(left)
	return func(f *frame) Value {
		x, y := a(f), b(f)
		if x.Kind != want || y.Kind != want {
			return Value{}
		}
		switch want {
		case IntValue:
			v, ok := integers(op, x.Int, y.Int)
			return Value{Kind: when(ok, IntValue), Int: v}
		case FloatValue:
			return floats(op, x.Float, y.Float)
		}
		v, ok := integers(operators.Subtract, x.Int, y.Int)
		return Value{Kind: when(ok, DurationValue), Int: v}
	}, ok && ok2
}

// integers computes without a result where the true one does not fit.
func integers(op string, a, b int64) (int64, bool) {
	switch op {
	case operators.Add:
		s := a + b
		return s, (s > a) == (b > 0)
	case operators.Subtract:
		s := a - b
		return s, (s < a) == (b > 0)
	case operators.Multiply:
		if a == 0 || b == 0 {
			return 0, true
		}
		p := a * b
		return p, p/b == a && (a != -1 || b != math.MinInt64) && (b != -1 || a != math.MinInt64)
	case operators.Divide:
		if b == 0 || a == math.MinInt64 && b == -1 {
			return 0, false
		}
		return a / b, true
	case operators.Modulo:
		if b == 0 || a == math.MinInt64 && b == -1 {
			return 0, false
		}
		return a % b, true
	}
	return 0, false
}

// floats computes as IEEE 754 does: a division by zero is an infinity or NaN. There is no remainder
// of floats.
func floats(op string, a, b float64) Value {
	out := Value{Kind: FloatValue}
	switch op {
	case operators.Add:
		out.Float = a + b
	case operators.Subtract:
		out.Float = a - b
	case operators.Multiply:
		out.Float = a * b
	case operators.Divide:
		out.Float = a / b
	default:
		return Value{}
	}
	return out
}
