package edge

import (
	"sync"
	"testing"
)

func TestAShareWakesWhoWaitsWheneverThereIsRoomAgain(t *testing.T) {
	h := NewBudget(10)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				for c := h.Room(); c != nil; c = h.Room() {
					<-c
				}
				h.Add(7)
				h.Give(7)
			}
		})
	}
	all.Wait()
	if h.Held.Load() != 0 || h.Room() != nil {
		t.Errorf("%d are held", h.Held.Load())
	}
}
