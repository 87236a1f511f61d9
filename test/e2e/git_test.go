package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gitVersions are the versions of git's protocol.
var gitVersions = []string{"0", "1", "2"}

func TestGitClonesFetchesAndPushes(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	for _, version := range gitVersions {
		t.Run("v"+version, func(t *testing.T) {
			host.t = t
			repo := "app" + version
			host.makeRepo(repo, nil)
			url := host.url(repo)
			w := newWork(t, version)

			// An empty repository.
			out := w.git("clone", url, "empty")
			if !strings.Contains(out, "empty repository") {
				t.Errorf("clone of nothing says %q", out)
			}
			if version == "2" {
				if head := w.in("empty").git("symbolic-ref", "HEAD"); head != "refs/heads/main" {
					t.Errorf("the clone is on %s", head)
				}
			}
			first := w.commit("a", "1")
			if out := w.git("push", "-o", "millrace.index", url, "main"); !strings.Contains(out, "remote: millrace: p=0 i=") || !strings.Contains(out, "[new branch]") {
				t.Errorf("push says %q", out)
			}
			w.git("clone", "-q", url, "clone")
			c := w.in("clone")
			if got := c.git("rev-parse", "HEAD", "origin/main", "origin/HEAD"); got != first+"\n"+first+"\n"+first {
				t.Errorf("the clone is at %q", got)
			}

			// Fetch, with tags that follow.
			second := w.commit("a", "2")
			w.git("tag", "-a", "-m", "one", "v1")
			w.git("push", "-q", url, "main", "v1")
			c.git("fetch", "-q")
			if got := c.git("rev-parse", "origin/main", "v1^{commit}"); got != second+"\n"+second {
				t.Errorf("fetched %q", got)
			}
			if refs := w.refsOf(url); refs["HEAD"] != second || refs["refs/tags/v1^{}"] != second {
				t.Errorf("refs %v", refs)
			}

			// Force, and a lease that is stale.
			w.git("reset", "-q", "--hard", first)
			third := w.commit("b", "3")
			w.refuses("non-fast-forward", "push", url, "main")
			w.refuses("stale info", "push", "--force-with-lease=main:"+first, url, "main")
			w.git("push", "-q", "--force-with-lease=main:"+second, url, "main")
			if refs := w.refsOf(url); refs["refs/heads/main"] != third {
				t.Errorf("after the force main is at %s", refs["refs/heads/main"])
			}

			// Deletion, not of the default branch.
			w.git("push", "-q", url, "main:refs/heads/gone")
			w.git("push", "-q", url, ":gone")
			w.refuses("default branch", "push", url, ":main")
			if refs := w.refsOf(url); refs["refs/heads/gone"] != "" || refs["refs/heads/main"] != third {
				t.Errorf("after deletions %v", refs)
			}

			// Atomic or not, and names that are in each other's way.
			w.git("push", "-q", url, "main:refs/heads/x")
			w.refuses("exists; cannot create", "push", "--atomic", url, ":x", "main:refs/heads/x/y")
			w.git("push", "-q", url, ":x", "main:refs/heads/x/y")
			w.refuses("atomic push fail", "push", "--atomic", url, "main:refs/heads/fresh", "main:refs/heads/x")
			if refs := w.refsOf(url); refs["refs/heads/x/y"] != third || refs["refs/heads/fresh"] != "" || refs["refs/heads/x"] != "" {
				t.Errorf("after the swap %v", refs)
			}
			w.refuses("cannot update to non-commit", "push", url, "v1:refs/heads/tag")

			// Options: ours are known or refused, others pass.
			w.git("push", "-q", "-o", "ci.skip", "-o", "anything", url, "main:refs/heads/o")
			w.refuses("millrace.nonsense is not known", "push", "-o", "millrace.nonsense=1", url, "main:refs/heads/o2")

			w.git("clone", "-q", "--mirror", url, "final")
			w.in("final").whole()
		})
	}
}

func TestGitClonesShallowAndPartial(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	source := newWork(t, "2")
	source.history(60)
	source.git("push", "-q", "--mirror", url)
	for _, version := range gitVersions {
		t.Run("v"+version, func(t *testing.T) {
			w := newWork(t, version)
			w.git("clone", "-q", "--depth=3", url, "shallow")
			c := w.in("shallow")
			if n := c.git("rev-list", "--first-parent", "--count", "HEAD"); n != "3" {
				t.Errorf("%s commits of depth 3", n)
			}
			c.git("fetch", "-q", "--deepen=4")
			if n := c.git("rev-list", "--first-parent", "--count", "HEAD"); n != "7" {
				t.Errorf("%s commits after four more", n)
			}
			c.git("fetch", "-q", "--unshallow")
			if n := c.git("rev-list", "--first-parent", "--count", "HEAD"); n != "60" {
				t.Errorf("%s commits of all", n)
			}
			c.whole()
			w.git("clone", "-q", "--shallow-exclude=v39", url, "excluded")
			if n := w.in("excluded").git("rev-list", "--first-parent", "--count", "HEAD"); n != "20" {
				t.Errorf("%s commits after the tag", n)
			}
			w.git("clone", "-q", "--no-checkout", "--filter=blob:none", url, "partial")
			p := w.in("partial")
			if missing := p.git("rev-list", "--objects", "--missing=print", "HEAD"); !strings.Contains(missing, "\n?") {
				t.Error("a partial clone lacks nothing")
			}
			p.git("checkout", "-q", "HEAD") // fetches what it needs
			if got, err := os.ReadFile(filepath.Join(p.dir, "dir4/file4")); err != nil || !strings.HasPrefix(string(got), "version 59") {
				t.Errorf("%v: %q", err, got)
			}
			w.git("clone", "-q", "--single-branch", "--branch", "topic/19", url, "single")
			w.in("single").whole()
		})
	}
}

func TestGitMirrorsARepositoryWithManyRefs(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	w := newWork(t, "2")
	w.history(400)
	for i := range 300 {
		w.git("update-ref", fmt.Sprintf("refs/heads/many/%03d", i), fmt.Sprintf("main~%d", i))
	}
	w.git("push", "-q", "--mirror", url)
	want := map[string]string{}
	for line := range strings.Lines(w.git("for-each-ref", "--format=%(refname) %(objectname)")) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name] = id
	}
	w.git("clone", "-q", "--mirror", url, "mirror")
	m := w.in("mirror")
	got := map[string]string{}
	for line := range strings.Lines(m.git("for-each-ref", "--format=%(refname) %(objectname)")) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[name] = id
	}
	if !maps.Equal(got, want) || len(want) < 380 {
		t.Errorf("%d refs came back of %d", len(got), len(want))
	}
	m.whole()
	w.git("push", "-q", "--prune", url, "refs/heads/main:refs/heads/main", "refs/heads/many/*:refs/heads/many/*")
	w.git("push", "-q", "--mirror", url) // and again
	if refs := w.refsOf(url); len(refs) < len(want) {
		t.Errorf("%d refs after two more", len(refs))
	}
}
