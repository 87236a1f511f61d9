package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/store"
)

// bound is the bytes that the keyspace of these tests may take in all partitions together.
const bound = 1 << 20

// boundedBy is what bounds the keyspace of a test.
var boundedBy = map[string]core.Op{
	"keyspace_bytes":      &core.KeyspaceSet{Keyspace: "ks", Config: core.KeyspaceConfig{Bytes: bound}, IfVersion: -1},
	"namespace_key_bytes": &core.NamespaceSet{Config: core.NamespaceConfig{KeyBytes: bound}, IfVersion: -1},
}

// often measures much more often than a server does.
func often(by measure) Options {
	return Options{QuotaEvery: 30 * time.Millisecond, DiskEvery: 5 * time.Millisecond, measure: by}
}

// boundedRig has a namespace whose keyspace has a bound in each of its partitions.
func boundedRig(t *testing.T, partitions int, limit string, o Options) (*rig, []core.Partition) {
	t.Helper()
	o.Shards = partitions
	r := openRig(t, rigOptions{node: o})
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

// scale tells of ranges what a test has put on it, by where they begin; of others 0.
type scale struct {
	mu    sync.Mutex
	bytes map[string]uint64
}

func (s *scale) measure(_ *store.Shard, from, _ []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes[string(from)], nil
}

// put lets the keyspace "ks", and all keyspaces of the namespace together, take total in all partitions, a byte of it in each
// but the first.
func (s *scale) put(parts []core.Partition, total uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes = make(map[string]uint64)
	for i, p := range parts {
		share := uint64(1)
		if i == 0 {
			share = total - uint64(len(parts)-1)
		}
		one, _ := keys.KVRange(p, 1, nil)
		all, _ := keys.KVs(p)
		s.bytes[string(one)], s.bytes[string(all)] = share, share
	}
}

func TestPutsBeyondABoundAreRefusedInAllPartitionsUntilThereIsRoom(t *testing.T) {
	for _, c := range []struct {
		limit      string
		partitions int
	}{{"keyspace_bytes", 1}, {"keyspace_bytes", 4}, {"namespace_key_bytes", 4}, {"tenant_key_bytes", 4}} {
		t.Run(fmt.Sprint(c.limit, c.partitions), func(t *testing.T) { fillUp(t, c.limit, c.partitions) })
	}
}

// fillUp goes one byte beyond a bound, as the sum of all partitions, and back.
func fillUp(t *testing.T, limit string, partitions int) {
	var on scale
	r, parts := boundedRig(t, partitions, limit, often(on.measure))
	put := func(p core.Partition, keyspace string) core.Fact {
		return r.in(p, &core.KVPut{Keyspace: keyspace, Key: []byte("key"), Value: []byte("value")})
	}
	for _, p := range parts {
		if refused := put(p, "ks"); refused != nil {
			t.Fatalf("a put before anything was measured: %v", refused)
		}
	}
	for _, total := range []uint64{bound, bound + 1, bound} {
		on.put(parts, total)
		over := total > bound
		for _, p := range parts {
			r.tells(p, limit, total)
			r.obeys(func() bool { return put(p, "ks") != nil }, over) // a tenant's bound is told to each partition by itself
			if refused := put(p, "ks"); over != errors.Is(refused, core.Exhausted{Limit: limit, Max: bound}) || !over && refused != nil {
				t.Errorf("a put in partition %d at %d bytes of %d: %v", p.Index, total, bound, refused)
			}
			if got, _, err := r.node.Key(t.Context(), p, "ks", []byte("key"), core.ReadOptions{}); err != nil || string(got.Value) != "value" {
				t.Errorf("a read in partition %d at %d bytes: %q, %v", p.Index, total, got.Value, err)
			}
			if refused := r.in(p, &core.KVDelete{Keyspace: "ks", Key: []byte("other")}); refused != nil {
				t.Errorf("a delete in partition %d at %d bytes: %v", p.Index, total, refused)
			}
			if refused := put(p, "beside"); (refused != nil) != (over && limit != "keyspace_bytes") {
				t.Errorf("a put in another keyspace of partition %d at %d bytes: %v", p.Index, total, refused)
			}
		}
	}
}

// A tenant whose configuration is removed while it is over its bound takes puts again, in all partitions.
func TestPutsAreTakenWhenTheBoundsOfAFullTenantAreRemoved(t *testing.T) {
	var on scale
	r, parts := boundedRig(t, 2, "tenant_key_bytes", often(on.measure))
	put := func(p core.Partition) core.Fact {
		return r.in(p, &core.KVPut{Keyspace: "ks", Key: []byte("key"), Value: []byte("value")})
	}
	refused := func(p core.Partition) func() bool { return func() bool { return put(p) != nil } }
	for _, p := range parts {
		if fact := put(p); fact != nil {
			t.Fatal(fact)
		}
	}
	on.put(parts, bound+1)
	for _, p := range parts {
		r.obeys(refused(p), true)
	}
	if version, err := r.node.SetTenant(t.Context(), "acme", core.TenantConfig{}, 1); version != 0 || err != nil {
		t.Fatal(version, err)
	}
	for _, p := range parts {
		r.obeys(refused(p), false)
	}
	if info, err := r.node.Tenant(t.Context(), "acme", core.ReadOptions{}); err != nil || info.Config != (core.TenantConfig{}) || info.Over {
		t.Errorf("%+v, %v", info, err)
	}
}

// obeys waits until puts are refused, or taken.
func (r *rig) obeys(refused func() bool, want bool) {
	r.t.Helper()
	for began := time.Now(); refused() != want; {
		if time.Since(began) > time.Minute {
			r.t.Fatalf("puts are refused: %t, want %t", !want, want)
		}
	}
}

// tells waits until a partition tells that so much was measured, and wants it to say whether that is over its bound.
func (r *rig) tells(p core.Partition, limit string, total uint64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for {
		info, _, err := r.node.Keyspace(ctx, p, "ks", 0, core.ReadOptions{})
		measured := info.Measured
		switch {
		case err != nil:
		case limit == "tenant_key_bytes":
			got, tErr := r.node.Tenant(ctx, "acme", core.ReadOptions{})
			measured, info.Over, err = got.Measured, got.Over, tErr
		case limit == "namespace_key_bytes":
			measured, _, err = r.node.KeyBytes(ctx, p, core.ReadOptions{})
			info.Over = measured > bound
		}
		switch {
		case err != nil:
			r.t.Fatalf("partition %d never tells of %d bytes: %v", p.Index, total, err)
		case measured == total && info.Over != (total > bound):
			r.t.Fatalf("partition %d tells %d bytes of %d, and over: %t", p.Index, measured, bound, info.Over)
		case measured == total:
			return
		}
		r.in(p, &core.KVDelete{Keyspace: "ks", Key: []byte("other")}) // not in a hot loop: the entry is waited for
	}
}

// All keys of a namespace, or of a tenant, take what was put in two seconds more than their bound at the most, however rarely
// keyspaces are measured: what they took is measured again before they may have passed it.
func TestABoundOfAllKeysIsPassedByWhatIsPutInTwoSeconds(t *testing.T) {
	for _, limit := range []string{"namespace_key_bytes", "tenant_key_bytes"} {
		t.Run(limit, func(t *testing.T) {
			var put atomic.Uint64 // in all partitions
			var from []byte       // the range of one of them, which is told to hold all
			measured := 0
			all := func(_ *store.Shard, key, _ []byte) (uint64, error) {
				if !bytes.Equal(key, from) {
					return 0, nil
				}
				measured++
				return put.Load(), nil
			}
			r, parts := boundedRig(t, 4, limit, Options{QuotaEvery: time.Hour, DiskEvery: time.Hour, measure: all})
			from, _ = keys.KVs(parts[0])
			const look, perLook = 500 * time.Millisecond, 32 << 10
			taken, now := uint64(0), r.node.o.Clock.Boot()
			value := make([]byte, perLook/4-3)
			for looks := 0; ; looks++ {
				refused := core.Fact(nil)
				for _, p := range parts {
					if refused = r.in(p, &core.KVPut{Keyspace: "ks", Key: []byte("key"), Value: value}); refused == nil {
						put.Add(perLook / 4)
						taken = put.Load()
					}
				}
				if errors.Is(refused, core.Exhausted{Limit: limit, Max: bound}) {
					break
				}
				if refused != nil || looks > 2*bound/perLook {
					t.Fatalf("after %d bytes of %d: %v", taken, bound, refused)
				}
				now += look
				r.look(now)
			}
			if over := int64(taken) - bound; over <= 0 || over > int64(2*time.Second/look*perLook) {
				t.Errorf("puts were refused %d bytes beyond the bound, at %d bytes in a second", over, perLook*int(time.Second/look))
			}
			if most := 10; measured > most {
				t.Errorf("it was measured %d times, want %d at the most: only when the bound was near", measured, most)
			}
			var shown uint64
			if limit == "tenant_key_bytes" {
				info, err := r.node.Tenant(t.Context(), "acme", core.ReadOptions{})
				if err != nil || !info.Over {
					t.Fatalf("%+v, %v", info, err)
				}
				shown = info.Measured
			} else {
				var err error
				if shown, _, err = r.node.KeyBytes(t.Context(), parts[0], core.ReadOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if shown <= bound || shown > taken {
				t.Errorf("%d bytes are shown, %d were put beyond a bound of %d", shown, taken, bound)
			}
		})
	}
}

// look has the node look after its bounds as at a boot time, and waits for what it proposes, and asks of the store.
func (r *rig) look(now time.Duration) {
	r.t.Helper()
	if err := r.node.tendQuotas(now); err != nil {
		r.t.Fatal(err)
	}
	info, err := r.node.Namespace(r.t.Context(), "acme", "bounded", false)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range info.Partitions {
		r.in(p.Partition, &core.KVDelete{Keyspace: "ks", Key: []byte("other")}) // behind what was proposed
	}
	for r.node.quotas.flushed && !r.node.inFiles(r.node.quotas.marks) {
		runtime.Gosched()
	}
}

// What the store says is about right: a bound that was passed is obeyed some time later, and there is room some time after
// all keys were deleted.
func TestABoundIsHeldAgainstWhatTheStoreTakes(t *testing.T) {
	r, parts := boundedRig(t, 1, "keyspace_bytes", often(nil))
	random := rand.New(rand.NewPCG(1, 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, full := range []bool{true, false} {
		for n := 0; ; n++ {
			refused := r.in(parts[0], &core.KVPut{Keyspace: "ks", Key: fmt.Append(nil, "key", n), Value: value(random)})
			if (refused != nil) == full {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("puts are refused: %t, want %t: %v", !full, full, refused)
			}
		}
		if refused := r.in(parts[0], &core.KVDeleteRange{Keyspace: "ks", Prefix: []byte("key")}); refused != nil {
			t.Fatalf("the delete of a range: %v", refused)
		}
	}
}

func TestABoundIsObeyedAfterACrashBeforeAnythingIsMeasured(t *testing.T) {
	r, parts := boundedRig(t, 1, "keyspace_bytes", often(nil))
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
	again := openRig(t, rigOptions{disk: r.disk.Crash(1, 2), node: Options{DiskEvery: time.Hour}}) // without measuring again
	defer again.close()
	if _, err := again.node.Namespace(ctx, "acme", "bounded", false); err != nil {
		t.Fatal(err)
	}
	op := &core.KVPut{Keyspace: "ks", Key: []byte("k"), Value: []byte("v")}
	if fact := again.in(parts[0], op); !errors.Is(fact, core.Exhausted{Limit: "keyspace_bytes", Max: 1}) {
		t.Errorf("a put after a crash: %v", fact)
	}
}
