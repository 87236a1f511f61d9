package env

import (
	"sync"
	"testing"
	"time"
)

func TestTheBootClockNeverFalls(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			last := SystemClock{}.Boot()
			for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
				now := SystemClock{}.Boot()
				if now < last {
					t.Errorf("%v after %v", now, last)
					return
				}
				last = now
			}
		})
	}
	all.Wait()
}
