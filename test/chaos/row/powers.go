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

// CutPowers cuts the power of nodes of a cluster of three n times under a mixed load: of all at one instant, or of one while
// another is paused or cut off, so that what those two had acknowledged must be on the disk of the one.
func CutPowers(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &powersRun{clusterRun: clusterRun{e: e, size: 3, disk: true, rand: rand.New(rand.NewPCG(e.Seed, 4))}}
	o, err := r.run(ctx, true, func(ctx context.Context) error {
		faults := []func(ctx context.Context) error{r.all, r.whileOneIsPaused, r.whileOneIsCutOff}
		first := r.rand.IntN(len(faults)) // so that few faults are of different kinds too
		for i := range n {
			if err := r.slowSyncs(); err != nil {
				return err
			}
			pause(ctx, time.Duration(100+r.rand.IntN(900))*time.Millisecond)
			if err := faults[(first+i)%len(faults)](ctx); err != nil {
				return fmt.Errorf("fault %d: %w", i+1, err)
			}
			r.o.Done++
		}
		return ctx.Err()
	})
	if err == nil && o.Figures["sectors_lost"]+o.Figures["names_lost"] == 0 && o.Invalid == "" {
		o.Invalid = "no power cut took anything"
	}
	return o, err
}

// powersRun is a run in which nodes lose power.
type powersRun struct{ clusterRun }

// slowSyncs makes the syncs of all nodes take a while.
func (r *powersRun) slowSyncs() (err error) {
	for _, n := range r.c.Nodes {
		err = errors.Join(err, n.Disk().Rules(slowSync(r.rand)))
	}
	return err
}

// cutPower cuts the power of nodes at one instant.
func (r *powersRun) cutPower(nodes ...*proc.Node) error {
	var servers []*proc.Server
	for _, n := range nodes {
		servers = append(servers, n.Server)
	}
	return proc.CutPower(func(d *proc.Disk) error { return r.o.lose(d, r.rand.Uint64(), drawShare(r.rand)) }, servers...)
}

// all cuts the power of all nodes, and starts them in any order.
func (r *powersRun) all(ctx context.Context) error {
	at := r.l.now()
	if err := r.cutPower(r.c.Nodes...); err != nil {
		return err
	}
	r.o.Faults["power_cut_of_3"]++
	errs := make([]error, r.size)
	waits := make([]time.Duration, r.size)
	for i := range waits {
		waits[i] = time.Duration(r.rand.IntN(300)) * time.Millisecond
	}
	var wg sync.WaitGroup
	for i, n := range r.c.Nodes {
		wg.Go(func() {
			pause(ctx, waits[i])
			errs[i] = r.start(ctx, n)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.await(ctx, at, "power_cut_of_3")
}

// victims draws one node whose power is cut, and one that is held back meanwhile; the one or the other leads as often as not.
func (r *powersRun) victims(ctx context.Context) (cut, held *proc.Node, err error) {
	lead, err := r.c.Leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	others := r.others(lead.ID)
	other := r.c.Nodes[others[r.rand.IntN(len(others))]-1]
	if r.rand.IntN(2) == 0 {
		return lead, other, nil
	}
	return other, lead, nil
}

// whileOneIsPaused cuts the power of one node while another is paused. The third alone has no
// majority: what is acknowledged meanwhile must be on the disk of the first.
func (r *powersRun) whileOneIsPaused(ctx context.Context) error {
	cut, held, err := r.victims(ctx)
	if err != nil {
		return err
	}
	if err := held.Pause(); err != nil {
		return err
	}
	return errors.Join(r.one(ctx, cut, "power_cut_while_one_is_paused"), held.Resume())
}

// whileOneIsCutOff does the same while another node is cut off from both.
func (r *powersRun) whileOneIsCutOff(ctx context.Context) error {
	cut, held, err := r.victims(ctx)
	if err != nil {
		return err
	}
	r.set(both(held.ID, r.others(held.ID)...), proc.Silence, false)
	defer r.set(nil, proc.Rule{}, false)
	return r.one(ctx, cut, "power_cut_while_one_is_cut_off")
}

// one cuts the power of a node, starts it, and waits until it and the third acknowledge writes.
func (r *powersRun) one(ctx context.Context, n *proc.Node, kind string) error {
	pause(ctx, time.Duration(r.rand.IntN(500))*time.Millisecond)
	at := r.l.now()
	if err := r.cutPower(n); err != nil {
		return err
	}
	r.o.Faults[kind]++
	if err := r.start(ctx, n); err != nil {
		return err
	}
	return r.await(ctx, at, kind)
}
