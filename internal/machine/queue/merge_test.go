package queue

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMergePatchesChangeWhatTheyName(t *testing.T) {
	for _, c := range []struct{ target, patch, want string }{
		// The examples of the RFC.
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		// What is not named stays as it was written.
		{" { \"n\" : 1.50e+02 ,\n\t\"big\": 12345678901234567890 , \"a\":1 } ", `{"a":2}`, " { \"n\" : 1.50e+02 ,\n\t\"big\": 12345678901234567890 , \"a\":2 } "},
		{`{ "a":1, "b":2 }`, `{"a":null}`, `{ "b":2 }`},
		{`{ }`, `{}`, `{ }`},
		{`{"a":{ "x" : 1 }}`, `{ "a" : { "y" : 2 } }`, `{"a":{ "x" : 1 ,"y" : 2}}`},
		// Names are compared as they read, and the last of several of one name holds.
		{`{"\u0061":1}`, `{"a":2}`, `{"\u0061":2}`},
		{`{"\ud83d\ude00":1}`, `{"😀":2}`, `{"\ud83d\ude00":2}`},
		{`{"a\n\"":1}`, `{"a\u000a\u0022":null}`, `{}`},
		{`{"a":1}`, `{"a":2,"a":3}`, `{"a":3}`},
		{`{}`, `{"a":2,"a":3}`, `{"a":3}`},
	} {
		got, ok := mergePatch([]byte("x"), []byte(c.target), []byte(c.patch))
		if !ok || string(got) != "x"+c.want {
			t.Errorf("%s with %s is %s (%v), want %s", c.target, c.patch, got, ok, c.want)
		}
	}
	deep := strings.Repeat("[", maxNesting+2) + strings.Repeat("]", maxNesting+2)
	for _, bad := range []string{"", " ", "{", `{"a"}`, `{"a":}`, `{"a":1,}`, "01", "1.", "-", "1e", `"a`, `"\x"`, `"\u12g4"`, "\"\n\"", "\"\xff\"", "nul", "1 2", "[1,]", "{1:2}", deep} {
		if _, ok := mergePatch(nil, []byte(bad), []byte(`{}`)); ok {
			t.Errorf("%q was taken for JSON", bad)
		}
		if _, ok := mergePatch(nil, []byte(`{}`), []byte(bad)); ok {
			t.Errorf("%q was taken for a patch", bad)
		}
	}
}

// plainMerge is the algorithm of the RFC on decoded values.
func plainMerge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, _ := target.(map[string]any)
	if out == nil {
		out = map[string]any{}
	}
	for name, value := range p {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = plainMerge(out[name], value)
		}
	}
	return out
}

func decodeAny(t testing.TB, b []byte) any {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

func TestMergePatchesAreThoseOfDecodedValues(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(rt *rapid.T) any {
			switch n := rapid.IntRange(0, 7).Draw(rt, "kind"); {
			case n < 4 && depth > 0:
				return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c\n", "é"}), value(depth-1), 0, 4).Draw(rt, "object")
			case n == 4 && depth > 0:
				return rapid.SliceOfN(value(depth-1), 0, 2).Draw(rt, "list")
			case n == 5:
				return nil
			}
			return rapid.SampledFrom([]any{true, json.Number("1.0"), json.Number("12345678901234567890"), "x", ""}).Draw(rt, "plain")
		})
	}
	rapid.Check(t, func(rt *rapid.T) {
		target, _ := json.Marshal(value(3).Draw(rt, "target"))
		patch, _ := json.MarshalIndent(value(3).Draw(rt, "patch"), "", " ")
		got, ok := mergePatch(nil, target, patch)
		if !ok {
			rt.Fatalf("%s with %s is refused", target, patch)
		}
		want := plainMerge(decodeAny(t, target), decodeAny(t, patch))
		if !reflect.DeepEqual(decodeAny(t, got), want) {
			rt.Fatalf("%s with %s is %s, want %v", target, patch, got, want)
		}
		if same, ok := mergePatch(nil, target, []byte("{}")); ok && target[0] == '{' && !bytes.Equal(same, target) {
			rt.Fatalf("%s without a change is %s", target, same)
		}
	})
}

func FuzzMergePatch(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"\u00e9"}],"c":null}`), []byte(`{"a":null,"d":{"e":null}}`))
	f.Fuzz(func(t *testing.T, target, patch []byte) {
		got, ok := mergePatch(nil, target, patch)
		if valid := json.Valid(target) && json.Valid(patch); ok && (!valid || !json.Valid(got)) {
			t.Fatalf("%q with %q is %q", target, patch, got)
		}
	})
}
