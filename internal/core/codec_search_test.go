package core

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// searchEntry holds each op of the search service once, with every field set.
func searchEntry() *Entry {
	p := Partition{Tenant: 7, Namespace: 300, Index: 2}
	return &Entry{Format: 1, Stamp: 1_700_000_000_123, Commits: []Commit{{Partition: p, Principal: "p1", Ops: []Op{
		&CollectionSet{Collection: Collection{
			Name: "workers", UID: 1 << 60, Embedder: "default", Model: "lexical-v1", Dim: 384, Metric: MetricDot,
			Texts:     []TextField{{"text", 100}, {"title", 250}},
			Fields:    []SchemaField{{"role", FieldKeywords, true, GateRole, false}, {"ssn", FieldKeyword, false, GateNone, true}},
			MaxPoints: 5000, OnFailure: 1,
		}},
		&VectorUpsert{
			Collection: "workers", UID: 1 << 60, ID: "w1", Model: "lexical-v1", Vector: []byte{0, 0, 128, 63, 0, 0, 0, 0},
			Payload: []byte(`{"role":["a"]}`), HasVersion: true, IfVersion: 88, IfAbsent: true,
		},
		&VectorDelete{Collection: "workers", ID: "w2", HasVersion: true, IfVersion: 9},
		&RulesetPut{Name: "staffing", Version: 7, Rules: []byte("[]")},
		&RecordingPut{Collection: "workers", UID: 1 << 60, ID: 77, TTL: 1000, Data: []byte("{}")},
		&CollectionDelete{Name: "workers"},
	}}}}
}

// searchEntries are searchEntry and the ops that came with later formats.
func searchEntries() []*Entry {
	removal := Commit{Partition: Partition{Tenant: 7, Namespace: 300}, Principal: "p1", Ops: []Op{&RulesetDelete{Name: "staffing"}}}
	return []*Entry{searchEntry(), {Format: FormatQueues, Stamp: 1_700_000_000_123, Commits: []Commit{removal}}}
}

func searchResults() []Result {
	return []Result{
		{Refusal: &Refusal{Op: 0, Fact: SearchState{"model_mismatch", "model", "a", "b"}}},
		{Refusal: &Refusal{Op: 1, Fact: DimMismatch{"vector", 384, 3}}},
		{Refusal: &Refusal{Op: 2, Fact: VersionMismatch{"workers", "w1", 3, 88}}},
		{Refusal: &Refusal{Op: 3, Fact: SearchInvalid{"gate.roles", "unknown_role", "m", []string{"a"}, 1, 2}}},
		{Refusal: &Refusal{Op: 4, Fact: EmbedUnavailable{5000}}},
	}
}

func TestGoldenBytesOfSearch(t *testing.T) {
	var b strings.Builder
	for _, e := range searchEntries() {
		fmt.Fprintf(&b, "entry %s\n", hex.EncodeToString(AppendEntry(nil, e)))
	}
	for _, r := range searchResults() {
		fmt.Fprintf(&b, "result %s\n", hex.EncodeToString(AppendResult(nil, &r)))
	}
	want := golden(t, "search.golden", b.String())
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i, want := range searchEntries() {
		raw, err := hex.DecodeString(strings.TrimPrefix(lines[i], "entry "))
		if err != nil {
			t.Fatal(err)
		}
		if e, err := DecodeEntry(raw); err != nil || !reflect.DeepEqual(e, want) {
			t.Errorf("entry reads as %+v, %v", e, err)
		}
	}
	for i, line := range lines[len(searchEntries()):] {
		raw, err := hex.DecodeString(strings.TrimPrefix(line, "result "))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := DecodeResult(raw); err != nil || !reflect.DeepEqual(*r, searchResults()[i]) {
			t.Errorf("result reads as %+v, %v", r, err)
		}
	}
}

func TestADefinitionIsReadWholeOrNotAtAll(t *testing.T) {
	def := searchEntry().Commits[0].Ops[0].(*CollectionSet).Collection
	b := AppendCollection(nil, &def)
	if got, err := DecodeCollection(b); err != nil || !reflect.DeepEqual(got, def) {
		t.Errorf("reads as %+v, %v", got, err)
	}
	for n := range b {
		if _, err := DecodeCollection(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	other := def
	other.UID++
	if !def.Same(&other) {
		t.Error("a definition differs from itself because somebody else made it")
	}
	other.Dim++
	if def.Same(&other) {
		t.Error("definitions of two lengths are the same")
	}
}

func TestRulesAreReadWholeOrNotAtAll(t *testing.T) {
	r := &RulesetRules{Collection: "workers", Rules: []Rule{
		{ID: "a", When: "x == 1", Severity: "penalty", Weight: 0.25, Reason: "far", OnMissing: "ignore"}, {ID: "b", When: "true"},
	}}
	b := AppendRules(nil, r)
	const want = "07776f726b6572730201610678203d3d20310f0770656e616c7479808080808080" + "80e83f036661720669676e6f72650162047472756500"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("rules are %s, want %s: rulesets written before cannot be read", got, want)
	}
	if got, err := DecodeRules(b); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("read as %+v, %v", got, err)
	}
	for n := range b {
		if _, err := DecodeRules(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
}
