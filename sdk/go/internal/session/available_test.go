package session

import (
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// The frame that tells a stream without slots of tasks moves the worker's only slot there, and the slot stays where there are none.
func TestTheOnlySlotMovesToWhereTasksAreAvailable(t *testing.T) {
	w := NewWorker(hub(t), bare{t}, WorkerOptions{Slots: 1})
	for p := 1; p < 4; p++ {
		w.streams = append(w.streams, newWorkerStream(w, p))
	}
	w.mu.Lock()
	past := time.Now().Add(-stayMost)
	for i, l := range w.streams {
		l.share.up, l.share.looked = true, past
		if i == 0 {
			l.share.target = 1
			l.share.set(1, 0, past)
		}
	}
	w.mu.Unlock()
	available := &pb.ServerFrame{Frame: &pb.ServerFrame_Available{Available: &pb.Available{Sub: 1}}}
	w.streams[2].receive(available)
	w.streams[0].receive(available) // it came late: the slot is there, or was
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots.stop()
	for i, l := range w.streams {
		if want := i == 2; (l.share.slots == 1) != want {
			t.Errorf("stream %d has %d slots", i, l.share.slots)
		}
	}
}
