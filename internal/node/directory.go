package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/queue"
)

// shardOf returns the shard of a partition that this node has heard of. NotFound is also what a partition gets whose
// namespace was not looked up here yet.
func (n *Node) shardOf(p core.Partition) (*shard, error) {
	if p == systemPartition {
		return n.shards[0], nil
	}
	n.dirMu.RLock()
	id, ok := n.partitions[p]
	n.dirMu.RUnlock()
	if !ok || int(id) >= len(n.shards) {
		return nil, core.NotFound{Kind: "namespace"}
	}
	return n.shards[id], nil
}

// Namespace finds a namespace of a tenant; with create it makes one that is missing, with one partition.
func (n *Node) Namespace(ctx context.Context, tenant, name string, create bool) (core.NamespaceInfo, error) {
	info, ok := n.cached(nsKey{tenant, name})
	if ok {
		return info, nil
	}
	info, ok, err := n.readNamespace(ctx, tenant, name)
	switch {
	case err != nil || ok:
		return info, err
	case !create:
		return info, core.NotFound{Kind: "namespace", ID: name}
	}
	info, _, err = n.CreateNamespace(ctx, tenant, name, 1)
	if _, made := errors.AsType[core.AlreadyExists](err); made { // just now, by somebody else, with more partitions
		info, _, err = n.readNamespace(ctx, tenant, name)
	}
	return info, err
}

// CreateNamespace makes a namespace with that number of partitions. It reports whether there was one already. Errors:
// AlreadyExists when that has another number of partitions; Invalid, Exhausted.
func (n *Node) CreateNamespace(ctx context.Context, tenant, name string, partitions int) (info core.NamespaceInfo, replayed bool, err error) {
	op := &core.NamespaceCreate{
		Tenant: tenant, Name: name, Partitions: uint16(min(max(partitions, 0), 1<<16-1)), Shards: uint16(len(n.shards)),
		Max: int32(n.o.Namespaces),
	}
	r, err := n.changeDirectory(ctx, op)
	if err != nil {
		return info, false, err
	}
	replayed = r.Replayed
	info, ok, err := n.readNamespace(ctx, tenant, name)
	if err == nil && !ok {
		err = fmt.Errorf("namespace %q was created and is not in the directory", name)
	}
	return info, replayed, withOutcome(err, !replayed)
}

// Namespaces reads a page of a tenant's namespaces by name, after the name given, from this node's copy of the directory.
func (n *Node) Namespaces(tenant, after string, limit int) (list []core.NamespaceInfo, err error) {
	err = n.shards[0].store.View(func(v core.View) error {
		list, err = commit.Namespaces(v, tenant, after, limit)
		return err
	})
	return list, err
}

// changeDirectory proposes an op of the directory to the leader of shard 0.
func (n *Node) changeDirectory(ctx context.Context, op core.Op) (core.OpResult, error) {
	return answerOf(n.Forward(ctx, systemPartition, []core.Commit{{Partition: systemPartition, Principal: "millrace", Ops: []core.Op{op}}}))
}

// answerOf returns the result of a proposal of one commit of one op.
func answerOf(p core.Proposed) (core.OpResult, error) {
	switch {
	case p.Err != nil:
		return core.OpResult{}, p.Err
	case len(p.Results) != 1:
		return core.OpResult{}, fmt.Errorf("%d results of one commit", len(p.Results))
	case p.Results[0].Refusal != nil:
		return core.OpResult{}, p.Results[0].Refusal.Fact
	}
	return p.Results[0].Ops[0], nil
}

// withOutcome says of an error by which a call ended without an answer whether the call may yet be done.
func withOutcome(err error, unknown bool) error {
	if f, ok := errors.AsType[core.Unavailable](err); ok {
		f.Unknown = unknown
		return f
	}
	if f, ok := errors.AsType[core.DeadlineExceeded](err); ok {
		f.Unknown = unknown
		return f
	}
	return err
}

// FindNamespace looks a namespace up in this node's copy of the directory, without waiting for anything.
func (n *Node) FindNamespace(tenant, name string) (info core.NamespaceInfo, ok bool, err error) {
	k := nsKey{tenant, name}
	if info, ok = n.cached(k); ok {
		return info, true, nil
	}
	return n.lookUp(k)
}

// cached returns a namespace that was looked up before and not dropped since.
func (n *Node) cached(k nsKey) (info core.NamespaceInfo, ok bool) {
	n.dirMu.RLock()
	defer n.dirMu.RUnlock()
	info, ok = n.namespaces[k]
	return info, ok
}

// readNamespace looks a namespace up in the directory as it is now.
func (n *Node) readNamespace(ctx context.Context, tenant, name string) (core.NamespaceInfo, bool, error) {
	if err := n.shards[0].barrier(ctx, core.ReadOptions{}); err != nil {
		return core.NamespaceInfo{}, false, err
	}
	return n.lookUp(nsKey{tenant, name})
}

// lookUp reads a namespace from this node's copy of the directory, and caches it. It reads again when something was
// dropped meanwhile.
func (n *Node) lookUp(k nsKey) (info core.NamespaceInfo, ok bool, err error) {
	for {
		n.dirMu.RLock()
		drops := n.dirDrops
		n.dirMu.RUnlock()
		err = n.shards[0].store.View(func(v core.View) error {
			info, ok, err = commit.Namespace(v, k.tenant, k.name)
			return err
		})
		if err != nil || !ok {
			return info, false, err
		}
		if n.keepNamespace(k, info, drops) {
			return info, true, nil
		}
	}
}

// keepNamespace caches a namespace, unless something was dropped since drops were counted: it may have been this one.
func (n *Node) keepNamespace(k nsKey, info core.NamespaceInfo, drops uint64) bool {
	n.dirMu.Lock()
	defer n.dirMu.Unlock()
	if n.dirDrops != drops {
		return false
	}
	n.namespaces[k] = info
	for _, p := range info.Partitions {
		n.partitions[p.Partition] = p.Shard
	}
	return true
}

// Leader tells who leads a partition: this node, which is here, or the one at an address. known is false when this node
// has not heard of any.
func (n *Node) Leader(p core.Partition) (address string, here, known bool) {
	s, err := n.shardOf(p)
	if err != nil {
		return "", false, false
	}
	leader := s.view.leader.Load()
	if leader == n.o.Replica {
		return "", true, s.view.ready.Load()
	}
	if m := n.who().member(leader); m != nil {
		return m.API, false, true
	}
	return "", false, false
}

// Nodes lists the native addresses of all members, this one too; none when this node is alone.
func (n *Node) Nodes() (out []string) {
	r := n.who()
	if len(r.list) < 2 {
		return nil
	}
	for i := range r.list {
		if a := r.list[i].API; a != "" {
			out = append(out, a)
		}
	}
	return out
}

// Moved returns a channel that is closed when the leader of any shard changes, or begins to serve, or the members do.
func (n *Node) Moved() <-chan struct{} { return n.moved.wait() }

// Pinned reports whether this node's replica of a partition has a queue that is pinned. It may lag behind what the leader has.
func (n *Node) Pinned(p core.Partition, name string) bool {
	return n.replicaHas(p, func(m *queue.Machine) bool { return m.Pinned(name) })
}

// Backlog reports whether this node's replica of a partition has ready tasks in one of the queues. It may lag behind what
// the leader has.
func (n *Node) Backlog(p core.Partition, queues []core.GrantQueue) bool {
	return n.replicaHas(p, func(m *queue.Machine) bool {
		return slices.ContainsFunc(queues, func(q core.GrantQueue) bool { return m.ReadyCount(q.Name) > 0 })
	})
}

// replicaHas reports what fn finds in the queues of this node's replica of a partition; false where there are none.
func (n *Node) replicaHas(p core.Partition, fn func(m *queue.Machine) bool) bool {
	s, err := n.shardOf(p)
	if err != nil {
		return false
	}
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	m := s.applier.machine.Queue(p)
	return m != nil && fn(m)
}
