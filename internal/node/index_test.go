package node

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// isUnknownIndex reports whether a read was refused for its index.
func isUnknownIndex(err error) bool {
	var f core.Invalid
	return errors.As(err, &f) && f.Field == core.FieldMinIndex && f.Reason == core.ReasonIndexUnknown
}

// freshnesses are reads at an index, as clients may ask for them.
func freshnesses(index uint64) []core.ReadOptions {
	return []core.ReadOptions{
		{MinIndex: index}, {MinIndex: index, Stale: true}, {MinIndex: index, Stale: true, MaxStale: core.Millis(time.Hour / time.Millisecond)},
	}
}

func TestAnIndexPastTheNewestIsRefusedWithoutAWait(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		r := openRig(t, rigOptions{noSync: noSync, node: Options{ReadWait: time.Hour}})
		ctx := within(t, time.Minute)
		at := r.propose(core.Commit{Ops: []core.Op{&core.KVPut{Keyspace: "ks", Key: []byte("key"), Value: []byte("value")}}}).At.Index
		for _, o := range freshnesses(at) {
			if got, _, err := r.node.Key(ctx, r.ns, "ks", []byte("key"), o); err != nil || string(got.Value) != "value" {
				t.Errorf("an index that was given, %+v: %q, %v", o, got.Value, err)
			}
		}
		for _, index := range []uint64{at + 1000, 170512818, math.MaxInt64, math.MaxUint64} {
			for _, o := range freshnesses(index) {
				for what, read := range map[string]func() error{
					"a key":   func() error { _, _, err := r.node.Key(ctx, r.ns, "ks", []byte("key"), o); return err },
					"a task":  func() error { _, _, err := r.node.Task(ctx, r.ns, taskID(1), o); return err },
					"a queue": func() error { _, _, err := r.node.Queue(ctx, r.ns, "q", o); return err },
					"a search": func() error {
						_, err := r.node.Search(ctx, r.ns, &core.SearchQuery{Collection: "c", Read: o})
						return err
					},
				} {
					if err := read(); !isUnknownIndex(err) || !strings.Contains(err.Error(), "newest index") {
						t.Errorf("%s at %+v: %v", what, o, err)
					}
				}
			}
		}
		elsewhere := core.ReadOptions{MinIndex: math.MaxUint64, Elsewhere: true}
		for _, elsewhere.Stale = range []bool{false, true} {
			if got, _, err := r.node.Key(ctx, r.ns, "ks", []byte("key"), elsewhere); err != nil || string(got.Value) != "value" {
				t.Errorf("an index that may be another partition's, stale %v: %q, %v", elsewhere.Stale, got.Value, err)
			}
		}
		r.close()
	}
}

// Every replica refuses an index past the newest one, and none an index that was acknowledged: not while it lags, nor after the
// leader was lost.
func TestReplicasRefuseOnlyIndexesThatNoLeaderGave(t *testing.T) {
	c := openCluster(t, 3, Options{ReadWait: time.Hour})
	ctx := within(t, time.Minute)
	lead := c.leader(ctx, 0, 0)
	lead.ns = c.ns
	c.known(ctx)
	put := func(value string) uint64 {
		t.Helper()
		p := lead.propose(core.Commit{Ops: []core.Op{&core.KVPut{Keyspace: "ks", Key: []byte("key"), Value: []byte(value)}}})
		if p.Err != nil {
			t.Fatal(p.Err)
		}
		return p.At.Index
	}
	refused := func() {
		t.Helper()
		for id, r := range c.rigs {
			for _, index := range []uint64{170512818, math.MaxUint64} {
				for _, o := range freshnesses(index) {
					if _, _, err := r.node.Key(ctx, c.ns, "ks", []byte("key"), o); !isUnknownIndex(err) {
						t.Errorf("node %d, %+v: %v", id, o, err)
					}
				}
			}
		}
	}
	put("first")
	refused()

	var follower *rig
	for _, r := range c.rigs {
		if r != lead {
			follower = r
		}
	}
	c.wires.alone(follower.node.o.Replica, true)
	at := put("second")
	type answer struct {
		value string
		err   error
	}
	answers := make(chan answer, 3)
	for _, o := range freshnesses(at) {
		go func() {
			got, _, err := follower.node.Key(ctx, c.ns, "ks", []byte("key"), o)
			answers <- answer{string(got.Value), err}
		}()
	}
	s := follower.node.shards[0]
	c.until(ctx, "the reads do not wait for a leader", func() bool {
		s.rounds.mu.Lock()
		defer s.rounds.mu.Unlock()
		return len(s.rounds.asked)+len(s.rounds.waiting) >= 3
	})
	c.wires.alone(follower.node.o.Replica, false)
	for range 3 {
		if a := <-answers; a.err != nil || a.value != "second" {
			t.Errorf("a follower that lagged answers %q, %v", a.value, a.err)
		}
	}

	lost := lead.node.o.Replica
	lead = c.leader(ctx, 0, 0)
	lead.ns = c.ns
	at = put("third")
	c.stop(lost)
	delete(c.rigs, lost)
	for id, r := range c.rigs {
		for _, o := range freshnesses(at) {
			if got, _, err := r.node.Key(ctx, c.ns, "ks", []byte("key"), o); err != nil || string(got.Value) != "third" {
				t.Errorf("after the leader was lost node %d answers at %+v: %q, %v", id, o, got.Value, err)
			}
		}
	}
	refused()
}

// A power cut may take entries that were acknowledged from a log that is not synced: their indexes are waited for. Those that a
// synced log gave are there.
func TestAnIndexThatWasAcknowledgedIsNotRefusedAfterAPowerCut(t *testing.T) {
	for _, noSync := range []bool{true, false} {
		o := rigOptions{noSync: noSync, node: Options{ReadWait: 50 * time.Millisecond}}
		r := openRig(t, o)
		r.close() // syncs what there is
		o.disk = r.disk
		r = openRig(t, o)
		var at uint64
		for range 20 {
			p := r.propose(core.Commit{Ops: []core.Op{&core.KVPut{Keyspace: "ks", Key: []byte("key")}}})
			at = p.At.Index
		}
		o.disk = r.disk.Crash(0, rand.Uint64())
		r.close()
		r = openRig(t, o)
		for _, o := range freshnesses(at) {
			_, _, err := r.node.Key(context.Background(), r.ns, "ks", []byte("key"), o)
			if late := errors.As(err, new(core.DeadlineExceeded)); !noSync && err != nil || err != nil && !late {
				t.Errorf("not synced %v, %+v: %v", noSync, o, err)
			}
		}
		if _, _, err := r.node.Key(t.Context(), r.ns, "ks", []byte("key"), core.ReadOptions{MinIndex: 170512818}); !isUnknownIndex(err) {
			t.Errorf("not synced %v, an index that was never given: %v", noSync, err)
		}
		r.close()
	}
}
