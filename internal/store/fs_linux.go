package store

import (
	"syscall"
	"time"
)

// changeTime is when a file was changed last, in its content, its names or its mode.
func changeTime(s *syscall.Stat_t) time.Time { return time.Unix(s.Ctim.Unix()) }
