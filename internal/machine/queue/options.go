package queue

import (
	"cmp"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
)

// Options are a Machine's limits. A zero field means its default. All replicas of a shard must
// agree on them, because they decide what Apply answers; only tests change them. Heads, Changed and Hash
// are exceptions: they decide nothing.
type Options struct {
	// Heads is the most ready tasks of one class of a queue that are kept in memory. Default 1,024:
	// a few grants of the largest size.
	Heads int
	// Queues is the most queues of one partition, whatever an entry says. Default core.MaxQueues:
	// their counters and names stay in memory.
	Queues int
	// Keys is the most lanes of one partition whose tasks have not ended: those of keys, and those of sets of limiters. Default 250,000: their lanes stay in memory, at some 200
	// bytes each.
	Keys int
	// Remember is how long after its end a task's id is known. Default 15 min, because clients
	// repeat for 10 min.
	Remember core.Millis
	// Crons is how many crons a partition may have. Default core.MaxCrons.
	Crons int
	// Batches is how many batches a partition may have that have not finished, and BatchesKept how many are kept after that. Defaults
	// core.MaxBatches and core.MaxBatchesKept.
	Batches, BatchesKept int
	// BatchTasks is how many tasks a batch may have. Default core.MaxBatchTasks.
	BatchTasks int
	// Limiters is how many limiters a partition may have. Default core.MaxNamespaceLimiters: those of a namespace are in each of its
	// partitions.
	Limiters int
	// Above is below every token that is issued. What is stored tells the last token by itself,
	// except where a history was broken off.
	Above core.Token
	// Grace is how long after a term's first stamp no lease ends, if its deadline is earlier.
	// Default 15 s, which lets holders report to the new leader.
	Grace core.Millis
	// Told is how many rows of tasks that wait for others one entry acts on. Default core.MaxDependents: all those that one task can have.
	Told int
	// Changed is told of each task that an entry may have changed, while the entry is applied. It must not wait. nil: nothing is told.
	Changed func(p core.Partition, id core.TaskID)
	// Hash spreads keys over an index in memory. Default a fixed function; a server takes one of which clients cannot know which keys
	// collide.
	Hash func(key string) uint64
}

// withDefaults returns o with the defaults in the place of zeros. Above has none: 0 is below every token.
func (o Options) withDefaults() Options {
	o.Heads = cmp.Or(o.Heads, 1024)
	o.Queues = cmp.Or(o.Queues, core.MaxQueues)
	o.Keys = cmp.Or(o.Keys, 250_000)
	o.Crons = cmp.Or(o.Crons, core.MaxCrons)
	o.Batches = cmp.Or(o.Batches, core.MaxBatches)
	o.BatchesKept = cmp.Or(o.BatchesKept, core.MaxBatchesKept)
	o.BatchTasks = cmp.Or(o.BatchTasks, core.MaxBatchTasks)
	o.Limiters = cmp.Or(o.Limiters, core.MaxNamespaceLimiters)
	o.Remember = cmp.Or(o.Remember, 15*60*1000)
	o.Grace = cmp.Or(o.Grace, 15*1000)
	o.Told = cmp.Or(o.Told, core.MaxDependents)
	if o.Hash == nil {
		o.Hash = xxhash.Sum64String
	}
	return o
}

// What a queue's configuration means where it says nothing. Times are in milliseconds. The values
// are part of what Apply answers, so a change of one needs a new format of entries.
const (
	// Attempts that may fail before a task is dead.
	defaultMaxAttempts = 5
	// Leases that may expire before a task is dead.
	defaultMaxCrashes = 10
	// Deliveries, whatever became of them, before a task is dead.
	defaultMaxDeliveries = 1000
	// How long a lease is.
	defaultLease = core.Millis(60_000)
	// For how much waiting one step of priority makes up.
	defaultAging = core.Millis(60_000)
	// The delay after the first failure, and what each further one multiplies it by, in hundredths.
	defaultBase   = core.Millis(5_000)
	defaultFactor = 200
	// No delay of a retry is longer.
	defaultBackoffMax = core.Millis(15 * 60_000)
	// Bytes of a payload.
	defaultMaxPayload = 1 << 20
	// How long completed and cancelled tasks are kept, and dead ones.
	defaultRetain     = core.Millis(24 * 3_600_000)
	defaultRetainDead = core.Millis(14 * 24 * 3_600_000)
	// Bytes that ended tasks of all queues of a partition may count for.
	defaultRetainBytes = 10 << 30
	// How long a unique key makes no second task.
	defaultUniqueTTL = core.Millis(24 * 3_600_000)
	// How long the holder of a cancelled task may go on.
	defaultCancelGrace = core.Millis(30_000)
)

// Bounds of what clients ask for. The edge refuses beyond them and names the field; here they keep
// the state bounded, whatever the log holds.
const (
	// Bytes of the name of a queue or a kind.
	maxName = 128
	// Bytes of a unique key, of a tag and of a worker's name.
	maxUnique = 256
	maxTag    = 128
	maxWorker = 128
	// The highest priority; the lowest is 0.
	maxPriority = 9
	// A lease that is shorter or longer is brought within these.
	minLease = core.Millis(1_000)
	maxLease = core.Millis(24 * 3_600_000)
	// Delays are cut to ten years, so that no sum of times overflows.
	maxDelay = core.Millis(10 * 366 * 24 * 3_600_000)
	// The longest wait that a failing worker may ask for.
	maxRetryAfter = core.Millis(24 * 3_600_000)
	// The longest window of a unique key.
	maxUniqueTTL = core.Millis(30 * 24 * 3_600_000)
	// Bytes of a result. It may be in the answer to a settle, with others.
	maxResult = 1 << 20
	// Bytes of an error's code, message and stack: what is longer is cut.
	maxCode    = 64
	maxMessage = 4 << 10
	maxStack   = 16 << 10
	// keptAttempts is how many attempts of one task are kept in full; older ones are only counted.
	keptAttempts = 20
	// inlineResult is the length up to which a result record is part of the state record. A longer
	// one has a key of its own.
	inlineResult = 40
	// inlineWorker is the same of a worker's name. Both keep the state record small, which each
	// transition writes again.
	inlineWorker = 32
)

// strictAging, and anything below it, means strict priority: waiting makes up for nothing.
const strictAging = core.Millis(-1)

// retainNone removes a task when it ends.
const retainNone = core.Millis(-1)
