package rules

import (
	"math"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// tri is the outcome of an expression.
type tri uint8

const (
	no tri = iota
	yes
	undecided
)

func decide(b bool) tri {
	if b {
		return yes
	}
	return no
}

// frame is what closures run over: the bound inputs and one row.
type frame struct {
	row    Row
	params []Value
	now    int64
}

type (
	boolFn  func(*frame) tri
	valueFn func(*frame) Value
)

// compiler makes closures of the common part of the language. Each method reports false for what is not in it, and the
// interpreter takes the whole expression.
type compiler struct {
	schema *Schema
	ast    *ast.AST
	params *paramTable
}

func (c *compiler) kindOf(e ast.Expr) types.Kind { return c.ast.GetType(e.ID()).Kind() }

// boolean compiles what is true or false.
func (c *compiler) boolean(e ast.Expr) (boolFn, bool) {
	switch e.Kind() {
	case ast.LiteralKind:
		if b, ok := e.AsLiteral().(types.Bool); ok {
			out := decide(bool(b))
			return func(*frame) tri { return out }, true
		}
	case ast.IdentKind:
		return c.booleanIdent(e.AsIdent())
	case ast.SelectKind:
		name, ok := memberOf(e)
		if !ok {
			return nil, false
		}
		slot := c.params.slot(name)
		if e.AsSelect().IsTestOnly() {
			return func(f *frame) tri { return decide(f.params[slot].Kind != Absent) }, true
		}
		return nil, false // a parameter as a truth value may be of any kind
	case ast.CallKind:
		return c.booleanCall(e.AsCall())
	}
	return nil, false
}

func (c *compiler) booleanIdent(name string) (boolFn, bool) {
	if len(name) > len(presencePrefix) && name[:len(presencePrefix)] == presencePrefix {
		i := c.schema.index[name[len(presencePrefix):]]
		return c.presence(i)
	}
	i, ok := c.schema.index[name]
	if !ok || c.schema.fields[i].Type != Bool {
		return nil, false
	}
	return func(f *frame) tri {
		v, ok := f.row.Int(i)
		if !ok {
			return undecided
		}
		return decide(v != 0)
	}, true
}

func (c *compiler) presence(i int) (boolFn, bool) {
	t := c.schema.fields[i].Type
	return func(f *frame) tri { return decide(present(f.row, i, t)) }, true
}

// present says whether a row has a field.
func present(row Row, i int, t Type) (ok bool) {
	switch t {
	case Keyword:
		_, ok = row.String(i)
	case Keywords, Credentials:
		_, ok = row.Strings(i)
	case Int, Bool, Time:
		_, ok = row.Int(i)
	case Float:
		_, ok = row.Float(i)
	case Geo:
		_, ok = row.Geo(i)
	}
	return ok
}

func (c *compiler) booleanCall(call ast.CallExpr) (boolFn, bool) {
	args := call.Args()
	switch call.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr:
		return c.logic(args, call.FunctionName() == operators.LogicalAnd)
	case operators.LogicalNot:
		a, ok := c.boolean(args[0])
		return func(f *frame) tri { return not(a(f)) }, ok
	case operators.Conditional:
		return c.choice(args)
	case operators.Equals, operators.NotEquals:
		return c.equality(args[0], args[1], call.FunctionName() == operators.NotEquals)
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return c.order(args[0], args[1], call.FunctionName())
	case operators.In:
		return c.membership(args[0], args[1])
	case "startsWith", "endsWith", "contains":
		if !call.IsMemberFunction() {
			return nil, false
		}
		return c.substring(call.Target(), args[0], call.FunctionName())
	}
	return nil, false
}

func not(t tri) tri {
	if t == undecided {
		return t
	}
	return 1 - t
}

// logic is && or ||: one operand that settles the matter does so whatever the other is.
func (c *compiler) logic(args []ast.Expr, and bool) (boolFn, bool) {
	parts := make([]boolFn, len(args))
	for i, a := range args {
		var ok bool
		if parts[i], ok = c.boolean(a); !ok {
			return nil, false
		}
	}
	settles := decide(!and)
	if len(parts) == 2 {
		a, b := parts[0], parts[1]
		return func(f *frame) tri {
			x := a(f)
			if x == settles {
				return x
			}
			if y := b(f); y == settles || y == undecided {
				return y
			}
			return x
		}, true
	}
	return func(f *frame) tri {
		out := 1 - settles
		for _, p := range parts {
			switch x := p(f); x {
			case settles:
				return x
			case undecided:
				out = x
			}
		}
		return out
	}, true
}

func (c *compiler) choice(args []ast.Expr) (boolFn, bool) {
	cond, ok := c.boolean(args[0])
	a, ok2 := c.boolean(args[1])
	b, ok3 := c.boolean(args[2])
	return func(f *frame) tri {
		switch cond(f) {
		case yes:
			return a(f)
		case no:
			return b(f)
		}
		return undecided
	}, ok && ok2 && ok3
}

func (c *compiler) substring(target, arg ast.Expr, function string) (boolFn, bool) {
	a, ok := c.value(target)
	b, ok2 := c.value(arg)
	find := substrings[function]
	return func(f *frame) tri {
		x, y := a(f), b(f)
		if x.Kind != StringValue || y.Kind != StringValue {
			return undecided
		}
		return decide(find(x.Str, y.Str))
	}, ok && ok2
}

// value compiles what is compared.
func (c *compiler) value(e ast.Expr) (valueFn, bool) {
	switch e.Kind() {
	case ast.LiteralKind:
		v := literal(e.AsLiteral())
		return func(*frame) Value { return v }, v.Kind != Absent
	case ast.IdentKind:
		return c.valueIdent(e.AsIdent())
	case ast.SelectKind:
		name, ok := memberOf(e)
		if !ok || e.AsSelect().IsTestOnly() {
			return nil, false
		}
		slot := c.params.slot(name)
		return func(f *frame) Value { return f.params[slot] }, true
	case ast.ListKind:
		v, ok := c.literalList(e.AsList())
		return func(*frame) Value { return v }, ok
	case ast.CallKind:
		return c.valueCall(e)
	}
	return nil, false
}

func (c *compiler) valueIdent(name string) (valueFn, bool) {
	if name == nameNow {
		return func(f *frame) Value { return Value{Kind: TimeValue, Int: f.now} }, true
	}
	i, ok := c.schema.index[name]
	if !ok {
		return nil, false
	}
	switch c.schema.fields[i].Type {
	case Keyword:
		return func(f *frame) Value {
			v, ok := f.row.String(i)
			return Value{Kind: when(ok, StringValue), Str: v}
		}, true
	case Keywords, Credentials:
		return func(f *frame) Value {
			v, ok := f.row.Strings(i)
			return Value{Kind: when(ok, StringsValue), List: v}
		}, true
	case Int:
		return c.integer(i, IntValue)
	case Bool:
		return c.integer(i, BoolValue)
	case Time:
		return c.integer(i, TimeValue)
	case Float:
		return func(f *frame) Value {
			v, ok := f.row.Float(i)
			return Value{Kind: when(ok, FloatValue), Float: v}
		}, true
	case Geo:
		return func(f *frame) Value {
			v, ok := f.row.Geo(i)
			return Value{Kind: when(ok, PlaceValue), Place: v}
		}, true
	}
	return nil, false
}

func (c *compiler) integer(i int, k Kind) (valueFn, bool) {
	return func(f *frame) Value {
		v, ok := f.row.Int(i)
		return Value{Kind: when(ok, k), Int: v}
	}, true
}

func when(ok bool, k Kind) Kind {
	if ok {
		return k
	}
	return Absent
}

func (c *compiler) literalList(l ast.ListExpr) (Value, bool) {
	if len(l.OptionalIndices()) > 0 {
		return Value{}, false
	}
	items := make([]Value, 0, l.Size())
	for _, e := range l.Elements() {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Negate && len(e.AsCall().Args()) == 1 {
			v := Value{}
			if inner := e.AsCall().Args()[0]; inner.Kind() == ast.LiteralKind {
				v = literal(inner.AsLiteral())
			}
			if v.Kind != IntValue && v.Kind != FloatValue || v.Int == math.MinInt64 {
				return Value{}, false
			}
			v.Int, v.Float = -v.Int, -v.Float
			items = append(items, v)
			continue
		}
		if e.Kind() != ast.LiteralKind {
			return Value{}, false
		}
		items = append(items, literal(e.AsLiteral()))
	}
	v := listOf(items)
	return v, v.Kind == StringsValue || v.Kind == PlaceValue || v.Kind == NumbersValue
}

func (c *compiler) valueCall(e ast.Expr) (valueFn, bool) {
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case "km":
		a, ok := c.value(args[0])
		b, ok2 := c.value(args[1])
		return func(f *frame) Value {
			x, y := a(f), b(f)
			if x.Kind != PlaceValue || y.Kind != PlaceValue || !ValidPlace(x.Place) || !ValidPlace(y.Place) {
				return Value{}
			}
			return Value{Kind: FloatValue, Float: Kilometres(x.Place, y.Place)}
		}, ok && ok2
	case "size":
		if call.IsMemberFunction() {
			args = []ast.Expr{call.Target()}
		}
		return c.size(args[0])
	case "duration":
		if len(args) != 1 || args[0].Kind() != ast.LiteralKind {
			return nil, false
		}
		s, _ := args[0].AsLiteral().(types.String)
		d, err := time.ParseDuration(string(s))
		v := Value{Kind: DurationValue, Int: int64(d)}
		return func(*frame) Value { return v }, err == nil
	case "timestamp":
		if len(args) != 1 || args[0].Kind() != ast.LiteralKind {
			return nil, false
		}
		s, _ := args[0].AsLiteral().(types.String)
		t, err := time.Parse(time.RFC3339, string(s))
		v := Value{Kind: TimeValue, Int: t.UnixNano()}
		return func(*frame) Value { return v }, err == nil && nanosFit(t)
	case operators.Negate:
		return c.arithmetic(e, nil, args[0], operators.Negate)
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		return c.arithmetic(e, args[0], args[1], call.FunctionName())
	}
	return nil, false
}

func (c *compiler) size(e ast.Expr) (valueFn, bool) {
	a, ok := c.value(e)
	k := c.kindOf(e)
	return func(f *frame) Value {
		switch v := a(f); v.Kind {
		case StringValue:
			return Value{Kind: IntValue, Int: int64(utf8.RuneCountInString(v.Str))}
		case StringsValue:
			return Value{Kind: IntValue, Int: int64(len(v.List))}
		}
		return Value{}
	}, ok && (k == types.StringKind || k == types.ListKind && !c.isPlace(e))
}

func (c *compiler) isPlace(e ast.Expr) bool {
	t := c.ast.GetType(e.ID())
	return len(t.Parameters()) == 1 && t.Parameters()[0].Kind() != types.StringKind
}
