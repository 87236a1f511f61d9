package config

import (
	"strings"
	"testing"
)

func TestDescriptorsFitAndEachPartHasWhatItNeeds(t *testing.T) {
	for _, most := range []int64{256, 300, 512, 1024, 4096, 20_000, 65_536, 1 << 20} {
		for _, peers := range []int{0, 2} {
			n := DescriptorNeeds{Most: most, Peers: peers, Programs: 8, Segments: int64(peers) * 32}
			d, err := PlanDescriptors(n)
			if err != nil {
				t.Errorf("%+v: %v", n, err)
				continue
			}
			if sum := d.Sum(); sum > most {
				t.Errorf("%+v: the sum is %d: %+v", n, sum, d)
			}
			if d.Store < storeFiles || d.Log < logFiles || d.Packs < packFiles || d.Admin < adminConns || d.Connections < clientConns || d.StoreTables() < 74 {
				t.Errorf("%+v: a part has too little: %+v", n, d)
			}
			if peers > 0 && (d.Handshakes < 4 || d.Streams < 2 || d.Forwards < forwardsLeast) {
				t.Errorf("%+v: peers have too little: %+v", n, d)
			}
			if d.Address < 1 || d.Address > max(d.Connections/2, 1) || d.Address > addressMost {
				t.Errorf("%+v: one address may have %d of %d connections", n, d.Address, d.Connections)
			}
		}
	}
	d, err := PlanDescriptors(DescriptorNeeds{Most: 1 << 20, Peers: 2, Programs: 16, Segments: 64})
	if err != nil || d.Connections != clientMost || d.Address != addressMost || d.Store != storeFilesMost || d.Packs != packFilesMost || d.Forwards != forwardsMost {
		t.Errorf("with plenty: %+v, %v", d, err)
	}
}

func TestALimitThatDoesNotFitIsRefusedWithTheSum(t *testing.T) {
	for _, c := range []struct {
		n    DescriptorNeeds
		want []string
	}{
		{DescriptorNeeds{Most: 100, Programs: 8}, []string{"RLIMIT_NOFILE is 100", "at least"}},
		{DescriptorNeeds{Most: 1024, Programs: 8, Connections: 1000}, []string{"connections_node of 1000", "RLIMIT_NOFILE is 1024", "1198 open", "at most 826 connections fit"}},
		{DescriptorNeeds{Most: 20_000, Programs: 8, Connections: 20_000}, []string{"connections_node of 20000", "RLIMIT_NOFILE is 20000"}},
		{DescriptorNeeds{Most: 1024, Programs: 8, Peers: 2, Segments: 5000, LogQuota: true}, []string{"log-quota of 5000 segments", "RLIMIT_NOFILE is 1024"}},
	} {
		_, err := PlanDescriptors(c.n)
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v, want it to say %q", c.n, err, w)
			}
		}
	}
	d, err := PlanDescriptors(DescriptorNeeds{Most: 1024, Programs: 8, Connections: 826, Address: 500})
	if err != nil || d.Connections != 826 || d.Address != 500 || d.Sum() != 1024 {
		t.Errorf("what just fits: %+v, %v", d, err)
	}
}
