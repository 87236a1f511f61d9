package config

import (
	"fmt"
	"strings"
)

// Descriptors splits what a process may have open at once (RLIMIT_NOFILE): files, connections and pipes. Each part
// keeps to its share, so that all shares together fit, and connections never take what the database or the log needs.
type Descriptors struct {
	Process     int64 // standard streams, listeners, locks, and files that are open for a moment: of snapshots, backups, settings
	Store       int64 // the database's tables and what it writes
	Log         int64 // segments of the log
	Packs       int64 // packs of git, two files each
	Programs    int64 // pipes of git's programs
	Embedders   int64 // connections to providers of embeddings
	Peers       int64 // connections of other nodes, both ways; 0 for a server by itself
	Admin       int64 // connections of the admin listener, that of probes, and the socket of operators
	Connections int64 // of clients, gRPC and REST together: limit connections_node
	Address     int64 // of one client address, among those: limit connections_address

	// What peers' connections are made of.
	Handshakes, Streams, Forwards int64
}

// DescriptorNeeds are what the split depends on. Zero limits are the operator's leave to choose.
type DescriptorNeeds struct {
	Most        int64 // RLIMIT_NOFILE
	Peers       int   // other nodes; 0 without a cluster
	Segments    int64 // of the log, that are kept for nodes that are behind
	LogQuota    bool  // the operator has set them
	Programs    int64 // of git, at once
	Connections int64 // the operator's connections_node
	Address     int64 // the operator's connections_address
}

// What parts need at least, and take at most.
const (
	processFiles   = 32
	storeFiles     = 90 // the database keeps no fewer than 64 tables open, and has 10 files of its own; the rest is for what it writes
	storeFilesMost = 1024
	logFiles       = 12 // of a node by itself, spares and the archive included
	packFiles      = 16
	packFilesMost  = 1024
	programPipes   = 4 // three pipes and the process
	embedderConns  = 4
	adminConns     = 12 // of three listeners: the admin's, that of probes, and the socket of operators
	adminConnsMost = 192
	clientConns    = 12
	clientMost     = 20_000
	addressMost    = 2000
	forwardsMost   = 128
	forwardsLeast  = 4
)

// StoreTables is how many files the database may keep open.
func (d Descriptors) StoreTables() int { return int(d.Store - 16) }

// peerConnections returns the parts of what n peers take with the given forwarded requests for each, and their sum.
func peerConnections(n int, forwards int64) (handshakes, streams, sum int64) {
	const links, strangers = 4, 4 // messages and heartbeats in both directions; nodes that are not peers yet
	handshakes, streams = max(4, forwards/4), max(2, forwards/8)
	// As many greetings from where peers are as from elsewhere.
	return handshakes, streams, int64(n)*(links+2*streams+2*forwards) + 2*handshakes + strangers
}

// part is a share while the split is computed.
type part struct {
	have, want, weight int64
}

// PlanDescriptors splits n.Most. With few each part has the least that it works with, and what is left goes to all by weight,
// half of it to clients. Its error names what does not fit.
func PlanDescriptors(n DescriptorNeeds) (Descriptors, error) {
	d := Descriptors{Process: processFiles, Programs: programPipes * n.Programs, Embedders: embedderConns}
	store, packs := part{storeFiles, storeFilesMost, 2}, part{packFiles, packFilesMost, 2}
	log, admin := part{logFiles, logFiles + n.Segments, 1}, part{adminConns, adminConnsMost, 1}
	clients, peers := part{clientConns, clientMost, 8}, part{}
	if n.LogQuota {
		log.have = log.want
	}
	if n.Connections > 0 {
		clients.have, clients.want = n.Connections, n.Connections
	}
	if n.Peers > 0 {
		_, _, peers.have = peerConnections(n.Peers, forwardsLeast)
		_, _, peers.want = peerConnections(n.Peers, forwardsMost)
		peers.weight = 2
	}
	all := []*part{&store, &packs, &log, &admin, &peers, &clients}
	left := n.Most - d.Process - d.Programs - d.Embedders
	for _, p := range all {
		left -= p.have
	}
	if left < 0 {
		return d, n.unfit(n.Most-left, left)
	}
	spread(all, left)
	d.Store, d.Packs, d.Log, d.Admin, d.Connections = store.have, packs.have, log.have, admin.have, clients.have
	if n.Peers > 0 {
		for d.Forwards = forwardsMost; ; d.Forwards /= 2 {
			if d.Handshakes, d.Streams, d.Peers = peerConnections(n.Peers, d.Forwards); d.Peers <= peers.have {
				break
			}
		}
	}
	if d.Address = n.Address; d.Address == 0 {
		d.Address = min(addressMost, max(d.Connections/2, 1))
	}
	return d, nil
}

// spread gives out what is left, by weight, until it is gone or no part wants more.
func spread(all []*part, left int64) {
	for left > 0 {
		weights := int64(0)
		for _, p := range all {
			if p.have < p.want {
				weights += p.weight
			}
		}
		if weights == 0 {
			return
		}
		round := left
		for _, p := range all {
			if p.have < p.want && left > 0 {
				more := min(max(round*p.weight/weights, 1), p.want-p.have, left)
				p.have += more
				left -= more
			}
		}
	}
}

// unfit says what does not fit into RLIMIT_NOFILE: what the operator has set, or the least that a server needs.
func (n DescriptorNeeds) unfit(sum, left int64) error {
	var set []string
	if n.Connections > 0 {
		set = append(set, fmt.Sprintf("limit connections_node of %d", n.Connections))
	}
	if n.LogQuota {
		set = append(set, fmt.Sprintf("log-quota of %d segments", n.Segments))
	}
	if len(set) == 0 {
		return fmt.Errorf("RLIMIT_NOFILE is %d: a server needs at least %d open files and connections", n.Most, sum)
	}
	more := ""
	if fits := n.Connections + left; n.Connections > 0 && fits >= clientConns {
		more = fmt.Sprintf("; at most %d connections fit", fits)
	}
	return fmt.Errorf("%s: with it the server needs %d open files and connections, and RLIMIT_NOFILE is %d%s",
		strings.Join(set, " and "), sum, n.Most, more)
}

// Shares lists the rows.
func (d Descriptors) Shares() []Share {
	return []Share{
		{"process", d.Process, "standard streams, listeners, locks, and files that are open for a moment"},
		{"store", d.Store, "the database's tables, and what it writes"},
		{"log", d.Log, "segments of the log; with few, less of it is kept for nodes that are behind"},
		{"packs", d.Packs, "packs of git, two files each; beyond it requests that need another are refused"},
		{"programs", d.Programs, "pipes of the programs of git"},
		{"embedders", d.Embedders, "connections to providers of embeddings"},
		{"peers", d.Peers, "connections of other nodes, both ways: messages, greetings, snapshots and packs, forwarded requests"},
		{"admin", d.Admin, "connections of the admin listener, that of probes and the socket of operators; beyond it the idlest is closed"},
		{"connections", d.Connections, "connections of clients, `connections_node`; of one address `connections_address`, by default half of it and at most 2,000"},
	}
}

// Sum is what all parts may have open together.
func (d Descriptors) Sum() (sum int64) {
	for _, s := range d.Shares() {
		sum += s.Bytes
	}
	return sum
}
