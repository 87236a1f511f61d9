package millrace_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// answersCut cuts the answer of the first request to a path.
func (p *proxy) answersCut(path string) (cuts func() int) {
	var n atomic.Int32
	p.after = func(r *http.Request, _ *http.Response, _ []byte) bool {
		return r.URL.Path != path || n.Add(1) > 1
	}
	return func() int { return int(n.Load()) }
}

func TestACreateWhoseAnswerIsCutIsRepeatedUnderItsID(t *testing.T) {
	p := newProxy(t)
	requests := p.answersCut("/v1/tasks:batch")
	c := p.dial(millrace.Transport(millrace.TransportREST))
	ctx := bounded(t)
	h, err := millrace.Job[int, int]("cut").Add(ctx, c, 7)
	if err != nil {
		t.Fatal(err)
	}
	if !h.Replayed || !h.Matches || requests() != 2 {
		t.Errorf("got %+v after %d requests, want the first task, replayed", h, requests())
	}
	stats, err := c.Queue("cut").Stats(ctx)
	if err != nil || stats.Created != 1 {
		t.Errorf("%d tasks were created, %v, want 1", stats.Created, err)
	}
}

func TestACommitWhoseAnswerIsCutIsAppliedOnce(t *testing.T) {
	p := newProxy(t)
	requests := p.answersCut("/v1/commit")
	c := p.dial(millrace.Transport(millrace.TransportREST))
	out, err := c.CommitResult(bounded(t), func(tx *millrace.Tx) { tx.KV("cut").Put("k", "v", millrace.IfAbsent()) })
	if err != nil {
		t.Fatal(err)
	}
	if !out.Replayed || requests() != 2 {
		t.Errorf("got %+v after %d requests, want the first answer again", out, requests())
	}
}

func TestASettleWhoseAnswerIsCutIsRepeatedUnderItsToken(t *testing.T) {
	p := newProxy(t)
	requests := p.answersCut("/v1/tasks:settle")
	c := p.dial(millrace.Transport(millrace.TransportREST))
	job := millrace.Job[int, int]("settled")
	told := make(chan millrace.Settlement, 64)
	w := c.Worker(millrace.OnSettled(func(s millrace.Settlement) { told <- s }))
	job.Handle(w, func(_ context.Context, task *millrace.Task, n int) (int, error) {
		task.Effects().KV("settled").Put("k", n, millrace.IfAbsent())
		return n, nil
	})
	run(t, w)
	ctx := bounded(t)
	h, err := job.Add(ctx, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if s := <-told; s.Err != nil || !s.Replayed || requests() < 2 {
		t.Errorf("got %+v after %d requests, want a replayed completion", s, requests())
	}
}

func TestALimitIsWaitedOutAsTheAnswerAsks(t *testing.T) {
	for name, status := range map[string]int{"too many requests": 429, "unavailable": 503} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t)
			var n atomic.Int32
			p.before = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if r.URL.Path != "/v1/tasks:batch" || n.Add(1) > 1 {
					return false
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(status) // by the proxy itself, in words of its own
				return true
			}
			c := p.dial(millrace.Transport(millrace.TransportREST))
			if _, err := millrace.Job[int, int]("limited").Add(bounded(t), c, 1); err != nil {
				t.Fatal(err)
			}
			if got := n.Load(); got != 2 {
				t.Errorf("%d requests were made, want 2", got)
			}
		})
	}
}

func TestARESTWorkerHoldsNoMoreTasksThanSlots(t *testing.T) {
	const slots = 3
	p := newProxy(t)
	var mu sync.Mutex
	given, ended, claims := 0, 0, 0
	p.before = func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		if r.URL.Path == "/v1/tasks:claim" {
			var claim struct{ Max int }
			if err := json.Unmarshal(body, &claim); err != nil {
				t.Error(err)
			}
			mu.Lock()
			claims++
			if held := given - ended; held+claim.Max > slots {
				t.Errorf("%d more were asked for while %d were held", claim.Max, held)
			}
			mu.Unlock()
		}
		return false
	}
	p.after = func(r *http.Request, _ *http.Response, body []byte) bool {
		var list struct{ Tasks, Results []struct{} }
		_ = json.Unmarshal(body, &list) // a claim that found nothing has none
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/v1/tasks:claim":
			given += len(list.Tasks)
		case "/v1/tasks:settle":
			ended += len(list.Results)
		}
		return true
	}
	c := p.dial(millrace.Transport(millrace.TransportREST))
	job := millrace.Job[int, int]("slots")
	w := c.Worker(millrace.Slots(slots))
	job.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return n, nil })
	ctx := bounded(t)
	hs, err := job.AddMany(ctx, c, make([]int, 50))
	if err != nil {
		t.Fatal(err)
	}
	run(t, w)
	for _, h := range hs {
		if _, err := h.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if given != 50 || claims > 60 {
		t.Errorf("%d tasks were given by %d claims, want 50 without idle asking", given, claims)
	}
}

func TestTransactionsOfRefsWhoseAnswersAreCutAreAppliedOnce(t *testing.T) {
	_, plain, ids := refRepo(t, way{name: "cut"}, "refs", 3)
	name := "refs-cut"
	p := newProxy(t)
	var cuts atomic.Int32
	p.after = func(r *http.Request, _ *http.Response, _ []byte) bool { // each first answer to a transaction is cut
		return r.Method != http.MethodPost || r.URL.Path != "/v1/repos/"+name+"/refs" || cuts.Add(1)%2 == 0
	}
	c := p.dial(millrace.Transport(millrace.TransportREST), millrace.Namespace("default")) // where the repository is
	ctx := bounded(t)
	repo := c.Repo(name)
	s, err := repo.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it never fails
	for i, id := range ids {
		tx := s.Begin()
		old := ""
		if i > 0 {
			old = ids[i-1]
		}
		tx.Update("refs/heads/s", old, id)
		if out, err := tx.Commit(ctx); err != nil || out.Results[0].New != id {
			t.Fatalf("transaction %d: %+v, %v", i, out, err)
		}
	}
	out, err := repo.Load(ctx, func(yield func(millrace.RefChange) bool) {
		for i := range 1500 {
			if !yield(millrace.CreateRef("refs/tags/t"+strconv.Itoa(i), ids[0])) {
				return
			}
		}
	})
	if err != nil || out.Changed != 1500 || len(out.Failures) != 0 {
		t.Errorf("load: %+v, %v", out, err)
	}
	log, err := plain.Reflog(ctx, "refs/heads/s", 10)
	if err != nil || len(log) != len(ids) || cuts.Load() < 10 {
		t.Errorf("%d records after %d answers, %v", len(log), cuts.Load(), err)
	}
}

// What moves a ref forward is looked up where force is denied, and by then a repetition finds the ref moved.
func TestUpdatesOfRefsThatMayNotBeForcedAreRepeatedToo(t *testing.T) {
	_, plain, ids := refRepo(t, way{name: "forward"}, "refs", 4)
	name := "refs-forward"
	ctx := bounded(t)
	if _, err := plain.Set(ctx, millrace.RepoSettings{Config: &millrace.RepoConfig{
		State: millrace.RepoReady, Rules: []millrace.RefRule{{Refs: "refs/heads/*", Deny: []millrace.RefDeny{millrace.DenyForce}}},
	}}); err != nil {
		t.Fatal(err)
	}
	p := newProxy(t)
	var cuts atomic.Int32
	p.after = func(r *http.Request, _ *http.Response, _ []byte) bool { // each first answer is cut
		return r.Method != http.MethodPost || r.URL.Path != "/v1/repos/"+name+"/refs" && r.URL.Path != "/v1/commit" || cuts.Add(1)%2 == 0
	}
	c := p.dial(millrace.Transport(millrace.TransportREST), millrace.Namespace("default"))
	const main = "refs/heads/main"
	for i, change := range []millrace.RefChange{
		millrace.CreateRef(main, ids[0]), millrace.MoveRef(main, ids[0], ids[1]), millrace.SetRef(main, ids[2]),
	} {
		out, err := c.Repo(name).Update(ctx, change)
		if err != nil || !out.Replayed || out.Results[0].New != ids[i] || i > 0 && out.Results[0].Old != ids[i-1] {
			t.Errorf("change %d: %+v, %v", i, out, err)
		}
	}
	out, err := c.CommitResult(ctx, func(tx *millrace.Tx) { tx.Repo(name).Apply(millrace.SetRef(main, ids[3])) })
	if err != nil || !out.Replayed {
		t.Errorf("in a commit: %+v, %v", out, err)
	}
	log, err := plain.Reflog(ctx, main, 10)
	if err != nil || len(log) != 4 {
		t.Errorf("%d records, %v", len(log), err)
	}
}
