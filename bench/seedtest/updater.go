package seedtest

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/bench"
)

// updaterSizes are the sizes of transactions that the reference's updater is measured with.
var updaterSizes = []int{1, 10, 100}

// updaterRefs is how many refs there are to delete.
const updaterRefs = 100

// Updater measures transactions of refs by one client, server in a process of its own, under the names of the reference's
// benchmark. An operation is a transaction; memory is the client's; deleted refs are made again off the clock.
func Updater(b *testing.B) {
	b.Helper()
	if testing.Short() {
		b.Skip("measures for seconds")
	}
	c := configIn(b, bench.Procs)
	c.NoProfile = true
	c.Command = "go test -run='^$' -bench='^BenchmarkUpdater$' -benchmem ./bench/seedtest"
	b.Run("update", func(b *testing.B) {
		for _, size := range updaterSizes {
			b.Run(fmt.Sprintf("transaction size: %d", size), func(b *testing.B) {
				updaterCell(b, c, fmt.Sprintf("update-%d", size), "reference_updates/s")
			})
		}
	})
	b.Run("delete", func(b *testing.B) {
		b.Run(fmt.Sprintf("reference count %d", updaterRefs), func(b *testing.B) {
			for _, packed := range []bool{false, true} {
				b.Run(fmt.Sprintf("references packed %t", packed), func(b *testing.B) {
					// The names of rows say loose and packed, those of subtests true and false.
					kind := "loose"
					if packed {
						kind = "packed"
					}
					for _, size := range updaterSizes {
						b.Run(fmt.Sprintf("transaction size %d", size), func(b *testing.B) {
							updaterCell(b, c, fmt.Sprintf("delete-%s-%d", kind, size), "reference_deletions/s")
						})
					}
				})
			}
		})
	})
}

// updaterCell measures one cell, and reports what the reference does under the unit rate. The line
// that is logged has durability and audit.
func updaterCell(b *testing.B, c bench.Config, row, rate string) {
	b.Helper()
	c.Select = []string{"refs.gitaly/" + row}
	var last *bench.Result
	for b.Loop() {
		last = execute(b, &c)
		for _, f := range failures(last) {
			b.Error(f)
		}
	}
	for i := range last.Suites {
		s := &last.Suites[i]
		b.Log(labelLine(s))
		for _, m := range updaterMetrics(s, rate) {
			b.ReportMetric(m.Value, m.Unit)
		}
	}
}

// updaterMetrics are the medians of a row of transactions, in the reference's units. What was not
// measured is left out.
func updaterMetrics(row *bench.Row, rate string) []bench.Metric {
	var out []bench.Metric
	for _, m := range []struct{ name, unit string }{
		{"ns_per_transaction", "ns/op"},
		{"client_bytes_per_transaction", "B/op"},
		{"client_allocs_per_transaction", "allocs/op"},
		{row.Headline, rate},
	} {
		if f, ok := row.Figures[m.name]; ok && !f.IsZero() {
			out = append(out, bench.Metric{Value: f.Median(), Unit: m.unit})
		}
	}
	return out
}
