package millrace

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
)

// Queue is one queue of the namespace.
type Queue struct {
	c    *Client
	name string
}

// Queue names a queue. The first task makes one that does not exist.
func (c *Client) Queue(name string) Queue { return Queue{c, name} }

// QueueConfig rules a queue; a zero field means the default, a nil pointer too.
type QueueConfig struct {
	Version         uint64 // read-only; rises with each change
	MaxAttempts     int    // default 5
	MaxCrashes      int    // default 10
	MaxDeliveries   *int   // default 1,000; 0 = no bound
	Lease           time.Duration
	MaxRun          time.Duration // default none
	Retry           RetryPolicy
	MaxPayload      int64          // default 1 MiB, which is also the most
	Aging           *time.Duration // default 60 s; 0 = strict priority
	RetainCompleted *time.Duration // default 24 h; 0 = remove at the end
	RetainCancelled *time.Duration // default 24 h
	RetainDead      *time.Duration // default 14 days
	CancelGrace     *time.Duration // how long the worker of a cancelled task may go on, at most 24 h; 0 = not at all; default 30 s
	// DefaultTTL is how long after its create a task expires that names no ExpiresAt. Default: never.
	DefaultTTL time.Duration
	MaxTasks   int64 // that have not ended, per partition; 0 = no bound
	MaxBytes   int64 // of payloads and results, per partition; 0 = no bound
	Ceilings   QueueCeilings

	// Fairness says which of the keys that have tasks ready is served next: "lanes", the default, gives each its share by its weight;
	// "none" serves the one whose first task goes first by priority and time.
	Fairness string
	// Order says how many tasks of a key run at once: "fifo", the default, as many as limits allow; "strict" one, and one that waits to
	// be tried again holds up its key.
	Order       string
	Concurrency int64 // tasks that run at once; 0 = no bound
	Rate        Rate  // of the queue
	PerKey      KeyLimits
	MaxWorkers  int // workers that have tasks at once; 0 = no bound
	// DeadLetter is the queue in which a copy is made of each task that dies; empty: none. It must not lead back to the queue.
	DeadLetter string
	// Limiters are the names of at most 4 limiters that each of its tasks needs besides those that the task names.
	Limiters []string
}

// QueueCeilings bound what a task may ask for itself: a create beyond one is ErrInvalid with the reason ceiling. 0 bounds nothing.
type QueueCeilings struct {
	// Counts: MaxAttempts and MaxCrashes are 1 to 1,000, MaxDeliveries 1 to 1,000,000; such a task cannot turn its limit off either.
	MaxAttempts   int
	MaxCrashes    int
	MaxDeliveries int
	Lease         time.Duration // 1 s to 24 h
	MaxRun        time.Duration
	Priority      int // 1 to 9
}

// wire is q in the contract; nil when it bounds nothing.
func (q QueueCeilings) wire() *millracev1.QueueCeilings {
	if q == (QueueCeilings{}) {
		return nil
	}
	return &millracev1.QueueCeilings{
		MaxAttempts: int32(q.MaxAttempts), MaxCrashes: int32(q.MaxCrashes), MaxDeliveries: int32(q.MaxDeliveries),
		Lease: durationOf(q.Lease), MaxRun: durationOf(q.MaxRun), Priority: int32(q.Priority),
	}
}

// queueCeilings reads the ceilings of the contract.
func queueCeilings(w *millracev1.QueueCeilings) QueueCeilings {
	return QueueCeilings{
		MaxAttempts: int(w.GetMaxAttempts()), MaxCrashes: int(w.GetMaxCrashes()), MaxDeliveries: int(w.GetMaxDeliveries()),
		Lease: w.GetLease().AsDuration(), MaxRun: w.GetMaxRun().AsDuration(), Priority: int(w.GetPriority()),
	}
}

// optional is a duration of the contract; nil stays nil.
func optional(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

// optionalOf reads a duration of the contract; nil stays nil.
func optionalOf(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	v := d.AsDuration()
	return &v
}

// wire is q in the contract, without its Version, which is a condition of the request.
func (q QueueConfig) wire() *millracev1.QueueConfig {
	w := &millracev1.QueueConfig{
		Fairness: enumOf[millracev1.QueueConfig_Fairness](millracev1.QueueConfig_Fairness_value, q.Fairness),
		Order:    enumOf[millracev1.QueueConfig_Order](millracev1.QueueConfig_Order_value, q.Order), Concurrency: q.Concurrency,
		Rate: q.Rate.wire(), PerKey: q.PerKey.wire(), MaxWorkers: int32(q.MaxWorkers),
		MaxAttempts: int32(q.MaxAttempts), MaxCrashes: int32(q.MaxCrashes), Lease: durationOf(q.Lease),
		MaxRun: durationOf(q.MaxRun), MaxPayload: q.MaxPayload, Aging: optional(q.Aging),
		RetainCompleted: optional(q.RetainCompleted), RetainCancelled: optional(q.RetainCancelled),
		RetainDead: optional(q.RetainDead), CancelGrace: optional(q.CancelGrace), DefaultTtl: durationOf(q.DefaultTTL),
		MaxTasks: q.MaxTasks, MaxBytes: q.MaxBytes, Ceilings: q.Ceilings.wire(), DeadLetter: q.DeadLetter, Limiters: q.Limiters,
	}
	if q.MaxDeliveries != nil {
		w.MaxDeliveries = proto.Int32(int32(*q.MaxDeliveries))
	}
	if q.Retry != (RetryPolicy{}) {
		w.Retry = q.Retry.wire()
	}
	return w
}

// enumOf is the number of a word that the contract has in capitals; an unknown word gets a number that the server refuses.
func enumOf[E ~int32](numbers map[string]int32, word string) E {
	if word == "" {
		return 0
	}
	if n, ok := numbers[strings.ToUpper(word)]; ok {
		return E(n)
	}
	return -1
}

// queueConfig reads the configuration of the contract.
func queueConfig(w *millracev1.QueueConfig) QueueConfig {
	q := QueueConfig{
		Version: w.GetVersion(), MaxAttempts: int(w.GetMaxAttempts()), MaxCrashes: int(w.GetMaxCrashes()),
		Lease: w.GetLease().AsDuration(), MaxRun: w.GetMaxRun().AsDuration(), MaxPayload: w.GetMaxPayload(),
		Aging: optionalOf(w.GetAging()), RetainCompleted: optionalOf(w.GetRetainCompleted()),
		RetainCancelled: optionalOf(w.GetRetainCancelled()), RetainDead: optionalOf(w.GetRetainDead()),
		CancelGrace: optionalOf(w.GetCancelGrace()), DefaultTTL: w.GetDefaultTtl().AsDuration(), MaxTasks: w.GetMaxTasks(),
		MaxBytes: w.GetMaxBytes(), Ceilings: queueCeilings(w.GetCeilings()), DeadLetter: w.GetDeadLetter(), Limiters: w.GetLimiters(),
		Concurrency: w.GetConcurrency(), Rate: rateOf(w.GetRate()), MaxWorkers: int(w.GetMaxWorkers()),
		PerKey: KeyLimits{Concurrency: w.GetPerKey().GetConcurrency(), Rate: rateOf(w.GetPerKey().GetRate())},
	}
	if f := w.GetFairness(); f != 0 {
		q.Fairness = strings.ToLower(f.String())
	}
	if o := w.GetOrder(); o != 0 {
		q.Order = strings.ToLower(o.String())
	}
	if w != nil && w.MaxDeliveries != nil {
		n := int(*w.MaxDeliveries)
		q.MaxDeliveries = &n
	}
	if r := w.GetRetry(); r != nil {
		shapes := [...]Backoff{FullJitter, Fixed, Linear, Exponential, FullJitter, EqualJitter}
		q.Retry = RetryPolicy{Factor: r.Factor, Base: r.Base.AsDuration(), Max: r.Max.AsDuration()}
		if n := int(r.Backoff); n >= 0 && n < len(shapes) {
			q.Retry.Backoff = shapes[n]
		}
	}
	return q
}

// Get reads the configuration.
func (q Queue) Get(ctx context.Context) (QueueConfig, error) {
	cfg, err := q.get(ctx)
	if err != nil {
		return QueueConfig{}, err
	}
	return queueConfig(cfg), nil
}

func (q Queue) get(ctx context.Context) (*millracev1.QueueConfig, error) {
	var resp *millracev1.GetQueueResponse
	err := q.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.Get(ctx, &millracev1.GetQueueRequest{Queue: q.name})
		return err
	})
	return resp.GetConfig(), err
}

// learnPinned finds out whether a queue is pinned, if the client does not know yet. Where it cannot ask, the server judges what it sends.
func (c *Client) learnPinned(ctx context.Context, queue string) {
	if _, known := c.hub.KnowsPinned(queue); known {
		return
	}
	cfg, err := c.Queue(queue).get(ctx)
	switch {
	case err == nil:
		c.hub.LearnPinned(queue, cfg.GetPinned())
	case errors.Is(err, ErrNotFound), codeOf(err) == string(CodePermissionDenied):
		c.hub.LearnPinned(queue, false)
	}
}

// Set replaces the configuration, whose Version must be 0 or the one in force, and returns the new version. The same
// configuration again changes nothing.
func (q Queue) Set(ctx context.Context, cfg QueueConfig) (version uint64, err error) {
	if cfg.Version == 0 {
		return q.set(ctx, cfg.wire(), nil)
	}
	return q.set(ctx, cfg.wire(), &cfg.Version)
}

// set replaces the configuration, if its version is the one given; nil: whatever it is.
func (q Queue) set(ctx context.Context, cfg *millracev1.QueueConfig, ifVersion *uint64) (version uint64, err error) {
	req := &millracev1.SetQueueRequest{Queue: q.name, Config: cfg, IfVersion: ifVersion}
	var resp *millracev1.SetQueueResponse
	err = q.c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.Set(ctx, req)
		return err
	})
	if err != nil {
		return 0, err
	}
	return resp.Version, nil
}

// QueueDeleteOption says how a queue is removed.
type QueueDeleteOption interface {
	deleteQueue(r *millracev1.DeleteQueueRequest)
}

// queueDeleteFunc is a QueueDeleteOption that fills in the request.
type queueDeleteFunc func(r *millracev1.DeleteQueueRequest)

func (f queueDeleteFunc) deleteQueue(r *millracev1.DeleteQueueRequest) { f(r) }

// Purge removes the queue also while it has tasks that have not ended: they are cancelled, and their workers lose them.
func Purge() QueueDeleteOption {
	return queueDeleteFunc(func(r *millracev1.DeleteQueueRequest) { r.Purge = true })
}

// IfVersion removes the queue only if its configuration has a version.
func IfVersion(version uint64) QueueDeleteOption {
	return queueDeleteFunc(func(r *millracev1.DeleteQueueRequest) { r.IfVersion = &version })
}

// Delete removes the queue with its tasks and its configuration (needs the scope admin). Its name is free at once. Without
// Purge it is refused with WrongState while the queue has tasks that have not ended; a queue that is not there is NotFound.
// A repetition after an answer that was lost may find it gone.
func (q Queue) Delete(ctx context.Context, opts ...QueueDeleteOption) error {
	req := &millracev1.DeleteQueueRequest{Queue: q.name}
	for _, o := range opts {
		o.deleteQueue(req)
	}
	return q.c.change(ctx, anywhere, func(ctx context.Context) error {
		_, err := q.c.queues.Delete(ctx, req)
		return err
	})
}

// QueueStats are exact counters: created = blocked + scheduled + ready + running + ended and kept + purged.
type QueueStats struct {
	// Queue is its name.
	Queue string
	// Tasks that there are, by their state. Completed, Dead and Cancelled ones are kept for a time, as QueueConfig says.
	Blocked   uint64
	Scheduled uint64
	Ready     uint64
	Running   uint64
	Completed uint64
	Dead      uint64
	Cancelled uint64
	// Created counts all tasks that there ever were, and Purged those that were removed.
	Created uint64
	Purged  uint64
	// CompletedTotal counts completions, of tasks that were removed since too.
	CompletedTotal uint64
	FailedTotal    uint64 // failing attempts
	CrashedTotal   uint64 // attempts whose lease was lost
	Bytes          uint64 // payloads and results of the tasks there are
	// OldestReady is since when the task waits that has been ready for longest; zero: none is ready.
	OldestReady time.Time
	// Paused says why the queue gives out no tasks; nil: it does.
	Paused *QueuePaused
	// Rates are not exact. Nil: the node that answers has no sample of the queue, as right after its start.
	Rates *QueueRates
	// Spark counts the tasks that were completed in each of the last 30 half minutes, oldest first. It is shorter where the node has no
	// samples of those before.
	Spark []uint32
	// Workers is how many workers serve the queue, as it was at most 5 s ago; nil: that is not known.
	Workers *int
	// Limits are what its configuration bounds; nil: nothing.
	Limits *QueueLimits
}

// queueStats reads the counters of the contract.
func queueStats(s *millracev1.QueueStats) QueueStats {
	return QueueStats{
		Queue: s.GetQueue(), Blocked: s.GetBlocked(), Scheduled: s.GetScheduled(), Ready: s.GetReady(), Running: s.GetRunning(),
		Completed: s.GetCompleted(), Dead: s.GetDead(), Cancelled: s.GetCancelled(), Created: s.GetCreated(),
		Purged: s.GetPurged(), CompletedTotal: s.GetCompletedTotal(), FailedTotal: s.GetFailedTotal(),
		CrashedTotal: s.GetCrashedTotal(), Bytes: s.GetBytes(), OldestReady: timeOf(s.GetOldestReady()),
		Paused: queuePaused(s.GetPaused()), Rates: queueRates(s.GetRates()), Spark: s.GetSpark(), Workers: queueWorkers(s),
		Limits: queueLimits(s.GetLimits()),
	}
}

// Stats reads the counters.
func (q Queue) Stats(ctx context.Context) (QueueStats, error) {
	line := ledger.Line{Op: "stats", Queue: q.name, Invoke: q.c.hub.Ledger.Now()}
	var resp *millracev1.QueueStatsResponse
	err := q.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = q.c.queues.Stats(ctx, &millracev1.QueueStatsRequest{Queue: q.name})
		return err
	})
	q.c.record(line, resp.GetAt(), err)
	if err != nil {
		return QueueStats{}, err
	}
	return queueStats(resp.Stats), nil
}

// Queues reads a page of queues by name, at most limit (1 to 1,000; 0 means 100). The next cursor is empty at the end.
func (c *Client) Queues(ctx context.Context, limit int, cursor string) (queues []QueueStats, next string, err error) {
	return c.FindQueues(ctx, QueueQuery{Limit: limit, Cursor: cursor})
}
