package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pickyProvider is a provider in OpenAI's protocol whose model takes no text that holds the word bad.
func pickyProvider(t *testing.T) *httptest.Server {
	t.Helper()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var in struct{ Input []json.RawMessage }
		if err := json.NewDecoder(req.Body).Decode(&in); err != nil || strings.Contains(fmt.Sprintf("%s", in.Input), "bad") {
			http.Error(w, `{"error":{"message":"secret of the provider"}}`, http.StatusRequestEntityTooLarge)
			return
		}
		var data []string
		for i, text := range in.Input {
			data = append(data, fmt.Sprintf(`{"index":%d,"embedding":[1,2,%d]}`, i, len(text)))
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(data, ","))
	}))
	t.Cleanup(provider.Close)
	return provider
}

// A text that the model refuses is named at each door, and fails by itself where each point does.
func TestATextThatTheModelRefusesFailsByItself(t *testing.T) {
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), fmt.Sprintf("embedders: [{name: far, kind: openai, url: %q, model: m, dim: 3}]", pickyProvider(t).URL))
	defer r.Close(time.Second)
	p.must("PUT", "/v1/collections/ws", `{"embedder":"far"}`)
	for range 3 { // in all more than what closes a provider that fails
		for _, c := range [][3]string{
			{"/v1/embed", `{"model":"far","texts":["good","bad"]}`, "texts[1]"},
			{"/v1/matrix/search", `{"collection":"ws","query_text":"bad"}`, "query_text"},
			{"/v1/collections/ws/points:upsert", `{"points":[{"id":"a","payload":{"text":"bad"}},{"id":"b","payload":{"text":"good"}}]}`, "points[0].payload"},
			{"/v1/collections/ws/points:upsert", `{"atomic":true,"points":[{"id":"c","payload":{"text":"good"}},{"id":"d","payload":{"text":"bad"}}]}`, "points[1].payload"},
			{"/v1/commit", `{"ops":[{"vector_upsert":{"collection":"ws","point":{"id":"e","payload":{"text":"bad"}}}}]}`, "ops[0].point.payload"},
		} {
			status, _, got := p.refusal("POST", c[0], c[1])
			if got.Code != "INVALID_ARGUMENT" || got.Reason != "embed_refused" || got.Field != c[2] || status != 200 && status != http.StatusBadRequest {
				t.Errorf("%s %s: %d %+v", c[0], c[1], status, got)
			}
		}
		status, _, answer := p.do("POST", "/v1/embeddings", `{"model":"far","input":["good","bad"]}`)
		if status != http.StatusBadRequest || !strings.Contains(string(answer), `"param":"input[1]"`) || strings.Contains(string(answer), "secret") {
			t.Errorf("OpenAI's door: %d %s", status, answer)
		}
	}
	for _, c := range []struct {
		model  string
		status int
	}{{"far", http.StatusOK}, {"default", http.StatusBadRequest}} {
		status, _, answer := p.do("POST", "/v1/embeddings", `{"model":"`+c.model+`","input":[[100,200],[300]],"encoding_format":"base64"}`)
		if status != c.status || status != http.StatusOK && !strings.Contains(string(answer), `"code":"token_input"`) {
			t.Errorf("tokens to %s: %d %s", c.model, status, answer)
		}
	}
	_, _, found := p.do("POST", "/v1/collections/ws/points:get", `{"ids":["a","b","c","d","e"]}`)
	if got := strings.Count(string(found), `"id"`); got != 1 || !strings.Contains(string(found), `"b"`) {
		t.Errorf("stored: %s", found)
	}
}
