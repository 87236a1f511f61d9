// Package transport carries messages and streams between the nodes of a cluster.
//
// Every node listens on one address and dials every peer: one connection for small urgent messages (Control), one for
// the appends of all shards (Bulk), and one for each stream. A connection carries messages from the side that dialled
// to the side that accepted, and answers to pings back; so each direction between two nodes has connections of its own,
// and what cuts one leaves the other. Connections are mutual TLS 1.3, and a peer's certificate names its cluster and
// node.
//
// Send never blocks: a message waits in a bounded queue of its peer and class, or is dropped and counted. Promised:
// messages of one sender and class arrive in the order they were sent, each at most once, whole and from the named sender;
// any of them may be missing. What a message means, and sending it again, is the caller's.
//
// Each refusal of a connection has a name, which both sides log with the ids of both nodes. Formats, invariants and their
// reasons are in DESIGN.md. Elsewhere: what the messages say (replog, node), a network in memory for tests (replogtest).
//
// Main types: a Transport has a peer for each other node. A peer has a link for each class of
// messages, which dials, and writes what its queue holds; and the connections that were greeted, in
// both directions. A conn is one connection, over a wire that counts what moves; a streamConn is
// one as its user sees it. The keeper is one goroutine that sends pings and ends what is silent or
// takes too long; each link and each accepted connection has a goroutine of its own.
//
// A message goes: Send, queue, link, frame, connection; then frameReader, receive, the Handler of
// the other node.
package transport
