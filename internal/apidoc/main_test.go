package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/gen/openapi"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/rest"
)

// compiled is the contract as this binary has it: whole, but without its comments.
func compiled(t *testing.T) []byte {
	t.Helper()
	set := new(descriptorpb.FileDescriptorSet)
	for _, m := range []proto.Message{
		new(descriptorpb.FileOptions), new(restpb.Route), new(durationpb.Duration), new(timestamppb.Timestamp), new(pb.RefChange), new(pb.Point), new(pb.Task), new(pb.KVGetRequest),
		new(pb.StatusRequest), new(pb.Repo), new(pb.Collection), new(pb.Overview), new(pb.ClusterStatusRequest), new(pb.TenantConfig), new(pb.BulkJob), new(pb.Cron), new(pb.Batch), new(pb.Limiter),
		new(pb.Worker), new(pb.ErrorGroup),
	} {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(m.ProtoReflect().Descriptor().ParentFile()))
	}
	b, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bare takes descriptions off, which come from comments, and words of an enumeration, of which comments reserve some.
func bare(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if s, ok := v["description"].(string); ok && s != "" {
			delete(v, "description")
		}
		delete(v, "enum")
		for name := range v {
			v[name] = bare(v[name])
		}
	case []any:
		for i := range v {
			v[i] = bare(v[i])
		}
	}
	return v
}

func parsed(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheDocumentIsUpToDateButForWhatCommentsSay(t *testing.T) {
	var out bytes.Buffer
	if err := run(bytes.NewReader(compiled(t)), &out); err != nil {
		t.Fatal(err)
	}
	// A schema may itself have a field called description or enum: none has.
	have, err := json.Marshal(bare(parsed(t, openapi.Document)))
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(bare(parsed(t, out.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Error("gen/openapi is not what the contract and the table of routes say: make generate")
	}
}

func TestEveryReferenceLeadsToASchemaThatIsUsed(t *testing.T) {
	text := string(openapi.Document)
	schemas := parsed(t, openapi.Document)["components"].(map[string]any)["schemas"].(map[string]any)
	for name := range schemas {
		if !strings.Contains(text, `"#/components/schemas/`+name+`"`) {
			t.Errorf("schema %s is not used", name)
		}
	}
	for part := range strings.SplitSeq(text, `"#/components/schemas/`) {
		name, _, _ := strings.Cut(part, `"`)
		if _, ok := schemas[name]; !ok && !strings.HasPrefix(part, "{") {
			t.Errorf("schema %s is not there", name)
		}
	}
}

func TestWhatIsNoContractIsRefused(t *testing.T) {
	for name, in := range map[string][]byte{"nothing": nil, "no protobuf": []byte("\xff\xff")} {
		if err := run(bytes.NewReader(in), new(bytes.Buffer)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	c, err := contract.Read(bytes.NewReader(compiled(t)))
	if err != nil {
		t.Fatal(err)
	}
	routes := []*rest.Route{{Method: "GET", Path: "/v1/x", Answer: "Nothing", Status: []int{200}}}
	if _, err := document(c, routes); err == nil || !strings.Contains(err.Error(), "Nothing") {
		t.Errorf("a schema of no message: %v", err)
	}
}

func TestOperationsHaveNamesOfTheirOwn(t *testing.T) {
	var ids []string
	for _, r := range rest.Routes() {
		ids = append(ids, operationID(r))
	}
	slices.Sort(ids)
	if n := len(ids); len(slices.Compact(ids)) != n {
		t.Errorf("an operation's name is taken twice: %v", ids)
	}
}

func TestAFieldThatIsThereTwiceIsAnError(t *testing.T) {
	for name, o := range map[string]object{
		"at the top":       {{"a", 1}, {"b", 2}, {"a", 1}},
		"of a schema":      {{"schemas", object{{"Failure", object{}}, {"Failure", object{}}}}},
		"within a list":    {{"list", []any{object{{"x", 1}, {"x", 2}}}}},
		"with one value":   {{"a", nil}, {"a", nil}},
		"of a made schema": shaped(object{{"pattern", "^a$"}, {"type", "string"}, {"pattern", "^b$"}}, rest.Form{}),
	} {
		if text, err := json.Marshal(o); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %s %v", name, text, err)
		}
	}
	if got := (object{{"a", 1}}).set("a", 2).set("b", 3); len(got) != 2 || got[0].value != 2 {
		t.Errorf("set made %v", got)
	}
}

// once reads a value, and reports a field that is there twice in one object.
func once(t *testing.T, d *json.Decoder, path string) {
	t.Helper()
	token, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	open, ok := token.(json.Delim)
	if !ok {
		return
	}
	seen := make(map[string]bool)
	for d.More() {
		at := path
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			at += "/" + name.(string)
			if seen[at] {
				t.Errorf("%s is there twice", at)
			}
			seen[at] = true
		}
		once(t, d, at)
	}
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
}

func TestNoFieldOfTheDocumentIsThereTwice(t *testing.T) {
	once(t, json.NewDecoder(bytes.NewReader(openapi.Document)), "")
}

func TestEveryStatusAndParameterOfARouteIsInTheDocument(t *testing.T) {
	paths := parsed(t, openapi.Document)["paths"].(map[string]any)
	for _, r := range rest.Routes() {
		op := paths[r.Path].(map[string]any)[strings.ToLower(r.Method)].(map[string]any)
		responses := op["responses"].(map[string]any)
		for _, status := range append(slices.Clone(r.Status), refused(r)...) {
			if _, ok := responses[strconv.Itoa(status)]; !ok {
				t.Errorf("%s %s: no status %d", r.Method, r.Path, status)
			}
		}
		var names []string
		for _, p := range op["parameters"].([]any) {
			names = append(names, p.(map[string]any)["name"].(string))
			if len(p.(map[string]any)["schema"].(map[string]any)) == 0 {
				t.Errorf("%s %s: %s has no schema", r.Method, r.Path, names[len(names)-1])
			}
		}
		for _, p := range slices.Concat(r.Query, r.Header, rest.Shared()) {
			if !slices.Contains(names, p.Name) {
				t.Errorf("%s %s: no parameter %s in %v", r.Method, r.Path, p.Name, names)
			}
		}
	}
}

// A commit needs an op or a condition: the document refuses one with an empty list of conditions alone, as the server does.
func TestACommitOfNothingIsRefusedByTheDocument(t *testing.T) {
	var d struct {
		Components struct {
			Schemas struct {
				CommitRequest struct {
					AllOf []struct {
						AnyOf []struct {
							Required   []string
							Properties map[string]struct{ MinItems int }
						}
					}
					Properties map[string]struct{ MinItems int }
				}
			}
		}
	}
	if err := json.Unmarshal(openapi.Document, &d); err != nil {
		t.Fatal(err)
	}
	c := d.Components.Schemas.CommitRequest
	for _, rule := range c.AllOf {
		for _, one := range rule.AnyOf {
			if name := one.Required[0]; max(one.Properties[name].MinItems, c.Properties[name].MinItems) != 1 {
				t.Errorf("%s may be empty where nothing else is required", name)
			}
		}
	}
}

// The table of routes that the server serves is written in Go, and the contract says the same for clients.
func TestTheTableOfRoutesIsThatOfTheContract(t *testing.T) {
	c, err := contract.Linked()
	if err != nil {
		t.Fatal(err)
	}
	served := make(map[string]*rest.Route)
	for _, r := range rest.Routes() {
		if r.Native != "" && r.Failed == "" { // neither the document nor a route in the form of another API
			served[r.Method+" "+r.Path] = r
		}
	}
	for _, r := range c.Routes() {
		name := r.Verb + " " + r.Path
		have := served[name]
		delete(served, name)
		if have == nil {
			t.Errorf("%s is not served", name)
			continue
		}
		status := r.GetStatus()
		if status == nil {
			status = []int32{200}
		}
		want := fmt.Sprint(r.Native(), r.GetDoc(), r.BodyName(), r.Raw(), r.AnswerName(), r.GetLines(), status, r.GetAnswerHeader(), params(r.Query), params(r.Header), r.GetRepeat() == 0, r.GetBare())
		got := fmt.Sprint(have.Native, have.Doc, have.Body, have.Raw, have.Answer, have.Lines, have.Status, have.Headers, tabled(have.Query), tabled(have.Header), have.Repeat == "", have.Bare)
		if got != want {
			t.Errorf("%s: the server has\n%s\nand the contract\n%s", name, got, want)
		}
	}
	for name := range served {
		t.Errorf("%s is served, and not in the contract", name)
	}
}

func params(list []*restpb.Param) (out []string) {
	for _, p := range list {
		out = append(out, fmt.Sprint(p.GetName(), p.GetType(), p.GetDoc(), p.GetRequired(), p.GetMany()))
	}
	return out
}

func tabled(list []rest.Param) (out []string) {
	for _, p := range list {
		out = append(out, fmt.Sprint(p.Name, p.Type, p.Doc, p.Required, p.Many))
	}
	return out
}
