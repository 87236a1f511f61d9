package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPackageBeyondItsBudgetIsNamedInTheLastLines(t *testing.T) {
	budgets, err := readBudgets(strings.NewReader(`
# comment
clock lint 30
cpu internal/node 60  # whole nodes
cpu test/e2e 100
cpu sdk/go 20
`))
	if err != nil {
		t.Fatal(err)
	}
	used, err := readUsed(strings.NewReader("/r/internal/node\t41.0\n/r/internal/node\t20.5\n/r/test/e2e\t99.9\n/r/internal/api\t10.4\n/r/internal/core\t9.0\n"), "/r")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report(&out, used, budgets)
	const want = `processor seconds of tests: 181, of these:
   100 of  100  test/e2e
    62 of   60  internal/node
    10          internal/api
     – of   20  sdk/go
WARNING: internal/node used 62 s, over its budget of 60 s
WARNING: internal/api used 10 s and has no budget: over 10 s it needs one
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}

func TestATableThatCannotBeReadIsRefused(t *testing.T) {
	for _, text := range []string{"cpu a", "cpu a b", "cpu a 0", "cpu a 1\ncpu a 2", "cpu a 1 2"} {
		if got, err := readBudgets(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	for _, text := range []string{"/r/a", "/r/a\tmany"} {
		if got, err := readUsed(strings.NewReader(text), "/r"); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// Go test starts binaries through the program: their output and their exit code stay what they were.
func TestABinaryIsRunAsItIsAndItsTimeIsNoted(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "testcount")
	if text, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	noted := filepath.Join(dir, "cpu")
	for script, want := range map[string]int{"echo said; exit 0": 0, "echo said; exit 3": 3, "echo said; kill -9 $$": 1} {
		cmd := exec.Command(program, "-run", "/bin/sh", "-c", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), cpuFile+"="+noted)
		out, _ := cmd.Output() // the exit code says more
		if code := cmd.ProcessState.ExitCode(); code != want || string(out) != "said\n" {
			t.Errorf("%s: exit code %d, output %q; want %d", script, code, out, want)
		}
	}
	text, err := os.ReadFile(noted)
	if err != nil {
		t.Fatal(err)
	}
	used, err := readUsed(bytes.NewReader(text), dir)
	if _, ok := used["."]; err != nil || !ok || strings.Count(string(text), "\n") != 3 {
		t.Errorf("noted %q: %v, %v", text, used, err)
	}
}
