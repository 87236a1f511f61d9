package core

// The codes of why a task is where it is.
const (
	WhyEnded    = "ended"     // it has ended
	WhyRunning  = "running"   // a worker holds it
	WhyStopping = "stopping"  // a worker holds it and was asked to stop
	WhyDelay    = "delay"     // its time has not come
	WhyRetry    = "retry"     // it failed, and the backoff is not over
	WhySnooze   = "snooze"    // its worker put it off
	WhyPaused   = "paused"    // its queue gives out nothing
	WhyBehind   = "behind"    // others of its queue go before it
	WhyNext     = "next"      // it goes first
	WhyNoWorker = "no_worker" // no worker takes tasks of its queue, or all of them are quiet
)

// WhyReason is one reason why a task is where it is.
type WhyReason struct {
	Code   string
	Object string    // what holds it up: queue, worker, or token of who paused the queue; empty: the task itself
	Note   string    // what people said: the reason of a pause or of a cancel; why it ended
	Until  ShardTime // 0: open
	Wall   bool      // Until is a time of the wall clocks already
}

// Why says why a task is where it is. It is read, and no entry depends on it.
type Why struct {
	Queue   string
	State   State
	Since   ShardTime // when it came to that state
	Reasons []WhyReason
	// Ahead is how many ready tasks of the queue go before a ready one. Exact is false where counting stopped.
	Ahead uint64
	Exact bool
}
