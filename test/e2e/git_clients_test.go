package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// TestGitClientsOfOthers does with each client what people do, as holders of tokens of several kinds. Git itself makes the
// commits, and looks at what there is in the end.
func TestGitClientsOfOthers(t *testing.T) {
	t.Parallel()
	onlyInCheck(t, "it plays the same with each client of git")
	l, _ := startGit(t)
	plain := l.addToken("plain", "acme", "[ref:read, ref:write]")
	narrow := l.addToken("narrow", "acme", "[ref:read, ref:write]\n    repos: [\"default/app-*\"]")
	l.stop()
	l.start()
	admin := l.git()
	for _, k := range knownClients {
		t.Run(k.name, func(t *testing.T) {
			h := admin
			h.t = t
			c := clientRun{t: t, knownClient: k, gitClient: k.start(t), admin: h, repo: "app-" + strings.ReplaceAll(k.name, "-", ""), dir: t.TempDir()}
			h.makeRepo(c.repo, &pb.RepoConfig{Rules: []*pb.RefRule{{Refs: "refs/heads/closed", Deny: []pb.RefRule_Deny{pb.RefRule_FORCE}}}})
			c.work = newWork(t, "2")
			c.seed()
			c.tokens = map[string]string{"an admin": h.token, "no ref:force": plain, "this repository": narrow}
			c.clones()
			c.pushes()
			c.forces()
			c.tags()
			c.deletes()
			c.shallows()
			c.fetches()
			c.ends()
		})
	}
}

// clientRun is what one client does with its repository.
type clientRun struct {
	t *testing.T
	knownClient
	gitClient
	work   // where commits are made; its remote is the client's clone
	admin  gitHost
	repo   string
	dir    string
	tokens map[string]string
}

// url is the repository's address for a token.
func (c *clientRun) url(token string) string {
	h := c.admin
	h.token = token
	return h.url(c.repo)
}

// does wants a step to go well.
func (c *clientRun) does(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %s: %v", c.name, what, err)
	}
}

// refuses wants a step to fail, and the client to show why.
func (c *clientRun) refuses(what, why string, err error) {
	c.t.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		c.t.Errorf("%s: %s: %v, not %q", c.name, what, err, why)
	}
}

// seed has git push a history, so that the client finds something.
func (c *clientRun) seed() {
	c.history(30)
	c.git("branch", "closed")
	c.git("push", "-q", "--mirror", c.admin.url(c.repo))
}

// path is the client's own clone; between steps git works in it too.
func (c *clientRun) path() string { return filepath.Join(c.dir, "clone") }

// local runs git in the client's clone.
func (c *clientRun) local(args ...string) string {
	c.t.Helper()
	return c.git(append([]string{"--git-dir=" + c.path()}, args...)...)
}

// ahead makes a commit upon a branch of the clone, without a working tree.
func (c *clientRun) ahead(branch, message string) string {
	c.t.Helper()
	id := c.local("commit-tree", "-p", branch, "-m", message, branch+"^{tree}")
	c.local("update-ref", branch, id)
	return id
}

func (c *clientRun) clones() {
	c.t.Helper()
	c.does("clone", c.clone(c.admin.url(c.repo), c.path(), 0))
	want := c.refsOf(c.admin.url(c.repo))
	got, err := c.list(c.admin.url(c.repo))
	c.does("list", err)
	for name, id := range want {
		if strings.HasSuffix(name, "^{}") || name == "HEAD" {
			continue
		}
		if got[name] != id {
			c.t.Errorf("%s lists %s at %q, not %s", c.name, name, got[name], id)
		}
	}
	c.does("fetch of all refs", c.fetch(c.admin.url(c.repo), c.path(), 0, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"))
	c.same("after the clone", "refs/heads", "refs/tags")
}

// same wants the clone to have the server's refs below prefixes.
func (c *clientRun) same(when string, prefixes ...string) {
	c.t.Helper()
	served, have := map[string]string{}, map[string]string{}
	for name, id := range c.refsOf(c.admin.url(c.repo)) {
		for _, p := range prefixes {
			if strings.HasPrefix(name, p+"/") && !strings.HasSuffix(name, "^{}") {
				served[name] = id
			}
		}
	}
	for line := range strings.Lines(c.local(append([]string{"for-each-ref", "--format=%(refname) %(objectname)"}, prefixes...)...)) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		have[name] = id
	}
	if !maps.Equal(served, have) {
		c.t.Errorf("%s: %s the clone has %v, the server %v", c.name, when, have, served)
	}
}

// pushes pushes new commits several times with each token, onto a branch with a rule too.
func (c *clientRun) pushes() {
	for who, token := range c.tokens {
		for i := range 3 {
			for _, branch := range []string{"refs/heads/main", "refs/heads/closed"} {
				id := c.ahead(branch, fmt.Sprintf("%s %d", who, i))
				c.does("push of a new commit with the token of "+who, c.push(c.url(token), c.path(), branch+":"+branch))
				if got := c.refsOf(c.admin.url(c.repo))[branch]; got != id {
					c.t.Errorf("%s: %s is at %s, not %s", c.name, branch, got, id)
				}
			}
		}
		name := "refs/heads/by-" + strings.NewReplacer(" ", "-", ":", "-").Replace(who)
		c.local("update-ref", name, "refs/heads/main~2")
		c.does("push of a new branch", c.push(c.url(token), c.path(), name+":"+name))
	}
	c.same("after pushes", "refs/heads", "refs/tags")
}

// forces goes back on branches: where that is denied, the client shows why.
func (c *clientRun) forces() {
	before := c.refsOf(c.admin.url(c.repo))
	main, closed := before["refs/heads/main"], before["refs/heads/closed"]
	c.local("update-ref", "refs/heads/main", "refs/heads/main~1")
	c.local("update-ref", "refs/heads/closed", "refs/heads/closed~1")
	for who, token := range c.tokens {
		if who == "an admin" {
			c.refuses("forced push of an admin", "protected by rule 1", c.push(c.url(token), c.path(), "+refs/heads/closed:refs/heads/closed"))
			continue
		}
		for _, branch := range []string{"refs/heads/main", "refs/heads/closed"} {
			c.refuses("forced push with the token of "+who, "ref:force", c.push(c.url(token), c.path(), "+"+branch+":"+branch))
		}
	}
	if got := c.refsOf(c.admin.url(c.repo)); !maps.Equal(got, before) {
		c.t.Errorf("%s: refused pushes moved refs: %v", c.name, got)
	}
	c.does("forced push of an admin", c.push(c.url(c.tokens["an admin"]), c.path(), "+refs/heads/main:refs/heads/main"))
	c.local("update-ref", "refs/heads/closed", closed)
	if got := c.refsOf(c.admin.url(c.repo))["refs/heads/main"]; got == main {
		c.t.Errorf("%s: a forced push moved nothing", c.name)
	}
	c.refuses("a push to a repository that is not there", "", c.push(c.admin.url("none"), c.path(), "refs/heads/main:refs/heads/main"))
}

// tags pushes tags of tags.
func (c *clientRun) tags() {
	c.local("tag", "-a", "-m", "one", "one", "refs/heads/main")
	c.local("tag", "-a", "-m", "two", "two", "one")
	c.local("tag", "-a", "-m", "three", "three", "two")
	c.does("push of tags of tags", c.push(c.url(c.tokens["no ref:force"]), c.path(), "refs/tags/one:refs/tags/one", "refs/tags/two:refs/tags/two", "refs/tags/three:refs/tags/three"))
	if got, want := c.refsOf(c.admin.url(c.repo))["refs/tags/three^{}"], c.local("rev-parse", "refs/heads/main"); got != want {
		c.t.Errorf("%s: a tag of tags leads to %s, not %s", c.name, got, want)
	}
	c.same("after tags", "refs/heads", "refs/tags")
}

func (c *clientRun) deletes() {
	c.does("deletion", c.push(c.url(c.tokens["this repository"]), c.path(), ":refs/heads/by-an-admin"))
	c.local("update-ref", "-d", "refs/heads/by-an-admin")
	c.same("after a deletion", "refs/heads", "refs/tags")
	err := c.push(c.url(c.tokens["no ref:force"]), c.path(), ":refs/heads/main")
	if err == nil || c.refsOf(c.admin.url(c.repo))["refs/heads/main"] == "" {
		c.t.Errorf("%s: the default branch could be deleted", c.name)
	}
}

// shallows clones one commit, and pushes from there.
func (c *clientRun) shallows() {
	if !c.shallow {
		return
	}
	s := *c
	s.dir = filepath.Join(c.dir, "shallow")
	noErr(c.t, os.MkdirAll(s.dir, 0o700))
	s.does("shallow clone", s.clone(s.admin.url(s.repo), s.path(), 1))
	if n := s.local("rev-list", "--count", "refs/heads/main"); n != "1" {
		c.t.Errorf("%s: a shallow clone has %s commits", c.name, n)
	}
	if !c.deepens {
		return
	}
	id := s.ahead("refs/heads/main", "from a shallow clone")
	s.does("push from a shallow clone", s.push(s.url(s.tokens["no ref:force"]), s.path(), "refs/heads/main:refs/heads/main"))
	if got := s.refsOf(s.admin.url(s.repo))["refs/heads/main"]; got != id {
		c.t.Errorf("%s: main is at %s, not %s", c.name, got, id)
	}
}

// fetches gets what others pushed.
func (c *clientRun) fetches() {
	c.git("fetch", "-q", c.admin.url(c.repo), "main")
	c.git("checkout", "-q", "-B", "main", "FETCH_HEAD")
	c.commit("other", "of git")
	c.git("tag", "-a", "-m", "new", "new")
	c.git("push", "-q", c.admin.url(c.repo), "main", "new", "main:refs/heads/of/git")
	c.does("fetch", c.fetch(c.url(c.tokens["no ref:force"]), c.path(), 0, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"))
	c.same("after a fetch", "refs/heads", "refs/tags")
}

// ends wants the clone and a mirror by git to be whole, and to have the same refs.
func (c *clientRun) ends() {
	c.git("clone", "-q", "--mirror", c.admin.url(c.repo), filepath.Join(c.dir, "final"))
	for _, dir := range []string{"clone", "final"} {
		(work{c.t, filepath.Join(c.dir, dir), "2"}).whole()
	}
}
