package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/transport"
)

// peers gives the node's messages to the transport.
type peers struct{ net *transport.Transport }

// Reaches reports whether there is a connection to a node.
func (p peers) Reaches(to uint64) bool { return p.net.Reaches(transport.NodeID(to)) }

// Send queues a message for a node. It returns false if the message was dropped; the replicated log
// sends again what matters.
func (p peers) Send(to uint64, shard core.ShardID, class node.Class, msg []byte) bool {
	return p.net.Send(transport.NodeID(to), classes[class], shard, msg)
}

// classes maps the node's classes of messages to the transport's.
var classes = [...]transport.Class{node.Control: transport.Control, node.Bulk: transport.Bulk, node.Parts: transport.Parts}

// openPeers starts the transport with the members that this node knows. own is what the data
// directory remembers; bound says that it remembered anything. Until the node runs, messages are
// dropped and only nodes that look for their place are answered.
//
// A new directory has no replica id yet, so it greets others without one: under its old id it must
// not speak, as that replica may have voted.
func (r *Running) openPeers(fs env.FS, own Member, bound bool) error {
	c := &r.o.Cluster
	r.asks = &coordinator{o: &r.o, server: r}
	if !c.Enabled() {
		return nil
	}
	id, err := c.ClusterID()
	if err != nil {
		return err
	}
	t := transport.Options{
		Cluster: id, Node: transport.NodeID(c.Node), Listen: c.Listen, Plain: c.Plain, Clock: r.o.Clock, Net: r.o.Net,
		Rand: r.o.Rand, FS: fs, Logger: r.o.Logger,
		Formats: transport.Formats{Min: 1, Max: uint32(core.NewestFormat())}, Shards: r.o.Shards,
		QueueBytes: int(r.o.memory().PeerBulk), ControlQueueBytes: int(r.o.memory().PeerControl),
		PartsQueueBytes: int(r.o.memory().PeerParts),
		Handshakes:      int(r.o.descriptors.Handshakes), Streams: int(r.o.descriptors.Streams), Forwards: int(r.o.descriptors.Forwards),
		Gone: r.gone, OnRemoved: r.refusedAsRemoved,
		OnUnknown: r.asks.unknownTo,
	}
	if bound { // a node without its data greets without a replica
		t.Replica = own.replica()
	}
	if !c.Plain {
		t.TLS = &transport.Files{CA: c.CA, Cert: c.Cert, Key: c.Key}
	}
	if r.peers, err = transport.New(t); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	for _, m := range r.o.startMembers(own) {
		if m.Node == c.Node {
			continue
		}
		if err := r.peers.SetPeer(transport.NodeID(m.Node), known(m.Peer)); err != nil {
			return fmt.Errorf("peers: node %d: %w", m.Node, err)
		}
	}
	r.asks.peers = r.peers
	r.peers.HandleStream(askKind, r.asks.serve)
	r.peers.HandleOpen(placeKind, r.asks.servePlace)
	r.peers.HandleOpen(membersKind, r.asks.takeMembers)
	r.peers.HandleOpen(announceKind, r.asks.serveAnnouncement)
	err = r.peers.Start(func(from transport.NodeID, shard core.ShardID, msg []byte) {
		if n := r.running.Load(); n != nil {
			n.Receive(uint64(from), shard, msg)
		}
	})
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return nil
}

// webOf returns the base URL of the REST edge of the node whose gRPC address is api; empty if it
// has none. Either all nodes of a cluster use TLS for clients or none does, so this node's own
// setting decides the scheme.
func (r *Running) webOf(api string) string {
	for _, p := range r.node.Members().Members {
		switch {
		case p.API != api || !hasREST(p.HTTP):
		case r.o.TLSCert != "":
			return "https://" + p.HTTP
		default:
			return "http://" + p.HTTP
		}
	}
	return ""
}

// handOverWait is how long a server that stops waits for other nodes to lead its shards. A handover
// takes milliseconds, so this allows several tries. A shard that no node has taken by then gets a
// leader by an election.
const handOverWait = 3 * time.Second

// handOver makes other nodes lead what this node leads, so that clients do not wait for an
// election.
func (r *Running) handOver() {
	if r.node == nil || r.peers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverWait)
	defer cancel()
	if stayed := r.node.HandOver(ctx); stayed > 0 {
		r.o.Logger.Warn("stopping without a successor: no other node can lead now", "shards", stayed)
	}
}

// clusterStatus serves the status of the cluster as this node sees it.
func (a *admin) clusterStatus(w http.ResponseWriter, r *http.Request) {
	p := a.parts.Load()
	if p == nil {
		plain(w, http.StatusServiceUnavailable, a.unready())
		return
	}
	asJSON(w, p.asks.status(r.Context()))
}

// clusterTransfer serves a transfer of one shard's leadership. A request that can never succeed is
// 400, one that may succeed later is 503.
func (a *admin) clusterTransfer(w http.ResponseWriter, r *http.Request) {
	p := a.parts.Load()
	if p == nil {
		plain(w, http.StatusServiceUnavailable, a.unready())
		return
	}
	shard, err := strconv.ParseUint(r.URL.Query().Get("shard"), 10, 16)
	if err != nil {
		plain(w, http.StatusBadRequest, "shard: the number of a shard is wanted")
		return
	}
	to, err := strconv.ParseUint(r.URL.Query().Get("to"), 10, 64)
	if err != nil {
		plain(w, http.StatusBadRequest, "to: the id of a node is wanted")
		return
	}
	err = p.asks.transfer(r.Context(), core.ShardID(shard), to)
	if f, ok := errors.AsType[refusal](err); ok && f.wrong {
		plain(w, http.StatusBadRequest, err.Error())
		return
	}
	if err != nil {
		plain(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	asJSON(w, map[string]uint64{"shard": shard, "leader": to})
}
