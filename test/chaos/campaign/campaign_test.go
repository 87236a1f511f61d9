package campaign

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func row(t *testing.T, id string) Row {
	t.Helper()
	r, ok := Find(id)
	if !ok {
		t.Fatalf("no row %s", id)
	}
	return r
}

func tally(t *testing.T, dir, code string, lines ...Line) Tally {
	t.Helper()
	for _, l := range lines {
		l.Row = "R-01"
		if err := Append(dir, l); err != nil {
			t.Fatal(err)
		}
	}
	read, err := Read(dir, "R-01")
	if err != nil {
		t.Fatal(err)
	}
	return Count(row(t, "R-01"), read, code)
}

func TestPiecesOfTheSameCodeAddUp(t *testing.T) {
	dir := t.TempDir()
	piece := Line{Code: "c1", Commit: "aaa", Planned: 10, Done: 10, Faults: map[string]int{"kill": 10}}
	if got, want := tally(t, dir, "c1", piece).String(), "R-01: 10 done / 1,000 wanted runs, 0 violations"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got := tally(t, dir, "c1", piece)
	if got.Done != 20 || got.Faults != 20 || !got.Pass() {
		t.Errorf("%+v", got)
	}
}

func TestAnInterruptedPieceCountsWhatIsDoneAndAnInvalidOneNothing(t *testing.T) {
	got := tally(t, t.TempDir(), "c1", Line{Code: "c1", Planned: 250, Done: 7}, Line{Code: "c1", Done: 5, Invalid: "no fault fired"})
	if got.Done != 7 || got.Invalid != 1 {
		t.Errorf("%+v", got)
	}
}

func TestOtherCodeStartsAtNothingAndKeepsTheOldCountVisible(t *testing.T) {
	got := tally(t, t.TempDir(), "c2", Line{Code: "c1", Commit: "aaa", Done: 900}, Line{Code: "c1", Commit: "bbb", Done: 100}, Line{Code: "c2", Done: 3})
	if got.Done != 3 || len(got.Before) != 1 || got.Before[0].Done != 1000 {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(got.String(), "before bbb: 1,000 done") {
		t.Errorf("the older count is not shown: %s", got)
	}
}

func TestAViolationStaysRedUntilOtherCodePassesItsSeed(t *testing.T) {
	dir := t.TempDir()
	failed := Line{Code: "c1", Seed: 5, Done: 10, Violations: 1, Failed: []Seed{77}}
	steps := []struct {
		line Line
		red  bool
	}{
		{failed, true},
		{Line{Code: "c1", Seed: 77, Done: 1}, true},
		{Line{Code: "c2", Seed: 8, Done: 100}, true},
		{Line{Code: "c2", Seed: 77, Done: 1, Violations: 1}, true},
		{Line{Code: "c2", Seed: 77, Done: 1, Invalid: "no fault fired"}, true},
		{Line{Code: "c2", Seed: 77, Done: 1}, false},
	}
	for i, s := range steps {
		got := tally(t, dir, "c3", s.line)
		if red := len(got.Red) > 0; red != s.red {
			t.Errorf("step %d: red = %v, want %v", i, red, s.red)
		}
	}
}

func TestSeedsRepeatARunAndDiffer(t *testing.T) {
	s := Seed(0x1234)
	if s.Run(0) != s || s.Run(1) == s.Run(2) || s.Run(1) != Seed(0x1234).Run(1) {
		t.Error("seeds of runs")
	}
	var back Seed
	text, _ := s.MarshalText()
	if err := back.UnmarshalText(text); err != nil || back != s {
		t.Errorf("%s reads as %s, err %v", s, back, err)
	}
}

func TestResultsOfAnotherSchemaAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "R-01.jsonl"), []byte(`{"schema":"x/9","row":"R-01"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, "R-01"); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("err = %v", err)
	}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheCodeHashChangesWithWhatARowIsAbout(t *testing.T) {
	root := t.TempDir()
	hash := func(id string) string {
		h, err := CodeHash(root, row(t, id))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	write(t, root, "go.mod", "require (\n\tgo.etcd.io/raft/v3 v3.7.0\n\texample.org/other v1.0.0\n)\n")
	write(t, root, "internal/core/a.go", "package core")
	for _, step := range []struct {
		name, text             string
		changes01, changes16th bool
	}{
		{"internal/core/a.go", "package core // more", true, true},
		{"internal/core/a_test.go", "package core", false, false},
		{"internal/core/testdata/x", "golden", false, false},
		{"internal/api/a.go", "package api", false, false},
		{"internal/replog/wal/a.go", "package wal", true, true},
		{"proto/millrace/v1/a.proto", "syntax", true, true},
		{"internal/machine/queue/a.go", "package queue", false, true},
		{"internal/machine/machinetest/a.go", "package machinetest", false, false},
		{"go.mod", "require go.etcd.io/raft/v3 v3.7.1\n", true, true},
		{"go.mod", "require go.etcd.io/raft/v3 v3.7.1\nrequire example.org/other v1.0.1\n", false, false},
	} {
		before1, before16 := hash("R-01"), hash("R-16")
		write(t, root, step.name, step.text)
		if (hash("R-01") != before1) != step.changes01 || (hash("R-16") != before16) != step.changes16th {
			t.Errorf("%s: changed = %v and %v, want %v and %v", step.name, hash("R-01") != before1, hash("R-16") != before16, step.changes01, step.changes16th)
		}
	}
}
