package server

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Numbers at the ends of what they may be are stored and compared exactly, or refused by field, each point by itself.
func TestNumbersAtTheirEnds(t *testing.T) {
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), "embedders: [{name: mine, kind: none, model: own, dim: 2}]")
	defer r.Close(time.Second)
	p.must("PUT", "/v1/collections/ws", `{"embedder":"mine","schema":[{"name":"n","type":"int"},{"name":"x","type":"float"},{"name":"t","type":"time"},
		{"name":"c","type":"credentials","gate":"credential"}]}`)
	const upsert = "/v1/collections/ws/points:upsert"
	count := func(gate string) (n int) {
		t.Helper()
		_, _, answer := p.do("POST", "/v1/collections/ws/points:count", `{"gate":`+gate+`}`)
		var out struct{ Count *int }
		if err := json.Unmarshal(answer, &out); err != nil || out.Count == nil {
			t.Fatalf("%s: %s", gate, answer)
		}
		return *out.Count
	}
	for _, v := range []string{"[3.5e38,1]", "[-3.5e38,1]", "[1e400,1]", "[1e-46,0]", "[-0.0,0]", "[1e15,1e15]"} {
		status, _, answer := p.do("POST", upsert, `{"points":[{"id":"bad","vector":`+v+`,"model":"own"},{"id":"good","vector":[1,0],"model":"own"}]}`)
		var out struct {
			Results []struct {
				Version string
				Error   *refused
			}
		}
		if err := json.Unmarshal(answer, &out); err != nil || status != http.StatusOK || len(out.Results) != 2 {
			t.Fatalf("%s: %d %s", v, status, answer)
		}
		if e := out.Results[0].Error; e == nil || e.Reason != "vector_invalid" || e.Field != "points[0].vector" || out.Results[1].Error != nil {
			t.Errorf("%s: %s", v, answer)
		}
		if status, _, got := p.refusal("POST", "/v1/matrix/search", `{"collection":"ws","vector":`+v+`,"model":"own"}`); status != http.StatusBadRequest || got.Reason != "vector_invalid" {
			t.Errorf("a search by %s: %d %+v", v, status, got)
		}
	}
	for _, v := range []string{"[1e-45,0]", "[9e14,0]", "[-0.0,1]", "[1e-400,1]"} {
		p.must("POST", upsert, `{"points":[{"id":"good","vector":`+v+`,"model":"own"}]}`)
		p.must("POST", "/v1/matrix/search", `{"collection":"ws","vector":`+v+`,"model":"own"}`)
	}
	store := func(field, value string) string {
		return `{"points":[{"id":"good","vector":[1,0],"model":"own","payload":{"` + field + `":` + value + `}}]}`
	}
	for field, list := range map[string][]string{
		"n": {"9223372036854775807", "-9223372036854775807", "9007199254740993", "-9007199254740993", "-0"},
		"x": {"1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "-0.0"},
	} {
		for _, v := range list {
			p.must("POST", upsert, store(field, v))
			equal := `{"filter":"` + field + ` == p.v","params":{"v":` + v + `}}`
			if n := count(equal); n != 1 {
				t.Errorf("%s: %d points", equal, n)
			}
			if n := count(`{"filter":"` + field + ` < p.v || ` + field + ` > p.v","params":{"v":` + v + `}}`); n != 0 {
				t.Errorf("%s %s is less or greater than itself", field, v)
			}
		}
	}
	p.must("POST", upsert, store("n", "9007199254740993"))
	if count(`{"filter":"n == 9007199254740992"}`) != 0 || count(`{"filter":"n == p.v","params":{"v":9007199254740992}}`) != 0 || count(`{"filter":"n > p.v","params":{"v":9007199254740992}}`) != 1 {
		t.Error("whole numbers beyond 2^53 are not exact")
	}
	for _, c := range [][2]string{
		{"n", "-9223372036854775808"},
		{"n", "9223372036854775808"},
		{"n", "1.0"},
		{"n", "1e3"},
		{"n", "18446744073709551616"},
		{"x", "1e309"},
		{"x", "-1e309"},
		{"t", `"9999-12-31T00:00:00Z"`},
		{"t", `"1677-12-31T00:00:00Z"`},
	} {
		if _, _, got := p.refusal("POST", upsert, store(c[0], c[1])); got.Reason != "field_type" || got.Field != "points[0].payload."+c[0] {
			t.Errorf("%s %s: %+v", c[0], c[1], got)
		}
	}
	p.must("POST", upsert, store("c", `[{"id":"rn","expires_at":"9999-12-31T23:59:59Z"}]`)) // never, as many write it
	if n := count(`{"credentials_all":["rn"],"valid_at":"2199-12-31T00:00:00Z"}`); n != 1 {
		t.Errorf("a credential without an end: %d points", n)
	}
}

// A parameter that is compared with a time as it is could never be decided, and would silently leave no row.
func TestAParameterIsNotComparedWithATime(t *testing.T) {
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), "embedders: []")
	defer r.Close(time.Second)
	p.must("PUT", "/v1/collections/ws", `{"schema":[{"name":"t","type":"time"},{"name":"n","type":"int"}]}`)
	p.must("POST", "/v1/collections/ws/points:upsert", `{"points":[{"id":"a","payload":{"text":"x","t":"2026-01-01T00:00:00Z","n":1}}]}`)
	p.must("PUT", "/v1/rulesets/late", `{"collection":"ws","rules":[{"id":"a","when":"t > p.since","severity":"block"}]}`)
	const since = `"params":{"since":"2025-01-01T00:00:00Z","l":["2026-01-01T00:00:00Z"],"at":1735689600}`
	for _, filter := range []string{
		"t > p.since", "p.since < t", "t == p.since", "t != p.since", "n == 1 && t >= p.since", "now > p.since", "t <= p.at", "t in p.l", "!(t < params.since)",
		"t > timestamp('2020-01-01T00:00:00Z') ? t < p.since : false",
	} {
		if status, _, got := p.refusal("POST", "/v1/collections/ws/points:count", `{"gate":{"filter":"`+filter+`",`+since+`}}`); status != http.StatusBadRequest || got.Reason != "expression_invalid" {
			t.Errorf("%s: %d %+v", filter, status, got)
		}
	}
	if _, _, got := p.refusal("POST", "/v1/matrix/search", `{"collection":"ws","query_text":"x","judge":{"ruleset":"late",`+since+`}}`); got.Field != "judge.params" {
		t.Errorf("of a rule: %+v", got)
	}
	for filter, want := range map[string]string{
		"t > timestamp(p.since)": `"count":1`, "timestamp(p.since) > t": `"count":0`, "has(p.none) && t > p.none": `"count":0`, "n == p.at": `"count":0`,
	} {
		if _, _, answer := p.do("POST", "/v1/collections/ws/points:count", `{"gate":{"filter":"`+filter+`",`+since+`}}`); !strings.Contains(string(answer), want) {
			t.Errorf("%s: %s", filter, answer)
		}
	}
}

// Two lists that no row holds, parameters and what the gate asks for, are equal when their elements are.
func TestListsOfARequestAreComparedByTheirElements(t *testing.T) {
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), "embedders: []")
	defer r.Close(time.Second)
	p.must("PUT", "/v1/collections/ws", `{"schema":[{"name":"n","type":"int"}]}`)
	p.must("POST", "/v1/collections/ws/points:upsert", `{"points":[{"id":"a","payload":{"text":"x","n":1}}]}`)
	p.must("PUT", "/v1/rulesets/same", `{"collection":"ws","rules":[{"id":"a","when":"p.a == p.b","severity":"block"}]}`)
	for params, equal := range map[string]bool{
		`{"a":["x","y"],"b":["x","y"]}`: true, `{"a":["x","y"],"b":["y","x"]}`: false, `{"a":[1,2],"b":[1.0,2]}`: true, `{"a":[1,2],"b":[1,2,3]}`: false,
		`{"a":[],"b":[]}`: true, `{"a":[],"b":""}`: false, `{"a":[[1],null],"b":[[1.0],null]}`: true, `{"a":{"k":[1]},"b":{"k":[1]}}`: true,
	} {
		for _, op := range []string{"==", "!="} {
			want := `"count":0`
			if equal == (op == "==") {
				want = `"count":1`
			}
			if _, _, answer := p.do("POST", "/v1/collections/ws/points:count", `{"gate":{"filter":"p.a `+op+` p.b","params":`+params+`}}`); !strings.Contains(string(answer), want) {
				t.Errorf("p.a %s p.b of %s: %s", op, params, answer)
			}
		}
		_, _, answer := p.do("POST", "/v1/matrix/search", `{"collection":"ws","query_text":"x","judge":{"ruleset":"same","params":`+params+`}}`)
		if found := strings.Contains(string(answer), `"id":"a"`); found == equal {
			t.Errorf("a search with a rule on %s: %s", params, answer)
		}
	}
}
