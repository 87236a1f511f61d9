package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// turns is an admission whose searches note when they have their turn.
type turns struct {
	admission
	order []string
}

// take fills turns that are free, and returns what ends them.
func (a *turns) take(t *testing.T, tenant string, n int) (leaves []func()) {
	t.Helper()
	for range n {
		leave, err := a.enter(t.Context(), tenant, 0)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	return leaves
}

// wait has a search wait that ends as soon as it has its turn.
func (a *turns) wait(ctx context.Context, tenant, name string) {
	go func() {
		leave, err := a.enter(ctx, tenant, 4)
		if err != nil {
			a.order = append(a.order, name+" gave up")
			return
		}
		a.order = append(a.order, name)
		leave()
	}()
	synctest.Wait()
}

// end ends searches, and sees that nothing is left over when the last one has ended.
func (a *turns) end(t *testing.T, leaves []func()) {
	t.Helper()
	for _, leave := range leaves {
		leave()
	}
	synctest.Wait()
	if a.running != 0 || a.waiting != 0 || len(a.queues) != 0 || len(a.turns) != 0 || len(a.holds) != 0 {
		t.Errorf("left over: %+v", &a.admission)
	}
}

func TestSearchesWaitForTheirTurnAndTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a turns
		all, each := searchesAtOnce()
		var leaves []func()
		for i := 0; len(leaves) < all; i++ {
			leaves = append(leaves, a.take(t, fmt.Sprint("filler ", i), min(each, all-len(leaves)))...)
		}
		ctx, cancel := context.WithCancel(t.Context())
		a.wait(t.Context(), "acme", "acme 1")
		a.wait(t.Context(), "acme", "acme 2")
		a.wait(ctx, "acme", "acme 3")
		a.wait(t.Context(), "rival", "rival 1")
		if _, err := a.enter(t.Context(), "other", 4); !errors.Is(err, core.Unavailable{Reason: "overloaded", Limit: "searches_waiting"}) {
			t.Errorf("beyond the limit: %v", err)
		}
		cancel()
		synctest.Wait()
		leaves[0]()
		synctest.Wait()
		if want := []string{"acme 3 gave up", "acme 1", "rival 1", "acme 2"}; !slices.Equal(a.order, want) {
			t.Errorf("turns %q, want %q", a.order, want)
		}
		a.end(t, leaves[1:])
	})
}

// What one tenant may run at once keeps neither another's searches nor calls that are none from running.
func TestATenantMayRunOneSearchLessThanThereAreThreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a turns
		_, each := searchesAtOnce()
		if each != max(1, runtime.GOMAXPROCS(0)-1) {
			t.Errorf("%d at once of a tenant", each)
		}
		leaves := a.take(t, "acme", each)
		a.wait(t.Context(), "acme", "acme 1")
		a.wait(t.Context(), "rival", "rival 1")
		if want := []string{"rival 1"}; !slices.Equal(a.order, want) {
			t.Errorf("turns %q, want %q", a.order, want)
		}
		rivals := a.take(t, "rival", 1)
		rivals[0]() // makes room, of which acme has none
		synctest.Wait()
		if want := []string{"rival 1"}; !slices.Equal(a.order, want) {
			t.Errorf("when a rival's has ended: turns %q, want %q", a.order, want)
		}
		leaves[0]()
		synctest.Wait()
		if want := []string{"rival 1", "acme 1"}; !slices.Equal(a.order, want) {
			t.Errorf("turns %q, want %q", a.order, want)
		}
		a.end(t, leaves[1:])
	})
}

// Shard time stands still without writes, and a wall clock may be late: what has ended by either has ended.
func TestCredentialsAreJudgedAtTheLaterOfBothClocks(t *testing.T) {
	r := newRig(t, Limits{})
	if _, err := r.n.Namespace(context.Background(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	at := func() time.Time {
		t.Helper()
		out, err := pb.NewSearchServiceClient(r.conn).Search(as("acme/all"), &pb.SearchRequest{Collection: "ws", QueryText: "x"})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetGate().GetValidAt().AsTime()
	}
	wall := r.clock.Wall()
	r.n.behind = time.Hour
	if got := at(); !got.Equal(wall) {
		t.Errorf("judged at %s, the wall clock says %s", got, wall)
	}
	r.n.behind = -time.Hour
	if got := at(); !got.Equal(wall.Add(time.Hour)) {
		t.Errorf("judged at %s, the shard's clock says %s", got, wall.Add(time.Hour))
	}
}

func TestAnAtomicUpsertWithOneBadPointWritesNoneAndOtherwiseTheOthersAreWritten(t *testing.T) {
	r := newRig(t, Limits{})
	r.addTask("acme", testID(1))
	client := pb.NewSearchServiceClient(r.conn)
	in := &pb.UpsertPointsRequest{Collection: "ws", Atomic: true}
	for i := range 1000 {
		in.Points = append(in.Points, &pb.Point{Id: fmt.Sprintf("w%d", i), Vector: []float32{1, 0}, Model: "m"})
	}
	in.Points[700].Payload = []byte(`{"role":1}`)
	_, err := client.UpsertPoints(as("acme/all"), in)
	if e := errorOf(t, err); e.GetReason() != "field_type" || e.GetField() != "points[700].payload.role" || len(r.n.commits) != 0 {
		t.Errorf("atomic: %v, %d commits", e, len(r.n.commits))
	}
	in.Atomic = false
	out, err := client.UpsertPoints(as("acme/all"), in)
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for i, one := range out.GetResults() {
		if one.GetError() != nil {
			bad++
			if i != 700 || one.GetError().GetField() != "points[700].payload.role" {
				t.Errorf("point %d: %v", i, one.GetError())
			}
		}
	}
	if bad != 1 || len(r.n.commits) != 999 {
		t.Errorf("%d refused, %d written", bad, len(r.n.commits))
	}
	in.Points[700].Payload, in.Atomic = nil, true
	if _, err := client.UpsertPoints(as("acme/all"), in); err != nil || len(r.n.commits) != 1000 || len(r.n.commits[999].Ops) != 1000 {
		t.Errorf("all good: %v, %d commits", err, len(r.n.commits))
	}
}

func TestVectorsThatDoNotFitAreRefusedByName(t *testing.T) {
	r := newRig(t, Limits{})
	r.addTask("acme", testID(1))
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		point         *pb.Point
		reason, field string
	}{
		"another length": {&pb.Point{Id: "a", Model: "m", Vector: []float32{1}}, "dim_mismatch", "points[0].vector"},
		"no model":       {&pb.Point{Id: "a", Vector: []float32{1, 0}}, "", "points[0].model"},
		"another model":  {&pb.Point{Id: "a", Model: "n", Vector: []float32{1, 0}}, "model_mismatch", "points[0].model"},
		"no number":      {&pb.Point{Id: "a", Model: "m", Vector: []float32{nan, 0}}, "vector_invalid", "points[0].vector"},
		"no id":          {&pb.Point{Model: "m", Vector: []float32{1, 0}}, "", "points[0].id"},
		"a bad version":  {&pb.Point{Id: "a", IfVersion: "x"}, "", "points[0].if_version"},
	} {
		out, err := pb.NewSearchServiceClient(r.conn).UpsertPoints(as("acme/all"), &pb.UpsertPointsRequest{Collection: "ws", Points: []*pb.Point{c.point}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e := out.GetResults()[0].GetError(); e.GetReason() != c.reason || e.GetField() != c.field {
			t.Errorf("%s: %v", name, e)
		}
	}
	if len(r.n.commits) != 0 {
		t.Error("a point that does not fit was proposed")
	}
}

// A text that cannot be embedded now writes nothing, and the completion can be repeated.
func TestAnEffectWhoseTextCannotBeEmbeddedLeavesTheAttemptAsItWas(t *testing.T) {
	r := newRig(t, Limits{})
	r.n.payloadText = "down"
	item := &pb.SettleItem{Id: testID(1), Token: 4, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}}, Effects: &pb.Effects{Ops: []*pb.Op{
		{Op: &pb.Op_VectorUpsert{VectorUpsert: &pb.VectorUpsert{Collection: "ws", Point: &pb.Point{Id: "a", Payload: []byte("{}")}}}},
	}}}
	out, err := pb.NewTaskServiceClient(r.conn).Settle(as("acme/all"), &pb.SettleRequest{Items: []*pb.SettleItem{item}})
	var e *pb.Error
	if err != nil {
		e = errorOf(t, err)
	} else {
		e = out.GetResults()[0].GetError()
	}
	if e.GetCode() != "UNAVAILABLE" || e.GetReason() != "embed_unavailable" || e.GetRetryAfter().AsDuration().Seconds() != 5 || e.GetOutcome() != pb.Error_REFUSED {
		t.Errorf("%v", e)
	}
	if len(r.n.commits) != 0 {
		t.Error("something was proposed")
	}
}

func TestProtectedFieldsAreAbsentWithoutTheirScope(t *testing.T) {
	r := newRig(t, Limits{})
	client := pb.NewSearchServiceClient(r.conn)
	for scopes, want := range map[string]string{"search:read": `{"role":"a"}`, "search:read,search:protected": `{"role":"a","secret":"s"}`} {
		ctx := as("acme/" + scopes)
		if _, err := r.n.Namespace(context.Background(), "acme", "default", true); err != nil {
			t.Fatal(err)
		}
		out, err := client.Search(ctx, &pb.SearchRequest{Collection: "ws", QueryText: "x"})
		if err != nil || string(out.GetResults()[0].GetPayload()) != want {
			t.Errorf("%s: search: %v, %v", scopes, out, err)
		}
		got, err := client.GetPoints(ctx, &pb.GetPointsRequest{Collection: "ws", Ids: []string{"a"}})
		if err != nil || string(got.GetPoints()[0].GetPayload()) != want {
			t.Errorf("%s: get: %v, %v", scopes, got, err)
		}
	}
	hidden := withoutProtected(&core.Collection{Fields: []core.SchemaField{{Name: "a", Protected: true}}}, []byte(`{"a":1,"b":{"a":2},"\u0061":3}`), &r.s.l)
	if string(hidden) != `{"b":{"a":2}}` {
		t.Errorf("shown: %s", hidden)
	}
}

// A search that is recorded is answered after what keeps it is applied, and not when that fails.
func TestARecordedSearchIsAnsweredWhenItIsKept(t *testing.T) {
	r := newRig(t, Limits{})
	client := pb.NewSearchServiceClient(r.conn)
	if _, err := r.n.Namespace(context.Background(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	out, err := client.Search(as("acme/all"), &pb.SearchRequest{Collection: "ws", QueryText: "x", Record: true, Judge: &pb.Judge{Ruleset: "r"}})
	if err != nil {
		t.Fatal(err)
	}
	op, ok := r.n.commits[len(r.n.commits)-1].Ops[0].(*core.RecordingPut)
	if !ok || showSearchID(op.UID, op.ID) != out.GetSearchId() {
		t.Fatalf("search id %s, kept %+v", out.GetSearchId(), r.n.commits)
	}
	var kept struct {
		Request struct {
			QueryText string `json:"query_text"`
			Vector    []byte
		}
		Results []struct {
			ID      string
			Payload any
		}
		Judge struct{ Ruleset string }
		At    []struct{ Index string }
	}
	if err := json.Unmarshal(op.Data, &kept); err != nil {
		t.Fatalf("%s: %v", op.Data, err)
	}
	if kept.Request.QueryText != "x" || len(kept.Request.Vector) != 8 || len(kept.Results) != 1 || kept.Results[0].ID != "w1" ||
		kept.Results[0].Payload != nil || kept.Judge.Ruleset != "r@2" || kept.At[0].Index != "9" {
		t.Errorf("kept %s", op.Data)
	}
	r.n.ended = func([]core.Commit) core.Fact { return core.Unavailable{Reason: "no_leader"} }
	if _, err := client.Search(as("acme/all"), &pb.SearchRequest{Collection: "ws", QueryText: "x", Record: true}); err == nil {
		t.Error("a search that was not kept was answered")
	}
}

func TestNullIsLeftOutInSearchesAndUnknownFieldsAreRefused(t *testing.T) {
	r := newRESTRig(t, Limits{})
	r.addTask("acme", testID(1))
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
	var l Limits
	l, _ = l.withDefaults()
	rapid.Check(t, func(t *rapid.T) {
		in := drawSearch(t)
		w := jsonWriter{l: &l}
		w.Open('{')
		writeSearchRequest(&w, in)
		w.Close('}')
		got := new(pb.SearchRequest)
		if fact := decodeJSON(w.B, &l, got, searchFields); fact != nil {
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
		w.Object("gate", func() { writeGate(&w.Writer, in.Gate) })
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
	var l Limits
	l, _ = l.withDefaults()
	f.Fuzz(func(t *testing.T, body string) {
		for _, read := range []func([]byte) core.Fact{
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.SearchRequest), searchFields) },
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.EmbedRequest), embedFields) },
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.UpsertPointsRequest), upsertFields) },
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.Collection), collectionFields) },
			func(b []byte) core.Fact { return decodeJSON(b, &l, new(pb.PutRulesetRequest), putRulesetFields) },
		} {
			if fact := read([]byte(body)); fact != nil && rowOf(errors.New("x")).http == rowOf(fact).http {
				t.Errorf("%q is answered as a fault of the server: %v", body, fact)
			}
		}
	})
}

// A collection that is made again after its removal takes nothing from the one that was removed, even while the node's copy still
// has that one.
func TestACollectionTakesNothingFromOneThatWasRemoved(t *testing.T) {
	r := newRig(t, Limits{})
	was := fakeDefinition()
	was.Model, was.Dim = "another", 9
	r.n.defined, r.n.removed = &was, true
	got, err := pb.NewSearchServiceClient(r.conn).SetCollection(as("acme/all"), &pb.SetCollectionRequest{Collection: &pb.Collection{Name: "ws"}})
	if c := got.GetCollection(); err != nil || c.GetModel() != "m" || c.GetDim() != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
