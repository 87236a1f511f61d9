package rest

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func TestNullIsLeftOutInSearchesAndUnknownFieldsAreRefused(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	good := `{"collection":"ws","query_text":"x","vector":null,"k":null,"gate":{"roles":null,"valid_at":null,"ids_in":null},"judge":null,"merge":{"decay":null,"min_score":null},"min_index":null}`
	r.do("POST", "/v1/matrix/search", good).expect(t, "nulls", http.StatusOK)
	for body, want := range map[string][2]string{
		`{"collection":"ws","query_text":"x","tenant":"rival"}`:           {"unknown_field", "tenant"},
		`{"collection":"ws","query_text":"x","merge":{"words":0.1}}`:      {"unknown_field", "merge.words"},
		`{"collection":"ws","query_text":"x","gate":{"ids_in":[]}}`:       {"", "gate.ids_in"},
		`{"collection":"ws","query_text":"x","vector":[1,0],"model":"m"}`: {"", "query_text"},
		`{"collection":"ws"}`:                                                  {"", "query_text"},
		`{"collection":"ws","vector":[1,"a"],"model":"m"}`:                     {"", "vector[1]"},
		`{"collection":"ws","vector":"!","model":"m"}`:                         {"", "vector"},
		`{"collection":"ws","vector":[1e99,0],"model":"m"}`:                    {"vector_invalid", "vector"},
		`{"collection":"ws","query_text":"x","merge":{"method":"rrf"}}`:        {"not_supported", "merge.method"},
		`{"collection":"ws","query_text":"x","gate":{"params":[1]}}`:           {"", "gate.params"},
		`{"collection":"ws","query_text":"x","merge":{"dense":-1}}`:            {"", "merge.dense"},
		`{"collection":"ws","query_text":"x","merge":{"lexical":-1}}`:          {"", "merge.lexical"},
		`{"collection":"ws","vector":[1,0],"model":"m","merge":{"lexical":1}}`: {"", "merge.lexical"},
		`{"collection":"ws","query_text":"x","judge":{"ruleset":"r@0"}}`:       {"", "judge.ruleset"},
		`{"collection":"ws","query_text":"x","merge":{"decay":{"field":"a"}}}`: {"", "merge.decay.half_life"},
	} {
		e := failed(t, r.do("POST", "/v1/matrix/search", body).expect(t, body, http.StatusBadRequest))
		if e.Reason != want[0] || e.Field != want[1] {
			t.Errorf("%s: %+v", body, e)
		}
	}
}

// What REST reads of a search is what gRPC reads of the same message.
func TestASearchReadFromJSONIsTheMessageItWasWrittenFrom(t *testing.T) {
	var l edge.Limits
	l, _ = l.WithDefaults()
	rapid.Check(t, func(t *rapid.T) {
		in := drawSearch(t)
		w := jsonWriter{l: &l}
		w.Open('{')
		writeSearchRequest(&w, in)
		w.Close('}')
		got := new(pb.SearchRequest)
		if fact := decodeJSON(w.B, &l, got, searchRequestFields); fact != nil {
			t.Fatalf("%s: %v", w.B, fact)
		}
		if !proto.Equal(got, in) {
			t.Fatalf("%s\nread as %v\nwant    %v", w.B, got, in)
		}
	})
}

func drawSearch(t *rapid.T) *pb.SearchRequest {
	text := rapid.StringMatching(`[a-z"\\é ]{1,8}`)
	texts := rapid.SliceOfN(text, 0, 3)
	in := &pb.SearchRequest{
		Collection: "ws", QueryText: text.Draw(t, "text"), K: rapid.Uint32Range(0, 1000).Draw(t, "k"), Exact: rapid.Bool().Draw(t, "exact"),
		MinIndex: rapid.Uint64().Draw(t, "index"), Candidates: rapid.Uint32Range(0, 100).Draw(t, "candidates"),
	}
	if rapid.Bool().Draw(t, "vector") {
		in.Vector = rapid.SliceOfN(rapid.Float32Range(-1e9, 1e9), 1, 8).Draw(t, "numbers")
	}
	if rapid.Bool().Draw(t, "gate") {
		in.Gate = &pb.Gate{
			Roles: nilIfEmpty(texts.Draw(t, "roles")), CredentialsAll: nilIfEmpty(texts.Draw(t, "creds")), Client: text.Draw(t, "client"),
			IdsIn: nilIfEmpty(texts.Draw(t, "in")), Filter: text.Draw(t, "filter"), Params: []byte(`{"a": [1]}`),
		}
	}
	if rapid.Bool().Draw(t, "merge") {
		in.Merge = &pb.Merge{Lexical: new(rapid.Float64Range(0, 10).Draw(t, "lexical")), Dense: new(rapid.Float64Range(0, 10).Draw(t, "dense")), MinScore: new(rapid.Float64().Draw(t, "min"))}
	}
	if rapid.Bool().Draw(t, "payload") {
		in.Payload = new(rapid.Bool().Draw(t, "payload"))
	}
	return in
}

func nilIfEmpty(s []string) []string {
	if len(s) == 0 {
		return nil
	}
	return s
}

// writeGate writes a gate as a client of REST would.
func writeGate(w *jsonWriter, g *pb.Gate) {
	w.Strings("roles", g.GetRoles())
	w.OptStr("role_mode", g.GetRoleMode())
	w.Strings("credentials_all", g.GetCredentialsAll())
	if g.GetValidAt() != nil {
		w.Time("valid_at", g.GetValidAt().AsTime())
	}
	w.OptStr("client", g.GetClient())
	w.Strings("ids_in", g.GetIdsIn())
	w.Strings("ids_not_in", g.GetIdsNotIn())
	w.OptStr("filter", g.GetFilter())
	w.JSON("params", g.GetParams())
}

// writeSearchRequest writes a message as a client of REST would.
func writeSearchRequest(w *jsonWriter, in *pb.SearchRequest) {
	w.Str("collection", in.GetCollection())
	w.Str("query_text", in.GetQueryText())
	w.OptFloats("vector", in.GetVector())
	w.Count("k", uint64(in.GetK()))
	w.Bool("exact", in.GetExact())
	w.Exact("min_index", in.GetMinIndex())
	w.Count("candidates", uint64(in.GetCandidates()))
	if in.Gate != nil {
		w.Object("gate", func() { writeGate(w, in.Gate) })
	}
	if in.Merge != nil {
		w.Object("merge", func() {
			w.Real("dense", in.GetMerge().GetDense())
			w.Real("lexical", in.GetMerge().GetLexical())
			w.Real("min_score", in.GetMerge().GetMinScore())
		})
	}
	if in.Payload != nil {
		w.Bool("payload", in.GetPayload())
	}
}

func FuzzBodiesOfSearchEndInAnAnswer(f *testing.F) {
	for _, s := range goodRESTRequests() {
		if strings.Contains(s.path, "collections") || strings.Contains(s.path, "matrix") || strings.Contains(s.path, "embed") || strings.Contains(s.path, "rulesets") {
			f.Add(s.body)
		}
	}
	var l edge.Limits
	l, _ = l.WithDefaults()
	f.Fuzz(func(t *testing.T, body string) {
		for _, read := range []func([]byte) core.Fact{
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.SearchRequest), searchRequestFields) },
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.EmbedRequest), embedRequestFields) },
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.UpsertPointsRequest), upsertPointsFields) },
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.Collection), collectionFields) },
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.PutRulesetRequest), putRulesetFields) },
		} {
			if fact := read([]byte(body)); fact != nil && edge.RowOf(errors.New("x")).HTTP == edge.RowOf(fact).HTTP {
				t.Errorf("%q is answered as a fault of the server: %v", body, fact)
			}
		}
	})
}
