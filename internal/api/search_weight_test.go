package api

import (
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Where the embedder knows words alone, words count most.
func TestWordsCountMostWhereTheEmbedderKnowsWordsAlone(t *testing.T) {
	q := new(core.SearchQuery)
	if fact := weigh(q, &pb.SearchRequest{QueryText: "x"}, false); fact != nil || q.Dense != 0.1 || q.Lexical != 0.9 {
		t.Errorf("where the embedder knows words alone: %v, %v, %v", q.Dense, q.Lexical, fact)
	}
}
