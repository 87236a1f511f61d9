package rest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
)

// BenchmarkRESTCreate is one create from the request to the answer, without a network and without a node.
func BenchmarkRESTCreate(b *testing.B) {
	node := apitest.NewNode(new(apitest.Clock))
	s, err := api.New(api.Options{Backend: node, Auth: &apitest.Auth{}, Clock: node.Clock})
	if err != nil {
		b.Fatal(err)
	}
	h, err := New(s, Options{})
	if err != nil {
		b.Fatal(err)
	}
	body := `{"queue":"mail","payload":{"bench":true},"priority":3}`
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/tasks", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer acme/all")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			b.Fatal(w.Code, w.Body)
		}
		node.Commits = node.Commits[:0]
	}
}

// BenchmarkRESTNothing is what the benchmark above spends outside of this package.
func BenchmarkRESTNothing(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/tasks", strings.NewReader(`{"queue":"mail","payload":{"bench":true},"priority":3}`))
		r.Header.Set("Authorization", "Bearer acme/all")
		httptest.NewRecorder().WriteHeader(http.StatusCreated)
	}
}
