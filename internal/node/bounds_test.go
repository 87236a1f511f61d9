package node

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func createOf(n, bytes int) core.Commit {
	return core.Commit{Ops: []core.Op{&core.TaskCreate{ID: taskID(n), Queue: "q", Payload: make([]byte, bytes)}}}
}

// until lets other goroutines run until ok; a test that never gets there times out as a whole.
func until(ok func() bool) {
	for !ok() {
		runtime.Gosched()
	}
}

// TestProposalsThatWaitAreBounded holds the loop up in the middle of an entry, and fills what waits behind it.
func TestProposalsThatWaitAreBounded(t *testing.T) {
	size := createOf(0, 1000)
	for _, c := range []struct {
		limit string
		o     Options
		fits  int
	}{
		{"proposals", Options{QueueProposals: 4}, 4},
		{"proposal_bytes", Options{QueueBytes: int64(3*size.EncodedSize() + size.EncodedSize()/2)}, 3},
	} {
		r := openRig(t, rigOptions{node: c.o})
		s := r.node.shards[0]
		done := make(chan core.Proposed, 10)
		propose := func(n int) {
			commit := createOf(n, 1000)
			commit.Partition, commit.Principal = r.ns, "test"
			r.node.Propose(r.ns, []core.Commit{commit}, func(p core.Proposed) { done <- p })
		}
		queued := func() int {
			return s.in.waiting()
		}
		s.disp.mu.Lock() // the loop needs it to close an entry, after it has taken what waits
		propose(0)
		until(func() bool { return queued() == 0 })
		for i := range c.fits {
			propose(1 + i)
		}
		if len(done) != 0 {
			t.Fatalf("%s: %d proposals have ended: %+v", c.limit, len(done), <-done)
		}
		propose(100)
		got := <-done // refused at once: nothing else can end
		if f, ok := errors.AsType[core.Unavailable](got.Err); !ok || f.Limit != c.limit || f.Reason != "overload" || f.Unknown {
			t.Errorf("%s: one more: %v", c.limit, got.Err)
		}
		st := make(chan ShardStats)
		go func() { st <- r.node.Stats().Shards[0] }()
		until(func() bool { return queued() == c.fits })
		s.disp.mu.Unlock()
		for range c.fits + 1 {
			if got := <-done; got.Err != nil || got.Results[0].Refusal != nil {
				t.Errorf("%s: one that fits: %+v", c.limit, got)
			}
		}
		if got := <-st; got.Sessions != 0 || got.Claims != 0 {
			t.Errorf("%s: statistics %+v", c.limit, got)
		}
		if got := r.propose(createOf(100, 1000)); got.Err != nil {
			t.Errorf("%s: afterwards: %v", c.limit, got.Err)
		}
		r.close()
	}
}

func TestCallersThatWaitForATasksEndAreBounded(t *testing.T) {
	r := openRig(t, rigOptions{node: Options{Waits: 2}})
	defer r.close()
	r.must(createOf(1, 0).Ops...)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := r.node.Wait(ctx, r.ns, taskID(1))
			ended <- err
		}()
	}
	until(func() bool { return r.node.Stats().Shards[0].Waits == 2 })
	_, _, err := r.node.Wait(t.Context(), r.ns, taskID(1))
	if f, ok := errors.AsType[core.Unavailable](err); !ok || f.Limit != "waits" || f.Unknown {
		t.Errorf("a third: %v", err)
	}
	cancel()
	<-ended
	<-ended
	if got := r.node.Stats().Shards[0].Waits; got != 0 {
		t.Errorf("%d wait after all have left", got)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.node.Wait(done, r.ns, taskID(1)); err == nil {
		t.Error("a wait that was over succeeded")
	} else if f, ok := errors.AsType[core.Unavailable](err); ok {
		t.Errorf("the next one: %v", f)
	}
}

func TestClaimsThatWaitAreBounded(t *testing.T) {
	r := openRig(t, rigOptions{node: Options{Claims: 2}})
	defer r.close()
	spec := core.ClaimSpec{Queues: []core.GrantQueue{{Name: "q", Weight: 1}}, Max: 1, Lease: 60_000, Wait: 60_000, Worker: "w"}
	got := make(chan error, 2)
	for range 2 {
		go func() {
			tasks, _, err := r.node.Claim(t.Context(), r.ns, spec)
			if err == nil && len(tasks) != 1 {
				t.Errorf("%d tasks", len(tasks))
			}
			got <- err
		}()
	}
	until(func() bool { return r.node.Stats().Shards[0].Claims == 2 })
	_, _, err := r.node.Claim(t.Context(), r.ns, spec)
	if f, ok := errors.AsType[core.Unavailable](err); !ok || f.Limit != "waiting_claims" || f.Unknown {
		t.Errorf("a third: %v", err)
	}
	for i := range 2 {
		r.must(createOf(1+i, 0).Ops...)
		if err := <-got; err != nil {
			t.Errorf("one that waited: %v", err)
		}
	}
	if st := r.node.Stats().Shards[0]; st.Claims != 0 || st.WaitedQueues != 0 {
		t.Errorf("afterwards %d claims wait for %d queues", st.Claims, st.WaitedQueues)
	}
	r.must(createOf(3, 0).Ops...)
	if n := len(r.claim("q", 1, 60_000)); n != 1 {
		t.Errorf("the next claim got %d tasks", n)
	}
}
