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

// races is settles that meet the end of their leases.
type races struct {
	l    *long
	open sync.WaitGroup
	mu   sync.Mutex // guards all
	all  []raced
}

// settle completes tasks, with a key as the effect, and does not wait.
func (r *races) settle(tasks []core.Assigned) {
	for _, a := range tasks {
		c := complete(a, &core.KVPut{Keyspace: "done", Key: []byte(a.Task.String()), Value: []byte("x")})
		c.Partition = r.l.ns
		r.open.Add(1)
		r.l.node.Propose(r.l.ns, []core.Commit{c}, func(p core.Proposed) {
			defer r.open.Done()
			if p.Err != nil {
				r.l.t.Errorf("settle: %v", p.Err)
				return
			}
			if f := p.Results[0].Refusal; f != nil {
				if _, lost := f.Fact.(core.LeaseLost); !lost {
					r.l.t.Errorf("a late settle is refused with %v", f.Fact)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.all = append(r.all, raced{a, p.Results[0].Refusal == nil})
		})
	}
}

// meet lets a millisecond pass in which the leases of due end, and settles them at about that time.
func (r *races) meet(due []core.Assigned, rnd *rand.Rand) {
	clock := r.l.clock
	switch rnd.IntN(5) {
	case 0:
		r.settle(due)
		clock.Advance(time.Millisecond)
	case 1:
		moved := make(chan struct{})
		go func() { clock.Advance(time.Millisecond); close(moved) }()
		r.settle(due)
		<-moved
	case 2: // the leases have ended before, with the entry that was waited for
		clock.Advance(time.Millisecond)
		r.l.propose(core.Commit{})
		r.settle(due)
	default: // the loop is woken first, by how much is left to the scheduler
		clock.Advance(time.Millisecond)
		for range rnd.IntN(50) {
			runtime.Gosched()
		}
		r.settle(due)
	}
}

// count checks each task against the answer to its settle, and returns how many settles won.
func (r *races) count() (won int) {
	t := r.l.t
	for _, one := range r.all {
		_, effect := r.l.key("done", one.task.Task.String())
		task := r.l.task(one.task.Task)
		want, crashes := core.Ready, uint32(1)
		if one.settled {
			won++
			want, crashes = core.Completed, 0
		}
		if task.State != want || task.Crashes != crashes || effect != one.settled {
			t.Fatalf("settled: %v, and the task is %s with %d crashes, its effect is there: %v",
				one.settled, task.State, task.Crashes, effect)
		}
	}
	return won
}

// TestOfASettleAndTheEndOfItsLeaseExactlyOneWins lets leases end in every millisecond of a stretch of time while their
// holders complete them: before the clock moves, while it moves, and after.
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
	r := &races{l: l}
	rnd := rand.New(rand.NewPCG(7, 7))
	for at := range millis {
		r.meet(held[at*perMilli:(at+1)*perMilli], rnd)
	}
	r.open.Wait()
	l.pass(time.Second)
	won := r.count()
	st := l.stats("q")
	t.Logf("of %d races settles won %d", total, won)
	if len(r.all) != total || st.Completed != uint64(won) || st.Crashed != uint64(total-won) {
		t.Errorf("%d answers, %d completed, %d crashed, want %d, %d, %d", len(r.all), st.Completed, st.Crashed, total, won, total-won)
	}
	if won < total/100 || won > total*99/100 {
		t.Errorf("settles won %d of %d races: the other side hardly ran", won, total)
	}
	l.audit()
}
