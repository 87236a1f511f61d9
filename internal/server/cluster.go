package server

import (
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/transport"
)

// peers gives a node's messages to the transport.
type peers struct{ net *transport.Transport }

// Send queues a message, or drops it.
func (p peers) Send(to uint64, shard core.ShardID, bulk bool, msg []byte) bool {
	class := transport.Control
	if bulk {
		class = transport.Bulk
	}
	return p.net.Send(transport.NodeID(to), class, shard, msg)
}

// openPeers makes the transport of a node of a cluster, and tells the node of its peers. Nothing is sent or taken yet.
func (r *Running) openPeers(fs env.FS, o *node.Options) error {
	c := &r.o.Cluster
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
		Formats: transport.Formats{Min: 1, Max: uint32(core.FormatCurrent)},
	}
	if !c.Plain {
		t.TLS = &transport.Files{CA: c.CA, Cert: c.Cert, Key: c.Key}
	}
	if r.peers, err = transport.New(t); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	o.Replica, o.Network = c.Node, peers{r.peers}
	for _, p := range c.Peers {
		if p.ID == c.Node {
			o.Address = p.API
			continue
		}
		o.Peers = append(o.Peers, node.Peer{Replica: p.ID, Address: p.API})
		if err := r.peers.SetPeer(transport.NodeID(p.ID), p.Address); err != nil {
			return fmt.Errorf("peers: node %d: %w", p.ID, err)
		}
	}
	return nil
}

// webOf is the base of the URLs of a node's REST edge, given the address of its gRPC edge. All nodes of a cluster have
// certificates, or none has.
func (r *Running) webOf(api string) string {
	for _, p := range r.o.Cluster.Peers {
		switch {
		case p.API != api || p.HTTP == "":
		case r.o.TLSCert != "":
			return "https://" + p.HTTP
		default:
			return "http://" + p.HTTP
		}
	}
	return ""
}

// startPeers begins to speak to the peers.
func (r *Running) startPeers() error {
	if r.peers == nil {
		return nil
	}
	err := r.peers.Start(func(from transport.NodeID, shard core.ShardID, msg []byte) {
		r.node.Receive(uint64(from), shard, msg)
	})
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return nil
}

// forwarder is what fetches leaders' answers for clients.
func (r *Running) forwarder() *http.Client {
	if r.peers == nil {
		return nil
	}
	return &http.Client{
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 90 * time.Second,
			ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
