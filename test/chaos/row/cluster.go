package row

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/check/checktest"
	"github.com/millrace/millrace/test/chaos/proc"
)

// clusterRun is one run of a row on a cluster: the mixed load of two tenants and the registers, on all nodes, while faults
// are made.
type clusterRun struct {
	e Env
	// rand draws the faults.
	rand *rand.Rand
	// size is the number of nodes.
	size int
	// from is how many of them the cluster begins with; 0 means all.
	from int
	// disk gives each node a disk of its own, which can lose power.
	disk bool
	// much says that too much is written to be replayed: the nodes are only compared.
	much bool
	// o is what the run did and found.
	o *Outcome
	c many
	// m and b are the loads of the first tenant and of its neighbour, and l the one of registers.
	m *mixed
	b *neighbour
	l *linear

	// later waits for figures that come late: see await.
	later sync.WaitGroup

	// isolations are the times in which a node was cut off.
	isolations []isolation

	mu sync.Mutex // guards the fields below
	// gaps are the times without acknowledged writes after faults.
	gaps gaps
	// ready is how long restarts took.
	ready []time.Duration
}

// run makes a cluster, loads it, makes faults, and judges. proxy puts a proxy on each link between nodes. An
// error means that the run could not be made or read back; that of faults is among those of the outcome.
func (r *clusterRun) run(ctx context.Context, proxy bool, faults func(context.Context) error) (*Outcome, error) {
	r.o = newOutcome()
	opts := proc.ClusterOptions{Nodes: r.size, Proxy: proxy, Begin: r.from}
	if r.disk {
		opts.Disk = r.e.Disk
	}
	var err error
	if r.c, err = r.e.clusterOf(ctx, opts, "default", "neighbour"); err != nil {
		return nil, err
	}
	defer r.c.Close() //nolint:errcheck // what matters was stopped in order
	if err := r.dial(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = errors.Join(r.m.quiet.close(), r.b.quiet.close()) }() // the audit has read all it wants
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var registers sync.WaitGroup
	registers.Go(func() { r.l.load(loading) })
	underLoad(ctx, r.c, r.o, r.m, r.b, func(ctx context.Context) error {
		err := faults(ctx)
		r.later.Wait()
		if !r.e.Brief {
			r.l.wholeWindow(ctx)
		}
		pause(ctx, 300*time.Millisecond) // of reads at what has just come back
		stop()
		registers.Wait()
		return errors.Join(err, r.l.close())
	})
	r.gaps.cluster.tell(r.o, "next_ok")
	r.gaps.clients.tell(r.o, "client_ok")
	if len(r.ready) > 0 {
		r.o.Figures["ready_p50_s"], r.o.Figures["ready_p99_s"] = percentile(r.ready, 50), percentile(r.ready, 99)
	}
	return r.o, r.judge(ctx)
}

// dial makes the clients of all three loads.
func (r *clusterRun) dial(ctx context.Context) (err error) {
	if r.m, err = newMixed(ctx, r.e, r.c, r.c.Tokens[0], kinds...); err != nil {
		return err
	}
	if r.b, err = newNeighbour(ctx, r.e, r.c, r.c.Tokens[1]); err != nil {
		return err
	}
	r.l, err = newLinear(ctx, r.e, r.c, r.c.Tokens[0])
	return err
}

// judge reads everything back, stops the cluster in order, and judges what its nodes have stored.
func (r *clusterRun) judge(ctx context.Context) error {
	r.l.audit(r.o)
	if len(r.isolations) > 0 {
		r.o.judge(r.answeredAlone())
	}
	if !r.c.up() {
		return nil // it does not serve any more: that is among the errors
	}
	if err := errors.Join(r.m.audit(ctx, r.o), r.b.audit(ctx, r.o)); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if r.much {
		return r.compare(ctx)
	}
	calls, err := r.calls()
	if err != nil {
		return err
	}
	return stopAndJudge(ctx, r.c, r.o, calls, r.m.completed)
}

// compare stops the nodes, checks their files, and compares the apply hashes of those that have
// applied the same entry. It is for runs whose logs are too long to be replayed.
func (r *clusterRun) compare(ctx context.Context) error {
	r.o.fail(r.c.Settle(ctx))
	if err := r.c.Stop(); err != nil {
		r.o.fail(fmt.Errorf("at the end: %w", err))
		return nil
	}
	// hashes is the apply hash by the index of the last entry that a node applied.
	hashes := map[uint64]uint64{}
	for _, n := range r.c.Members() {
		h, err := n.Health(ctx)
		if err != nil {
			r.o.fail(fmt.Errorf("node %d: %w", n.ID, err))
			continue
		}
		if other, ok := hashes[h.Applied]; ok && other != h.Hash {
			r.o.fail(fmt.Errorf("node %d differs from another at entry %d: apply hash %016x and %016x", n.ID, h.Applied, h.Hash, other))
		}
		hashes[h.Applied] = h.Hash
	}
	r.o.Figures["compared_at"] = float64(len(hashes))
	return nil
}

// calls returns the calls of both tenants.
func (r *clusterRun) calls() ([]check.Call, error) {
	own, err := r.m.calls()
	if err != nil {
		return nil, err
	}
	others, err := r.b.calls()
	return append(own, others...), err
}

// stopAndJudge stops the nodes of a cluster, all with the same entries applied unless a new leader comes in between, checks
// their files, and replays the log: replicas agree, and the state is what the log leads to.
func stopAndJudge(ctx context.Context, c many, o *Outcome, calls []check.Call, effects []string) error {
	o.fail(c.Settle(ctx))
	if err := c.Stop(); err != nil {
		o.fail(fmt.Errorf("at the end: %w", err))
		return nil
	}
	replicas, log, err := readReplicas(ctx, c, o)
	if err != nil || log == nil {
		return err
	}
	// The first replica has applied most: all of the log leads to what its store has.
	most := replicas[0]
	r, err := auditEntries(log, most.node.DataDir(), o, calls, effects)
	if err != nil {
		return fmt.Errorf("audit the log: %w", err)
	}
	if r != nil {
		all := make([]checktest.Replica, len(replicas))
		for i := range replicas {
			all[i] = replicas[i].Replica
		}
		o.judge(checktest.Replicas(all, r))
	}
	return nil
}

// replica is what a node that was stopped has of shard 0.
type replica struct {
	checktest.Replica
	node *proc.Node
	// part is what its log, its archive and its snapshots have.
	part *checktest.Part
}

// readReplicas reads what the nodes of a stopped cluster have, the one that applied most first, and what all of it makes of
// the log up to there. Without a log what is wrong is among the errors.
func readReplicas(ctx context.Context, c many, o *Outcome) (all []replica, log []checktest.LogEntry, err error) {
	for _, n := range c.Members() {
		health, err := n.Health(ctx)
		if err != nil {
			o.fail(fmt.Errorf("node %d: %w", n.ID, err))
			return nil, nil, nil
		}
		part, err := checktest.ReadPart(0, n.Archive(), filepath.Join(n.DataDir(), "wal"))
		if err != nil {
			return nil, nil, fmt.Errorf("node %d: %w", n.ID, err)
		}
		if len(part.Snapshots) > 0 {
			o.Faults["snapshot"] += len(part.Snapshots)
		}
		all = append(all, replica{checktest.Replica{
			Node: fmt.Sprint("node ", n.ID), Log: part.Log, Begun: part.Begun(), Applied: health.Applied, Hash: health.Hash,
		}, n, part})
	}
	slices.SortStableFunc(all, func(a, b replica) int { return cmp.Compare(b.Applied, a.Applied) })
	parts, applied := make([]*checktest.Part, len(all)), make([]uint64, len(all))
	for i := range all {
		parts[i], applied[i] = all[i].part, all[i].Applied
	}
	// What was lost with a disk is not the state of a node, but part of the history.
	for _, n := range c.Nodes {
		for _, lost := range n.Lost {
			part, err := checktest.ReadPart(0, lost.Archive, lost.WAL)
			if err != nil {
				return nil, nil, fmt.Errorf("node %d, before it lost its disk: %w", n.ID, err)
			}
			parts, applied = append(parts, part), append(applied, part.Known)
		}
	}
	if log, err = checktest.History(parts, applied, applied[0]); err != nil {
		return nil, nil, fmt.Errorf("the history of shard 0: %w", err)
	}
	return all, log, nil
}
