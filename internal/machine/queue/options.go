package queue

import (
	"cmp"

	"github.com/millrace/millrace/internal/core"
)

// Options are a Machine's limits. A zero field means its default. All replicas of a shard must agree on them, because
// they decide what Apply answers; only tests change them. Heads is the exception: it bounds memory and decides nothing.
type Options struct {
	Heads    int         // ready tasks of one queue kept in memory; default 1,024: a few grants of the largest size
	Queues   int         // queues of one partition, whatever an entry says; default core.MaxQueues: their counters and names stay in memory
	Remember core.Millis // how long after its end a task's id is known; default 15 min: clients repeat for 10 min
	Above    core.Token  // every token that is issued is above it; what is stored says so of itself, but for a broken-off history
	Grace    core.Millis // no lease ends earlier after a term's first stamp, if it is longer; default 15 s
}

func (o Options) withDefaults() Options {
	o.Heads = cmp.Or(o.Heads, 1024)
	o.Queues = cmp.Or(o.Queues, core.MaxQueues)
	o.Remember = cmp.Or(o.Remember, 15*60*1000)
	o.Grace = cmp.Or(o.Grace, 15*1000)
	return o
}

// What a queue's configuration means where it says nothing.
const (
	defaultMaxAttempts   = 5
	defaultMaxCrashes    = 10
	defaultMaxDeliveries = 1000
	defaultLease         = core.Millis(60_000)
	defaultAging         = core.Millis(60_000)
	defaultBase          = core.Millis(5_000)
	defaultFactor        = 200
	defaultBackoffMax    = core.Millis(15 * 60_000)
	defaultMaxPayload    = 1 << 20
	defaultRetain        = core.Millis(24 * 3_600_000)
	defaultRetainDead    = core.Millis(14 * 24 * 3_600_000)
	defaultRetainBytes   = 10 << 30
	defaultUniqueTTL     = core.Millis(24 * 3_600_000)
)

// Bounds of what clients ask for. The edge refuses beyond them with the field's path; here they keep state bounded.
const (
	maxName       = 128
	maxUnique     = 256
	maxTag        = 128
	maxWorker     = 128
	maxPriority   = 9
	minLease      = core.Millis(1_000)
	maxLease      = core.Millis(24 * 3_600_000)
	maxDelay      = core.Millis(10 * 366 * 24 * 3_600_000)
	maxRetryAfter = core.Millis(24 * 3_600_000)
	maxUniqueTTL  = core.Millis(30 * 24 * 3_600_000)
	maxResult     = 1 << 20
	maxCode       = 64
	maxMessage    = 4 << 10
	maxStack      = 16 << 10
	keptAttempts  = 20 // of one task in full; older ones are only counted
	inlineResult  = 40 // a longer result record gets a key of its own, for the same reason
	inlineWorker  = 32 // a longer worker name gets a record of its own, so that the state record stays small
)

// strictAging, and anything below it, means strict priority.
const strictAging = core.Millis(-1)

// retainNone removes a task when it ends.
const retainNone = core.Millis(-1)
