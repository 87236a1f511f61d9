package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// Push is the arguments of a check: what was pushed.
type Push struct {
	Repo   string `json:"repo"`
	Branch string `json:"branch"`
	Commit string `json:"commit"`
}

// Verdict is the result of a check, and what its key holds.
type Verdict struct {
	Passed bool   `json:"passed"`
	Output string `json:"output"` // of go test: its last 4 KiB
	Took   int64  `json:"took_ms"`
	Notice string `json:"notice"` // id of the task that follows
}

func (v Verdict) word() string {
	if v.Passed {
		return "passed"
	}
	return "failed"
}

// Notice is the arguments of the task that follows a check.
type Notice struct {
	Repo string `json:"repo"`
	To   string `json:"to"`
	Text string `json:"text"`
}

// A job says what its tasks are, for those who add them and for those who work on them. A check that is not done after ten minutes
// is ended; one whose worker is gone is given to another worker when its lease ends.
var (
	check  = millrace.Job[Push, Verdict]("push.check").Queue("checks").Attempts(3).Lease(30 * time.Second).MaxRun(10 * time.Minute)
	notify = millrace.Job[Notice, string]("push.notify").Queue("notices")
)

// outputBytes bounds what is kept of the output of a check.
const outputBytes = 4 << 10

// builder does the work of the checks.
type builder struct {
	client *millrace.Client
	host   gitHost
	dir    string
	cache  string // of go build
}

// worker takes the tasks of both jobs, two at a time.
func (b *builder) worker() *millrace.Worker {
	w := b.client.Worker(millrace.Slots(2))
	check.Handle(w, b.check)
	notify.Handle(w, func(_ context.Context, t *millrace.Task, n Notice) (string, error) {
		t.Effects().KV("inbox").Put(key(n.Repo, n.To+"/"+t.ID), n.Text) // in earnest: a mail
		return n.To, nil
	})
	return w
}

// check builds and tests a push. Tests that fail are a result. An error, such as a server that is away, is tried again. ctx ends
// when the lease is lost, and then nothing of the effects is applied.
func (b *builder) check(ctx context.Context, t *millrace.Task, p Push) (v Verdict, err error) {
	dir, err := os.MkdirTemp(b.dir, "check-")
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	author, err := b.checkOut(ctx, dir, p)
	if err != nil {
		return v, err
	}
	begun := time.Now()
	if v, err = b.test(ctx, dir); err != nil {
		return v, err
	}
	v.Took = time.Since(begun).Milliseconds()
	if v.Notice, err = b.client.NewID(ctx); err != nil {
		return v, err
	}

	name := "refs/checks/" + v.word() + "/" + p.Branch
	old, moves, err := b.from(ctx, dir, name, p)
	if err != nil {
		return v, err
	}
	fx := t.Effects()
	effects(fx, p, v, author)
	if moves {
		fx.Repo(p.Repo).Update(name, old, p.Commit)
	}
	// Another check may move the ref between the read and the completion. Then that one was later, and the ref stays with it.
	t.OnRefused(func(_ context.Context, refused *millrace.Error) error {
		if !errors.Is(refused, millrace.ErrPrecondition) {
			return refused
		}
		fx.Reset()
		effects(fx, p, v, author)
		return nil
	})
	return v, nil
}

// effects adds all that a check changes but its ref. It is applied with the completion of the task, or not at all.
func effects(fx *millrace.Tx, p Push, v Verdict, author string) {
	text := fmt.Sprintf("%s of %s %s", p.Commit[:10], p.Repo, v.word())
	notify.AddTx(fx, Notice{Repo: p.Repo, To: author, Text: text}, millrace.ID(v.Notice), millrace.Tag(p.Repo))
	fx.KV("checks").Put(key(p.Repo, p.Commit), v)
	fx.KV("counts").Add(key(p.Repo, v.word()), 1)
}

// key is a key of a repository. What is in braces places it: all keys and tasks of a repository are in the partition of its refs, so
// that one commit can change them all.
func key(repo, name string) string { return "{" + repo + "}/" + name }

// checkOut puts the files of a commit into the folder tree of dir, and returns the address of its author.
func (b *builder) checkOut(ctx context.Context, dir string, p Push) (author string, err error) {
	for _, args := range [][]string{
		{"init", "-q", "tree"},
		{"-C", "tree", "fetch", "-q", b.host.url(p.Repo), p.Commit},
		{"-C", "tree", "checkout", "-q", "FETCH_HEAD"},
	} {
		if _, err := b.host.git(ctx, dir, args...); err != nil {
			return "", err
		}
	}
	return b.host.git(ctx, dir, "-C", "tree", "show", "-s", "--format=%ae")
}

// test runs the tests in the folder tree of dir. What is pushed is foreign code: it does not get the token. It is not locked up
// otherwise: a service that tests what strangers push does this in a container or a virtual machine.
func (b *builder) test(ctx context.Context, dir string) (v Verdict, err error) {
	cmd := exec.CommandContext(ctx, "go", "test", "./...")
	cmd.Dir = filepath.Join(dir, "tree")
	cmd.Env = append(cleanEnv(dir), "GOCACHE="+b.cache, "GOTOOLCHAIN=local", "GOPROXY=off", "GOFLAGS=-count=1", "CGO_ENABLED=0")
	cmd.WaitDelay = 5 * time.Second // for programs that it started, and that hold its output open
	out, err := cmd.CombinedOutput()
	v.Output = strings.ToValidUTF8(string(out[max(0, len(out)-outputBytes):]), "")
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return v, context.Cause(ctx)
	case err == nil:
		v.Passed = true
	case !errors.As(err, &exit):
		return v, fmt.Errorf("run go test: %w", err) // there is no verdict without go
	}
	return v, nil
}

// from reads where the ref of a verdict stands. It does not move if it is at a commit that came after this one: a check that is
// tried again may complete after those of later pushes.
func (b *builder) from(ctx context.Context, dir, name string, p Push) (old string, moves bool, err error) {
	ref, err := b.client.Repo(p.Repo).Get(ctx, name)
	if errors.Is(err, millrace.ErrNotFound) {
		return "", true, nil
	} else if err != nil {
		return "", false, err
	}
	if _, err := b.host.git(ctx, dir, "-C", "tree", "fetch", "-q", b.host.url(p.Repo), ref.ID); err != nil {
		return "", false, err
	}
	_, err = b.host.git(ctx, dir, "-C", "tree", "merge-base", "--is-ancestor", p.Commit, ref.ID)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ref.ID, false, nil
	case errors.As(err, &exit) && exit.ExitCode() == 1: // it is not
		return ref.ID, true, nil
	}
	return "", false, err
}
