package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestRefsAreListedInTheOrderOfTheirChanges(t *testing.T) {
	d, change := openRefDoor(t)
	created := func(name string) string {
		return fmt.Sprintf(`{"kind":"symref_create","name":%q,"target":"refs/heads/main"}`, name)
	}
	change(created("refs/b/1"), created("refs/a/1"), created("refs/gone"), created("refs/hidden/x"))
	change(created("refs/a/2"))
	change(`{"kind":"symref_update","name":"refs/b/1","target":"refs/heads/next"}`)
	change(`{"kind":"symref_delete","name":"refs/gone"}`)
	want := []string{"refs/b/1", "refs/a/2", "refs/a/1"}

	type page struct {
		Refs []struct{ Name, Rev string }
		Rev  string
		// Where the next page begins.
		After    string
		AfterRev string `json:"after_rev"`
		Partial  bool
	}
	read := func(token, query string) (names []string, p page) {
		t.Helper()
		r := d.do(token, http.MethodGet, "/v1/repos/a/refs?"+query, "").want(t, 200)
		if err := json.Unmarshal(r.body, &p); err != nil || p.Partial || p.Rev == "" {
			t.Fatalf("%s: %s, %v", query, r.body, err)
		}
		for _, ref := range p.Refs {
			if strings.HasPrefix(ref.Name, "refs/") && ref.Rev != "" {
				names = append(names, ref.Name)
			}
		}
		return names, p
	}
	if got, _ := read("reader", "sort=moved"); !slices.Equal(got, want) {
		t.Errorf("the refs are %q, want %q", got, want)
	}
	if got, _ := read("owner", "sort=moved"); !slices.Equal(got, append(slices.Clone(want), "refs/hidden/x")) {
		t.Errorf("with hidden ones the refs are %q", got)
	}
	if got, _ := read("reader", "sort=moved&prefix=refs/a/"); !slices.Equal(got, want[1:]) {
		t.Errorf("with a prefix the refs are %q", got)
	}
	if got, _ := read("reader", "sort=moved&glob=refs/*/1"); !slices.Equal(got, []string{"refs/b/1", "refs/a/1"}) {
		t.Errorf("with a glob the refs are %q", got)
	}
	for limit := 1; limit < 4; limit++ {
		var got []string
		for query := ""; ; {
			names, p := read("reader", fmt.Sprintf("sort=moved&limit=%d%s", limit, query))
			if got = append(got, names...); p.After == "" || len(got) > 2*len(want) {
				break
			}
			query = "&after=" + url.QueryEscape(p.After) + "&after_rev=" + p.AfterRev
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %d the refs are %q", limit, got)
		}
	}
	for query, field := range map[string]string{
		"sort=moved&after=refs/a/1": "after_rev", "sort=moved&after_rev=1": "after_rev", "after=refs/a/1&after_rev=1": "after_rev",
		"sort=moved&after=refs/a/1&after_rev=x": "after_rev", "sort=other": "sort", "sort=moved&format=ndjson": "sort", "sort=moved&limit=1001": "limit",
	} {
		if r := d.do("reader", http.MethodGet, "/v1/repos/a/refs?"+query, "").want(t, 400); r.text(t, "error", "field") != field {
			t.Errorf("%s: %s", query, r.body)
		}
	}
}

func TestAListInTheOrderOfChangesSaysWhereItDidNotLookAtAllRefs(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, http.MethodPost, "/v1/repos", `{"name":"a"}`).want(t, 201)
	change := func(changes string) {
		t.Helper()
		d.do(mail, http.MethodPost, "/v1/repos/a/refs", `{"changes":[`+changes+`]}`).want(t, 200)
	}
	// One request looks at 10,000 refs and no more, and says so.
	for part := range 2 {
		var many []string
		for i := range 5001 {
			many = append(many, fmt.Sprintf(`{"kind":"symref_create","name":"refs/many/%d/%05d","target":"refs/heads/main"}`, part, i))
		}
		change(strings.Join(many, ","))
	}
	change(`{"kind":"symref_update","name":"refs/many/1/05000","target":"refs/heads/next"}`)
	r := d.do(mail, http.MethodGet, "/v1/repos/a/refs?sort=moved&prefix=refs/many/&limit=1", "").want(t, 200)
	if got := string(r.field(t, "partial")); got != "true" || strings.Contains(string(r.body), "refs/many/1/05000") {
		t.Errorf("of more refs than are looked at: %s", r.body)
	}
	r = d.do(mail, http.MethodGet, "/v1/repos/a/refs?sort=moved&prefix=refs/many/1/&limit=1", "").want(t, 200)
	if !strings.Contains(string(r.body), "refs/many/1/05000") || strings.Contains(string(r.body), "partial") {
		t.Errorf("of those with a prefix: %s", r.body)
	}
}
