package server

import (
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/obs"
	"github.com/millrace/millrace/internal/replog/transport"
)

// Bounds of the series per peer: the most nodes of a cluster, times three classes of messages,
// times two directions or two reasons.
const (
	classSeries  = 3*config.MaxPeers + 1
	sideSeries   = 2*classSeries + 1
	reasonSeries = 24
)

// peerView is what the transport knows at one moment.
type peerView struct {
	// Counters of the transport as a whole, then the state of each peer.
	stats transport.Stats
	peers []transport.PeerStatus
}

// viewPeers reads the transport; false on a single-node server.
func (a *admin) viewPeers() (v peerView, ok bool) {
	p := a.parts.Load()
	if p == nil || p.peers == nil {
		return v, false
	}
	return peerView{p.peers.Stats(), p.peers.Status()}, true
}

// links calls put for each peer and class of messages.
func (v peerView) links(put func(peer, class string, l *transport.LinkStatus)) {
	for i := range v.peers {
		p := &v.peers[i]
		put(p.ID.String(), transport.Control.String(), &p.Control)
		put(p.ID.String(), transport.Bulk.String(), &p.Bulk)
		put(p.ID.String(), transport.Parts.String(), &p.Parts)
	}
}

// byLink makes a metric with one figure per peer and class.
func byLink(name, help string, read func(*transport.LinkStatus) float64) obs.Metric[peerView] {
	return obs.Metric[peerView]{
		Name: name, Help: help, Labels: []string{"peer", "class"}, Bound: classSeries,
		Values: func(v peerView, put func(float64, ...string)) {
			v.links(func(peer, class string, l *transport.LinkStatus) { put(read(l), peer, class) })
		},
	}
}

// shareOf returns the share of memory in which messages of a class wait.
func shareOf(class string) string {
	return "peer_" + class
}

// peerMetrics are those of the connections to other nodes.
func peerMetrics() []obs.Metric[peerView] {
	type l = *transport.LinkStatus
	return []obs.Metric[peerView]{
		byLink("millrace_transport_sent_messages_total", "Messages given to the system for a peer", func(x l) float64 { return float64(x.SentMessages) }),
		byLink("millrace_transport_sent_bytes_total", "Bytes of those", func(x l) float64 { return float64(x.SentBytes) }),
		byLink("millrace_transport_received_messages_total", "Messages of a peer", func(x l) float64 { return float64(x.ReceivedMessages) }),
		byLink("millrace_transport_received_bytes_total", "Bytes of those", func(x l) float64 { return float64(x.ReceivedBytes) }),
		byLink("millrace_transport_queued_bytes", "Bytes of messages that wait for a peer", func(x l) float64 { return float64(x.QueuedBytes) }),
		byLink("millrace_transport_connects_total", "Connections to a peer that were made", func(x l) float64 { return float64(x.Connects) }),
		byLink("millrace_transport_round_trip_seconds", "Of the last ping to a peer", func(x l) float64 { return x.RoundTrip.Seconds() }),
		{
			Name: "millrace_transport_dropped_messages_total", Help: "Messages for a peer that were dropped: the named share of memory was used up, or there was no connection (unconnected)",
			Labels: []string{"peer", "class", "limit"}, Bound: sideSeries,
			Values: func(v peerView, put func(float64, ...string)) {
				v.links(func(peer, class string, x l) {
					put(float64(x.DroppedFull), peer, class, shareOf(class))
					put(float64(x.DroppedDown), peer, class, "unconnected")
				})
			},
		},
		{
			Name: "millrace_transport_connected_state", Help: "1 while there is a connection with a peer, which it dialled (inbound) or this node (outbound)",
			Labels: []string{"peer", "class", "direction"}, Bound: sideSeries,
			Values: func(v peerView, put func(float64, ...string)) {
				v.links(func(peer, class string, x l) {
					put(float64(bit(x.Connected)), peer, class, "outbound")
					put(float64(bit(x.Inbound)), peer, class, "inbound")
				})
			},
		},
		{
			Name: "millrace_transport_refused_connections_total", Help: "Connections that this node refused, by reason; its log names both nodes",
			Labels: []string{"reason"}, Bound: reasonSeries,
			Values: func(v peerView, put func(float64, ...string)) {
				for r := transport.WrongCluster; r <= transport.LastReason; r++ {
					put(float64(v.stats.Refused[r]), r.String())
				}
			},
		},
		figure("millrace_transport_failed_greetings_total", "Connections that ended before their greeting, as those without a valid certificate", func(v peerView) uint64 { return v.stats.HandshakeFailures }),
		figure("millrace_transport_corrupt_connections_total", "Connections that were closed because a peer's bytes made no sense", func(v peerView) uint64 { return v.stats.Corrupt }),
		figure("millrace_transport_failed_reloads_total", "Looks at certificate files that were of no use; those read before stay", func(v peerView) uint64 { return v.stats.ReloadFailures }),
		{
			Name: "millrace_transport_certificate_end_seconds", Help: "Unix time at which this node's certificate ends; 0 in plain text",
			Value: func(v peerView) float64 {
				if v.stats.CertificateEnd.IsZero() {
					return 0
				}
				return float64(v.stats.CertificateEnd.Unix())
			},
		},
		{
			Name: "millrace_transport_certificate_expiry_state", Help: "1 when this node's certificate ends within 30 days, or has ended: replace its file",
			Value: func(v peerView) float64 { return float64(bit(v.stats.CertificateSoon)) },
		},
	}
}

// raftMetrics are those of the shards' replicated logs.
func raftMetrics() []obs.Metric[node.Stats] {
	type shard = *node.ShardStats
	return []obs.Metric[node.Stats]{
		byShard("millrace_node_leader_changes_total", "Times that another leader of the shard was heard of, or the same again after none", func(x shard) uint64 { return x.Log.Changes }),
		byShard("millrace_node_known_leader_state", "1 while this node knows who leads the shard", func(x shard) int { return bit(x.Log.Leader != 0) }),
		byShard("millrace_node_committed_index", "Index up to which the shard's log is known here to be committed; compare it between nodes to see who is behind", func(x shard) uint64 { return x.Log.Commit }),
		byShard("millrace_node_last_index", "Index of the last entry of the shard's log here", func(x shard) uint64 { return x.Log.Last }),
		byShard("millrace_node_apply_lag_entries", "Entries that are committed and not yet applied here", func(x shard) uint64 { return x.Log.Commit - min(x.Log.Applied, x.Log.Commit) }),
		byShard("millrace_node_uncommitted_entries", "Entries at the log's end that are not known here to be committed", func(x shard) uint64 { return x.Log.Last - min(x.Log.Commit, x.Log.Last) }),
		byShard("millrace_node_inbox_bytes", "Bytes of peers' messages that wait for the shard", func(x shard) int { return x.InboxBytes }),
		byShard("millrace_node_inbox_dropped_messages_total", "Messages of peers that were dropped because the share peer_inbox was used up", func(x shard) uint64 { return x.InboxDropped }),
		byShard("millrace_node_snapshots_made_total", "Snapshots that were made for nodes behind the log", func(x shard) uint64 { return x.SnapshotsMade }),
		byShard("millrace_node_snapshot_sent_bytes_total", "Bytes of snapshots that were sent", func(x shard) uint64 { return x.SnapshotBytes }),
		byShard("millrace_node_snapshots_installed_total", "Snapshots that took the place of this node's state", func(x shard) uint64 { return x.SnapshotsInstalled }),
	}
}
