package transport

import (
	"sync/atomic"
	"time"
)

// Stats are a transport's counters since it was made.
type Stats struct {
	Control, Bulk, Parts ClassStats

	StreamsOpened, StreamsAccepted uint64

	Refused           map[Reason]uint64 // connections that this node refused; without those that are 0
	HandshakeFailures uint64            // connections that ended before their greeting
	Crowded           uint64            // of these, those closed because too many were greeting at once
	Corrupt           uint64            // connections closed because the peer's bytes made no sense
	Undeliverable     uint64            // messages to no peer, of no class, or too large
	ReloadFailures    uint64            // looks at certificate files that were of no use

	Peers, Connections, Greeting int // now

	CertificateEnd  time.Time // until when this node's certificate is valid; zero: plain text
	CertificateSoon bool      // that is within a month, or over
}

// ClassStats are the counters of one class, over all peers or of one.
type ClassStats struct {
	SentMessages, SentBytes         uint64 // given to the system; that they arrive is not promised
	ReceivedMessages, ReceivedBytes uint64 // given to the handler
	Writes                          uint64 // each with one or more messages, or a ping
	DroppedFull                     uint64 // messages for which the queue had no room
	DroppedDown                     uint64 // messages for which there was no connection, or that were lost with one
	// Connects counts the connections that were made.
	Connects uint64

	// QueuedMessages and QueuedBytes are what waits or is being written now.
	QueuedMessages, QueuedBytes int
}

// counters are what a transport counts, over all peers.
type counters struct {
	// control, bulk and parts count the messages of one class each.
	control, bulk, parts           classCounters
	streamsOpened, streamsAccepted atomic.Uint64
	handshakeFailures, corrupt     atomic.Uint64
	undeliverable, reloadFailures  atomic.Uint64
	reasons                        [LastReason + 1]atomic.Uint64
}

// classCounters are the counters of one class, of a link or of all.
type classCounters struct {
	sent, sentBytes, received, receivedBytes   atomic.Uint64
	writes, droppedFull, droppedDown, connects atomic.Uint64
}

// class returns the counters of a class of messages.
func (c *counters) class(class Class) *classCounters {
	switch class {
	case Control:
		return &c.control
	case Parts:
		return &c.parts
	}
	return &c.bulk
}

// refuse counts a refusal by this node.
func (c *counters) refuse(r Reason) { c.reasons[min(r, LastReason)].Add(1) }

// read returns the counters as they are.
func (c *classCounters) read() ClassStats {
	return ClassStats{
		SentMessages: c.sent.Load(), SentBytes: c.sentBytes.Load(),
		ReceivedMessages: c.received.Load(), ReceivedBytes: c.receivedBytes.Load(), Writes: c.writes.Load(),
		DroppedFull: c.droppedFull.Load(), DroppedDown: c.droppedDown.Load(), Connects: c.connects.Load(),
	}
}

// Stats returns the counters.
func (t *Transport) Stats() Stats {
	c := &t.stats
	s := Stats{
		Control: c.control.read(), Bulk: c.bulk.read(), Parts: c.parts.read(), Refused: make(map[Reason]uint64),
		StreamsOpened: c.streamsOpened.Load(), StreamsAccepted: c.streamsAccepted.Load(),
		HandshakeFailures: c.handshakeFailures.Load(), Corrupt: c.corrupt.Load(),
		Undeliverable: c.undeliverable.Load(), ReloadFailures: c.reloadFailures.Load(),
	}
	for r := range c.reasons {
		if n := c.reasons[r].Load(); n > 0 {
			s.Refused[Reason(r)] = n
		}
	}
	if creds := t.creds.Load(); creds != nil {
		s.CertificateEnd, s.CertificateSoon = creds.cert.Leaf.NotAfter, creds.endsSoon(t.o.Clock.Wall())
	}
	s.Greeting, s.Crowded = t.pending.counts()
	for _, p := range t.peerList() {
		s.Peers++
		s.Connections += len(p.all())
		for class, into := range map[Class]*ClassStats{Control: &s.Control, Bulk: &s.Bulk, Parts: &s.Parts} {
			messages, bytes := p.link(class).queue.size()
			into.QueuedMessages += messages
			into.QueuedBytes += bytes
		}
	}
	return s
}
