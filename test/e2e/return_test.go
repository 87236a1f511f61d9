package e2e

import (
	"context"
	"sync"
	"testing"
	"time"
)

// A client that found no leader for a while goes to the one that comes.
func TestAClientFindsTheLeaderAfterALongTimeWithoutOne(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	k := c.client(0)
	put := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		_, err := k.KV("s").Put(ctx, "k", "v")
		return err
	}
	noErr(t, put())
	for i := range 3 {
		lead := c.leader()
		other := (lead + 1) % 3
		c.stop(lead)
		c.stop(other)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, _ = k.KV("s").Put(ctx, "k", "v") // several tries without a leader
		cancel()
		var both sync.WaitGroup
		both.Go(func() { c.start(lead) })
		both.Go(func() { c.start(other) })
		both.Wait()
		c.leader()
		begin := time.Now()
		if err := put(); err != nil {
			t.Fatalf("round %d: there is a leader for %s: %v", i, time.Since(begin), err)
		}
		t.Logf("round %d: %s", i, time.Since(begin))
	}
}
