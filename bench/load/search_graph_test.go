package load

import (
	"slices"
	"testing"
)

// What a walk finds is held against exact products over all rows, or over those that pass.
func TestWalksOfTheBenchAreHeldAgainstExactAnswers(t *testing.T) {
	for _, kind := range []string{"text", GraphClusters} {
		vectors, queries := graphData(kind, 3000, 1)
		if len(vectors) != 3000 || len(queries) != graphQueries {
			t.Fatalf("%s: %d vectors, %d queries", kind, len(vectors), len(queries))
		}
		r := newGraphRun(vectors, queries)
		if err := r.build(t.Context()); err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= 2; step++ {
			want := r.nearest(step)
			if got := r.recall(graphDefault, want); got < 0.98 {
				t.Errorf("%s, one row of %d passes: recall %.4f", kind, step, got)
			}
			for i, q := range r.queries[:20] {
				for _, h := range r.walk(q, graphDefault, want.pass, nil) {
					if int(h.Row)%step != 0 {
						t.Fatalf("%s: row %d does not pass", kind, h.Row)
					}
				}
				if len(want.rows[i]) != graphNeighbours {
					t.Errorf("%s: the nearest are %v", kind, want.rows[i])
				}
			}
			slices.Reverse(want.rows) // the answers of other queries
			if got := r.recall(graphDefault, want); got > 0.5 {
				t.Errorf("%s: recall of other queries' answers is %.4f", kind, got)
			}
		}
	}
}
