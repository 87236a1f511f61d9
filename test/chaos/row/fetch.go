package row

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

const (
	// fetchBytes is what each node has before one loses its disk. In brief runs it is a sixteenth.
	fetchBytes = 1 << 30
	// fetchValue is the size of a key's value and of a task's payload, in bytes.
	fetchValue = 4 << 10
	// fetchMakers is how many goroutines write.
	fetchMakers = 64
	// One item in fetchTasks is a task, the others are keys.
	fetchTasks = 16
	// fetchAim is how long a node may take to come back; ten times that fails.
	fetchAim = time.Minute
)

// CatchUp has a node of three lose its disk n times when each node has 1 GiB, under a mixed load. It comes back by itself as
// another replica and fetches the state from the leader while the others serve; in the end all nodes have the same.
func CatchUp(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &fetchRun{memberRun: memberRun{clusterRun: clusterRun{e: e, size: 3, from: 3, much: true, rand: rand.New(rand.NewPCG(e.Seed, 17))}}}
	return r.run(ctx, false, func(ctx context.Context) error {
		if err := r.fill(ctx); err != nil {
			return err
		}
		for i := range n {
			if err := r.wipe(ctx, r.c.Nodes[r.rand.IntN(len(r.c.Nodes))]); err != nil {
				return fmt.Errorf("fetch %d: %w", i+1, err)
			}
			r.o.Done++
		}
		return ctx.Err()
	})
}

// fetchRun is a run whose nodes fetch all of their state.
type fetchRun struct{ memberRun }

// fill writes keys and makes tasks that no worker takes, until each node has about fetchBytes. The
// first call that fails ends it.
func (r *fetchRun) fill(ctx context.Context) error {
	size := fetchBytes
	if r.e.Brief {
		size /= 16
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	job, kv := job[string](kindBacklog), r.m.quiet.KV("state")
	// next is the item that was taken last.
	var next atomic.Int64
	var makers sync.WaitGroup
	for i := range fetchMakers {
		makers.Go(func() {
			value := payloads(r.e.Seed, uint64(i), fetchValue)
			for n := next.Add(1); n <= int64(size/fetchValue) && ctx.Err() == nil; n = next.Add(1) {
				call, done := context.WithTimeout(ctx, patience)
				var err error
				if n%fetchTasks == 0 {
					_, err = job.Add(call, r.m.quiet.Client, value())
				} else {
					_, err = kv.Put(call, strconv.FormatInt(n, 10), value())
				}
				done()
				if err != nil {
					cancel(fmt.Errorf("fill the nodes: %w", err))
				}
			}
		})
	}
	makers.Wait()
	r.o.Figures["state_mib"] = float64(size >> 20)
	return context.Cause(ctx)
}

// wipe has a node lose its disk, and waits until it is a member again that keeps up. It notes how
// long that took and what was sent. Where the node needed no snapshot, the run proves nothing.
func (r *fetchRun) wipe(ctx context.Context, n *proc.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 10*fetchAim)
	defer cancel()
	begin := time.Now()
	if err := r.loseDisk(ctx, n); err != nil {
		return err
	}
	if err := r.keepsUp(ctx, n); err != nil {
		return err
	}
	r.o.Figures["fetch_s"] = max(r.o.Figures["fetch_s"], time.Since(begin).Seconds())
	m, err := n.Metrics(ctx)
	if err == nil && m["millrace_node_snapshots_installed_total"] == 0 {
		r.o.Invalid = fmt.Sprintf("node %d came back without a snapshot", n.ID)
	}
	sent := 0.0
	for _, other := range r.c.Nodes {
		if m, err := other.Metrics(ctx); err == nil {
			sent += m["millrace_node_snapshot_sent_bytes_total"]
		}
	}
	r.o.Figures["sent_mib"] = sent / (1 << 20)
	return err
}
