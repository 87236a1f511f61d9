package e2e

import (
	"errors"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A namespace that is removed at one node is gone at all, its name stands for another one, and that outlives the nodes.
func TestARemovedNamespaceIsGoneFromTheCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 4)
	c.leader()
	ctx := bounded(t, 120*time.Second)
	clients := make([]*millrace.Client, 3)
	for i := range clients {
		clients[i] = c.client(i, millrace.Namespace("shop"))
	}
	for round := range 3 {
		at, next := clients[round], clients[(round+1)%3]
		if existed, err := at.CreateNamespace(ctx, 4); err != nil || existed {
			t.Fatalf("round %d: made %v, %v", round, existed, err)
		}
		for _, other := range clients {
			if _, err := other.KV("k").Put(ctx, "a", round); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if _, err := next.DeleteNamespace(ctx); !errors.Is(err, millrace.ErrWrongState) {
			t.Fatalf("round %d: with a key: %v", round, err)
		}
		if existed, err := at.KV("k").Delete(ctx, "a"); err != nil || !existed {
			t.Fatalf("round %d: %v, %v", round, existed, err)
		}
		if existed, err := next.DeleteNamespace(ctx); err != nil || !existed {
			t.Fatalf("round %d: removed %v, %v", round, existed, err)
		}
		for i, other := range clients {
			if _, err := other.Namespace(ctx); !errors.Is(err, millrace.ErrNotFound) {
				t.Errorf("round %d: node %d finds it: %v", round, i, err)
			}
		}
	}
	if _, err := clients[0].CreateNamespace(ctx, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := clients[0].KV("k").Put(ctx, "b", "new"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.stop(i)
		c.start(i)
	}
	if got, err := c.client(1, millrace.Namespace("shop")).KV("k").Get(ctx, "b"); err != nil || got.Rev == 0 {
		t.Errorf("after all were restarted: %+v, %v", got, err)
	}
	ns, err := c.client(2, millrace.Namespace("shop")).Namespace(ctx)
	if err != nil || len(ns.Partitions) != 4 {
		t.Errorf("after all were restarted: %+v, %v", ns, err)
	}
}
