package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAClonesWorkTreeIsThatOfTheFirstBranch pushes to repositories that were made with the branch main, as people do whose
// histories have another one.
func TestAClonesWorkTreeIsThatOfTheFirstBranch(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	repo := l.client(0).Repo("api")
	w := newWork(t, "2")
	w.commit("first", "1")
	for name, push := range map[string]func(url string){
		"master": func(url string) { w.git("push", "-q", url, "main:master") },
		"trunk": func(url string) {
			w.git("push", "-q", url, "main:trunk")
			w.git("push", "-q", url, "main:master", "main:a")
		},
		"topic/one": func(url string) {
			w.git("push", "-q", "--atomic", url, "main:refs/heads/topic/one", "main:refs/tags/v1")
		},
		"api": func(url string) {
			w.git("push", "-q", url, "main:refs/keep/main")
			if reason, _ := refsByAPI(t, repo, "refs/heads/api", "", w.git("rev-parse", "main")); reason != "" {
				t.Errorf("create by the API: %s", reason)
			}
		},
	} {
		app := strings.ReplaceAll(name, "/", "-")
		host.makeRepo(app, nil)
		url := host.url(app)
		for _, version := range gitVersions {
			c := newWork(t, version)
			c.git("clone", url, "empty")
			if head := c.in("empty").git("symbolic-ref", "HEAD"); version == "2" && head != "refs/heads/main" {
				t.Errorf("%s, version %s: the clone of nothing is on %s", name, version, head)
			}
		}
		push(url)
		for _, version := range gitVersions {
			c := newWork(t, version)
			out := c.git("clone", url, "clone")
			if head := c.in("clone").git("symbolic-ref", "HEAD"); head != "refs/heads/"+name || strings.Contains(out, "warning") {
				t.Errorf("%s, version %s: the clone is on %s\n%s", name, version, head, out)
			}
			if _, err := os.Stat(filepath.Join(c.dir, "clone", "first")); err != nil {
				t.Errorf("%s, version %s: the clone has no work tree: %v", name, version, err)
			}
			if out := c.git("ls-remote", "--symref", url, "HEAD"); !strings.HasPrefix(out, "ref: refs/heads/"+name+"\tHEAD\n") {
				t.Errorf("%s, version %s: HEAD is %q", name, version, out)
			}
		}
	}
	url := host.url("master")
	w.git("push", "-q", url, "main") // from here on what HEAD points to is there
	if out := w.git("ls-remote", "--symref", url, "HEAD"); !strings.HasPrefix(out, "ref: refs/heads/main\t") {
		t.Errorf("HEAD is %q when there is a main", out)
	}
}
