package server

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/obs"
)

// This file has the figures of a node that the status of the cluster shows.

// DiskFigures is the disk of a node, in bytes.
type DiskFigures struct {
	Size    uint64 `json:"size"`
	Free    uint64 `json:"free"`
	Reserve uint64 `json:"reserve"` // what new work must leave free
	Full    bool   `json:"full,omitempty"`
}

// SyncFigures are how long syncs of the log took, in microseconds.
type SyncFigures struct {
	P50 uint64 `json:"p50"`
	P99 uint64 `json:"p99"`
}

// MemoryFigures is the memory of a node, in bytes.
type MemoryFigures struct {
	Used  uint64 `json:"used"` // by the process
	Limit uint64 `json:"limit"`
}

// LinkFigures is how a node reaches another.
type LinkFigures struct {
	To        uint64 `json:"to"`
	Connected bool   `json:"connected"`
	RTT       uint64 `json:"rtt_us,omitempty"` // of the last ping, in microseconds
}

// Figures are what a node says of itself besides how it stands in the cluster.
type Figures struct {
	Disk       *DiskFigures   `json:"disk,omitempty"`
	Syncs      *SyncFigures   `json:"fsync_us,omitempty"`
	Memory     *MemoryFigures `json:"memory,omitempty"`
	CertEnds   time.Time      `json:"cert_ends_at,omitzero"` // of its certificate that ends first
	Started    time.Time      `json:"started_at,omitzero"`
	Durability string         `json:"durability,omitempty"`
	Links      []LinkFigures  `json:"links,omitempty"`
}

// figures reads the figures of this node.
func (c *coordinator) figures() Figures {
	st := c.node.Status()
	out := Figures{Durability: st.Durability, Started: time.UnixMilli(st.StartedMillis).UTC(), CertEnds: c.server.certificateEnd()}
	if size, free, reserve, ok := c.node.Disk(); ok {
		out.Disk = &DiskFigures{Size: size, Free: free, Reserve: reserve, Full: st.DiskFull}
	}
	if d := c.syncs.recent(c.server.admin.syncs); d.Count() > 0 {
		out.Syncs = &SyncFigures{P50: micros(d.Quantile(0.5)), P99: micros(d.Quantile(0.99))}
	}
	if used := residentMemory(); used > 0 {
		out.Memory = &MemoryFigures{Used: used, Limit: uint64(c.o.Memory)}
	}
	if c.peers != nil {
		for _, p := range c.peers.Status() {
			link := LinkFigures{To: uint64(p.ID), Connected: p.Control.Connected}
			if p.Control.Connected {
				link.RTT = uint64(p.Control.RoundTrip.Microseconds())
			}
			out.Links = append(out.Links, link)
		}
		slices.SortFunc(out.Links, func(a, b LinkFigures) int { return cmp.Compare(a.To, b.To) })
	}
	return out
}

// micros rounds a number of microseconds up.
func micros(f float64) uint64 { return uint64(math.Ceil(f)) }

// certificateEnd is when the certificate of this node ends that ends first, of those for clients and for nodes; zero: it has none.
func (r *Running) certificateEnd() (end time.Time) {
	if r.peers != nil {
		end = r.peers.Stats().CertificateEnd
	}
	if r.cert != nil {
		if own := r.cert.pair.Load().Leaf.NotAfter; end.IsZero() || own.Before(end) {
			end = own
		}
	}
	return end
}

const (
	// syncEvery is how often the times of syncs are noted, and syncNotes how many notes are kept: about a minute.
	syncEvery = 10 * time.Second
	syncNotes = 6
)

// syncTimes knows how long the syncs of the last minute took.
type syncTimes struct {
	mu sync.Mutex // guards notes
	// What had been counted when, oldest first.
	notes []obs.Distribution
}

// begin notes the times of h from now on, until the function that it returns is called.
func (s *syncTimes) begin(clock env.Clock, h *obs.Histogram) (stop func()) {
	return env.Every(clock, syncEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.notes = append(s.notes, h.Read(1)); len(s.notes) > syncNotes {
			s.notes = slices.Delete(s.notes, 0, 1)
		}
	})
}

// recent is what was counted in the last minute, in microseconds.
func (s *syncTimes) recent(h *obs.Histogram) obs.Distribution {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := h.Read(1)
	if len(s.notes) < syncNotes {
		return now // it runs for less than a minute
	}
	return now.Since(s.notes[0])
}

// LossRow is what the loss of one more node would stop.
type LossRow struct {
	Node   uint64 `json:"node"`
	Shards []int  `json:"shards"` // that no majority would be left of
}

// losses derives what the loss of each node that was reached would stop. All nodes have a replica of every shard, so a shard needs most
// voters to be there.
func (s *ClusterStatus) losses() (out []LossRow) {
	votes := func(n *NodeStatus) bool {
		return n.State == "" || n.State == core.MemberVoter.String() || n.State == core.MemberRemoving.String()
	}
	voters := 0
	for i := range s.Nodes {
		if votes(&s.Nodes[i]) {
			voters++
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.Reachable {
			continue
		}
		row := LossRow{Node: n.ID, Shards: []int{}}
		for shard := range s.Shards {
			left := 0
			for k := range s.Nodes {
				o := &s.Nodes[k]
				if k != i && votes(o) && o.Reachable && shard < len(o.Replicas) {
					left++
				}
			}
			if left < voters/2+1 {
				row.Shards = append(row.Shards, shard)
			}
		}
		out = append(out, row)
	}
	return out
}
