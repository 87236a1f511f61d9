package node

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// tight keeps little of the log, so that a node that was away needs a snapshot.
var tight = Options{
	TickEvery: 50 * time.Millisecond, LogQuota: 3 << 20, LogKeep: 256 << 10, DiskEvery: 20 * time.Millisecond, SnapshotPart: 8 << 10,
}

// outrun cuts a follower off, or stops it, and goes on until the logs of the others, each of whom may lead it, no longer have
// what it needs. It returns the follower's number.
func (c *cluster) outrun(stop bool) (away uint64, tasks int) {
	c.t.Helper()
	ctx := within(c.t, 60*time.Second)
	lead := c.leader(ctx, 0, 0)
	lead.ns = c.ns
	away = lead.node.o.Replica%3 + 1
	if stop {
		c.stop(away)
	} else {
		c.wires.alone(away, true)
	}
	had := lead.log.State(0).Last // its log may go beyond what it has applied, not beyond this
	needed := func() bool {
		for id, r := range c.rigs {
			if id != away && r.log.State(0).CutIndex <= had {
				return true
			}
		}
		return false
	}
	for needed() {
		if ctx.Err() != nil {
			c.t.Fatal("the log is not cut")
		}
		payload := bytes.Repeat([]byte{byte(tasks)}, 16<<10)
		c.commit(ctx, away, &core.TaskCreate{ID: taskID(tasks), Queue: "q", Payload: payload}, &core.KVPut{Keyspace: "s", Key: fmt.Append(nil, tasks), Value: payload[:100]})
		tasks++
	}
	return away, tasks
}

// same compares all that is stored of a shard on all nodes, as of one entry.
func (c *cluster) same() {
	c.t.Helper()
	var contents map[uint64]uint64
	c.until(within(c.t, 20*time.Second), "no entry is the last one of all nodes", func() bool {
		contents = map[uint64]uint64{}
		indexes := map[uint64]bool{}
		for id, r := range c.rigs {
			index, content, _, err := r.node.shards[0].store.ScanHash()
			if err != nil {
				c.t.Fatal(err)
			}
			contents[content], indexes[index] = id, true
		}
		return len(indexes) == 1
	})
	if len(contents) != 1 {
		c.t.Errorf("what the nodes have stored differs: %v", contents)
	}
}

func TestANodeThatIsBehindTheLogGetsASnapshot(t *testing.T) {
	for _, stop := range []bool{false, true} {
		t.Run(fmt.Sprint("stopped ", stop), func(t *testing.T) {
			c := openCluster(t, 3, tight)
			away, tasks := c.outrun(stop)
			if stop {
				c.start(away)
			} else {
				c.wires.alone(away, false)
			}
			ctx := within(t, 60*time.Second)
			r := c.rigs[away]
			c.until(ctx, "the node gets no snapshot", func() bool { return r.node.shards[0].snap.count.installed.Load() > 0 })
			c.known(ctx)
			for i := range tasks {
				if _, _, err := r.node.Task(ctx, c.ns, taskID(i), core.ReadOptions{}); err != nil {
					t.Fatalf("task %d of %d: %v", i, tasks, err)
				}
			}
			c.commit(ctx, 0, &core.TaskCreate{ID: taskID(tasks), Queue: "q"}) // and the log goes on behind it
			c.same()
			made := uint64(0)
			for _, r := range c.rigs {
				made += r.node.shards[0].snap.count.made.Load()
			}
			if made > 2 {
				t.Errorf("%d snapshots were made for one node", made)
			}

			c.stop(away) // what it has is durable
			c.start(away)
			c.same()

			lead := c.leader(ctx, 0, 0)
			lead.node.Transfer(ctx, 0, away) //nolint:errcheck // whether it leads is seen below
			c.until(ctx, "the node does not lead", func() bool {
				_, serves := c.rigs[away].node.Leads(0)
				return serves
			})
			c.known(ctx)
			r = c.rigs[away]
			r.ns = c.ns
			given := 0
			for given <= tasks {
				for _, a := range r.claim("q", 100, 60_000) {
					if a.Task != taskID(given) {
						t.Fatalf("as the leader it gives out %s as task %d", a.Task, given)
					}
					given++
				}
			}
			c.same()
		})
	}
}

// Spares lie ready whatever the log holds: were they a part of what is kept for nodes that are behind, a log with some of
// them would be cut at once, and a node that fetches a snapshot would never find what is behind it.
func TestALogIsNotLongForItsSpares(t *testing.T) {
	o := tight
	o.LogQuota = 128 << 10
	c := openCluster(t, 1, o)
	r := c.rigs[1]
	c.until(within(t, 30*time.Second), "there are no spares", func() bool { return r.log.Stats().SpareBytes >= o.LogQuota })
	if r.node.logFull() {
		t.Errorf("%+v is more than is kept", r.log.Stats())
	}
}

func TestAMarkerWithoutItsStateIsForgotten(t *testing.T) {
	c := openCluster(t, 3, tight)
	ctx := within(t, 30*time.Second)
	for i := range 20 {
		c.commit(ctx, 0, &core.TaskCreate{ID: taskID(i), Queue: "q"})
	}
	c.settled(0)
	id := c.leader(ctx, 0, 0).node.o.Replica%3 + 1
	n := c.rigs[id].node
	if err := n.writeMarker(n.markerFile(0), n.shards[0].view.applied.Load()+50, 9); err != nil {
		t.Fatal(err)
	}
	before := c.rigs[id].log.State(0)
	c.stop(id)
	c.start(id)
	if after := c.rigs[id].log.State(0); after.CutIndex != before.CutIndex || after.Last < before.Last {
		t.Errorf("the log was %+v and is %+v", before, after)
	}
	c.same()
}

func TestAStartFinishesWithTheLogWhenTheStateWasExchanged(t *testing.T) {
	c := openCluster(t, 3, tight)
	away, _ := c.outrun(false)
	lead := c.leader(within(t, 30*time.Second), 0, away).node.shards[0]
	snap, err := lead.store.Export("data/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	term, err := lead.n.o.Log.Term(0, snap.Index)
	if err != nil {
		t.Fatal(err)
	}
	// The files are carried over, and the node ends between the exchange of the state and that of the log.
	n := c.rigs[away].node
	from, to := c.disks[lead.n.o.Replica].FS, c.disks[away].FS
	if err := to.MkdirAll("data/carried"); err != nil {
		t.Fatal(err)
	}
	for _, f := range snap.Files {
		b := make([]byte, f.Size)
		in, err := from.Open("data/elsewhere/" + f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		out, err := to.Create("data/carried/" + f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := out.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.writeMarker(n.markerFile(0), snap.Index, term); err != nil {
		t.Fatal(err)
	}
	promised, vote, err := replog.DurableVote(c.rigs[away].log, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.shards[0].store.Install("data/carried", snap); err != nil {
		t.Fatal(err)
	}
	c.stop(away)
	c.start(away)
	if st := c.rigs[away].log.State(0); st.CutIndex < snap.Index {
		t.Errorf("the log begins at %d, the state is that of %d", st.CutIndex, snap.Index)
	}
	if term, again, err := replog.DurableVote(c.rigs[away].log, 0); err != nil || term < promised || term == promised && again != vote {
		t.Errorf("in term %d the vote was %d; now term %d, %d, %v", promised, vote, term, again, err)
	}
	c.wires.alone(away, false)
	c.same()
}

func TestAFetchGoesOnAfterItsConnectionStoodStill(t *testing.T) {
	r := openRig(t, rigOptions{node: Options{SnapshotPart: 1 << 10}})
	defer r.close()
	value, random := make([]byte, 10<<10), rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(random.Uint32())
	}
	r.must(&core.KVPut{Keyspace: "s", Key: []byte("k"), Value: value})
	s := r.node.shards[0]
	snap, err := s.store.Export("data/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	work := func(f func()) { // in addition to what the node's own ticks want of the fetch
		done := make(chan struct{})
		r.node.files <- func() { defer close(done); f() }
		<-done
	}
	part := make([]byte, 1<<10)
	var f *fetch
	var before snapshotPlace
	work(func() {
		s.beginFetch(&replog.Offer{From: 2, Index: snap.Index, Data: snap.Append(nil)}, snap)
		f = s.snap.fetch
		s.takePart(2, append(f.at.append(nil), part...))
		if before = f.at; before.offset == 0 {
			t.Error("a part was not taken")
		}
		now := r.node.o.Clock.Boot()
		for d := time.Duration(0); d < 20*time.Second; d += r.node.o.TickEvery {
			s.tickFetch(now + d)
		}
	})
	work(func() {
		if s.snap.fetch != f || f.at != before {
			t.Error("after a standstill of 20 s a fetch starts from scratch")
			return
		}
		s.takePart(2, append(f.at.append(nil), part...))
		if f.at.offset <= before.offset {
			t.Error("no part is taken after a standstill")
		}
		s.tickFetch(r.node.o.Clock.Boot() + leaderSilence)
		if s.snap.fetch != nil {
			t.Error("a leader that is silent is not given up")
		}
	})
}

// While a large state is verified its node goes on with other files, and neither side takes the other for gone.
func TestAStateThatTakesLongToVerifyIsFetchedOnce(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	o := tight
	o.verify = func(s *store.Shard, dir string, snap store.Snapshot) error {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-release
		return s.Verify(dir, snap)
	}
	c := openCluster(t, 3, o)
	away, _ := c.outrun(false)
	c.wires.alone(away, false)
	ctx := within(t, 60*time.Second)
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatalf("nothing is verified: its log is %+v", c.rigs[away].log.State(0))
	}
	r := c.rigs[away]
	s := r.node.shards[0]
	done := make(chan struct{})
	r.node.files <- func() {
		defer close(done)
		f := s.snap.fetch
		if f == nil || !f.whole {
			t.Errorf("what is verified is %+v", f)
			return
		}
		now := r.node.o.Clock.Boot()
		s.tickFetch(now + 2*leaderSilence)
		if s.snap.fetch != f || f.said < now+leaderSilence {
			t.Error("a fetch that is verified is given up, or the leader does not hear of it")
		}
		f.said = now
		s.beginFetch(f.offer, f.snap) // as the leader offers it again
		if s.snap.fetch != f || f.at.file == 0 {
			t.Error("what is verified is fetched once more")
		}
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("nothing else is done while a snapshot is verified")
	}
	close(release)
	c.until(ctx, "the snapshot is not installed", func() bool { return s.snap.count.installed.Load() > 0 })
	c.same()
	c.until(ctx, "it is not done with the snapshot", func() bool { return !s.snap.fetching.Load() })
	if n := s.snap.count.installed.Load(); n != 1 {
		t.Errorf("%d snapshots were installed", n)
	}
}
