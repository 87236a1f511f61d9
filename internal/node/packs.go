package node

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/refs"
)

// Hosts says which nodes host a shard, as this node has applied it.
type Hosts struct {
	// Majorities are the sets of nodes of each of which more than half decide: one, or two while members change.
	Majorities [][]uint64
	// All nodes but this one, those included that do not vote.
	Others []uint64
	// The node that leads, as far as this one knows; 0: none.
	Leader uint64
}

// Hosts returns which nodes host a shard.
func (n *Node) Hosts(id core.ShardID) (h Hosts) {
	if int(id) >= len(n.shards) {
		return h
	}
	s, r := n.shards[id], n.who()
	conf := s.view.conf.Load()
	if conf == nil {
		return h
	}
	for _, set := range [][]uint64{conf.Voters, conf.Outgoing} {
		if len(set) == 0 {
			continue
		}
		nodes := make([]uint64, len(set))
		for i, replica := range set {
			nodes[i] = r.nodeOf(replica)
		}
		h.Majorities = append(h.Majorities, nodes)
	}
	for _, replica := range conf.Replicas() {
		if node := r.nodeOf(replica); replica != n.o.Replica && node != n.o.Node && !slices.Contains(h.Others, node) {
			h.Others = append(h.Others, node)
		}
	}
	if lead := s.view.leader.Load(); lead != 0 {
		h.Leader = r.nodeOf(lead)
	}
	return h
}

// ShardNow returns the shard time of a shard that this node leads.
func (n *Node) ShardNow(id core.ShardID) core.ShardTime {
	if int(id) >= len(n.shards) {
		return 0
	}
	return n.shards[id].now()
}

// Applied returns the stamp of the newest entry of a shard that this node has applied: shard time that no entry to come is
// before.
func (n *Node) Applied(id core.ShardID) core.ShardTime {
	if int(id) >= len(n.shards) {
		return 0
	}
	return core.ShardTime(n.shards[id].view.lastSeen.Load())
}

// Packs reads the manifest of a repository as this node has applied it. found is false when nothing of the repository is
// left; one that is deleted and may come back is found.
func (n *Node) Packs(id core.ShardID, p core.Partition, repo core.RepoID) (packs []core.PackLine, found bool, err error) {
	if int(id) >= len(n.shards) {
		return nil, false, core.NotFound{Kind: "shard"}
	}
	err = n.shards[id].store.View(func(v core.View) error {
		packs, found, err = packsOf(v, p, repo)
		return err
	})
	return packs, found, err
}

// ConfirmedPacks is Packs of a state that is at least as new as the call. Errors: those of a linearizable read.
func (n *Node) ConfirmedPacks(ctx context.Context, p core.Partition, repo core.RepoID) (packs []core.PackLine, found bool, err error) {
	_, err = n.read(ctx, p, core.ReadOptions{}, func(v core.View) error {
		packs, found, err = packsOf(v, p, repo)
		return err
	})
	return packs, found, err
}

// packsOf reads a manifest; found is false when nothing of the repository is left.
func packsOf(v core.View, p core.Partition, repo core.RepoID) (packs []core.PackLine, found bool, err error) {
	if _, found, err = refs.FindID(v, p, repo); err != nil || !found {
		return nil, found, err
	}
	packs, err = refs.Packs(v, p, repo)
	return packs, true, err
}

// SwapPacks puts one pack in the place of several in a repository's manifest, at whichever node leads.
func (n *Node) SwapPacks(ctx context.Context, p core.Partition, op *core.PackSwap) core.Fact {
	s, err := n.shardOf(p)
	if err != nil {
		return core.NotFound{Kind: "namespace"}
	}
	var info core.RepoInfo
	err = s.store.View(func(v core.View) (err error) {
		info, _, err = refs.FindID(v, p, op.ID)
		return err
	})
	if err != nil {
		return core.Unavailable{Reason: "store"}
	}
	op.Repo, op.Epoch = info.Name, info.Stats.Epoch
	done := n.Forward(ctx, p, []core.Commit{{Partition: p, Principal: "millrace", Ops: []core.Op{op}}})
	switch {
	case done.Err != nil:
		return done.Err
	case done.Results[0].Refusal != nil:
		return done.Results[0].Refusal.Fact
	}
	return nil
}

// EachRepo calls fn for each repository, deleted ones that may come back included, as this node has applied them. It reads
// a page at a time, so that what changes meanwhile may be seen as it was or as it is.
func (n *Node) EachRepo(ctx context.Context, fn func(shard core.ShardID, p core.Partition, info *core.RepoInfo) error) error {
	return n.eachNamespace(func(_ string, ns core.NamespaceInfo) error {
		for _, at := range ns.Partitions {
			for after := ""; ; {
				if err := ctx.Err(); err != nil {
					return err
				}
				var page []core.RepoInfo
				err := n.shards[at.Shard].store.View(func(v core.View) (err error) {
					page, err = refs.List(v, at.Partition, after, directoryPage)
					return err
				})
				if err != nil {
					return err
				}
				for i := range page {
					if err := fn(at.Shard, at.Partition, &page[i]); err != nil {
						return err
					}
				}
				if len(page) < directoryPage {
					break
				}
				after = page[len(page)-1].Name
			}
			if err := n.eachDeletedRepo(at.Shard, at.Partition, fn); err != nil {
				return err
			}
		}
		return nil
	})
}

// deletedRepos bounds the deleted repositories of one partition that EachRepo shows.
const deletedRepos = 10_000

// eachDeletedRepo calls fn for the deleted repositories of a partition that may come back.
func (n *Node) eachDeletedRepo(shard core.ShardID, p core.Partition, fn func(core.ShardID, core.Partition, *core.RepoInfo) error) error {
	var gone []core.RepoInfo
	err := n.shards[shard].store.View(func(v core.View) (err error) {
		gone, err = refs.Deleted(v, p, deletedRepos)
		return err
	})
	if err != nil {
		return err
	}
	for i := range gone {
		if err := fn(shard, p, &gone[i]); err != nil {
			return err
		}
	}
	return nil
}
