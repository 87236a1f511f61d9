package millrace

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/session"
)

// crew is a worker that runs over several partitions of one fake.
type crew struct {
	ns      *nodes
	c       *Client
	w       *Worker
	streams []*fakeStream // by partition
	slots   []int         // the windows that the server was told
	sub     []bool
	stop    context.CancelFunc
	out     chan error
}

// hire starts a worker, and lets its streams in.
func hire(t *testing.T, partitions int, set func(w *Worker), opts ...WorkerOption) *crew {
	t.Helper()
	ns := newNodes(t, 1, make([]int, partitions)...)
	c := ns.client()
	w := c.Worker(opts...)
	set(w)
	ctx, stop := context.WithCancel(context.Background())
	r := &crew{
		ns: ns, c: c, w: w, streams: make([]*fakeStream, partitions), slots: make([]int, partitions), sub: make([]bool, partitions),
		stop: stop, out: make(chan error, 1),
	}
	go func() { r.out <- w.Run(ctx) }()
	for range partitions {
		r.accept()
	}
	return r
}

// accept lets the next stream in.
func (r *crew) accept() *fakeStream {
	r.ns.t.Helper()
	st := r.ns.all[0].welcome(r.ns.hello(0))
	r.streams[st.hello.Partition] = st
	r.sub[st.hello.Partition] = false
	return st
}

// hear takes in what has come on all streams, and returns the windows that the server knows of.
func (r *crew) hear() string {
	r.ns.t.Helper()
	synctest.Wait()
	for p := range r.streams {
		r.take(p)
	}
	return fmt.Sprint(r.slots)
}

func (r *crew) take(p int) {
	for {
		select {
		case f, ok := <-r.streams[p].in:
			if !ok {
				return
			}
			switch x := f.GetFrame().(type) {
			case *pb.ClientFrame_Subscribe:
				r.slots[p], r.sub[p] = int(x.Subscribe.Slots), true
			case *pb.ClientFrame_Slots:
				r.slots[p] = int(x.Slots.Slots)
			case *pb.ClientFrame_Settle:
				r.streams[p].settled(x.Settle)
			case *pb.ClientFrame_Renew:
				r.streams[p].ack(&pb.Ack{Seq: x.Renew.Seq, Renewed: make([]*pb.HeartbeatResult, len(x.Renew.Items))})
			}
		default:
			return
		}
	}
}

// end stops the worker. Its streams are served until then.
func (r *crew) end() {
	r.ns.t.Helper()
	r.stop()
	for done := false; !done; {
		synctest.Wait()
		for p := range r.streams {
			r.take(p)
		}
		select {
		case err := <-r.out:
			if err != nil {
				r.ns.t.Error(err)
			}
			done = true
		default:
			<-time.After(time.Millisecond) // of the test's own time
		}
	}
	r.ns.end(r.c)
}

func (r *crew) assign(p, n int, kind string) {
	r.ns.t.Helper()
	for range n {
		r.streams[p].assign(task(idIn(p, len(r.streams)), 1, kind, ""))
	}
}

// gated is a handler that counts, and waits until it may go on.
type gated struct {
	gate     chan struct{}
	now, top atomic.Int64
}

func (g *gated) handle(w *Worker) {
	w.HandleRaw("gated", func(context.Context, *Task) ([]byte, error) {
		n := g.now.Add(1)
		for top := g.top.Load(); n > top && !g.top.CompareAndSwap(top, n); top = g.top.Load() {
		}
		<-g.gate
		g.now.Add(-1)
		return nil, nil
	})
}

func TestIdleSlotsMoveToThePartitionThatUsesAllOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{gate: make(chan struct{})}
		r := hire(t, 4, g.handle, Slots(10))
		if got := r.hear(); got != "[3 3 2 2]" {
			t.Errorf("got windows %s at first, want [3 3 2 2]", got)
		}
		r.assign(1, 3, "gated")
		r.hear()
		time.Sleep(session.BalanceLeast)
		if got := r.hear(); got != "[1 7 1 1]" {
			t.Errorf("got windows %s when one is full, want [1 7 1 1]", got)
		}
		r.assign(1, 4, "gated")
		r.assign(2, 1, "gated") // both are full
		time.Sleep(session.BalanceEvery)
		if got := r.hear(); got != "[1 4 1 1]" {
			t.Errorf("got windows %s while the slots are taken still, want [1 4 1 1]", got)
		}
		for range 3 {
			g.gate <- struct{}{}
		}
		time.Sleep(session.BalanceEvery)
		if got := r.hear(); got != "[1 4 4 1]" {
			t.Errorf("got windows %s, want [1 4 4 1]", got)
		}
		close(g.gate)
		time.Sleep(session.HotFor + 2*session.BalanceEvery)
		if got := r.hear(); got != "[3 3 2 2]" {
			t.Errorf("got windows %s when all is done, want [3 3 2 2]", got)
		}
		if top := g.top.Load(); top > 10 {
			t.Errorf("%d handlers ran at once, want at most 10", top)
		}
		r.end()
	})
}

func TestTasksBeyondTheSlotsWaitAndGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{gate: make(chan struct{})}
		r := hire(t, 2, g.handle, Slots(4))
		if got := r.hear(); got != "[2 2]" {
			t.Fatalf("got windows %s, want [2 2]", got)
		}
		// The second stream's window shrinks as its tasks are on their way.
		r.assign(0, 2, "gated")
		r.hear()
		r.assign(0, 1, "gated")
		r.assign(1, 2, "gated")
		synctest.Wait()
		if now := g.now.Load(); now != 4 {
			t.Errorf("%d handlers run, want 4", now)
		}
		time.Sleep(2 * session.SurplusAfter)
		synctest.Wait()
		released := 0
		for p := range r.streams {
			for len(r.streams[p].in) > 0 {
				f := r.streams[p].next()
				for _, it := range f.GetSettle().GetItems() {
					if it.GetRelease() != nil {
						released++
					}
				}
				if f.GetSettle() != nil {
					r.streams[p].settled(f.GetSettle())
				}
			}
		}
		if released != 1 {
			t.Errorf("%d tasks went back, want 1", released)
		}
		close(g.gate)
		r.end()
	})
}

func TestFewerSlotsThanPartitionsTravel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{gate: make(chan struct{})}
		r := hire(t, 5, g.handle, Slots(2))
		seen := map[int]time.Time{}
		began := time.Now()
		for p := range r.streams {
			seen[p] = began
		}
		busy := 0
		for time.Since(began) < 2*time.Second {
			r.hear()
			open := 0
			for p, n := range r.slots {
				open += n
				if n > 0 {
					if d := time.Since(seen[p]); d > session.LookWithin {
						t.Errorf("partition %d was not looked at for %v, after %v", p, d, time.Since(began))
					}
					seen[p] = time.Now()
				}
				if p == 3 && n > 0 && busy == 0 && time.Since(began) > time.Second {
					r.assign(3, 1, "gated")
					busy = 1
				}
			}
			if open > 2 {
				t.Errorf("got windows %v, together more than 2", r.slots)
			}
			time.Sleep(time.Millisecond)
		}
		if busy == 0 || g.now.Load() != 1 {
			t.Errorf("%d tasks run, want 1", g.now.Load())
		}
		close(g.gate)
		r.end()
	})
}

func TestALaneResumesItsOwnLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{gate: make(chan struct{})}
		r := hire(t, 2, g.handle, Slots(4))
		r.hear()
		r.assign(0, 1, "gated")
		r.assign(1, 1, "gated")
		synctest.Wait()
		old := r.streams[1].hello.Session
		r.streams[1].end(status.Error(codes.Unavailable, "connection reset"))
		st := r.accept()
		if st.hello.Partition != 1 || string(st.hello.Session) != string(old) || len(st.hello.Held) != 1 {
			t.Errorf("got %v, want the same session of partition 1 with its lease", st.hello)
		}
		if id, _ := place.Parse(st.hello.Held[0].Id); id.Partition() != 1 {
			t.Errorf("got a lease of partition %d, want 1", id.Partition())
		}
		if got := r.hear(); got != "[2 2]" {
			t.Errorf("got windows %s, want [2 2]", got)
		}
		close(g.gate)
		r.end()
	})
}

func TestEffectsOfAnotherPartitionFailTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := tagIn(1, 2), tagIn(0, 2)
		var id string
		r := hire(t, 2, func(w *Worker) {
			w.HandleRaw("bad", func(_ context.Context, t *Task) ([]byte, error) {
				t.Effects().KV("k").Put("{"+here+"}", 1)
				thumb.AddTx(t.Effects(), thumbArgs{}, Tag(there))
				return nil, nil
			})
			w.HandleRaw("good", func(_ context.Context, t *Task) ([]byte, error) {
				id = thumb.AddTx(t.Effects(), thumbArgs{}).ID
				t.Effects().KV("k").Put("{"+here+"}", id)
				return nil, nil
			})
		}, Queues("q"))
		r.hear()
		r.streams[1].assign(task(idIn(1, 2), 1, "bad", ""))
		f := r.streams[1].settle()
		if fail := f.Items[0].GetFail(); fail.GetError().GetCode() != string(CodeWrongPartition) || f.Items[0].Effects != nil {
			t.Errorf("got %v, want a failure WRONG_PARTITION", f.Items[0])
		}
		r.streams[1].settled(f)
		r.streams[1].assign(task(idIn(1, 2), 2, "good", ""))
		f = r.streams[1].settle()
		if ops := f.Items[0].GetEffects().GetOps(); len(ops) != 2 || (place.Space{Partitions: 2}).Op(ops[0]) != 1 || ops[0].GetTaskCreate().Id != id {
			t.Errorf("got %v, want a task of partition 1", f.Items[0])
		}
		r.streams[1].settled(f)
		r.end()
	})
}

func TestADrainingWorkerFinishesOnAllLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{gate: make(chan struct{})}
		r := hire(t, 3, g.handle, Slots(6))
		r.hear()
		for p := range 3 {
			r.assign(p, 1, "gated")
		}
		synctest.Wait()
		r.stop()
		synctest.Wait()
		for p := range 3 {
			drains := false
			for len(r.streams[p].in) > 0 {
				drains = drains || r.streams[p].next().GetDrain() != nil
			}
			if !drains {
				t.Errorf("partition %d was not told to send no more", p)
			}
		}
		close(g.gate)
		r.end()
	})
}

func TestALaneThatIsRefusedForGoodEndsTheOthersBeforeRunReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		r := hire(t, 3, func(w *Worker) {
			w.HandleRaw("long", func(ctx context.Context, _ *Task) ([]byte, error) {
				running.Add(1)
				<-ctx.Done()
				running.Add(-1)
				return nil, nil
			})
		}, Slots(6))
		r.hear()
		for p := range 3 {
			r.assign(p, 1, "long")
		}
		synctest.Wait()
		if n := running.Load(); n != 3 {
			t.Fatalf("%d handlers run, want 3", n)
		}
		r.streams[1].end(status.Error(codes.Unauthenticated, "expired"))
		err := receive(t, r.out)
		if e := asError(t, err); e.Code != CodeUnauthenticated {
			t.Errorf("got %v, want UNAUTHENTICATED", err)
		}
		if n := running.Load(); n != 0 {
			t.Errorf("%d handlers outlived Run", n)
		}
		if n := r.w.engine.State().Open; n > 0 {
			t.Errorf("%d streams go on", n)
		}
		r.stop()
		r.ns.end(r.c)
	})
}

func TestALaneThatEndsWhileTheWorkerDrainsLeavesTheOthersTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{gate: make(chan struct{})}
		r := hire(t, 2, g.handle, Slots(4), DrainTimeout(time.Minute))
		r.hear()
		for p := range 2 {
			r.assign(p, 1, "gated")
		}
		synctest.Wait()
		r.stop()
		r.hear()
		r.streams[1].end(status.Error(codes.Unauthenticated, "expired"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		select {
		case err := <-r.out:
			t.Fatalf("Run returned %v while a handler had time left", err)
		default:
		}
		close(g.gate)
		synctest.Wait()
		var settled int
		for len(r.streams[0].in) > 0 {
			if f := r.streams[0].next().GetSettle(); f != nil {
				settled += len(f.Items)
				r.streams[0].settled(f)
			}
		}
		if settled != 1 {
			t.Errorf("%d tasks of the healthy lane were settled, want 1", settled)
		}
		if err := receive(t, r.out); err == nil {
			t.Error("got no error, want one for the task of the lane that ended")
		}
		r.ns.end(r.c)
	})
}
