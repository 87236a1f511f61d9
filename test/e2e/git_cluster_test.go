package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// git is the i-th node as git clients see it.
func (c *nodes) git(i int) gitHost {
	return gitHost{c.t, c.peers[i].HTTP, c.peers[i].API, c.token}
}

// makeRepo makes a repository, at whichever node leads.
func (c *nodes) makeRepo(name string) {
	c.t.Helper()
	_, err := c.client(0).Repo(name).Create(bounded(c.t, 20*time.Second), millrace.RepoSettings{})
	noErr(c.t, err)
}

// packsOf counts the packs that a node has where fetches look.
func (c *nodes) packsOf(i int) int {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, fmt.Sprint("n", i+1), "git", "*", "*", "objects", "pack", "*.idx"))
	noErr(c.t, err)
	return len(files)
}

// clonesAlike wants a mirror of a repository from a node to be whole, and to have these refs.
func (w work) clonesAlike(url, dir string, want map[string]string) {
	w.t.Helper()
	w.git("clone", "-q", "--mirror", url, dir)
	w.in(dir).whole()
	if got := w.refsOf(url); !maps.Equal(got, want) {
		w.t.Errorf("refs are %v, not %v", got, want)
	}
}

// TestAnyNodeShowsAPushOnceItWasAnswered pushes to one node and fetches from another, as often as GIT_FETCHES says.
func TestAnyNodeShowsAPushOnceItWasAnswered(t *testing.T) {
	t.Parallel()
	needGit(t)
	c := startCluster(t, 3, 2)
	c.makeRepo("app")
	w := newWork(t, "2")
	reader := newWork(t, "2")
	for i := range howMany(t, "GIT_FETCHES", 6) {
		to, from := c.git(i%3).url("app"), c.git((i+1+i/3%2)%3).url("app")
		w.version = gitVersions[i%len(gitVersions)]
		reader.version = gitVersions[i/2%len(gitVersions)]
		id := w.commit(fmt.Sprint("f", i%17), fmt.Sprint(i))
		w.git("push", "-q", to, "main")
		reader.git("fetch", "-q", from, "main")
		if got := reader.git("rev-parse", "FETCH_HEAD"); got != id {
			t.Fatalf("push %d: fetched is %s, not %s", i, got, id)
		}
	}
	reader.whole()
}

func TestGitGoesOnWithoutTheNodeThatTookThePush(t *testing.T) {
	t.Parallel()
	needGit(t)
	c := startCluster(t, 3, 1)
	c.makeRepo("app")
	w := newWork(t, "2")
	w.history(60)
	lead := c.leader()
	took := (lead + 1) % 3
	w.git("push", "-q", "--mirror", c.git(took).url("app"))
	w.commit("own", "1")
	w.git("push", "-q", c.git(lead).url("app"), "main")
	w.commit("own", "2")
	w.git("push", "-q", c.git(took).url("app"), "main")
	want := w.refsOf(c.git(took).url("app"))
	c.stop(took)
	for k, i := range []int{(took + 1) % 3, (took + 2) % 3} {
		w.clonesAlike(c.git(i).url("app"), fmt.Sprint("without", k), want)
	}
	// Two of three take pushes, and the third gets what it missed, from either.
	w.commit("own", "3")
	w.git("push", "-q", c.git(lead).url("app"), "main")
	c.stop(lead)
	c.start(took)
	want = w.refsOf(c.git(took).url("app"))
	if want["refs/heads/main"] != w.git("rev-parse", "main") {
		t.Errorf("main is at %s", want["refs/heads/main"])
	}
	w.clonesAlike(c.git(took).url("app"), "again", want)
	w.commit("own", "4")
	w.git("push", "-q", c.git(took).url("app"), "main", "main:refs/heads/new")
	c.start(lead)
	w.clonesAlike(c.git(lead).url("app"), "led", w.refsOf(c.git(took).url("app")))
}

func TestANodeThatLostItsPacksGetsThemAgain(t *testing.T) {
	t.Parallel()
	needGit(t)
	c := startCluster(t, 3, 1)
	c.makeRepo("app")
	w := newWork(t, "2")
	for i := range 5 {
		w.commit("a", fmt.Sprint(i))
		w.git("push", "-q", c.git(i%3).url("app"), "main")
	}
	want := w.refsOf(c.git(0).url("app"))
	lost := (c.leader() + 1) % 3
	// Its packs only: it is served at once, and gets them all by itself.
	c.stop(lost)
	noErr(t, os.RemoveAll(filepath.Join(c.dir, fmt.Sprint("n", lost+1), "git")))
	c.start(lost)
	w.clonesAlike(c.git(lost).url("app"), "packs", want)
	until(t, "the packs are there", func() bool { return c.packsOf(lost) == 5 })
	// All it had: it comes back under another replica's id.
	c.stop(lost)
	noErr(t, os.RemoveAll(filepath.Join(c.dir, fmt.Sprint("n", lost+1))))
	c.start(lost)
	until(t, "the packs are there again", func() bool { return c.packsOf(lost) == 5 })
	w.clonesAlike(c.git(lost).url("app"), "all", want)
	w.commit("a", "last")
	w.git("push", "-q", c.git(lost).url("app"), "main")
	c.stop(lost)
	w.git("clone", "-q", "--mirror", c.git((lost+1)%3).url("app"), "others")
	w.in("others").whole()
	if got := w.in("others").git("rev-parse", "main"); got != w.git("rev-parse", "main") {
		t.Errorf("main is at %s", got)
	}
}
