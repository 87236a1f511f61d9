package rules

import (
	"math"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// tri is the outcome of an expression in three-valued logic. The numbers matter: not computes 1 − t
// of no and yes.
type tri uint8

const (
	no tri = iota
	yes
	// undecided says that a value is missing or of an unfit kind, and that the rest of the
	// expression does not decide it.
	undecided
)

func decide(b bool) tri {
	if b {
		return yes
	}
	return no
}

// frame is what closures run over: the inputs of one search and one row. It belongs to one
// goroutine, which sets the row before each run.
type frame struct {
	row Row
	// params are the members of p and req by slot, see paramTable; Absent where the request has
	// none.
	params []Value
	// now is the instant of the search, in nanoseconds since 1970.
	now int64
}

// boolFn evaluates an expression that is true or false, valueFn one that is compared. Neither
// fails: what has no value is undecided or Absent.
type (
	boolFn  func(*frame) tri
	valueFn func(*frame) Value
)

// compiler makes closures of the common part of the language. Each method reports false for what is
// not in it, and the interpreter takes the whole expression. The choice of a closure is made once,
// by the types that the checker found, so that a run per row makes no decision that is the same for
// all rows. A parameter has a type only when it is bound: closures look at its Kind.
type compiler struct {
	schema *Schema
	// ast is the checked expression, with the type of each of its nodes.
	ast *ast.AST
	// params gets the members that the expression names.
	params *paramTable
}

// kindOf returns the kind of type that the checker found for e.
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

// booleanIdent compiles a name: has(field), or a field of type bool.
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

// presence compiles has(field), which is never undecided.
func (c *compiler) presence(i int) (boolFn, bool) {
	t := c.schema.fields[i].Type
	return func(f *frame) tri { return decide(present(f.row, i, t)) }, true
}

// present says whether a row has a field. A row that has a list without items has the field.
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

// booleanCall compiles an operator or function whose result is true or false.
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

// not turns yes and no around; undecided stays.
func not(t tri) tri {
	if t == undecided {
		return t
	}
	return 1 - t
}

// logic is && or ||. An operand that settles the result (no for &&, yes for ||) does so whatever
// the others are, even if one of them is undecided; without such an operand one that is undecided
// makes the whole undecided.
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

// choice is condition ? a : b. It is undecided if the condition is, even where a and b are equal.
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

// substring is startsWith, endsWith or contains.
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

// value compiles what is compared. A closure of it returns a Value of kind Absent where there is
// nothing to compare.
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

// valueIdent compiles now or a field by its type.
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

// integer compiles a field that rows hold as an int64: int, bool or time.
func (c *compiler) integer(i int, k Kind) (valueFn, bool) {
	return func(f *frame) Value {
		v, ok := f.row.Int(i)
		return Value{Kind: when(ok, k), Int: v}
	}, true
}

// when returns k, or Absent if there is no value.
func when(ok bool, k Kind) Kind {
	if ok {
		return k
	}
	return Absent
}

// literalList compiles a list of literals. A negative number is a call of the negation in the tree,
// and is folded here. A list of mixed kinds is left to the interpreter.
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

// valueCall compiles a function or operator whose result is compared. duration and timestamp are
// computed here, so their argument must be a literal.
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

// size compiles the number of characters of a string, or of items of a list of strings. The size of
// a place is left to the interpreter.
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

// isPlace reports whether a list holds something other than strings, as the type of a place does.
func (c *compiler) isPlace(e ast.Expr) bool {
	t := c.ast.GetType(e.ID())
	return len(t.Parameters()) == 1 && t.Parameters()[0].Kind() != types.StringKind
}
