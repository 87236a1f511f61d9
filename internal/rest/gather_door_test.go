package rest

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Answers of all sizes come whole, one after the other over one connection.
func TestAnswersOfAllSizesComeWholeOverOneConnection(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // makes the namespace
	size := 0
	r.n.OnSearch = func(context.Context, *core.SearchQuery) (*core.SearchAnswer, error) {
		return &core.SearchAnswer{Plan: "scan", Hits: []core.SearchHit{{ID: "w1", Payload: []byte(`{"role":"` + strings.Repeat("r", size) + `"}`)}}}, nil
	}
	for _, size = range []int{0, 2000, 3000, 3500, 3900, 4000, 4096, 5000, 8192, 60_000, 70_000, 10, 4500} {
		a := r.do("POST", "/v1/matrix/search?ns=default", `{"collection":"ws","query_text":"x"}`).expect(t, "search", http.StatusOK)
		if !strings.Contains(a.body, `"`+strings.Repeat("r", size)+`"`) || !strings.HasSuffix(a.body, "}\n") {
			t.Errorf("%d bytes: %d came", size, len(a.body))
		}
	}
	if n := r.s.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestAQueryOfOneParameterIsReadAsAnyOther(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	for raw, want := range map[string]int{
		"ns=default": 200, "ns=defaul%74": 200, "ns=other": 404, "ns=": 400, "ns": 400, "=x": 400, "what=1": 400, "ns=default&ns=default": 400, "limit=5": 400, "ns=a=b": 400,
	} {
		r.do("GET", "/v1/tasks/"+apitest.ID(1)+"?"+raw, "").expect(t, raw, want)
	}
}
