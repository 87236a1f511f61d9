package node

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// A stale read is answered from what a node has as long as that is not older than the read allows. Else a majority is asked,
// and without one there is no answer.
func TestAStaleReadIsNoOlderThanItMayBe(t *testing.T) {
	c := openCluster(t, 3, Options{ReadWait: 500 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lead := c.leader(ctx, 0, 0)
	lead.ns = c.ns
	lead.must(&core.KVPut{Keyspace: "ks", Key: []byte("key"), Value: []byte("first")})
	var follower *rig
	for _, r := range c.rigs {
		if r != lead {
			follower = r
		}
	}
	id := follower.node.o.Replica
	if _, err := follower.node.Namespace(ctx, "acme", "default", false); err != nil {
		t.Fatal(err)
	}
	read := func(o core.ReadOptions) (string, error) {
		got, _, err := follower.node.Key(ctx, c.ns, "ks", []byte("key"), o)
		return string(got.Value), err
	}
	c.until(ctx, "the follower does not answer", func() bool {
		value, err := read(core.ReadOptions{})
		return err == nil && value == "first"
	})
	c.wires.alone(id, true)
	lead.must(&core.KVPut{Keyspace: "ks", Key: []byte("key"), Value: []byte("second")})
	hour := core.Millis(time.Hour / time.Millisecond)
	for _, o := range []core.ReadOptions{{Stale: true}, {Stale: true, MaxStale: hour}} {
		if value, err := read(o); err != nil || value != "first" {
			t.Errorf("cut off, %+v: %q, %v", o, value, err)
		}
	}
	c.until(ctx, "what it has is still as new as that", func() bool {
		_, err := read(core.ReadOptions{Stale: true, MaxStale: 1})
		return err != nil
	})
	if value, err := read(core.ReadOptions{}); err == nil {
		t.Errorf("cut off, it answers %q as the newest", value)
	}
	c.wires.alone(id, false)
	c.until(ctx, "the follower does not catch up", func() bool {
		value, err := read(core.ReadOptions{Stale: true, MaxStale: 1})
		if err == nil && value != "second" {
			t.Fatalf("asked for what is at most a millisecond old it answers %q", value)
		}
		return err == nil
	})
}
