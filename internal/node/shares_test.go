package node

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// fill makes n tasks of each queue, with ids from number first on.
func (r *rig) fill(first, n int, queues ...string) {
	r.t.Helper()
	for i := range n {
		for j, q := range queues {
			r.must(&core.TaskCreate{ID: taskID(first + i*len(queues) + j), Queue: q})
		}
	}
}

// opens gives a subscription n more slots, one after the other, and counts the tasks that come by queue.
func opens(ses core.Session, k *sink, slots *uint32, n int) map[string]int {
	got := make(map[string]int)
	for range n {
		*slots++
		ses.Slots(1, *slots)
		for _, a := range k.take(1) {
			got[a.Queue]++
		}
	}
	return got
}

// Slots that become free one by one are shared by the weights of the queues, exactly to a task.
func TestSlotsAreSharedByTheWeightsOfQueues(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	r.fill(0, 120, "a", "b")
	k := newSink()
	ses, _ := r.session(1, k)
	var slots uint32
	ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: "a", Weight: 1}, {Name: "b", Weight: 3}}, Batch: 8})
	if got := opens(ses, k, &slots, 100); got["a"] != 25 || got["b"] != 75 {
		t.Errorf("100 slots went to %v, want 25 to a and 75 to b", got)
	}
	// One grant of many is shared as well.
	slots += 16
	ses.Slots(1, slots)
	got := make(map[string]int)
	for _, a := range k.take(16) {
		got[a.Queue]++
	}
	if got["a"] != 4 || got["b"] != 12 {
		t.Errorf("16 slots at once went to %v, want 4 to a and 12 to b", got)
	}
}

// A queue that had nothing has saved nothing up: when it has tasks again, it is served by its weight from then on.
func TestAQueueWithoutTasksSavesNoShareUp(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	r.fill(0, 200, "a")
	k := newSink()
	ses, _ := r.session(1, k)
	var slots uint32
	ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: "a", Weight: 2}, {Name: "b", Weight: 2}}, Batch: 8})
	if got := opens(ses, k, &slots, 100); got["a"] != 100 {
		t.Fatalf("100 slots went to %v", got)
	}
	r.fill(1000, 60, "b")
	if got := opens(ses, k, &slots, 40); got["a"] != 20 || got["b"] != 20 {
		t.Errorf("40 slots went to %v, want 20 to each", got)
	}
}

// In order a queue gives tasks when those before it have none.
func TestQueuesInOrder(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	r.fill(0, 10, "low", "high")
	k := newSink()
	ses, _ := r.session(1, k)
	ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: "high"}, {Name: "low"}}, Strict: true, Slots: 12, Batch: 5})
	for i, a := range k.take(12) {
		if want := map[bool]string{true: "high", false: "low"}[i < 10]; a.Queue != want {
			t.Errorf("task %d is of queue %s", i, a.Queue)
		}
	}
}

// Claims have no grants before: which queue is served first is drawn by the weights.
func TestClaimsAreSharedByTheWeightsOfQueues(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	const claims = 400
	l.createAll(2*claims, func(i int) *core.TaskCreate { return &core.TaskCreate{ID: taskID(i), Queue: []string{"a", "b"}[i%2]} })
	claim := func(strict bool, queues ...core.GrantQueue) (got map[string]int) {
		got = make(map[string]int)
		for range claims / 4 {
			tasks, _, err := l.node.Claim(t.Context(), l.ns, core.ClaimSpec{Queues: queues, Strict: strict, Max: 1, Worker: "w"})
			if err != nil || len(tasks) != 1 {
				t.Fatalf("claimed %d tasks: %v", len(tasks), err)
			}
			got[tasks[0].Queue]++
		}
		return got
	}
	// The draws are numbered, so they are the same in each run.
	if got := claim(false, core.GrantQueue{Name: "a", Weight: 1}, core.GrantQueue{Name: "b", Weight: 3}); got["b"] < 60 || got["b"] > 90 {
		t.Errorf("claims took %v, want about 25 of a and 75 of b", got)
	}
	if got := claim(true, core.GrantQueue{Name: "b"}, core.GrantQueue{Name: "a"}); got["a"] != 0 {
		t.Errorf("claims in order took %v", got)
	}
}
