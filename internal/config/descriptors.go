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

// DescriptorNeeds are what the split depends on. A limit of 0 is not set by the operator, so the
// plan chooses it.
type DescriptorNeeds struct {
	Most        int64 // RLIMIT_NOFILE
	Peers       int   // other nodes; 0 without a cluster
	Segments    int64 // of the log, that are kept for nodes that are behind
	LogQuota    bool  // the operator has set them
	Programs    int64 // of git, at once
	Connections int64 // the operator's connections_node
	Address     int64 // the operator's connections_address
}

// For each part the least that it works with, and the most that it can use.
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

// StoreTables returns how many files the database may keep open: its share without what it needs
// for files that it writes.
func (d Descriptors) StoreTables() int { return int(d.Store - 16) }

// peerConnections returns what n peers take if each may have the given number of forwarded requests
// open: greetings and streams per peer, and the sum of all connections in both directions.
func peerConnections(n int, forwards int64) (handshakes, streams, sum int64) {
	const links, strangers = 4, 4 // messages and heartbeats in both directions; nodes that are not peers yet
	handshakes, streams = max(4, forwards/4), max(2, forwards/8)
	// As many greetings from where peers are as from elsewhere.
	return handshakes, streams, int64(n)*(links+2*streams+2*forwards) + 2*handshakes + strangers
}

// part is a share while the split is computed: what it has so far, the most that it wants, and its
// weight when more is given out.
type part struct {
	have, want, weight int64
}

// PlanDescriptors splits n.Most. Each part first gets the least that it works with, or what the
// operator has set. What is left is given out by weight, half of it to clients; no part gets more
// than it wants. The number of forwarded requests per peer is then halved until the connections to
// peers fit into their share. The error names what does not fit.
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
	// Process, programs and embedders have fixed shares; the rest is split among the others.
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

// spread gives out what is left, in rounds by weight, until nothing is left or no part wants more.
// A part that wants more gets at least one in each round, so every round makes progress.
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
		// Weights refer to what was left at the beginning of the round.
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

// unfit returns the error for a plan that does not fit: it names what the operator has set, or else
// the least that a server needs. sum is what would be needed, left the negative rest.
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

// Shares lists the parts with their names and meanings, for metrics and the reference.
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

// Sum returns what all parts may have open together.
func (d Descriptors) Sum() (sum int64) {
	for _, s := range d.Shares() {
		sum += s.Bytes
	}
	return sum
}
