//go:build !linux

package env

import "time"

var processStart = time.Now()

// Boot returns the monotonic time since the process started; on some systems it stands still while they are suspended.
func (SystemClock) Boot() time.Duration { return time.Since(processStart) }
