package rules

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"sync"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// Limits of a regular expression in `matches`.
const (
	// maxPatternSteps bounds what a pattern compiles to: a match takes at most that many steps for each character. A repetition
	// counts as often as it repeats. An address with bounded parts needs some 650.
	maxPatternSteps = 1000
	// runesPerStep is how many bounds of a character class count as one step: `\p{L}` has 1,300 of them, in 5 KiB.
	runesPerStep = 32
	// cachedPatterns bounds the patterns that are kept compiled of those which come from parameters and fields. A search has
	// few, but uses each of them for every row.
	cachedPatterns = 64
)

// matchesFunction is what a call of `matches` is called once it is planned. No source can spell it, and the library, which
// compiles constant patterns of any size for its own name, leaves it alone.
const matchesFunction = "@matches"

// compilePattern compiles a regular expression. It measures the parsed form before it expands repetitions.
func compilePattern(text string) (*regexp.Regexp, error) {
	if len(text) > 4*MaxExpression {
		return nil, fmt.Errorf("the pattern has %d bytes, at most %d", len(text), 4*MaxExpression)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if patternSteps(parsed) > maxPatternSteps {
		return nil, fmt.Errorf("the pattern compiles to more than %d steps", maxPatternSteps)
	}
	return regexp.Compile(text)
}

// patternSteps returns an upper bound of the instructions that a pattern compiles to. It stops
// counting beyond maxPatternSteps, so that no product overflows. The parser bounds the depth of
// what it returns by 1,000. The count follows how package regexp compiles: a literal takes one
// instruction for each character, an alternation one for each branch, and a repetition copies what
// it repeats.
func patternSteps(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n = min(n+patternSteps(sub), maxPatternSteps+1)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n = 1 + len(re.Rune)/runesPerStep
	case syntax.OpAlternate:
		n += len(re.Sub)
	case syntax.OpRepeat:
		least, most := re.Min, max(re.Max, re.Min+1) // a repetition without an end is one more copy, and a loop
		n = n*most + most - least + 1
	default:
		n += 2
	}
	return min(n, maxPatternSteps+1)
}

// checkPatterns refuses patterns that are written in an expression and cannot be used, with their place. Patterns that are
// computed are refused when they are planned or used.
func checkPatterns(a *ast.AST) error {
	var bad *Error
	walk(a.Expr(), func(e ast.Expr) {
		if bad != nil || e.Kind() != ast.CallKind || e.AsCall().FunctionName() != overloads.Matches {
			return
		}
		args := e.AsCall().Args()
		if len(args) == 0 {
			return
		}
		pattern := args[len(args)-1]
		text, ok := pattern.AsLiteral().(types.String)
		if pattern.Kind() != ast.LiteralKind || !ok {
			return
		}
		if _, err := compilePattern(string(text)); err != nil {
			l := a.SourceInfo().GetStartLocation(pattern.ID())
			bad = &Error{
				Reason: ExpressionInvalid, Line: max(1, l.Line()), Column: max(1, l.Column()+1), Message: "matches: " + err.Error(),
			}
		}
	})
	if bad != nil {
		return bad
	}
	return nil
}

// planMatches puts compilePattern in the place of the library's own matching: for a constant when the expression is planned,
// else through the cache of patterns.
func (c *patternCache) planMatches(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || call.Function() != overloads.Matches || len(call.Args()) != 2 {
		return i, nil
	}
	compile := c.compile
	if constant, ok := call.Args()[1].(interpreter.InterpretableConst); ok {
		if text, ok := constant.Value().(types.String); ok {
			re, err := compilePattern(string(text))
			if err != nil {
				return nil, fmt.Errorf("matches: %w", err)
			}
			compile = func(string) (*regexp.Regexp, error) { return re, nil }
		}
	}
	return interpreter.NewCall(call.ID(), matchesFunction, call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		text, ok := args[0].(types.String)
		pattern, ok2 := args[1].(types.String)
		if !ok || !ok2 {
			return types.NewErr("matches needs two texts")
		}
		re, err := compile(string(pattern))
		if err != nil {
			return types.NewErr("matches: %v", err)
		}
		return types.Bool(re.MatchString(string(text)))
	}), nil
}

// patternCache keeps patterns compiled that are not constants. It is safe for concurrent use.
type patternCache struct {
	mu sync.Mutex // guards known
	// known is nil before the first pattern.
	known map[string]compiledPattern
}

// compiledPattern is a pattern, or why it cannot be used.
type compiledPattern struct {
	re  *regexp.Regexp
	err error
}

// compile returns the compiled form of a pattern. It starts over when it is full: what is used for every row is back at once.
func (c *patternCache) compile(text string) (*regexp.Regexp, error) {
	if known, ok := c.lookup(text); ok {
		return known.re, known.err
	}
	var made compiledPattern
	made.re, made.err = compilePattern(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= cachedPatterns {
		c.known = make(map[string]compiledPattern)
	}
	c.known[text] = made
	return made.re, made.err
}

// lookup returns a pattern that is kept.
func (c *patternCache) lookup(text string) (compiledPattern, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.known[text]
	return known, ok
}
