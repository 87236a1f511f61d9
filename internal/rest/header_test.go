package rest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// Each route is asked with each header that means something: it takes it, or refuses it by name.
func TestARouteRefusesTheHeadersThatItDoesNotHonour(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	asked := slices.Sorted(maps.Keys(meaningful))
	asked = append(asked, "Millrace-Index", "Millrace-Anything")
	for _, route := range Routes() {
		path := strings.NewReplacer("{id}", apitest.ID(1), "{", "", "}", "").Replace(route.Path)
		for _, name := range asked {
			if route.takesHeader(name) {
				continue
			}
			a := r.do(route.Method, path, "", name, "x")
			if route.failure != nil {
				if a.status != http.StatusBadRequest || !strings.Contains(a.body, `"param":"`+name+`"`) {
					t.Errorf("%s with %s: %d %s", route.name(), name, a.status, a.body)
				}
				continue
			}
			if e := failed(t, a); a.status != http.StatusBadRequest || e.Code != "INVALID_ARGUMENT" || e.Field != name || e.Reason != "not_supported" || e.Outcome != "refused" {
				t.Errorf("%s with %s: %d %s", route.name(), name, a.status, a.body)
			}
		}
	}
	if got := r.n.Proposed(); len(got) > 0 {
		t.Errorf("%d commits were proposed", len(got))
	}
}

// What a route takes and what it says of repeating go together, and a server is not made where they do not.
func TestEveryRouteSaysHowItsRequestsAreRepeated(t *testing.T) {
	for _, r := range Routes() {
		if !r.checkRepeats() {
			t.Errorf("%s: %q with the headers %v", r.name(), r.Repeat, r.Header)
		}
	}
	for _, r := range []*Route{
		{Method: http.MethodPost},
		{Method: http.MethodPost, Repeat: RepeatByKey},
		{Method: http.MethodPut, Repeat: RepeatSame, Header: []Param{keyParam}},
		{Method: http.MethodGet, Repeat: RepeatRead},
		{Method: http.MethodGet, Header: []Param{keyParam}},
	} {
		if r.checkRepeats() {
			t.Errorf("%s with %q and the headers %v is taken", r.Method, r.Repeat, r.Header)
		}
	}
}

func TestHeadersThatOnlyDescribeARequestArePassedOver(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	a := r.do("GET", "/v1/queues", "", "Accept", "application/json", "Accept-Language", "de", "Cache-Control", "no-cache", "User-Agent", "x",
		"Origin", "http://x", "X-Forwarded-For", "1.2.3.4", "X-Request-Id", "7", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"X-Stainless-Lang", "python", "Dnt", "1")
	a.expect(t, "ordinary headers", http.StatusOK)
	r.do("POST", "/v1/tasks", `{"queue":"q"}`, "Expect", "100-continue").expect(t, "a body that waits to be asked for", http.StatusCreated)
}
