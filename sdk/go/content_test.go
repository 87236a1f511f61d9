package millrace

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// content is a value as the vectors of content.json write it: one of the fields says what it is.
type content struct {
	Text    *string            `json:"text,omitempty"`
	Base64  *[]byte            `json:"base64,omitempty"` // bytes
	JSON    json.RawMessage    `json:"json,omitempty"`
	Time    string             `json:"time,omitempty"`    // RFC 3339, with at most milliseconds
	Object  map[string]content `json:"object,omitempty"`  // of JSON
	Nothing bool               `json:"nothing,omitempty"` // nil, None, undefined
	Missing string             `json:"missing,omitempty"` // a value that no form of JSON has, by name
	// Exact says of JSON that it has a number which JavaScript does not count to.
	Exact bool `json:"beyond_2_53,omitempty"`
}

// value makes c what a Go program has: numbers without a fraction are int64.
func (c content) value(t *testing.T) any {
	t.Helper()
	switch {
	case c.Text != nil:
		return *c.Text
	case c.Base64 != nil:
		return *c.Base64
	case c.Time != "":
		at, err := time.Parse(time.RFC3339, c.Time)
		if err != nil {
			t.Fatal(err)
		}
		return at
	case c.Object != nil:
		out := map[string]any{}
		for k, v := range c.Object {
			out[k] = v.value(t)
		}
		return out
	case c.Missing != "":
		return map[string]any{"nan": math.NaN(), "infinity": math.Inf(1), "-infinity": math.Inf(-1), "function": func() {}}[c.Missing]
	case c.Nothing:
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(c.JSON)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", c.JSON, err)
	}
	return numbers(v)
}

// numbers makes the numbers of v int64 and float64.
func numbers(v any) any {
	switch x := v.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		f, err := x.Float64()
		if err != nil {
			panic(err)
		}
		return f
	case []any:
		for i := range x {
			x[i] = numbers(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = numbers(x[k])
		}
	}
	return v
}

// encodeVector is a value and its bytes.
type encodeVector struct {
	Value content `json:"value"`
	Type  string  `json:"type,omitempty"`
	// Bytes are text or base64 as Go writes them; a client may also write one of Or, which is the same JSON.
	Text    *string  `json:"text,omitempty"`
	Base64  []byte   `json:"base64,omitempty"`
	Or      []string `json:"or,omitempty"`
	Refused bool     `json:"refused,omitempty"`
}

// sameJSON tells whether a and b have the same value; texts that are times are compared as instants.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	values := make([]any, 2)
	for i, text := range [][]byte{a, b} {
		if err := json.Unmarshal(text, &values[i]); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if m, ok := values[i].(map[string]any); ok && m["at"] != nil {
			at, err := time.Parse(time.RFC3339, m["at"].(string))
			if err != nil {
				t.Fatal(err)
			}
			values[i] = at.UTC()
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// bytesOf splits bytes into what JSON can carry as text and what it cannot.
func bytesOf(b []byte) (*string, []byte) {
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

func encodeVectors(t *testing.T) (out []any) {
	add := func(c content, or ...string) {
		v := encodeVector{Value: c, Or: or}
		b, kind, err := encode(JSON, c.value(t))
		if err != nil {
			v.Refused = true
		} else {
			v.Type = kind
			v.Text, v.Base64 = bytesOf(b)
		}
		for _, other := range or {
			if !sameJSON(t, b, []byte(other)) {
				t.Errorf("%s and %s are not the same value", b, other)
			}
		}
		out = append(out, v)
	}
	text := func(s string) content { return content{Text: &s} }
	raw := func(b string) content { return content{Base64: new([]byte(b))} }
	js := func(s string) content { return content{JSON: json.RawMessage(s)} }
	for _, s := range []string{"", "plain", "line\n\"quoted\"\ttab", "ä 日本 😀", "<a href=\"x\">&</a>", "\u2028\u0000\u007f", "{}", "null", "\ufeffmark"} {
		add(text(s))
	}
	for _, s := range []string{"", "text", "\x00\xff\xfe", "{}"} {
		add(raw(s))
	}
	add(content{Nothing: true})
	for _, s := range []string{"true", "false", "0", "-1", "9007199254740991", "-9007199254740991", "0.1", "-2.5", "{}", "[]", "[null]", `[1,"a",[true],{"b":null}]`, `{"a":{"b":{"c":[]}}}`} {
		add(js(s))
	}
	add(content{JSON: json.RawMessage("9007199254740993"), Exact: true})
	add(content{JSON: json.RawMessage(`{"n":[-9223372036854775808]}`), Exact: true})
	add(js("1e21"), "1e21")
	add(js("1e-7"), "1e-07")
	add(js("1.7976931348623157e308"))
	add(js("5e-324"))
	add(js(`{"ä":"日本 😀"}`))
	add(js(`{"a":"\u0000\u0001\b\f\n\r\t\"\\/\u007f"}`))
	add(js(`["<b>&</b>"]`), `["<b>&</b>"]`)
	add(js("[\"\u2028\u2029\"]"), "[\"\u2028\u2029\"]")
	object := func(name string, c content, or ...string) { add(content{Object: map[string]content{name: c}}, or...) }
	for _, s := range []string{"", "a", "ab", "abc", "\x00\xff\xfe\xfb"} {
		object("bytes", raw(s))
	}
	object("nothing", content{JSON: json.RawMessage("null")})
	moment := func(s string, or ...string) {
		for i := range or {
			or[i] = `{"at":"` + or[i] + `"}`
		}
		object("at", content{Time: s}, or...)
	}
	moment("2030-01-02T03:04:05Z", "2030-01-02T03:04:05.000Z")
	moment("2030-01-02T03:04:05.123Z", "2030-01-02T03:04:05.123000Z")
	moment("2030-01-02T03:04:05+05:30", "2030-01-01T21:34:05.000Z")
	moment("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.500Z", "1969-12-31T23:59:59.500000Z")
	for _, s := range []string{"nan", "infinity", "-infinity", "function"} {
		add(content{Missing: s})
		object("a", content{Missing: s})
	}
	return out
}

// decodeVector is bytes and what they are read as.
type decodeVector struct {
	As      string   `json:"as,omitempty"` // the declared type; empty: none
	Type    string   `json:"type"`
	Text    *string  `json:"text,omitempty"`
	Base64  []byte   `json:"base64,omitempty"`
	Value   *content `json:"value,omitempty"`
	Refused bool     `json:"refused,omitempty"`
}

func (v decodeVector) data() []byte {
	if v.Text != nil {
		return []byte(*v.Text)
	}
	return v.Base64
}

// shown makes what was read a value of the vectors.
func shown(t *testing.T, v any) *content {
	t.Helper()
	switch x := v.(type) {
	case nil:
		return &content{Nothing: true}
	case []byte:
		return &content{Base64: &x}
	case string:
		return &content{Text: &x}
	case time.Time:
		return &content{Time: x.UTC().Format(time.RFC3339Nano)}
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return &content{JSON: b}
}

// read carries out v.
func (v *decodeVector) read(t *testing.T) {
	t.Helper()
	targets := map[string]any{
		"": new(any), "text": new(string), "bytes": new([]byte), "integer": new(int64), "number": new(float64), "boolean": new(bool), "time": new(time.Time),
		"list of integers": new([]int64), "object": new(struct {
			N int64  `json:"n"`
			B []byte `json:"b"`
		}),
	}
	into := targets[v.As]
	if err := decode(JSON, v.data(), v.Type, into); err != nil {
		v.Refused = true
		return
	}
	v.Value = shown(t, reflect.ValueOf(into).Elem().Interface())
}

func decodeVectors(t *testing.T) (untyped, typed []any) {
	add := func(as, kind, data string) {
		v := decodeVector{As: as, Type: kind}
		v.Text, v.Base64 = bytesOf([]byte(data))
		v.read(t)
		if as == "" {
			untyped = append(untyped, v)
		} else {
			typed = append(typed, v)
		}
	}
	for _, kind := range []string{
		"", "application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8", "Application/JSON", "application/problem+json",
		"application/cloudevents+json; charset=utf-8",
	} {
		add("", kind, `{"a":[1,"b"]}`)
		add("", kind, "{")
		add("", kind, "")
	}
	for _, kind := range []string{"text/plain", "text/plain; charset=utf-8", "TEXT/Plain;charset=UTF-8", "text/html", "text/csv; header=present", "text/json"} {
		add("", kind, `{"a":1} é`)
	}
	for _, kind := range []string{
		"application/octet-stream", "image/png", "application/x-ndjson", "application/jsonl", "application/json-seq", "json", "nonsense", "a/b; c=text/plain", "text",
		"application/msgpack; of=application/json",
	} {
		add("", kind, `{"a":1}`)
	}
	add("", "image/png", "\x89PNG\r\n\x1a\n\x00\xff")
	add("", "image/png", "")
	add("", "text/plain", "")
	add("", "text/plain", "\ufeffmark\r\n")
	for _, s := range []string{
		"null", " [ 1 , 2.5 ]\r\n\t", `"a\u003c\u00e9\ud83d\ude00\/"`, `{"a":1,"a":2}`, "-0.5", "1e3", "true", // read
		"nul", "01", "+1", ".5", "1.", "'a'", "[1,]", `{"a":1,}`, "{a:1}", "[1] 2", "NaN", "Infinity", "-Infinity", "\"\t\"", "\ufeff1", "// x\n1", "\"a", "undefined", // refused
	} {
		add("", "application/json", s)
	}
	add("", "application/json", "1\x00\x00\x00") // UTF-32
	add("", "application/json", "[\x001\x00]\x00")

	for _, s := range []string{`"a"`, "", "a", "null", "é"} {
		add("text", "application/json", s)
		add("text", "image/png", s)
		add("bytes", "application/json", s)
		add("bytes", "text/plain", s)
	}
	for _, s := range []string{"7", "-9223372036854775808", "9007199254740993", "1.5", `"1"`, "true", "[1]", "x"} {
		add("integer", "application/json", s)
	}
	add("integer", "text/plain", "7")
	add("integer", "image/png", "\x89PNG")
	for _, s := range []string{"1", "-2.5", `"1"`, "true"} {
		add("number", "application/json", s)
	}
	for _, s := range []string{"true", "false", "0", `"true"`} {
		add("boolean", "application/json", s)
	}
	for _, s := range []string{"[]", "[1,2]", `[1,"2"]`, "{}", "1"} {
		add("list of integers", "application/json", s)
	}
	for _, s := range []string{`{"n":1,"b":"AP8="}`, `{"n":1,"b":"","more":[1]}`, `{"n":"1","b":""}`, `{"n":1,"b":"!"}`, `{"n":1,"b":"AP8"}`, `{"n":1,"b":"-_8="}`, "[]", `"x"`} {
		add("object", "application/json", s)
	}
	for _, s := range []string{
		"2030-01-02T03:04:05Z", "2030-01-02T03:04:05.123Z", "2030-01-02T03:04:05.123456Z", "2030-01-02T03:04:05.1Z", "2030-01-02T03:04:05+05:30", "2030-01-02T03:04:05.5-08:00",
		"2030-01-02T03:04:05", "2030-01-02", "2030-13-02T03:04:05Z", "2030-01-02T25:04:05Z", "today", "", "2030-01-02 03:04:05Z", "20300102T030405Z",
	} {
		add("time", "application/json", `"`+s+`"`)
	}
	add("time", "application/json", "1893553445")
	return untyped, typed
}

const contentAbout = "How clients write arguments, results and values by default, and how they read them. encode: a value, and its type and bytes (text or base64) as Go writes them; JSON may also be one of or, which is the same value. A missing value (by name) is refused. decode: what has no declared type is read by its content type: JSON by application/json, +json or no type, text by text/, and all else as bytes. typed: what has a declared type is read by that alone, in languages that have types when a program runs. Object has the fields n (integer) and b (bytes). Times are compared as instants. Refused is what cannot be read; as arguments it ends a task with the code invalid_args."

// TestContentIsWrittenAndReadAsTheVectorsSay holds the file to what Go makes of the cases.
func TestContentIsWrittenAndReadAsTheVectorsSay(t *testing.T) {
	untyped, typed := decodeVectors(t)
	checkVectors(t, "content.json", contentAbout, map[string][]any{"encode": encodeVectors(t), "decode": untyped, "typed": typed})
}
