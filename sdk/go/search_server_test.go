package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

type worker struct {
	Text    string       `json:"text"`
	Role    []string     `json:"role,omitempty"`
	Certs   []credential `json:"certs,omitempty"`
	Blocked []string     `json:"blocked,omitempty"`
	Years   int          `json:"years"`
	Secret  string       `json:"secret,omitempty"`
}

type credential struct {
	ID      string `json:"id"`
	Expires string `json:"expires_at,omitempty"`
}

func workers(t *testing.T, c *millrace.Client, name string) millrace.Collection {
	t.Helper()
	k := c.Collection(name)
	def := millrace.CollectionConfig{Schema: []millrace.SchemaField{
		{Name: "role", Type: "keywords", Gate: "role"},
		{Name: "certs", Type: "credentials", Gate: "credential"},
		{Name: "blocked", Type: "keywords", Gate: "block"},
		{Name: "years", Type: "int"},
		{Name: "secret", Type: "keyword", Protected: true},
	}}
	if existed, err := k.Create(t.Context(), def); err != nil || existed {
		t.Fatalf("create: %v, %v", existed, err)
	}
	if existed, err := k.Create(t.Context(), def); err != nil || !existed {
		t.Fatalf("create again: %v, %v", existed, err)
	}
	def.Dim = 7
	if _, err := k.Create(t.Context(), def); !errors.Is(err, millrace.ErrInvalid) {
		t.Fatalf("another definition: %v", err)
	}
	return k
}

func TestPointsAreFoundOnceTheyAreAcknowledged(t *testing.T) {
	eachTransport(t, pointsAreFoundOnceTheyAreAcknowledged)
}

func pointsAreFoundOnceTheyAreAcknowledged(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	ctx := bounded(t)
	k := workers(t, c, "found-"+c.Transport().String())
	got, err := k.Upsert(ctx,
		millrace.Point{ID: "w1", Payload: worker{Text: "mig welder second shift", Role: []string{"welder"}, Certs: []credential{{ID: "aws"}}, Years: 5}},
		millrace.Point{ID: "w2", Payload: worker{Text: "mig welder night", Role: []string{"welder"}, Certs: []credential{{"aws", "2020-01-01T00:00:00Z"}}}},
		millrace.Point{ID: "w3", Payload: worker{Text: "mig welder", Role: []string{"welder"}, Certs: []credential{{ID: "aws"}}, Blocked: []string{"acme"}}},
		millrace.Point{ID: "w4", Payload: worker{Text: "forklift driver", Role: []string{"driver"}, Secret: "x"}},
		millrace.Point{ID: "w5", Payload: map[string]any{"years": "many"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range got {
		if (u.Err != nil) != (i == 4) || u.Err == nil && u.Version == "" {
			t.Errorf("point %d: %+v", i, u)
		}
	}
	found, err := k.Search(ctx, millrace.Search{
		Text: "need a mig welder", Gate: millrace.Gate{Roles: []string{"welder"}, Credentials: []string{"aws"}, Client: "acme", Filter: "years >= p.least", Params: map[string]any{"least": 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Results) != 1 || found.Results[0].ID != "w1" || found.Semantic || found.Plan != "scan" {
		t.Errorf("found %+v", found)
	}
	found.Gate.ValidAt = time.Time{}
	if want := (millrace.GateCounts{Considered: 4, Passed: 1, Role: 1, Credential: 1, Block: 1}); found.Gate != want {
		t.Errorf("gate %+v, want %+v", found.Gate, want)
	}
	var w worker
	if err := json.Unmarshal(found.Results[0].Payload, &w); err != nil || w.Text != "mig welder second shift" {
		t.Errorf("payload %s: %v", found.Results[0].Payload, err)
	}
	if _, err := k.Search(ctx, millrace.Search{Text: "x", Gate: millrace.Gate{Roles: []string{"weldr"}}}); detail(err).Details["near"] != "welder" {
		t.Errorf("an unknown role: %v", err)
	}
	if existed, err := k.Remove(ctx, "w1", "absent"); err != nil || !reflect.DeepEqual(existed, []bool{true, false}) {
		t.Errorf("remove: %v, %v", existed, err)
	}
	counts, err := k.Count(ctx, millrace.Gate{})
	if err != nil || counts.Passed != 3 {
		t.Errorf("count: %+v, %v", counts, err)
	}
	stored, err := k.Points(ctx, []string{"w4", "w1"})
	if err != nil || len(stored) != 1 || stored[0].ID != "w4" || len(stored[0].Vector) != 384 {
		t.Errorf("points: %v, %v", stored, err)
	}
	if up, err := k.Upsert(ctx, millrace.Point{ID: "w4", IfVersion: "0/1", Payload: worker{Text: "x"}}); err != nil || !errors.Is(up[0].Err, millrace.ErrPrecondition) {
		t.Errorf("an old version: %+v, %v", up, err)
	}
	if up, err := k.Upsert(ctx, millrace.Point{ID: "w4", IfVersion: stored[0].Version, Payload: worker{Text: "x"}}); err != nil || up[0].Err != nil || !up[0].Existed {
		t.Errorf("the version there is: %+v, %v", up, err)
	}
	own, err := k.Search(ctx, millrace.Search{Vector: stored[0].Vector, Model: "lexical-v2", Exact: true, K: 1})
	if err != nil || own.Plan != "exact" || len(own.Results) != 1 {
		t.Errorf("by vector: %+v, %v", own, err)
	}
	if st, err := k.Stats(ctx); err != nil || st.Points != 3 || st.MemoryBytes == 0 || st.Model != "lexical-v2" {
		t.Errorf("stats %+v, %v", st, err)
	}
	if def, err := k.Config(ctx); err != nil || def.Dim != 384 || len(def.Schema) != 5 || !def.Schema[4].Protected {
		t.Errorf("definition %+v, %v", def, err)
	}
	if names, _, err := c.Collections(ctx, 0, ""); err != nil || len(names) == 0 {
		t.Errorf("collections %q, %v", names, err)
	}
	if err := k.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Search(ctx, millrace.Search{Text: "x"}); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("a collection that is gone: %v", err)
	}
}

func TestTextsRankByTheirWords(t *testing.T) { eachTransport(t, textsRankByTheirWords) }

func textsRankByTheirWords(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	ctx := bounded(t)
	k := workers(t, c, "words-"+c.Transport().String())
	if _, err := k.Upsert(ctx,
		millrace.Point{ID: "w1", Payload: worker{Text: "mig welder second shift"}}, millrace.Point{ID: "w2", Payload: worker{Text: "mig welder night"}},
		millrace.Point{ID: "w3", Payload: worker{Text: "mig welder"}}, millrace.Point{ID: "w4", Payload: worker{Text: "forklift driver"}},
	); err != nil {
		t.Fatal(err)
	}
	words, near := 1.0, 0.0
	byWords, err := k.Search(ctx, millrace.Search{Text: "second shift", Dense: &near, Lexical: &words, Explain: true, K: 4, Width: 20, Partial: true})
	if err != nil || len(byWords.Results) != 4 || byWords.Gap != nil {
		t.Fatalf("by words: %+v, %v", byWords, err)
	}
	for i, r := range byWords.Results {
		if has := r.ID == "w1"; has != (i == 0) || (r.Lexical > 0) != has || r.Score > r.Lexical {
			t.Errorf("by words: %+v", r)
		}
	}
}

func TestRulesJudgeAndSearchesAreKept(t *testing.T) { eachTransport(t, rulesJudgeAndSearchesAreKept) }

func rulesJudgeAndSearchesAreKept(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	ctx := bounded(t)
	name := "judged-" + c.Transport().String()
	k := workers(t, c, name)
	for i := range 5 {
		if up, err := k.Upsert(ctx, millrace.Point{ID: fmt.Sprint("w", i), Payload: worker{Text: "welder", Years: i}}); err != nil || up[0].Err != nil {
			t.Fatal(up, err)
		}
	}
	rules := []millrace.Rule{
		{ID: "least", When: "years < params.least", Severity: "block", Reason: "too few years"},
		{ID: "many", When: "years >= 4", Severity: "bonus", Weight: 0.5},
	}
	n, err := c.PublishRules(ctx, name, name, rules)
	if err != nil || n < 1 {
		t.Fatal(n, err)
	}
	first := fmt.Sprintf("%s@%d", name, n)
	bad := append([]millrace.Rule{{ID: "bad", When: "years <\n  ", Severity: "block"}}, rules...)
	if _, err := c.PublishRules(ctx, name, name, bad); detail(err).Reason != "expression_invalid" || detail(err).Details["line"] == "" {
		t.Errorf("a rule that does not compile: %v", err)
	}
	secret := []millrace.Rule{{ID: "s", When: "secret == 'x'", Severity: "block"}}
	if _, err := c.PublishRules(ctx, name, name, secret); detail(err).Reason != "protected_field" {
		t.Errorf("a rule on a protected field: %v", err)
	}
	if _, err := k.Search(ctx, millrace.Search{Text: "x", Gate: millrace.Gate{Filter: "secret == 'x'"}}); detail(err).Reason != "protected_field" {
		t.Errorf("a filter on a protected field: %v", err)
	}
	if full, col, got, err := c.Rules(ctx, name); err != nil || full != first || col != name || len(got) != 2 || got[1].Weight != 0.5 {
		t.Errorf("rules: %s, %s, %v, %v", full, col, got, err)
	}
	found, err := k.Search(ctx, millrace.Search{Text: "welder", Ruleset: name, Params: map[string]any{"least": 2}, Explain: true, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Results) != 3 || found.Results[0].ID != "w4" || found.Results[0].JudgeScore != 1.5 || found.Blocked != 2 || found.Ruleset != first {
		t.Errorf("found %+v", found)
	}
	if r := found.Results[0].Reasons; len(r) != 2 || r[0].Rule != "least" || !r[0].OK {
		t.Errorf("reasons %+v", r)
	}
	kept, err := c.Recording(ctx, found.SearchID)
	var doc struct {
		Results []struct{ ID string }
		Request struct {
			QueryText string `json:"query_text"`
		}
	}
	if err != nil || json.Unmarshal(kept, &doc) != nil || len(doc.Results) != 3 || doc.Request.QueryText != "welder" {
		t.Errorf("kept %s, %v", kept, err)
	}
	if _, err := c.Recording(ctx, "00000000000000010000000000000001"); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("a search that was not kept: %v", err)
	}
	if e, model, err := c.Embed(ctx, "", "hello", "world"); err != nil || len(e) != 2 || len(e[0].Vector) != 384 || model != "lexical-v2" {
		t.Errorf("embed: %d, %s, %v", len(e), model, err)
	}
}

func TestRulesAreRemoved(t *testing.T) { eachTransport(t, rulesAreRemoved) }

func rulesAreRemoved(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	ctx := bounded(t)
	name := "removed-" + c.Transport().String()
	k := workers(t, c, name)
	for i := range 5 {
		if up, err := k.Upsert(ctx, millrace.Point{ID: fmt.Sprint("w", i), Payload: worker{Text: "welder", Years: i}}); err != nil || up[0].Err != nil {
			t.Fatal(up, err)
		}
	}
	rules := func(when string) []millrace.Rule { return []millrace.Rule{{ID: "a", When: when, Severity: "block"}} }
	n, err := c.PublishRules(ctx, name, name, rules("years < 2"))
	if err != nil {
		t.Fatal(err)
	}
	first := fmt.Sprintf("%s@%d", name, n)
	if found, err := k.Search(ctx, millrace.Search{Text: "welder", Ruleset: first}); err != nil || found.Blocked != 2 {
		t.Errorf("under the first rules: %+v, %v", found, err)
	}
	for range 2 { // an absent one is not an error
		if err := c.DeleteRules(ctx, name); err != nil {
			t.Errorf("remove rules: %v", err)
		}
	}
	for _, gone := range []string{name, first} {
		if _, err := k.Search(ctx, millrace.Search{Text: "welder", Ruleset: gone}); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("a search under removed rules: %v", err)
		}
		if _, _, _, err := c.Rules(ctx, gone); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("removed rules are read: %v", err)
		}
	}
	if err := c.DeleteRules(ctx, first); detail(err).Field != "ruleset" {
		t.Errorf("removal of a version: %v", err)
	}
	if again, err := c.PublishRules(ctx, name, name, rules("years < 4")); err != nil || again <= n {
		t.Errorf("published again: %d after %d, %v", again, n, err)
	}
	if found, err := k.Search(ctx, millrace.Search{Text: "welder", Ruleset: name}); err != nil || found.Blocked != 4 {
		t.Errorf("under the new rules: %+v, %v", found, err)
	}
}

// A task's completion, a key and a point stand in one entry, and a lease that has ended changes none of them.
func TestAPointIsStoredWithTheCompletionOrNotAtAll(t *testing.T) {
	eachTransport(t, aPointIsStoredWithTheCompletionOrNotAtAll)
}

func aPointIsStoredWithTheCompletionOrNotAtAll(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	ctx := bounded(t)
	name := "effects-" + c.Transport().String()
	k := workers(t, c, name)
	job := millrace.Job[string, int](name)
	w := c.Worker()
	var stale *millrace.Task
	job.Handle(w, func(_ context.Context, task *millrace.Task, id string) (int, error) {
		stale = task
		task.Effects().KV("effects").Put(id, "done")
		task.Effects().Collection(name).Upsert(millrace.Point{ID: id, Payload: worker{Text: "made by a task"}})
		return 1, nil
	})
	run(t, w)
	h, err := job.Add(ctx, c, "p1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Points(ctx, []string{"p1"}); err != nil || len(got) != 1 {
		t.Errorf("points %v, %v", got, err)
	}
	err = c.Commit(ctx, func(tx *millrace.Tx) {
		tx.Fence(stale)
		tx.Collection(name).Upsert(millrace.Point{ID: "p2", Payload: worker{Text: "too late"}})
		tx.Collection(name).Remove("p1")
	})
	if !errors.Is(err, millrace.ErrLeaseLost) {
		t.Errorf("under a lease that has ended: %v", err)
	}
	if counts, err := k.Count(ctx, millrace.Gate{}); err != nil || counts.Passed != 1 {
		t.Errorf("count %+v, %v", counts, err)
	}
}

// detail is the error of the server, or one that says nothing.
func detail(err error) *millrace.Error {
	if e, ok := errors.AsType[*millrace.Error](err); ok {
		return e
	}
	return &millrace.Error{}
}
