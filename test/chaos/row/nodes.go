package row

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

// KillNodes kills nodes of a cluster n times under a mixed load: any one of them, which may be the leader, two, so that
// no majority is left, or all at once.
func KillNodes(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &clusterRun{e: e, size: 3, rand: rand.New(rand.NewPCG(e.Seed, 12))}
	return r.run(ctx, false, func(ctx context.Context) error {
		first := r.rand.IntN(r.size) // so that few faults are of different kinds too
		for i := range n {
			pause(ctx, time.Duration(50+r.rand.IntN(750))*time.Millisecond)
			if err := r.killSome(ctx, 1+(first+i)%r.size); err != nil {
				return fmt.Errorf("fault %d: %w", i+1, err)
			}
			r.o.Done++
		}
		return ctx.Err()
	})
}

// killSome kills count nodes at one instant, or as near to one as it gets, and starts each a little later, without waiting for
// the others.
func (r *clusterRun) killSome(ctx context.Context, count int) error {
	var victims []*proc.Node
	for _, i := range r.rand.Perm(r.size)[:count] {
		victims = append(victims, r.c.Nodes[i])
	}
	at := r.l.now()
	errs := make([]error, count)
	// each calls f for all victims at once.
	each := func(f func(n *proc.Node) error) error {
		var wg sync.WaitGroup
		for i, n := range victims {
			wg.Go(func() { errs[i] = f(n) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	err := each(func(n *proc.Node) error {
		if n.Ended() || !n.Kill() {
			return fmt.Errorf("node %d ended by itself, see %s", n.ID, n.LogFile())
		}
		return nil
	})
	if err != nil {
		return err
	}
	kind := fmt.Sprintf("kill_of_%d", count)
	r.o.Faults[kind]++
	pause(ctx, time.Duration(r.rand.IntN(600))*time.Millisecond)
	if err := each(func(n *proc.Node) error { return r.start(ctx, n) }); err != nil {
		return err
	}
	return r.await(ctx, at, kind)
}
