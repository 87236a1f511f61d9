package campaign

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/concepts/guarantees.md again")

// results reads the committed lines of all rows.
func results(t *testing.T, root string) map[string][]Line {
	t.Helper()
	all := map[string][]Line{}
	for _, row := range Rows() {
		lines, err := Read(filepath.Join(root, "test", "chaos", "results"), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) > 0 {
			all[row.ID] = lines
		}
	}
	return all
}

func root(t *testing.T) string {
	t.Helper()
	root, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestThePageOfGuaranteesIsWhatTheResultsSay(t *testing.T) {
	file := filepath.Join(root(t), "docs", "concepts", "guarantees.md")
	want := Page(results(t, root(t)))
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the results say (err %v): go test ./test/chaos/campaign -run TestThePageOfGuarantees -update", file, err)
	}
}

func TestEveryRowIsPartOfAPromiseAndEveryPartIsARow(t *testing.T) {
	var parts, rows []string
	for _, p := range Promises() {
		parts = append(parts, p.Rows...)
	}
	for _, r := range Rows() {
		rows = append(rows, r.ID)
	}
	for _, o := range Others() {
		if slices.Contains(rows, o.ID) {
			t.Errorf("row %s is there twice", o.ID)
		}
		rows = append(rows, o.ID)
	}
	for _, id := range rows {
		if !slices.Contains(parts, id) {
			t.Errorf("row %s holds no promise", id)
		}
	}
	for _, id := range parts {
		if !slices.Contains(rows, id) {
			t.Errorf("a promise names the row %s, which there is not", id)
		}
	}
}

func TestTheTestsThatThePageNamesExist(t *testing.T) {
	for _, o := range Others() {
		for _, test := range o.Tests {
			folder, name, _ := strings.Cut(test, ".")
			files, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(folder), "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			found := regexp.MustCompile(`(?m)^func ` + name)
			if !slices.ContainsFunc(files, func(file string) bool {
				b, err := os.ReadFile(file)
				return err == nil && found.Match(b)
			}) {
				t.Errorf("row %s: no test in %s begins with %s", o.ID, folder, name)
			}
		}
	}
}

func TestThePageShowsCountsFailuresAndWhatIsStale(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	lines := map[string][]Line{
		"R-01": {
			{Row: "R-01", Time: day(1), Code: "a", Commit: "aaa", Seed: 7, Done: 10, Violations: 1, Failed: []Seed{7}},
			{Row: "R-01", Time: day(2), Code: "b", Commit: "bbb", Seed: 7, Done: 1},
			{Row: "R-01", Time: day(3), Code: "b", Commit: "ccc", Done: 1200, Faults: map[string]int{"kill": 1200}, Figures: map[string]float64{"ready_p99_s": 0.25, "calls": 9}},
			{Row: "R-01", Time: day(3), Code: "b", Commit: "ccc", Done: 50, Invalid: "no fault fired"},
		},
		"R-05": {{Row: "R-05", Time: day(3).AddDate(0, -2, 0), Code: "a", Commit: "old", Done: 3}},
		"R-06": {{Row: "R-06", Time: day(3), Code: "a", Commit: "aaa", Done: 3, Violations: 2, Failed: []Seed{9}}},
		"R-15": {{Row: "R-15", Time: day(3), Code: "a", Commit: "aaa", Done: 3, Invalid: "no fault fired"}},
	}
	got := Page(lines)
	for _, want := range []string{
		"| R-01 | kill -9 of the server under mixed load | pass | 1,201 / 1,000 runs | 2026-01-03 |",
		"pass: 1,201 / 1,000 runs at commit ccc, 0 violations, 1 invalid pieces",
		"Faults that fired: kill 1,200", "Worst figures of a run: ready p99 0.25 s\n",
		"Before, at commit aaa: 10 done, 1 violations",
		"Last failure: 2026-01-01, commit aaa, seed 0x0000000000000007; passed since commit bbb",
		"| pass so far | 3 / 65,536 positions | 2025-11-03, stale |",
		"| **fail** | 3 / 10,000 damages | 2026-01-03 |", "Red until other code passes `SEED=0x0000000000000009`",
		"| invalid | 0 / 10,000 operations |",
		"| not run | 0 / 100,000 operations |  |", "| R-40 | the same checkers on other systems | not run |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}
