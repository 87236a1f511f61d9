package node

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// quotaRig is a node with a namespace of several partitions, whose tenant is bounded.
func quotaRig(t *testing.T, partitions int, bounds core.TenantConfig) (*rig, []core.Partition) {
	t.Helper()
	r := openRig(t, rigOptions{node: Options{Shards: partitions, DiskEvery: 5 * time.Millisecond}})
	t.Cleanup(r.close)
	info, _, err := r.node.CreateNamespace(t.Context(), "acme", "bounded", partitions)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.node.SetTenant(t.Context(), "acme", bounds, 0); err != nil {
		t.Fatal(err)
	}
	var all []core.Partition
	for _, p := range info.Partitions {
		all = append(all, p.Partition)
	}
	return r, all
}

// told waits until a partition was told of its tenant what ok wants.
func (r *rig) told(p core.Partition, ok func(core.TenantQuota) bool) {
	r.t.Helper()
	s, err := r.node.shardOf(p)
	if err != nil {
		r.t.Fatal(err)
	}
	until(func() bool {
		s.applier.machineMu.RLock()
		defer s.applier.machineMu.RUnlock()
		m := s.applier.machine.Queue(p)
		return m != nil && ok(m.Quota())
	})
}

func taskIn(p core.Partition, n int) core.TaskID {
	return core.NewTaskID(int64(n), p.Index, [9]byte{byte(n >> 8), byte(n)})
}

func limitOf(fact core.Fact) string {
	f, _ := errors.AsType[core.Exhausted](fact)
	return f.Limit
}

// TestATenantsQuotaOfTasksHoldsOverItsPartitions fills one partition up to the quota and looks at another one.
func TestATenantsQuotaOfTasksHoldsOverItsPartitions(t *testing.T) {
	const most = 20
	r, parts := quotaRig(t, 2, core.TenantConfig{Tasks: core.TaskBounds{Tasks: most, Bytes: 1 << 20}})
	n := 0
	create := func(p core.Partition) core.Fact {
		n++
		return r.in(p, &core.TaskCreate{ID: taskIn(p, n), Queue: "q"})
	}
	for _, p := range parts { // so that both are known
		if fact := create(p); fact != nil {
			t.Fatal(fact)
		}
		r.told(p, func(q core.TenantQuota) bool { return q.Bounds.Tasks == most })
	}
	made := 2
	for ; made < most+10; made++ { // exact in one partition, and it knows of the other one before the end
		if fact := create(parts[0]); fact != nil {
			if limitOf(fact) != "tenant_tasks" {
				t.Fatal(fact)
			}
			break
		}
		if made == most-2 {
			r.told(parts[0], func(q core.TenantQuota) bool { return q.Others.Tasks == 1 })
		}
	}
	if made != most {
		t.Errorf("%d tasks were made of %d", made, most)
	}
	r.told(parts[1], func(q core.TenantQuota) bool { return q.Others.Tasks == most-1 })
	if fact := create(parts[1]); limitOf(fact) != "tenant_tasks" {
		t.Errorf("in the other partition: %v", fact)
	}
	info, err := r.node.Tenant(t.Context(), "acme", core.ReadOptions{})
	if err != nil || info.Use.Tasks != most || info.Config.Tasks.Tasks != most {
		t.Errorf("the tenant has %+v, %v", info, err)
	}
	if fact := r.in(parts[0], &core.TaskCancel{Task: taskIn(parts[0], 1)}); fact != nil {
		t.Fatal(fact)
	}
	r.told(parts[1], func(q core.TenantQuota) bool { return q.Others.Tasks == most-2 })
	if fact := create(parts[1]); fact != nil {
		t.Errorf("when there is room again: %v", fact)
	}
	if _, err := r.node.SetTenant(t.Context(), "acme", core.TenantConfig{}, -1); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		r.told(p, func(q core.TenantQuota) bool { return q == core.TenantQuota{} })
	}
}

// TestQueuesGiveAgainWhenFewerTasksOfATenantRun has a claim wait for a task that may not run until another one has ended.
func TestQueuesGiveAgainWhenFewerTasksOfATenantRun(t *testing.T) {
	r, parts := quotaRig(t, 1, core.TenantConfig{Tasks: core.TaskBounds{Running: 1}})
	p := parts[0]
	for n := range 2 {
		if fact := r.in(p, &core.TaskCreate{ID: taskIn(p, n+1), Queue: "q"}); fact != nil {
			t.Fatal(fact)
		}
	}
	r.told(p, func(q core.TenantQuota) bool { return q.Bounds.Running == 1 })
	claim := func(wait core.Millis) []core.Assigned {
		tasks, _, err := r.node.Claim(t.Context(), p, core.ClaimSpec{
			Queues: []core.GrantQueue{{Name: "q", Weight: 1}}, Max: 2, Lease: 60_000, Wait: wait, Worker: "w",
		})
		if err != nil {
			t.Error(err)
		}
		return tasks
	}
	first := claim(60_000)
	if len(first) != 1 {
		t.Fatalf("%d tasks were given, of which one may run", len(first))
	}
	if more := claim(0); len(more) != 0 {
		t.Fatalf("%d more tasks were given", len(more))
	}
	second := make(chan []core.Assigned)
	go func() { second <- claim(60_000) }()
	s := r.node.shards[0]
	until(func() bool { return r.node.Stats().Shards[0].Claims == 1 })
	// What waits makes no entries: nothing is granted over and over.
	before := s.view.applied.Load()
	if fact := r.in(p, &core.TaskCreate{ID: taskIn(p, 3), Queue: "q"}); fact != nil {
		t.Fatal(fact)
	}
	if got := s.view.applied.Load() - before; got > 20 {
		t.Errorf("%d entries for one create", got)
	}
	if fact := r.in(p, &core.TaskComplete{Task: first[0].Task, Token: first[0].Token}); fact != nil {
		t.Fatal(fact)
	}
	if got := <-second; len(got) != 1 {
		t.Errorf("%d tasks were given when one had ended", len(got))
	}
}

// TestAPartitionIsToldOfOthersOnlyNearABound holds what is told against how much there is.
func TestAPartitionIsToldOfOthersOnlyNearABound(t *testing.T) {
	bounds := core.TaskBounds{Tasks: 1000, Running: 100}
	b := taskPart{use: core.TaskUse{Tasks: 100, Running: 10}}
	for _, c := range []struct {
		sum, grown core.TaskUse
		others     core.TaskUse
	}{
		{core.TaskUse{Tasks: 500, Running: 20}, core.TaskUse{}, core.TaskUse{}},
		{core.TaskUse{Tasks: 938, Running: 20}, core.TaskUse{}, core.TaskUse{Tasks: 838}},
		{core.TaskUse{Tasks: 500, Running: 20}, core.TaskUse{Tasks: 200}, core.TaskUse{Tasks: 400}}, // at the bound within three looks
		{core.TaskUse{Tasks: 500, Running: 90}, core.TaskUse{Running: 4}, core.TaskUse{Running: 80}},
	} {
		if got := b.news(bounds, c.sum, c.grown); got.Bounds != bounds || got.Others != c.others {
			t.Errorf("%+v, growing by %+v: told %+v", c.sum, c.grown, got)
		}
	}
}

// TestStreamsOfATenantAreBoundedOverNodes counts those of this node, and those that another one tells of.
func TestStreamsOfATenantAreBoundedOverNodes(t *testing.T) {
	r, parts := quotaRig(t, 1, core.TenantConfig{Streams: 3})
	p, n := parts[0], r.node
	until(func() bool {
		n.streams.mu.Lock()
		defer n.streams.mu.Unlock()
		return n.streams.bounds[p.Tenant] == 3
	})
	for range 2 {
		if fact := n.OpenStream(p); fact != nil {
			t.Fatal(fact)
		}
	}
	other := &tenantStreams{own: map[core.TenantID]int64{p.Tenant: 1, 99: 7}}
	n.takeStreams(2, other.bound(map[core.TenantID]int64{p.Tenant: 3})[1:])
	if f, ok := n.OpenStream(p).(core.Exhausted); !ok || f.Limit != "tenant_streams" || f.Max != 3 {
		t.Errorf("a fourth: %v", f)
	}
	if info, err := n.Tenant(t.Context(), "acme", core.ReadOptions{}); err != nil || info.Streams != 3 {
		t.Errorf("the tenant has %d streams, %v", info.Streams, err)
	}
	n.takeStreams(2, []byte{1}) // not of that form
	n.takeStreams(2, nil)
	if fact := n.OpenStream(p); fact != nil {
		t.Errorf("when the other node has none: %v", fact)
	}
	if fact := n.OpenStream(core.Partition{Tenant: 99}); fact != nil {
		t.Errorf("another tenant: %v", fact)
	}
	n.CloseStream(p)
	if fact := n.OpenStream(p); fact != nil {
		t.Errorf("when one was closed: %v", fact)
	}
}

// TestCreatesOfATenantAreHeldToItsRate counts creates alone, and those of a commit.
func TestCreatesOfATenantAreHeldToItsRate(t *testing.T) {
	r, parts := quotaRig(t, 1, core.TenantConfig{CreateRate: 2})
	p, n := parts[0], r.node
	until(func() bool { return n.rates.Any() })
	ops := []core.Op{&core.TaskCreate{}, &core.TaskCreate{}, &core.TaskCreate{}, &core.KVPut{Keyspace: "ks"}}
	if wait, by := n.TakeRate(p, ops, false); wait != 0 {
		t.Fatalf("a commit: %+v for %s", by, wait)
	}
	if wait, by := n.TakeCreates(p, 1, false); wait <= 0 || by.Limit != "task_creates_per_second" {
		t.Errorf("the next: %+v for %s", by, wait)
	}
	if wait, by := n.TakeRate(p, ops[3:], false); wait != 0 {
		t.Errorf("puts: %+v for %s", by, wait)
	}
	if wait, by := n.TakeCreates(core.Partition{Tenant: 99}, 1, true); wait != 0 {
		t.Errorf("another tenant: %+v for %s", by, wait)
	}
}

// TestWeightsReachTheShards changes the weight of a tenant, which all shards go by.
func TestWeightsReachTheShards(t *testing.T) {
	r, parts := quotaRig(t, 2, core.TenantConfig{Weight: 5})
	for _, s := range r.node.shards {
		until(func() bool {
			s.in.mu.Lock()
			defer s.in.mu.Unlock()
			return s.in.weights[parts[0].Tenant] == 5
		})
	}
}
