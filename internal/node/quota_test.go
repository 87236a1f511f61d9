package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// bound is the bytes that the keyspace of these tests may take in all partitions together.
const bound = 1 << 20

// boundedBy is what bounds the keyspace of a test.
var boundedBy = map[string]core.Op{
	"keyspace_bytes":      &core.KeyspaceSet{Keyspace: "ks", Config: core.KeyspaceConfig{Bytes: bound}, IfVersion: -1},
	"namespace_key_bytes": &core.NamespaceSet{Config: core.NamespaceConfig{KeyBytes: bound}, IfVersion: -1},
}

// boundedRig has a namespace whose keyspace has a bound in each of its partitions, and measures often.
func boundedRig(t *testing.T, partitions int, limit string) (*rig, []core.Partition) {
	t.Helper()
	r := openRig(t, rigOptions{node: Options{Shards: partitions, QuotaEvery: 30 * time.Millisecond, DiskEvery: 5 * time.Millisecond}})
	t.Cleanup(r.close)
	info, _, err := r.node.CreateNamespace(t.Context(), "acme", "bounded", partitions)
	if err != nil {
		t.Fatal(err)
	}
	var all []core.Partition
	if limit == "tenant_key_bytes" {
		if _, err := r.node.SetTenant(t.Context(), "acme", core.TenantConfig{KeyBytes: bound}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range info.Partitions {
		all = append(all, p.Partition)
		if boundedBy[limit] == nil {
			continue
		}
		if refused := r.in(p.Partition, boundedBy[limit]); refused != nil {
			t.Fatal(refused)
		}
	}
	return r, all
}

// in proposes an op in a partition, and returns why it is refused.
func (r *rig) in(p core.Partition, op core.Op) core.Fact {
	r.t.Helper()
	done := make(chan core.Proposed, 1)
	r.node.Propose(p, []core.Commit{{Partition: p, Principal: "test", Ops: []core.Op{op}}}, func(d core.Proposed) { done <- d })
	d := <-done
	switch {
	case d.Err != nil:
		r.t.Fatal(d.Err)
	case d.Results[0].Refusal != nil:
		return d.Results[0].Refusal.Fact
	}
	return nil
}

// value is 4 KiB that cannot be made smaller.
func value(r *rand.Rand) []byte {
	b := make([]byte, 0, 4<<10)
	for len(b) < cap(b) {
		b = fmt.Appendf(b, "%016x", r.Uint64())
	}
	return b
}

func TestPutsBeyondABoundAreRefusedInAllPartitionsUntilThereIsRoom(t *testing.T) {
	for _, c := range []struct {
		limit      string
		partitions int
	}{{"keyspace_bytes", 1}, {"keyspace_bytes", 4}, {"namespace_key_bytes", 4}, {"tenant_key_bytes", 4}} {
		t.Run(fmt.Sprint(c.limit, c.partitions), func(t *testing.T) { fillUp(t, c.limit, c.partitions) })
	}
}

// fillUp puts into one partition, as the bound is that of all together, until that is refused everywhere, and then deletes.
func fillUp(t *testing.T, limit string, partitions int) {
	r, parts := boundedRig(t, partitions, limit)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	random := rand.New(rand.NewPCG(1, uint64(partitions)))
	put := func(p core.Partition, n int) core.Fact {
		return r.in(p, &core.KVPut{Keyspace: "ks", Key: fmt.Append(nil, "key", n), Value: value(random)})
	}
	n := 0
	for ; ctx.Err() == nil && put(parts[0], n) == nil; n++ {
		if n >= 64*bound/(4<<10) {
			t.Fatalf("%d puts are taken", n)
		}
	}
	if n < bound/(4<<10)/2 { // the store takes more room for a while than what is in it
		t.Errorf("the first put is refused after %d", n)
	}
	for _, p := range parts {
		refusedFor(ctx, t, limit, func() core.Fact { return put(p, 1) }, true)
		r.stands(p, limit, true)
		if got, _, _, err := r.node.Key(ctx, parts[0], "ks", []byte("key0"), core.ReadOptions{}); err != nil || len(got) != 4<<10 {
			t.Errorf("a read beyond the bound: %d bytes, %v", len(got), err)
		}
		if refused := r.in(p, &core.KVDelete{Keyspace: "ks", Key: []byte("key0000")}); refused != nil {
			t.Errorf("a delete beyond the bound: %v", refused)
		}
		other := &core.KVPut{Keyspace: "other", Key: []byte("k"), Value: []byte("v")}
		over := limit != "keyspace_bytes"
		for refused := r.in(p, other); (refused != nil) != over; refused = r.in(p, other) {
			if !over || ctx.Err() != nil {
				t.Errorf("a put in another keyspace: %v", refused)
				break
			}
			put(parts[0], n) // what was measured has been compacted since
			n++
		}
	}
	if refused := r.in(parts[0], &core.KVDeleteRange{Keyspace: "ks", Prefix: []byte("key")}); refused != nil {
		t.Fatalf("the delete of a range beyond the bound: %v", refused)
	}
	for _, p := range parts {
		refusedFor(ctx, t, limit, func() core.Fact { return put(p, 1) }, false)
		r.stands(p, limit, false)
	}
}

// refusedFor repeats a put until it is refused for its keyspace's bound, or not any more.
func refusedFor(ctx context.Context, t *testing.T, name string, put func() core.Fact, want bool) {
	t.Helper()
	for {
		fact := put()
		limit, over := fact.(core.Exhausted)
		if fact != nil && (!over || limit != (core.Exhausted{Limit: name, Max: bound})) {
			t.Fatalf("a put is refused for %v", fact)
		}
		if over == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("puts are refused: %t, want %t", over, want)
		}
	}
}

// stands wants a partition to tell what was measured, and so how far beyond the bound it came.
func (r *rig) stands(p core.Partition, limit string, over bool) {
	r.t.Helper()
	info, _, err := r.node.Keyspace(r.t.Context(), p, "ks", false, core.ReadOptions{})
	measured := info.Measured
	switch limit {
	case "tenant_key_bytes":
		got, tErr := r.node.Tenant(r.t.Context(), "acme")
		measured, err = got.Measured, tErr
		info.Over = got.Over
	case "namespace_key_bytes":
		measured, _, err = r.node.KeyBytes(r.t.Context(), p, core.ReadOptions{})
		info.Over = over
	}
	if err != nil || info.Over != over || over != (measured > bound) {
		r.t.Errorf("partition %d tells %d bytes, %+v, %v", p.Index, measured, info, err)
	}
}

func TestABoundIsObeyedAfterACrashBeforeAnythingIsMeasured(t *testing.T) {
	r, parts := boundedRig(t, 1, "keyspace_bytes")
	random := rand.New(rand.NewPCG(2, 2))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put := func() core.Fact {
		return r.in(parts[0], &core.KVPut{Keyspace: "ks", Key: bytes.Repeat([]byte("k"), 1+random.IntN(100)), Value: value(random)})
	}
	raise := func(to int64) {
		set := &core.KeyspaceSet{Keyspace: "ks", Config: core.KeyspaceConfig{Bytes: to}, IfVersion: -1}
		if refused := r.in(parts[0], set); refused != nil {
			t.Fatal(refused)
		}
	}
	raise(1) // the next that is measured is over it
	for put() == nil {
		if ctx.Err() != nil {
			t.Fatal("puts are taken for ever")
		}
	}
	again := openRig(t, rigOptions{disk: r.disk.Crash(1, 2), node: Options{QuotaEvery: time.Hour}}) // without measuring anew
	defer again.close()
	if _, err := again.node.Namespace(ctx, "acme", "bounded", false); err != nil {
		t.Fatal(err)
	}
	op := &core.KVPut{Keyspace: "ks", Key: []byte("k"), Value: []byte("v")}
	if fact := again.in(parts[0], op); !errors.Is(fact, core.Exhausted{Limit: "keyspace_bytes", Max: 1}) {
		t.Errorf("a put after a crash: %v", fact)
	}
}
