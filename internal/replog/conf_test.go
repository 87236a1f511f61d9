package replog_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

func TestConfBytesAreFrozen(t *testing.T) {
	c := replog.Conf{Index: 300, Voters: []uint64{1, 3, 4}, Outgoing: []uint64{1, 2, 3}, Learners: []uint64{5}, LearnersNext: []uint64{2}, AutoLeave: true}
	const want = "01" + "ac02" + "01" + "03010304" + "03010203" + "0105" + "0102"
	b := c.Append(nil)
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("encoded as %s, want %s", got, want)
	}
	if got, err := replog.DecodeConf(b); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for n := range len(b) {
		if _, err := replog.DecodeConf(b[:n]); err == nil {
			t.Errorf("the first %d bytes were read", n)
		}
	}
	for _, bad := range []string{want + "00", "02" + want[2:], "01" + "00" + "02" + "00000000", "01" + "00" + "00" + "02" + "0201" + "000000", "01" + "8000" + "00" + "00000000", "01" + "00" + "00" + "41"} {
		b, _ := hex.DecodeString(bad)
		if _, err := replog.DecodeConf(b); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func FuzzDecodeConf(f *testing.F) {
	f.Add(replog.Conf{Index: 300, Voters: []uint64{1, 3}, Learners: []uint64{5}}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := replog.DecodeConf(b)
		if err == nil && !slices.Equal(c.Append(nil), b) {
			t.Errorf("%x is not what %+v is encoded as", b, c)
		}
	})
}

func TestConfKnowsItsReplicas(t *testing.T) {
	c := replog.Conf{Voters: []uint64{3, 4}, Outgoing: []uint64{2, 3}, Learners: []uint64{1}}
	if got := c.Replicas(); !slices.Equal(got, []uint64{1, 2, 3, 4}) {
		t.Errorf("replicas %v", got)
	}
	if !c.Joint() || !c.Votes(2) || c.Votes(1) || !c.Learns(1) || !c.Has(4) || c.Has(5) {
		t.Errorf("%+v does not know who it has", c)
	}
}

func TestReplicasComeAndGoByEntriesOfTheLog(t *testing.T) {
	r := openReplica(t, 1, []uint64{1}, replogtest.NewDisk(), nil, 0)
	if err := r.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if st := r.core.Status(); !st.Alone || !st.Single {
		t.Fatalf("status %+v", st)
	}
	if err := r.core.Reconfigure(replog.RoleChange{Replica: 2, Role: replog.Learner}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	c := r.core.Conf()
	if st := r.core.Status(); !slices.Equal(c.Learners, []uint64{2}) || st.Alone || !st.Single || c.Index == 0 {
		t.Fatalf("after the learner came: %+v, %+v", c, st)
	}
	if !reflect.DeepEqual(r.conf, c) {
		t.Errorf("applied %+v, the core goes by %+v", r.conf, c)
	}
	if err := r.core.Reconfigure(replog.RoleChange{Replica: 2, Role: replog.Absent}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if st := r.core.Status(); !st.Alone {
		t.Errorf("after the learner left: %+v", r.core.Conf())
	}
	if err := r.core.Reconfigure(replog.RoleChange{Replica: 1, Role: replog.Absent}); err == nil {
		t.Error("a log without voters was proposed")
	}

	again := openReplica(t, 1, []uint64{1}, r.disk.Crash(0, 1), nil, 0) // of which nothing was stored
	again.settle()                                                      // what is known to be committed; a campaign must wait until it is applied
	if err := again.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	again.settle()
	if got, want := again.core.Conf(), r.core.Conf(); !reflect.DeepEqual(got, want) {
		t.Errorf("after a start %+v, before %+v", got, want)
	}
}

// reconfigure has the current leader give replicas roles, until the configuration is as wanted.
func (c *cluster) reconfigure(want func(replog.Conf) bool, changes ...replog.RoleChange) {
	c.t.Helper()
	for range 20_000 {
		c.turn()
		l := c.leader()
		if l == nil {
			continue
		}
		if conf := l.core.Conf(); !conf.Joint() && want(conf) {
			return
		}
		if c.rnd.IntN(50) == 0 {
			_ = l.core.Reconfigure(changes...) // it may lead no more, or the one before is under way
		}
	}
	c.t.Fatalf("no leader has a configuration as wanted after %v", changes)
}

func TestOneReplicaGrowsToThreeAndOneIsReplacedThroughCrashes(t *testing.T) {
	for seed := range uint64(4) {
		c := &cluster{t: t, all: map[uint64]*replica{}, rnd: rand.New(rand.NewPCG(seed, 11)), cut: map[uint64]bool{}}
		c.all[1] = openReplica(t, 1, []uint64{1}, replogtest.NewDisk(), nil, 0)
		if err := c.all[1].core.Campaign(); err != nil {
			t.Fatal(err)
		}
		proposed := 0
		propose := func() {
			for range 300 {
				c.turn()
				if l := c.leader(); l != nil && l.core.Propose(fmt.Appendf(nil, "p%d", proposed)) == nil {
					proposed++
				}
			}
			id := 1 + uint64(c.rnd.IntN(len(c.all)))
			c.all[id] = openReplica(t, id, []uint64{1}, c.all[id].disk.Crash(c.rnd.IntN(101), c.rnd.Uint64()), nil, 0)
		}
		for id := uint64(2); id <= 4; id++ {
			c.all[id] = openReplica(t, id, []uint64{1}, replogtest.NewDisk(), nil, 0)
			c.reconfigure(func(conf replog.Conf) bool { return conf.Learns(id) }, replog.RoleChange{Replica: id, Role: replog.Learner})
			propose()
			if id < 4 {
				c.reconfigure(func(conf replog.Conf) bool { return conf.Votes(id) }, replog.RoleChange{Replica: id, Role: replog.Voter})
			}
			propose()
		}
		swapped := func(conf replog.Conf) bool { return slices.Equal(conf.Voters, []uint64{1, 3, 4}) }
		c.reconfigure(swapped, replog.RoleChange{Replica: 4, Role: replog.Voter}, replog.RoleChange{Replica: 2, Role: replog.Absent})
		propose()
		for range 3000 {
			c.turn()
		}
		l := c.leader()
		if l == nil || !swapped(l.core.Conf()) {
			t.Fatalf("seed %d: the new replicas have no leader", seed)
		}
		for _, id := range []uint64{1, 3, 4} {
			a := c.all[id].applied
			if n := min(len(a), len(l.applied)); !slices.Equal(a[:n], l.applied[:n]) || len(l.applied)-n > 50 {
				t.Errorf("seed %d: replica %d applied %d entries, the leader %d", seed, id, len(a), len(l.applied))
			}
		}
		if len(l.applied) < proposed/2 {
			t.Errorf("seed %d: %d of %d proposals were applied", seed, len(l.applied), proposed)
		}
	}
}
