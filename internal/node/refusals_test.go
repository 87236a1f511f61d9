package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// refusedBy is how often a bound refused something, as a node tells it.
func refusedBy(t *testing.T, n *Node, b core.Bound) (count uint64) {
	t.Helper()
	r := n.Refusals(t.Context(), b.Tenant, b.Namespace)
	for _, one := range r.Bounds {
		if one.Name == b.Name {
			count += one.Count
		}
	}
	return count
}

func TestWhatABoundRefusesIsCountedByItsName(t *testing.T) {
	r, parts := quotaRig(t, 1, core.TenantConfig{Tasks: core.TaskBounds{Tasks: 3}, CreateRate: 1, Streams: 1})
	p := parts[0]
	if fact := r.in(p, &core.QueueSet{Queue: "few", Config: core.QueueConfig{Limits: core.QueueLimits{MaxTasks: 1}}, IfVersion: -1}); fact != nil {
		t.Fatal(fact)
	}
	r.told(p, func(q core.TenantQuota) bool { return q.Bounds.Tasks == 3 })
	for n, queue := range []string{"few", "few", "q", "q", "q", "q"} { // one beyond that of the queue, two beyond that of the tenant
		r.in(p, &core.TaskCreate{ID: taskIn(p, n+1), Queue: queue})
	}
	if fact := r.node.OpenStream(p); fact != nil {
		t.Fatal(fact)
	}
	if fact := r.node.OpenStream(p); fact == nil {
		t.Error("a second stream is let in")
	}
	for bound, want := range map[core.Bound]uint64{
		{Tenant: p.Tenant, Namespace: p.Namespace, Name: "max_tasks"}: 1, {Tenant: p.Tenant, Name: "tasks"}: 2, {Tenant: p.Tenant, Name: "streams"}: 1,
		{Tenant: p.Tenant, Namespace: p.Namespace, Name: "tasks"}: 0, {Tenant: p.Tenant + 1, Name: "tasks"}: 0,
	} {
		if got := refusedBy(t, r.node, bound); got != want {
			t.Errorf("%+v refused %d, want %d", bound, got, want)
		}
	}
	all := r.node.Refusals(t.Context(), p.Tenant, 0)
	if all.Partial || len(all.Nodes) != 1 || all.Nodes[0].Since != r.node.started || len(all.Bounds) != 2 || all.Bounds[0].Name != "tasks" {
		t.Errorf("of the tenant: %+v", all)
	}
	// Who asks for room in a rate says whether that was refused: the node only names the bound.
	until(func() bool { return r.node.rates.Any() })
	wait, by := r.node.TakeCreates(p, 1, false)
	for range 20 {
		if wait > 0 {
			break
		}
		wait, by = r.node.TakeCreates(p, 1, false)
	}
	if want := (core.Bound{Tenant: p.Tenant, Name: "task_creates_per_second"}); by.Bound != want {
		t.Errorf("the rate of creates is %+v, want %+v", by.Bound, want)
	}
}

func TestRefusalsOfAllNodesThatAnswerAreAddedUp(t *testing.T) {
	c := openCluster(t, 3, patient)
	ctx := within(t, 30*time.Second)
	c.known(ctx)
	b := core.Bound{Tenant: c.ns.Tenant, Namespace: c.ns.Namespace, Name: "key_bytes"}
	for id, r := range c.rigs {
		for range id {
			r.node.CountRefusal(b)
		}
	}
	for id, r := range c.rigs {
		c.until(ctx, "the nodes do not answer each other", func() bool { return !r.node.Refusals(ctx, b.Tenant, b.Namespace).Partial })
		if got := refusedBy(t, r.node, b); got != 6 {
			t.Errorf("node %d: %d, want 6", id, got)
		}
	}
	c.stop(3)
	got := c.rigs[1].node.Refusals(ctx, b.Tenant, b.Namespace)
	if !got.Partial || len(got.Nodes) != 2 || len(got.Bounds) != 1 || got.Bounds[0].Count != 3 {
		t.Errorf("with a node that is gone: %+v", got)
	}
}
