package rules

import (
	"errors"
	"regexp/syntax"
	"strings"
	"testing"
)

func TestPatternsThatRepeatMatch(t *testing.T) {
	s := testSchema(t)
	in := testInputs()
	in.Params["five"], in.Params["zip"], in.Params["bad"], in.Params["huge"] = `^[0-9]{5}$`, "60435", "(", strings.Repeat("(a{1000})", 50)
	for source, want := range map[string]tri{
		`p.zip.matches("^[0-9]{5}$")`:                        yes,
		`p.zip.matches('6{2}')`:                              no,
		`status.matches('l{1,2}')`:                           yes,
		`status.matches('^(?:[a-z]{2}){4}e$')`:               yes,
		`status.matches('^[a-z]{9,}$')`:                      yes,
		`status.matches('(a{0,3}v{1})+?')`:                   yes,
		`matches(status, 'b{1}')`:                            yes,
		`shifts.exists(x, x.matches('^s[a-z]{4}$'))`:         yes,
		`p.zip.matches(p.five)`:                              yes,
		`status.matches(string(b'^[a-z]{9}$'))`:              yes,
		`status.matches(dyn('^[a-z]{8}$'))`:                  no,
		`status.matches('^' + '[a-z]{9}$')`:                  yes,
		`status.matches(night ? 'a{1}' : 'b{2}')`:            yes,
		`status.matches(p.bad)`:                              undecided,
		`status.matches(p.huge) || false`:                    undecided,
		`status.matches(p.min)`:                              undecided,
		`status.matches(p.huge) || status.matches('b{1,9}')`: yes,
	} {
		if _, slow, _ := both(t, s, source, in, fullRow()); slow != want {
			t.Errorf("%s: %d, want %d", source, slow, want)
		}
	}
}

func TestPatternsThatAreBadOrLargeAreRefusedWithTheirPlace(t *testing.T) {
	s := testSchema(t)
	for _, c := range []struct {
		source       string
		line, column int
	}{
		{`status.matches('(')`, 1, 16},
		{`night && status.matches('a{2')  && status.matches('a{3,1}')`, 1, 51},
		{`status.matches('a{1001}')`, 1, 16},
		{`status.matches('(a{100}){100}')`, 1, 16},
		{`matches(status, '((a{10}){10}){10}b{9}')`, 1, 17},
		{"night &&\nstatus.matches('" + strings.Repeat("a{1000}", 500) + "')", 2, 16},
		{`status.matches('` + strings.Repeat(`\\pL`, 100) + `')`, 1, 16},
		{`status.matches(string(b'` + strings.Repeat("a{1000}", 500) + `'))`, 1, 1},
		{`status.matches(dyn('(a{100}){100}'))`, 1, 1},
		{`status.matches(string(dyn('(')))`, 1, 1},
	} {
		_, err := s.Filter(c.source)
		got, ok := errors.AsType[*Error](err)
		if !ok || got.Reason != ExpressionInvalid || !strings.Contains(got.Message, "matches: ") || got.Line != c.line || got.Column != c.column {
			t.Errorf("%.60s: %v, want a refusal at %d:%d", c.source, err, c.line, c.column)
		}
		_, err = s.Ruleset([]Rule{{ID: "r", When: c.source, Severity: Block}})
		if got, ok := errors.AsType[*Error](err); !ok || got.Rule != "r" {
			t.Errorf("%.60s: a rule: %v, want a refusal that names it", c.source, err)
		}
	}
}

// The measure is taken before a pattern is expanded, so it must not be below what the pattern becomes; and it must leave alone
// what people write.
func TestPatternsOfPeopleFit(t *testing.T) {
	for _, pattern := range []string{
		`^[0-9]{5}(-[0-9]{4})?$`, `^\+?[1-9]\d{1,14}$`, `^[^@]{1,64}@[a-z0-9.-]{1,255}$`, `(?i)^(mo|tu|we|th|fr|sa|su){1,7}$`,
		`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`, `^(([0-9]{1,3})\.){3}[0-9]{1,3}$`, `\p{L}+ \p{Lu}{2,10}`, ``, `a{0}`, `(){3}`,
	} {
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if steps := patternSteps(parsed); steps+2 < len(program.Inst) { // every program begins and ends with one more
			t.Errorf("%s: %d steps, but %d instructions", pattern, steps, len(program.Inst))
		}
		if _, err := compilePattern(pattern); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

func TestPatternsOfParametersAreKeptWithinABound(t *testing.T) {
	var c patternCache
	for i := range 3 * cachedPatterns {
		if re, err := c.compile(strings.Repeat("a", i+1)); err != nil || !re.MatchString(strings.Repeat("a", i+1)) {
			t.Fatal(err)
		}
	}
	if len(c.known) > cachedPatterns {
		t.Errorf("%d patterns are kept, at most %d", len(c.known), cachedPatterns)
	}
}

func TestAPanicOfTheCompilerIsARefusal(t *testing.T) {
	s := testSchema(t)
	s.env = nil // any use of it panics
	_, err := s.Filter(`night`)
	if got, ok := errors.AsType[*Error](err); !ok || got.Reason != ExpressionInvalid || got.Message != compilerFailed {
		t.Errorf("a filter: %v", err)
	}
	_, err = s.Ruleset([]Rule{{ID: "r", When: "night", Severity: Block}})
	if got, ok := errors.AsType[*Error](err); !ok || got.Rule != "r" {
		t.Errorf("a ruleset: %v", err)
	}
}

// holdAlike runs an expression by its closure, if it has one, and by the interpreter, which must say the same.
func holdAlike(t *testing.T, source string, x *expr, b *bound, row Row) {
	t.Helper()
	slow := x.interpret(b, row)
	if x.fast == nil || b.hard {
		return
	}
	b.frame.row = row
	if fast := x.fast(&b.frame); fast != slow {
		t.Errorf("%q over %v: %d by closure, %d by interpreter", source, row, fast, slow)
	}
}

// FuzzExpression compiles what is given, and runs what compiles over a full row and an empty one, by closures and by the
// interpreter, which must agree. What is refused is an *Error, and never because the compiler failed.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{
		`status == 'available' && years >= p.min`, `status.matches('a{2}')`, `matches(p.who, '(a{1,3}){2,}')`,
		`shifts.exists(x, x.matches("^[0-9]{5}$"))`, `km(home, p.site) <= 40.0`, `now - last_seen > duration('24h')`,
		`has(p.none) ? years % 3 == 1 : {'a': [1, 2.5]}['a'][0] == 1`, `p.nums.map(x, x * 2).filter(x, x > 3).size() == 2`,
		`timestamp('2026-11-29T12:00:00Z').getFullYear('Europe/Berlin') == 2026`, `-9223372036854775808 / -1 < years`,
		`status.matches(string(b'\xff{2}'))`, `b'abc' == bytes(status)`, `type(p.mixed) == list`, `'\U0010ffff' + status in p.any`,
	} {
		f.Add(seed)
	}
	s, err := NewSchema(testFields)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source string) {
		filter, err := s.Filter(source)
		if err != nil {
			if got, ok := errors.AsType[*Error](err); !ok || got.Message == compilerFailed {
				t.Fatalf("%q: %v", source, err)
			}
			return
		}
		b, err := filter.Bind(testInputs())
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%q: %v", source, err)
			}
			return
		}
		for _, row := range []Row{fullRow(), mapRow{}} {
			passes := b.Passes(row)
			for i := range filter.parts {
				holdAlike(t, source, filter.parts[i].expr, b.bound, row)
			}
			if b.Passes(row) != passes {
				t.Errorf("%q passes one time and not the other", source)
			}
		}
	})
}
