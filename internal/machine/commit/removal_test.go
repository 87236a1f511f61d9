package commit_test

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// Programs of the first format know no removals: under its entries they are refused alike.
func TestNoNamespaceIsRemovedUnderTheFirstFormat(t *testing.T) {
	for format, want := range map[uint16]bool{core.FormatFirst: false, core.FormatQueues: true} {
		for _, c := range []core.Commit{
			{Ops: []core.Op{&core.NamespaceRemove{Step: core.RemovalBegin, Tenant: "acme", Name: "shop"}}},
			{Partition: home, Ops: []core.Op{&core.PartitionRemove{Step: core.PartitionClose, ID: 1}}},
		} {
			w := mustWorld(t)
			a, err := w.machine().Apply(w.pair.TxA, 1, &core.Entry{Format: format, Stamp: epoch, Commits: []core.Commit{c}})
			if err != nil {
				t.Fatal(err)
			}
			r := a.Results[0].Refusal
			if (r == nil) != want {
				t.Errorf("format %d: %T is answered %+v", format, c.Ops[0], a.Results[0])
			}
			if r != nil {
				if f, ok := r.Fact.(core.Invalid); !ok || f.Reason != "not_supported" {
					t.Errorf("format %d: %T is refused with %v", format, c.Ops[0], r.Fact)
				}
			}
		}
	}
}
