package bench

import (
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How the thread is set that waits for arrivals. By default the kernel delays a wake by 50 µs, and
// lets the running thread finish its slice of a millisecond and more. Both would be part of the
// latencies of an open loop, though a client on a machine of its own would not wait for the
// servers' processors. So the thread becomes a real-time thread, which runs as soon as it wakes.
// Without the right to that, it gets a short slice: from Linux 6.12 on such a thread may preempt
// one with a longer slice. Either runs for microseconds at a time. Spinning until the time has come
// would gain little more, and would take the CPU from the servers that are measured.
const (
	// paceSlackNanos is how late the kernel may wake the thread.
	paceSlackNanos = 1
	// paceSliceNanos is the shortest slice that the kernel allows.
	paceSliceNanos = 100_000
	// pacePriority is the lowest real-time priority: it is above all ordinary threads.
	pacePriority = 1
)

// threadClock waits on a thread that keeps its place (P) in the runtime while it sleeps. An
// ordinary call would give the place up. The goroutine would then wait for another one, behind all
// goroutines that answers of the servers have woken.
type threadClock struct {
	began time.Time
	// base is the kernel's monotonic clock at began.
	base time.Duration
}

// extraP counts the pacers that run. Each has one P more than the runtime had before, as it sleeps on one.
var extraP struct {
	mu     sync.Mutex // guards the field below, and changes of the runtime's setting
	pacers int
}

// addP changes the number of pacers, and GOMAXPROCS with it. That stops all goroutines for a
// moment, which happens when a pacer begins and ends, and not in between.
func addP(n int) {
	extraP.mu.Lock()
	defer extraP.mu.Unlock()
	extraP.pacers += n
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// newPaceClock makes the thread of this goroutine one that wakes in time, until release undoes it.
// A setting that the kernel does not know or allow stays as it is.
func newPaceClock() (c *threadClock, release func()) {
	addP(1)
	runtime.LockOSThread() // threads that are started from a locked one inherit nothing of what it is given here
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	slacked := err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, paceSlackNanos, 0, 0, 0) == nil
	attr, err := unix.SchedGetAttr(0, 0)
	hurried := err == nil && attr.Policy == unix.SCHED_NORMAL
	if hurried {
		first := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: pacePriority, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
		short := *attr
		short.Runtime = paceSliceNanos
		hurried = unix.SchedSetAttr(0, &first, 0) == nil || unix.SchedSetAttr(0, &short, 0) == nil
	}
	c = &threadClock{time.Now(), clock(unix.CLOCK_MONOTONIC)}
	return c, func() {
		if hurried {
			_ = unix.SchedSetAttr(0, attr, 0) // it was so before
		}
		if slacked {
			_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) // likewise
		}
		runtime.UnlockOSThread()
		addP(-1)
	}
}

func (c *threadClock) now() time.Duration { return time.Since(c.began) }

// until sleeps without telling the runtime, which therefore leaves the P to this thread. When the
// runtime needs the thread, it sends a signal, which ends the sleep early.
func (c *threadClock) until(at time.Duration) {
	ts := syscall.NsecToTimespec(int64(c.base + at))
	_, _, _ = syscall.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}
