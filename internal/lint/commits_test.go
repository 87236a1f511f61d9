package lint

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMessagesOfCommitsAreChecked(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	git("init", "-q")
	if out, err := exec.Command("sh", "-c", `mkdir "$1/scripts" && cp ../../scripts/commits.sh "$1/scripts"`, "sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check := func() (string, bool) {
		out, err := exec.Command(filepath.Join(dir, "scripts/commits.sh"), "HEAD~1..HEAD").CombinedOutput()
		return string(out), err == nil
	}
	git("commit", "-q", "--allow-empty", "-m", "begin")
	if out, err := exec.Command(filepath.Join(dir, "scripts/commits.sh")).CombinedOutput(); err != nil || !strings.Contains(string(out), "no message was checked") {
		t.Errorf("without the history: %v, %s", err, out)
	}
	for message, says := range map[string]string{
		"api: refuse it\n\nFor it fails later.":          "",
		"api, internal/core: refuse it\n\nFor it fails.": "",
		"docs: say it":                                      "",
		"Refuse it\n\nFor it fails.":                        "must begin with",
		"api: Refuse it\n\nFor it fails.":                   "must begin with",
		"api: refuse it":                                    "has no body",
		"api: " + strings.Repeat("x", 68) + "\n\nIt fails.": "must be at most 72",
	} {
		git("commit", "-q", "--allow-empty", "-m", message)
		if said, ok := check(); ok != (says == "") || !strings.Contains(said, says) {
			t.Errorf("%q: %v, %s", message, ok, said)
		}
	}
}
