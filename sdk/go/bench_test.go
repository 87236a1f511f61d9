package millrace_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// benchmarkCycle creates, runs and completes b.N tasks: producers that each add batch tasks at a time, and one worker.
func benchmarkCycle(b *testing.B, producers, batch, slots int) {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	job := millrace.Job[[]byte, []byte]("bench." + b.Name()[len("Benchmark"):])
	payload := []byte(`{"bench":true}`)
	var done atomic.Int64
	finished := make(chan struct{})
	w := c.Worker(millrace.Slots(slots))
	job.Handle(w, func(context.Context, *millrace.Task, []byte) ([]byte, error) {
		if done.Add(1) == int64(b.N) {
			close(finished)
		}
		return nil, nil
	})
	go func() { _ = w.Run(ctx) }()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			args := make([][]byte, batch)
			for i := range args {
				args[i] = payload
			}
			for {
				n := min(left.Add(int64(-batch))+int64(batch), int64(batch))
				switch {
				case n <= 0:
					return
				case n == 1:
					must(job.Add(ctx, c, payload))
				default:
					must(job.AddMany(ctx, c, args[:n]))
				}
			}
		})
	}
	wg.Wait()
	<-finished
}

func BenchmarkCycleSingle(b *testing.B)  { benchmarkCycle(b, 32, 1, 128) }
func BenchmarkCycleBatched(b *testing.B) { benchmarkCycle(b, 32, 8, 256) }
