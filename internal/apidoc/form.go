package main

import (
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/rest"
)

// shaped adds to the schema of a property of a field what its form says. In a request a property without a form has that of its
// name, else that of its type.
func (s *schemas) shaped(f protoreflect.FieldDescriptor, name string, schema object) object {
	form, ok := s.forms[string(f.Parent().Name())+"."+name]
	if !ok && s.input {
		// A name such as key has one form in all requests.
		if form, ok = s.forms["."+name]; !ok {
			form = typeForm(f, elementOf(schema))
		}
	}
	return shaped(schema, form)
}

// typeForm is the form of a value of a request of which only the type is known. A text may not hold NUL.
func typeForm(f protoreflect.FieldDescriptor, schema object) rest.Form {
	switch {
	// Numbers of 64 bits have bounds that readers of the document cannot know otherwise.
	case f.Kind() == protoreflect.Int64Kind:
		return rest.AnyInt64
	case contract.FieldOf(f).GetForm() == restpb.Form_EXACT:
		return rest.AnyUint64
	case typeOf(schema) == "string" && indexOf(schema, "enum") < 0 && indexOf(schema, "format") < 0:
		return rest.AnyText
	}
	return rest.Form{}
}

// elementOf is the schema of a list's elements, or the schema itself.
func elementOf(schema object) object {
	if i := indexOf(schema, "items"); i >= 0 {
		return schema[i].value.(object)
	}
	return schema
}

// typeOf is the type of a schema: of one that has two, the first, which is that of texts.
func typeOf(schema object) string {
	i := indexOf(schema, "type")
	if i < 0 {
		return ""
	}
	// A number that may be written as text has both types.
	if list, ok := schema[i].value.([]string); ok {
		return list[0]
	}
	return schema[i].value.(string)
}

// shaped adds to a schema what a form says: to a list what it says of the length, to its elements the rest. Words of JSON Schema that
// do not concern the type of a schema would mean nothing in it, so they are left out.
func shaped(schema object, form rest.Form) object {
	if i := indexOf(schema, "items"); i >= 0 {
		// Of a list the bounds of its length stand at the list, all others at its elements.
		length := form
		form.MinItems, form.MaxItems = 0, 0
		// A schema may be shared: it is not changed in place.
		schema = slices.Clone(schema)
		schema[i].value = shaped(schema[i].value.(object), form)
		return bounded(bounded(schema, "minItems", length.MinItems), "maxItems", length.MaxItems)
	}
	kind := typeOf(schema)
	if kind == "string" {
		if form.Words != nil {
			schema = schema.set("enum", form.Words)
		}
		if form.Pattern != "" {
			schema = schema.set("pattern", form.Pattern)
		}
		if form.Not != "" {
			schema = append(schema, field{"not", object{{"pattern", form.Not}}})
		}
		schema = bounded(bounded(schema, "minLength", form.MinLength), "maxLength", form.MaxLength)
	}
	// Bounds of numbers are also of values that may be written as text.
	if kind == "integer" || kind == "number" || indexOf(schema, "type") >= 0 && kind == "string" && schema[indexOf(schema, "type")].value != any("string") {
		for _, bound := range []field{{"minimum", form.Minimum}, {"maximum", form.Maximum}, {"multipleOf", form.MultipleOf}} {
			if bound.value != json.Number("") {
				schema = schema.set(bound.name, bound.value)
			}
		}
	}
	if form.Examples != nil {
		schema = schema.set("examples", form.Examples)
	}
	if form.Note != "" {
		note := form.Note
		if i := indexOf(schema, "description"); i >= 0 {
			note = text(schema[i].value.(string), note)
		}
		schema = schema.set("description", note)
	}
	return schema
}

// bounded adds a bound to a schema; 0 is none.
func bounded(schema object, name string, bound int64) object {
	if bound == 0 {
		return schema
	}
	return append(schema, field{name, bound})
}

// exactlyOne lists, for messages of requests, fields of which one is given; atMostOne those of which no two are. What excludes
// one another because a field has two properties is not in them: see twoWays.
// Each group is checked by the code that reads the message; a test of package rest holds both
// together.
var (
	exactlyOne = map[string][][]string{
		"SettleItem": {{"complete", "fail", "snooze", "release", "stop"}}, "Snooze": {{"until", "delay"}}, "SnoozeOne": {{"until", "delay"}},
		"SearchRequest": {{"query_text", "vector"}}, "EmbedRequest": {{"text", "texts"}},
	}
	atMostOne = map[string][][]string{
		"UpdateRequest": {{"run_at", "delay"}, {"labels", "clear_labels"}, {"expires_at", "never_expires"}},
		"TaskSpec":      {{"run_at", "delay"}}, "KVCheck": {{"rev", "value", "value_base64"}}, "Point": {{"if_version", "if_absent"}},
		"KVDeleteRange": {{"prefix", "from"}, {"prefix", "to"}},
	}
)

// twoWays reports whether a field is text under its name or bytes under another: no two of both are given, and of a field that is
// required one is.
func twoWays(f protoreflect.FieldDescriptor) (text, bytes string, ok bool) {
	form := contract.FieldOf(f).GetForm()
	if f.Kind() != protoreflect.BytesKind || form == restpb.Form_OBJECT || form == restpb.Form_HEX {
		return "", "", false
	}
	return string(f.Name()), string(f.Name()) + "_base64", true
}

// choices says which properties of a message, of these fields, exclude one another, as the schemas of an allOf. JSON Schema has no
// word for it: not both are given (not, required), one of them is (oneOf of required), or some are (anyOf).
func choices(name string, fields []protoreflect.FieldDescriptor) []any {
	// It asks whether properties are there, whatever their values.
	required := func(names ...string) object { return object{{"required", names}} }
	var out []any
	switch name {
	case "CommitRequest":
		// An empty list of conditions is as good as none.
		some := object{{"required", []string{"conditions"}}, {"properties", object{{"conditions", object{{"minItems", 1}}}}}}
		out = append(out, object{{"anyOf", []any{required("ops"), some}}})
	// A cancel names no node.
	case "ChangeMembersRequest":
		cancel := object{{"properties", object{{"verb", object{{"const", "cancel"}}}}}}
		out = append(out, object{{"anyOf", []any{cancel, required("node")}}})
	// Whether an operand is given depends on what is compared.
	case "KVCheck":
		out = append(out, object{{"oneOf", []any{
			object{{"properties", object{{"compare", object{{"enum", []string{"exists", "absent"}}}}}}, {"not", object{{"anyOf", []any{required("rev"), required("value"), required("value_base64")}}}}},
			object{{"properties", object{{"compare", object{{"enum", []string{"equal", "not_equal", "less", "greater"}}}}}}, {"anyOf", []any{required("rev"), required("value"), required("value_base64")}}},
		}}})
	}
	for _, f := range fields {
		// Of a field with two names one is given: exactly one if it is required, else at most one.
		text, bytes, ok := twoWays(f)
		switch {
		// The field is required, so one of its two properties is.
		case ok && contract.FieldOf(f).GetRequired():
			out = append(out, object{{"oneOf", []any{required(text), required(bytes)}}})
		// Members of a oneof exclude one another by its own rule.
		case ok && f.ContainingOneof() == nil:
			out = append(out, object{{"not", required(text, bytes)}})
		}
	}
	for _, group := range exactlyOne[name] {
		var ways []any
		for _, one := range group {
			ways = append(ways, required(one))
		}
		out = append(out, object{{"oneOf", ways}})
	}
	for _, group := range atMostOne[name] {
		// Each pair by itself: of three fields any two exclude one another.
		for i, one := range group {
			for _, other := range group[i+1:] {
				out = append(out, object{{"not", required(one, other)}})
			}
		}
	}
	return out
}
