package core

// The codes of why a task is where it is.
const (
	WhyEnded      = "ended"          // it has ended
	WhyRunning    = "running"        // a worker holds it
	WhyStopping   = "stopping"       // a worker holds it and was asked to stop
	WhyAfter      = "after"          // it waits for tasks that have not ended, or that ended without being completed
	WhyDelay      = "delay"          // its time has not come
	WhyRetry      = "retry"          // it failed, and the backoff is not over
	WhySnooze     = "snooze"         // its worker put it off
	WhyPaused     = "paused"         // its queue gives out nothing
	WhyLaneLimit  = "lane_limit"     // as many tasks of its key run as may
	WhyQueueLimit = "queue_limit"    // as many tasks of its queue run as may
	WhyRate       = "rate"           // as much of its queue, or of its key, began lately as may
	WhyMaxWorkers = "max_workers"    // as many workers have tasks of its queue as may
	WhyLimiter    = "limiter"        // as much runs, or began lately, as a limiter lets
	WhyTenant     = "tenant_running" // as many tasks of the tenant run as may
	WhyOrder      = "order"          // a task of its key that goes before it has not ended

	WhyBehind   = "behind"    // others of its queue go before it
	WhyNext     = "next"      // it goes first
	WhyNoWorker = "no_worker" // no worker takes tasks of its queue, or all of them are quiet

	WhyNoHandler = "no_handler"      // no worker of its queue has a handler for its kind
	WhyNoSlot    = "no_slot"         // all slots of the workers that would take it are in use
	WhyUnled     = "partition_unled" // no node leads its partition
	WhyDiskFull  = "disk_full"       // the node that leads its partition has no room on its disk
)

// MaxHolders bounds who is named as holding a task up.
const MaxHolders = 10

// WhyReason is one reason why a task is where it is.
type WhyReason struct {
	Code   string
	Object string    // what it is about: queue, kind, worker, limiter, partition, node, or token of who asked; empty: the task itself
	Note   string    // what people said: the reason of a pause or of a cancel; why it ended
	Until  ShardTime // 0: open
	Wall   bool      // Until is a time of the wall clocks already
	Limit  uint64    // the number that holds it up: attempts, slots, tasks that were counted; 0: none does
	HeldBy []string  // who does, the first MaxHolders: workers, tasks that go before or hold a limiter, or token of who asked
	// Holders are the queues of the tasks of HeldBy, in the same order, where these may be of several.
	Holders []string
}

// Why says why a task is where it is. It is read, and no entry depends on it.
type Why struct {
	Queue   string
	Kind    string
	State   State
	Since   ShardTime // when it came to that state
	Reasons []WhyReason
	// Ahead is how many ready tasks of the queue go before a ready one. Exact is false where counting stopped.
	Ahead uint64
	Exact bool
}
