package api

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestEndedTasksOfPartitionsAreMergedUpToWhatIsKnown(t *testing.T) {
	page := func(more bool, ends ...core.ShardTime) (p taskPage) {
		for _, at := range ends {
			p.Tasks = append(p.Tasks, core.Task{ID: core.TaskID{byte(at)}, FinishedAt: at})
		}
		if more {
			p.Next = []byte{1}
		}
		return p
	}
	for _, c := range []struct {
		what  string
		pages []taskPage
		limit int
		want  []core.ShardTime
		more  bool
	}{
		{"all", []taskPage{page(false, 9, 5), page(false, 7), page(false)}, 9, []core.ShardTime{9, 7, 5}, false},
		{"as many as were asked for", []taskPage{page(false, 9, 5), page(false, 7)}, 2, []core.ShardTime{9, 7}, true},
		{"just all", []taskPage{page(false, 9, 5), page(false, 7)}, 3, []core.ShardTime{9, 7, 5}, false},
		{"up to the end of a page", []taskPage{page(true, 9, 8), page(false, 7, 6)}, 9, []core.ShardTime{9, 8}, true},
		{"a page that is at its end and not at the end of the list", []taskPage{page(true, 9)}, 1, []core.ShardTime{9}, true},
	} {
		var got []core.ShardTime
		last, more := mergeEnded(c.pages, c.limit, func(t *core.Task) { got = append(got, t.FinishedAt) })
		if !slices.Equal(got, c.want) || more != c.more || last.FinishedAt != c.want[len(c.want)-1] {
			t.Errorf("%s: %v, more %t, last %v", c.what, got, more, last)
		}
	}
}
