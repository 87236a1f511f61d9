package row

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

// Kinds of ways in which an operator takes a leader from a node.
const (
	kindTransfer = "transfer"
	kindDrain    = "drain"
)

// drainsWithin is how long a node may take to lead nothing any more.
const drainsWithin = 5 * time.Second

// MoveLeaders has an operator hand leaders over under a mixed load, in n rounds: a shard goes to another node, a node is drained
// and comes back, all shards go home. Nothing is lost, and no call of a patient caller fails.
func MoveLeaders(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &rollRun{clusterRun: clusterRun{e: e, size: 3, rand: rand.New(rand.NewPCG(e.Seed, 241))}}
	o, err := r.rounds(ctx, n, func(ctx context.Context) error {
		if err := r.transfer(ctx); err != nil {
			return err
		}
		if err := r.drainNode(ctx, r.c.Nodes[r.rand.IntN(len(r.c.Nodes))]); err != nil {
			return err
		}
		var before any
		return r.operate(ctx, r.c.Nodes[r.rand.IntN(len(r.c.Nodes))], &before, "balance")
	})
	if err == nil {
		r.moved.tell(o, "gap")
	}
	return o, err
}

// clusterLeaders is what a row needs of the status of a cluster.
type clusterLeaders struct {
	Shards []struct {
		Shard  int    `json:"shard"`
		Leader uint64 `json:"leader"`
	} `json:"shards"`
}

// operatorWaits is how long an operator who is told that something is not there now asks again.
const operatorWaits = 10 * time.Second

// operate is Operate, again and again while the answer is that something is unavailable: on a busy machine a leader may be
// lost without a hand in it, and an operator who is told so tries once more.
func (r *rollRun) operate(ctx context.Context, n *proc.Node, out any, args ...string) error {
	for begin := time.Now(); ; {
		err := n.Operate(ctx, out, args...)
		if !proc.IsUnavailable(err) || ctx.Err() != nil || time.Since(begin) > operatorWaits {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// transfer hands one shard over, from its leader to another node.
func (r *rollRun) transfer(ctx context.Context) error {
	var s clusterLeaders
	if err := r.operate(ctx, r.c.Nodes[0], &s, "status"); err != nil {
		return err
	}
	if len(s.Shards) == 0 {
		return fmt.Errorf("the status names no shard")
	}
	shard := s.Shards[r.rand.IntN(len(s.Shards))]
	others := slices.DeleteFunc(slices.Clone(r.c.Nodes), func(n *proc.Node) bool { return uint64(n.ID) == shard.Leader })
	to := others[r.rand.IntN(len(others))]
	at := r.l.now()
	var done any
	if err := r.operate(ctx, to, &done, "transfer", "--shard", strconv.Itoa(shard.Shard), "--to", fmt.Sprint(to.ID)); err != nil {
		return err
	}
	r.o.Faults[kindTransfer]++
	return r.gap(ctx, at, kindTransfer)
}

// gap notes the longest time between two acknowledged writes since an operator began to take a leader away.
func (r *rollRun) gap(ctx context.Context, since int64, kind string) error {
	pause(ctx, time.Duration(300+r.rand.IntN(300))*time.Millisecond)
	if err := r.await(ctx, r.l.now(), kind); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved.add(kind, r.l.longestGap(since))
	return nil
}

// drainNode has a node lead nothing, and then lead again. It notes how long that took; more than
// drainsWithin breaks a promise.
func (r *rollRun) drainNode(ctx context.Context, n *proc.Node) error {
	at, begin := r.l.now(), time.Now()
	var done any
	if err := r.operate(ctx, n, &done, "drain", fmt.Sprint(n.ID)); err != nil {
		return err
	}
	took := time.Since(begin)
	if took > drainsWithin {
		r.o.fail(fmt.Errorf("node %d leads nothing only after %s", n.ID, took.Round(time.Millisecond)))
	}
	r.o.Figures["drains_s"] = max(r.o.Figures["drains_s"], took.Seconds())
	r.o.Faults[kindDrain]++
	if err := r.gap(ctx, at, kindDrain); err != nil {
		return err
	}
	return r.operate(ctx, n, &done, "drain", fmt.Sprint(n.ID), "--undo")
}
