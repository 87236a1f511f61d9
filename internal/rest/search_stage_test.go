package rest

import (
	"bytes"
	"context"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// labelled returns the stage that the caller's goroutine is labelled with. Others, such as one that waits for the next bytes of
// a connection, keep the label of who started them, and take no time.
func labelled(t *testing.T) string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Error(err)
	}
	for record := range strings.SplitSeq(b.String(), "\n\n") {
		if !strings.Contains(record, "rest.labelled") {
			continue
		}
		_, labels, _ := strings.Cut(record, `{"stage":"`)
		stage, _, _ := strings.Cut(labels, `"`)
		return stage
	}
	t.Error("the profile lacks this goroutine")
	return ""
}

// Profiles tell the reading of a search from its embedding, and neither from what comes afterwards.
func TestProfilesTellTheStagesOfASearchApart(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	var parse, embed, search string
	e := r.embedder
	r.n.Looked = func() { parse = labelled(t) }
	e.Asked = func() { embed = labelled(t) }
	r.n.OnSearch = func(context.Context, *core.SearchQuery) (*core.SearchAnswer, error) {
		search = labelled(t)
		return &core.SearchAnswer{Plan: "scan"}, nil
	}
	r.do("POST", "/v1/matrix/search", `{"collection":"ws","query_text":"x"}`).expect(t, "search", http.StatusOK)
	if parse != "parse" || embed != "embed" || search != "" {
		t.Errorf("a search is labelled %q, then %q, then %q", parse, embed, search)
	}
	embed = ""
	r.do("POST", "/v1/embed", `{"text":"x"}`).expect(t, "embed", http.StatusOK)
	if embed != "embed" {
		t.Errorf("embedding is labelled %q", embed)
	}
}
