package e2e

import (
	"maps"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// TestOneForcedBranchOfAPushIsRefusedByItself pushes branches that move forward, one that does not, a new one, a tag of a tag and
// a deletion at once, where a rule or the token denies force.
func TestOneForcedBranchOfAPushIsRefusedByItself(t *testing.T) {
	t.Parallel()
	l, _ := startGit(t)
	plain := l.addToken("plain", "acme", "[ref:read, ref:write]")
	l.stop()
	l.start()
	admin := l.git()
	rule := &pb.RepoConfig{Rules: []*pb.RefRule{{Refs: "refs/heads/back", Deny: []pb.RefRule_Deny{pb.RefRule_FORCE}}}}
	w := newWork(t, "2")
	first := w.commit("a", "1")
	second := w.commit("a", "2")
	w.git("reset", "-q", "--hard", first)
	aside := w.commit("b", "3")
	ahead := w.commit("b", "4")
	w.git("tag", "-a", "-m", "m", "one", ahead)
	w.git("tag", "-a", "-m", "m", "two", "one")
	for name, c := range map[string]struct {
		token  string
		config *pb.RepoConfig
		says   string
	}{
		"rule":  {admin.token, rule, "protected by rule 1"},
		"token": {plain, nil, "ref:force"},
	} {
		admin.makeRepo(name, c.config)
		w.git("push", "-q", admin.url(name), second+":refs/heads/back", first+":refs/heads/on", aside+":refs/heads/far", first+":refs/heads/gone")
		before := w.refsOf(admin.url(name))
		h := admin
		h.token = c.token
		specs := []string{
			"+" + aside + ":refs/heads/back", second + ":refs/heads/on", ahead + ":refs/heads/far", ahead + ":refs/heads/new",
			"two", ":refs/heads/gone",
		}
		why := c.says + "; refs/heads/back does not move forward: " + aside + " does not descend from " + second
		w.refuses(why, append([]string{"push", "--atomic", h.url(name)}, specs...)...)
		if got := w.refsOf(admin.url(name)); !maps.Equal(got, before) {
			t.Errorf("%s: an atomic push moved refs: %v", name, got)
		}
		out, err := w.try(append([]string{"push", h.url(name)}, specs...)...)
		if err == nil || !strings.Contains(out, why) || strings.Count(out, "[remote rejected]") != 1 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		got := w.refsOf(admin.url(name))
		for ref, want := range map[string]string{
			"refs/heads/back": second, "refs/heads/on": second, "refs/heads/far": ahead, "refs/heads/new": ahead, "refs/heads/gone": "",
			"refs/tags/two^{}": ahead,
		} {
			if got[ref] != want {
				t.Errorf("%s: %s is at %q, not %q", name, ref, got[ref], want)
			}
		}
		// The same from a clone that lacks the history: what moves forward is told from the server's objects.
		w.git("clone", "-q", "--depth=1", "--no-single-branch", h.url(name), "shallow-"+name)
		s := w.in("shallow-" + name)
		s.git("checkout", "-q", "origin/far")
		on := s.commit("c", name)
		out, err = s.try("push", h.url(name), on+":refs/heads/far", on+":refs/heads/new", "+origin/far:refs/heads/back")
		got = w.refsOf(admin.url(name))
		if err == nil || !strings.Contains(out, c.says) || strings.Count(out, "[remote rejected]") != 1 || got["refs/heads/far"] != on || got["refs/heads/new"] != on || got["refs/heads/back"] != second {
			t.Errorf("%s, shallow: %v, %v\n%s", name, err, got, out)
		}
	}
}
