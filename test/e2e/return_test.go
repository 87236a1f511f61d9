package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// A node that loses its disk a moment after it first came, before the members have written down whose disk it was, comes
// back as another replica: under its old name it would have forgotten what it has acknowledged.
func TestANodeThatLosesItsDiskAtOnceIsNotTakenForTheOldOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, nil)
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() { c.start(i) })
	}
	both.Wait()
	c.leader()
	k := c.client(0)
	_, err := k.KV("s").Put(t.Context(), "k", "v")
	noErr(t, err)
	const lost = 2
	c.start(lost)
	until(t, "it has acknowledged something", func() bool { return c.running[lost].Node().Standings()[0].Applied > 2 })
	c.stop(lost)
	noErr(t, os.RemoveAll(filepath.Join(c.dir, fmt.Sprint("n", lost+1))))
	c.start(lost)
	until(t, "it votes again, under another name", func() bool {
		conf := c.running[c.leader()].Node().Standings()[0].Conf
		return len(conf.Voters) == 3 && !slices.Contains(conf.Voters, uint64(lost+1))
	})
	_, err = k.KV("s").Put(t.Context(), "k", "w")
	noErr(t, err)
}
