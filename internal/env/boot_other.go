//go:build !linux

package env

import "time"

// processStart is the instant that Boot counts from.
var processStart = time.Now()

// Boot returns the monotonic time since the process started; on some systems it stands still while they are suspended.
func (SystemClock) Boot() time.Duration { return time.Since(processStart) }
