package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestRandomNamesGetTheVerdictOfGit has git list refs of a file that it did not write: it leaves out those with names that it
// does not take. Git stops at a name that is not a plain path, so the test asks for each of those by itself. MILLRACE_REF_NAMES says how
// many names, 20,000 without.
func TestRandomNamesGetTheVerdictOfGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil || testing.Short() {
		t.Skip("runs git")
	}
	want, seed := 20_000, uint64(7)
	if s := os.Getenv("MILLRACE_REF_NAMES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		want, seed = n, rand.Uint64()
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 7))
	parts := []string{
		"a", "b", ".", "..", "@", "{", "@{", "/", "/", "/", "//", ".lock", "~", "^", ":", "?", "*", "[", "\\", " ", "\x01", "\x7f", "ü", "-", "lock", "HEAD", "}",
	}
	const unsafe = 100
	plain, other := make(map[string]bool, want), map[string]bool{}
	for len(plain) < want {
		name := "refs/"
		for range 1 + r.IntN(9) {
			if part := parts[r.IntN(len(parts))]; r.IntN(3) > 0 { // most names are good but for a part or two
				name += part
			} else {
				name += string(rune('a' + r.IntN(26)))
			}
		}
		if path.Clean(name) == name && name != "refs" {
			plain[name] = true
		} else if len(other) < unsafe {
			other[name] = true
		}
	}
	taken := gitTakes(t, plain)
	good := 0
	for name := range plain {
		rule := millrace.RefNameRule(name)
		if taken[name] != (rule == "") {
			t.Errorf("%q: git takes it: %v, we: %q", name, taken[name], rule)
		}
		if rule == "" {
			good++
		}
	}
	if good < want/20 || want-good < want/20 {
		t.Errorf("of %d names %d are good: too few of one kind", want, good)
	}
	for name := range other {
		var exit *exec.ExitError
		refuses := errors.As(exec.Command("git", "check-ref-format", name).Run(), &exit)
		if rule := millrace.RefNameRule(name); refuses != (rule != "") {
			t.Errorf("%q: git refuses it: %v, we: %q", name, refuses, rule)
		}
	}
}

// gitTakes returns which of the names git lists.
func gitTakes(t *testing.T, names map[string]bool) map[string]bool {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) *exec.Cmd {
		return exec.Command("git", append([]string{"--git-dir", dir}, args...)...)
	}
	if out, err := exec.Command("git", "init", "-q", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	id, err := git("hash-object", "-w", "--stdin").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "packed-refs"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for name := range names {
		fmt.Fprintf(w, "%s %s\n", strings.TrimSpace(string(id)), name)
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := git("for-each-ref", "--format=%(refname)").Output()
	if err != nil {
		t.Fatalf("for-each-ref: %v", err)
	}
	taken := make(map[string]bool, len(names))
	for line := range strings.Lines(string(out)) {
		taken[strings.TrimSuffix(line, "\n")] = true
	}
	return taken
}
