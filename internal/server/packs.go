package server

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/transport"
)

// packsKind is the kind of the streams on which nodes fetch packs from each other.
const packsKind = "packs"

// packPeers returns the other nodes as the area of packs reaches them; nil on a single-node server.
func (r *Running) packPeers() gitobj.Peers {
	if r.peers == nil {
		return nil
	}
	return packPeers{r.node, r.peers, r.o.Cluster.Node}
}

// packPeers opens streams to other nodes, and knows which nodes host a shard.
type packPeers struct {
	n    *node.Node
	net  *transport.Transport
	self uint64
}

// Self is the number of this node.
func (p packPeers) Self() uint64 { return p.self }

// Hosts lists the nodes that have a replica of a shard.
func (p packPeers) Hosts(shard core.ShardID) gitobj.Hosts { return gitobj.Hosts(p.n.Hosts(shard)) }

// Open opens a stream to another node, by which it hands over packs.
func (p packPeers) Open(ctx context.Context, node uint64) (gitobj.Conn, error) {
	return p.net.OpenStream(ctx, transport.NodeID(node), packsKind)
}
