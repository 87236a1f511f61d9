package api

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/history"
)

func TestAQueueIsShownWithRatesWorkersAndLimits(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ctx := apitest.As("acme/all")
	if _, err := r.n.Namespace(t.Context(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	stats := func() *pb.QueueStats {
		out, err := r.queues().Stats(ctx, &pb.QueueStatsRequest{Queue: "mail"})
		if err != nil {
			t.Fatal(err)
		}
		live, _, err := r.s.LiveQueue(t.Context(), Space{Tenant: "acme", Name: "default"}, "mail")
		if err != nil || !proto.Equal(live, out.GetStats()) {
			t.Errorf("live it is %v, %v", live, err)
		}
		return out.GetStats()
	}
	// Nothing is known yet, and nothing is made up.
	if q := stats(); q.Rates != nil || len(q.Spark) != 0 || q.Limits != nil || q.GetWorkers() != 1 {
		t.Errorf("without a sample: %v", q)
	}
	r.n.QueueHas = map[string]history.Rates{"mail": {Created: 2, Completed: 5. / 3}}
	r.n.Mail = core.QueueStats{Queue: "mail", Config: core.QueueConfig{Limits: core.QueueLimits{MaxTasks: 7, CeilingLease: 2000, CancelGrace: 5}}}
	q := stats()
	if rates := q.GetRates(); rates.GetCreated() != 2 || rates.GetCompleted() != 1.667 || rates.GetFailed() != 0 {
		t.Errorf("its rates are %v", rates)
	}
	if !slices.Equal(q.Spark, []uint32{50}) {
		t.Errorf("its spark line is %v", q.Spark)
	}
	if l := q.GetLimits(); l.GetMaxTasks() != 7 || l.GetCeilings().GetLease().AsDuration().Seconds() != 2 || l.DefaultTtl != nil {
		t.Errorf("its limits are %v", l)
	}
}

func TestWorkersOfQueuesAreNotCountedForEachCall(t *testing.T) {
	var w workerCounts
	k := workerSpace{1, 2}
	if _, stale := w.begin(k, time.Hour); !stale {
		t.Error("what was never counted is known")
	}
	if count, stale := w.begin(k, time.Hour); stale || count.queues != nil {
		t.Errorf("while it is counted: %v, %v", count, stale)
	}
	w.end(k, workerCount{at: time.Hour, queues: map[string]uint32{"q": 1}, slots: 3})
	if count, stale := w.begin(k, time.Hour+workersFor-1); stale || count.queues["q"] != 1 || count.slots != 3 {
		t.Errorf("a count that is new: %v, %v", count, stale)
	}
	if _, stale := w.begin(k, time.Hour+workersFor); !stale {
		t.Error("a count that is old is kept")
	}
	if count, stale := w.begin(k, time.Hour+workersFor); stale || count.queues["q"] != 1 {
		t.Errorf("others have no count meanwhile: %v, %v", count, stale)
	}
	for i := range 2 * maxWorkerCounts {
		w.begin(workerSpace{3, core.NamespaceID(i)}, time.Hour)
	}
	if len(w.spaces) > maxWorkerCounts {
		t.Errorf("%d counts are kept", len(w.spaces))
	}
}

func TestQueuesAreListedByRate(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ctx := apitest.As("acme/all")
	if _, err := r.n.Namespace(t.Context(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	r.n.QueueHas = map[string]history.Rates{"q1": {}, "q2": {Completed: 9}, "q3": {Created: 100, Completed: 3}}
	var got []string
	in := &pb.ListQueuesRequest{Sort: "rate", Limit: 2}
	for {
		out, err := r.queues().List(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range out.GetQueues() {
			if got = append(got, q.Queue); (q.Queue == "q0" || q.Queue == "q4") != (q.Rates == nil) {
				t.Errorf("%s has the rates %v", q.Queue, q.Rates)
			}
			if q.Workers == nil || *q.Workers != 0 {
				t.Errorf("%s has workers: %v", q.Queue, q.Workers)
			}
		}
		if in.Cursor = out.GetCursor(); in.Cursor == "" {
			break
		}
	}
	// What is not known comes behind what is 0.
	if want := []string{"q2", "q3", "q1", "q0", "q4"}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}
