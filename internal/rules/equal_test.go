package rules

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"testing"
)

// equalByDefinition is equality as CEL defines it: numbers of two types are compared as points of one line, lists element by
// element, objects by their members, and values of two other types are never equal.
func equalByDefinition(a, b any) bool {
	x, y := lineOf(a), lineOf(b)
	if x != nil && y != nil {
		return x.Cmp(y) == 0
	}
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equalByDefinition(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, v := range a {
			other, ok := b[name]
			if !ok || !equalByDefinition(v, other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// lineOf is a number as a point of the line; nil for what is not a number.
func lineOf(v any) *big.Float {
	switch v := v.(type) {
	case int64:
		return new(big.Float).SetInt64(v)
	case uint64:
		return new(big.Float).SetUint64(v)
	case float64:
		if v == v { // else it equals nothing, itself included
			return big.NewFloat(v)
		}
	}
	return nil
}

// equalValues are parameters of all kinds, of which many equal another, and what expressions can say of the same kinds otherwise.
func equalValues() (in *Inputs, terms map[string]any) {
	in = testInputs()
	in.Roles, in.Credentials = []string{"day", "swing"}, nil
	terms = map[string]any{
		"req.roles": []any{"day", "swing"}, "req.credentials": []any{}, "req.client": "acme",
		"status": "available", "years": int64(7), "pay": 31.5, "night": true, "shifts": []any{"day", "swing"}, "home": []any{41.5, -88.1},
		"7": int64(7), "7.0": 7.0, "-7": int64(-7), "31.5": 31.5, "'available'": "available", "true": true, "null": nil, "7u": uint64(7), "b'day'": []byte("day"), "0.0 / 0.0": math.NaN(),
		"[]": []any{}, "['day', 'swing']": []any{"day", "swing"}, "[7, 9]": []any{int64(7), int64(9)}, "[7.0, 9.0, 1]": []any{7.0, 9.0, int64(1)},
		"[7.0, 9.0]": []any{7.0, 9.0}, "[[7], []]": []any{[]any{int64(7)}, []any{}}, "{'a': 7}": map[string]any{"a": int64(7)},
		"{}": map[string]any{}, "years + 0": int64(7), "pay * 1.0": 31.5, "size(status)": int64(9), "years > 3": true, "!night": false,
	}
	for i, v := range []any{
		nil, true, false, int64(0), int64(7), 7.0, 7.5, 31.5, int64(-7), int64(1), 1.0, "", "available", "acme", "7", "true",
		[]any{},
		[]any{"day", "swing"},
		[]any{"swing", "day"},
		[]any{"day"},
		[]any{"available"},
		[]any{int64(7), int64(9)},
		[]any{7.0, 9.0},
		[]any{int64(7), 9.0},
		[]any{int64(9), int64(7)},
		[]any{7.0, int64(9), 1.0},
		[]any{int64(7), int64(9), int64(1)},
		[]any{int64(7)},
		[]any{7.0},
		[]any{"7"},
		[]any{41.5, -88.1},
		[]any{true},
		[]any{nil},
		[]any{"a", int64(1)},
		[]any{"a", 1.0},
		[]any{[]any{int64(7)}, []any{}},
		[]any{[]any{7.0}, []any{}},
		[]any{[]any{}},
		map[string]any{},
		map[string]any{"a": int64(7)},
		map[string]any{"a": 7.0},
		map[string]any{"b": int64(7)},
		map[string]any{"a": nil},
		map[string]any{"a": int64(7), "b": []any{"day"}},
		map[string]any{"a": 7.0, "b": []any{"day"}},
		map[string]any{"a": []any{int64(1)}},
	} {
		name := fmt.Sprintf("v%d", i)
		in.Params[name] = v
		terms["p."+name] = v
	}
	return in, terms
}

// Two terms of any kinds are equal by == as CEL defines it, by closures as by the interpreter, and an element is in a list when it
// equals one of it.
func TestValuesOfAllKindsAreEqualAsTheLanguageDefines(t *testing.T) {
	s := testSchema(t)
	in, terms := equalValues()
	compared := 0
	for left, a := range terms {
		for right, b := range terms {
			equal := decide(equalByDefinition(a, b))
			for source, want := range map[string]tri{
				fmt.Sprintf("(%s) == (%s)", left, right): equal, fmt.Sprintf("(%s) != (%s)", left, right): not(equal),
			} {
				if _, err := s.check(source); err != nil {
					continue // the checker knows that the types differ
				}
				compared++
				if fast, slow, closure := both(t, s, source, in, fullRow()); fast != want || slow != want {
					t.Errorf("%s with %v and %v: %d by closure (%v), %d by interpreter, want %d", source, a, b, fast, closure, slow, want)
				}
			}
			list, ok := b.([]any)
			if _, isBytes := a.([]byte); isBytes {
				continue // the interpreter cannot look them up in a list of literals
			}
			source := fmt.Sprintf("(%s) in (%s)", left, right)
			if _, err := s.check(source); !ok || err != nil {
				continue
			}
			want := no
			for _, v := range list {
				if equalByDefinition(a, v) {
					want = yes
				}
			}
			if fast, slow, closure := both(t, s, source, in, fullRow()); fast != want || slow != want {
				t.Errorf("%s with %v and %v: %d by closure (%v), %d by interpreter, want %d", source, a, b, fast, closure, slow, want)
			}
		}
	}
	if compared < 5000 {
		t.Errorf("%d comparisons were checked", compared)
	}
}

// An operation of any kind with any values has one answer, by closures and by the interpreter.
func TestOperationsOnValuesOfAllKindsAreAlike(t *testing.T) {
	s := testSchema(t)
	in, terms := equalValues()
	for left := range terms {
		for right := range terms {
			for _, op := range []string{"<", "<=", ">", ">=", "in"} {
				source := fmt.Sprintf("(%s) %s (%s)", left, op, right)
				if _, err := s.check(source); err != nil {
					continue
				}
				if fast, slow, closure := both(t, s, source, in, fullRow()); fast != slow {
					t.Errorf("%s with %v and %v: %d by closure (%v), %d by interpreter", source, terms[left], terms[right], fast, closure, slow)
				}
			}
		}
	}
}
