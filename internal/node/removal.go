package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
)

const (
	// removalTime bounds how long one call goes on with a removal. What it leaves is for the leader of shard 0.
	removalTime = 20 * time.Second
	// removalWidth is how many partitions of a namespace are told of a step at once.
	removalWidth = 16
)

// errOvertaken ends a removal with which another one goes on.
var errOvertaken = core.Unavailable{Reason: "removal_overtaken", Unknown: true}

// removedFact refuses calls for a partition whose namespace was removed. A caller that asks again finds the namespace as it is then.
var removedFact = core.Unavailable{Reason: "namespace_removed"}

// RemoveNamespace removes a namespace that holds nothing that a user would miss, and reports whether there was one. Errors:
// NotEmpty, which changes nothing; Unavailable and DeadlineExceeded: it may yet be removed, if it is empty.
func (n *Node) RemoveNamespace(ctx context.Context, tenant, name string) (existed bool, err error) {
	existed, err = n.remover().remove(ctx, tenant, name, 0)
	if err != nil {
		return false, err
	}
	// A caller that makes a namespace of that name next at this node must not find the removed one.
	return existed, n.shards[0].barrier(ctx, core.ReadOptions{})
}

// remover returns what takes removals on through this node.
func (n *Node) remover() remover {
	return remover{directory: func(ctx context.Context, op *core.NamespaceRemove) (core.OpResult, error) {
		return n.changeDirectory(ctx, op)
	}, partition: n.stepPartition, find: n.findRemoval}
}

// remover takes removals from step to step. Its steps go to the leaders of the directory and of the partitions, and may be lost,
// late, or applied without an answer.
type remover struct {
	// Proposes a step in the directory, and returns its result.
	directory func(ctx context.Context, op *core.NamespaceRemove) (core.OpResult, error)
	// Proposes a step in one partition, and returns when it is applied.
	partition func(ctx context.Context, p core.PartitionInfo, op *core.PartitionRemove) error
	// find reads the mark of a removal as the directory has it now.
	find func(ctx context.Context, t core.TenantID, ns core.NamespaceID) (commit.Removal, bool, error)
}

// remove begins a removal, or takes one over, and goes on with it. only is the number of the namespace, 0 = any.
func (m remover) remove(ctx context.Context, tenant, name string, only core.NamespaceID) (existed bool, err error) {
	op := &core.NamespaceRemove{Step: core.RemovalBegin, Tenant: tenant, Name: name, Namespace: only}
	began, err := m.directory(ctx, op)
	if err != nil || !began.Existed {
		return false, err
	}
	// A caller that leaves does not leave the namespace half closed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTime)
	defer cancel()
	r, ok, err := m.find(ctx, began.Tenant, began.Namespace)
	switch {
	case err != nil:
		return false, withOutcome(err, true)
	case !ok || r.ID != began.Version:
		return false, errOvertaken
	}
	if err := m.finish(ctx, r); err != nil {
		return false, err
	}
	return true, nil
}

// finish closes the partitions of a marked namespace, takes it out of the directory, and clears them. Where one holds something
// all are opened again, also those that were not closed: each has to know this removal's number before the mark goes, so that a
// step of an earlier one, which may still come, is refused.
func (m remover) finish(ctx context.Context, r commit.Removal) error {
	if !r.Finished {
		if err := m.each(ctx, r, core.PartitionClose); err != nil {
			held, isHeld := errors.AsType[core.NotEmpty](err)
			if !isHeld {
				return withOutcome(err, true)
			}
			if m.each(ctx, r, core.PartitionOpen) == nil {
				_ = m.mark(ctx, r, core.RemovalAbort) // else the leader of shard 0 takes it back
			}
			return held
		}
		if err := m.mark(ctx, r, core.RemovalFinish); err != nil {
			return withOutcome(err, true)
		}
	}
	if m.each(ctx, r, core.PartitionClear) == nil {
		_ = m.mark(ctx, r, core.RemovalForget) // else the leader of shard 0 clears the rest
	}
	return nil
}

// mark takes the mark of a removal a step on.
func (m remover) mark(ctx context.Context, r commit.Removal, step core.NamespaceStep) error {
	_, err := m.directory(ctx, &core.NamespaceRemove{
		Step: step, Tenant: r.Space.TenantName, Name: r.Space.Name, Namespace: r.Space.Namespace, ID: r.ID,
	})
	return err
}

// each tells all partitions of a step, some at a time, until one refuses. That one holds something comes before other reasons.
func (m remover) each(ctx context.Context, r commit.Removal, step core.PartitionStep) error {
	for some := range slices.Chunk(r.Space.Partitions, removalWidth) {
		ends := make([]error, len(some))
		var told sync.WaitGroup
		for i, p := range some {
			told.Go(func() { ends[i] = m.partition(ctx, p, &core.PartitionRemove{Step: step, ID: r.ID}) })
		}
		told.Wait()
		at := slices.IndexFunc(ends, func(err error) bool { _, held := errors.AsType[core.NotEmpty](err); return held })
		if at < 0 {
			at = slices.IndexFunc(ends, func(err error) bool { return err != nil })
		}
		if at >= 0 {
			return ends[at]
		}
	}
	return nil
}

// stepPartition uses the shard in the mark, because a namespace that has left the directory can no longer be looked up.
func (n *Node) stepPartition(ctx context.Context, p core.PartitionInfo, op *core.PartitionRemove) error {
	if int(p.Shard) >= len(n.shards) {
		return fmt.Errorf("partition %s is of shard %d, of %d", p.Partition, p.Shard, len(n.shards))
	}
	commits := []core.Commit{{Partition: p.Partition, Principal: "millrace", Ops: []core.Op{op}}}
	_, err := answerOf(n.forwardTo(ctx, n.shards[p.Shard], p.Partition, commits))
	return err
}

// findRemoval reads the mark of a removal, as new as the call.
func (n *Node) findRemoval(ctx context.Context, t core.TenantID, ns core.NamespaceID) (r commit.Removal, ok bool, err error) {
	if err := n.shards[0].barrier(ctx, core.ReadOptions{}); err != nil {
		return r, false, err
	}
	err = n.shards[0].store.View(func(v core.View) error {
		r, ok, err = commit.FindRemoval(v, t, ns)
		return err
	})
	return r, ok, err
}

// removals is what the leader of shard 0 knows of removals that are under way. The upkeep goroutine owns all but busy.
type removals struct {
	// Where each removal stood at the last look; empty while this node does not lead shard 0.
	seen map[nsNumber]sighting
	// A goroutine runs resume: there is one at a time.
	busy atomic.Bool
}

// nsNumber names a namespace by number: its name may be given to another one meanwhile.
type nsNumber struct {
	tenant    core.TenantID
	namespace core.NamespaceID
}

// sighting is since when a removal has stood where it stands, by the boot clock.
type sighting struct {
	// Number of the removal, and whether the directory has let the namespace go.
	id       uint64
	finished bool
	// Boot time at which it was first seen so.
	since time.Duration
}

// tendRemovals goes on with a removal whose node has left it: one that stands still for a while.
func (n *Node) tendRemovals(now time.Duration) error {
	q := &n.removals
	if n.o.Manual || !n.shards[0].view.ready.Load() {
		q.seen = nil
		return nil
	}
	var all []commit.Removal
	err := n.shards[0].store.View(func(v core.View) (err error) {
		all, err = commit.Removals(v)
		return err
	})
	if err != nil {
		return err
	}
	seen := make(map[nsNumber]sighting, len(all))
	for _, r := range all {
		k := nsNumber{r.Space.Tenant, r.Space.Namespace}
		s := q.seen[k]
		if s.id != r.ID || s.finished != r.Finished {
			s = sighting{r.ID, r.Finished, now}
		}
		if now-s.since >= n.o.RemovalWait && q.busy.CompareAndSwap(false, true) {
			s.since = now
			n.upkeep.Go(func() {
				defer q.busy.Store(false)
				n.resume(r)
			})
		}
		seen[k] = s
	}
	q.seen = seen
	return nil
}

// resume goes on with a removal that was left, under another number unless only its partitions are to be cleared.
func (n *Node) resume(r commit.Removal) {
	ctx, cancel := context.WithTimeout(context.Background(), removalTime)
	defer cancel()
	var err error
	if r.Finished {
		err = n.remover().finish(ctx, r)
	} else {
		_, err = n.remover().remove(ctx, r.Space.TenantName, r.Space.Name, r.Space.Namespace)
	}
	n.o.Logger.Info("removal of a namespace that was left half done", "tenant", r.Space.TenantName, "namespace", r.Space.Name, "finished", r.Finished, "error", err)
}

// namespaceObserver drops namespaces that left the directory from this node's cache of it, before a caller can wait for the entry.
func (n *Node) namespaceObserver() observer {
	return observer{name: "namespaces", before: func(a *appliedEntry) error {
		for _, e := range a.Events {
			if gone, ok := e.(*core.NamespaceGone); ok {
				n.dropNamespace(&gone.NamespaceInfo)
			}
		}
		return nil
	}}
}

// dropNamespace drops a namespace that left the directory from the cache.
func (n *Node) dropNamespace(gone *core.NamespaceInfo) {
	n.dirMu.Lock()
	defer n.dirMu.Unlock()
	n.dirDrops++
	n.forgetNamespace(gone)
}

// forgetNamespace drops one, unless its name stands for another one. The mutex is held.
func (n *Node) forgetNamespace(gone *core.NamespaceInfo) {
	if k := (nsKey{gone.TenantName, gone.Name}); n.namespaces[k].Namespace == gone.Namespace {
		delete(n.namespaces, k)
	}
	for _, p := range gone.Partitions {
		delete(n.partitions, p.Partition)
	}
}

// recheckNamespaces drops what is cached of namespaces that a state which came as a snapshot does not have.
func (n *Node) recheckNamespaces() error {
	n.dirMu.Lock()
	defer n.dirMu.Unlock()
	n.dirDrops++
	return n.shards[0].store.View(func(v core.View) error {
		for k, had := range n.namespaces {
			now, ok, err := commit.Namespace(v, k.tenant, k.name)
			if err != nil {
				return err
			}
			if !ok || now.Namespace != had.Namespace {
				n.forgetNamespace(&had)
			}
		}
		return nil
	})
}
