package node

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestTheSessionThatHoldsATaskIsToldOfItsCancel(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	k := newSink()
	ses, _ := r.session(1, k)
	ses.Subscribe(subscription("mail", 2))
	for i := range 2 {
		r.must(&core.TaskCreate{ID: taskID(i), Queue: "mail"})
	}
	given := k.take(2)
	hold := core.TaskHold{Task: given[0].Task, Token: given[0].Token}
	r.must(&core.TaskCancel{Task: hold.Task, Reason: "stop"})
	if got := k.cancels(1); got[0] != hold {
		t.Errorf("told to stop %v, want %v", got, hold)
	}

	// A client that comes back is told again, of this task alone.
	other := core.TaskHold{Task: given[1].Task, Token: given[1].Token}
	_, w := r.session(1, newSink(), hold, other)
	if len(w.Kept) != 2 || len(w.Cancelled) != 1 || w.Cancelled[0].Task != hold.Task || w.Cancelled[0].Reason != "stop" {
		t.Errorf("welcomed with %+v", w)
	}
}

func TestAPausedQueueGivesNothingToASession(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	k := newSink()
	ses, _ := r.session(1, k)
	ses.Subscribe(subscription("mail", 2))
	r.must(&core.TaskCreate{ID: taskID(0), Queue: "mail"})
	k.take(1)
	r.must(&core.QueuePause{Queue: "mail"})
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "mail"})
	r.must(&core.TaskCreate{ID: taskID(2), Queue: "other"})
	ses.Subscribe(core.Subscription{Sub: 2, Queues: []core.GrantQueue{{Name: "other"}}, Slots: 1, Batch: 1})
	if got := k.take(1); got[0].Queue != "other" {
		t.Errorf("a paused queue gave %+v", got)
	}
	r.must(&core.QueuePause{Queue: "mail", Resume: true})
	if got := k.take(1); got[0].Task != taskID(1) {
		t.Errorf("after it goes on: %+v", got)
	}
}
