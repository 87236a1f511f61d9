package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCountSumsTestsAndSubtests(t *testing.T) {
	c, shown := run(t, `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q"}
`)
	if c != (counts{passed: 2, skipped: 1}) || !c.good() {
		t.Errorf("counted %+v", c)
	}
	if shown != "ok  \tp\t0.1s\n?   \tq\t[no test files]\n" {
		t.Errorf("shown %q", shown)
	}
	if c.String() != "2 passed, 0 failed, 1 skipped" {
		t.Errorf("summary %q", c)
	}
}

func TestFailingTestShowsItsOutputOnly(t *testing.T) {
	c, shown := run(t, `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"loud\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`)
	if c != (counts{passed: 1, failed: 1}) || c.good() {
		t.Errorf("counted %+v", c)
	}
	if shown != "loud\nFAIL\tp\t0.1s\n" {
		t.Errorf("shown %q", shown)
	}
}

func TestPackageThatFailsWithoutAFailingTestCountsOnce(t *testing.T) {
	for name, events := range map[string]string{
		"does not build": `{"ImportPath":"p","Action":"build-output","Output":"x.go:1: broken\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`,
		"ends in a test": `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: x\n"}
{"Action":"fail","Package":"p"}
`,
		"never ends": `{"Action":"start","Package":"p"}
`,
	} {
		c, shown := run(t, events)
		if c.failed != 1 || c.good() {
			t.Errorf("%s: counted %+v", name, c)
		}
		if shown == "" {
			t.Errorf("%s: nothing shown", name)
		}
	}
}

func TestNothingRunIsNotGood(t *testing.T) {
	if c, _ := run(t, ""); c.good() {
		t.Error("no test ran, and that was good")
	}
	if c, _ := run(t, `{"Action":"skip","Package":"p"}`); c.good() {
		t.Error("no test ran, and that was good")
	}
}

func TestBrokenInputIsRefused(t *testing.T) {
	if _, err := count(strings.NewReader("{broken\n"), new(strings.Builder)); err == nil {
		t.Error("accepted")
	}
}

// The go command's own output, for a package that does not build and one that panics, must be understood.
func TestRealFailuresAreCounted(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.com/m\n\ngo 1.26\n",
		"ok/ok_test.go":    "package ok\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Run(\"b\", func(*testing.T) {}) }\n",
		"bad/bad_test.go":  "package bad\nfunc broken() { x }\n",
		"boom/boo_test.go": "package boom\nimport \"testing\"\nfunc TestA(t *testing.T) { panic(\"boom\") }\n",
		"skip/s_test.go":   "package skip\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Skip() }\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	text, _ := cmd.Output() // fails, as it must
	c, shown := run(t, string(text))
	if c != (counts{passed: 2, failed: 2, skipped: 1}) {
		t.Errorf("counted %+v of %s", c, text)
	}
	for _, want := range []string{"undefined: x", "panic: boom", "ok  \texample.com/m/ok"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown:\n%s", want, shown)
		}
	}
}

func run(t *testing.T, events string) (counts, string) {
	t.Helper()
	var out strings.Builder
	c, err := count(strings.NewReader(events), &out)
	if err != nil {
		t.Fatal(err)
	}
	return c, out.String()
}
