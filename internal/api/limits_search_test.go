package api

import (
	"fmt"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// searchBounds has the bounds of requests of search.
func searchBounds() map[string]bound {
	search := func(change func(*pb.SearchRequest)) doer {
		return func(r *rig) error {
			in := &pb.SearchRequest{Collection: "ws", QueryText: "x"}
			change(in)
			_, err := pb.NewSearchServiceClient(r.conn).Search(as("acme/all"), in)
			return err
		}
	}
	embed := func(n, size int) doer {
		return func(r *rig) error {
			_, err := pb.NewSearchServiceClient(r.conn).Embed(as("acme/all"), &pb.EmbedRequest{Texts: repeat(n, strings.Repeat("t", size))})
			return err
		}
	}
	points := func(n int) doer {
		return func(r *rig) error {
			_, err := pb.NewSearchServiceClient(r.conn).GetPoints(as("acme/all"), &pb.GetPointsRequest{Collection: "ws", Ids: repeat(n, "w1")})
			return err
		}
	}
	rules := func(n int) doer {
		return func(r *rig) error {
			_, err := pb.NewSearchServiceClient(r.conn).PutRuleset(as("acme/all"), &pb.PutRulesetRequest{
				Ruleset: "r", Collection: "ws", Rules: repeat(n, &pb.Rule{Id: "a", When: "true", Severity: "block"}),
			})
			return err
		}
	}
	text := func(n int) string { return strings.Repeat("t", n) }
	out := map[string]bound{
		"points_request":    {points(1000), points(1001), tooMuch, "ids"},
		"search_k":          {search(func(s *pb.SearchRequest) { s.K = 1000 }), search(func(s *pb.SearchRequest) { s.K = 1001 }), outside, "k"},
		"search_candidates": {search(func(s *pb.SearchRequest) { s.Candidates = 20_000 }), search(func(s *pb.SearchRequest) { s.Candidates = 20_001 }), outside, "candidates"},
		"query_text_bytes":  {search(func(s *pb.SearchRequest) { s.QueryText = text(32 * kib) }), search(func(s *pb.SearchRequest) { s.QueryText = text(32*kib + 1) }), tooMuch, "query_text"},
		"filter_bytes": {
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{Filter: text(4 * kib)} }),
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{Filter: text(4*kib + 1)} }), tooMuch, "gate.filter",
		},
		"embed_texts": {embed(2048, 1), embed(2049, 1), tooMuch, "texts"},
		"embed_bytes": {embed(2048, 1536), embed(2048, 1537), tooMuch, "texts"},
		"gate_names": {
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{Roles: repeat(64, "a")} }),
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{Roles: repeat(65, "a")} }), tooMuch, "gate.roles",
		},
		"gate_ids": {
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{IdsIn: repeat(10_000, "a")} }),
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{IdsIn: repeat(10_001, "a")} }), tooMuch, "gate.ids_in",
		},
		"ruleset_rules": {rules(64), rules(65), tooMuch, "rules"},
		"search_timeout_ms": {
			search(func(s *pb.SearchRequest) { s.Timeout = ms(minute) }), search(func(s *pb.SearchRequest) { s.Timeout = ms(minute + 1) }), outside, "timeout",
		},
	}
	return out
}

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
