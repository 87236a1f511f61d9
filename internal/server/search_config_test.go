package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A definition with which later calls would fail is refused when it is made, by the field that is wrong; what it leaves open is
// taken from the embedder.
func TestADefinitionThatCouldNotWorkIsRefused(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), fmt.Sprintf(`embedders:
  - {name: told, kind: openai, url: %[1]q, model: m, dim: 3}
  - {name: untold, kind: openai, url: %[1]q, model: n}
  - {name: wrong, kind: openai, url: %[1]q, model: o, dim: 7}
  - {name: gone, kind: openai, url: %[2]q, model: m}
  - {name: mine, kind: none, model: own/words-3, dim: 4}
  - {name: any, kind: none, model: own/any}`, pickyProvider(t).URL, gone.URL))
	defer r.Close(time.Second)
	for _, c := range []struct {
		body          string
		reason, field string
	}{
		{`{"embedder":"told","dim":4}`, "dim_mismatch", "dim"},
		{`{"embedder":"untold","dim":4}`, "dim_mismatch", "dim"},
		{`{"embedder":"wrong"}`, "embed_invalid", ""}, // the provider's vectors have three numbers
		{`{"embedder":"gone"}`, "embed_unavailable", ""},
		{`{"embedder":"any"}`, "", "dim"},
		{`{"embedder":"mine","dim":5}`, "dim_mismatch", "dim"},
		{`{"embedder":"mine","model":"own"}`, "model_mismatch", "model"},
		{`{"model":"lexical-v3"}`, "model_mismatch", "model"},
		{`{"embedder":"lexical-v1"}`, "", ""},
		{`{"dim":1}`, "dim_mismatch", "dim"},
		{`{"embedder":"any","dim":5000}`, "", "dim"},
		{`{"schema":[{"name":"in","type":"keyword"}]}`, "bad_name", "schema[0].name"},
		{`{"schema":[{"name":"a","type":"int"},{"name":"params","type":"keyword"}]}`, "bad_name", "schema[1].name"},
		{`{"schema":[{"name":"namespace","type":"keyword","gate":"role"}]}`, "bad_name", "schema[0].name"},
		{`{"schema":[{"name":"now","type":"time"}]}`, "bad_name", "schema[0].name"},
		{`{"schema":[{"name":"text","type":"int"}]}`, "", "text_fields[0].name"},
		{`{"schema":[{"name":"tags","type":"keywords"}],"text_fields":[{"name":"title"},{"name":"tags"}]}`, "", "text_fields[1].name"},
		{`{"text_fields":[{"name":"a","weight":0.001}]}`, "", "text_fields[0].weight"},
		{`{"text_fields":[{"name":"a","weight":11}]}`, "", "text_fields[0].weight"},
		{`{"max_points":-1}`, "", "max_points"},
	} {
		status, _, got := p.refusal("PUT", "/v1/collections/bad", c.body)
		if status/100 == 2 || got.Reason != c.reason || got.Field != c.field || got.Outcome != "refused" {
			t.Errorf("%s: %d %+v, want %s at %s", c.body, status, got, c.reason, c.field)
		}
	}
	if status, _, answer := p.do("GET", "/v1/collections", ""); strings.Contains(string(answer), "bad") {
		t.Errorf("made: %d %s", status, answer)
	}
	for body, dim := range map[string]int{
		`{"embedder":"told"}`: 3, `{"embedder":"untold"}`: 3, `{"embedder":"untold","dim":3}`: 3, `{"embedder":"gone","dim":9}`: 9,
		`{"embedder":"mine"}`: 4, `{"embedder":"any","dim":6}`: 6, `{}`: 384,
		`{"schema":[{"name":"in","type":"keyword","index":false},{"name":"text","type":"text"}]}`: 384,
	} {
		for _, want := range []int{http.StatusCreated, http.StatusOK} {
			status, _, answer := p.do("PUT", "/v1/collections/good", body)
			var out struct{ Collection struct{ Dim int } }
			if err := json.Unmarshal(answer, &out); err != nil || status != want || out.Collection.Dim != dim {
				t.Errorf("%s: %d %s, want %d and dim %d", body, status, answer, want, dim)
			}
		}
		p.must("DELETE", "/v1/collections/good", "")
	}
}

// A collection whose vectors all come from clients needs no address, and says so where a vector is missing.
func TestACollectionOfOwnVectorsNeedsNoProvider(t *testing.T) {
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), "embedders: [{name: mine, kind: none, model: own/words-3, dim: 4}]")
	defer r.Close(time.Second)
	p.must("PUT", "/v1/collections/ws", `{"embedder":"mine"}`)
	const upsert, search = "/v1/collections/ws/points:upsert", "/v1/matrix/search"
	p.must("POST", upsert, `{"points":[{"id":"a","vector":[1,0,0,0],"model":"own/words-3","payload":{"text":"welder"}},{"id":"b","vector":[0,1,0,0],"model":"own/words-3"}]}`)
	p.must("POST", "/v1/commit", `{"ops":[{"vector_upsert":{"collection":"ws","point":{"id":"c","vector":[0,0,1,0],"model":"own/words-3"}}}]}`)
	status, _, answer := p.do("POST", search, `{"collection":"ws","vector":[0.1,0.9,0,0],"model":"own/words-3","k":1}`)
	if status != http.StatusOK || !strings.Contains(string(answer), `"id":"b"`) || !strings.Contains(string(answer), `"semantic":true`) {
		t.Errorf("%d %s", status, answer)
	}
	for _, c := range [][3]string{
		{upsert, `{"points":[{"id":"d","payload":{"text":"x"}}]}`, "points[0].vector"},
		{search, `{"collection":"ws","query_text":"x"}`, "vector"},
		{"/v1/commit", `{"ops":[{"vector_upsert":{"collection":"ws","point":{"id":"d","payload":{"text":"x"}}}}]}`, "ops[0].point.vector"},
		{"/v1/embed", `{"text":"x","model":"mine"}`, "model"},
		{upsert, `{"points":[{"id":"d","vector":[1,0,0],"model":"own/words-3"}]}`, "points[0].vector"},
		{upsert, `{"points":[{"id":"d","vector":[1,0,0,0]}]}`, "points[0].model"},
	} {
		if status, _, got := p.refusal("POST", c[0], c[1]); got.Code != "INVALID_ARGUMENT" || got.Field != c[2] {
			t.Errorf("%s %s: %d %+v, want %s", c[0], c[1], status, got, c[2])
		}
	}
}

// What /v1/models lists, and what an answer names, is taken as the model of a request, and read one by one.
func TestEachModelThatIsListedOrAnsweredIsTaken(t *testing.T) {
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), fmt.Sprintf(
		"embedders: [{name: far, kind: openai, url: %q, model: org/m, dim: 3}, {name: mine, kind: none, model: own, dim: 4}]", pickyProvider(t).URL))
	defer r.Close(time.Second)
	status, _, answer := p.do("GET", "/v1/models", "")
	var list struct {
		Object string
		Data   []struct {
			ID, Object string
			Owner      string `json:"owned_by"`
		}
	}
	if err := json.Unmarshal(answer, &list); err != nil || status != http.StatusOK || list.Object != "list" {
		t.Fatalf("%d %s: %v", status, answer, err)
	}
	var ids []string
	for _, m := range list.Data {
		if ids = append(ids, m.ID); m.Object != "model" || m.Owner == "" {
			t.Errorf("%+v", m)
		}
	}
	if want := []string{"lexical-v2", "default", "lexical-v1", "openai/org/m", "far"}; !slices.Equal(ids, want) {
		t.Errorf("models %q, want %q", ids, want)
	}
	for _, id := range ids {
		for _, path := range []string{id, strings.ReplaceAll(id, "/", "%2F")} {
			if status, _, answer := p.do("GET", "/v1/models/"+path, ""); status != http.StatusOK || !strings.Contains(string(answer), `"id":"`+id+`"`) {
				t.Errorf("%s: %d %s", path, status, answer)
			}
		}
		said := id
		for range 2 { // the second time by the name in the answer
			status, _, answer := p.do("POST", "/v1/embeddings", `{"input":"x","model":"`+said+`"}`)
			var out struct{ Model string }
			if err := json.Unmarshal(answer, &out); err != nil || status != http.StatusOK {
				t.Fatalf("%s: %d %s", said, status, answer)
			}
			said = out.Model
		}
	}
	for _, id := range []string{"own", "mine", "nope", "a/b/c"} {
		status, _, answer := p.do("GET", "/v1/models/"+id, "")
		if status != http.StatusNotFound || !strings.Contains(string(answer), `"type":"invalid_request_error"`) {
			t.Errorf("%s: %d %s", id, status, answer)
		}
	}
}
