package seedtest

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/tables"
)

func BenchmarkUpdater(b *testing.B) { Updater(b) }

func TestEveryCellOfTheUpdaterIsARow(t *testing.T) {
	rows := map[string]bool{}
	for _, s := range tables.Suites() {
		for _, r := range s.Rows {
			rows[s.Name+"/"+r.Name] = true
		}
	}
	for _, size := range updaterSizes {
		for _, kind := range []string{"update", "delete-loose", "delete-packed"} {
			if name := fmt.Sprintf("refs.gitaly/%s-%d", kind, size); !rows[name] {
				t.Errorf("there is no row %s", name)
			}
		}
	}
}

func TestAnUpdatersOperationIsATransactionAndItsMemoryTheClients(t *testing.T) {
	l := bench.Label{Durability: bench.Fsync, Voters: 1, Topology: bench.Procs, Validity: bench.Valid}
	figure := func(unit string, v float64) bench.Figure {
		f, err := bench.NewFigure(l, unit, v)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	row := bench.Row{Headline: "refs_per_s", Figures: map[string]bench.Figure{
		"refs_per_s": figure("refs/s", 25_000), "ns_per_transaction": figure("ns/op", 400_000),
		"client_bytes_per_transaction": figure("B/op", 2_900), "client_allocs_per_transaction": figure("allocs/op", 60),
	}}
	got := fmt.Sprint(updaterMetrics(&row, "reference_updates/s"))
	if want := "[{400000 ns/op} {2900 B/op} {60 allocs/op} {25000 reference_updates/s}]"; got != want {
		t.Errorf("metrics %s, want %s", got, want)
	}
}
