package rest

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Beyond the searches that may wait one is sent away at once, and told when to come again; those that wait are served.
func TestASearchThatFindsTooManyWaitingIsToldWhenToComeAgain(t *testing.T) {
	r := newRESTRig(t, edge.Limits{SearchesWaiting: 2})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	release := make(chan struct{})
	r.n.OnSearch = func(_ context.Context, _ *core.SearchQuery) (*core.SearchAnswer, error) {
		<-release
		return &core.SearchAnswer{Plan: "scan"}, nil
	}
	const body = `{"collection":"ws","query_text":"x"}`
	answers := make(chan answer)
	taken := int64(0)
	for st := (api.SearchStats{}); st.Waiting < 2; { // those before have turns
		go func() { answers <- r.send(r.request("POST", "/v1/matrix/search", "acme/all", body)) }()
		taken++
		apitest.Eventually(t, "it has a turn or waits", func() bool { st = r.s.SearchStats(); return int64(st.Running)+st.Waiting == taken })
	}
	for _, path := range []string{"/v1/matrix/search", "/v1/collections/ws/points:count"} {
		ask := body
		if strings.HasSuffix(path, "count") {
			ask = "{}"
		}
		a := r.do("POST", path, ask).expect(t, path, http.StatusServiceUnavailable)
		e := failed(t, a)
		if e.Code != "UNAVAILABLE" || e.Reason != "overloaded" || e.Limit != "searches_waiting" || e.Outcome != "refused" || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %s, Retry-After %q", path, a.body, a.header.Get("Retry-After"))
		}
	}
	close(release)
	for range taken {
		(<-answers).expect(t, "one that was let in", http.StatusOK)
	}
	if s := r.s.SearchStats(); s.Running != 0 || s.Waiting != 0 {
		t.Errorf("left over: %+v", s)
	}
}

// A search waits for its index within its deadline. It takes no turn meanwhile, but is one of those that may wait.
func TestASearchWaitsForItsIndexWithinItsDeadlineAndTakesNoTurn(t *testing.T) {
	r := newRESTRig(t, edge.Limits{SearchesWaiting: 2})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	r.n.IndexLoaded = make(chan struct{})
	const body = `{"collection":"ws","query_text":"x"`
	e := failed(t, r.do("POST", "/v1/matrix/search", body+`,"timeout":"1ms"}`).expect(t, "late", http.StatusServiceUnavailable))
	if e.Code != "UNAVAILABLE" || e.Reason != "loading" || e.Outcome != "refused" {
		t.Errorf("late: %+v", e)
	}
	answers := make(chan answer, 2)
	for _, path := range []string{"/v1/matrix/search", "/v1/collections/ws/points:count"} {
		ask := body + "}"
		if strings.HasSuffix(path, "count") {
			ask = "{}"
		}
		go func() { answers <- r.send(r.request("POST", path, "acme/all", ask)) }()
	}
	apitest.Eventually(t, "two wait", func() bool { return r.s.SearchStats().Waiting == 2 })
	if s := r.s.SearchStats(); s.Running != 0 {
		t.Errorf("%d have a turn", s.Running)
	}
	e = failed(t, r.do("POST", "/v1/matrix/search", body+"}").expect(t, "one more", http.StatusServiceUnavailable))
	if e.Reason != "overloaded" || e.Limit != "searches_waiting" {
		t.Errorf("one more: %+v", e)
	}
	close(r.n.IndexLoaded)
	for range 2 {
		(<-answers).expect(t, "one that waited", http.StatusOK)
	}
	if s := r.s.SearchStats(); s.Running != 0 || s.Waiting != 0 {
		t.Errorf("left over: %+v", s)
	}
}

// A search that waits for what it must see takes no turn. When that is applied, the search
// reads this node's copy and asks no other node again.
func TestASearchWaitsForWhatItMustSeeAndTakesNoTurn(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	r.n.Settles = make(chan struct{})
	reads := make(chan core.ReadOptions, 100)
	r.n.OnSearch = func(_ context.Context, q *core.SearchQuery) (*core.SearchAnswer, error) {
		reads <- q.Read
		return &core.SearchAnswer{Plan: "scan"}, nil
	}
	const body = `{"collection":"ws","query_text":"x"`
	e := failed(t, r.do("POST", "/v1/matrix/search", body+`,"timeout":"1ms"}`).expect(t, "late", http.StatusGatewayTimeout))
	if e.Code != "DEADLINE_EXCEEDED" || e.Details["stage"] != "read" {
		t.Errorf("late: %+v", e)
	}
	answers := make(chan answer, runtime.GOMAXPROCS(0)+2) // more than a tenant has turns
	for range cap(answers) {
		go func() { answers <- r.send(r.request("POST", "/v1/matrix/search", "acme/all", body+"}")) }()
	}
	stale := r.do("POST", "/v1/matrix/search", body+`,"consistency":"stale"}`).expect(t, "one that waits for nothing", http.StatusOK)
	if !strings.Contains(string(stale.body), `"consistency":"stale"`) {
		t.Errorf("stale: %s", stale.body)
	}
	if read := <-reads; read != (core.ReadOptions{Stale: true}) {
		t.Errorf("stale: it read %+v", read)
	}
	if s := r.s.SearchStats(); s.Running != 0 || s.Waiting != 0 {
		t.Errorf("while they wait: %+v", s)
	}
	close(r.n.Settles)
	for range cap(answers) {
		a := (<-answers).expect(t, "one that waited", http.StatusOK)
		if !strings.Contains(string(a.body), `"consistency":"linearizable"`) {
			t.Errorf("one that waited: %s", a.body)
		}
		if read, want := <-reads, (core.ReadOptions{Stale: true, MinIndex: 9}); read != want {
			t.Errorf("one that waited read %+v, want %+v", read, want)
		}
	}
}

// A search whose time is up says where it was; with partial_ok it answers with what it has, and says what is missing.
func TestASearchWhoseTimeIsUpNamesItsStage(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	const body = `{"collection":"ws","query_text":"x","timeout":"1ms"`
	late := core.SearchAnswer{}
	var fault error
	r.n.OnSearch = func(ctx context.Context, q *core.SearchQuery) (*core.SearchAnswer, error) {
		<-ctx.Done()
		if !q.Partial {
			return nil, fault
		}
		return &late, nil
	}
	for _, c := range []struct {
		fault error
		stage string
	}{
		{core.DeadlineExceeded{Stage: "judge"}, "judge"}, {core.DeadlineExceeded{}, "read"}, {context.DeadlineExceeded, "read"},
	} {
		fault = c.fault
		e := failed(t, r.do("POST", "/v1/matrix/search", body+`}`).expect(t, c.stage, http.StatusGatewayTimeout))
		if e.Code != "DEADLINE_EXCEEDED" || e.Details["stage"] != c.stage || e.Outcome != "refused" {
			t.Errorf("%v: %+v", c.fault, e)
		}
	}
	late = core.SearchAnswer{
		Plan: "scan", Stopped: "judge", Judged: 2, Gate: core.GateCounts{Considered: 9, Passed: 5}, Numbers: core.SearchNumbers{Compared: 5, Rounds: 1},
		Hits: []core.SearchHit{{ID: "w1", Score: 0.5, Eligible: true}},
	}
	got := r.do("POST", "/v1/matrix/search", body+`,"partial_ok":true,"ef":16,"explain":true}`).expect(t, "partial_ok", http.StatusOK).body
	for _, want := range []string{
		`"id":"w1"`, `"gap":{"stage":"judge","partitions":[0],"unjudged":3}`,
		`"plan_numbers":{"compared":5,"ef":0,"rounds":1,"graph_rows":0,"tail_rows":0}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	for _, ef := range []string{"15", "1001"} {
		if e := failed(t, r.do("POST", "/v1/matrix/search", body+`,"ef":`+ef+`}`).expect(t, "ef", http.StatusBadRequest)); e.Field != "ef" {
			t.Errorf("ef %s: %+v", ef, e)
		}
	}
}

// A search over REST takes no longer than other calls, whatever it asks for.
func TestASearchOverRESTEndsWithinTheLimitOfACall(t *testing.T) {
	r := newRESTRig(t, edge.Limits{RESTCallMs: 1})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	r.n.OnSearch = func(ctx context.Context, _ *core.SearchQuery) (*core.SearchAnswer, error) {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Millisecond {
			return nil, errors.New("it has longer")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, timeout := range []string{"", `,"timeout":"60s"`} {
		a := r.do("POST", "/v1/matrix/search", `{"collection":"ws","query_text":"x"`+timeout+`}`).expect(t, "late", http.StatusGatewayTimeout)
		if e := failed(t, a); e.Code != "DEADLINE_EXCEEDED" {
			t.Errorf("timeout %q: %+v", timeout, e)
		}
	}
}

// A panic below a search ends that search and no other: turns are given back, over REST and gRPC, by searches and by counts,
// and those that wait for an index make room.
func TestASearchThatPanicsGivesItsTurnBack(t *testing.T) {
	r := newRESTRig(t, edge.Limits{SearchesWaiting: 2})
	r.s.Recovers = true
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	r.n.IndexLoaded = make(chan struct{})
	close(r.n.IndexLoaded) // indexes are asked for, and are there
	client := pb.NewSearchServiceClient(r.conn)
	rest := func(path, body string) error {
		if a := r.do("POST", path, body); a.status != http.StatusOK {
			return errors.New(a.body)
		}
		return nil
	}
	for name, call := range map[string]func() error{
		"REST search": func() error { return rest("/v1/matrix/search", `{"collection":"ws","query_text":"x","record":true}`) },
		"REST count":  func() error { return rest("/v1/collections/ws/points:count", "{}") },
		"gRPC search": func() error {
			_, err := client.Search(apitest.As("acme/all"), &pb.SearchRequest{Collection: "ws", QueryText: "x"})
			return err
		},
		"gRPC count": func() error {
			_, err := client.CountPoints(apitest.As("acme/all"), &pb.CountPointsRequest{Collection: "ws"})
			return err
		},
	} {
		reached := false
		for at := int64(1); !reached; at++ {
			for range 4*runtime.GOMAXPROCS(0) + 1 { // more than there are turns, which are four for each processor
				r.n.PanicIn.Store(at)
				err := call()
				if reached = r.n.PanicIn.Swap(0) > 0; reached {
					break // the call makes fewer steps
				}
				if err == nil || !strings.Contains(strings.ToLower(err.Error()), "internal") {
					t.Errorf("%s, a panic at step %d: %v", name, at, err)
				}
			}
			if st := r.s.SearchStats(); st.Running != 0 || st.Waiting != 0 {
				t.Fatalf("%s, a panic at step %d: %d run and %d wait after all have ended", name, at, st.Running, st.Waiting)
			}
			if err := call(); err != nil {
				t.Errorf("%s, after panics at step %d: %v", name, at, err)
			}
		}
	}
}

// What a search is ranked by, where it does not say so itself, follows from what is known of the query.
func TestNearnessAndWordsHaveTheWeightsThatSuitTheQuery(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	var got core.SearchQuery
	r.n.OnSearch = func(_ context.Context, q *core.SearchQuery) (*core.SearchAnswer, error) {
		got = *q
		return &core.SearchAnswer{Plan: "scan"}, nil
	}
	for _, c := range []struct {
		ask            string
		dense, lexical float64
		words          string
	}{
		{`"query_text":"mig welder"`, 0.9, 0.1, "mig welder"},
		{`"query_text":"mig welder","merge":{"lexical":0.5}`, 0.9, 0.5, "mig welder"},
		{`"query_text":"mig welder","merge":{"dense":2,"lexical":0}`, 2, 0, "mig welder"},
		{`"vector":[1,0],"model":"m"`, 1, 0, ""},
		{`"vector":[1,0],"model":"m","merge":{"dense":0.5,"lexical":0}`, 0.5, 0, ""},
	} {
		r.do("POST", "/v1/matrix/search", `{"collection":"ws",`+c.ask+`}`).expect(t, c.ask, http.StatusOK)
		if got.Dense != c.dense || got.Lexical != c.lexical || got.Words != c.words {
			t.Errorf("%s: nearness %v, words %v of %q", c.ask, got.Dense, got.Lexical, got.Words)
		}
	}
}
