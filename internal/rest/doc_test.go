package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/gen/openapi"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// schema is the part of JSON Schema that the document uses.
type schema struct {
	Ref           string            `json:"$ref"`
	Type          any               `json:"type"` // a string, or a list of strings
	Properties    map[string]schema `json:"properties"`
	Required      []string          `json:"required"`
	Items         *schema           `json:"items"`
	OneOf         []schema          `json:"oneOf"`
	Enum          []string          `json:"enum"`
	Pattern       string            `json:"pattern"`
	Format        string            `json:"format"`
	Not           *schema           `json:"not"`
	AllOf         []schema          `json:"allOf"`
	MinLength     int64             `json:"minLength"`
	MaxLength     int64             `json:"maxLength"`
	MinItems      int64             `json:"minItems"`
	MinProperties int64             `json:"minProperties"`
	MaxItems      int64             `json:"maxItems"`
	Minimum       json.Number       `json:"minimum"`
	Maximum       json.Number       `json:"maximum"`
	Additional    any               `json:"additionalProperties"` // false, a schema, or absent
}

type operation struct {
	Parameters  []struct{ Name, In string }
	RequestBody *struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema *schema }
	}
	Security []map[string][]string
	Native   string `json:"x-grpc"`
	ID       string `json:"operationId"`
}

// contract is the document that is served.
type contract struct {
	t          *testing.T
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

func readContract(t *testing.T) *contract {
	t.Helper()
	c := &contract{t: t}
	if err := json.Unmarshal(openapi.Document, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// resolve follows a reference.
func (c *contract) resolve(s schema) schema {
	if s.Ref == "" {
		return s
	}
	name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/")
	found, there := c.Components.Schemas[name]
	if !ok || !there {
		c.t.Errorf("the reference %q leads nowhere", s.Ref)
	}
	return found
}

// check holds a value to a schema, and reports what differs.
func (c *contract) check(path string, s schema, v any) []string {
	s = c.resolve(s)
	if len(s.OneOf) > 0 {
		var all []string
		for _, one := range s.OneOf {
			wrong := c.check(path, one, v)
			if len(wrong) == 0 {
				return nil
			}
			all = append(all, wrong...)
		}
		return all
	}
	if s.Type == nil {
		return nil // any value
	}
	switch v := v.(type) {
	case map[string]any:
		return c.checkObject(path, s, v)
	case []any:
		if s.Items == nil {
			return []string{path + " is a list"}
		}
		var wrong []string
		for i, e := range v {
			wrong = append(wrong, c.check(fmt.Sprintf("%s[%d]", path, i), *s.Items, e)...)
		}
		return wrong
	case string:
		if !s.is("string") || len(s.Enum) > 0 && !slices.Contains(s.Enum, v) || s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			return []string{fmt.Sprintf("%s is the string %q", path, v)}
		}
	case json.Number:
		whole := !strings.ContainsAny(string(v), ".eE")
		if !s.is("number") && (!whole || !s.is("integer")) {
			return []string{fmt.Sprintf("%s is the number %s", path, v)}
		}
	case nil:
		if !s.is("null") {
			return []string{path + " is null"}
		}
	case bool:
		if !s.is("boolean") {
			return []string{fmt.Sprintf("%s is %v", path, v)}
		}
	default:
		return []string{fmt.Sprintf("%s is %v", path, v)}
	}
	return nil
}

func (c *contract) checkObject(path string, s schema, v map[string]any) (wrong []string) {
	if !s.is("object") {
		return []string{path + " is an object"}
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			wrong = append(wrong, path+" lacks "+name)
		}
	}
	for name, value := range v {
		property, ok := s.Properties[name]
		switch texts, open := s.Additional.(map[string]any); {
		case ok:
			wrong = append(wrong, c.check(path+"."+name, property, value)...)
		case s.Additional == true:
		case !open || texts["type"] != "string":
			wrong = append(wrong, path+" has "+name)
		}
	}
	return wrong
}

func (s schema) is(name string) bool {
	if list, ok := s.Type.([]any); ok {
		return slices.Contains(list, any(name))
	}
	return s.Type == name
}

func TestTheDocumentHasEveryRouteAndNoOther(t *testing.T) {
	c := readContract(t)
	if !strings.HasPrefix(c.OpenAPI, "3.1.") {
		t.Errorf("OpenAPI %q", c.OpenAPI)
	}
	seen, ids := 0, make(map[string]bool)
	for _, rt := range Routes() {
		op, ok := c.Paths[rt.Path][strings.ToLower(rt.Method)]
		if !ok {
			t.Errorf("%s is not in the document", rt.name())
			continue
		}
		seen++
		if ids[op.ID] || op.Native != rt.Native {
			t.Errorf("%s: operation %q of %q", rt.name(), op.ID, op.Native)
		}
		ids[op.ID] = true
		for _, status := range rt.Status {
			if _, ok := op.Responses[strconv.Itoa(status)]; !ok {
				t.Errorf("%s: no answer %d", rt.name(), status)
			}
		}
		scopes, open := rt.Scopes()
		if open != (len(op.Security) == 0) || !open && !slices.Equal(op.Security[0]["token"], scopes) {
			t.Errorf("%s: security %v, want %v", rt.name(), op.Security, scopes)
		}
		for _, p := range slices.Concat(rt.Query, rt.Header) {
			if !slices.ContainsFunc(op.Parameters, func(q struct{ Name, In string }) bool { return q.Name == p.Name }) {
				t.Errorf("%s: no parameter %s", rt.name(), p.Name)
			}
		}
		if rt.Body == "" {
			if (op.RequestBody != nil) != rt.Raw {
				t.Errorf("%s: has a body", rt.name())
			}
			continue
		}
		s := c.resolve(op.RequestBody.Content["application/json"].Schema)
		sameFields(t, rt.name(), s, rt.fields)
	}
	for path, methods := range c.Paths {
		if seen -= len(methods); !slices.ContainsFunc(Routes(), func(r *Route) bool { return r.Path == path }) {
			t.Errorf("%s is not a route", path)
		}
	}
	if seen != 0 {
		t.Errorf("the document has %d operations that are not served", -seen)
	}
}

// sameFields holds what a body may have to the document.
func sameFields(t *testing.T, what string, s schema, fields []string) {
	t.Helper()
	for _, name := range fields {
		if _, ok := s.Properties[name]; !ok {
			t.Errorf("%s: the field %s is not in the document", what, name)
		}
	}
	if len(s.Properties) != len(fields) || s.Additional != false {
		t.Errorf("%s: the document has %d fields, and %d are read: %v", what, len(s.Properties), len(fields), fields)
	}
}

func TestTheDocumentHasTheFieldsOfEveryObjectThatIsRead(t *testing.T) {
	c := readContract(t)
	for name, fields := range map[string][]string{
		"TaskSpec": fieldNames(taskSpecFields), "Header": fieldNames(headerFields), "Retry": fieldNames(retryFields),
		"Unique": fieldNames(uniqueFields), "QueueWeight": fieldNames(queueWeightFields), "Hold": fieldNames(holdFields),
		"SettleItem": fieldNames(settleItemFields), "Complete": fieldNames(completeFields), "Fail": fieldNames(failFields),
		"Snooze": fieldNames(snoozeFields), "TaskError": fieldNames(taskErrorFields), "Effects": fieldNames(effectsFields),
		"Fence": fieldNames(fenceFields), "Op": fieldNames(opFields), "TaskComplete": fieldNames(taskCompleteFields),
		"TaskFail": fieldNames(taskFailFields), "TaskSnooze": fieldNames(taskSnoozeFields), "KVPut": fieldNames(kvPutFields),
		"KVDelete": fieldNames(kvDeleteFields), "KVCheck": fieldNames(kvCheckFields),
		"KVAdd": fieldNames(kvAddFields), "KVDeleteRange": fieldNames(kvDeleteRangeFields),
		"Collection": fieldNames(collectionFields), "SchemaField": fieldNames(schemaFieldFields), "TextField": fieldNames(textFieldFields),
		"Point": fieldNames(pointFields), "PointVersion": fieldNames(pointVersionFields), "Gate": fieldNames(gateFields), "Rule": fieldNames(ruleFields),
		"Judge": fieldNames(judgeFields), "Merge": fieldNames(mergeFields), "Decay": fieldNames(decayFields), "SearchRequest": fieldNames(searchRequestFields),
		"VectorUpsert": fieldNames(vectorUpsertFields), "VectorDelete": fieldNames(vectorDeleteFields),
		"KVBatchGetRequest": fieldNames(kvBatchGetRequestFields), "KeyspaceConfig": fieldNames(keyspaceConfigFields),
		"KeyspaceQuota": fieldNames(keyspaceQuotaFields), "ChangeMembersRequest": fieldNames(changeMembersRequestFields),
		"TransferShardRequest": fieldNames(transferShardRequestFields), "EmbeddingsRequest": fieldNames(embeddingsFields),
	} {
		sameFields(t, name, c.Components.Schemas[name], fields)
	}
	for field, words := range map[string][]string{
		"Retry.backoff": backoffWords[1:], "Unique.until": uniqueUntilWords, "Unique.on_conflict": uniqueOnConflictWords,
		"Collection.metric": metricWords[1:], "SchemaField.type": fieldTypeWords[1:], "SchemaField.gate": fieldGateWords[1:],
		"KVCheck.compare": kvCheckCompareWords[1:], "Task.state": stateWords[1:], "Attempt.outcome": outcomeWords[1:], "KeyspaceConfig.kind": keyspaceConfigKindWords[:1],
		"ChangeMembersRequest.verb": memberVerbWords[1:],
	} {
		message, name, _ := strings.Cut(field, ".")
		if got := c.Components.Schemas[message].Properties[name].Enum; !slices.Equal(got, words) {
			t.Errorf("%s: %v in the document, %v here", field, got, words)
		}
	}
	for name, s := range c.Components.Schemas {
		for field, property := range s.Properties {
			c.resolve(property)
			if property.Items != nil {
				c.resolve(*property.Items)
			}
			if property.Ref == "" && property.Type == nil && len(property.OneOf) == 0 && field != "payload" && field != "result" {
				t.Errorf("%s.%s has no type", name, field)
			}
		}
	}
}

// answerSchema is the schema of an answer's body.
func (c *contract) answerSchema(rt *Route, status int) *schema {
	r := c.Paths[rt.Path][strings.ToLower(rt.Method)].Responses
	key := strconv.Itoa(status)
	if _, ok := r[key]; !ok {
		key = "default"
	}
	return r[key].Content["application/json"].Schema
}

// checkAnswer holds an answer to the document, and returns the fields of its body.
func (c *contract) checkAnswer(rt *Route, a answer) map[string]any {
	c.t.Helper()
	s := c.answerSchema(rt, a.status)
	if s == nil || s.Ref == "" {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(a.body))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		c.t.Errorf("%s: %q: %v", rt.name(), a.body, err)
	}
	for _, wrong := range c.check("body", *s, v) {
		c.t.Errorf("%s: %s: %s", rt.name(), wrong, a.body)
	}
	return v
}

func TestAnswersAreWhatTheDocumentSays(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	c := readContract(t)
	eachRoute(t, func(rt *Route, s sampleRequest) {
		a := r.send(r.request(rt.Method, s.path, "acme/all", s.body)).expect(t, rt.name(), s.status)
		c.checkAnswer(rt, a)
		if got := a.header.Get("Millrace-Index"); (got == "") == rt.Indexed() {
			t.Errorf("%s: Millrace-Index %q", rt.name(), got)
		}
		for _, name := range []string{"ETag", "Location", "Millrace-Rev"} {
			if (a.header.Get(name) != "") != slices.Contains(rt.Headers, name) {
				t.Errorf("%s: %s %q, the document names %v", rt.name(), name, a.header.Get(name), rt.Headers)
			}
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", rt.name(), a.header)
		}
		if rt.rule.Public {
			return
		}
		refused := r.send(r.request(rt.Method, s.path, "", s.body)).expect(t, rt.name(), http.StatusUnauthorized)
		c.checkAnswer(rt, refused)
	})
	if a := r.send(r.request("GET", "/v1/openapi.json", "", "")); a.body != string(openapi.Document) || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("the document is served as %d bytes of %s", len(a.body), a.header.Get("Content-Type"))
	}
}
