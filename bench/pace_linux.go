package bench

import (
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a thread is given that waits for arrivals. The kernel delays wakes by 50 µs, and lets the running thread finish its
// slice, of a millisecond and more. Both would be part of the latencies of an open loop, though a client on a machine of its
// own would not wait for the servers' processors. A real-time thread runs as soon as it wakes. Without the right to be one,
// a thread with a short slice may still preempt one with a longer slice, from Linux 6.12 on. Either runs for microseconds.
// Spinning until the time has come would gain little more, and would take the CPU from the servers that are measured.
const (
	paceSlackNanos = 1
	paceSliceNanos = 100_000 // the least there is
	pacePriority   = 1       // of real time: above all threads that have none
)

// threadClock waits on a thread that keeps its place in the runtime while it sleeps. An ordinary call would give it up, and
// wait for another one behind whatever the answers of the servers have woken.
type threadClock struct {
	began time.Time
	base  time.Duration // the kernel's monotonic clock then
}

// extraP is one place more for the runtime's goroutines while pacers have theirs.
var extraP struct {
	mu     sync.Mutex // guards the field below, and changes of the runtime's setting
	pacers int
}

func addP(n int) {
	extraP.mu.Lock()
	defer extraP.mu.Unlock()
	extraP.pacers += n
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// newPaceClock makes this goroutine's thread one that wakes in time, until release. What the kernel does not know or allow
// is left as it is.
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

// until sleeps without telling the runtime. What the runtime wants of the thread comes by a signal, which ends the sleep.
func (c *threadClock) until(at time.Duration) {
	ts := syscall.NsecToTimespec(int64(c.base + at))
	_, _, _ = syscall.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}
