package api

import (
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
)

// searchBounds has the bounds of requests of search.
func searchBounds() map[string]bound {
	search := func(change func(*pb.SearchRequest)) doer {
		return func(r *rig) error {
			in := &pb.SearchRequest{Collection: "ws", QueryText: "x"}
			change(in)
			_, err := pb.NewSearchServiceClient(r.conn).Search(apitest.As("acme/all"), in)
			return err
		}
	}
	embed := func(n, size int) doer {
		return func(r *rig) error {
			_, err := pb.NewSearchServiceClient(r.conn).Embed(apitest.As("acme/all"), &pb.EmbedRequest{Texts: apitest.Repeat(n, strings.Repeat("t", size))})
			return err
		}
	}
	points := func(n int) doer {
		return func(r *rig) error {
			_, err := pb.NewSearchServiceClient(r.conn).GetPoints(apitest.As("acme/all"), &pb.GetPointsRequest{Collection: "ws", Ids: apitest.Repeat(n, "w1")})
			return err
		}
	}
	rules := func(n int) doer {
		return func(r *rig) error {
			_, err := pb.NewSearchServiceClient(r.conn).PutRuleset(apitest.As("acme/all"), &pb.PutRulesetRequest{
				Ruleset: "r", Collection: "ws", Rules: apitest.Repeat(n, &pb.Rule{Id: "a", When: "true", Severity: "block"}),
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
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{Roles: apitest.Repeat(64, "a")} }),
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{Roles: apitest.Repeat(65, "a")} }), tooMuch, "gate.roles",
		},
		"gate_ids": {
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{IdsIn: apitest.Repeat(10_000, "a")} }),
			search(func(s *pb.SearchRequest) { s.Gate = &pb.Gate{IdsIn: apitest.Repeat(10_001, "a")} }), tooMuch, "gate.ids_in",
		},
		"ruleset_rules": {rules(64), rules(65), tooMuch, "rules"},
		"search_timeout_ms": {
			search(func(s *pb.SearchRequest) { s.Timeout = ms(minute) }), search(func(s *pb.SearchRequest) { s.Timeout = ms(minute + 1) }), outside, "timeout",
		},
	}
	return out
}
