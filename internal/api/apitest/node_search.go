package apitest

import (
	"context"
	"errors"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// Definition is the collection ws, which every namespace of the fake node has.
func Definition() core.Collection {
	return core.Collection{
		Name: "ws", UID: 7, Embedder: "default", Model: "m", Dim: 2, Metric: core.MetricCosine,
		Fields: []core.SchemaField{{Name: "role", Type: core.FieldKeyword, Index: true}, {Name: "secret", Type: core.FieldKeyword, Protected: true}},
	}
}

// definition is the collection that a test has set, or the default one.
func (n *Node) definition() core.Collection {
	if n.Defined != nil {
		return *n.Defined
	}
	return Definition()
}

// Definition answers as a test has set.
func (n *Node) Definition(p core.Partition, name string) (core.Collection, bool) {
	n.step()
	n.reach(p)
	if n.Looked != nil {
		n.Looked()
	}
	return n.definition(), name == "ws" && !n.Undefined
}

// Collection answers as a test has set.
func (n *Node) Collection(ctx context.Context, p core.Partition, name string, _ core.ReadOptions) (core.CollectionInfo, core.At, error) {
	n.step()
	n.reach(p)
	if n.Settles != nil {
		select {
		case <-n.Settles:
		case <-ctx.Done():
			return core.CollectionInfo{}, core.At{}, core.DeadlineExceeded{}
		}
	}
	if name != "ws" || n.Removed {
		return core.CollectionInfo{}, core.At{}, core.NotFound{Kind: "collection", ID: name}
	}
	return core.CollectionInfo{Collection: n.definition(), Points: 3, Slots: 4, Recordings: 1}, core.At{Index: 9}, nil
}

// Collections answers as a test has set.
func (n *Node) Collections(_ context.Context, p core.Partition, _ core.ReadOptions) ([]core.CollectionInfo, core.At, error) {
	n.step()
	n.reach(p)
	return []core.CollectionInfo{{Collection: n.definition()}}, core.At{Index: 9}, nil
}

// CheckDefinition answers as a test has set.
func (n *Node) CheckDefinition(*core.Collection) core.Fact {
	n.step()
	return nil
}

// CheckPayload answers as a test has set.
func (n *Node) CheckPayload(_ *core.Collection, payload []byte) (string, core.Fact) {
	n.step()
	if string(payload) == `{"role":1}` {
		return "", core.Invalid{Field: "payload.role", Reason: "field_type", Message: "want a string"}
	}
	if n.PayloadText != "" {
		return n.PayloadText, nil
	}
	return "text", nil
}

// RoomFor answers as a test has set.
func (n *Node) RoomFor(core.Partition, *core.Collection, int) core.Fact {
	n.step()
	return nil
}

// Points answers as a test has set.
func (n *Node) Points(_ context.Context, p core.Partition, name string, ids []string, _ core.ReadOptions) ([]core.StoredPoint, core.At, error) {
	n.step()
	n.reach(p)
	if name != "ws" {
		return nil, core.At{}, core.NotFound{Kind: "collection", ID: name}
	}
	return []core.StoredPoint{{ID: ids[0], Version: 5, Vector: make([]byte, 8), Payload: []byte(`{"role":"a","secret":"s"}`)}}, core.At{Index: 9}, nil
}

// Loading answers as a test has set.
func (n *Node) Loading(core.Partition, string) bool {
	n.step()
	return n.IndexLoaded != nil
}

// Loaded answers as a test has set.
func (n *Node) Loaded(ctx context.Context, _ core.Partition, _ string) error {
	n.step()
	select {
	case <-n.IndexLoaded:
		return nil
	case <-ctx.Done():
		return core.Unavailable{Reason: "loading"}
	}
}

// Reading answers as a test has set.
func (n *Node) Reading(core.Partition) (func() bool, error) {
	n.step()
	return func() bool { return n.Settles == nil }, nil
}

// Search answers as a test has set.
func (n *Node) Search(ctx context.Context, p core.Partition, q *core.SearchQuery) (*core.SearchAnswer, error) {
	n.step()
	n.reach(p)
	if n.OnSearch != nil {
		return n.OnSearch(ctx, q)
	}
	if q.Collection != "ws" {
		return nil, core.NotFound{Kind: "collection", ID: q.Collection}
	}
	return &core.SearchAnswer{
		Plan: "scan", At: core.At{Partition: p.Index, Index: 9}, Version: 2, Judged: 1,
		Gate: core.GateCounts{Considered: 3, Passed: 1, Role: 2, ValidAt: q.Gate.ValidAt},
		Hits: []core.SearchHit{{
			ID: "w1", Version: 5, Score: 0.5, Eligible: true, JudgeScore: 1, Dense: 0.5, Decay: 1, Payload: []byte(`{"role":"a","secret":"s"}`),
			Reasons: []core.SearchReason{{Rule: "r", OK: true}},
		}},
	}, nil
}

// Count answers as a test has set.
func (n *Node) Count(_ context.Context, p core.Partition, q *core.SearchQuery) (core.GateCounts, core.At, error) {
	n.step()
	n.reach(p)
	return core.GateCounts{Considered: 3, Passed: 1, Role: 2, ValidAt: q.Gate.ValidAt}, core.At{Index: 9}, nil
}

// SearchStats answers as a test has set.
func (n *Node) SearchStats(core.Partition, string) core.SearchStats {
	n.step()
	return core.SearchStats{Memory: 100}
}

// CheckRules answers as a test has set.
func (n *Node) CheckRules(_ *core.Collection, rules []core.Rule) core.Fact {
	n.step()
	if rules[0].When == "bad" {
		return core.SearchInvalid{Field: "rules", Reason: "expression_invalid", Message: "bad", Line: 1, Column: 2}
	}
	return nil
}

// Ruleset answers as a test has set.
func (n *Node) Ruleset(_ context.Context, p core.Partition, name string, version uint32, _ core.ReadOptions) (core.Ruleset, core.At, error) {
	n.step()
	n.reach(p)
	if name != "r" {
		return core.Ruleset{}, core.At{}, core.NotFound{Kind: "ruleset", ID: name}
	}
	rules := core.AppendRules(nil, &core.RulesetRules{Collection: "ws", Rules: []core.Rule{{ID: "a", When: "true", Severity: "bonus", Weight: 0.5, Reason: "x"}}})
	return core.Ruleset{Name: name, Version: max(version, 1), Rules: rules}, core.At{Index: 9}, nil
}

// Rulesets answers as a test has set.
func (n *Node) Rulesets(_ context.Context, p core.Partition, _ core.ReadOptions) ([]core.Ruleset, core.At, error) {
	n.step()
	n.reach(p)
	return []core.Ruleset{{Name: "r", Version: 2}}, core.At{Index: 9}, nil
}

// Recording answers as a test has set.
func (n *Node) Recording(_ context.Context, p core.Partition, uid, id uint64, _ core.ReadOptions) (core.Recording, core.At, error) {
	n.step()
	n.reach(p)
	if uid != 7 || id != 9 {
		return core.Recording{}, core.At{}, core.NotFound{Kind: "recording", ID: "search_id"}
	}
	return core.Recording{ID: id, At: 1e12, Expires: 2e12, Data: []byte(`{"request":{}}`)}, core.At{Index: 9}, nil
}

// Embedder makes vectors of two numbers, and fails when the text is down.
type Embedder struct {
	mu sync.Mutex // guards last
	*Planter
	Asked func() // is called at each call; nil: not called
	Last  core.EmbedRequest
	// Tokens says that it takes them.
	Tokens bool
}

// Model answers as a test has set.
func (e *Embedder) Model(name string) (core.EmbedModel, bool) {
	e.step()
	return core.EmbedModel{Name: "default", Model: "m", Dim: 2, Semantic: true}, name == "" || name == "default"
}

// Models answers as a test has set.
func (e *Embedder) Models() []core.EmbedModel {
	e.step()
	m, _ := e.Model("")
	return []core.EmbedModel{m}
}

// Dim answers as a test has set.
func (e *Embedder) Dim(context.Context, string, string) (int, error) {
	e.step()
	return 2, nil
}

// Embed answers as a test has set.
func (e *Embedder) Embed(_ context.Context, r core.EmbedRequest) ([]core.Embedding, error) {
	e.step()
	if e.Asked != nil {
		e.Asked()
	}
	e.mu.Lock() // texts of several calls are embedded at a time
	e.Last = r
	e.mu.Unlock()
	if r.Tokens && !e.Tokens {
		return nil, core.Invalid{Field: "texts", Reason: "token_input", Message: "holds tokens"}
	}
	out := make([]core.Embedding, len(r.Texts))
	for i, text := range r.Texts {
		if text == "down" {
			return nil, core.EmbedUnavailable{After: 5000}
		}
		out[i] = core.Embedding{Vector: []float32{1, 0}, Tokens: 1}
	}
	return out, nil
}

// Prepare answers as a test has set.
func (e *Embedder) Prepare(v []float32, _ core.Metric) error {
	e.step()
	for _, x := range v {
		if x-x != 0 {
			return errors.New("a number is not finite")
		}
	}
	return nil
}
