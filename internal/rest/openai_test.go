package rest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

type openAIAnswer struct {
	Object string `json:"object"`
	Data   []struct {
		Object    string          `json:"object"`
		Index     int             `json:"index"`
		Embedding json.RawMessage `json:"embedding"`
	} `json:"data"`
	Model string `json:"model"`
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	} `json:"usage"`
}

func TestTheOpenAIDoorEmbedsAsTheOwnOneDoes(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	c := readContract(t)
	route := routeNamed(t, "POST /v1/embeddings")
	ask := func(body string) (out openAIAnswer) {
		t.Helper()
		a := r.send(r.request("POST", "/v1/embeddings", "acme/all", body)).expect(t, body, 200)
		c.checkAnswer(route, a)
		if err := json.Unmarshal([]byte(a.body), &out); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		return out
	}
	var own struct {
		Model   string      `json:"model"`
		Vectors [][]float32 `json:"vectors"`
		Tokens  []int       `json:"tokens"`
	}
	a := r.send(r.request("POST", "/v1/embed", "acme/all", `{"texts":["a b","c"]}`)).expect(t, "embed", 200)
	if err := json.Unmarshal([]byte(a.body), &own); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"input":["a b","c"]}`, `{"input":["a b","c"],"model":"default","encoding_format":"float"}`,
		`{"input":["a b","c"],"encoding_format":"base64","dimensions":2,"user":"me"}`, `{"input":["a b","c"],"model":null,"dimensions":null}`,
	} {
		got := ask(body)
		if got.Object != "list" || got.Model != own.Model || len(got.Data) != 2 || got.Usage.Prompt != own.Tokens[0]+own.Tokens[1] || got.Usage.Total != got.Usage.Prompt {
			t.Errorf("%s: %+v", body, got)
		}
		for i, d := range got.Data {
			if d.Object != "embedding" || d.Index != i || !slices.Equal(openAIVector(t, d.Embedding), own.Vectors[i]) {
				t.Errorf("%s: %d: %+v, want %v", body, i, d, own.Vectors[i])
			}
		}
	}
	if got := ask(`{"input":"c"}`); len(got.Data) != 1 || !slices.Equal(openAIVector(t, got.Data[0].Embedding), own.Vectors[1]) {
		t.Errorf("one text: %+v", got)
	}
}

// Tokens go to an embedder that takes them as they are, a list of them as one text.
func TestTokensGoToAnEmbedderThatTakesThem(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	e := r.embedder
	e.Tokens = true
	for body, want := range map[string][]string{
		`{"input":[1,2, 4294967295]}`: {"[1,2,4294967295]"}, `{"input":[[1, 2],[3]]}`: {"[1,2]", "[3]"}, `{"input":[0]}`: {"[0]"},
	} {
		r.send(r.request("POST", "/v1/embeddings", "acme/all", body)).expect(t, body, 200)
		if !e.Last.Tokens || !slices.Equal(e.Last.Texts, want) {
			t.Errorf("%s: %+v, want %q", body, e.Last, want)
		}
	}
	r.send(r.request("POST", "/v1/embeddings", "acme/all", `{"input":["[1,2]"]}`)).expect(t, "a text like tokens", 200)
	if e.Last.Tokens {
		t.Error("a text was taken for tokens")
	}
}

// openAIVector reads numbers, or base64 of them.
func openAIVector(t *testing.T, b []byte) (out []float32) {
	t.Helper()
	var packed string
	if err := json.Unmarshal(b, &packed); err != nil {
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		return out
	}
	raw, err := base64.StdEncoding.DecodeString(packed)
	if err != nil || len(raw)%4 != 0 {
		t.Fatalf("%q: %v", packed, err)
	}
	for ; len(raw) > 0; raw = raw[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return out
}

func routeNamed(t *testing.T, name string) *Route {
	t.Helper()
	for _, r := range Routes() {
		if r.name() == name {
			return r
		}
	}
	t.Fatalf("route %s is missing", name)
	return nil
}

func TestTheOpenAIDoorRefusesInOpenAIsWords(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	c := readContract(t)
	route := routeNamed(t, "POST /v1/embeddings")
	many := `{"input":[` + strings.TrimSuffix(strings.Repeat(`"t",`, 2049), ",") + `]}`
	for _, row := range []struct {
		body, token, kind, code, param string
		status                         int
	}{
		{`{"input":[1,2]}`, "acme/all", "invalid_request_error", "token_input", "input", 400},
		{`{"input":[[1,2],[3]]}`, "acme/all", "invalid_request_error", "token_input", "input", 400},
		{`{"input":[[1,2],"a"]}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input", 400},
		{`{"input":[1,[2]]}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input", 400},
		{`{"input":[[1],[]]}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input[1]", 400},
		{`{"input":[1.5]}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input[0]", 400},
		{`{"input":[4294967296]}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input[0]", 400},
		{`{"input":[-1]}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input[0]", 400},
		{`{"input":[]}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input", 400},
		{`{"input":["a",""]}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input[1]", 400},
		{`{"input":{}}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input", 400},
		{`{}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "input", 400},
		{`{"input":"a","dimensions":3}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "dimensions", 400},
		{`{"input":"a","dimensions":0}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "dimensions", 400},
		{`{"input":"a","encoding_format":"hex"}`, "acme/all", "invalid_request_error", "INVALID_ARGUMENT", "encoding_format", 400},
		{`{"input":"a","vectors":1}`, "acme/all", "invalid_request_error", "unknown_field", "vectors", 400},
		{`{"input":"a","model":"none"}`, "acme/all", "invalid_request_error", "NOT_FOUND", "", 404},
		{`{"input":`, "acme/all", "invalid_request_error", "malformed", "input", 400},
		{many, "acme/all", "invalid_request_error", "TOO_LARGE", "input", 413},
		{`{"input":"a"}`, "", "authentication_error", "UNAUTHENTICATED", "", 401},
	} {
		a := r.send(r.request("POST", "/v1/embeddings", row.token, row.body)).expect(t, row.body, row.status)
		c.checkAnswer(route, a)
		var got struct {
			Error struct {
				Message, Type, Code string
				Param               *string
			}
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		param := ""
		if got.Error.Param != nil {
			param = *got.Error.Param
		}
		if e := got.Error; e.Message == "" || e.Type != row.kind || e.Code != row.code || param != row.param {
			t.Errorf("%s: %s, want %s %s at %q", core.Cut(row.body, 60), a.body, row.kind, row.code, row.param)
		}
	}
}
