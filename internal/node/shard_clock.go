package node

import (
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// shardClock turns the boot clock's progress into shard time. It steps only at the start of a term.
type shardClock struct {
	// Guards the fields below.
	mu sync.Mutex
	// Shard time when the term began.
	base core.ShardTime
	// Boot time then.
	bootAt time.Duration
	// The last time that was told. Time never goes back behind it.
	last core.ShardTime
	// A term began in this run; before, time stands still.
	set bool
	// The stamp of the last applied entry, and the boot time at which it was applied.
	seen   core.ShardTime
	seenAt time.Duration
}

// saw notes the stamp of an entry that is applied at a boot time.
func (c *shardClock) saw(stamp core.ShardTime, boot time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.seenAt = stamp, boot
}

// reckoned is now on a node that may not lead: no earlier than the last applied entry, and as much later as time has passed since. What a
// leader decides by is now.
func (c *shardClock) reckoned(boot time.Duration) core.ShardTime {
	now := c.now(boot)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == 0 { // the shard has no time yet
		return now
	}
	return max(now, c.seen.Add(core.Millis(max(boot-c.seenAt, 0)/time.Millisecond)))
}

// start begins a term: time goes on from the later of the last stamp and the shard time that the wall clock shows.
func (c *shardClock) start(last, wall core.ShardTime, boot time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.bootAt, c.set = max(last, wall), boot, true
	c.last = c.base
}

// now returns shard time at a boot time. It never falls, even if callers read their boot clocks in another order.
func (c *shardClock) now(boot time.Duration) core.ShardTime {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.set {
		return c.last
	}
	if t := c.base.Add(core.Millis((boot - c.bootAt) / time.Millisecond)); t > c.last {
		c.last = t
	}
	return c.last
}

// firstTimeWait is for how long the first leader of a shard waits for other nodes' clocks to confirm its own.
const firstTimeWait = 10 * time.Second

// begins returns what time a term may begin at, the last stamp at the least: the one that the wall clock shows when most nodes' clocks agree
// with it, else the last stamp. A shard that has no stamp yet begins at no other time than a clock's: a beginning in 1970
// would have the next term step over all the years since, and every deadline with it. So its first leader waits until the
// clocks agree, and takes its own when they do not for long.
func begins(last, wall core.ShardTime, agree bool, waited time.Duration) (at core.ShardTime, known bool) {
	switch {
	case agree:
		return wall, true
	case last > 0:
		return last, true
	}
	return wall, waited >= firstTimeWait
}
