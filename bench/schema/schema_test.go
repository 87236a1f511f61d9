package schema

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/millrace/millrace/bench"
)

var update = flag.Bool("update", false, "write the schema and the list of its fields")

type object = map[string]any

// maker derives a schema from the Go types of a result.
type maker struct{ defs object }

// of returns the schema of a type. Slices and maps may be null: Go writes nil ones so.
func (m *maker) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[bench.Figure]():
		m.figure()
		return object{"oneOf": []any{object{"$ref": "#/$defs/Figure"}, object{"type": "null"}}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return m.of(t.Elem()) // all are omitted when nil
	case reflect.Slice:
		return object{"type": []any{"array", "null"}, "items": m.of(t.Elem())}
	case reflect.Map:
		return object{"type": []any{"object", "null"}, "additionalProperties": m.of(t.Elem())}
	case reflect.Struct:
		if _, ok := m.defs[t.Name()]; !ok {
			m.defs[t.Name()] = nil // a type may hold itself
			m.defs[t.Name()] = m.structure(t)
		}
		return object{"$ref": "#/$defs/" + t.Name()}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return object{"type": "number"}
	}
	panic("no schema for " + t.String())
}

func (m *maker) structure(t reflect.Type) object {
	properties, required := object{}, []any{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			panic(t.Name() + "." + f.Name + " has no name in JSON")
		}
		properties[name] = m.of(f.Type)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// figure has a form of its own: its fields are those that a figure of many runs writes, required those of one run.
func (m *maker) figure() {
	label := bench.Label{Durability: bench.Fsync, Voters: 1, Topology: bench.Procs, Validity: bench.Valid}
	fields := func(values ...float64) object {
		f, err := bench.NewFigure(label, "cycles/s", values...)
		b, err2 := json.Marshal(f)
		out := object{}
		if err3 := json.Unmarshal(b, &out); err != nil || err2 != nil || err3 != nil {
			panic(fmt.Sprint(err, err2, err3))
		}
		return out
	}
	properties, required := object{}, []any{}
	for name, v := range fields(1, 2, 3, 4, 5, 6, 7) {
		switch v.(type) {
		case string:
			properties[name] = object{"type": "string"}
		case float64:
			properties[name] = object{"type": "number"}
		case []any:
			properties[name] = object{"type": "array", "items": object{"type": "number"}, "minItems": 1}
		default:
			panic("a figure's " + name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields(1))) {
		required = append(required, name)
	}
	for name, least := range map[string]int{"runs": 1, "voters": 1} {
		properties[name] = object{"type": "integer", "minimum": least}
	}
	for _, name := range []string{"durability", "topology", "validity", "unit"} {
		properties[name] = object{"type": "string", "minLength": 1}
	}
	m.defs["Figure"] = object{"type": "object", "properties": properties, "required": required}
}

// derive returns the whole schema as a file holds it.
func derive(t *testing.T) []byte {
	t.Helper()
	m := &maker{defs: object{}}
	m.of(reflect.TypeFor[bench.Result]())
	root := m.defs["Result"].(object)
	delete(m.defs, "Result")
	root["properties"].(object)["schema"] = object{"const": bench.Schema}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "A result of millrace bench"
	root["description"] = "Within " + bench.Schema + " fields are only added: a reader passes over those it does not know."
	root["$defs"] = m.defs
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fields lists "Type.field: form" for every field, with a * where it is required.
func fields(t *testing.T, schema []byte) []string {
	t.Helper()
	var root object
	if err := json.Unmarshal(schema, &root); err != nil {
		t.Fatal(err)
	}
	var out []string
	add := func(name string, def object) {
		required, _ := def["required"].([]any)
		for field, form := range def["properties"].(object) {
			b, err := json.Marshal(form)
			if err != nil {
				t.Fatal(err)
			}
			mark := ""
			if slices.Contains(required, any(field)) {
				mark = "*"
			}
			out = append(out, fmt.Sprintf("%s.%s%s: %s", name, field, mark, b))
		}
	}
	add("Result", root)
	for name, def := range root["$defs"].(object) {
		add(name, def.(object))
	}
	slices.Sort(out)
	return out
}

func TestSchemaHoldsEveryFieldOfAResult(t *testing.T) {
	want := derive(t)
	if *update {
		if err := os.WriteFile("result.v1.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(Result, want) {
		t.Errorf("result.v1.json is not what the types of package bench say:\n%s\ngo test ./bench/schema -update writes it again",
			difference(fields(t, Result), fields(t, want)))
	}
}

func difference(before, after []string) string {
	var b strings.Builder
	for _, f := range before {
		if !slices.Contains(after, f) {
			fmt.Fprintln(&b, "-", f)
		}
	}
	for _, f := range after {
		if !slices.Contains(before, f) {
			fmt.Fprintln(&b, "+", f)
		}
	}
	return b.String()
}

// TestFieldsAreOnlyAdded holds the schema against every field that was ever released in it. The list only grows: -update
// adds to it and refuses to drop or change a line.
func TestFieldsAreOnlyAdded(t *testing.T) {
	const list = "testdata/fields.txt"
	now := fields(t, derive(t))
	b, err := os.ReadFile(list)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for _, released := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if released != "" && !slices.Contains(now, released) {
			t.Errorf("a released field is gone or changed, which needs a new schema: %s", released)
		}
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(list, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Result))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("result.v1.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("result.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t *testing.T, b []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sample is the result that the renderers are tested with: it has something in every field.
func sample(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "report", "testdata", "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSampleAndEmptyResultFitTheSchema(t *testing.T) {
	s := compile(t)
	if err := s.Validate(parse(t, sample(t))); err != nil {
		t.Errorf("sample: %v", err)
	}
	b, err := json.Marshal(&bench.Result{Schema: bench.Schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(parse(t, b)); err != nil {
		t.Errorf("empty result: %v", err)
	}
}

// TestCommittedAndNamedResultsFitTheSchema validates the results of the repository, and the one that
// MILLRACE_RESULT names, such as that of a run just made.
func TestCommittedAndNamedResultsFitTheSchema(t *testing.T) {
	paths, err := bench.ResultFiles(filepath.Join("..", "results", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if named := os.Getenv("MILLRACE_RESULT"); named != "" {
		paths = append(paths, named)
	}
	if len(paths) == 0 {
		t.Skip("no result is committed or named")
	}
	s := compile(t)
	for _, path := range paths {
		b, err := bench.ReadResult(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(parse(t, b)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestSchemaRefusesWhatNoReaderCouldUse(t *testing.T) {
	if *update {
		t.Skip("the schema that was built in is the old one")
	}
	s := compile(t)
	for name, spoil := range map[string]func(r object){
		"another schema":             func(r object) { r["schema"] = "millrace.bench/2" },
		"no suites":                  func(r object) { delete(r, "suites") },
		"a row without durability":   func(r object) { delete(row(r), "durability") },
		"a figure without voters":    func(r object) { delete(row(r)["summary"].(object), "voters") },
		"a figure without validity":  func(r object) { row(r)["summary"].(object)["validity"] = "" },
		"a median that is a string":  func(r object) { row(r)["summary"].(object)["median"] = "fast" },
		"a start that is not a time": func(r object) { r["started"] = "yesterday" },
		"a negative count":           func(r object) { run(r)["ops"] = -1 },
		"an exclusion without cause": func(r object) { run(r)["excluded"] = []any{object{"detail": "x"}} },
	} {
		var r object
		if err := json.Unmarshal(sample(t), &r); err != nil {
			t.Fatal(err)
		}
		spoil(r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(parse(t, b)) == nil {
			t.Errorf("%s fits the schema", name)
		}
	}
}

func TestFieldsThatAReaderDoesNotKnowAreFine(t *testing.T) {
	var r object
	if err := json.Unmarshal(sample(t), &r); err != nil {
		t.Fatal(err)
	}
	r["later"], run(r)["later"] = 1, object{"x": 1}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := compile(t).Validate(parse(t, b)); err != nil {
		t.Error(err)
	}
}

func row(r object) object { return r["suites"].([]any)[0].(object) }

func run(r object) object { return row(r)["runs"].([]any)[0].(object) }
