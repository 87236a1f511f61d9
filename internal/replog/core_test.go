package replog_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// replica is one replica of shard 0 with a disk of its own, driven by hand.
type replica struct {
	t       *testing.T
	id      uint64
	voters  []uint64
	disk    *replogtest.Disk
	log     *replog.Log
	core    *replog.Core
	appends []*replog.Append // handed to the log, in order
	durable int              // how many of them are
	applied []string
	index   uint64
	conf    replog.Conf
	out     []replog.Message
	reads   []replog.ReadState
}

func openReplica(t *testing.T, id uint64, voters []uint64, disk *replogtest.Disk, applied []string, index uint64) *replica {
	t.Helper()
	log, err := replog.OpenLog(replog.LogOptions{FS: disk, Dir: "wal", SegmentBytes: 16 << 10, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, id: id, voters: voters, disk: disk, log: log, applied: applied, index: max(index, replog.FirstIndex)}
	if err := replog.Bootstrap(log, 0); err != nil {
		t.Fatal(err)
	}
	r.core, err = replog.New(replog.Config{Replica: id, Voters: voters, Applied: r.index, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	r.conf = r.core.Conf()
	return r
}

// step takes the output of the core and hands appends to the log, without writing them.
func (r *replica) step() {
	r.t.Helper()
	for r.core.Ready() {
		out, err := r.core.Take()
		if err != nil {
			r.t.Fatal(err)
		}
		r.out, r.reads = append(r.out, out.Messages...), append(r.reads, out.Reads...)
		if a := out.Append; a != nil {
			r.appends = append(r.appends, a)
			if a.Empty() {
				if r.durable == len(r.appends)-1 {
					r.appendDone()
				}
			} else if err := replog.Submit(r.log, 0, a, func(err error) {
				if err != nil {
					r.t.Error(err)
				}
			}); err != nil {
				r.t.Fatal(err)
			}
		}
		if out.Apply != nil {
			r.apply(out.Apply)
		}
	}
}

func (r *replica) apply(a *replog.Apply) {
	r.t.Helper()
	for _, e := range a.Entries {
		if e.Index != r.index+1 {
			r.t.Fatalf("replica %d: entry %d applied after %d", r.id, e.Index, r.index)
		}
		if last := r.log.State(0).Last; e.Index > last {
			r.t.Fatalf("replica %d: entry %d applied, but only %d is durable here", r.id, e.Index, last)
		}
		r.index = e.Index
		if e.Conf {
			next, err := r.conf.After(e.Index, e.Data)
			if err != nil {
				r.t.Fatal(err)
			}
			r.conf = next
		} else if len(e.Data) > 0 {
			r.applied = append(r.applied, string(e.Data))
		}
	}
	if err := r.core.ApplyDone(a); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) appendDone() {
	a := r.appends[r.durable]
	r.durable++
	if err := r.core.AppendDone(a); err != nil {
		r.t.Fatal(err)
	}
}

// sync makes durable what was handed to the log, and tells the core.
func (r *replica) sync() {
	r.t.Helper()
	for r.log.Step() {
	}
	for r.durable < len(r.appends) {
		r.appendDone()
	}
	r.step()
}

// settle steps and syncs until nothing follows.
func (r *replica) settle() {
	r.step()
	for r.durable < len(r.appends) || r.core.Ready() {
		r.sync()
	}
}

func TestOneVoterAppliesOnlyWhatIsDurable(t *testing.T) {
	r := openReplica(t, 1, []uint64{1}, replogtest.NewDisk(), nil, 0)
	if err := r.core.Propose([]byte("early")); !errors.Is(err, replog.ErrNotLeader) {
		t.Errorf("a proposal before the election: %v", err)
	}
	if err := r.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	r.step()
	if r.core.Status().Leading {
		t.Error("leads before its vote is durable")
	}
	r.settle()
	if st := r.core.Status(); !st.Leading || !st.Single {
		t.Fatalf("status %+v", st)
	}
	if err := r.core.Propose([]byte("a")); err != nil {
		t.Fatal(err)
	}
	r.step()
	if len(r.applied) > 0 {
		t.Error("applied before it was durable")
	}
	r.settle()
	if !slices.Equal(r.applied, []string{"a"}) {
		t.Errorf("applied %q", r.applied)
	}
}

func TestARestartAppliesWhatFollowsTheStoredState(t *testing.T) {
	r := openReplica(t, 1, []uint64{1}, replogtest.NewDisk(), nil, 0)
	if err := r.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	r.settle()
	for i := range 5 {
		if err := r.core.Propose(fmt.Appendf(nil, "e%d", i)); err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	stored := r.index - 2 // the last two entries were applied in memory only
	after := openReplica(t, 1, []uint64{1}, r.disk.Crash(0, 1), slices.Clone(r.applied[:3]), stored)
	if err := after.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	after.settle()
	if want := []string{"e0", "e1", "e2", "e3", "e4"}; !slices.Equal(after.applied, want) {
		t.Errorf("applied %q, want %q", after.applied, want)
	}
}

func TestALogThatEndsBeforeTheStoredStateIsRefused(t *testing.T) {
	r := openReplica(t, 1, []uint64{1}, replogtest.NewDisk(), nil, 0)
	_, err := replog.New(replog.Config{Replica: 1, Voters: []uint64{1}, Applied: 99, Log: r.log})
	if err == nil {
		t.Error("a log without applied entries was accepted")
	}
}

// cluster drives three replicas; messages are delivered in a random order, and may be lost.
type cluster struct {
	t    *testing.T
	all  map[uint64]*replica
	rnd  *rand.Rand
	cut  map[uint64]bool
	mail []mail
}

type mail struct {
	to   uint64
	data []byte
}

func (c *cluster) turn() {
	for _, id := range slices.Sorted(maps.Keys(c.all)) {
		r := c.all[id]
		if c.rnd.IntN(3) == 0 {
			if err := r.core.Tick(); err != nil {
				c.t.Fatal(err)
			}
		}
		r.step()
		if c.rnd.IntN(2) == 0 {
			r.sync()
		}
		if c.rnd.IntN(4) == 0 {
			if err := r.core.TellNews(); err != nil {
				c.t.Fatal(err)
			}
		}
		for _, m := range r.out {
			if !c.cut[id] && !c.cut[m.To] && c.rnd.IntN(20) > 0 {
				c.mail = append(c.mail, mail{m.To, m.Data})
			}
		}
		r.out = nil
	}
	for n := c.rnd.IntN(len(c.mail) + 1); n > 0; n-- {
		i := c.rnd.IntN(len(c.mail))
		m := c.mail[i]
		c.mail = slices.Delete(c.mail, i, i+1)
		if c.all[m.to] == nil {
			continue
		}
		_ = c.all[m.to].core.Step(m.data) // a replica may refuse a message of another term
	}
}

func (c *cluster) leader() *replica {
	for _, id := range slices.Sorted(maps.Keys(c.all)) {
		if r := c.all[id]; !c.cut[id] && r.core.Status().Leading {
			return r
		}
	}
	return nil
}

func TestThreeReplicasAgreeThroughCutsAndCrashes(t *testing.T) {
	for seed := range uint64(8) {
		c := &cluster{t: t, all: map[uint64]*replica{}, rnd: rand.New(rand.NewPCG(seed, 7)), cut: map[uint64]bool{}}
		voters := []uint64{1, 2, 3}
		for _, id := range voters {
			c.all[id] = openReplica(t, id, voters, replogtest.NewDisk(), nil, 0)
		}
		proposed := 0
		for turn := range 3000 {
			c.turn()
			if l := c.leader(); l != nil && c.rnd.IntN(4) == 0 {
				if l.core.Propose(fmt.Appendf(nil, "p%d", proposed)) == nil {
					proposed++
				}
			}
			switch id := 1 + uint64(c.rnd.IntN(3)); {
			case turn%400 == 399: // power cut: what was not synced may be gone, and nothing that was applied is stored
				disk := c.all[id].disk.Crash(c.rnd.IntN(101), c.rnd.Uint64())
				c.all[id] = openReplica(t, id, voters, disk, nil, 0)
			case turn%250 == 249:
				c.cut = map[uint64]bool{id: true}
			case turn%250 == 120:
				c.cut = map[uint64]bool{}
			}
		}
		c.cut = map[uint64]bool{}
		for range 3000 {
			c.turn()
		}
		long := c.all[1].applied
		for _, id := range voters {
			if a := c.all[id].applied; len(a) > len(long) {
				long = a
			}
		}
		if len(long) == 0 {
			t.Fatalf("seed %d: nothing was applied", seed)
		}
		for _, id := range voters {
			a := c.all[id].applied
			if !slices.Equal(a, long[:len(a)]) {
				t.Fatalf("seed %d: replica %d disagrees", seed, id)
			}
			if len(long)-len(a) > 50 {
				t.Errorf("seed %d: replica %d applied %d of %d", seed, id, len(a), len(long))
			}
		}
	}
}
