package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// benchArgs are the arguments of a task that is measured.
type benchArgs struct {
	N int    `json:"n"`
	S string `json:"s"`
}

// cpuTime is what this process has used of the processor.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bench runs one measurement: see the word bench.
func (a *agent) bench(ctx context.Context, c *command) (any, error) {
	count, callers, queue := c.Tasks, c.Callers, c.Queue
	if count == 0 {
		count = 10_000
	}
	if callers == 0 {
		callers = 32
	}
	if c.What == "one" {
		callers = 1
	}
	if queue == "" {
		queue = "bench"
	}
	job := millrace.Job[benchArgs, int]("bench").Queue(queue)
	var left atomic.Int64
	left.Store(int64(count))
	settled := make(chan struct{})
	stop := func() {}
	if c.What == "cycle" {
		stop = a.benchWorker(job, c.Slots, func() {
			if left.Add(-1) == 0 {
				close(settled)
			}
		})
	}
	times := make([]time.Duration, count)
	begun, cpu := time.Now(), cpuTime()
	var err error
	switch c.What {
	case "add_many":
		args := make([]benchArgs, count)
		for i := range args {
			args[i] = benchArgs{i, "abc"}
		}
		_, err = job.AddMany(ctx, a.c, args)
	case "unary":
		for i := range count {
			t := time.Now()
			if err = a.unary(ctx, queue, i); err != nil {
				break
			}
			times[i] = time.Since(t)
		}
	default:
		var wait sync.WaitGroup
		var failed atomic.Value
		for k := range callers {
			wait.Go(func() {
				for i := k; i < count; i += callers {
					t := time.Now()
					if _, err := job.Add(ctx, a.c, benchArgs{i, "abc"}); err != nil {
						failed.Store(err)
						return
					}
					times[i] = time.Since(t)
					time.Sleep(millis(c.PauseMS))
				}
			})
		}
		wait.Wait()
		if e, ok := failed.Load().(error); ok {
			err = e
		} else if c.What == "cycle" {
			<-settled
		}
	}
	took, used := time.Since(begun), cpuTime()-cpu
	stop()
	if err != nil {
		return nil, err
	}
	slices.Sort(times)
	return map[string]any{
		"tasks": count, "seconds": took.Seconds(), "cpu_seconds": used.Seconds(),
		"p50_us": times[count/2].Microseconds(), "p99_us": times[count*99/100].Microseconds(),
	}, nil
}

// benchWorker runs a worker until the function that it returns is called.
func (a *agent) benchWorker(job *millrace.JobOf[benchArgs, int], slots int, settled func()) (stop func()) {
	if slots == 0 {
		slots = 128
	}
	w := a.c.Worker(millrace.Slots(slots), millrace.OnSettled(func(millrace.Settlement) { settled() }))
	job.Handle(w, func(_ context.Context, t *millrace.Task, args benchArgs) (int, error) {
		t.Effects().KV("bench").Put(t.ID, "x")
		return args.N, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = w.Run(ctx)
	}()
	return func() {
		cancel()
		<-over
	}
}

// unary creates, claims and completes one task by calls of their own.
func (a *agent) unary(ctx context.Context, queue string, i int) error {
	tasks := millracev1.NewTaskServiceClient(a.c.Conn())
	id := millrace.NewID()
	spec := &millracev1.TaskSpec{Id: id, Queue: queue, Kind: "bench", Payload: []byte(`{"n":1,"s":"abc"}`)}
	if _, err := tasks.Create(ctx, &millracev1.CreateRequest{Task: spec}); err != nil {
		return err
	}
	got, err := tasks.Claim(ctx, &millracev1.ClaimRequest{Queues: []*millracev1.QueueWeight{{Name: queue}}, Max: 1, Wait: durationpb.New(time.Second)})
	if err != nil {
		return err
	}
	if len(got.GetTasks()) != 1 {
		return fmt.Errorf("%d tasks were claimed", len(got.GetTasks()))
	}
	t := got.GetTasks()[0]
	put := &millracev1.Op{Op: &millracev1.Op_KvPut{KvPut: &millracev1.KVPut{Keyspace: "bench", Key: []byte(t.GetId()), Value: []byte("x")}}}
	item := &millracev1.SettleItem{
		Id: t.GetId(), Token: t.GetToken(), Effects: &millracev1.Effects{Ops: []*millracev1.Op{put}},
		Outcome: &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{Result: fmt.Append(nil, i)}},
	}
	_, err = tasks.Settle(ctx, &millracev1.SettleRequest{Items: []*millracev1.SettleItem{item}})
	return err
}
