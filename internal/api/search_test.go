package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// turns is an admission whose searches note when they have their turn.
type turns struct {
	admission
	order []string
}

// newTurns has nothing running.
func newTurns() *turns { return &turns{admission: admission{clock: env.SystemClock{}}} }

// take fills turns that are free, and returns what ends them.
func (a *turns) take(t *testing.T, tenant string, n int) (leaves []func()) {
	t.Helper()
	for range n {
		running, end := a.running, make(chan struct{})
		go func() {
			if err := a.do(t.Context(), tenant, 0, func() { <-end }); err != nil {
				t.Error(err)
			}
		}()
		if synctest.Wait(); a.running != running+1 {
			t.Fatalf("%d run, want one more than %d", a.running, running)
		}
		leaves = append(leaves, func() { close(end) })
	}
	return leaves
}

// wait has a search wait that ends as soon as it has its turn.
func (a *turns) wait(ctx context.Context, tenant, name string) {
	go func() {
		if err := a.do(ctx, tenant, 4, func() { a.order = append(a.order, name) }); err != nil {
			a.order = append(a.order, name+" gave up")
		}
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
		a := newTurns()
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
		if err := a.do(t.Context(), "other", 4, nil); !errors.Is(err, core.Unavailable{Reason: "overloaded", Limit: "searches_waiting"}) {
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
		a := newTurns()
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

// A search that waited runs elsewhere: its panic is its caller's all the same, and it holds no other up.
func TestASearchThatPanicsInItsTurnEndsForItsCallerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTurns()
		_, each := searchesAtOnce()
		leaves := a.take(t, "acme", each)
		got := make(chan any, 1)
		go func() {
			defer func() { got <- recover() }()
			_ = a.do(t.Context(), "acme", 4, func() { panic("out of range") })
		}()
		synctest.Wait()
		a.wait(t.Context(), "acme", "acme 2")
		leaves[0]()
		synctest.Wait()
		if text := fmt.Sprint(<-got); !strings.Contains(text, "out of range") || !strings.Contains(text, "search_test.go") {
			t.Errorf("the caller has %s", text)
		}
		if want := []string{"acme 2"}; !slices.Equal(a.order, want) {
			t.Errorf("turns %q, want %q", a.order, want)
		}
		a.end(t, leaves[1:])
	})
}

// A search whose time is over while it runs is waited for: what it writes belongs to its caller.
func TestASearchThatRunsIsWaitedForAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTurns()
		_, each := searchesAtOnce()
		leaves := a.take(t, "acme", each)
		ctx, cancel := context.WithCancel(t.Context())
		end, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- a.do(ctx, "acme", 4, func() { <-end }) }()
		synctest.Wait()
		leaves[0]()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the caller went on while its search ran")
		}
		close(end)
		synctest.Wait()
		if err := <-ended; err != nil {
			t.Errorf("it was run, and its caller is told %v", err)
		}
		a.end(t, leaves[1:])
	})
}

// Shard time stands still without writes, and a wall clock may be late: what has ended by either has ended.
func TestCredentialsAreJudgedAtTheLaterOfBothClocks(t *testing.T) {
	r := newRig(t, edge.Limits{})
	if _, err := r.n.Namespace(context.Background(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	at := func() time.Time {
		t.Helper()
		out, err := pb.NewSearchServiceClient(r.conn).Search(apitest.As("acme/all"), &pb.SearchRequest{Collection: "ws", QueryText: "x"})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetGate().GetValidAt().AsTime()
	}
	wall := r.clock.Wall()
	r.n.Behind = time.Hour
	if got := at(); !got.Equal(wall) {
		t.Errorf("judged at %s, the wall clock says %s", got, wall)
	}
	r.n.Behind = -time.Hour
	if got := at(); !got.Equal(wall.Add(time.Hour)) {
		t.Errorf("judged at %s, the shard's clock says %s", got, wall.Add(time.Hour))
	}
}

func TestAnAtomicUpsertWithOneBadPointWritesNoneAndOtherwiseTheOthersAreWritten(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	client := pb.NewSearchServiceClient(r.conn)
	in := &pb.UpsertPointsRequest{Collection: "ws", Atomic: true}
	for i := range 1000 {
		in.Points = append(in.Points, &pb.Point{Id: fmt.Sprintf("w%d", i), Vector: []float32{1, 0}, Model: "m"})
	}
	in.Points[700].Payload = []byte(`{"role":1}`)
	_, err := client.UpsertPoints(apitest.As("acme/all"), in)
	if e := apitest.ErrorOf(t, err); e.GetReason() != "field_type" || e.GetField() != "points[700].payload.role" || len(r.n.Commits) != 0 {
		t.Errorf("atomic: %v, %d commits", e, len(r.n.Commits))
	}
	in.Atomic = false
	out, err := client.UpsertPoints(apitest.As("acme/all"), in)
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
	if bad != 1 || len(r.n.Commits) != 999 {
		t.Errorf("%d refused, %d written", bad, len(r.n.Commits))
	}
	in.Points[700].Payload, in.Atomic = nil, true
	if _, err := client.UpsertPoints(apitest.As("acme/all"), in); err != nil || len(r.n.Commits) != 1000 || len(r.n.Commits[999].Ops) != 1000 {
		t.Errorf("all good: %v, %d commits", err, len(r.n.Commits))
	}
}

func TestVectorsThatDoNotFitAreRefusedByName(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
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
		out, err := pb.NewSearchServiceClient(r.conn).UpsertPoints(apitest.As("acme/all"), &pb.UpsertPointsRequest{Collection: "ws", Points: []*pb.Point{c.point}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e := out.GetResults()[0].GetError(); e.GetReason() != c.reason || e.GetField() != c.field {
			t.Errorf("%s: %v", name, e)
		}
	}
	if len(r.n.Commits) != 0 {
		t.Error("a point that does not fit was proposed")
	}
}

// A text that cannot be embedded now writes nothing, and the completion can be repeated.
func TestAnEffectWhoseTextCannotBeEmbeddedLeavesTheAttemptAsItWas(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.PayloadText = "down"
	item := &pb.SettleItem{Id: apitest.ID(1), Token: 4, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}}, Effects: &pb.Effects{Ops: []*pb.Op{
		{Op: &pb.Op_VectorUpsert{VectorUpsert: &pb.VectorUpsert{Collection: "ws", Point: &pb.Point{Id: "a", Payload: []byte("{}")}}}},
	}}}
	out, err := pb.NewTaskServiceClient(r.conn).Settle(apitest.As("acme/all"), &pb.SettleRequest{Items: []*pb.SettleItem{item}})
	var e *pb.Error
	if err != nil {
		e = apitest.ErrorOf(t, err)
	} else {
		e = out.GetResults()[0].GetError()
	}
	if e.GetCode() != "UNAVAILABLE" || e.GetReason() != "embed_unavailable" || e.GetRetryAfter().AsDuration().Seconds() != 5 || e.GetOutcome() != pb.Error_REFUSED {
		t.Errorf("%v", e)
	}
	if len(r.n.Commits) != 0 {
		t.Error("something was proposed")
	}
}

func TestProtectedFieldsAreAbsentWithoutTheirScope(t *testing.T) {
	r := newRig(t, edge.Limits{})
	client := pb.NewSearchServiceClient(r.conn)
	for scopes, want := range map[string]string{"search:read": `{"role":"a"}`, "search:read,search:protected": `{"role":"a","secret":"s"}`} {
		ctx := apitest.As("acme/" + scopes)
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
	hidden := withoutProtected(&core.Collection{Fields: []core.SchemaField{{Name: "a", Protected: true}}}, []byte(`{"a":1,"b":{"a":2},"\u0061":3}`), &r.s.Limits)
	if string(hidden) != `{"b":{"a":2}}` {
		t.Errorf("shown: %s", hidden)
	}
}

// A search that is recorded is answered after what keeps it is applied, and not when that fails.
func TestARecordedSearchIsAnsweredWhenItIsKept(t *testing.T) {
	r := newRig(t, edge.Limits{})
	client := pb.NewSearchServiceClient(r.conn)
	if _, err := r.n.Namespace(context.Background(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	out, err := client.Search(apitest.As("acme/all"), &pb.SearchRequest{Collection: "ws", QueryText: "x", Record: true, Judge: &pb.Judge{Ruleset: "r"}})
	if err != nil {
		t.Fatal(err)
	}
	op, ok := r.n.Commits[len(r.n.Commits)-1].Ops[0].(*core.RecordingPut)
	if !ok || showSearchID(op.UID, op.ID) != out.GetSearchId() {
		t.Fatalf("search id %s, kept %+v", out.GetSearchId(), r.n.Commits)
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
	r.n.Ended = func([]core.Commit) core.Fact { return core.Unavailable{Reason: "no_leader"} }
	if _, err := client.Search(apitest.As("acme/all"), &pb.SearchRequest{Collection: "ws", QueryText: "x", Record: true}); err == nil {
		t.Error("a search that was not kept was answered")
	}
}

// A collection that is made again after its removal takes nothing from the one that was removed, even while the node's copy still
// has that one.
func TestACollectionTakesNothingFromOneThatWasRemoved(t *testing.T) {
	r := newRig(t, edge.Limits{})
	was := apitest.Definition()
	was.Model, was.Dim = "another", 9
	r.n.Defined, r.n.Removed = &was, true
	got, err := pb.NewSearchServiceClient(r.conn).SetCollection(apitest.As("acme/all"), &pb.SetCollectionRequest{Collection: &pb.Collection{Name: "ws"}})
	if c := got.GetCollection(); err != nil || c.GetModel() != "m" || c.GetDim() != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
