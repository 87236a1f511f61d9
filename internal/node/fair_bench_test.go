package node

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// BenchmarkInboxOfOneTenant is what a proposal costs from its arrival until it is in an entry, while one tenant alone has any.
func BenchmarkInboxOfOneTenant(b *testing.B) {
	var in inbox
	o := Options{Clock: env.SystemClock{}, EntryBytes: 256 << 10, EntryCommits: 512, QueueProposals: 10_000, QueueBytes: 64 << 20, RenewEvery: 1}
	p := &proposal{commits: []core.Commit{{Partition: core.Partition{Tenant: 7, Namespace: 1}, Ops: []core.Op{&core.TaskCreate{}}}}, bytes: 300}
	leads := func() core.Fact { return nil }
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if fact := in.add(p, false, &o, leads); fact != nil {
			b.Fatal(fact)
		}
		if i%64 == 63 {
			in.gather(&o)
		}
	}
}
