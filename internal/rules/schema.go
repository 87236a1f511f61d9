package rules

import (
	"container/list"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Type is what a field holds.
type Type uint8

// The types of fields. Text cannot be read by expressions. A credential list reads as the ids that
// are valid now. Keyword is one word, Keywords a list of them. Time is in nanoseconds since 1970,
// Geo is latitude and longitude in degrees.
const (
	Keyword Type = iota + 1
	Keywords
	Int
	Float
	Bool
	Time
	Geo
	Text
	Credentials
)

// Field is a declared field. Expressions may read it if it is indexed and not protected.
type Field struct {
	Name      string
	Type      Type
	Indexed   bool
	Protected bool
}

// Row is what an expression sees of one row. Field is the place in the schema's list; only the
// method that fits the field's type is called. The second result is false where the row has no such
// field. An implementation may use one Row for many rows, one after the other: an expression keeps
// nothing of a row.
type Row interface {
	// Int reads int, bool as 0 and 1, and time in nanoseconds since 1970.
	Int(field int) (int64, bool)
	Float(field int) (float64, bool)
	// String reads a keyword.
	String(field int) (string, bool)
	// Strings reads keywords and credentials; the result is only read, and only until the next call.
	Strings(field int) ([]string, bool)
	// Geo reads latitude and longitude in degrees.
	Geo(field int) ([2]float64, bool)
}

// Names that an expression knows besides fields.
const (
	nameParams = "params"
	nameP      = "p"
	nameReq    = "req"
	nameNow    = "now"
)

// requestKeys are what req has.
var requestKeys = map[string]bool{"roles": true, "credentials": true, "client": true}

// Reserved says whether a field of this name could not be read by expressions.
func Reserved(name string) bool {
	return name == nameParams || name == nameP || name == nameReq || name == nameNow
}

// cachedFilters bounds the filters that a schema keeps compiled: applications send few texts with many parameters.
const cachedFilters = 256

// Schema is the declared fields of a collection, ready to compile against. It is safe for concurrent use.
type Schema struct {
	// fields do not change, and index is the place of each by name.
	fields []Field
	index  map[string]int
	// env has the variables and functions that expressions may use.
	env *cel.Env

	patterns patternCache // has a lock of its own

	mu sync.Mutex // guards the fields below
	// known finds the element of recent by the source of its filter.
	known  map[string]*list.Element
	recent *list.List // of *Filter, last used first
}

// NewSchema prepares fields, at most some dozens, whose names are distinct identifiers. Each field
// gives two variables: its name, and a name for has() that no source can spell. A field with a
// reserved name gives none, so expressions cannot read it.
func NewSchema(fields []Field) (s *Schema, err error) {
	defer refusePanic(&err)
	s = &Schema{fields: fields, index: make(map[string]int), known: make(map[string]*list.Element), recent: list.New()}
	anything := cel.MapType(cel.StringType, cel.DynType)
	opts := []cel.EnvOption{
		cel.ClearMacros(), cel.Macros(macros()...), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(MaxExpression), cel.ParserRecursionLimit(64), cel.ExpressionNodeLimit(maxNodes),
		cel.Variable(nameP, anything), cel.Variable(nameParams, anything), cel.Variable(nameReq, anything),
		cel.Variable(nameNow, cel.TimestampType),
		cel.Function("km", cel.Overload("km_geo_geo", []*cel.Type{cel.DynType, cel.DynType}, cel.DoubleType,
			cel.BinaryBinding(kmCEL))),
	}
	for i, f := range fields {
		s.index[f.Name] = i
		if Reserved(f.Name) {
			continue
		}
		opts = append(opts, cel.Variable(f.Name, celType(f)), cel.Variable(presencePrefix+f.Name, cel.BoolType))
	}
	s.env, err = cel.NewEnv(opts...)
	return s, err
}

// Fields returns the fields as they were given; the slice must not be changed.
func (s *Schema) Fields() []Field { return s.fields }

// Lookup returns the place of a field.
func (s *Schema) Lookup(name string) (int, bool) {
	i, ok := s.index[name]
	return i, ok
}

// celType returns the type that the checker takes a field for. A place is a list of numbers.
func celType(f Field) *cel.Type {
	switch f.Type {
	case Keyword, Text:
		return cel.StringType
	case Keywords, Credentials:
		return cel.ListType(cel.StringType)
	case Int:
		return cel.IntType
	case Float:
		return cel.DoubleType
	case Bool:
		return cel.BoolType
	case Time:
		return cel.TimestampType
	case Geo:
		return cel.ListType(cel.DoubleType)
	}
	return cel.DynType
}

// kmCEL is km for the interpreter. An argument that is not a place is an error, which leaves the
// expression undecided, as the closure does.
func kmCEL(a, b ref.Val) ref.Val {
	from, ok := pointOf(a)
	to, ok2 := pointOf(b)
	if !ok || !ok2 {
		return types.NewErr("km wants two places as [latitude, longitude]")
	}
	return types.Double(Kilometres(from, to))
}

// pointOf reads [latitude, longitude]. Both ints and floats are numbers of a place, as an
// expression may spell either.
func pointOf(v ref.Val) (p [2]float64, ok bool) {
	l, ok := v.(traits.Lister)
	if !ok || l.Size() != types.Int(2) {
		return p, false
	}
	for i := range p {
		switch x := l.Get(types.Int(i)).(type) {
		case types.Double:
			p[i] = float64(x)
		case types.Int:
			p[i] = float64(x)
		default:
			return p, false
		}
	}
	return p, ValidPlace(p)
}
