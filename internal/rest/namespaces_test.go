package rest

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

func TestNamespacesAreThoseOfTheTenantAndHoldWhatTheTokenMayRead(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.AddTask(r.t, "rival", apitest.ID(2))
	for _, name := range []string{"b", "c"} {
		if _, _, err := r.n.CreateNamespace(t.Context(), "acme", name, 2); err != nil {
			t.Fatal(err)
		}
	}
	get := func(query, token string, want int) string {
		t.Helper()
		return r.send(r.request("GET", "/v1/namespaces"+query, token, "")).expect(t, query, want).body
	}
	all := get("", "acme/all", 200)
	if strings.Count(all, `"name":`) != 3 || !strings.Contains(all, `{"name":"b","partitions":2,"queues":`) || strings.Contains(all, "cursor") {
		t.Errorf("all: %s", all)
	}
	for _, field := range []string{"queues", "states", "keyspaces", "repos", "collections"} {
		if strings.Count(all, `"`+field+`":`) != 3 {
			t.Errorf("%s: %s", field, all)
		}
	}
	if keys := get("", "acme/kv:read", 200); strings.Count(keys, `"keyspaces":`) != 3 || strings.Contains(keys, "states") || strings.Contains(keys, "repos") || strings.Contains(keys, "collections") {
		t.Errorf("with kv:read: %s", keys)
	}
	if one := get("", "rival/all", 200); strings.Count(one, `"name":`) != 1 {
		t.Errorf("another tenant: %s", one)
	}
	if none := get("", "other/all", 200); !strings.HasPrefix(none, `{"namespaces":[]}`) {
		t.Errorf("a tenant without any: %s", none)
	}
	page := get("?limit=2", "acme/all", 200)
	_, rest, _ := strings.Cut(page, `"cursor":"`)
	cursor, _, _ := strings.Cut(rest, `"`)
	if last := get("?limit=2&cursor="+cursor, "acme/all", 200); strings.Count(page, `"name":`) != 2 || strings.Count(last, `"name":`) != 1 || strings.Contains(last, "cursor") {
		t.Errorf("pages: %s and %s", page, last)
	}
	for query, field := range map[string]string{"?limit=0": "limit", "?limit=101": "limit", "?cursor=!": "cursor"} {
		if f := failed(t, r.send(r.request("GET", "/v1/namespaces"+query, "acme/all", ""))); f.Field != field {
			t.Errorf("%s: %+v", query, f)
		}
	}
}
