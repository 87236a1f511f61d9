package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/millrace/millrace/internal/api"
)

// part names fields of a message; none means all of them.
type part struct {
	message string
	fields  []string
}

// composed are the schemas that are not a message of the contract: on a route of one task the id is in the path, and
// what it says of the task stands in the body itself.
var composed = map[string][]part{
	"Created":          {{"CreateResponse", nil}},
	"Result":           {{"Task", []string{"state", "reason", "result", "result_type", "error"}}, {"WaitResponse", []string{"at"}}},
	"CompleteOne":      {{"SettleItem", []string{"token"}}, {"Complete", nil}, {"SettleItem", []string{"effects"}}},
	"FailOne":          {{"SettleItem", []string{"token"}}, {"Fail", nil}},
	"SnoozeOne":        {{"SettleItem", []string{"token"}}, {"Snooze", nil}},
	"ReleaseOne":       {{"SettleItem", []string{"token"}}},
	"HeartbeatOne":     {{"SettleItem", []string{"token"}}, {"HeartbeatRequest", []string{"extend"}}},
	"Settled":          {{"SettleResult", []string{"replayed", "state", "effects"}}, {"SettleResponse", []string{"at"}}},
	"Renewed":          {{"HeartbeatResult", []string{"lease_until"}}, {"HeartbeatResponse", []string{"at"}}},
	"Done":             {{"DeleteResponse", nil}},
	"Configured":       {{"SetQueueResponse", nil}},
	"UpdateRepoBody":   {{"UpdateRepoRequest", []string{"config", "default_branch"}}},
	"UndeleteRepoBody": {{"UndeleteRepoRequest", []string{"id"}}},
	"RepoID":           {{"DeleteRepoResponse", nil}},
	"BatchGetRefsBody": {{"BatchGetRefsRequest", []string{"names", "peel"}}},
	"UpdateRefsBody":   {{"UpdateRefsRequest", []string{"changes", "conditions", "request_id", "message", "allow_partial"}}},
	"RefPage":          {{"BatchGetRefsResponse", nil}, {"ListRefsRequest", []string{"after"}}},
	"Namespace":        {{"NamespaceConfig", nil}, {"GetNamespaceResponse", []string{"partitions", "measured_key_bytes", "over_key_bytes", "recent_key_writes_per_second", "recent_key_bytes_per_second", "overshoot_key_writes", "overshoot_key_bytes_written"}}},
	"Tenant":           {{"GetTenantResponse", []string{"tenant"}}, {"TenantConfig", nil}, {"GetTenantResponse", []string{"namespaces", "measured_key_bytes", "over_key_bytes", "recent_key_writes_per_second", "recent_key_bytes_per_second", "overshoot_key_writes", "overshoot_key_bytes_written"}}},
	"UpsertPoints":     {{"UpsertPointsRequest", []string{"points", "atomic"}}},
	"DeletePoints":     {{"DeletePointsRequest", []string{"points", "atomic"}}},
	"GetPoints":        {{"GetPointsRequest", []string{"ids", "vectors", "min_index", "stale"}}},
	"CountPoints":      {{"CountPointsRequest", []string{"gate", "min_index", "stale"}}},
	"PutRuleset":       {{"PutRulesetRequest", []string{"collection", "rules", "number"}}},
	"KeyWritten":       {{"KVPutResponse", []string{"rev", "at"}}},
	"KeyPage":          {{"KVRangeResponse", []string{"items"}}, {"ListKeyspacesResponse", []string{"cursor"}}, {"KVRangeResponse", []string{"at"}}},
	"KeyspaceFound":    {{"KeyspaceStats", nil}, {"GetKeyspaceResponse", []string{"at"}}},
}

// byHand are the schemas that the contract knows nothing of: those of another API's requests, answers and errors.
var byHand = map[string]object{
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

// descriptions of schemas that have no comment of their own in the contract.
var descriptions = map[string]string{
	"Created": "The task that was made, or the first one that was made alike.",
	"Result":  "What became of a task. It is done once its state is completed, dead or cancelled.",
}

// absent are fields of the contract that REST does not have: reserved ones, and those that others replace.
var absent = map[string][]string{
	"TaskSpec": {"labels", "key", "cost", "expires_at", "after", "webhook"},
	"Op":       {"reserved"},

	"UpdateRefsResponse": {"tasks"},
	"KVBatchGetRequest":  {"keyspace", "min"},
	"KeyspaceConfig":     {"tag", "retention"},
}

// required are fields without which a request is refused, and that every error has.
var required = map[string][]string{
	"TaskSpec": {"queue"}, "BatchCreateRequest": {"tasks"}, "ClaimRequest": {"queues"}, "QueueWeight": {"name"},
	"SettleRequest": {"items"}, "SettleItem": {"id", "token"}, "HeartbeatRequest": {"items"}, "Hold": {"id", "token"},
	"CompleteOne": {"token"}, "FailOne": {"token"}, "SnoozeOne": {"token"}, "ReleaseOne": {"token"},
	"HeartbeatOne": {"token"}, "Fence": {"task", "token"}, "Unique": {"key"}, "Header": {"name"},
	"KVPut": {"keyspace"}, "KVDelete": {"keyspace"}, "KVCheck": {"keyspace", "compare"},
	"KVAdd": {"keyspace", "delta"}, "KVDeleteRange": {"keyspace"},
	"TaskComplete": {"task"}, "TaskFail": {"task"}, "TaskSnooze": {"task", "snooze"},
	"CreateRepoRequest": {"name"}, "RefRule": {"refs"}, "RefChange": {"kind", "name"}, "UpdateRefsBody": {"changes"},
	"BatchGetRefsBody": {"names"}, "RefTransaction": {"repo", "changes"},
	"Error":        {"code", "message", "outcome"},
	"UpsertPoints": {"points"}, "DeletePoints": {"points"}, "GetPoints": {"ids"}, "PutRuleset": {"collection", "rules"},
	"Point": {"id"}, "PointVersion": {"id"}, "Rule": {"id", "when", "severity"}, "SchemaField": {"name", "type"}, "TextField": {"name"},
	"SearchRequest": {"collection"}, "Judge": {"ruleset"}, "Decay": {"field", "half_life"},
	"ChangeMembersRequest": {"verb"}, "TransferShardRequest": {"shard", "to"},
	"VectorUpsert": {"collection", "point"}, "VectorDelete": {"collection", "id"},
}

// jsonObjects are fields of bytes that hold a JSON object, which in REST stands as it is.
var jsonObjects = []string{
	"Point.payload", "StoredPoint.payload", "SearchResult.payload", "Gate.params", "Judge.params", "GetRecordingResponse.recording",
}

// exact are numbers that are handed back or compared, and so are strings of digits.
var exact = []string{"token", "rev", "if_rev", "index", "version", "applied_index", "sum"}

// schemas makes those that routes name, and all that these refer to.
type schemas struct {
	files *protoregistry.Files
	made  map[string]object
	order []string
	forms map[string]api.Form // of fields, as message and field
	input bool                // of what is being made: it is a request's
	err   error
}

// ref makes a schema, once, and refers to it.
func (s *schemas) ref(name string) object {
	if _, ok := s.made[name]; !ok && s.err == nil {
		s.made[name] = nil
		s.order = append(s.order, name)
		s.made[name] = s.make(name)
	}
	return object{{"$ref", "#/components/schemas/" + name}}
}

func (s *schemas) make(name string) object {
	if o, ok := byHand[name]; ok {
		return o
	}
	parts, ok := composed[name]
	if !ok {
		parts = []part{{name, nil}}
	}
	description := descriptions[name]
	var properties object
	for _, p := range parts {
		m, err := message(s.files, p.message)
		if err != nil {
			s.err = err
			return nil
		}
		if !ok {
			description = comment(m)
		}
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if len(p.fields) > 0 && !slices.Contains(p.fields, string(f.Name())) || slices.Contains(absent[p.message], string(f.Name())) {
				continue
			}
			for _, one := range s.properties(f) {
				properties = append(properties, field{one.name, s.shaped(p.message+"."+one.name, one.value.(object))})
			}
		}
	}
	if name == "Result" {
		properties = append(properties, field{"done", object{{"type", "boolean"}, {"description", "Whether the task has ended."}}})
	}
	out := object{{"type", "object"}}.with("description", description).with("properties", properties)
	if names := required[name]; len(names) > 0 {
		out = append(out, field{"required", names})
	}
	if s.input {
		out = append(out, field{"additionalProperties", false})
		if name == "Op" {
			out = append(out, field{"minProperties", 1}, field{"maxProperties", 1})
		}
		out = out.with("allOf", choices(name))
	}
	return out
}

// properties are what a field of the contract is in JSON: mostly one of the same name.
func (s *schemas) properties(f protoreflect.FieldDescriptor) object {
	name, note := string(f.Name()), comment(f)
	described := func(name string, schema object) field { return field{name, schema.with("description", note)} }
	switch parent := string(f.Parent().Name()); {
	case f.Kind() == protoreflect.BytesKind && slices.Contains(jsonObjects, parent+"."+name):
		return object{{name, object{{"type", "object"}, {"additionalProperties", true}}.with("description", note)}}
	case f.Kind() == protoreflect.BytesKind && f.IsList():
		return object{
			{name, object{{"type", "array"}, {"items", object{{"type", "string"}}}, {"description", text("UTF-8 texts without NUL.", note)}}},
			{name + "_base64", object{{"type", "array"}, {"items", object{{"type", "string"}, {"contentEncoding", "base64"}}}, {"description", "Instead of " + name + ": any bytes."}}},
		}
	case f.Kind() == protoreflect.BytesKind:
		return anyBytes(name, note)
	case f.Kind() == protoreflect.FloatKind && s.input:
		list, packed := api.VectorForms()
		return object{described(name, object{{"oneOf", []any{
			shaped(object{{"type", "array"}, {"items", object{{"type", "number"}}}}, list),
			shaped(object{{"type", "string"}, {"contentEncoding", "base64"}, {"description", "Numbers of 32 bits, little-endian."}}, packed),
		}}})}
	case parent == "EmbedResponse" && name == "vectors":
		row := object{{"type", "array"}, {"items", object{{"type", "number"}}}}
		return object{described(name, object{{"type", "array"}, {"items", row}})}
	case parent == "Assignment" && name == "lease_ms", parent == "Assignment" && name == "lease_left_ms":
		return object{described(strings.TrimSuffix(name, "_ms"), duration())}
	case parent == "Assignment" && name == "created_ms":
		return object{{"created_at", moment()}}
	case parent == "Error" && name == "retry_after":
		return object{{"retry_after_ms", object{{"type", "integer"}}}}
	case f.Message() != nil && f.Message().Name() == "At" && f.IsList():
		return object{described(name, object{{"type", "array"}, {"items", object{{"type", "object"}, {"properties", object{
			{"partition", object{{"type", "integer"}}}, {"index", digits(false)},
		}}}}})}
	case f.Message() != nil && f.Message().Name() == "At":
		return object{{"index", digits(false).with("description", "Where the answer stands in the partition's log; a read can ask for at least this.")}}
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
	if f.Message() != nil && f.Message().Name() == "QueueWeight" {
		name := shaped(object{{"type", "string"}, {"description", "Its name alone."}}, s.forms["QueueWeight.name"])
		return object{{"oneOf", []any{name, one}}}
	}
	return one
}

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
		return object{{"type", "integer"}, {"format", f.Kind().String()}}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		if slices.Contains(exact, string(f.Name())) {
			return digits(s.input)
		}
		return object{{"type", "integer"}, {"minimum", 0}}
	}
	s.err = fmt.Errorf("%s: a field of kind %s has no form in JSON yet", f.FullName(), f.Kind())
	return nil
}

// anyBytes are the two properties of a field that holds any bytes, of which one is given.
func anyBytes(name, note string) object {
	if name == "request_id" {
		return object{{name, object{{"type", "string"}, {"description", text("32 hexadecimal digits, such as a UUID.", note)}}}}
	}
	as64 := object{{"type", "string"}, {"contentEncoding", "base64"}, {"description", "Instead of " + name + ": any bytes."}}
	plain := object{{"type", "string"}, {"description", text("UTF-8 text without NUL.", note)}}
	if name == "payload" || name == "result" {
		plain = object{{"description", text("Any JSON value, kept byte for byte.", note)}}
	}
	return object{{name, plain}, {name + "_base64", as64}}
}

func text(parts ...string) string {
	return strings.TrimSpace(strings.Join(parts, " "))
}

func duration() object {
	return object{{"type", "string"}, {"examples", []string{"90s", "1.5s", "1h30m"}}}
}

func moment() object { return object{{"type", "string"}, {"format", "date-time"}} }

// digits is a 64-bit number that must not be rounded. Requests may give it as an integer too.
func digits(input bool) object {
	if input {
		return object{{"type", []string{"string", "integer"}}}
	}
	return object{{"type", "string"}, {"pattern", "^[0-9]+$"}}
}

// words are the names of an enumeration, in lower case and without the ones that are reserved or mean nothing.
func words(e protoreflect.EnumDescriptor) []string {
	var out []string
	prefix := strings.ToUpper(string(e.Name())) + "_"
	if first := string(e.Values().Get(0).Name()); strings.HasSuffix(first, "_UNSPECIFIED") { // a name of several words
		prefix = strings.TrimSuffix(first, "UNSPECIFIED")
	}
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		name := strings.TrimPrefix(string(v.Name()), prefix)
		if name != "UNSPECIFIED" && !strings.HasPrefix(comment(v), "reserved") {
			out = append(out, strings.ToLower(name))
		}
	}
	return out
}

// comment is the comment of a declaration in the contract.
func comment(d protoreflect.Descriptor) string {
	at := d.ParentFile().SourceLocations().ByDescriptor(d)
	return strings.Join(strings.Fields(at.LeadingComments+" "+at.TrailingComments), " ")
}
