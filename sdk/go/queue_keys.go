package millrace

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// Key sets the line of its queue that the task waits in, at most 128 B. Keys that have tasks ready get shares of what the queue gives
// out, by their weights, and can have limits of their own (QueueConfig.PerKey, Queue.SetKey). In a namespace of several partitions the
// tasks of a key share one, unless they have a Tag.
func Key(key string) AddOption { return addFunc(func(s *millracev1.TaskSpec) { s.Key = key }) }

// Cost sets what the task weighs in shares, rates and limiters, 1 to 1,000,000; default 1.
func Cost(n int) AddOption { return addFunc(func(s *millracev1.TaskSpec) { s.Cost = uint32(n) }) }

// Rate bounds how much begins in a time: tasks that cost Limit together in each Per, and Burst at once. The zero value bounds nothing.
type Rate struct {
	Limit int64         // 1 to 1,000,000,000
	Per   time.Duration // 1 ms to 24 h; at most 1,000,000,000 begin in a second
	Burst int64         // default Limit
}

// wire is r in the contract; nil when it bounds nothing.
func (r Rate) wire() *millracev1.Rate {
	if r == (Rate{}) {
		return nil
	}
	return &millracev1.Rate{Limit: r.Limit, Per: durationpb.New(r.Per), Burst: r.Burst}
}

// rateOf reads a rate of the contract.
func rateOf(w *millracev1.Rate) Rate {
	return Rate{Limit: w.GetLimit(), Per: w.GetPer().AsDuration(), Burst: w.GetBurst()}
}

// KeyLimits bound each key of a queue; 0 bounds nothing. Tasks without a key count as those of one key.
type KeyLimits struct {
	Concurrency int64 // tasks that run at once
	Rate        Rate
}

// wire is l in the contract; nil when it bounds nothing.
func (l KeyLimits) wire() *millracev1.KeyLimits {
	if l == (KeyLimits{}) {
		return nil
	}
	return &millracev1.KeyLimits{Concurrency: l.Concurrency, Rate: l.Rate.wire()}
}

// KeySettings are what is set for one key of a queue. A zero field leaves it to the queue.
type KeySettings struct {
	Weight      int // its share among the keys that have tasks ready, 1 to 1,000; default 1
	Concurrency int64
	Rate        Rate
}

// QueueKey is a key of a queue that has tasks which have not ended, or for which something is set.
type QueueKey struct {
	Key                   string
	Tasks, Ready, Running uint64
	Settings              KeySettings
	Paused                *QueuePaused // nil: its tasks are given out
	OldestReady           time.Time    // zero: none is ready
	WaitsFor              string       // what holds its ready tasks up: paused, concurrency, rate, order; empty: nothing of its own
	Until                 time.Time    // when its rate lets the next task go
	HeldBy                []string     // the first 10 tasks that hold it up
	Owed                  int64        // by how much, in cost by weight 1, it is behind the key that was served last; negative: ahead
	Limit                 int64        // how many of its tasks may run at once, by its settings or the queue's; 0: no bound
	Weight                int          // its share among the keys that have tasks ready
	Share                 float64      // its part of the tasks of the queue that run, from 0 to 1
}

// KeysQuery asks for keys of a queue.
type KeysQuery struct {
	Sort   string // name, the default; backlog, oldest or owed, which have one page
	Prefix string
	Limit  int // 1 to 1,000; default 100
	Cursor string
}

// Keys lists keys of the queue. A queue that is not there is ErrNotFound.
func (q Queue) Keys(ctx context.Context, query KeysQuery) (keys []QueueKey, cursor string, err error) {
	req := &millracev1.ListKeysRequest{
		Queue: q.name, Sort: query.Sort, Prefix: query.Prefix, Limit: uint32(max(query.Limit, 0)), Cursor: query.Cursor,
	}
	var resp *millracev1.ListKeysResponse
	if err := q.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.Keys(ctx, req)
		return err
	}); err != nil {
		return nil, "", err
	}
	for _, k := range resp.GetKeys() {
		s := k.GetSettings()
		keys = append(keys, QueueKey{
			Key: k.GetKey(), Tasks: k.GetTasks(), Ready: k.GetReady(), Running: k.GetRunning(),
			Settings: KeySettings{Weight: int(s.GetWeight()), Concurrency: s.GetConcurrency(), Rate: rateOf(s.GetRate())},
			Paused:   queuePaused(k.GetPaused()), OldestReady: timeOf(k.GetOldestReady()), WaitsFor: k.GetWaitsFor(), Until: timeOf(k.GetUntil()),
			HeldBy: k.GetHeldBy(), Owed: k.GetOwed(), Limit: k.GetLimit(), Weight: int(k.GetWeight()), Share: k.GetShare(),
		})
	}
	return keys, resp.GetCursor(), nil
}

// SetKey sets the weight and the limits of one key (needs the scope admin). The zero value leaves the key to the queue. It reports
// whether it was so before. A queue that is not there is ErrNotFound.
func (q Queue) SetKey(ctx context.Context, key string, s KeySettings) (replayed bool, err error) {
	req := &millracev1.SetKeyRequest{Queue: q.name, Key: key, Settings: &millracev1.KeySettings{
		Weight: uint32(max(s.Weight, 0)), Concurrency: s.Concurrency, Rate: s.Rate.wire(),
	}}
	var resp *millracev1.SetKeyResponse
	err = q.c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.SetKey(ctx, req)
		return err
	})
	return resp.GetReplayed(), err
}

// PauseKey stops giving out the tasks of one key (needs the scope task:operate or admin). Tasks that run go on. It reports whether
// the key was paused so before.
func (q Queue) PauseKey(ctx context.Context, key string, opts ...PauseOption) (replayed bool, err error) {
	s, err := pauseSettingsOf(opts)
	if err != nil {
		return false, err
	}
	req := &millracev1.PauseKeyRequest{Queue: q.name, Key: key, Until: s.until, Reason: s.reason}
	var resp *millracev1.PauseKeyResponse
	err = q.c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.PauseKey(ctx, req)
		return err
	})
	return resp.GetReplayed(), err
}

// ResumeKey lets a paused key go on (needs the scope task:operate or admin). It reports whether the key was not paused.
func (q Queue) ResumeKey(ctx context.Context, key string) (replayed bool, err error) {
	req := &millracev1.ResumeKeyRequest{Queue: q.name, Key: key}
	var resp *millracev1.ResumeKeyResponse
	err = q.c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.ResumeKey(ctx, req)
		return err
	})
	return resp.GetReplayed(), err
}
