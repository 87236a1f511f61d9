package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// refused is an error as the REST edge writes it.
type refused struct {
	Code, Reason, Field, Limit, Outcome string
	Details                             map[string]string
}

// searchPeer is a client of a server's REST edge, by its token.
type searchPeer struct {
	t           *testing.T
	base, token string
}

func (p *searchPeer) do(method, path, body string) (status int, h http.Header, answer []byte) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.base+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read to its end
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, answer
}

func (p *searchPeer) must(method, path, body string) {
	p.t.Helper()
	if status, _, answer := p.do(method, path, body); status/100 != 2 {
		p.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
}

// refusal makes a call that is refused, as a whole or in its first item.
func (p *searchPeer) refusal(method, path, body string) (int, http.Header, refused) {
	p.t.Helper()
	status, h, answer := p.do(method, path, body)
	var whole struct {
		Error   *refused
		Results []struct{ Error *refused }
	}
	if err := json.Unmarshal(answer, &whole); err != nil {
		p.t.Fatalf("%s: %v", answer, err)
	}
	switch {
	case whole.Error != nil:
		return status, h, *whole.Error
	case len(whole.Results) > 0 && whole.Results[0].Error != nil:
		return status, h, *whole.Results[0].Error
	}
	p.t.Errorf("%s %s %s: %d %s", method, path, body, status, answer)
	return status, h, refused{}
}

// searchServer starts a server with the embedders of a file, on a directory.
func searchServer(t *testing.T, dir, embedders string) (*searchPeer, *Running) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "embedders.yaml")
	if err := os.WriteFile(file, []byte(embedders), 0o600); err != nil {
		t.Fatal(err)
	}
	token := NewToken()
	o, err := Dev(Options{Dir: dir, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", EmbeddersFile: file, Name: "n7"}, token)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &searchPeer{t, "http://" + r.HTTPAddress, token}, r
}

// Each refusal of search has its code, status, reason, field and details on the wire.
func TestEachRefusalOfSearchSaysWhatAndWhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p, r := searchServer(t, dir, "embedders: [{name: spare, kind: lexical}]")
	p.must("PUT", "/v1/collections/ws", `{"schema":[{"name":"role","type":"keyword","index":true,"gate":"role"},{"name":"n","type":"int"},
		{"name":"plain","type":"int","index":false},{"name":"secret","type":"int","index":true,"protected":true}]}`)
	p.must("PUT", "/v1/collections/bare", `{"embedder":"spare"}`)
	p.must("PUT", "/v1/rulesets/rs", `{"collection":"ws","rules":[{"id":"a","when":"n > 1","severity":"bonus","weight":0.1}]}`)
	const upsert, search = "/v1/collections/ws/points:upsert", "/v1/matrix/search"
	for range 8 { // a pattern with a counted repetition is one like any other, however often it comes
		p.must("POST", search, `{"collection":"ws","query_text":"x","gate":{"filter":"role.matches(\"^[a-z]{6}$\")"}}`)
		p.must("PUT", "/v1/rulesets/zip", `{"collection":"ws","rules":[{"id":"a","when":"role.matches(\"^w[a-z]{5}$\")","severity":"block"}]}`)
		p.must("POST", search, `{"collection":"ws","query_text":"x","judge":{"ruleset":"zip"}}`)
	}
	p.must("POST", upsert, `{"points":[{"id":"w1","payload":{"text":"welder","role":"welder","n":1}}]}`)
	zeros := "[" + strings.Repeat("0,", 383) + "0]"
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		want                     refused
		details                  map[string]string
	}{
		{"a vector of another length", "POST", upsert, `{"points":[{"id":"x","vector":[1,2],"model":"lexical-v2"}]}`, 200, refused{Code: "INVALID_ARGUMENT", Reason: "dim_mismatch", Field: "points[0].vector"}, map[string]string{"want": "384", "got": "2"}},
		{"of a search", "POST", search, `{"collection":"ws","vector":[1,2],"model":"lexical-v2"}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "dim_mismatch", Field: "vector"}, map[string]string{"want": "384", "got": "2"}},
		{"zeros", "POST", upsert, `{"points":[{"id":"x","vector":` + zeros + `,"model":"lexical-v2"}]}`, 200, refused{Code: "INVALID_ARGUMENT", Reason: "vector_invalid", Field: "points[0].vector"}, nil},
		{"another model", "POST", upsert, `{"points":[{"id":"x","vector":` + zeros + `,"model":"other"}]}`, 200, refused{Code: "WRONG_STATE", Reason: "model_mismatch", Field: "points[0].model"}, nil},
		{"a field of another type", "POST", upsert, `{"points":[{"id":"x","payload":{"text":"a","n":"one"}}]}`, 200, refused{Code: "INVALID_ARGUMENT", Reason: "field_type", Field: "points[0].payload.n"}, nil},
		{"a version that is not there", "POST", upsert, `{"points":[{"id":"w1","payload":{"text":"a"},"if_version":"0/99"}]}`, 200, refused{Code: "PRECONDITION_FAILED", Reason: "version_mismatch"}, nil},
		{"a field that is not indexed", "POST", search, `{"collection":"ws","query_text":"a","gate":{"filter":"plain > 1"}}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "field_not_indexed", Field: "gate.filter"}, nil},
		{"a field that is not declared", "POST", search, `{"collection":"ws","query_text":"a","gate":{"filter":"nothing > 1"}}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "expression_invalid", Field: "gate.filter"}, map[string]string{"line": "1", "column": "1"}},
		{"a pattern that is too large", "POST", search, `{"collection":"ws","query_text":"a","gate":{"filter":"role.matches('(a{100}){100}')"}}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "expression_invalid", Field: "gate.filter"}, map[string]string{"line": "1", "column": "14"}},
		{"a protected field", "POST", search, `{"collection":"ws","query_text":"a","gate":{"filter":"secret > 1"}}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "protected_field", Field: "gate.filter"}, nil},
		{"in rules", "PUT", "/v1/rulesets/rs", `{"collection":"ws","rules":[{"id":"a","when":"n > 1 &&\n secret > 1","severity":"block"}]}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "protected_field", Field: "rules"}, map[string]string{"line": "2", "column": "2"}},
		{"in a decay", "POST", search, `{"collection":"ws","query_text":"a","merge":{"decay":{"field":"secret","half_life":"1h"}}}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "protected_field", Field: "merge.decay.field"}, nil},
		{"no role of the collection", "POST", search, `{"collection":"ws","query_text":"a","gate":{"roles":["weldr"]}}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "unknown_role", Field: "gate.roles"}, map[string]string{"near": "welder"}},
		{"no roles in the collection", "POST", search, `{"collection":"bare","query_text":"a","gate":{"roles":["welder"]}}`, 400, refused{Code: "INVALID_ARGUMENT", Reason: "no_role_field", Field: "gate.roles"}, nil},
		{"rules of other fields", "POST", search, `{"collection":"bare","query_text":"a","judge":{"ruleset":"rs"}}`, 409, refused{Code: "WRONG_STATE", Reason: "ruleset_unsupported", Field: "judge.ruleset"}, map[string]string{"node": "n7"}},
		{"no such ruleset", "POST", search, `{"collection":"ws","query_text":"a","judge":{"ruleset":"rs@9"}}`, 404, refused{Code: "NOT_FOUND"}, nil},
		{"no such embedder", "PUT", "/v1/collections/other", `{"embedder":"unknown"}`, 404, refused{Code: "NOT_FOUND"}, nil},
		{"another definition", "PUT", "/v1/collections/ws", `{}`, 409, refused{Code: "ALREADY_EXISTS"}, nil},
	} {
		status, _, got := p.refusal(c.method, c.path, c.body)
		if status != c.status || got.Code != c.want.Code || got.Reason != c.want.Reason || got.Field != c.want.Field {
			t.Errorf("%s: %d %+v, want %d %+v", c.name, status, got, c.status, c.want)
		}
		for k, v := range c.details {
			if got.Details[k] != v {
				t.Errorf("%s: details %v, want %s %s", c.name, got.Details, k, v)
			}
		}
		if c.want.Reason == "version_mismatch" && !strings.HasPrefix(got.Details["actual"], "0/") {
			t.Errorf("%s: %v", c.name, got.Details)
		}
	}
	r.Close(time.Second)
	p, r = searchServer(t, dir, "embedders: []")
	defer r.Close(time.Second)
	for path, body := range map[string]string{search: `{"collection":"bare","query_text":"a"}`, "/v1/collections/bare/points:upsert": `{"points":[{"id":"x","payload":{"text":"a"}}]}`} {
		if status, _, got := p.refusal("POST", path, body); got.Code != "WRONG_STATE" || got.Reason != "embedder_missing" || path == search && status != http.StatusConflict {
			t.Errorf("an embedder that was taken away, %s: %d %+v", path, status, got)
		}
	}
}

// A provider that fails has its codes on each door, and those that are told when to come again are told.
func TestEachFaultOfAProviderHasItsCodeOnEachDoor(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { (*answer.Load())(w, req) }))
	defer provider.Close()
	good := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"index":0,"embedding":[1,2,3]}]}`)
	})
	answer.Store(&good)
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), fmt.Sprintf(
		"embedders: [{name: far, kind: openai, url: %q, model: m, dim: 3, timeout: 20s, in_flight: 1, waiting: 2, batch: 1}]", provider.URL))
	defer r.Close(time.Second)
	p.must("PUT", "/v1/collections/ws", `{"embedder":"far","dim":3}`)
	p.must("POST", "/v1/collections/ws/points:upsert", `{"points":[{"id":"w1","payload":{"text":"known"}}]}`)
	p.must("POST", "/v1/matrix/search", `{"collection":"ws","query_text":"known"}`)

	doors := func(text string) map[string]string {
		return map[string]string{
			"/v1/embed": `{"model":"far","text":"` + text + `"}`, "/v1/matrix/search": `{"collection":"ws","query_text":"` + text + `"}`,
			"/v1/collections/ws/points:upsert": `{"points":[{"id":"w2","payload":{"text":"` + text + `"}}]}`,
		}
	}
	hold, held := make(chan struct{}), make(chan struct{}, 4)
	slow := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		held <- struct{}{}
		<-hold
		good(w, req)
	})
	answer.Store(&slow)
	ended := make(chan int, 2)
	for i := range 2 {
		go func() {
			status, _, _ := p.do("POST", "/v1/embed", fmt.Sprintf(`{"model":"far","text":"held %d"}`, i))
			ended <- status
		}()
		if i == 0 {
			<-held // the other one waits
		}
	}
	for r.embed.byName["far"].Stats().Waiting < 2 {
		select {
		case <-t.Context().Done():
			t.Fatal("no search waits")
		case <-time.After(time.Millisecond):
		}
	}
	for path, body := range doors("one too many") {
		status, h, got := p.refusal("POST", path, body)
		if got.Code != "UNAVAILABLE" || got.Reason != "embed_queue_full" || status != 200 && (status != http.StatusServiceUnavailable || h.Get("Retry-After") == "") {
			t.Errorf("%s beyond the queue: %d %+v, Retry-After %q", path, status, got, h.Get("Retry-After"))
		}
	}
	close(hold)
	for range 2 {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("one that waited: %d", status)
		}
	}
	short := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":[]}`) })
	answer.Store(&short)
	for path, body := range doors("nonsense") {
		if status, _, got := p.refusal("POST", path, body); got.Code != "UNAVAILABLE" || got.Reason != "embed_invalid" || status != 200 && status != http.StatusServiceUnavailable {
			t.Errorf("%s of a provider that answers nonsense: %d %+v", path, status, got)
		}
	}
	closed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	answer.Store(&closed)
	for path, body := range doors("outage") {
		status, h, got := p.refusal("POST", path, body)
		if got.Code != "UNAVAILABLE" || got.Reason != "embed_unavailable" || status != 200 && (status != http.StatusServiceUnavailable || h.Get("Retry-After") == "") {
			t.Errorf("%s in an outage: %d %+v, Retry-After %q", path, status, got, h.Get("Retry-After"))
		}
	}
	p.must("POST", "/v1/matrix/search", `{"collection":"ws","query_text":"known"}`)
	p.must("POST", "/v1/matrix/search", `{"collection":"ws","vector":[1,2,3],"model":"openai/m"}`)
	status, _, found := p.do("POST", "/v1/collections/ws/points:get", `{"ids":["w1","w2"]}`)
	if status != http.StatusOK || strings.Contains(string(found), `"w2"`) || !strings.Contains(string(found), `"w1"`) {
		t.Errorf("stored: %s", found)
	}
}

// A server that is told to answer no search keeps no index and says so on every route; it applies points all the same, so that a
// start without that finds them. A kernel that there is not keeps a server from starting.
func TestAServerWithoutSearchSaysSoAndKeepsWhatIsStored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p, r := searchServer(t, dir, "embedders: []")
	p.must("PUT", "/v1/collections/ws", `{}`)
	p.must("PUT", "/v1/rulesets/rs", `{"collection":"ws","rules":[{"id":"a","when":"true","severity":"bonus","weight":0.1}]}`)
	p.must("POST", "/v1/collections/ws/points:upsert", `{"points":[{"id":"w1","payload":{"text":"welder"}}]}`)
	r.Close(time.Second)
	token := NewToken()
	start := func(change func(o *Options)) (*Running, error) {
		o, err := Dev(Options{Dir: dir, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0"}, token)
		if err != nil {
			t.Fatal(err)
		}
		change(&o)
		return Start(t.Context(), o)
	}
	if r, err := start(func(o *Options) { o.VectorKernel = "none" }); err == nil || !strings.Contains(err.Error(), "none") {
		if err == nil {
			r.Close(time.Second)
		}
		t.Errorf("a kernel that there is not: %v", err)
	}
	r, err := start(func(o *Options) { o.NoSearch = true })
	if err != nil {
		t.Fatal(err)
	}
	p = &searchPeer{t, "http://" + r.HTTPAddress, token}
	for _, call := range [][3]string{
		{"PUT", "/v1/collections/other", "{}"},
		{"GET", "/v1/collections/ws", ""},
		{"DELETE", "/v1/collections/ws", ""},
		{"GET", "/v1/collections", ""},
		{"GET", "/v1/collections/ws/stats", ""},
		{"POST", "/v1/collections/ws/points:upsert", `{"points":[{"id":"w2","payload":{"text":"x"}}]}`},
		{"POST", "/v1/collections/ws/points:delete", `{"points":[{"id":"w1"}]}`},
		{"POST", "/v1/collections/ws/points:get", `{"ids":["w1"]}`},
		{"POST", "/v1/collections/ws/points:count", "{}"},
		{"PUT", "/v1/rulesets/rs", `{"collection":"ws","rules":[{"id":"b","when":"true","severity":"block"}]}`},
		{"GET", "/v1/rulesets/rs", ""},
		{"GET", "/v1/rulesets", ""},
		{"POST", "/v1/matrix/search", `{"collection":"ws","query_text":"x"}`},
		{"POST", "/v1/embed", `{"text":"x"}`},
		{"POST", "/v1/commit", `{"ops":[{"vector_upsert":{"collection":"ws","point":{"id":"w3","payload":{"text":"x"}}}}]}`},
	} {
		status, _, got := p.refusal(call[0], call[1], call[2])
		if status != http.StatusBadRequest || got.Code != "INVALID_ARGUMENT" || got.Reason != "not_supported" {
			t.Errorf("%s %s: %d %+v", call[0], call[1], status, got)
		}
	}
	if totals := r.node.SearchTotals(); totals.Collections != 0 {
		t.Errorf("it keeps %+v", totals)
	}
	r.Close(time.Second)
	if r, err = start(func(o *Options) { o.Services = []string{"queue", "kv"} }); err != nil {
		t.Fatal(err)
	}
	if totals := r.node.SearchTotals(); totals.Collections != 0 {
		t.Errorf("where its doors are closed, it keeps %+v", totals)
	}
	r.Close(time.Second)
	if r, err = start(func(*Options) {}); err != nil {
		t.Fatal(err)
	}
	defer r.Close(time.Second)
	p = &searchPeer{t, "http://" + r.HTTPAddress, token}
	if status, _, found := p.do("POST", "/v1/collections/ws/points:count", "{}"); status != http.StatusOK || !strings.Contains(string(found), `"count":1`) {
		t.Errorf("afterwards: %d %s", status, found)
	}
}
