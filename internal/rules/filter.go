package rules

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Filter is a compiled condition on rows: the parts of it that are joined by && each on its own, for each must be true.
// It is safe for concurrent use.
//
// A row passes only if the whole is true, and a chain of && is true only if each operand is. So the
// operands can be answered one by one, some of them by sets, and in any order: one that is false or
// undecided ends it.
type Filter struct {
	source string
	schema *Schema
	params *paramTable
	parts  []part
}

// part is one operand of the chain of &&. Where the probe can be used, expr is not run.
type part struct {
	expr *expr
	// probe is nil if no set of rows answers the part.
	probe *probe
}

// probe is a part that a set of rows per keyword answers.
type probe struct {
	field int
	words []string // any of them
	// slot is that of a parameter that holds the word instead; −1 if words has them.
	slot int
}

// Filter compiles a condition, or returns the one that was compiled from the same text. Its error
// is an *Error. Compiling is done without the lock: two callers with the same new text may both
// compile it, and one result is kept.
func (s *Schema) Filter(source string) (*Filter, error) {
	if f, ok := s.compiled(source); ok {
		return f, nil
	}
	f, err := s.compileFilter(source)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remember(f)
	return f, nil
}

// compiled returns the filter that was compiled from a text, if it is kept.
func (s *Schema) compiled(source string) (*Filter, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.known[source]
	if !ok {
		return nil, false
	}
	s.recent.MoveToFront(e)
	return e.Value.(*Filter), true
}

// remember keeps a filter; the mutex is held. When there are too many it drops the one that was
// used longest ago.
func (s *Schema) remember(f *Filter) {
	if _, ok := s.known[f.source]; ok {
		return
	}
	s.known[f.source] = s.recent.PushFront(f)
	if s.recent.Len() > cachedFilters {
		last := s.recent.Remove(s.recent.Back()).(*Filter)
		delete(s.known, last.source)
	}
}

// compileFilter compiles a condition. The parts share the tree and the types of the whole
// expression, and one table of parameters.
func (s *Schema) compileFilter(source string) (*Filter, error) {
	checked, err := s.check(source)
	if err != nil {
		return nil, err
	}
	f := &Filter{source: source, schema: s, params: newParamTable()}
	tree := checked.NativeRep()
	for _, e := range conjuncts(tree.Expr(), nil) {
		x, err := s.build(ast.NewCheckedAST(ast.NewAST(e, tree.SourceInfo()), tree.TypeMap(), tree.ReferenceMap()), f.params)
		if err != nil {
			return nil, err
		}
		f.parts = append(f.parts, part{x, f.probeOf(e)})
	}
	return f, nil
}

// conjuncts appends the operands of a chain of &&. It looks into operands that are chains
// themselves.
func conjuncts(e ast.Expr, to []ast.Expr) []ast.Expr {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
		for _, a := range e.AsCall().Args() {
			to = conjuncts(a, to)
		}
		return to
	}
	return append(to, e)
}

// probeOf sees that a part is `keyword == x`, `keyword in xs`, or `x in keywords`, where x is a literal or a parameter.
// Credentials are none, for what a row holds of them depends on the instant.
func (f *Filter) probeOf(e ast.Expr) *probe {
	if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
		return nil
	}
	a, b := e.AsCall().Args()[0], e.AsCall().Args()[1]
	switch e.AsCall().FunctionName() {
	case operators.Equals:
		if p := f.probe(a, b, Keyword, false); p != nil {
			return p
		}
		return f.probe(b, a, Keyword, false)
	case operators.In:
		if p := f.probe(a, b, Keyword, true); p != nil {
			return p
		}
		return f.probe(b, a, Keywords, false)
	}
	return nil
}

// probe returns a probe if field is a field of the wanted type, and words is a parameter, a
// literal, or, where many is set, a list of literals. Else it returns nil.
func (f *Filter) probe(field, words ast.Expr, want Type, many bool) *probe {
	if field.Kind() != ast.IdentKind {
		return nil
	}
	i, ok := f.schema.index[field.AsIdent()]
	if !ok || f.schema.fields[i].Type != want {
		return nil
	}
	if name, ok := memberOf(words); ok && !words.AsSelect().IsTestOnly() {
		return &probe{field: i, slot: f.params.slot(name)}
	}
	if s, ok := words.AsLiteral().(types.String); ok && words.Kind() == ast.LiteralKind && !many {
		return &probe{field: i, words: []string{string(s)}, slot: -1}
	}
	if words.Kind() == ast.ListKind && many {
		c := compiler{schema: f.schema}
		if v, ok := c.literalList(words.AsList()); ok && v.Kind == StringsValue {
			return &probe{field: i, words: v.List, slot: -1}
		}
	}
	return nil
}

// BoundFilter is a filter with the inputs of one search. It is for one goroutine. It splits the
// parts into probes, which the caller answers by sets of rows, and tests, which are run for each
// row that is left.
type BoundFilter struct {
	filter *Filter
	bound  *bound
	// tests are the parts without a probe that can be used, in the order of the source.
	tests  []*expr
	probes []Probe
}

// Probe says that a row passes only if its field holds one of the words: keyword fields hold one,
// keyword lists several. Where the parameter or literal is one word, so is Words.
type Probe struct {
	Field int
	Words []string
}

// Bind sets the inputs, which must not change while the result is used. Its error is an *Error.
func (f *Filter) Bind(in *Inputs) (*BoundFilter, error) {
	b, err := f.params.bind(f.schema, in)
	if err != nil {
		return nil, err
	}
	out := &BoundFilter{filter: f, bound: b}
	for i := range f.parts {
		p := &f.parts[i]
		if words, ok := b.words(p.probe); ok {
			out.probes = append(out.probes, Probe{p.probe.field, words})
		} else {
			out.tests = append(out.tests, p.expr)
		}
	}
	return out, nil
}

// words returns what a probe asks for, if the parameter has a kind that it can ask for. A parameter
// of another kind, such as a number, leaves the part to be run row by row, which gives the answer
// that the language defines.
func (b *bound) words(p *probe) ([]string, bool) {
	if p == nil {
		return nil, false
	}
	if p.slot < 0 {
		return p.words, true
	}
	switch v := &b.frame.params[p.slot]; v.Kind {
	case StringValue:
		return []string{v.Str}, true
	}
	return nil, false
}

// Probes returns the parts that sets of rows answer. A row passes if it is in the sets of all of them, and Rest is true.
func (f *BoundFilter) Probes() []Probe { return f.probes }

// HasRest says whether there are parts in addition to the probes.
func (f *BoundFilter) HasRest() bool { return len(f.tests) > 0 }

// Rest says whether a row passes all parts that are not probes. It stops at the first that is not
// true.
func (f *BoundFilter) Rest(row Row) bool {
	for _, x := range f.tests {
		if x.run(f.bound, row) != yes {
			return false
		}
	}
	return true
}

// Passes says whether a row passes all of the filter. It is the plain form of Probes and Rest, for
// a caller without sets.
func (f *BoundFilter) Passes(row Row) bool {
	for i := range f.filter.parts {
		if f.filter.parts[i].expr.run(f.bound, row) != yes {
			return false
		}
	}
	return true
}
