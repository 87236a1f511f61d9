package node

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// A subscription without slots is told once that there are tasks which no other takes, and again when its window was set to 0 again.
func TestASubscriptionWithoutSlotsIsToldOfTasks(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	k := newSink()
	ses, _ := r.session(1, k)
	ses.Subscribe(subscription("q", 0))
	settle := func() { r.must(&core.KVPut{Keyspace: "k", Key: []byte("x"), Value: []byte("y")}) } // an entry, in which it could be told
	settle()
	if n := k.tells(); n != 0 {
		t.Fatalf("told %d times of an empty queue", n)
	}
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "other"})
	r.must(&core.TaskCreate{ID: taskID(2), Queue: "q"})
	k.told(1)
	r.must(&core.TaskCreate{ID: taskID(3), Queue: "q"})
	settle()
	if n := k.tells(); n != 1 {
		t.Fatalf("told %d times while nothing was asked again", n)
	}
	ses.Slots(1, 0)
	k.told(2)
	ses.Slots(1, 1)
	k.take(1)
	ses.Slots(1, 0)
	k.told(3)
	ses.Slots(1, 4)
	k.take(1)
	ses.Slots(1, 0)
	settle()
	if n := k.tells(); n != 3 {
		t.Errorf("told %d times when the queue was empty", n)
	}
	// One that subscribes when there are tasks is told at once.
	r.must(&core.TaskCreate{ID: taskID(4), Queue: "full"})
	late := newSink()
	other, _ := r.session(2, late)
	other.Subscribe(subscription("full", 0))
	late.told(1)
}

// A subscription is not told of tasks that another takes.
func TestASubscriptionWithoutSlotsIsNotToldOfWhatAnotherTakes(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	idle, busy := newSink(), newSink()
	a, _ := r.session(1, idle)
	a.Subscribe(subscription("q", 0))
	b, _ := r.session(2, busy)
	b.Subscribe(subscription("q", 8))
	for i := range 8 {
		r.must(&core.TaskCreate{ID: taskID(i), Queue: "q"})
	}
	busy.take(8)
	if n := idle.tells(); n != 0 {
		t.Fatalf("told %d times of tasks that another took", n)
	}
	r.must(&core.TaskCreate{ID: taskID(9), Queue: "q"}) // now the other has no slot left
	idle.told(1)
	a.Close()
	r.must(&core.TaskCreate{ID: taskID(10), Queue: "q"})
	if n := idle.tells(); n != 1 {
		t.Errorf("a closed session was told: %d times", n)
	}
}
