package row

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

const (
	// gitPushers have a branch of their own each.
	gitPushers = 10
	// gitSharers push to one branch together.
	gitSharers = 3
	gitRepo    = "app"
	sharedRef  = "refs/heads/shared"
)

// gitPoints are where a push is cut by a kill, in a build that has points.
var gitPoints = []string{"gitobj.sync", "gitobj.named", "gitobj.staged", "gitobj.applied"}

// GitUnderKills pushes, forces, deletes and clones with real git clients while the server is killed n times. In the end
// every branch is at what its last acknowledged push made it, or at what a later one tried; no acknowledged commit of the
// shared branch is lost; and a clone of everything is whole.
func GitUnderKills(ctx context.Context, e Env, n int) (*Outcome, error) {
	o := newOutcome()
	if _, err := exec.LookPath("git"); err != nil {
		o.Invalid = "there is no git on this machine"
		return o, nil
	}
	g := &gitRow{e: e, o: o, ready: filepath.Join(e.Dir, "ready")}
	var err error
	if g.s, err = e.server(ctx, []string{"--ready-file", g.ready, "--admin", "off"}, "alpha"); err != nil {
		return nil, err
	}
	defer g.s.Kill()
	if _, err := g.s.Start(ctx); err != nil {
		return nil, err
	}
	if err := g.setUp(ctx); err != nil {
		return nil, err
	}
	ops, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	pushers := make([]*gitPusher, gitPushers+gitSharers)
	for i := range pushers {
		p, err := g.pusher(ctx, i)
		if err != nil {
			return nil, err
		}
		pushers[i] = p
		if i < gitPushers {
			wg.Go(func() { p.own(ops) })
		} else {
			wg.Go(func() { p.share(ops) })
		}
	}
	err = g.kills(ctx, n)
	stop()
	wg.Wait()
	o.fail(err)
	if g.s.Address() == "" {
		return o, nil // it does not serve any more: that is among the errors
	}
	g.audit(ctx, pushers)
	o.Figures["pushes"], o.Figures["unknown"] = float64(g.pushes.Load()), float64(g.unknown.Load())
	if g.pushes.Load() < int64(n) {
		o.Invalid = fmt.Sprintf("%d pushes were acknowledged over %d kills", g.pushes.Load(), n)
	}
	finish(ctx, g.s, o)
	return o, nil
}

// gitRow is one run.
type gitRow struct {
	e Env
	o *Outcome
	s *proc.Server
	// ready is the file in which the server writes its addresses.
	ready string
	// pushes counts acknowledged pushes, and unknown those that failed: they may have landed.
	pushes, unknown atomic.Int64
}

// url is the repository's address now, with the token in it. It is read each time, because a server
// that starts again may have another port.
func (g *gitRow) url() (string, error) {
	b, err := os.ReadFile(g.ready)
	if err != nil {
		return "", err
	}
	var l struct {
		HTTP string `json:"http"`
	}
	if err := json.Unmarshal(b, &l); err != nil || l.HTTP == "" {
		return "", fmt.Errorf("the ready file says %q", b)
	}
	return "http://any:" + g.s.Tokens[0].Secret + "@" + l.HTTP + "/git/default/" + gitRepo + ".git", nil
}

// setUp makes the repository, over HTTP.
func (g *gitRow) setUp(ctx context.Context) error {
	url, err := g.url()
	if err != nil {
		return err
	}
	base, _, _ := strings.Cut(url, "/git/")
	_, host, _ := strings.Cut(base, "@")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+"/v1/repos", strings.NewReader(`{"name":"`+gitRepo+`"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+g.s.Tokens[0].Secret)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing of it is read
	if resp.StatusCode >= 300 {
		return fmt.Errorf("make repository: status %d", resp.StatusCode)
	}
	return nil
}

// gitPusher is one client with a clone of its own.
type gitPusher struct {
	g *gitRow
	// n is its number; those from gitPushers on share a branch.
	n int
	// dir is its clone.
	dir    string
	random *rand.Rand
	// Of a branch of its own: what the last acknowledged push made it, empty for no branch, and what later ones tried.
	acked string
	tried []string
	// Of the shared branch: commits whose push was acknowledged, by their unique messages.
	landed []string
}

// pusher makes the n-th client, with an empty clone.
func (g *gitRow) pusher(ctx context.Context, n int) (*gitPusher, error) {
	p := &gitPusher{g: g, n: n, dir: filepath.Join(g.e.Dir, fmt.Sprintf("clone%d", n)), random: rand.New(rand.NewPCG(g.e.Seed, uint64(n)))}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	_, err := p.git(ctx, "init", "-q", "-b", "main", ".")
	return p, err
}

// gitWithin bounds one run of git; a server that was killed is noticed at once.
const gitWithin = time.Minute

// git runs git and returns what it says.
func (p *gitPusher) git(ctx context.Context, args ...string) (string, error) {
	return runGit(ctx, p.dir, args...)
}

// runGit runs git in a folder, without this machine's settings and without upkeep in the
// background. It returns what git says also when that fails.
func runGit(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.fsync=none"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@c",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// commit makes a commit with a unique message and a file that changes.
func (p *gitPusher) commit(ctx context.Context, message string) error {
	name := fmt.Sprintf("file%d-%d", p.n, p.random.IntN(5))
	content := fmt.Sprintf("%s\n%s", message, strings.Repeat(fmt.Sprintf("%x\n", p.random.Uint64()), p.random.IntN(200)))
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		return err
	}
	if out, err := p.git(ctx, "add", name); err != nil {
		return fmt.Errorf("git add: %s", out)
	}
	if out, err := p.git(ctx, "commit", "-q", "-m", message); err != nil {
		return fmt.Errorf("git commit: %s", out)
	}
	return nil
}

// head is the id of the last commit.
func (p *gitPusher) head(ctx context.Context) string {
	id, _ := p.git(ctx, "rev-parse", "HEAD")
	return id
}

// own pushes to a branch of its own: forward, forced, and now and then a deletion. A push that
// fails may have landed, so what it tried stays possible until a later one is acknowledged.
func (p *gitPusher) own(ctx context.Context) {
	ref := fmt.Sprintf("refs/heads/own/%d", p.n)
	for i := 0; ctx.Err() == nil; i++ {
		url, err := p.g.url()
		if err != nil {
			continue
		}
		// The branch is deleted only where it is known to be there.
		spec, id := "+HEAD:"+ref, ""
		switch {
		case p.acked != "" && len(p.tried) == 0 && p.random.IntN(8) == 0:
			spec = ":" + ref
		default:
			// After a step back the next push is not a forward one.
			if i > 0 && p.random.IntN(4) == 0 {
				if _, err := p.git(ctx, "reset", "-q", "--hard", "HEAD~"); err != nil {
					_, _ = p.git(ctx, "reset", "-q", "--hard")
				}
			}
			if err := p.commit(ctx, fmt.Sprintf("own %d %d", p.n, i)); err != nil {
				p.broke(ctx, err)
				continue
			}
			id = p.head(ctx)
		}
		_, err = p.git(ctx, "push", "-q", url, spec)
		if err == nil {
			p.acked, p.tried = id, nil
			p.g.pushes.Add(1)
			continue
		}
		p.g.unknown.Add(1)
		p.tried = append(p.tried, id)
		pause(ctx, 50*time.Millisecond)
	}
}

// broke notes that git failed where no server has a part in it.
func (p *gitPusher) broke(ctx context.Context, err error) {
	if ctx.Err() == nil {
		p.g.e.Log("pusher %d: %v", p.n, err)
		pause(ctx, 100*time.Millisecond)
	}
}

// share pushes to a branch that others push to: what is there is fetched, a commit is put on top, and pushed without
// force. What another was faster with is tried again.
func (p *gitPusher) share(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		message := fmt.Sprintf("share %d %d", p.n, i)
		// After some tries the next commit has its turn.
		for try := 0; try < 20 && ctx.Err() == nil; try++ {
			url, err := p.g.url()
			if err != nil {
				continue
			}
			if out, err := p.git(ctx, "fetch", "-q", url, "+"+sharedRef+":refs/remotes/shared"); err == nil {
				if _, err := p.git(ctx, "reset", "-q", "--hard", "refs/remotes/shared"); err != nil {
					p.broke(ctx, err)
					continue
				}
				if log, _ := p.git(ctx, "log", "--format=%s", "HEAD"); strings.Contains("\n"+log+"\n", "\n"+message+"\n") {
					p.landed = append(p.landed, message) // an earlier try had landed, and a read has shown it
					break
				}
			} else if !strings.Contains(out, "couldn't find remote ref") {
				pause(ctx, 50*time.Millisecond)
				continue
			}
			if err := p.commit(ctx, message); err != nil {
				p.broke(ctx, err)
				continue
			}
			if _, err := p.git(ctx, "push", "-q", url, "HEAD:"+sharedRef); err == nil {
				p.landed = append(p.landed, message)
				p.g.pushes.Add(1)
				break
			}
			p.g.unknown.Add(1)
		}
	}
}

// kills kills the server, after some time or, in a build that has points, at one of a push.
func (g *gitRow) kills(ctx context.Context, n int) error {
	random := rand.New(rand.NewPCG(g.e.Seed, 99))
	for i := range n {
		pause(ctx, time.Duration(300+random.IntN(900))*time.Millisecond)
		if err := ctx.Err(); err != nil {
			return err
		}
		if g.s.Ended() || !g.s.Kill() {
			return fmt.Errorf("the server ended by itself, see %s", g.s.LogFile())
		}
		g.o.Faults["kill"]++
		g.o.Done++
		// Every other kill is followed by one at a point of a push, where the build has points.
		if g.e.Faults != "" && i%2 == 1 {
			point := gitPoints[random.IntN(len(gitPoints))]
			g.s.Plan(proc.Plan{Binary: g.e.Faults, Env: []string{fmt.Sprintf("MILLRACE_FAULT_KILL=%s:%d", point, 1+random.IntN(20))}})
			if _, err := g.s.Start(ctx); err != nil {
				return fmt.Errorf("restart: %w", err)
			}
			if g.s.AwaitKill(ctx, 20*time.Second) {
				g.o.Faults[point]++
			} else {
				g.s.Kill()
			}
		}
		if _, err := g.s.Start(ctx); err != nil {
			return fmt.Errorf("restart after kill %d: %w, see %s", i+1, err, g.s.LogFile())
		}
	}
	pause(ctx, time.Second)
	return nil
}

// audit compares what the server has with what the clients were told: it clones all of it, has git
// check the clone, and looks at each branch.
func (g *gitRow) audit(ctx context.Context, pushers []*gitPusher) {
	url, err := g.url()
	if err != nil {
		g.o.fail(err)
		return
	}
	if out, err := runGit(ctx, g.e.Dir, "clone", "-q", "--mirror", url, "final"); err != nil {
		// What git says may have the token in it.
		g.o.fail(fmt.Errorf("clone in the end: %w: %s", err, strings.ReplaceAll(out, g.s.Tokens[0].Secret, "…")))
		return
	}
	final := filepath.Join(g.e.Dir, "final")
	if out, err := runGit(ctx, final, "fsck", "--full", "--strict", "--no-dangling"); err != nil {
		g.o.fail(fmt.Errorf("git fsck of the final clone: %w: %s", err, out))
	}
	refs := map[string]string{}
	list, err := runGit(ctx, final, "for-each-ref", "--format=%(refname) %(objectname)")
	g.o.fail(err)
	for line := range strings.Lines(list) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		refs[name] = id
	}
	log := ""
	if refs[sharedRef] != "" {
		log, err = runGit(ctx, final, "log", "--format=%s", sharedRef)
		g.o.fail(err)
	}
	for _, p := range pushers {
		if p.n >= gitPushers {
			for _, m := range p.landed {
				if !strings.Contains("\n"+log+"\n", "\n"+m+"\n") {
					g.o.fail(fmt.Errorf("commit %q of the shared branch was acknowledged, or read, and is lost", m))
				}
			}
			continue
		}
		at := refs[fmt.Sprintf("refs/heads/own/%d", p.n)]
		if !allowed(at, p.acked, p.tried) {
			g.o.fail(fmt.Errorf("branch %d is at %q; the last acknowledged push made it %q, later ones tried %q", p.n, at, p.acked, p.tried))
		}
	}
	g.o.fail(g.leftovers())
}

// allowed reports whether a branch may be at a commit: the acknowledged one, or one that was tried
// since. An empty id stands for an absent branch.
func allowed(at, acked string, tried []string) bool {
	if at == acked {
		return true
	}
	for _, id := range tried {
		if at == id {
			return true
		}
	}
	return false
}

// leftovers wants nothing to be half received when no client pushes; empty directories wait for pushes to come.
func (g *gitRow) leftovers() error {
	dirs, err := filepath.Glob(filepath.Join(g.s.DataDir(), "git", "*", "*", "incoming", "*", "pack", "*"))
	if err == nil && len(dirs) > 0 {
		err = errors.New("half received pushes are left: " + strings.Join(dirs, ", "))
	}
	return err
}
