package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/server"
)

// openRefDoor opens a door with the repository a, whose refs below refs/hidden are not shown, to its owner and to a reader of refs, and
// returns it with what changes refs of a, all of one call in one commit.
func openRefDoor(t *testing.T) (d *door, change func(changes ...string)) {
	t.Helper()
	table, err := auth.New(
		auth.Token{Hash: auth.Hash("owner"), Principal: auth.Principal{Name: "o", Tenant: "acme", Scopes: auth.All}},
		auth.Token{Hash: auth.Hash("reader"), Principal: auth.Principal{Name: "r", Tenant: "acme", Scopes: auth.RefRead}},
	)
	if err != nil {
		t.Fatal(err)
	}
	d = openDoorTokens(t, server.Options{Shards: 1}, table)
	d.do("owner", http.MethodPost, "/v1/repos", `{"name":"a","config":{"hide":["refs/hidden/**"]}}`).want(t, 201)
	return d, func(changes ...string) {
		t.Helper()
		d.do("owner", http.MethodPost, "/v1/repos/a/refs", `{"changes":[`+strings.Join(changes, ",")+`]}`).want(t, 200)
	}
}

func TestTheActivityOfARepositoryIsReadNewestFirst(t *testing.T) {
	d, change := openRefDoor(t)
	var want []string
	created := func(name, to string) string {
		return fmt.Sprintf(`{"kind":"symref_create","name":%q,"target":"refs/heads/%s"}`, name, to)
	}
	change(created("refs/x", "one"), created("refs/b", "one"), created("refs/hidden/x", "one"))
	for i := range 5 {
		change(fmt.Sprintf(`{"kind":"symref_update","name":"refs/x","target":"refs/heads/t%d"}`, i))
		want = append(want, fmt.Sprintf("refs/x refs/heads/t%d", i))
	}
	change(created("refs/z", "two"))
	want = append(want, "refs/z refs/heads/two")
	change(`{"kind":"symref_delete","name":"refs/b"}`)
	want = append(want, "refs/b ")
	slices.Reverse(want)
	want = append(want, "refs/b refs/heads/one", "refs/x refs/heads/one")
	read := func(token, query string) (out []string, cursor string) {
		t.Helper()
		var body struct {
			Moves []struct {
				Name, Rev string
				Target    string `json:"new_target"`
			}
			Cursor  string
			Partial bool
		}
		if err := json.Unmarshal(d.do(token, http.MethodGet, "/v1/repos/a/activity?"+query, "").want(t, 200).body, &body); err != nil {
			t.Fatal(err)
		}
		for _, m := range body.Moves {
			if m.Rev == "" || body.Partial {
				t.Errorf("%s: %+v", query, body)
			}
			if strings.HasPrefix(m.Name, "refs/") {
				out = append(out, m.Name+" "+m.Target)
			}
		}
		return out, body.Cursor
	}
	if got, _ := read("reader", ""); !slices.Equal(got, want) {
		t.Errorf("the activity is\n%q, want\n%q", got, want)
	}
	if got, _ := read("owner", ""); len(got) != len(want)+1 || !slices.Contains(got, "refs/hidden/x refs/heads/one") {
		t.Errorf("with hidden refs it is %q", got)
	}
	for limit := 1; limit < 4; limit++ {
		var got []string
		for query := fmt.Sprint("limit=", limit); query != ""; {
			page, cursor := read("reader", query)
			got, query = append(got, page...), ""
			if cursor != "" {
				query = fmt.Sprint("limit=", limit, "&cursor=", url.QueryEscape(cursor))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %d the activity is %q", limit, got)
		}
	}
	for query, status := range map[string]int{"cursor=x": 400, "limit=0": 400, "cursor=AAAAAAAAAAA": 400, "x=1": 400} {
		d.do("reader", http.MethodGet, "/v1/repos/a/activity?"+query, "").want(t, status)
	}
	d.do("reader", http.MethodGet, "/v1/repos/none/activity", "").want(t, 404)
}
