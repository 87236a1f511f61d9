package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every patch fits the files as they are, all of them together are Go, and each is in the list of what must be found.
func TestEveryBugFitsTheFilesAsTheyAre(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := planted(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
			t.Error(err)
		}
	}
	patches, err := filepath.Glob("*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range patches {
		patches[i] = strings.TrimSuffix(name, ".patch")
	}
	text, err := os.ReadFile("bugs.txt")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] != "#" {
			listed = append(listed, f[1])
		}
	}
	slices.Sort(listed)
	if !slices.Equal(patches, listed) {
		t.Errorf("patches are %q, bugs.txt lists %q", patches, listed)
	}
}

// Bugs are put into a file by the lines around them, wherever those are by now.
func TestABugIsFoundWhereItsLinesAre(t *testing.T) {
	root := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(root, "a.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put := func(patches ...string) (string, error) {
		var edits []edit
		for _, p := range patches {
			hunks, err := parse(p)
			if err != nil {
				return "", err
			}
			for _, h := range hunks {
				e, err := h.locate(root, "bug")
				if err != nil {
					return "", err
				}
				edits = append(edits, e...)
			}
		}
		return apply(root, "a.go", edits)
	}
	adds := func(line string) string {
		return "--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,3 @@\n one\n+" + line + "\n two\n"
	}
	changes := func(line string) string {
		return "--- a/a.go\n+++ b/a.go\n@@ -2,2 +2,2 @@\n one\n-two\n+" + line + "\n"
	}
	write("zero\none\ntwo\n")
	if got, err := put("--- a/a.go\n+++ b/a.go\n@@ -900,2 +900,3 @@\n one\n+A\n two\n"); err != nil || got != "zero\none\nA\ntwo\n" {
		t.Errorf("a file that became short: %q, %v", got, err)
	}
	for _, c := range []struct{ patches, want []string }{
		{[]string{adds("A")}, []string{"zero\none\nA\ntwo\n"}},
		{[]string{adds("A"), adds("B")}, []string{"zero\none\nA\nB\ntwo\n"}},
		{[]string{changes("A")}, []string{"zero\none\nA\n"}},
		{[]string{changes("A"), changes("B")}, nil},
	} {
		got, err := put(c.patches...)
		if len(c.want) == 0 {
			if err == nil {
				t.Errorf("%q: two changes of a line give %q", c.patches, got)
			}
			continue
		}
		if err != nil || got != c.want[0] {
			t.Errorf("%q: %q, %v", c.patches, got, err)
		}
	}
	write("zero\nother\ntwo\n")
	if got, err := put(adds("A")); err == nil || !strings.Contains(err.Error(), "a.go") {
		t.Errorf("a patch whose lines are gone gives %q, %v", got, err)
	}
	for _, bad := range []string{"", "+++ b/a.go\n", "@@ -1 +1 @@\n", "+++ b/a.go\n@@ -x @@\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is a patch", bad)
		}
	}
}
