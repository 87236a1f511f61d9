package rest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/millrace/millrace/internal/edge"
)

// The router is not http.ServeMux for as long as that serves other paths than those that stand in the table, see decision 37.
func TestServeMuxServesPathsThatAreNoRoutes(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /v1/status", "GET /v1/kv/{keyspace}/keys/{key}", "POST /v1/tasks"} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	r := newRESTRig(t, edge.Limits{})
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for path, status := range map[string]int{
		"//v1/status":         http.StatusTemporaryRedirect,
		"/v1/./status":        http.StatusTemporaryRedirect,
		"/v1/kv/ks/keys/..":   http.StatusTemporaryRedirect,
		"/v1/kv/ks//keys/key": http.StatusTemporaryRedirect,
		"/v1/%73tatus":        http.StatusOK,
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != status {
			t.Errorf("%s: ServeMux answers %d, want %d: decide again", path, w.Code, status)
		}
		if a := r.do(http.MethodGet, path, ""); a.status != http.StatusNotFound {
			t.Errorf("%s: the router answers %d: %s", path, a.status, a.body)
		}
	}
}
