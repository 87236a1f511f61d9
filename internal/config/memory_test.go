package config

import "testing"

func TestSharesFitIntoTheMemoryAndHoldACommit(t *testing.T) {
	for _, total := range []int64{1 << 30, 4 << 30, 64 << 30} {
		for _, peers := range []int{0, 2, 4, 6} {
			for _, shards := range []int{1, 4} {
				m := PlanMemory(total, shards, peers)
				n := int64(shards)
				sum := m.Store + 2*n*m.Layer + m.LogQueue + m.LogCache + m.GitTypes + m.GitCommands + m.History + n*m.Proposals + int64(peers)*(m.PeerBulk+m.PeerControl+m.PeerParts) + n*m.PeerInbox
				if sum > total {
					t.Errorf("%d bytes, %d shards, %d peers: the shares are %d: %+v", total, shards, peers, sum, m)
				}
			}
		}
	}
	small, large := PlanMemory(128<<20, 64, 6), PlanMemory(4<<30, 4, 2)
	if small.PeerBulk+small.PeerControl+small.PeerParts < 4<<20 || small.PeerInbox < 4<<20 || small.Proposals < 4<<20 {
		t.Errorf("a share does not hold one commit: %+v", small)
	}
	if large.PeerBulk+large.PeerControl+large.PeerParts != 64<<20 || large.PeerInbox != 64<<20 {
		t.Errorf("with 4 GiB: %+v", large)
	}
	seen := make(map[string]bool)
	for _, s := range PlanMemory(1<<30, 1, 2).Shares() {
		if s.Bytes == 0 || s.Name == "" || s.Meaning == "" || seen[s.Name] {
			t.Errorf("share %+v", s)
		}
		seen[s.Name] = true
	}
}
