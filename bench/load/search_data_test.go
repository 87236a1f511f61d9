package load

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// searchDataSum is of all bytes that seed 1 gives: published figures refer to this data.
const searchDataSum = "84fec9438e4e390bcf2b605a3938024547902e3ab09545e68578104ad109b4c2"

func TestSearchDataOfASeedIsAlwaysTheSame(t *testing.T) {
	h := sha256.New()
	d := NewSearchData(SearchDataOptions{})
	for i := range d.Workers {
		h.Write([]byte(d.Workers[i].ID))
		h.Write(d.Workers[i].Payload())
	}
	queries := d.Queries(SearchBodies{Gated: true, Ruleset: "staffing"})
	for _, q := range queries {
		h.Write(q.Body)
	}
	h.Write(SearchRules("workers"))
	h.Write(SearchCollection())
	if got := hex.EncodeToString(h.Sum(nil)); got != searchDataSum {
		t.Errorf("sum %s, want %s", got, searchDataSum)
	}
	if len(d.Workers) != 5000 || len(queries) != 200 || len(EmbedBodies(queries)) != 200 {
		t.Errorf("%d workers, %d queries", len(d.Workers), len(queries))
	}
	if a, b := NewSearchData(SearchDataOptions{Seed: 2, Workers: 10}), d; string(a.Workers[0].Payload()) == string(b.Workers[0].Payload()) {
		t.Error("another seed gives the same workers")
	}
}

func TestEveryOrderHasWorkersThatFitAndOthersThatDoNot(t *testing.T) {
	d := NewSearchData(SearchDataOptions{})
	var counts [4]int
	without := 0
	for i := range d.Orders {
		best := 0
		for j := range d.Workers {
			rel := d.Relevance(&d.Orders[i], &d.Workers[j])
			counts[rel]++
			best = max(best, rel)
		}
		if best < 2 {
			without++
		}
	}
	if without > 0 || counts[3] < 50 || counts[0] < counts[1] || counts[1] < counts[3] {
		t.Errorf("%d orders without a worker that fits; by relevance %v", without, counts)
	}
	roles := map[string]bool{}
	for i := range d.Workers {
		w := &d.Workers[i]
		roles[w.Role] = true
		if !strings.HasPrefix(w.Role, w.Family+".") || !w.Synthetic || w.Text == "" || w.Pay < 12 {
			t.Fatalf("worker %+v", w)
		}
	}
	if len(roles) != 50 {
		t.Errorf("%d roles", len(roles))
	}
}

func TestStylesSayTheSameInOtherWords(t *testing.T) {
	d := NewSearchData(SearchDataOptions{Workers: 1, Orders: 30})
	for _, q := range d.Queries(SearchBodies{}) {
		var body map[string]any
		if err := json.Unmarshal(q.Body, &body); err != nil || body["query_text"] != q.Text || body["gate"] != nil {
			t.Fatalf("%s: %v", q.Body, err)
		}
		o := &d.Orders[q.Order]
		if !strings.Contains(strings.ToLower(q.Text), strings.ToLower(o.City)) || strings.Contains(q.Text, "  ") {
			t.Errorf("%s: %q", q.Style, q.Text)
		}
	}
	if got := d.Queries(SearchBodies{}, "need"); len(got) != 30 || !slices.Contains(SearchStyles, got[0].Style) {
		t.Errorf("%d queries in one style", len(got))
	}
}
