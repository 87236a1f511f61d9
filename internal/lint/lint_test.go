package lint

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

const root = "../.."

// repository reads this repository once.
var repository = sync.OnceValues(func() (*tree, error) { return loadTree(os.DirFS(root)) })

func load(t *testing.T) *tree {
	t.Helper()
	r, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func report(t *testing.T, findings []finding) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

func TestImports(t *testing.T) {
	r := load(t)
	l, err := readLaw(r.fsys)
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkImports(r, l))
}

func TestFences(t *testing.T) {
	r := load(t)
	report(t, checkLibraries(r))
	report(t, checkCalls(r))
	replay, err := checkReplay(r, root)
	if err != nil {
		t.Fatal(err)
	}
	report(t, replay)
}

func TestGiveBack(t *testing.T) {
	found, err := checkGiveBack(load(t), root)
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestErrors(t *testing.T) {
	r := load(t)
	report(t, checkErrors(r))
	report(t, checkErrorTable(r))
}

func TestPackageDocs(t *testing.T) { report(t, checkComments(load(t))) }

func TestNoSleep(t *testing.T) { report(t, checkSleep(load(t))) }

func TestNames(t *testing.T) { report(t, checkNames(load(t))) }

func TestSizes(t *testing.T) {
	found, err := checkSizes(load(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestSuite(t *testing.T) {
	found, err := checkSuite(load(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestDocs(t *testing.T) {
	for _, check := range []func(*tree) ([]finding, error){checkLinks, checkDecisions} {
		found, err := check(load(t))
		if err != nil {
			t.Fatal(err)
		}
		report(t, found)
	}
}

func TestProse(t *testing.T) {
	found, err := checkProse(load(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

// TestShipped asks the go command, whose reads a cached result does not see: run it with -count=1.
func TestShipped(t *testing.T) {
	r := load(t)
	for _, target := range []string{"./cmd/millrace", "./sdk/go"} {
		if _, err := os.Stat(filepath.Join(root, target)); os.IsNotExist(err) {
			t.Logf("%s does not exist, so it ships nothing", target)
			continue
		}
		for _, goos := range []string{"linux", "darwin"} {
			for _, tags := range []string{"", "invariants"} {
				found, err := checkLinked(root, r.module, target, goos, tags)
				if err != nil {
					t.Error(err)
				}
				for _, f := range found {
					t.Error(f)
				}
			}
		}
		if target != "./cmd/millrace" {
			continue
		}
		if os.Getenv("MILLRACE_CHECK") == "" {
			t.Log("make check looks into the binary: all packages are compiled once more for it")
			continue
		}
		found, err := checkBinary(root, r.module, target, "", t.TempDir())
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			t.Error(f)
		}
	}
}
