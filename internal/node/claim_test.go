package node

import (
	"testing"

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
