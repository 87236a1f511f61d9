package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/campaign"
)

// exampleProgram is the example of a folder, built, with the server that it is run against.
type exampleProgram struct {
	t    *testing.T
	path string
	env  []string
}

func buildExample(t *testing.T, name string, l *local) exampleProgram {
	t.Helper()
	root := got[string](t)(campaign.Root("."))
	ctx := bounded(t, 5*time.Minute)
	path := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./examples/"+name)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The cache of this machine's Go spares each run the compilation of the standard library.
	cache := strings.TrimSpace(string(got[[]byte](t)(exec.CommandContext(ctx, "go", "env", "GOCACHE").Output())))
	return exampleProgram{t, path, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(), "GOCACHE=" + cache,
		"MILLRACE_URL=" + l.running.Address, "MILLRACE_REST_URL=" + l.running.HTTPAddress, "MILLRACE_TOKEN=" + l.tokens[0],
	}}
}

// run runs the program to its end and returns what it prints.
func (e exampleProgram) run(args ...string) string {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.path, args...)
	cmd.Env = e.env
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		e.t.Fatalf("%v\n%s\n%s", err, out, failed.String())
	}
	return string(out)
}

// pushed is the arguments of the example's task.
type pushed struct {
	Repo   string `json:"repo"`
	Branch string `json:"branch"`
	Commit string `json:"commit"`
}

// verdict is its result.
type verdict struct {
	Passed bool   `json:"passed"`
	Output string `json:"output"`
}

func TestTheExampleOfGoTestsWhatIsPushed(t *testing.T) {
	l, _ := startGit(t)
	example := buildExample(t, "go", l)
	c, ctx := l.client(0), bounded(t, 5*time.Minute)
	out := example.run()
	for _, want := range []string{
		`passed  "return a + b"`, `failed  "return a - b"`, "Of(2, 3) = -1, not 5", "refs/checks/passed/main", "refs/checks/failed/main",
		"passed: 1 in all", "failed: 1 in all", "ada@example.test was told",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the example does not say %q:\n%s", want, out)
		}
	}
	first := got[millrace.Ref](t)(c.Repo("example").Get(ctx, "refs/checks/passed/main"))
	out = example.run()
	second := got[millrace.Ref](t)(c.Repo("example").Get(ctx, "refs/checks/passed/main"))
	if commit, _, _ := strings.Cut(out, " "); second.ID == first.ID || !strings.HasPrefix(second.ID, commit) {
		t.Errorf("the ref is at %s; it was at %s, and the last push that passed is %s", second.ID, first.ID, commit)
	}

	// A check of the first push that comes late does not move the ref back. It is done by the worker of a run for another repository.
	late := got[*millrace.Handle[verdict]](t)(millrace.Job[pushed, verdict]("push.check").Queue("checks").
		Add(ctx, c, pushed{Repo: "example", Branch: "main", Commit: first.ID}))
	example.run("-repo", "other")
	if v := got[verdict](t)(late.Wait(ctx)); !v.Passed {
		t.Errorf("the late check failed:\n%s", v.Output)
	}
	if ref := got[millrace.Ref](t)(c.Repo("example").Get(ctx, "refs/checks/passed/main")); ref.ID != second.ID {
		t.Errorf("the ref is at %s, not at %s as before the late check", ref.ID, second.ID)
	}
	for key, want := range map[string]string{"{example}/passed": "3", "{example}/failed": "2", "{other}/passed": "1"} {
		if n := got[millrace.Value](t)(c.KV("counts").Get(ctx, key)); n.String() != want {
			t.Errorf("the count %s is %s, not %s", key, n, want)
		}
	}
}
