package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/obs"
)

// statusOver reads the status of the cluster by the REST side of a node.
func (f *fleet) statusOver(i int) (out struct {
	Nodes []struct {
		ID         uint64
		Reachable  bool
		Disk       *struct{ Size, Free uint64 }
		Memory     *struct{ Used, Limit uint64 }
		FsyncUs    *struct{ P50, P99 uint64 } `json:"fsync_us"`
		CertEndsAt string                     `json:"cert_ends_at"`
		StartedAt  string                     `json:"started_at"`
		Durability string
		Replicas   []struct{ Applied, Durable uint64 }
	}
	Shards []struct {
		Shard      int
		Partitions []struct{ Tenant, Namespace string }
		Count      int `json:"partition_count"`
	}
	Links []struct {
		From, To  uint64
		Connected bool
		RTT       uint64 `json:"rtt_us"`
	}
	IfLost []struct {
		Node   uint64
		Shards []int
	} `json:"if_lost"`
},
) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.running[i].HTTPAddress+"/v1/cluster", http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatal(resp.Status, err)
	}
	return out
}

func TestTheStatusOfAClusterHasTheFiguresOfItsNodes(t *testing.T) {
	f := startFleet(t, 3, 2, nil)
	f.until("all nodes tell of themselves and reach each other", func() bool {
		s := f.statusOver(0)
		connected := 0
		for _, l := range s.Links {
			if l.Connected && l.RTT > 0 {
				connected++
			}
		}
		return len(s.Links) == 6 && connected == 6
	})
	if _, err := f.running[0].Node().Namespace(t.Context(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	s := f.statusOver(0)
	for _, n := range s.Nodes {
		if !n.Reachable || n.Disk == nil || n.Disk.Size == 0 || n.StartedAt == "" || n.Durability != "none" || n.CertEndsAt == "" || len(n.Replicas) != 2 {
			t.Errorf("a node tells of itself %+v", n)
		}
		if n.Memory == nil || n.Memory.Used == 0 || n.Memory.Limit != minMemory {
			t.Errorf("its memory is %+v", n.Memory)
		}
	}
	if n := s.Shards[0].Count + s.Shards[1].Count; n != 1 || len(s.Shards[0].Partitions)+len(s.Shards[1].Partitions) != 1 {
		t.Errorf("%d partitions, in %+v", n, s.Shards)
	}
	for _, l := range s.IfLost {
		if len(l.Shards) != 0 {
			t.Errorf("with three nodes the loss of one stops %+v", l)
		}
	}
	if len(s.IfLost) != 3 {
		t.Errorf("what losses stop: %+v", s.IfLost)
	}
	f.stop(2)
	f.until("the third node is away", func() bool {
		s = f.statusOver(0)
		return !s.Nodes[2].Reachable
	})
	if len(s.IfLost) != 2 || !slices.Equal(s.IfLost[0].Shards, []int{0, 1}) || !slices.Equal(s.IfLost[1].Shards, []int{0, 1}) {
		t.Errorf("with two of three nodes, losses stop %+v", s.IfLost)
	}
}

func TestSyncsOfTheLastMinuteCount(t *testing.T) {
	h := obs.NewHistogram(1, 20)
	var s syncTimes
	note := func() { s.notes = append(s.notes, h.Read(1)) }
	h.Observe(4)
	if d := s.recent(h); d.Count() != 1 {
		t.Errorf("at first %d syncs count", d.Count())
	}
	for range syncNotes {
		note()
	}
	for range 100 {
		h.Observe(1000)
	}
	d := s.recent(h)
	if p := d.Quantile(0.5); d.Count() != 100 || p <= 512 || p > 1024 {
		t.Errorf("%d syncs count, half of them within %v", d.Count(), p)
	}
	if d.Quantile(0.99) < d.Quantile(0.5) || (obs.Distribution{}).Quantile(0.5) != 0 {
		t.Errorf("the quantiles are %v and %v", d.Quantile(0.5), d.Quantile(0.99))
	}
}
