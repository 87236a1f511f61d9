package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// wires is a network between the nodes of a test. Messages arrive at once, or never where a wire is cut.
type wires struct {
	t     *testing.T
	mu    sync.Mutex // guards the fields below
	nodes map[uint64]*Node
	cut   map[[2]uint64]bool          // from, to
	lost  byte                        // kind of message that never arrives; 0: none
	alter func(to uint64, msg []byte) // changes what arrives; nil: nothing
}

// plug is one node's end of wires.
type plug struct {
	w    *wires
	from uint64
}

func (p plug) Send(to uint64, shard core.ShardID, class Class, msg []byte) bool {
	if (msg[0] == peerSnapshotPart) != (class == Parts) {
		p.w.t.Errorf("a message of kind %d is sent as one of class %d", msg[0], class)
	}
	p.w.mu.Lock()
	n := p.w.nodes[to]
	if p.w.cut[[2]uint64{p.from, to}] || p.w.lost != 0 && msg[0] == p.w.lost {
		n = nil
	}
	alter := p.w.alter
	p.w.mu.Unlock()
	if n == nil {
		return false
	}
	msg = append([]byte(nil), msg...)
	if alter != nil {
		alter(to, msg)
	}
	n.Receive(p.from, shard, msg)
	return true
}

// Reaches reports whether a message would arrive.
func (p plug) Reaches(to uint64) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.nodes[to] != nil && !p.w.cut[[2]uint64{p.from, to}]
}

// alone cuts all wires of a node, or joins them again.
func (w *wires) alone(id uint64, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other := range w.nodes {
		w.cut[[2]uint64{id, other}], w.cut[[2]uint64{other, id}] = cut, cut
	}
}

// cluster is nodes of one test, each with a disk of its own.
type cluster struct {
	t     *testing.T
	wires *wires
	disks map[uint64]*replogtest.Disk
	rigs  map[uint64]*rig
	n     int
	o     Options
	clock func(id uint64) env.Clock // nil: that of o
	ns    core.Partition
}

func openCluster(t *testing.T, n int, o Options) *cluster {
	t.Helper()
	return openClusterOn(t, n, o, func(_ uint64, fs env.FS) env.FS { return fs })
}

// openClusterOn is openCluster on the disks that wrap makes of those of the nodes.
func openClusterOn(t *testing.T, n int, o Options, wrap func(id uint64, fs env.FS) env.FS) *cluster {
	t.Helper()
	c := newCluster(t, n, o)
	c.startAll(wrap)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lead := c.leader(ctx, 0, 0)
	info, err := lead.node.Namespace(ctx, "acme", "default", true)
	if err != nil {
		t.Fatalf("namespace: %v", err)
	}
	c.ns = info.Partitions[0].Partition
	return c
}

// newCluster makes a cluster of which no node runs.
func newCluster(t *testing.T, n int, o Options) *cluster {
	t.Helper()
	c := &cluster{
		t: t, n: n, o: o, disks: make(map[uint64]*replogtest.Disk), rigs: make(map[uint64]*rig),
		wires: &wires{t: t, nodes: make(map[uint64]*Node), cut: make(map[[2]uint64]bool)},
	}
	t.Cleanup(func() {
		for id := range c.rigs {
			c.stop(id)
		}
	})
	return c
}

// startAll starts all nodes on the disks that wrap makes of new ones.
func (c *cluster) startAll(wrap func(id uint64, fs env.FS) env.FS) {
	c.t.Helper()
	for id := uint64(1); id <= uint64(c.n); id++ {
		c.disks[id] = replogtest.NewDisk()
		c.disks[id].FS = wrap(id, c.disks[id].FS)
		c.start(id)
	}
}

func (c *cluster) start(id uint64) {
	c.t.Helper()
	o := c.o
	o.Replica, o.Address, o.Network = id, fmt.Sprint("n", id), plug{c.wires, id}
	if o.TickEvery == 0 {
		o.TickEvery = 20 * time.Millisecond
	}
	for other := uint64(1); other <= uint64(c.n); other++ {
		if other != id {
			o.Peers = append(o.Peers, Peer{Replica: other, Address: fmt.Sprint("n", other)})
		}
	}
	clock := c.o.Clock
	if c.clock != nil {
		clock = c.clock(id)
	}
	r, err := startRig(c.t, rigOptions{disk: c.disks[id], clock: clock, node: o})
	if err != nil {
		c.t.Fatalf("node %d: %v", id, err)
	}
	r.ns = c.ns
	c.rigs[id] = r
	c.wires.mu.Lock()
	c.wires.nodes[id] = r.node
	c.wires.mu.Unlock()
}

// stop ends a node as a clean stop does.
func (c *cluster) stop(id uint64) {
	c.wires.mu.Lock()
	delete(c.wires.nodes, id)
	c.wires.mu.Unlock()
	c.rigs[id].close()
	delete(c.rigs, id)
}

// leader waits until a node serves a shard, other than one that may be cut off and not know it.
func (c *cluster) leader(ctx context.Context, shard int, other uint64) (lead *rig) {
	c.t.Helper()
	c.until(ctx, fmt.Sprintf("shard %d has no leader", shard), func() bool {
		for id, r := range c.rigs {
			if _, serves := r.node.Leads(core.ShardID(shard)); serves && id != other {
				lead = r
			}
		}
		return lead != nil
	})
	return lead
}

// commit makes a commit at the node that leads shard 0, and repeats it where leadership was lost on the way: for
// operations that may be repeated. It returns that node.
func (c *cluster) commit(ctx context.Context, other uint64, ops ...core.Op) *rig {
	c.t.Helper()
	for {
		lead := c.leader(ctx, 0, other)
		lead.ns = c.ns
		p := lead.propose(core.Commit{Ops: ops})
		if p.Err == nil && p.Results[0].Refusal == nil {
			return lead
		}
		if p.Err == nil || ctx.Err() != nil {
			c.t.Fatalf("commit: %v, %+v", p.Err, p.Results)
		}
	}
}

// until waits for something to become true.
func (c *cluster) until(ctx context.Context, why string, is func() bool) {
	c.t.Helper()
	for !is() {
		select {
		case <-ctx.Done():
			c.t.Fatalf("%s: %v\n%s", why, ctx.Err(), c.state())
		case <-time.After(time.Millisecond):
		}
	}
}

// state tells how shard 0 stands on each node, for who reads that a test failed.
func (c *cluster) state() string {
	var b strings.Builder
	for id, r := range c.rigs {
		s := &r.node.shards[0].snap
		fmt.Fprintf(&b, "node %d: %+v, snapshots made %d, sent %d, installed %d, hold %d, fetching %v, log %+v\n", id, r.node.Standings()[0],
			s.count.made.Load(), s.count.sent.Load(), s.count.installed.Load(), s.hold.Load(), s.fetching.Load(), r.log.Stats())
	}
	return b.String()
}

// known has every node look its namespace up, as an edge does for each call.
func (c *cluster) known(ctx context.Context) {
	c.t.Helper()
	for id, r := range c.rigs {
		c.until(ctx, fmt.Sprintf("node %d does not know the namespace", id), func() bool {
			_, ok, err := r.node.FindNamespace("acme", "default")
			if err != nil {
				c.t.Fatal(err)
			}
			return ok
		})
	}
}

// settled waits until all nodes have applied the same of a shard, and compares their apply hashes.
func (c *cluster) settled(shard int) {
	c.t.Helper()
	c.until(within(c.t, 20*time.Second), "replicas do not catch up", func() bool {
		hashes, indexes := make(map[uint64]bool), make(map[uint64]bool)
		for _, r := range c.rigs {
			if clock, ok := r.node.o.Clock.(*stopClock); ok {
				clock.pass(newsWait) // followers are told after that what is committed
			}
			index, hash := r.node.shards[shard].store.Applied()
			hashes[hash], indexes[index] = true, true
		}
		if len(indexes) == 1 && len(hashes) > 1 {
			c.t.Fatalf("shard %d: replicas differ at one index", shard)
		}
		return len(indexes) == 1
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// patient keeps its leader also where the tests of all packages run at once.
var patient = Options{TickEvery: 200 * time.Millisecond}

func TestThreeReplicasApplyTheSame(t *testing.T) {
	c := openCluster(t, 3, patient)
	lead := c.leader(within(t, 30*time.Second), 0, 0)
	lead.ns = c.ns
	for i := range 300 {
		lead.must(&core.TaskCreate{ID: taskID(i), Queue: "q"})
	}
	tasks := lead.claim("q", 100, 60_000)
	for _, a := range tasks {
		lead.must(&core.TaskComplete{Task: a.Task, Token: a.Token}, &core.KVPut{Keyspace: "s", Key: a.Task[:], Value: []byte("v")})
	}
	c.settled(0)
}

// Who is answered while an entry is being applied may do with the answer what it likes: the hash is of what was judged.
func TestAnAnswerThatIsChangedByItsReceiverChangesNoHash(t *testing.T) {
	c := openCluster(t, 3, patient)
	lead := c.leader(within(t, 30*time.Second), 0, 0)
	lead.ns = c.ns
	done := make(chan struct{})
	lead.node.Propose(c.ns, []core.Commit{{
		Partition: c.ns, Principal: "test", Ops: []core.Op{&core.TaskComplete{Task: taskID(1), Token: 7}},
	}}, func(p core.Proposed) {
		if p.Err != nil || p.Results[0].Refusal == nil {
			t.Errorf("the completion of no task: %+v", p)
		} else {
			p.Results[0].Refusal.Fact = core.NotFound{Kind: "something", ID: "else"}
		}
		close(done)
	})
	<-done
	lead.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	c.settled(0)
}

func TestAFollowerSendsWritersToTheLeaderAndReadsWhatWasAcknowledged(t *testing.T) {
	c := openCluster(t, 3, patient)
	ctx := within(t, 20*time.Second)
	lead := c.leader(ctx, 0, 0)
	lead.ns = c.ns
	c.known(ctx)
	for i := range 20 {
		lead.must(&core.TaskCreate{ID: taskID(i), Queue: "q"})
		for id, r := range c.rigs {
			if _, _, err := r.node.Task(ctx, c.ns, taskID(i), core.ReadOptions{}); err != nil {
				t.Fatalf("node %d does not show an acknowledged task: %v", id, err)
			}
		}
	}
	for _, r := range c.rigs {
		if r == lead {
			continue
		}
		r.ns = c.ns
		p := r.propose(core.Commit{Ops: []core.Op{&core.TaskCreate{ID: taskID(999), Queue: "q"}}})
		var moved core.NotLeader
		if !errors.As(p.Err, &moved) || moved.Leader != lead.node.o.Address {
			t.Errorf("a follower answers a write with %v, want the leader's address %q", p.Err, lead.node.o.Address)
		}
		if _, _, err := r.node.Claim(ctx, c.ns, core.ClaimSpec{Queues: []core.GrantQueue{{Name: "q"}}, Max: 1}); !errors.As(err, &moved) {
			t.Errorf("a follower answers a claim with %v, want the leader's address", err)
		}
		if _, _, err := r.node.Session(ctx, c.ns, core.SessionSpec{ID: core.SessionID{1}}, newSink()); !errors.As(err, &moved) {
			t.Errorf("a follower answers a stream with %v, want the leader's address", err)
		}
	}
}

// What clients name as times is held against shard time where they ask, and that may be a node that has never led.
func TestEveryNodeReckonsShardTime(t *testing.T) {
	c := openCluster(t, 3, patient)
	ctx := within(t, 20*time.Second)
	lead := c.leader(ctx, 0, 0)
	lead.ns = c.ns
	c.known(ctx)
	lead.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	for id, r := range c.rigs {
		_, at, err := r.node.Task(ctx, c.ns, taskID(1), core.ReadOptions{})
		if err != nil || at.Stamp == 0 {
			t.Fatalf("node %d: stamp %v, %v", id, at.Stamp, err)
		}
		first := r.node.Now(c.ns)
		if first < at.Stamp {
			t.Errorf("node %d is at %v, and has shown what is of %v", id, first, at.Stamp)
		}
		c.until(ctx, "time stands still", func() bool { return r.node.Now(c.ns) > first })
	}
}

func TestWhatWasAcknowledgedOutlivesItsLeader(t *testing.T) {
	c := openCluster(t, 3, Options{})
	created := 0
	for _, cut := range []bool{false, true, false, true} {
		ctx := within(t, 30*time.Second)
		var lead *rig
		for range 50 {
			lead = c.commit(ctx, 0, &core.TaskCreate{ID: taskID(created), Queue: "q"})
			created++
		}
		id := lead.node.o.Replica
		if cut {
			c.wires.alone(id, true)
		} else {
			c.stop(id)
		}
		next := c.leader(ctx, 0, id)
		c.known(ctx)
		for i := range created {
			if _, _, err := next.node.Task(ctx, c.ns, taskID(i), core.ReadOptions{}); err != nil {
				t.Fatalf("task %d of %d: %v", i, created, err)
			}
		}
		if !cut {
			c.start(id)
			continue
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if _, _, err := lead.node.Task(short, c.ns, taskID(0), core.ReadOptions{}); err == nil {
			t.Error("a leader that is cut off answers a linearizable read")
		}
		cancel()
		c.wires.alone(id, false)
	}
	c.settled(0)
}

func TestEachShardIsLedWhereItIsAtHome(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a shard stays where it is for ten seconds at least")
	}
	c := openCluster(t, 3, Options{Shards: 4})
	ctx := within(t, 60*time.Second)
	for shard, home := range []uint64{1, 2, 3, 1} {
		c.until(ctx, fmt.Sprintf("shard %d is not led by node %d", shard, home), func() bool {
			_, serves := c.rigs[home].node.Leads(core.ShardID(shard))
			return serves
		})
	}
}
