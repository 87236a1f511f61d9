package env

import (
	"sync"
	"time"
)

// Every runs f in a goroutine of its own, the first time after d and then each time d after f has returned, until stop is called.
// When stop returns f does not run. stop may be called again, but not by f.
func Every(clock Clock, d time.Duration, f func()) (stop func()) {
	over := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		timer := clock.NewTimer(d)
		defer timer.Stop()
		for {
			select {
			case <-over:
				return
			case <-timer.C():
				f()
				timer.Reset(d)
			}
		}
	})
	return sync.OnceFunc(func() {
		close(over)
		ended.Wait()
	})
}
