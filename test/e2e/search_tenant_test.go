package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// What another tenant has looks like what does not exist: to the byte, on each route, and in hints and counts.
// index is where in the log of the namespace an answer stands: it rises with each write of the caller's own.
var index = regexp.MustCompile(`"index":"\d+"`)

func TestWhatAnotherTenantSearchesLooksLikeNothingAtAll(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "rival", role: "admin"})
	door := func(n int) web {
		return web{t: t, address: l.running.HTTPAddress, token: l.tokens[n], client: &http.Client{}}
	}
	acme, rival := door(0), door(1)
	must := func(w web, method, path, body string) string {
		t.Helper()
		status, answer := w.call(method, path, body)
		if status/100 != 2 {
			t.Fatalf("%s %s: %d %s", method, path, status, answer)
		}
		return answer
	}
	const schema = `{"schema":[{"name":"role","type":"keyword","index":true,"gate":"role"}]}`
	const rules = `"rules":[{"id":"a","when":"role == 'x'","severity":"block"}]`
	for _, name := range []string{"hidden", "shared"} {
		must(acme, "PUT", "/v1/collections/"+name, schema)
		must(acme, "POST", "/v1/collections/"+name+"/points:upsert", `{"points":[{"id":"w1","payload":{"text":"mig welder","role":"welder.mig"}}]}`)
	}
	must(acme, "PUT", "/v1/rulesets/hidden", `{"collection":"hidden",`+rules+`}`)
	var kept struct {
		ID string `json:"search_id"`
	}
	if err := json.Unmarshal([]byte(must(acme, "POST", "/v1/matrix/search", `{"collection":"shared","query_text":"welder","record":true}`)), &kept); err != nil || kept.ID == "" {
		t.Fatalf("nothing was recorded: %v", err)
	}
	must(rival, "PUT", "/v1/collections/shared", schema)
	must(rival, "POST", "/v1/collections/shared/points:upsert", `{"points":[{"id":"r1","payload":{"text":"tig welder","role":"welder.tig"}}]}`)

	unknown := kept.ID[:len(kept.ID)-1] + "0"
	if unknown == kept.ID {
		unknown = kept.ID[:len(kept.ID)-1] + "1"
	}
	for _, ask := range []struct{ method, path, body, theirs, nobodys string }{
		{"GET", "/v1/collections/NAME", "", "hidden", "absent"},
		{"DELETE", "/v1/collections/NAME", "", "hidden", "absent"},
		{"GET", "/v1/collections/NAME/stats", "", "hidden", "absent"},
		{"POST", "/v1/collections/NAME/points:upsert", `{"points":[{"id":"w1","payload":{"text":"x"}}]}`, "hidden", "absent"},
		{"POST", "/v1/collections/NAME/points:delete", `{"points":[{"id":"w1"}]}`, "hidden", "absent"},
		{"POST", "/v1/collections/NAME/points:get", `{"ids":["w1"]}`, "hidden", "absent"},
		{"POST", "/v1/collections/NAME/points:count", `{}`, "hidden", "absent"},
		{"POST", "/v1/matrix/search", `{"collection":"NAME","query_text":"welder"}`, "hidden", "absent"},
		{"POST", "/v1/matrix/search", `{"collection":"shared","query_text":"welder","judge":{"ruleset":"NAME"}}`, "hidden", "absent"},
		{"POST", "/v1/matrix/search", `{"collection":"shared","query_text":"welder","judge":{"ruleset":"NAME@1"}}`, "hidden", "absent"},
		{"POST", "/v1/matrix/search", `{"collection":"shared","query_text":"welder","gate":{"roles":["NAME"]}}`, "welder.mig", "welder.mag"},
		{"POST", "/v1/collections/shared/points:count", `{"gate":{"roles":["NAME"]}}`, "welder.mig", "welder.mag"},
		{"GET", "/v1/rulesets/NAME", "", "hidden", "absent"},
		{"PUT", "/v1/rulesets/mine", `{"collection":"NAME",` + rules + `}`, "hidden", "absent"},
		{"GET", "/v1/recordings/NAME", "", kept.ID, unknown},
		{"POST", "/v1/commit", `{"ops":[{"vector_upsert":{"collection":"NAME","point":{"id":"w1","payload":{"text":"x"}}}}]}`, "hidden", "absent"},
	} {
		answer := func(name string) (int, string) {
			status, body := rival.call(ask.method, strings.ReplaceAll(ask.path, "NAME", name), strings.ReplaceAll(ask.body, "NAME", name))
			return status, index.ReplaceAllString(strings.ReplaceAll(body, name, "NAME"), "")
		}
		status, body := answer(ask.theirs)
		want, like := answer(ask.nobodys)
		if status != want || body != like {
			t.Errorf("%s %s %s: %d %s for what another tenant has, %d %s for what does not exist", ask.method, ask.path, ask.body, status, body, want, like)
		}
	}
	_, hint := rival.call("POST", "/v1/matrix/search", `{"collection":"shared","query_text":"x","gate":{"roles":["welder.mig"]}}`)
	if !strings.Contains(hint, "unknown_role") || !strings.Contains(hint, "welder.tig") {
		t.Errorf("the hint is not of the caller's own roles: %s", hint)
	}
	if all := must(rival, "POST", "/v1/matrix/search", `{"collection":"shared","query_text":"x"}`); !strings.Contains(all, `"considered":1,"passed":1`) {
		t.Errorf("rows of others are counted: %s", all)
	}
	if list := must(rival, "GET", "/v1/collections", "") + must(rival, "GET", "/v1/rulesets", ""); strings.Contains(list, "hidden") {
		t.Errorf("names of others are listed: %s", list)
	}
	must(rival, "PUT", "/v1/collections/hidden", schema) // the name is free
	if own := must(acme, "POST", "/v1/collections/hidden/points:count", `{}`); !strings.Contains(own, `"count":1`) {
		t.Errorf("another tenant's collection of that name changed this one: %s", own)
	}
}
