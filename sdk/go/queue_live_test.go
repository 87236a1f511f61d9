package millrace

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

func TestQueueStatsKeepWhatIsNotKnownApartFromZero(t *testing.T) {
	if q := queueStats(&millracev1.QueueStats{Queue: "q"}); q.Rates != nil || q.Spark != nil || q.Workers != nil || q.Limits != nil {
		t.Errorf("without a sample: %+v", q)
	}
	none := uint32(0)
	q := queueStats(&millracev1.QueueStats{
		Rates: &millracev1.QueueRates{Created: 1, Completed: 2, Failed: 3, Crashed: 4}, Spark: []uint32{5, 0}, Workers: &none,
		Limits: &millracev1.QueueLimits{MaxTasks: 6, MaxBytes: 7, DefaultTtl: durationpb.New(time.Hour), Ceilings: &millracev1.QueueCeilings{Priority: 8}},
	})
	if q.Rates == nil || *q.Rates != (QueueRates{Created: 1, Completed: 2, Failed: 3, Crashed: 4}) || len(q.Spark) != 2 || q.Spark[0] != 5 {
		t.Errorf("rates %+v, spark line %v", q.Rates, q.Spark)
	}
	if q.Workers == nil || *q.Workers != 0 {
		t.Errorf("workers: %v", q.Workers)
	}
	if want := (QueueLimits{MaxTasks: 6, MaxBytes: 7, DefaultTTL: time.Hour, Ceilings: QueueCeilings{Priority: 8}}); q.Limits == nil || *q.Limits != want {
		t.Errorf("limits %+v", q.Limits)
	}
}
