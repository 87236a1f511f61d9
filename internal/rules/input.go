package rules

import (
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// Limits of the parameters that a request brings.
const (
	// MaxParams bounds the parameters, and the members of an object in one.
	MaxParams = 64
	// maxParamString is in bytes, maxParamList in items.
	maxParamString = 1024
	maxParamList   = 1024
	// maxParamDepth is how deep lists and objects may be nested; a plain value has depth 1.
	maxParamDepth = 4
)

// Inputs are what expressions see besides the row.
type Inputs struct {
	// Params by name: bool, int64, float64, string, []any and map[string]any of the same, or nil. A number
	// of JSON without point and exponent that fits is best an int64.
	Params map[string]any
	// Roles, Credentials and Client are the members of req: what the gate of the search asks for.
	Roles       []string
	Credentials []string
	Client      string
	Now         time.Time // the instant that the search is for
}

// CheckParams reports parameters beyond the limits, or of a type that Inputs does not name.
func CheckParams(params map[string]any) error {
	if len(params) > MaxParams {
		return &Error{Reason: ExpressionInvalid, Message: fmt.Sprintf("%d parameters, at most %d", len(params), MaxParams)}
	}
	for name, v := range params {
		if fault := checkParam(v, 1); fault != "" {
			return &Error{Reason: ExpressionInvalid, Message: "parameter " + name + " " + fault}
		}
	}
	return nil
}

// checkParam returns what is wrong with a parameter, or an empty text. depth is how deep it is
// nested, from 1.
func checkParam(v any, depth int) string {
	if depth > maxParamDepth {
		return "is nested too deep"
	}
	switch x := v.(type) {
	case nil, bool, int64, float64:
	case string:
		if len(x) > maxParamString {
			return fmt.Sprintf("has a text beyond %d bytes", maxParamString)
		}
	case []any:
		if len(x) > maxParamList {
			return fmt.Sprintf("has a list of more than %d", maxParamList)
		}
		for _, item := range x {
			if fault := checkParam(item, depth+1); fault != "" {
				return fault
			}
		}
	case map[string]any:
		if len(x) > MaxParams {
			return fmt.Sprintf("has an object of more than %d members", MaxParams)
		}
		for _, item := range x {
			if fault := checkParam(item, depth+1); fault != "" {
				return fault
			}
		}
	default:
		return fmt.Sprintf("is a %T", v)
	}
	return ""
}

// valueOf makes a Value of a parameter. A null, an object and a list of mixed kinds are Other,
// which only the interpreter works with.
func valueOf(v any) Value {
	switch x := v.(type) {
	case bool:
		return boolOf(x)
	case int64:
		return Value{Kind: IntValue, Int: x}
	case float64:
		return Value{Kind: FloatValue, Float: x}
	case string:
		return Value{Kind: StringValue, Str: x}
	case []any:
		items := make([]Value, len(x))
		for i := range x {
			items[i] = valueOf(x[i])
		}
		return listOf(items)
	}
	return Value{Kind: Other}
}

// bound is a parameter table with the values of one request. Like its frame it belongs to one
// goroutine.
type bound struct {
	frame frame
	hard  bool // a value is one that closures cannot work with
	// vars is the same inputs as the interpreter reads them.
	vars activation
}

// bind looks up what the expressions of a table name. A parameter that is absent is refused, unless
// has() asks for it. A slot is filled for each name that the expressions of the table have, and for
// no other.
func (t *paramTable) bind(s *Schema, in *Inputs) (*bound, error) {
	if err := CheckParams(in.Params); err != nil {
		return nil, err
	}
	if !nanosFit(in.Now) {
		return nil, &Error{Reason: ExpressionInvalid, Message: "the instant of the search is outside the years 1678 to 2261"}
	}
	b := &bound{frame: frame{params: make([]Value, len(t.names)), now: in.Now.UnixNano()}}
	for i, n := range t.names {
		switch {
		case n.req && n.name == "roles":
			b.frame.params[i] = Value{Kind: StringsValue, List: in.Roles}
		case n.req && n.name == "credentials":
			b.frame.params[i] = Value{Kind: StringsValue, List: in.Credentials}
		case n.req:
			b.frame.params[i] = Value{Kind: StringValue, Str: in.Client}
		default:
			v, ok := in.Params[n.name]
			if !ok {
				if !t.asked[n] {
					return nil, &Error{Reason: ExpressionInvalid, Message: "parameter " + n.name + " is missing"}
				}
				continue
			}
			if v != nil && t.times[n] {
				return nil, &Error{Reason: ExpressionInvalid, Message: fmt.Sprintf(
					"parameter %[1]s is compared with a time: it must be a text of RFC 3339, and the expression timestamp(p.%[1]s)", n.name)}
			}
			b.frame.params[i] = valueOf(v)
			b.hard = b.hard || b.frame.params[i].Kind == Other
		}
	}
	b.vars = activation{schema: s, inputs: in}
	return b, nil
}

// run evaluates an expression over a row. A parameter that closures cannot work with has the
// interpreter run every expression of the search.
func (x *expr) run(b *bound, row Row) tri {
	if x.fast != nil && !b.hard {
		b.frame.row = row
		return x.fast(&b.frame)
	}
	return x.interpret(b, row)
}

// interpret evaluates by CEL's interpreter. Its errors, such as a field that is missing, a division
// by zero or a run beyond maxRunCost, leave the expression undecided.
func (x *expr) interpret(b *bound, row Row) tri {
	b.vars.row = row
	out, _, err := x.slow.Eval(&b.vars)
	if err != nil {
		return undecided
	}
	v, ok := out.(types.Bool)
	if !ok {
		return undecided
	}
	return decide(bool(v))
}

// activation hands variables to the interpreter. The interpreter asks by name; a name that has no
// value is an error there, which interpret makes undecided.
type activation struct {
	schema *Schema
	inputs *Inputs
	// row is set before each run.
	row Row
}

// Parent says that there is none.
func (*activation) Parent() cel.Activation { return nil }

// ResolveName returns a variable; a field that the row does not have is not there.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case nameP, nameParams:
		if a.inputs.Params == nil {
			return map[string]any{}, true
		}
		return a.inputs.Params, true
	case nameReq:
		return map[string]any{
			"roles": orEmpty(a.inputs.Roles), "credentials": orEmpty(a.inputs.Credentials), "client": a.inputs.Client,
		}, true
	case nameNow:
		return types.Timestamp{Time: a.inputs.Now}, true
	}
	if len(name) > len(presencePrefix) && name[:len(presencePrefix)] == presencePrefix {
		i, ok := a.schema.index[name[len(presencePrefix):]]
		return ok && present(a.row, i, a.schema.fields[i].Type), ok
	}
	i, ok := a.schema.index[name]
	if !ok {
		return nil, false
	}
	return a.field(i)
}

// field returns a field of the row as a value of CEL, and whether the row has it.
func (a *activation) field(i int) (any, bool) {
	switch a.schema.fields[i].Type {
	case Keyword:
		v, ok := a.row.String(i)
		return types.String(v), ok
	case Keywords, Credentials:
		v, ok := a.row.Strings(i)
		return orEmpty(v), ok
	case Int:
		v, ok := a.row.Int(i)
		return types.Int(v), ok
	case Bool:
		v, ok := a.row.Int(i)
		return types.Bool(v != 0), ok
	case Time:
		v, ok := a.row.Int(i)
		return types.Timestamp{Time: time.Unix(0, v).UTC()}, ok
	case Float:
		v, ok := a.row.Float(i)
		return types.Double(v), ok
	case Geo:
		v, ok := a.row.Geo(i)
		return []float64{v[0], v[1]}, ok
	}
	return nil, false
}

// orEmpty returns an empty list for nil, which CEL would take for null.
func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
