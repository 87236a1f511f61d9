package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// fairRig is an inbox, and the proposals of tenants by the names that tests give them.
type fairRig struct {
	t  *testing.T
	o  Options
	in inbox
	// names of the proposals, by their commits.
	names map[*core.Commit]string
}

func newFairRig(t *testing.T, entryBytes int) *fairRig {
	return &fairRig{t: t, names: make(map[*core.Commit]string), o: Options{
		Clock: env.SystemClock{}, EntryBytes: entryBytes, EntryCommits: 1000, QueueProposals: 100, QueueBytes: 1 << 30, RenewEvery: 1,
	}}
}

// proposalOf is a proposal of one commit with an op, which counts for that many bytes.
func (r *fairRig) proposalOf(tenant core.TenantID, name string, bytes int, op core.Op) *proposal {
	p := &proposal{commits: []core.Commit{{Partition: core.Partition{Tenant: tenant, Namespace: 1}, Ops: []core.Op{op}}}, bytes: bytes}
	r.names[&p.commits[0]] = name
	return p
}

// add offers a proposal, which is lazy if it is a renewal.
func (r *fairRig) add(tenant core.TenantID, name string, bytes int, op core.Op) core.Fact {
	return r.in.add(r.proposalOf(tenant, name, bytes, op), op.Kind() == core.OpTaskRenew, &r.o, func() core.Fact { return nil })
}

func (r *fairRig) must(tenant core.TenantID, name string, bytes int, op core.Op) {
	r.t.Helper()
	if fact := r.add(tenant, name, bytes, op); fact != nil {
		r.t.Fatalf("%s: %v", name, fact)
	}
}

// gather returns the names of what goes into the next entry.
func (r *fairRig) gather() (out []string) {
	proposals, commits := r.in.gather(&r.o)
	if len(proposals) != len(commits) {
		r.t.Fatalf("%d proposals of %d commits", len(proposals), len(commits))
	}
	for _, p := range proposals {
		out = append(out, r.names[&p.commits[0]])
	}
	return out
}

func create() core.Op { return &core.TaskCreate{Queue: "q"} }

// TestATenantWithLittleGoesIntoTheNextEntry leaves a long queue of one tenant, and then one proposal of each of two others.
func TestATenantWithLittleGoesIntoTheNextEntry(t *testing.T) {
	r := newFairRig(t, 10*quantum)
	for i := range 60 {
		r.must(7, fmt.Sprintf("hog%d", i), quantum/2, create())
	}
	if got := r.gather(); len(got) != 20 || got[0] != "hog0" || got[19] != "hog19" {
		t.Fatalf("of one tenant, in order: %v", got)
	}
	r.must(8, "little", 10, create())
	r.must(9, "large", 3*quantum, create())
	first := r.gather()
	if !slices.Contains(first, "little") || !slices.Contains(first, "large") {
		t.Fatalf("the next entry has %v", first)
	}
	want := 20
	for _, name := range append(first, r.gather()...) {
		if name == "little" || name == "large" {
			continue
		}
		if name != fmt.Sprintf("hog%d", want) {
			t.Fatalf("%s comes before hog%d", name, want)
		}
		want++
	}
	if r.in.fair != nil {
		t.Error("with one tenant left, its turns are still counted")
	}
	for want < 60 {
		for _, name := range r.gather() {
			if name != fmt.Sprintf("hog%d", want) {
				t.Fatalf("%s comes before hog%d", name, want)
			}
			want++
		}
	}
	if r.in.waiting() != 0 || r.in.bytes != 0 || r.in.tenant != 0 {
		t.Errorf("left: %d commits, %d bytes, tenant %d", r.in.waiting(), r.in.bytes, r.in.tenant)
	}
}

// TestTenantsShareByWeight lets three tenants ask for more than there is, in proposals of different sizes.
func TestTenantsShareByWeight(t *testing.T) {
	r := newFairRig(t, 16*quantum)
	r.o.QueueProposals = 1_000_000
	r.in.weigh(map[core.TenantID]int64{2: 3})
	random := rand.New(rand.NewPCG(1, 2))
	sizes := map[core.TenantID]int{1: 100, 2: 3000, 3: 40_000}
	size := make(map[string]int)
	left := map[core.TenantID]int{}
	refill := func() {
		for _, tenant := range []core.TenantID{1, 2, 3} {
			for left[tenant] < 64*quantum {
				n := 1 + random.IntN(sizes[tenant])
				name := fmt.Sprintf("%d/%d", tenant, len(size))
				size[name] = n
				r.must(tenant, name, n, create())
				left[tenant] += n
			}
		}
	}
	got := map[core.TenantID]int{}
	for range 400 {
		refill()
		for _, name := range r.gather() {
			var tenant core.TenantID
			if _, err := fmt.Sscanf(name, "%d/", &tenant); err != nil {
				t.Fatal(err)
			}
			got[tenant] += size[name]
			left[tenant] -= size[name]
		}
	}
	sum := float64(got[1] + got[2] + got[3])
	for tenant, share := range map[core.TenantID]float64{1: 0.2, 2: 0.6, 3: 0.2} {
		if is := float64(got[tenant]) / sum; is < share-0.01 || is > share+0.01 {
			t.Errorf("tenant %d got %.3f of all, not %.1f", tenant, is, share)
		}
	}
}

// TestEndsGoBeforeCreatesAlone holds what passes what, while two tenants wait.
func TestEndsGoBeforeCreatesAlone(t *testing.T) {
	r := newFairRig(t, 1<<20)
	r.must(2, "other", 10, create())
	r.must(1, "create1", 10, create())
	r.must(1, "create2", 10, create())
	r.must(1, "end1", 10, &core.TaskComplete{})
	r.must(0, "shard", 10, &core.NamespaceCreate{})
	r.must(1, "renew", 10, &core.TaskRenew{})
	r.must(1, "put", 10, &core.KVPut{})
	r.must(1, "end2", 10, &core.TaskComplete{})
	if got, want := r.gather(), []string{"shard", "other", "end1", "create1", "create2", "put", "end2", "renew"}; !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	r.must(2, "other", 10, create())
	r.must(1, "create", 10, create())
	r.must(1, "renew", 10, &core.TaskRenew{})
	if got, want := r.gather(), []string{"other", "renew", "create"}; !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestATenantFillsItsOwnQueueOnly fills what may wait with one tenant, then with a second, and looks whether a third finds room.
func TestATenantFillsItsOwnQueueOnly(t *testing.T) {
	refusedBy := func(fact core.Fact) string {
		f, ok := errors.AsType[core.Unavailable](fact)
		if !ok || f.Reason != "overload" || f.Unknown {
			return fmt.Sprint(fact)
		}
		return f.Limit
	}
	fill := func(r *fairRig, tenant core.TenantID, bytes int) (n int, limit string) {
		for ; n < 1000; n++ {
			if fact := r.add(tenant, "", bytes, create()); fact != nil {
				return n, refusedBy(fact)
			}
		}
		return n, ""
	}
	for _, c := range []struct {
		bytes         int
		alone, beside string
	}{{1, "proposals", "tenant_proposals"}, {1 << 20, "proposal_bytes", "tenant_proposal_bytes"}} {
		r := newFairRig(t, 1<<20)
		if c.bytes > 1 {
			r.o.QueueProposals, r.o.QueueBytes = 1000, 100<<20
		}
		if n, limit := fill(r, 1, c.bytes); n != 100 || limit != c.alone {
			t.Errorf("alone: %d, then %q", n, limit)
		}
		if n, limit := fill(r, 2, c.bytes); n != 50 || limit != c.beside {
			t.Errorf("next to it: %d, then %q", n, limit)
		}
		if n, limit := fill(r, 3, c.bytes); n != 25 || limit != c.beside {
			t.Errorf("a third: %d, then %q", n, limit)
		}
		if limit := refusedBy(r.add(1, "", c.bytes, create())); limit != c.beside {
			t.Errorf("the first again: %q", limit)
		}
		if fact := r.add(1, "", c.bytes, &core.TaskComplete{}); fact != nil {
			t.Errorf("the end of an attempt: %v", fact)
		}
		if got := len(r.in.drain()); got != 176 || r.in.fair != nil || r.in.bytes != 0 || r.in.waiting() != 0 {
			t.Errorf("%d were taken out; %d bytes, %d commits are left", got, r.in.bytes, r.in.waiting())
		}
	}
}
