package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// gitRig is a repository of a server, and one of git's own that holds the same objects.
type gitRig struct {
	t       *testing.T
	store   *repoStore
	dir     string // of git's
	commits []string
	others  []string // a blob, and a tag of a commit
	env     []string
}

func newGitRig(t *testing.T) *gitRig {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir := t.TempDir()
	r, err := server.StartDev(server.DevOptions{Dir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(time.Second); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	c, err := millrace.Dial(t.Context(), millrace.Address(r.Address), millrace.Token(r.Token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	g := &gitRig{t: t, store: &repoStore{repo: c.Repo("app")}, dir: filepath.Join(dir, "git"), env: append(os.Environ(),
		"GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")}
	t.Cleanup(g.store.close)
	if _, err := g.store.repo.Create(t.Context(), millrace.RepoSettings{}); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "init", "-q", "--bare", "-b", "main", g.dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	g.objects()
	g.must("push", "-q", "http://x:"+r.Token+"@"+r.HTTPAddress+"/git/default/app.git", "refs/keep/*:refs/keep/*")
	for _, ref := range g.refs() {
		g.must("update-ref", "-d", ref.Name)
		if _, err := g.store.repo.Update(t.Context(), millrace.DeleteRef(ref.Name, "")); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// objects makes what refs can point to.
func (g *gitRig) objects() {
	tree := g.must("mktree")
	parent := []string{}
	for i := range 6 {
		id := g.must(append([]string{"commit-tree", "-m", fmt.Sprint(i), tree}, parent...)...)
		g.commits, parent = append(g.commits, id), []string{"-p", id}
		g.must("update-ref", fmt.Sprintf("refs/keep/c%d", i), id)
	}
	blob := g.must("hash-object", "-w", "--stdin")
	g.must("update-ref", "refs/keep/blob", blob)
	g.must("tag", "-a", "-m", "t", "v1", g.commits[0])
	tag := g.must("rev-parse", "refs/tags/v1")
	g.must("update-ref", "refs/keep/tag", tag)
	g.must("update-ref", "-d", "refs/tags/v1")
	g.others = []string{blob, tag}
}

func (g *gitRig) git(in string, args ...string) (out string, err error) {
	cmd := exec.Command("git", append([]string{"--git-dir", g.dir}, args...)...)
	cmd.Env, cmd.Stdin = g.env, strings.NewReader(in)
	b, err := cmd.Output()
	return strings.TrimSpace(string(b)), err
}

func (g *gitRig) must(args ...string) string {
	g.t.Helper()
	out, err := g.git("", args...)
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			g.t.Fatalf("git %v: %v: %s", args, err, exit.Stderr)
		}
		g.t.Fatalf("git %v: %v", args, err)
	}
	return out
}

// refs lists git's refs by name, with HEAD's target or id.
func (g *gitRig) refs() (out []millrace.Ref) {
	for line := range strings.Lines(g.must("for-each-ref", "--format=%(refname) %(objectname) %(symref)")) {
		f := strings.Fields(line)
		ref := millrace.Ref{Name: f[0], ID: f[1]}
		if len(f) == 3 {
			ref = millrace.Ref{Name: f[0], Target: f[2]}
		}
		out = append(out, ref)
	}
	return out
}

func (g *gitRig) head() string {
	if target, err := g.git("", "symbolic-ref", "-q", "HEAD"); err == nil {
		return "-> " + target
	}
	id, err := g.git("", "rev-parse", "-q", "--verify", "HEAD")
	if err != nil {
		return "none"
	}
	return id
}

// state is all refs of the server's repository, as git's are written.
func (g *gitRig) state() (refs []string, head string) {
	set, err := g.store.repo.List(g.t.Context(), millrace.RefQuery{})
	if err != nil {
		g.t.Fatal(err)
	}
	head = "none"
	for _, r := range set.Refs {
		if r.Name == "HEAD" {
			if head = r.ID; r.Target != "" {
				head = "-> " + r.Target
			}
			continue
		}
		refs = append(refs, fmt.Sprintf("%s %s%s", r.Name, r.ID, r.Target))
	}
	return refs, head
}

func (g *gitRig) same(stream string) {
	g.t.Helper()
	var want []string
	for _, r := range g.refs() {
		want = append(want, fmt.Sprintf("%s %s%s", r.Name, r.ID, r.Target))
	}
	got, head := g.state()
	if !slices.Equal(got, want) {
		g.t.Fatalf("after %q:\ngot  %q\nwant %q", stream, got, want)
	}
	if want := g.head(); head != want {
		g.t.Fatalf("after %q: HEAD is %s, want %s", stream, head, want)
	}
}

// both runs a stream by both, and compares how they end.
func (g *gitRig) both(stream string, nul, noDeref bool) {
	g.t.Helper()
	args := []string{"update-ref", "--stdin"}
	u := &updater{store: g.store, in: bufio.NewReader(strings.NewReader(stream)), out: new(bytes.Buffer), noDeref: noDeref, term: '\n'}
	if nul {
		args, u.term = append(args, "-z"), 0
	}
	if noDeref {
		args = append(args, "--no-deref")
	}
	wantOut, gitErr := g.git(stream, args...)
	err := u.run(context.Background())
	var fatal fatalError
	if err != nil && !errors.As(err, &fatal) {
		g.t.Fatalf("%q: %v", stream, err)
	}
	if (err != nil) != (gitErr != nil) {
		text := ""
		var exit *exec.ExitError
		if errors.As(gitErr, &exit) {
			text = string(exit.Stderr)
		}
		g.t.Fatalf("%q: got %v, git says %v: %s", stream, err, gitErr, text)
	}
	if got := strings.TrimSpace(u.out.(*bytes.Buffer).String()); got != wantOut {
		g.t.Fatalf("%q prints %q, git %q", stream, got, wantOut)
	}
}

// streamOf draws a stream of commands. Names are few, so that they meet.
func (g *gitRig) streamOf(r *rand.Rand, nul bool) (string, int) {
	names := []string{
		"refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/heads/main", "refs/heads/x", "refs/tags/a", "refs/tags/a/b", "HEAD",
		"refs/heads/d/e", "refs/heads/d", "refs/heads", "refs/l", "refs/heads/bad..name", "refs/heads/.x", "refs/heads/x.lock",
	}
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	value := func() string {
		switch n := r.IntN(20); {
		case n < 13:
			return pick(g.commits)
		case n < 15:
			return pick(g.others)
		case n < 16:
			return zeros
		case n < 17:
			return "refs/heads/main"
		case n < 18:
			return "1234567890123456789012345678901234567890"
		default:
			return ""
		}
	}
	var b strings.Builder
	commands := 1 + r.IntN(6)
	for range commands {
		first, sep, end := " ", " ", "\n"
		if nul {
			sep, end = "\x00", "\x00"
		}
		name := pick(names)
		if !nul && r.IntN(8) == 0 {
			name = strconv.Quote(name)
		}
		quote := func(v string) string {
			if !nul && v == "" {
				return `""`
			}
			return v
		}
		optional := func(v string) string { // in lines it can be left out; with -z it is empty
			switch {
			case r.IntN(2) == 0 && nul:
				return sep
			case r.IntN(2) == 0:
				return ""
			}
			return sep + quote(v)
		}
		switch n := r.IntN(24); {
		case n < 8:
			b.WriteString("update" + first + name + sep + quote(value()) + optional(value()) + end)
		case n < 12:
			b.WriteString("create" + first + name + sep + quote(value()) + end)
		case n < 16:
			b.WriteString("delete" + first + name + optional(value()) + end)
		case n < 18:
			b.WriteString("verify" + first + name + optional(value()) + end)
		case n < 19:
			b.WriteString("option no-deref" + end)
		case n < 21:
			b.WriteString("start" + end)
		case n < 23:
			b.WriteString("commit" + end)
		default:
			b.WriteString(pick([]string{"abort" + end, "nonsense" + end, " update" + end, end, "option no", "commit extra" + end}))
		}
	}
	return b.String(), commands
}

// TestUpdateRefStreamsEndAsInGit draws streams of commands. MILLRACE_UPDATE_REF_COMMANDS says how many commands, default
// 2,000.
func TestUpdateRefStreamsEndAsInGit(t *testing.T) {
	if testing.Short() {
		t.Skip("runs git")
	}
	g := newGitRig(t)
	left, seed := 2000, uint64(1)
	if s := os.Getenv("MILLRACE_UPDATE_REF_COMMANDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		left, seed = n, rand.Uint64()
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for left > 0 {
		nul, noDeref := r.IntN(2) == 0, r.IntN(10) == 0
		stream, n := g.streamOf(r, nul)
		left -= n
		if noDeref && strings.Contains(stream, "HEAD") {
			continue // HEAD itself could be deleted, and git's repository would be none
		}
		if strings.Contains(stream, "option no-deref") && strings.Contains(stream, "HEAD") {
			continue
		}
		g.both(stream, nul, noDeref)
		g.same(stream)
	}
}
