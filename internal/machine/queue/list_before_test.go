package queue

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestEndedTasksAreListedFromAnEndBackwards(t *testing.T) {
	w := newWorld(t, Options{})
	var ends []core.TaskEnd
	for i := range 6 {
		id := numbered(10 - i) // against the order of ids
		w.do(&core.TaskCreate{ID: id, Queue: "q"})
		token := w.do(claimOp(1, "q")).res.Assigned[0].Token
		if i == 3 || i == 5 {
			w.c.Stamp++ // two pairs end at one time
		}
		w.do(&core.TaskComplete{Task: id, Token: token})
		ends = append(ends, core.TaskEnd{At: w.c.Stamp, ID: id})
	}
	slices.SortFunc(ends, func(a, b core.TaskEnd) int {
		if a.At != b.At {
			return int(b.At - a.At)
		}
		return slices.Compare(b.ID[:], a.ID[:])
	})
	const shift = 5000 // what is asked for and shown is by the wall clocks
	for i := range ends {
		before := core.TaskEnd{At: ends[i].At.Add(shift), ID: ends[i].ID}
		q := core.ListQuery{Queue: "q", State: core.Completed, Desc: true, Limit: 9, Before: before}
		page, err := List(w.tx, testPartition, q, shift)
		if err != nil || len(page.Tasks) != len(ends)-i-1 {
			t.Fatalf("before end %d: %d tasks, %v", i, len(page.Tasks), err)
		}
		for j := range page.Tasks {
			if page.Tasks[j].ID != ends[i+1+j].ID {
				t.Errorf("before end %d: task %d is %s", i, j, page.Tasks[j].ID)
			}
		}
	}
	before := core.TaskEnd{At: ends[0].At, ID: ends[0].ID}
	for what, q := range map[string]core.ListQuery{
		"forward":       {Queue: "q", State: core.Completed, Limit: 9, Before: before},
		"of no queue":   {State: core.Completed, Desc: true, Limit: 9, Before: before},
		"that wait":     {Queue: "q", State: core.Ready, Desc: true, Limit: 9, Before: before},
		"with a cursor": {Queue: "q", State: core.Completed, Desc: true, Limit: 9, Before: before, Cursor: []byte{1}},
		"of a kind":     {Queue: "q", State: core.Completed, Desc: true, Limit: 9, Before: before, Kind: "k"},
	} {
		if _, err := List(w.tx, testPartition, q, 0); !errors.Is(err, badCursor) {
			t.Errorf("tasks %s before an end: %v", what, err)
		}
	}
}
