package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/millrace/millrace/bench"
)

const (
	// asynqQueue is the queue of the bench. A Redis that holds it already is refused.
	asynqQueue = "millrace-bench-tasks"
	// asynqKeys is what the names of all keys of that queue begin with. The braces keep them in one slot of a Redis
	// cluster.
	asynqKeys = "asynq:{" + asynqQueue + "}:"
	// asynqConns is the largest number of connections of the pool. Callers and workers share them beyond it.
	asynqConns = 100
	// asynqCheck is how often a worker of an empty queue looks again. The default of a second would be most of each cycle
	// of a single client.
	asynqCheck = 5 * time.Millisecond
)

// asynqBroker is Redis with asynq. Its library counts completions in Redis, in the script that carries one out. It does
// not report each completion to the program, so settled asks Redis.
type asynqBroker struct {
	adapter
	// The server counts no syncs, or tells them to no client.
	unsynced
	seen
	// redis is a client for what asynq has no call for: settings, counters and lengths of lists.
	redis *redis.Client
	// client creates tasks. All callers share it.
	client *asynq.Client
	// inspect deletes the queue at the end.
	inspect *asynq.Inspector
	// worker holds the workers. Its library calls the handler of openAsynq in one goroutine per task, o.slots at most
	// at a time.
	worker *asynq.Server
}

// openAsynq connects to Redis, checks it, and starts the workers. On an error all that was opened is closed again.
func openAsynq(ctx context.Context, o brokerOptions) (broker, error) {
	b := &asynqBroker{adapter: adapter{address: o.addresses[0]}, redis: redis.NewClient(&redis.Options{Addr: o.addresses[0]})}
	if err := b.check(ctx, o); err != nil {
		return nil, errors.Join(err, b.redis.Close())
	}
	// Each caller and each worker may hold one connection; the 4 more are for the library's own goroutines.
	opt := asynq.RedisClientOpt{Addr: b.address, PoolSize: min(asynqConns, o.callers+o.slots+4)}
	b.client, b.inspect = asynq.NewClient(opt), asynq.NewInspector(opt)
	b.worker = asynq.NewServer(opt, asynq.Config{
		Concurrency: o.slots, Queues: map[string]int{asynqQueue: 1}, TaskCheckInterval: asynqCheck, LogLevel: asynq.FatalLevel,
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { o.work.failed(err) }),
	})
	err := b.worker.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		if n, ok := o.work.handled(t.Payload()); ok {
			o.work.completed(n)
		}
		return nil
	}))
	if err != nil {
		return nil, errors.Join(absent("asynq", err), b.client.Close(), b.inspect.Close(), b.redis.Close())
	}
	return b, nil
}

// check refuses a Redis that syncs otherwise than the run wants it, or holds the bench's queue.
func (b *asynqBroker) check(ctx context.Context, o brokerOptions) error {
	if err := b.redis.Ping(ctx).Err(); err != nil {
		return absent("asynq", err)
	}
	set, err := b.redis.ConfigGet(ctx, "append*").Result()
	if err != nil {
		return fmt.Errorf("ask redis how it syncs: %w", err)
	}
	class := "N"
	if set["appendonly"] == "yes" && set["appendfsync"] == "always" {
		class = "F"
	}
	if class != o.class {
		return refusedPeer("asynq", "redis says appendonly %s, appendfsync %s, which is class %s; the run is of class %s", set["appendonly"], set["appendfsync"], class, o.class)
	}
	held, err := b.redis.Exists(ctx, asynqKeys+"pending", asynqKeys+"active", asynqKeys+"processed").Result()
	if err != nil {
		return fmt.Errorf("look at redis: %w", err)
	}
	if held > 0 {
		return refusedPeer("asynq", "redis holds the queue %s, which a bench has left there: remove it", asynqQueue)
	}
	info, err := b.redis.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("ask redis what it is: %w", err)
	}
	b.report = bench.PeerReport{
		// The lease is that of asynq's library, which offers no option for it.
		Name: "asynq", Server: "Redis " + infoField(info, "redis_version"), Client: module("github.com/hibiken/asynq"), Class: class,
		Durable: "create, claim, complete",
		Settings: []bench.Param{
			param("appendonly", "%s", set["appendonly"]), param("appendfsync", "%s", set["appendfsync"]),
			param("task_check_interval", "%s", asynqCheck), param("lease", "30s"),
		},
	}
	return nil
}

// infoField reads one line of what INFO prints.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	return "unknown"
}

// create has no batch: asynq's client sends one task a call.
func (b *asynqBroker) create(ctx context.Context, _ int, payloads [][]byte) error {
	for _, p := range payloads {
		if _, err := b.client.EnqueueContext(ctx, asynq.NewTask("bench", p), asynq.Queue(asynqQueue), asynq.MaxRetry(0), asynq.Timeout(time.Minute)); err != nil {
			return err
		}
	}
	return nil
}

// settled returns the number of completions that Redis counts: asynq counts a task that failed among the processed
// ones. 124[n := [2]] n is the number of processed tasks and the number of failed ones, in the order of the keys.
func (b *asynqBroker) settled(ctx context.Context) (uint64, bool, error) {
	got, err := b.redis.MGet(ctx, asynqKeys+"processed", asynqKeys+"failed").Result()
	if err != nil {
		return 0, true, fmt.Errorf("ask redis for counters: %w", err)
	}
	n := [2]uint64{}
	for i, v := range got {
		if text, ok := v.(string); ok { // else there is none yet
			if n[i], err = strconv.ParseUint(text, 10, 64); err != nil {
				return 0, true, fmt.Errorf("read a counter of asynq: %w", err)
			}
		}
	}
	return n[0] - n[1], true, nil
}

// left adds up the tasks in every state in which a task has not ended. Archived ones count too: nothing completes them.
func (b *asynqBroker) left(ctx context.Context) (n uint64, err error) {
	p := b.redis.Pipeline()
	counts := []*redis.IntCmd{
		p.LLen(ctx, asynqKeys+"pending"), p.LLen(ctx, asynqKeys+"active"), p.ZCard(ctx, asynqKeys+"scheduled"), p.ZCard(ctx, asynqKeys+"retry"),
		p.ZCard(ctx, asynqKeys+"archived"),
	}
	if _, err := p.Exec(ctx); err != nil {
		return 0, fmt.Errorf("ask redis what is left: %w", err)
	}
	for _, c := range counts {
		n += uint64(c.Val())
	}
	return n, nil
}

// close stops the workers, and removes all keys of the bench's queue.
func (b *asynqBroker) close(ctx context.Context) error {
	b.worker.Shutdown()
	err := b.inspect.DeleteQueue(asynqQueue, true)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		err = nil
	}
	// Counters and the list of queues are not deleted with the queue.
	keys, kerr := b.redis.Keys(ctx, asynqKeys+"*").Result()
	if kerr == nil && len(keys) > 0 {
		kerr = b.redis.Del(ctx, keys...).Err()
	}
	return errors.Join(err, kerr, b.client.Close(), b.inspect.Close(), b.redis.Close())
}
