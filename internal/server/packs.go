package server

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/transport"
)

// packsKind is the kind of the streams on which nodes give each other packs.
const packsKind = "packs"

// packPeers are the other nodes for the packs of repositories: streams of the transport. nil: this server is by itself.
func (r *Running) packPeers() gitobj.Peers {
	if r.peers == nil {
		return nil
	}
	return packPeers{r.node, r.peers, r.o.Cluster.Node}
}

type packPeers struct {
	n    *node.Node
	net  *transport.Transport
	self uint64
}

func (p packPeers) Self() uint64 { return p.self }

func (p packPeers) Hosts(shard core.ShardID) gitobj.Hosts { return gitobj.Hosts(p.n.Hosts(shard)) }

func (p packPeers) Open(ctx context.Context, node uint64) (gitobj.Conn, error) {
	return p.net.OpenStream(ctx, transport.NodeID(node), packsKind)
}
