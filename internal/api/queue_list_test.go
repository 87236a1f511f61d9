package api

import (
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

func TestAQueueIsStuckWhenItsTasksWaitAndNoneRuns(t *testing.T) {
	const now = 1_000_000
	q := queueChoice{only: "stuck", now: now}
	old, young := core.ShardTime(now-60_000), core.ShardTime(now-59_999)
	var running [8]uint64
	running[core.Running] = 1
	for _, c := range []struct {
		what  string
		queue core.QueueStats
		want  bool
	}{
		{"a task ready for a minute", core.QueueStats{OldestReady: old}, true},
		{"a task ready for less", core.QueueStats{OldestReady: young}, false},
		{"no ready task", core.QueueStats{}, false},
		{"one runs", core.QueueStats{OldestReady: old, States: running}, false},
		{"paused", core.QueueStats{OldestReady: old, Paused: core.QueuePaused{Since: 1}}, false},
	} {
		if got := q.has(&c.queue); got != c.want {
			t.Errorf("%s: stuck %t", c.what, got)
		}
	}
}

func TestAListOfQueuesRefusesWordsThatItDoesNotKnow(t *testing.T) {
	for _, in := range []*pb.ListQueuesRequest{{Sort: "size"}, {Only: "empty"}, {Prefix: "-"}, {Prefix: "a b"}} {
		if _, _, fact := queueChoiceOf(in); fact == nil {
			t.Errorf("%v is taken", in)
		}
	}
	for _, in := range []*pb.ListQueuesRequest{{}, {Sort: "name"}} {
		if _, plain, fact := queueChoiceOf(in); fact != nil || !plain {
			t.Errorf("%v: plain %t, %v", in, plain, fact)
		}
	}
	for _, cursor := range []string{"x", "AAAA", "AAAAAAAAAAA", "AAAAAAAAAAAt"} {
		if _, _, fact := readQueueCursor(cursor); fact == nil {
			t.Errorf("the cursor %q is taken", cursor)
		}
	}
}

func TestQueuesAreSortedByWhatHarmsMost(t *testing.T) {
	var many, few core.QueueStats
	many.States[core.Ready], many.States[core.Dead], many.OldestReady = 9, 1, 500
	few.States[core.Ready], few.States[core.Dead], few.OldestReady = 1, 9, 400
	for sort, manyFirst := range map[string]bool{"ready": true, "dead": false, "oldest": false} {
		q := queueChoice{sort: sort}
		if got := q.place(&many) < q.place(&few); got != manyFirst {
			t.Errorf("%s: the one with many ready tasks first: %t", sort, got)
		}
		if q.place(&many) >= q.place(&core.QueueStats{}) {
			t.Errorf("%s: a queue without tasks does not come last", sort)
		}
	}
}
