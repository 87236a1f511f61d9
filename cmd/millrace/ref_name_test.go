package main

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestRandomNamesGetTheVerdictOfGit asks git's update-ref --stdin, which checks names one by one in one process: a verify of
// a bad name ends it, so each name that we take goes in one stream, and each that we refuse in one of its own.
func TestRandomNamesGetTheVerdictOfGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil || testing.Short() {
		t.Skip("runs git")
	}
	r := rand.New(rand.NewPCG(7, 7))
	parts := []string{"a", "b", ".", "..", "@", "{", "@{", "/", "//", ".lock", "~", "^", ":", "?", "*", "[", "\\", " ", "\x01", "\x7f", "ü", "-", "lock"}
	good, bad := []string{}, []string{}
	for len(good) < 2000 || len(bad) < 150 {
		name := "refs/"
		for range 1 + r.IntN(5) {
			name += parts[r.IntN(len(parts))]
		}
		switch {
		case millrace.RefNameRule(name) == "":
			good = append(good, name)
		case len(bad) < 150:
			bad = append(bad, name)
		}
	}
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command("git", "--git-dir", dir, "update-ref", "-z", "--stdin")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(in)
	_, _ = io.WriteString(w, "start\x00") // that git is gone is told by Wait
	for _, name := range good {
		_, _ = io.WriteString(w, "verify "+name+"\x00\x00")
	}
	_, _ = io.WriteString(w, "abort\x00")
	_ = w.Flush()
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("a name that we take: %v: %s", err, complaint.String())
	}
	for _, name := range bad {
		var exit *exec.ExitError
		if err := exec.Command("git", "check-ref-format", name).Run(); !errors.As(err, &exit) {
			t.Errorf("git takes %q, we do not: %s", name, millrace.RefNameRule(name))
		}
	}
}
