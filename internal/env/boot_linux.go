package env

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bootRefresh is how long the distance between the boot clock and the process's own is taken to be what it was. Only a
// suspension changes it, which the boot clock then shows that much later.
const bootRefresh = 2 * time.Millisecond

// The last reading of the boot clock, which all callers share without a lock. The offset is stored
// before the time of its reading, so a caller never takes an older offset for a fresh one.
var (
	// bootOffset is the boot clock less the time since bootStarted, in nanoseconds. After the first
	// reading it only grows.
	bootOffset atomic.Int64
	// bootRead is when bootOffset was read, as nanoseconds since bootStarted; 0 before the first
	// reading.
	bootRead atomic.Int64
	// bootStarted is an instant of the monotonic clock, which stands still while the machine is
	// suspended.
	bootStarted = time.Now()
)

// Boot returns CLOCK_BOOTTIME, which counts suspension. Reading it is a call of the kernel, so what it differs by from the
// clock that is not is kept for a moment. It never goes back: the difference only grows.
func (SystemClock) Boot() time.Duration {
	now := time.Since(bootStarted)
	if read := bootRead.Load(); read != 0 && now-time.Duration(read) < bootRefresh {
		return now + time.Duration(bootOffset.Load())
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("no boot-time clock: " + err.Error()) // the kernel has had one since 2.6.39
	}
	now = time.Since(bootStarted)
	offset := int64(time.Duration(ts.Nano()) - now)
	for {
		old := bootOffset.Load()
		if bootRead.Load() != 0 && offset <= old {
			offset = old
			break
		}
		if bootOffset.CompareAndSwap(old, offset) {
			break
		}
	}
	bootRead.Store(int64(now))
	return now + time.Duration(offset)
}
