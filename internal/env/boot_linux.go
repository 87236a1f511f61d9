package env

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns CLOCK_BOOTTIME, which counts suspension.
func (SystemClock) Boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("no boot-time clock: " + err.Error()) // the kernel has had one since 2.6.39
	}
	return time.Duration(ts.Nano())
}
