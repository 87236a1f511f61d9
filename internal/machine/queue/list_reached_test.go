package queue

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestAListTellsHowFarItCame(t *testing.T) {
	w := newWorld(t, Options{})
	const shift = 7000 // of the wall clocks, which the node adds
	var made, ended [5]core.ShardTime
	for i := range 5 {
		w.c.Stamp += 100
		made[i] = w.c.Stamp
		w.do(&core.TaskCreate{ID: numbered(i + 1), Queue: "q"})
	}
	for i := range 5 {
		w.c.Stamp += 100
		ended[i] = w.c.Stamp
		w.do(&core.TaskComplete{Task: numbered(i + 1), Token: w.do(claimOp(1, "q")).res.Assigned[0].Token})
	}
	w.do(&core.TaskCreate{ID: numbered(9), Queue: "q"})
	for what, c := range map[string]struct {
		q    core.ListQuery
		look int // rows that may be looked at
		want core.ShardTime
	}{
		"by creation":                   {core.ListQuery{Limit: 9}, 2, made[1]},
		"by creation, a full page":      {core.ListQuery{Limit: 3}, 9, made[2]},
		"by creation, the last first":   {core.ListQuery{Limit: 9, Desc: true}, 3, made[3]},
		"by creation, none found":       {core.ListQuery{Limit: 9, Kind: "other"}, 4, made[3]},
		"by creation, to the end":       {core.ListQuery{Limit: 9}, 9, 0},
		"by end":                        {core.ListQuery{Limit: 2, Queue: "q", State: core.Completed}, 9, ended[1]},
		"by end, the last first":        {core.ListQuery{Limit: 2, Queue: "q", State: core.Completed, Desc: true}, 9, ended[3]},
		"by end, none found":            {core.ListQuery{Limit: 2, Queue: "q", State: core.Completed, Kind: "other"}, 3, ended[2]},
		"by end, to the end":            {core.ListQuery{Limit: 9, Queue: "q", State: core.Completed}, 9, 0},
		"in the order of another time":  {core.ListQuery{Limit: 1, Queue: "q", State: core.Ready}, 1, 0},
		"of another time, none is such": {core.ListQuery{Limit: 1, Queue: "q", State: core.Ready, Kind: "other"}, 1, 0},
	} {
		page, err := list(w.tx, testPartition, c.q, shift, c.look)
		if err != nil || page.Reached != c.want {
			t.Errorf("%s: reached %d, %v, want %d", what, page.Reached, err, c.want)
		}
	}
}

func TestAListHasTheFirstBytesOfPayloads(t *testing.T) {
	w := newWorld(t, Options{})
	long := strings.Repeat("x", 300)
	for i, payload := range []string{"", "abc", long} {
		w.do(&core.TaskCreate{ID: numbered(i + 1), Queue: "q", Payload: []byte(payload)})
	}
	for what, q := range map[string]core.ListQuery{
		"of a state": {Limit: 9, Queue: "q", State: core.Ready, Head: 256}, "of all": {Limit: 9, Head: 256}, "none": {Limit: 9},
	} {
		page, err := List(w.tx, testPartition, q, 0)
		if err != nil || len(page.Tasks) != 3 {
			t.Fatal(what, page, err)
		}
		for i, want := range []string{"", "abc", long} {
			size := len(want)
			if q.Head == 0 {
				size, want = 0, ""
			}
			if got := page.Tasks[i]; string(got.Payload) != want[:min(len(want), 256)] || got.PayloadSize != size {
				t.Errorf("%s, task %d: %q of %d bytes", what, i, got.Payload, got.PayloadSize)
			}
		}
	}
}
