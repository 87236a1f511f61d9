package row

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

// RollNodes restarts the nodes of a cluster of three in order, one after the other, n rounds of all three, under a mixed
// load. Nothing is lost; and callers with the SDK's own patience, which know all nodes, see no call fail.
func RollNodes(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &rollRun{clusterRun: clusterRun{e: e, size: 3, rand: rand.New(rand.NewPCG(e.Seed, 24))}}
	return r.rounds(ctx, n, func(ctx context.Context) error {
		for _, node := range r.c.Nodes {
			pause(ctx, time.Duration(100+r.rand.IntN(400))*time.Millisecond)
			if err := r.restart(ctx, node); err != nil {
				return err
			}
		}
		return nil
	})
}

// rounds makes n rounds of something under a mixed load, with patient callers in addition.
func (r *rollRun) rounds(ctx context.Context, n int, round func(context.Context) error) (*Outcome, error) {
	o, err := r.run(ctx, false, func(ctx context.Context) error {
		calling, stop := context.WithCancel(ctx)
		defer stop()
		var callers sync.WaitGroup
		for i := range r.m.clients {
			callers.Go(func() { r.call(calling, i) })
		}
		for i := range n {
			if err := round(ctx); err != nil {
				return fmt.Errorf("round %d: %w", i+1, err)
			}
			r.o.Done++
		}
		stop()
		callers.Wait()
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	o.Figures["patient_calls"] = float64(r.calls)
	if r.longest > 0 {
		o.Figures["patient_longest_s"] = r.longest.Seconds()
	}
	if r.calls == 0 && o.Invalid == "" {
		o.Invalid = "no patient call ended"
	}
	return o, nil
}

// rollRun is a run whose nodes an operator works on.
type rollRun struct {
	clusterRun

	// moved are the longest times without an acknowledged write while leaders are handed over. mu
	// guards them and the next two.
	moved byKind
	// calls counts the calls of patient callers, and longest is how long one of them took at most.
	calls   int
	longest time.Duration
}

// restart ends a node as an operator does, starts it, and waits until it keeps up.
func (r *rollRun) restart(ctx context.Context, n *proc.Node) error {
	at := r.l.now()
	if err := n.Stop(); err != nil {
		return fmt.Errorf("node %d: %w, see %s", n.ID, err, n.LogFile())
	}
	if err := r.start(ctx, n); err != nil {
		return err
	}
	r.o.Faults["restart"]++
	if err := r.await(ctx, at, "restart"); err != nil {
		return err
	}
	return r.keepsUp(ctx, n)
}

// keptUp is how many entries a node may be behind that keeps up: others go on while it is asked.
const keptUp = 1000

// keepsUp waits until a node is hardly behind the others.
func (r *clusterRun) keepsUp(ctx context.Context, n *proc.Node) error {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	for {
		own, err := n.Metrics(ctx)
		most := 0.0
		for _, other := range r.c.Nodes {
			if m, err := other.Metrics(ctx); err == nil {
				most = max(most, m["millrace_node_applied_index"])
			}
		}
		if err == nil && own["millrace_node_applied_index"]+keptUp > most {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("node %d does not catch up within %s", n.ID, hangs)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// patience is that of a caller whose calls may not fail: far longer than a node is away.
const patience = 30 * time.Second

// call makes tasks, puts keys and reads them, one call after the other, of which none may fail.
func (r *rollRun) call(ctx context.Context, i int) {
	c, kv := r.m.clients[i], r.m.quiet.KV("patient")
	for n := 0; ctx.Err() == nil; n++ {
		key, value := fmt.Sprintf("p%d", i), strconv.Itoa(n)
		r.patient(ctx, "create", func(ctx context.Context) error {
			_, err := plainJob.Add(ctx, c.Client, value)
			return err
		})
		if !r.patient(ctx, "put", func(ctx context.Context) error {
			_, err := kv.Put(ctx, key, value)
			return err
		}) {
			continue
		}
		r.patient(ctx, "get", func(ctx context.Context) error {
			v, err := kv.Get(ctx, key)
			if err == nil && v.String() != value {
				return fmt.Errorf("key %s reads as %q after %q was acknowledged", key, v.String(), value)
			}
			return err
		})
		pause(ctx, 20*time.Millisecond)
	}
}

// patient makes one call of a patient caller. If it fails, a promise is broken.
func (r *rollRun) patient(ctx context.Context, name string, call func(context.Context) error) (ok bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	begin := time.Now()
	err := call(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.longest = max(r.longest, time.Since(begin))
	if err != nil {
		r.o.fail(fmt.Errorf("%s by a patient caller, after %s: %w", name, time.Since(begin).Round(time.Millisecond), err))
	}
	return err == nil
}
