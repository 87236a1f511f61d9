package row

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

// LoseLeader takes the leader of a cluster away n times, under a mixed load on all nodes: by kill -9, or by SIGSTOP for a
// while, after which it goes on where it was. At the end all tasks are worked off and everything is judged.
func LoseLeader(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &clusterRun{e: e, size: 3, rand: rand.New(rand.NewPCG(e.Seed, 11))}
	return r.run(ctx, false, func(ctx context.Context) error {
		for i := range n {
			pause(ctx, time.Duration(300+r.rand.IntN(900))*time.Millisecond)
			lead, err := r.c.Leader(ctx)
			if err != nil {
				return err
			}
			take := r.kill
			if i%2 == 1 {
				take = r.stop
			}
			if err := take(ctx, lead); err != nil {
				return fmt.Errorf("fault %d: %w", i+1, err)
			}
			r.o.Done++
		}
		return ctx.Err()
	})
}

// kill kills a leader, and starts it at once, or after the others have chosen another.
func (r *clusterRun) kill(ctx context.Context, lead *proc.Node) error {
	at := r.l.now()
	if lead.Ended() || !lead.Kill() {
		return fmt.Errorf("node %d ended by itself, see %s", lead.ID, lead.LogFile())
	}
	r.o.Faults["kill"]++
	if r.rand.IntN(3) == 0 {
		pause(ctx, time.Duration(r.rand.IntN(500))*time.Millisecond)
		if err := r.start(ctx, lead); err != nil {
			return err
		}
		r.o.Faults["early_restart"]++
		return r.await(ctx, at, kindKill)
	}
	if err := r.await(ctx, at, kindKill); err != nil {
		return err
	}
	pause(ctx, time.Duration(r.rand.IntN(1000))*time.Millisecond)
	return r.start(ctx, lead)
}

// start starts a node, and notes how long it took until it was ready.
func (r *clusterRun) start(ctx context.Context, n *proc.Node) error {
	took, err := n.Start(ctx)
	if err != nil {
		return fmt.Errorf("restart node %d: %w, see %s", n.ID, err, n.LogFile())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = append(r.ready, took)
	return nil
}

// askedOfPaused is how many reads wait at a paused leader: when it goes on, it answers them before it hears from others.
const askedOfPaused = 32

// stop pauses a leader for one to 30 seconds, and at least until the others have chosen another. When it goes on, it takes
// itself for the leader until it hears from them, and finds reads that came meanwhile.
func (r *clusterRun) stop(ctx context.Context, lead *proc.Node) error {
	most := 30.0
	if r.e.Brief {
		most = 3
	}
	d := time.Duration(math.Pow(most, r.rand.Float64()) * float64(time.Second)) // short ones as often as long ones
	at := r.l.now()
	if err := lead.Pause(); err != nil {
		return err
	}
	r.o.Faults["stop"]++
	end := time.Now().Add(d)
	err := r.await(ctx, at, kindStop)
	wait := r.l.ask(ctx, lead.ID, askedOfPaused, r.rand)
	pause(ctx, max(time.Until(end), 300*time.Millisecond)) // the next leader changes what was asked for
	if resumed := lead.Resume(); resumed != nil {
		return errors.Join(err, resumed)
	}
	wait()
	return err
}

// hangs is how long nothing may be acknowledged before that counts as a violation: ten times what is aimed at. The times
// themselves are figures, because the machine may be busy with other work.
const hangs = 30 * time.Second

// Kinds of faults that take a leader away.
const (
	kindKill = "kill"
	kindStop = "stop"
)

// gaps are times without an acknowledged write after a fault: for the cluster, and for those clients that go where they are
// sent.
type gaps struct{ cluster, clients byKind }

// byKind are durations, by the kind of what they were measured at.
type byKind map[string][]time.Duration

func (k *byKind) add(kind string, d time.Duration) {
	if *k == nil {
		*k = byKind{}
	}
	(*k)[kind] = append((*k)[kind], d)
}

// tell puts the median and the 99th percentile of each kind among the figures, in seconds.
func (k byKind) tell(o *Outcome, name string) {
	for kind, d := range k {
		o.Figures[name+"_"+kind+"_p50_s"], o.Figures[name+"_"+kind+"_p99_s"] = percentile(d, 50), percentile(d, 99)
	}
}

// longGap is what a cluster without a leader should not take to find another one.
const longGap = 3 * time.Second

// await waits for the next write by anybody that begins after since, on the clock of the registers,
// and is acknowledged. An error means that none was within hangs.
//
// It does not wait for the next one by a client that roams, but has that noted when it comes. It
// may be later, as long as a paused node keeps its connections.
func (r *clusterRun) await(ctx context.Context, since int64, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	d, err := r.l.nextOK(ctx, since, false)
	if err != nil {
		return fmt.Errorf("after a %s: %w", kind, err)
	}
	r.mu.Lock()
	r.gaps.cluster.add(kind, d)
	if d > longGap {
		r.o.Look = append(r.o.Look, fmt.Sprintf("the next write after a %s came %v late, at %v", kind, d, time.Now().UTC()))
	}
	r.mu.Unlock()
	roam := context.WithoutCancel(ctx)
	r.later.Go(func() {
		ctx, cancel := context.WithTimeout(roam, hangs)
		defer cancel()
		d, err := r.l.nextOK(ctx, since, true)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.o.fail(fmt.Errorf("clients that go where they are sent, after a %s: %w", kind, err))
			return
		}
		r.gaps.clients.add(kind, d)
	})
	return nil
}
