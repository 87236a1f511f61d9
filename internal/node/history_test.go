package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/history"
)

// sampleNext takes the sample of the next step, as the goroutine that tends would at that time.
func (l *long) sampleNext(at *time.Duration) {
	*at += history.Step
	l.node.sampleHistory(*at)
}

// rates returns what a queue completes per second.
func (l *long) rates(name string, at time.Duration) (history.Rates, bool) {
	return l.node.history.Rates(history.Key{Tenant: l.ns.Tenant, Namespace: l.ns.Namespace, Queue: name}, at)
}

func TestANodeSamplesItsQueues(t *testing.T) {
	l := openLong(t, longOptions{node: Options{DiskEvery: 1000 * time.Hour}}) // only the test samples
	defer l.close()
	at := l.o.clock.Boot() + time.Hour
	l.sampleNext(&at)
	for i := range 30 {
		l.must(&core.TaskCreate{ID: taskID(i), Queue: "q"})
	}
	l.completeAll(l.claimUpTo("q", 20), nil)
	if _, ok := l.rates("q", at); ok {
		t.Error("a queue that was not sampled yet has rates")
	}
	l.sampleNext(&at)
	for _, name := range []string{"q", ""} {
		if r, ok := l.rates(name, at); !ok || r.Created != 3 || r.Completed != 2 {
			t.Errorf("the rates of queue %q are %+v, %v", name, r, ok)
		}
	}
	l.node.sampleHistory(at + time.Second) // the step has its sample
	l.completeAll(l.claimUpTo("q", 10), nil)
	l.sampleNext(&at)
	if r, ok := l.rates("q", at); !ok || r.Created != 1.5 || r.Completed != 1.5 {
		t.Errorf("after the second step the rates are %+v, %v", r, ok)
	}
	all, ok := l.node.History(history.Key{Tenant: l.ns.Tenant, Namespace: l.ns.Namespace, Queue: "q"}, false)
	if !ok {
		t.Fatal("the queue has no series")
	}
	if v := all[history.Ready].Values; v[len(v)-1] != 0 || v[len(v)-2] != 10 || v[len(v)-3] != history.Missing {
		t.Errorf("the ready tasks were %v", v[len(v)-3:])
	}
	l.must(&core.QueueDelete{Queue: "q", Purge: true, IfVersion: -1})
	l.sampleNext(&at)
	if _, ok := l.rates("q", at); ok {
		t.Error("a queue that was removed has rates")
	}
	// The counters of the namespace do not fall with it.
	if r, ok := l.rates("", at); !ok || r.Completed != 1 {
		t.Errorf("without the queue the rates of the namespace are %+v, %v", r, ok)
	}
}

// TestANodeSamplesByItsClock waits for what the goroutine that tends does when the clock goes on.
func TestANodeSamplesByItsClock(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	l.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	for range 100_000 {
		l.pass(time.Second)
		if _, spark, ok := l.node.QueueRates(l.ns.Tenant, l.ns.Namespace, "q"); ok {
			if len(spark) != 1 {
				t.Errorf("the spark line is %v", spark)
			}
			return
		}
	}
	t.Error("no sample came")
}

// BenchmarkSampleHistory samples a namespace of 10,000 queues.
func BenchmarkSampleHistory(b *testing.B) {
	l := openLong(b, longOptions{node: Options{DiskEvery: 1000 * time.Hour}})
	defer l.close()
	l.createAll(10_000, func(i int) *core.TaskCreate {
		return &core.TaskCreate{ID: taskID(i), Queue: fmt.Sprint("queue-", i)}
	})
	at := l.o.clock.Boot() + time.Hour
	for b.Loop() {
		l.sampleNext(&at)
	}
}
