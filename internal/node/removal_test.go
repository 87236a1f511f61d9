package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// Those who wait on a namespace are told when it is removed, and what comes for it afterwards is refused until it is looked up.
func TestThoseWhoWaitOnARemovedNamespaceAreTold(t *testing.T) {
	t.Parallel()
	r := openRig(t, rigOptions{})
	defer r.close()
	ctx := within(t, 30*time.Second)
	s := endSink{newSink(), make(chan core.Fact, 1)}
	ses, _, err := r.node.Session(ctx, r.ns, core.SessionSpec{ID: core.SessionID{1}, Worker: "w"}, s)
	if err != nil {
		t.Fatal(err)
	}
	ses.Subscribe(core.Subscription{Sub: 1, Slots: 4, Queues: []core.GrantQueue{{Name: "q", Weight: 1}}})
	claimed := make(chan error, 1)
	go func() {
		_, _, err := r.node.Claim(ctx, r.ns, core.ClaimSpec{Queues: []core.GrantQueue{{Name: "q", Weight: 1}}, Max: 1, Wait: 60_000})
		claimed <- err
	}()
	r.until(ctx, "the claim does not wait", func() bool {
		d := r.node.shards[0].disp
		d.mu.Lock()
		defer d.mu.Unlock()
		dm := d.demands[queueKey{r.ns, "q"}]
		return dm != nil && len(dm.subs) == 2
	})

	r.must(&core.KVPut{Keyspace: "k", Key: []byte("x"), Value: []byte("v")})
	var held core.NotEmpty
	if existed, err := r.node.RemoveNamespace(ctx, "acme", "default"); existed || !errors.As(err, &held) || len(held.Held) != 1 || held.Held[0] != "keys" {
		t.Fatalf("with a key: %v, %v", existed, err)
	}
	r.must(&core.KVDelete{Keyspace: "k", Key: []byte("x")}) // it is open again
	select {
	case err := <-claimed:
		t.Fatalf("the claim ended with a removal that was taken back: %v", err)
	default:
	}

	if existed, err := r.node.RemoveNamespace(ctx, "acme", "default"); !existed || err != nil {
		t.Fatalf("empty: %v, %v", existed, err)
	}
	var unknown core.NotFound
	if err := <-claimed; !errors.As(err, &unknown) || unknown.Kind != "namespace" {
		t.Errorf("the claim ended with %v", err)
	}
	if why := <-s.ended; why != (core.NotFound{Kind: "namespace"}) {
		t.Errorf("the stream ended with %v", why)
	}
	if p := r.propose(core.Commit{Ops: []core.Op{&core.KVPut{Keyspace: "k", Key: []byte("x")}}}); p.Err != (core.NotFound{Kind: "namespace"}) {
		t.Errorf("a put that knows the partition: %+v", p)
	}
	if existed, err := r.node.RemoveNamespace(ctx, "acme", "default"); existed || err != nil {
		t.Errorf("again: %v, %v", existed, err)
	}

	// A node whose cache is old is refused for a while: the call does not wait there.
	r.node.dirMu.Lock()
	r.node.partitions[r.ns] = 0
	r.node.dirMu.Unlock()
	if p := r.propose(core.Commit{Ops: []core.Op{&core.KVPut{Keyspace: "k", Key: []byte("x")}}}); p.Err != nil || p.Results[0].Refusal == nil || p.Results[0].Refusal.Fact != removedFact {
		t.Errorf("a put at an old cache: %+v", p)
	}
	if c, _, err := r.node.NamespaceConfig(ctx, r.ns, core.ReadOptions{}); !errors.Is(err, removedFact) {
		t.Errorf("its configuration at an old cache: %+v, %v", c, err)
	}
	if _, _, err := r.node.Claim(ctx, r.ns, core.ClaimSpec{Queues: []core.GrantQueue{{Name: "q", Weight: 1}}, Max: 1, Wait: 60_000}); !errors.Is(err, removedFact) {
		t.Errorf("a claim at an old cache: %v", err)
	}
	if _, _, err := r.node.Session(ctx, r.ns, core.SessionSpec{ID: core.SessionID{2}}, newSink()); !errors.Is(err, removedFact) {
		t.Errorf("a session at an old cache: %v", err)
	}

	info, err := r.node.Namespace(ctx, "acme", "default", true)
	if err != nil || info.Namespace == r.ns.Namespace {
		t.Errorf("made again: %+v, %v", info, err)
	}
}

// endSink is a stream that tells its end.
type endSink struct {
	*sink
	ended chan core.Fact
}

func (s endSink) End(why core.Fact) { s.ended <- why }

// until waits for something that takes a while.
func (r *rig) until(ctx context.Context, why string, is func() bool) {
	r.t.Helper()
	for !is() {
		select {
		case <-ctx.Done():
			r.t.Fatal(why)
		case <-time.After(time.Millisecond):
		}
	}
}

func marksOf(t *testing.T, n *Node) (out []commit.Removal) {
	t.Helper()
	if err := n.shards[0].store.View(func(v core.View) (err error) {
		out, err = commit.Removals(v)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// halfDone takes the removal of a namespace up to a step, and leaves it.
func halfDone(ctx context.Context, t *testing.T, n *Node, name string, steps int) {
	t.Helper()
	m := n.remover()
	began, err := m.directory(ctx, &core.NamespaceRemove{Step: core.RemovalBegin, Tenant: "acme", Name: name})
	if err != nil || !began.Existed {
		t.Fatal(began, err)
	}
	removal, ok, err := m.find(ctx, began.Tenant, began.Namespace)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if steps > 0 {
		if err := m.partition(ctx, removal.Space.Partitions[0], &core.PartitionRemove{Step: core.PartitionClose, ID: removal.ID}); err != nil {
			t.Fatal(err)
		}
	}
	if steps > 1 {
		if err := m.each(ctx, removal, core.PartitionClose); err != nil {
			t.Fatal(err)
		}
		if err := m.mark(ctx, removal, core.RemovalFinish); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that stops in the middle of removals goes on with them when it starts again: those of empty namespaces it finishes,
// the others it takes back.
func TestARemovalThatWasLeftIsGoneOnWithAfterARestart(t *testing.T) {
	t.Parallel()
	disk := replogtest.NewDisk()
	o := rigOptions{disk: disk, node: Options{Shards: 2, RemovalWait: time.Hour}}
	r := openRig(t, o)
	ctx := within(t, 60*time.Second)
	spaces := make(map[string]core.NamespaceInfo)
	for name, steps := range map[string]int{"begun": 0, "closed": 1, "kept": 1, "finished": 2} {
		info, _, err := r.node.CreateNamespace(ctx, "acme", name, 3)
		if err != nil {
			t.Fatal(err)
		}
		spaces[name] = info
		if name == "kept" {
			p := info.Partitions[2].Partition
			if got := r.node.Forward(ctx, p, []core.Commit{{Partition: p, Ops: []core.Op{&core.KVPut{Keyspace: "k", Key: []byte("x"), Value: []byte("v")}}}}); got.Err != nil || got.Results[0].Refusal != nil {
				t.Fatalf("%+v", got)
			}
		}
		halfDone(ctx, t, r.node, name, steps)
	}
	if marks := marksOf(t, r.node); len(marks) != 4 {
		t.Fatalf("marks %+v", marks)
	}
	r.close()

	o.node.RemovalWait = time.Millisecond
	r = openRig(t, o)
	defer r.close()
	r.until(ctx, "marks stay", func() bool { return len(marksOf(t, r.node)) == 0 })
	for name, was := range spaces {
		info, ok, err := r.node.FindNamespace("acme", name)
		if err != nil || ok != (name == "kept") {
			t.Errorf("%s: is there %v, %v", name, ok, err)
		}
		if !ok {
			for _, p := range was.Partitions {
				if err := r.node.shards[p.Shard].store.View(func(v core.View) error {
					cleared, err := commit.Cleared(v, p.Partition)
					if !cleared {
						t.Errorf("%s: partition %s is not cleared", name, p.Partition)
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		for _, p := range info.Partitions {
			got := r.node.Forward(ctx, p.Partition, []core.Commit{{Partition: p.Partition, Ops: []core.Op{&core.KVPut{Keyspace: "k", Key: []byte("y"), Value: []byte("v")}}}})
			if got.Err != nil || got.Results[0].Refusal != nil {
				t.Errorf("partition %s does not take writes again: %+v", p.Partition, got)
			}
		}
	}
}

// Every node drops a namespace that was removed at any node, wherever its partitions are led; and the leader of the directory
// goes on with a removal whose node is gone.
func TestARemovedNamespaceIsGoneFromEveryNode(t *testing.T) {
	c := openCluster(t, 3, Options{TickEvery: patient.TickEvery, Shards: 4, RemovalWait: 200 * time.Millisecond})
	ctx := within(t, 60*time.Second)
	for round, r := range []*rig{c.rigs[1], c.rigs[2], c.rigs[3]} {
		info, _, err := r.node.CreateNamespace(ctx, "acme", "shop", 6)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range c.rigs {
			if _, err := other.node.Namespace(ctx, "acme", "shop", false); err != nil {
				t.Fatal(err)
			}
		}
		p := info.Partitions[5].Partition
		put := core.Commit{Partition: p, Ops: []core.Op{&core.KVPut{Keyspace: "k", Key: []byte("x"), Value: []byte("v")}}}
		if got := r.node.Forward(ctx, p, []core.Commit{put}); got.Err != nil || got.Results[0].Refusal != nil {
			t.Fatalf("%+v", got)
		}
		var held core.NotEmpty
		if _, err := r.node.RemoveNamespace(ctx, "acme", "shop"); !errors.As(err, &held) {
			t.Fatalf("with a key: %v", err)
		}
		gone := core.Commit{Partition: p, Ops: []core.Op{&core.KVDelete{Keyspace: "k", Key: []byte("x")}}}
		if got := r.node.Forward(ctx, p, []core.Commit{gone}); got.Err != nil || got.Results[0].Refusal != nil {
			t.Fatalf("after a removal that was taken back: %+v", got)
		}
		if round == 2 {
			halfDone(ctx, t, r.node, "shop", 1)
		} else if existed, err := r.node.RemoveNamespace(ctx, "acme", "shop"); err != nil || !existed {
			t.Fatalf("node %d: %v, %v", round+1, existed, err)
		}
		for id, other := range c.rigs {
			c.until(ctx, "a node knows a namespace that was removed", func() bool {
				other.node.dirMu.RLock()
				defer other.node.dirMu.RUnlock()
				_, space := other.node.namespaces[nsKey{"acme", "shop"}]
				_, part := other.node.partitions[p]
				return !space && !part
			})
			var unknown core.NotFound
			if _, err := other.node.Namespace(ctx, "acme", "shop", false); !errors.As(err, &unknown) {
				t.Errorf("node %d finds it: %v", id, err)
			}
		}
		c.until(ctx, "a mark stays", func() bool { return len(marksOf(t, r.node)) == 0 })
	}
}

// What a node looks up while a namespace leaves the directory is not cached.
func TestALookUpDoesNotBringARemovedNamespaceBack(t *testing.T) {
	t.Parallel()
	r := openRig(t, rigOptions{})
	defer r.close()
	k := nsKey{"acme", "default"}
	info, _ := r.node.cached(k)
	r.node.dirMu.RLock()
	drops := r.node.dirDrops
	r.node.dirMu.RUnlock()
	r.node.dropNamespace(&info)
	if r.node.keepNamespace(k, info, drops) {
		t.Error("a namespace that was dropped meanwhile is cached")
	}
	if _, ok := r.node.cached(k); ok {
		t.Error("it is found")
	}
	other := info
	other.Namespace = 99
	if _, ok, err := r.node.FindNamespace("acme", "default"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r.node.dropNamespace(&other) // one of that name before
	if _, ok := r.node.cached(k); !ok {
		t.Error("the namespace went with another one of its name")
	}
}
