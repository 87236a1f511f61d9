package rest

import (
	"fmt"
	"strings"
)

// restSearchBounds is the same over REST.
func restSearchBounds() map[string]restBound {
	search := func(field string, at, beyond any, status int, path string) restBound {
		return restBound{
			method: "POST", path: "/v1/matrix/search", at: fmt.Sprintf(`{"collection":"ws","query_text":"x",`+field+`}`, at),
			beyond: fmt.Sprintf(`{"collection":"ws","query_text":"x",`+field+`}`, beyond), status: status, field: path,
		}
	}
	text := func(n int) string { return `"` + strings.Repeat("t", n) + `"` }
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	const small, large = 400, 413
	out := map[string]restBound{
		"search_k":          search(`"k":%d`, 1000, 1001, small, "k"),
		"search_candidates": search(`"candidates":%d`, 20_000, 20_001, small, "candidates"),
		"filter_bytes":      search(`"gate":{"filter":%s}`, text(4*kib), text(4*kib+1), large, "gate.filter"),
		"gate_names":        search(`"gate":{"roles":%s}`, list(64, `"a"`), list(65, `"a"`), large, "gate.roles"),
		"gate_ids":          search(`"gate":{"ids_not_in":%s}`, list(10_000, `"a"`), list(10_001, `"a"`), large, "gate.ids_not_in"),
		"search_timeout_ms": search(`"timeout":%s`, `"60s"`, `"60001ms"`, small, "timeout"),
	}
	post := func(key, path, format string, at, beyond any, field string) {
		out[key] = restBound{method: "POST", path: path, at: fmt.Sprintf(format, at), beyond: fmt.Sprintf(format, beyond), status: large, field: field}
	}
	post("query_text_bytes", "/v1/matrix/search", `{"collection":"ws","query_text":%s}`, text(32*kib), text(32*kib+1), "query_text")
	post("points_request", "/v1/collections/ws/points:get", `{"ids":%s}`, list(1000, `"w1"`), list(1001, `"w1"`), "ids")
	post("embed_texts", "/v1/embed", `{"texts":%s}`, list(2048, `"t"`), list(2049, `"t"`), "texts")
	post("embed_bytes", "/v1/embed", `{"texts":%s}`, list(2048, text(1536)), list(2048, text(1537)), "texts")
	out["ruleset_rules"] = restBound{
		method: "PUT", path: "/v1/rulesets/r", at: `{"collection":"ws","rules":` + list(64, `{"id":"a","when":"true","severity":"block"}`) + `}`,
		beyond: `{"collection":"ws","rules":` + list(65, `{"id":"a","when":"true","severity":"block"}`) + `}`, status: large, field: "rules",
	}
	return out
}
