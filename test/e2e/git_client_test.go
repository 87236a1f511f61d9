package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	gogitconfig "github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/memory"
)

// gitClient is an implementation of git's client. Repositories on disk are bare, and between its steps git itself works in them.
type gitClient interface {
	list(url string) (map[string]string, error)
	clone(url, dir string, depth int) error
	fetch(url, dir string, depth int, refspecs ...string) error
	// push fails when any ref is refused, with all that the client shows of why. Its refspecs have no patterns.
	push(url, dir string, refspecs ...string) error
}

// knownClient is a client, and what it cannot do whatever the server does.
type knownClient struct {
	name    string
	start   func(t *testing.T) gitClient
	shallow bool // it makes shallow clones
	deepens bool // it pushes from a shallow clone
}

var knownClients = []knownClient{
	{"git", func(t *testing.T) gitClient { return realGit{newWork(t, "2")} }, true, true},
	{"go-git", func(*testing.T) gitClient { return goGit{} }, true, true},
	{"libgit2", func(t *testing.T) gitClient { return startPython(t, "libgit2") }, true, true},
	{"jgit", startJava, true, true},
	{"dulwich", func(t *testing.T) gitClient { return startPython(t, "dulwich") }, true, true},
}

// clientsDir is where scripts/clients.sh has installed clients. Without them a test is skipped, but not where everything is to run.
func clientsDir(t *testing.T, part string) string {
	t.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	dir := filepath.Join(cache, "millrace", "clients", part)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("no git clients in %s: scripts/clients.sh did not install them", dir)
	}
	t.Skipf("no git clients in %s: scripts/clients.sh installs them", dir)
	return ""
}

// realGit is git itself.
type realGit struct{ work }

func (g realGit) said(args ...string) error {
	out, err := g.try(args...)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

func (g realGit) list(url string) (map[string]string, error) { return g.refsOf(url), nil }

func (g realGit) clone(url, dir string, depth int) error {
	args := []string{"clone", "-q", "--bare"}
	if depth > 0 {
		args = append(args, fmt.Sprintf("--depth=%d", depth))
	}
	return g.said(append(args, url, dir)...)
}

func (g realGit) fetch(url, dir string, depth int, refspecs ...string) error {
	args := []string{"--git-dir=" + dir, "fetch", "-q", "--no-tags"}
	if depth > 0 {
		args = append(args, fmt.Sprintf("--depth=%d", depth))
	}
	return g.said(append(append(args, url), refspecs...)...)
}

func (g realGit) push(url, dir string, refspecs ...string) error {
	if len(refspecs) > 1000 { // more than a command line holds
		ctx, cancel := context.WithCancel(context.WithoutCancel(g.t.Context()))
		defer cancel()
		cmd := g.command(ctx, "--git-dir="+dir, "push", "--mirror", url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	return g.said(append([]string{"--git-dir=" + dir, "push", url}, refspecs...)...)
}

// goGit is go-git, in this process.
type goGit struct{}

func (goGit) list(url string) (map[string]string, error) {
	refs, err := gogit.NewRemote(memory.NewStorage(), &gogitconfig.RemoteConfig{Name: "r", URLs: []string{url}}).List(&gogit.ListOptions{})
	out := map[string]string{}
	for _, r := range refs {
		if r.Type() == plumbing.HashReference {
			out[r.Name().String()] = r.Hash().String()
		}
	}
	return out, err
}

func (goGit) clone(url, dir string, depth int) error {
	_, err := gogit.PlainClone(dir, true, &gogit.CloneOptions{URL: url, Depth: depth, SingleBranch: depth > 0, Tags: gogit.AllTags})
	return err
}

// remote opens a repository, with a remote of that address.
func (goGit) remote(url, dir string) (*gogit.Remote, error) {
	r, err := gogit.PlainOpen(dir)
	if err != nil {
		return nil, err
	}
	return gogit.NewRemote(r.Storer, &gogitconfig.RemoteConfig{Name: "r", URLs: []string{url}}), nil
}

func specsOf(refspecs []string) (out []gogitconfig.RefSpec) {
	for _, s := range refspecs {
		out = append(out, gogitconfig.RefSpec(s))
	}
	return out
}

func (g goGit) fetch(url, dir string, depth int, refspecs ...string) error {
	r, err := g.remote(url, dir)
	if err != nil {
		return err
	}
	err = r.Fetch(&gogit.FetchOptions{RemoteName: "r", RefSpecs: specsOf(refspecs), Depth: depth, Tags: gogit.NoTags})
	if errors.Is(err, gogit.NoErrAlreadyUpToDate) {
		err = nil
	}
	return err
}

func (g goGit) push(url, dir string, refspecs ...string) error {
	r, err := g.remote(url, dir)
	if err != nil {
		return err
	}
	var said strings.Builder
	err = r.Push(&gogit.PushOptions{RemoteName: "r", RefSpecs: specsOf(refspecs), Progress: &said})
	if errors.Is(err, gogit.NoErrAlreadyUpToDate) {
		err = nil
	} else if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return err
}

// process is a program that does one step after another.
type process struct {
	in  io.Writer
	out *bufio.Scanner
}

func startProcess(t *testing.T, path string, args ...string) process {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TRACE=" + os.Getenv("TRACE"), "LC_ALL=C.UTF-8"}
	in, err := cmd.StdinPipe()
	noErr(t, err)
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	cmd.Stderr = t.Output()
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // it ends then
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	return process{in, lines}
}

// python is a client of testdata/clients/clients.py.
type python struct{ process }

func startPython(t *testing.T, client string) gitClient {
	t.Helper()
	return python{startProcess(t, filepath.Join(clientsDir(t, "python"), "bin", "python"), "testdata/clients/clients.py", client)}
}

func (p python) step(op, url string, fields map[string]any) (refs map[string]string, err error) {
	m := map[string]any{"op": op, "url": url}
	for k, v := range fields {
		m[k] = v
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return nil, err
	}
	if !p.out.Scan() {
		return nil, fmt.Errorf("the client ended: %w", p.out.Err())
	}
	var out struct {
		Err  string
		Refs map[string]string
	}
	if err := json.Unmarshal(p.out.Bytes(), &out); err != nil {
		return nil, err
	}
	if out.Err != "" {
		return nil, errors.New(out.Err)
	}
	return out.Refs, nil
}

func (p python) list(url string) (map[string]string, error) { return p.step("list", url, nil) }

func (p python) clone(url, dir string, depth int) error {
	_, err := p.step("clone", url, map[string]any{"dir": dir, "depth": depth})
	return err
}

func (p python) fetch(url, dir string, depth int, refspecs ...string) error {
	_, err := p.step("fetch", url, map[string]any{"dir": dir, "depth": depth, "refspecs": refspecs})
	return err
}

func (p python) push(url, dir string, refspecs ...string) error {
	_, err := p.step("push", url, map[string]any{"dir": dir, "refspecs": refspecs})
	return err
}

// java is testdata/clients/Client.java.
type java struct{ process }

func startJava(t *testing.T) gitClient {
	t.Helper()
	jars := clientsDir(t, "jars")
	path, err := exec.LookPath("java")
	noErr(t, err)
	return java{startProcess(t, path, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(jars, "*"), "testdata/clients/Client.java")}
}

func (j java) step(fields ...string) (refs map[string]string, err error) {
	if _, err := io.WriteString(j.in, strings.Join(fields, "\t")+"\n"); err != nil {
		return nil, err
	}
	refs = map[string]string{}
	for j.out.Scan() {
		f := strings.Split(j.out.Text(), "\t")
		switch {
		case f[0] == "ref" && len(f) == 3:
			refs[f[1]] = f[2]
		case f[0] == "end" && len(f) == 2 && f[1] != "":
			return nil, errors.New(f[1])
		case f[0] == "end":
			return refs, nil
		}
	}
	return nil, fmt.Errorf("the client ended: %w", j.out.Err())
}

func (j java) list(url string) (map[string]string, error) { return j.step("list", url) }

func (j java) clone(url, dir string, depth int) error {
	_, err := j.step("clone", url, dir, fmt.Sprint(depth))
	return err
}

func (j java) fetch(url, dir string, depth int, refspecs ...string) error {
	_, err := j.step(append([]string{"fetch", url, dir, fmt.Sprint(depth)}, refspecs...)...)
	return err
}

func (j java) push(url, dir string, refspecs ...string) error {
	_, err := j.step(append([]string{"push", url, dir}, refspecs...)...)
	return err
}
