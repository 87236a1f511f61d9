package node

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// TestAClaimThatDoesNotWaitIsAnsweredWhenOthersTakeWhatThereIs stands still in virtual time: a claim that waited for a
// timer would never be answered.
func TestAClaimThatDoesNotWaitIsAnsweredWhenOthersTakeWhatThereIs(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	const claims, rounds = 16, 50
	for round := range rounds {
		l.createAll(2, func(i int) *core.TaskCreate { return &core.TaskCreate{ID: taskID(2*round + i), Queue: "q"} })
		got := make(chan int, claims)
		for range claims {
			go func() {
				tasks, _, err := l.node.Claim(t.Context(), l.ns, core.ClaimSpec{
					Queues: []core.GrantQueue{{Name: "q"}, {Name: "r"}}, Max: 4, Worker: "w",
				})
				if err != nil {
					t.Error(err)
				}
				got <- len(tasks)
			}()
		}
		sum := 0
		for range claims {
			sum += <-got
		}
		if sum != 2 {
			t.Fatalf("%d claims took %d tasks of 2", claims, sum)
		}
	}
}

// TestClaimsThatMeetForOneTaskAreAllAnswered lets two claims arrive between two entries, when one task is ready: each
// counts on it, and one gets it.
func TestClaimsThatMeetForOneTaskAreAllAnswered(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	l.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	s := l.node.shards[0]
	s.view.ready.Store(false) // no entry is proposed meanwhile
	var answers []chan claimed
	for range 3 {
		c := &claim{answer: make(chan claimed, 1), once: true}
		u := &sub{claim: c, worker: "w", window: 2, batch: 2}
		if f := s.disp.admit(); f != nil {
			t.Fatal(f)
		}
		s.disp.attach(l.ns, u, []core.GrantQueue{{Name: "q"}, {Name: "r"}})
		if !s.disp.mayGive(u) {
			t.Fatal("a claim of a queue with a task is turned away")
		}
		defer s.disp.leave(u)
		answers = append(answers, c.answer)
	}
	s.view.ready.Store(true)
	s.poke()
	sum := 0
	for _, c := range answers {
		r := <-c
		if r.err != nil {
			t.Error(r.err)
		}
		sum += len(r.tasks)
	}
	if sum != 1 {
		t.Errorf("%d tasks are given out", sum)
	}
}

// heldClaim is a claim on a shard that proposes no entry, so that a test applies its grants when it wants.
type heldClaim struct {
	*long
	shard *shard
	sub   *sub
}

// holdClaim has a claim of the queues wait.
func holdClaim(l *long, most int, queues ...string) *heldClaim {
	l.t.Helper()
	h := &heldClaim{long: l, shard: l.node.shards[0], sub: &sub{claim: &claim{answer: make(chan claimed, 1)}, worker: "w", window: most, batch: most}}
	h.shard.view.ready.Store(false)
	if f := h.shard.disp.admit(); f != nil {
		l.t.Fatal(f)
	}
	var list []core.GrantQueue
	for _, q := range queues {
		list = append(list, core.GrantQueue{Name: q})
	}
	h.shard.disp.attach(l.ns, h.sub, list)
	return h
}

// collect builds the grants of an entry that creates a task in each queue.
func (h *heldClaim) collect(queues ...string) []*grant {
	var creates []creating
	for _, q := range queues {
		creates = append(creates, creating{queue: queueKey{h.ns, q}, n: 1})
	}
	grants, _ := h.shard.disp.collect(creates, nil)
	return grants
}

// granted books what a grant gave.
func (h *heldClaim) granted(g *grant, tasks ...core.Assigned) []send {
	d := h.shard.disp
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.granted(h.shard.applier.machine, g, tasks, core.At{})
}

// TestAClaimIsGrantedOnce has tasks come one by one, faster than entries are applied. A claim of several has one grant in the log, since
// it is answered with the first that gives something. Once that has given nothing it goes on, also in another queue.
func TestAClaimIsGrantedOnce(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	h := holdClaim(l, 4, "q", "r")
	defer h.shard.disp.leave(h.sub)
	first := h.collect("q")
	if len(first) != 1 || first[0].op.N != 1 {
		t.Fatalf("granted %+v, want one task", first)
	}
	if more := h.collect("q", "r"); len(more) != 0 {
		t.Fatalf("a claim with a grant in the log is granted %d more", len(more))
	}
	if out := h.granted(first[0]); len(out) != 0 {
		t.Fatalf("an empty grant sends %+v", out)
	}
	again := h.collect()
	if len(again) != 1 || again[0].op.N != 3 {
		t.Fatalf("granted %+v after an empty grant, want all three tasks", again)
	}
	if out := h.granted(again[0], core.Assigned{Task: taskID(1), Token: 1}); len(out) != 0 {
		t.Fatalf("what was asked for is sent to %+v", out)
	}
	if r := <-h.sub.claim.answer; r.err != nil || len(r.tasks) != 1 {
		t.Errorf("answered %+v, want the task", r)
	}
	if more := h.collect("q"); len(more) != 0 {
		t.Errorf("an answered claim is granted %d more", len(more))
	}
}

// TestAClaimThatIsOverTakesWhatIsGranted ends the wait of a claim while a grant for it is in the log: the answer is what that gives, and
// nothing is given back.
func TestAClaimThatIsOverTakesWhatIsGranted(t *testing.T) {
	for what, c := range map[string]struct {
		apply func(h *heldClaim, g *grant) []send
		want  int
	}{
		"a task":  {func(h *heldClaim, g *grant) []send { return h.granted(g, core.Assigned{Task: taskID(1), Token: 1}) }, 1},
		"nothing": {func(h *heldClaim, g *grant) []send { return h.granted(g) }, 0},
		"an entry that is not applied": {func(h *heldClaim, g *grant) []send {
			h.shard.disp.drop(&inflight{grants: []*grant{g}})
			return nil
		}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			l := openLong(t, longOptions{})
			defer l.close()
			h := holdClaim(l, 4, "q")
			defer h.shard.disp.leave(h.sub)
			grants := h.collect("q")
			if len(grants) != 1 {
				t.Fatalf("granted %+v, want one task", grants)
			}
			if r, over := h.shard.disp.await(t.Context(), l.ns, h.sub, 0); over {
				t.Fatalf("answered %+v while a grant is in the log", r)
			}
			if more := h.collect("q"); len(more) != 0 {
				t.Fatalf("a claim whose wait is over is granted %d more", len(more))
			}
			if out := c.apply(h, grants[0]); len(out) != 0 {
				t.Errorf("given back: %+v", out)
			}
			r, over := h.shard.disp.await(t.Context(), l.ns, h.sub, time.Hour)
			if !over || r.err != nil || len(r.tasks) != c.want {
				t.Errorf("answered %+v, want %d tasks", r, c.want)
			}
		})
	}
}

// TestAClaimWhoseCallerWantsNoMoreIsAnswered ends the wait of a claim from outside. What is granted to it from then on goes back.
func TestAClaimWhoseCallerWantsNoMoreIsAnswered(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	h := holdClaim(l, 4, "q")
	defer h.shard.disp.leave(h.sub)
	grants := h.collect("q")
	ctx, end := context.WithCancelCause(t.Context())
	end(core.ErrClaimEnded)
	r, over := h.shard.disp.await(ctx, l.ns, h.sub, time.Hour)
	if !over || r.err != nil || len(r.tasks) != 0 {
		t.Fatalf("answered %+v, want no task", r)
	}
	given := core.Assigned{Task: taskID(1), Token: 1}
	if out := h.granted(grants[0], given); len(out) != 1 || len(out[0].release) != 1 || out[0].release[0].Task != given.Task {
		t.Errorf("what was granted to it is sent to %+v", out)
	}
}
