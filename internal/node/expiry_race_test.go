package node

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// raced is what became of one settle that met the end of its lease.
type raced struct {
	task    core.Assigned
	settled bool
}

// TestOfASettleAndTheEndOfItsLeaseExactlyOneWins lets leases end in every millisecond of a stretch of time while their
// holders complete them, with a key as the effect: before the clock moves, while it moves, and after.
func TestOfASettleAndTheEndOfItsLeaseExactlyOneWins(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	const perMilli = 10
	millis := shorter(1000)
	total := perMilli * millis
	l.createAll(total, func(i int) *core.TaskCreate {
		return &core.TaskCreate{ID: taskID(i), Queue: "q", Lease: core.Millis(20_000 + i/perMilli)}
	})
	l.pass(20 * time.Second) // no lease ends soon after a start
	held := l.claimUpTo("q", total)
	inOrder(t, held, 0)
	l.clock.Advance(20*time.Second - time.Millisecond)

	var mu sync.Mutex
	var all []raced
	var open sync.WaitGroup
	settle := func(tasks []core.Assigned) {
		for _, a := range tasks {
			c := complete(a, &core.KVPut{Keyspace: "done", Key: []byte(a.Task.String()), Value: []byte("x")})
			c.Partition = l.ns
			open.Add(1)
			l.node.Propose(l.ns, []core.Commit{c}, func(p core.Proposed) {
				defer open.Done()
				if p.Err != nil {
					t.Errorf("settle: %v", p.Err)
					return
				}
				if f := p.Results[0].Refusal; f != nil {
					if _, lost := f.Fact.(core.LeaseLost); !lost {
						t.Errorf("a late settle is refused with %v", f.Fact)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, raced{a, p.Results[0].Refusal == nil})
			})
		}
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	for at := range millis {
		due := held[at*perMilli : (at+1)*perMilli]
		switch rnd.IntN(4) {
		case 0:
			settle(due)
			l.clock.Advance(time.Millisecond)
		case 1:
			moved := make(chan struct{})
			go func() { l.clock.Advance(time.Millisecond); close(moved) }()
			settle(due)
			<-moved
		default: // the loop is woken first, by how much is left to the scheduler
			l.clock.Advance(time.Millisecond)
			for range rnd.IntN(50) {
				runtime.Gosched()
			}
			settle(due)
		}
	}
	open.Wait()
	l.pass(time.Second)

	won := 0
	for _, r := range all {
		_, effect := l.key("done", r.task.Task.String())
		task := l.task(r.task.Task)
		want, crashes := core.Ready, uint32(1)
		if r.settled {
			won++
			want, crashes = core.Completed, 0
		}
		if task.State != want || task.Crashes != crashes || effect != r.settled {
			t.Fatalf("settled: %v, and the task is %s with %d crashes, its effect is there: %v",
				r.settled, task.State, task.Crashes, effect)
		}
	}
	st := l.stats("q")
	t.Logf("of %d races settles won %d", total, won)
	if len(all) != total || st.Completed != uint64(won) || st.Crashed != uint64(total-won) {
		t.Errorf("%d answers, %d completed, %d crashed, want %d, %d, %d", len(all), st.Completed, st.Crashed, total, won, total-won)
	}
	if won < total/100 || won > total*99/100 {
		t.Errorf("settles won %d of %d races: the other side hardly ran", won, total)
	}
	l.audit()
}
