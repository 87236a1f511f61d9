package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/rest"
)

// byHand are the schemas that the contract knows nothing of: those of sessions, which only REST has, and those of another API's requests,
// answers and errors.
var byHand = map[string]object{
	// As OpenAI's documentation has them: names and types are not ours to choose.
	"EmbeddingsRequest": {
		{"type", "object"},
		{"description", "A request of OpenAI's API for vectors of texts. Tokens in place of texts go on to a provider of this API; other embedders refuse them as token_input."},
		{"properties", object{
			{"input", object{{"oneOf", []any{
				object{{"type", "string"}, {"minLength", 1}},
				object{{"type", "array"}, {"items", object{{"type", "string"}, {"minLength", 1}}}, {"minItems", 1}},
				object{{"type", "array"}, {"items", object{{"type", "integer"}}}, {"minItems", 1}},
				object{{"type", "array"}, {"items", object{{"type", "array"}, {"items", object{{"type", "integer"}}}}}, {"minItems", 1}},
			}}, {"description", "A text, or up to 2,048 of them; the limit embed_texts."}}},
			{"model", object{{"type", []string{"string", "null"}}, {"description", "An id of /v1/models: of a model, or the name of an embedder; by default the default embedder."}}},
			{"encoding_format", object{
				{"type", []string{"string", "null"}},
				{"enum", []string{"float", "base64"}},
				{"description", "By default float. base64 is of numbers of 32 bits, little-endian."},
			}},
			{"dimensions", object{{"type", []string{"integer", "null"}}, {"minimum", 1}, {"description", "No other than the model's own."}}},
			{"user", object{{"type", []string{"string", "null"}}, {"description", "It is not used: the token says who asks."}}},
		}},
		{"required", []string{"input"}},
		{"additionalProperties", false},
	},
	"Embeddings": {
		{"type", "object"},
		{"description", "Vectors, in the order of the texts."},
		{"properties", object{
			{"object", object{{"type", "string"}, {"enum", []string{"list"}}}},
			{"data", object{{"type", "array"}, {"items", object{
				{"type", "object"},
				{"properties", object{
					{"object", object{{"type", "string"}, {"enum", []string{"embedding"}}}},
					{"index", object{{"type", "integer"}}},
					{"embedding", object{{"oneOf", []any{
						object{{"type", "array"}, {"items", object{{"type", "number"}}}},
						object{{"type", "string"}, {"contentEncoding", "base64"}},
					}}}},
				}},
				{"required", []string{"object", "index", "embedding"}},
			}}}},
			{"model", object{{"type", "string"}, {"description", "The id of the model: vectors of two models do not compare."}}},
			{"usage", object{
				{"type", "object"},
				{"properties", object{{"prompt_tokens", object{{"type", "integer"}}}, {"total_tokens", object{{"type", "integer"}}}}},
				{"required", []string{"prompt_tokens", "total_tokens"}},
			}},
		}},
		{"required", []string{"object", "data", "model", "usage"}},
	},
	"Models": {
		{"type", "object"},
		{"description", "What may be named as the model of a request for vectors: ids of models, and names of embedders."},
		{"properties", object{
			{"object", object{{"type", "string"}, {"enum", []string{"list"}}}},
			{"data", object{{"type", "array"}, {"items", object{{"$ref", "#/components/schemas/Model"}}}}},
		}},
		{"required", []string{"object", "data"}},
	},
	"Model": {
		{"type", "object"},
		{"description", "A model as OpenAI's API has it."},
		{"properties", object{
			{"id", object{{"type", "string"}}},
			{"object", object{{"type", "string"}, {"enum", []string{"model"}}}},
			{"created", object{{"type", "integer"}, {"description", "0: it is not known."}}},
			{"owned_by", object{{"type", "string"}}},
		}},
		{"required", []string{"id", "object", "created", "owned_by"}},
	},
	"Namespaces": {
		{"type", "object"},
		{"properties", object{
			{"namespaces", object{{"type", "array"}, {"items", object{
				{"type", "object"},
				{"properties", object{
					{"name", object{{"type", "string"}}},
					{"partitions", count()},
					{"queues", count()},
					{"states", object{{"type", "object"}, {"description", "Tasks of these queues by state."}, {"properties", object{
						{"blocked", count()}, {"scheduled", count()}, {"ready", count()}, {"running", count()}, {"completed", count()}, {"dead", count()}, {"cancelled", count()},
					}}, {"required", []string{"blocked", "scheduled", "ready", "running", "completed", "dead", "cancelled"}}}},
					{"keyspaces", count()},
					{"repos", count()},
					{"collections", count()},
				}},
				{"required", []string{"name", "partitions"}},
			}}}},
			{"cursor", object{{"type", "string"}, {"description", "Of the next page; left out on the last one."}}},
		}},
		{"required", []string{"namespaces"}},
	},
	"SignIn": {
		{"type", "object"},
		{"description", "One of both."},
		{"properties", object{
			{"token", object{{"type", "string"}, {"minLength", 1}}},
			{"code", object{{"type", "string"}, {"minLength", 1}, {"description", "Of POST /v1/session:code, or of the link that the server has printed."}}},
		}},
		{"minProperties", 1},
		{"maxProperties", 1},
		{"additionalProperties", false},
	},
	"Session": {
		{"type", "object"},
		{"description", "Who is signed in, and what this server is."},
		{"properties", object{
			{"principal", object{{"type", "string"}}},
			{"tenant", object{{"type", "string"}}},
			{"scopes", texts("What the token allows.")},
			{"repos", texts("Patterns of namespace/repository that scopes of refs count for; empty: all of the tenant.")},
			{"queues", texts("Patterns of queues that scopes of tasks and admin count for; empty: all of the tenant.")},
			{"expires_at", moment().with("description", "When the session ends at the latest; of a token: when it ends, and left out where it does not.")},
			{"csrf", object{{"type", "string"}, {"description", "What requests of the session have as Millrace-Session; left out where a token was sent."}}},
			{"node", object{{"type", "string"}}},
			{"cluster_id", object{{"type", "string"}, {"description", "Of the cluster, or of the data directory of a server by itself."}}},
			{"version", object{{"type", "string"}}},
			{"durability", object{{"type", "string"}, {"enum", []string{"fsync", "none"}}}},
			{"insecure", object{{"type", "boolean"}, {"description", "Pages and tokens come in plain text over a network."}}},
			{"label", object{
				{"type", "object"},
				{"description", "What each page shows, so that an operator sees which server it is; left out where the server has none."},
				{"properties", object{
					{"text", object{{"type", "string"}}},
					{"colour", object{{"type", "string"}, {"description", "A word of CSS, or # and 3 or 6 hexadecimal digits."}}},
				}},
				{"required", []string{"text"}},
			}},
			{"services", texts("What is open here: queue and any of kv, refs, search and ui.")},
		}},
		{"required", []string{"principal", "tenant", "scopes", "repos", "queues", "node", "cluster_id", "version", "durability", "insecure", "services"}},
	},
	"SessionCode": {
		{"type", "object"},
		{"properties", object{
			{"code", object{{"type", "string"}, {"description", "It signs in once."}}},
			{"expires_in", duration()},
		}},
		{"required", []string{"code", "expires_in"}},
	},
	"EmbeddingsFailure": {
		{"type", "object"},
		{"description", "An error as OpenAI's API has it. code is the reason of ours, or its code; param is its field."},
		{"properties", object{{"error", object{
			{"type", "object"},
			{"properties", object{
				{"message", object{{"type", "string"}}},
				{"type", object{{"type", "string"}}},
				{"param", object{{"type", []string{"string", "null"}}}},
				{"code", object{{"type", "string"}}},
			}},
			{"required", []string{"message", "type", "param", "code"}},
		}}}},
		{"required", []string{"error"}},
	},
}

// count is the schema of a number of things.
func count() object { return object{{"type", "integer"}, {"minimum", 0}} }

// texts is the schema of a list of texts.
func texts(description string) object {
	return object{{"type", "array"}, {"items", object{{"type", "string"}}}, {"description", description}}
}

// schemas makes those that routes name, and all that these refer to. A schema of the contract has the name of its message, or that of
// a shape in the options; those of another API are written by hand above.
type schemas struct {
	// contract has the messages and their comments.
	contract *contract.Contract
	// made are schemas by name, order their names as they were asked for.
	made  map[string]object
	order []string
	// forms are those of fields, as message and field.
	forms map[string]rest.Form
	// input says that what is being made is of a request, which is read strictly.
	input bool
	// err is the first mistake: schemas refer to one another, so it is asked for at the end.
	err error
}

// ref makes a schema, once, and refers to it. The first that asks decides whether it is of a request.
func (s *schemas) ref(name string) object {
	if _, ok := s.made[name]; !ok && s.err == nil {
		// Before it is made, for it may refer to itself.
		s.made[name] = nil
		s.order = append(s.order, name)
		s.made[name] = s.make(name)
	}
	return object{{"$ref", "#/components/schemas/" + name}}
}

// make makes a schema of fields of messages, as the contract says of what.
func (s *schemas) make(name string) object {
	if o, ok := byHand[name]; ok {
		return o
	}
	shape, err := s.contract.Schema(name)
	if err != nil {
		// The mistake is told at the end: a schema that refers to this one cannot tell it.
		s.err = err
		return nil
	}
	var properties object
	var fields []protoreflect.FieldDescriptor
	var required []string
	for _, p := range shape.Parts {
		for _, f := range p.Fields {
			// A field may be two properties, or none of its own name.
			for _, one := range s.properties(f) {
				properties = append(properties, field{one.name, s.shaped(f, one.name, one.value.(object))})
			}
			fields = append(fields, f)
			// A field with two names is required by choices: either name will do.
			if _, _, two := twoWays(f); !two && contract.FieldOf(f).GetRequired() {
				required = append(required, string(f.Name()))
			}
		}
	}
	// Properties that no field of a message has.
	for _, x := range shape.Extra {
		properties = append(properties, field{x.GetName(), object{{"type", x.GetType()}, {"description", x.GetDoc()}}})
	}
	description := shape.Doc
	// The comment of the message describes what is one message.
	if shape.Alone {
		if m, err := s.contract.Message(name); err == nil {
			description = comment(m)
		}
	}
	// Requests are read strictly, so other fields are refused; answers may gain fields.
	out := object{{"type", "object"}}.with("description", description).with("properties", properties)
	if len(required) > 0 {
		out = append(out, field{"required", required})
	}
	if s.input {
		out = append(out, field{"additionalProperties", false})
		// A oneof that is the whole message: one of its members is given.
		if name == "Op" {
			out = append(out, field{"minProperties", 1}, field{"maxProperties", 1})
		}
		out = out.with("allOf", choices(name, fields))
	}
	return out
}

// properties are what a field of the contract is in JSON: mostly one of the same name. Others, by kind or by the form in its options:
//
//	bytes                      NAME, a text, or NAME_base64
//	bytes, CONTENT             NAME, any JSON value, or NAME_base64
//	bytes, HEX                 NAME, 32 hexadecimal digits
//	bytes, OBJECT              NAME, an object
//	repeated float             NAME, a list of numbers; in requests also base64 of them
//	SPAN, MOMENT, MILLIS       NAME without _ms, a duration; NAME_at, a time; NAME_ms, a number
//	At                         index, or a list of partition and index
//	EXACT                      NAME, a text of digits; in requests also a number
func (s *schemas) properties(f protoreflect.FieldDescriptor) object {
	name, note := string(f.Name()), comment(f)
	described := func(name string, schema object) field { return field{name, schema.with("description", note)} }
	switch form := contract.FieldOf(f).GetForm(); {
	case form == restpb.Form_OBJECT:
		return object{{name, object{{"type", "object"}, {"additionalProperties", true}}.with("description", note)}}
	case form == restpb.Form_HEX:
		return object{{name, object{{"type", "string"}, {"description", text("32 hexadecimal digits, such as a UUID.", note)}}}}
	case f.Kind() == protoreflect.BytesKind && f.IsList():
		return object{
			{name, object{{"type", "array"}, {"items", object{{"type", "string"}}}, {"description", text("UTF-8 texts without NUL.", note)}}},
			{name + "_base64", object{{"type", "array"}, {"items", object{{"type", "string"}, {"contentEncoding", "base64"}}}, {"description", "Instead of " + name + ": any bytes."}}},
		}
	case f.Kind() == protoreflect.BytesKind:
		return anyBytes(name, note, form)
	// A vector may be sent as base64, and is always written as a list.
	case f.Kind() == protoreflect.FloatKind && s.input:
		list, packed := rest.VectorForms()
		return object{described(name, object{{"oneOf", []any{
			shaped(object{{"type", "array"}, {"items", object{{"type", "number"}}}}, list),
			shaped(object{{"type", "string"}, {"contentEncoding", "base64"}, {"description", "Numbers of 32 bits, little-endian."}}, packed),
		}}})}
	case form == restpb.Form_ROWS:
		row := object{{"type", "array"}, {"items", object{{"type", "number"}}}}
		return object{described(name, object{{"type", "array"}, {"items", row}})}
	// Durations in milliseconds lose the unit in their name: in JSON the value has it.
	case form == restpb.Form_SPAN:
		return object{described(strings.TrimSuffix(name, "_ms"), duration())}
	case form == restpb.Form_MOMENT:
		return object{{strings.TrimSuffix(name, "_ms") + "_at", moment()}}
	case form == restpb.Form_MILLIS:
		return object{{name + "_ms", object{{"type", "integer"}}}}
	// Where an answer of several partitions stands, in each.
	case contract.IsAt(f) && f.IsList():
		return object{described(name, object{{"type", "array"}, {"items", object{{"type", "object"}, {"properties", object{
			{"partition", object{{"type", "integer"}}}, {"index", digits(false, "")},
		}}}}})}
	case contract.IsAt(f):
		return object{{"index", digits(false, "").with("description", "Where the answer stands in the partition's log; a read can ask for at least this.")}}
	case f.IsMap():
		return object{described(name, object{{"type", "object"}, {"additionalProperties", object{{"type", "string"}}}})}
	case f.IsList():
		return object{described(name, object{{"type", "array"}, {"items", s.element(f)}})}
	}
	return object{described(name, s.single(f))}
}

// element is one of a list.
func (s *schemas) element(f protoreflect.FieldDescriptor) object {
	one := s.single(f)
	if f.Message() == nil {
		return one
	}
	// An element may be given as one text in place of an object.
	if short := contract.MessageOf(f.Message()).GetShort(); short != "" {
		alone := object{{"type", "string"}, {"description", "Its " + short + " alone."}}
		return object{{"oneOf", []any{shaped(alone, s.forms[string(f.Message().Name())+"."+short]), one}}}
	}
	return one
}

// single is the schema of one value of a field.
func (s *schemas) single(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.StringKind:
		return object{{"type", "string"}}
	case protoreflect.BoolKind:
		return object{{"type", "boolean"}}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return object{{"type", "number"}}
	case protoreflect.EnumKind:
		return object{{"type", "string"}, {"enum", words(f.Enum())}}
	case protoreflect.MessageKind:
		switch f.Message().FullName() {
		case "google.protobuf.Duration":
			return duration()
		case "google.protobuf.Timestamp":
			return moment()
		}
		return s.ref(string(f.Message().Name()))
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		if contract.FieldOf(f).GetForm() == restpb.Form_EXACT {
			return digits(s.input, "-?")
		}
		return object{{"type", "integer"}, {"format", f.Kind().String()}}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		if contract.FieldOf(f).GetForm() == restpb.Form_EXACT {
			return digits(s.input, "")
		}
		return object{{"type", "integer"}, {"minimum", 0}}
	}
	s.err = fmt.Errorf("%s: a field of kind %s has no form in JSON yet", f.FullName(), f.Kind())
	return nil
}

// anyBytes are the two properties of a field that holds any bytes, of which one is given.
func anyBytes(name, note string, form restpb.Form) object {
	// Any bytes, under a second name.
	as64 := object{{"type", "string"}, {"contentEncoding", "base64"}, {"description", "Instead of " + name + ": any bytes."}}
	plain := object{{"type", "string"}, {"description", text("UTF-8 text without NUL.", note)}}
	// A schema without a type is any JSON value.
	if form == restpb.Form_CONTENT {
		plain = object{{"description", text("Any JSON value, kept byte for byte.", note)}}
	}
	return object{{name, plain}, {name + "_base64", as64}}
}

// text joins sentences of a description.
func text(parts ...string) string {
	return strings.TrimSpace(strings.Join(parts, " "))
}

// duration is the schema of a duration. Its form says which texts are one.
func duration() object {
	return object{{"type", "string"}, {"examples", []string{"90s", "1.5s", "1h30m"}}}
}

// moment is the schema of a time.
func moment() object { return object{{"type", "string"}, {"format", "date-time"}} }

// digits is a 64-bit number that must not be rounded, after the expression of its sign. Requests may give it as an integer too.
func digits(input bool, sign string) object {
	if input {
		return object{{"type", []string{"string", "integer"}}}
	}
	return object{{"type", "string"}, {"pattern", "^" + sign + "[0-9]+$"}}
}

// words are the names of an enumeration, in lower case and without the ones that are reserved or mean nothing.
func words(e protoreflect.EnumDescriptor) []string {
	var out []string
	for i, word := range contract.Words(e) {
		// A reserved word is refused until it is built, so the document does not offer it.
		if word != "" && !strings.HasPrefix(comment(e.Values().Get(i)), "reserved") {
			out = append(out, word)
		}
	}
	return out
}

// comment is the comment of a declaration in the contract.
func comment(d protoreflect.Descriptor) string {
	// Comments are kept only in the compiled form that main reads.
	at := d.ParentFile().SourceLocations().ByDescriptor(d)
	return strings.Join(strings.Fields(at.LeadingComments+" "+at.TrailingComments), " ")
}
