// Command go is an example of Millrace: it builds and tests what is pushed to a Git repository.
//
// It makes a small repository, pushes two commits of it, and shows what became of each: one whose tests pass and one whose tests
// fail. Each push is a task. Its worker checks the commit out, runs go test, and completes the task together with the verdict in
// a key, a count, a ref that moves, and a task that follows. All of that is one entry of the log, so that none of it is there
// without the rest, and none of it twice, whatever process or machine fails meanwhile.
//
// See README.md in the folder above for how it is started.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	repo := flag.String("repo", "example", "repository that is pushed to; it is made if it is not there")
	flag.Parse()
	if err := run(ctx, *repo); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run starts a worker, pushes twice and shows what came of it.
func run(ctx context.Context, repo string) (err error) {
	c, err := millrace.Dial(ctx) // MILLRACE_URL, MILLRACE_TOKEN and MILLRACE_NAMESPACE say where to and as whom
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.Repo(repo).Create(ctx, millrace.RepoSettings{}); err != nil && !errors.Is(err, millrace.ErrAlreadyExists) {
		return fmt.Errorf("make the repository: %w", err)
	}
	dir, err := os.MkdirTemp("", "millrace-example-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &builder{client: c, host: hostFromEnv(), dir: dir, cache: cmp.Or(os.Getenv("GOCACHE"), filepath.Join(dir, "cache"))}

	// In earnest the worker is a process of its own, and there are several of it on several machines.
	working, endWork := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.worker().Run(working) }()
	defer func() {
		endWork()
		err = errors.Join(err, <-ended)
	}()

	p := &pusher{client: c, host: b.host, repo: repo, dir: filepath.Join(dir, "source")}
	if err := p.begin(ctx); err != nil {
		return err
	}
	for _, sum := range []string{"a + b", "a - b"} {
		if err := p.push(ctx, sum); err != nil {
			return err
		}
	}
	return p.show(ctx)
}

// pusher is somebody who changes a program and pushes it.
type pusher struct {
	client *millrace.Client
	host   gitHost
	repo   string
	dir    string
}

// sources are the files of the program; EXPRESSION is what each push changes.
var sources = map[string]string{
	"go.mod": "module example.test/sum\n\ngo 1.21\n",
	"sum.go": "package sum\n\n// Of adds.\nfunc Of(a, b int) int { return EXPRESSION }\n",
	"sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestOf(t *testing.T) {\n" +
		"\tif got := Of(2, 3); got != 5 {\n\t\tt.Errorf(\"Of(2, 3) = %d, not 5\", got)\n\t}\n}\n",
}

// begin makes an empty repository on this machine, which continues the branch that was pushed by an earlier run.
func (p *pusher) begin(ctx context.Context) error {
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	if _, err := p.host.git(ctx, p.dir, "init", "-q", "-b", "main"); err != nil {
		return err
	}
	if _, err := p.client.Repo(p.repo).Get(ctx, "refs/heads/main"); errors.Is(err, millrace.ErrNotFound) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look for the branch: %w", err)
	}
	_, err := p.host.git(ctx, p.dir, "pull", "-q", p.host.url(p.repo), "main")
	return err
}

// push commits the program with an expression, pushes it, adds the task for it and waits for the verdict.
func (p *pusher) push(ctx context.Context, sum string) error {
	for name, text := range sources {
		text = strings.ReplaceAll(text, "EXPRESSION", sum)
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"add", "."},
		{"commit", "-q", "--allow-empty", "-m", "return " + sum},
		{"push", "-q", p.host.url(p.repo), "main"},
	} {
		if _, err := p.host.git(ctx, p.dir, args...); err != nil {
			return err
		}
	}
	commit, err := p.host.git(ctx, p.dir, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	// Under a unique key the same push is one task, however often this is repeated.
	h, err := check.Add(ctx, p.client, Push{Repo: p.repo, Branch: "main", Commit: commit},
		millrace.UniqueKey(p.repo+"@"+commit, time.Hour), millrace.Tag(p.repo))
	if err != nil {
		return fmt.Errorf("add the task: %w", err)
	}
	v, err := h.Wait(ctx)
	if err != nil {
		return fmt.Errorf("task %s: %w", h.ID, err)
	}
	fmt.Printf("%s  %s  %q\n", commit[:10], v.word(), "return "+sum)
	if v.Passed {
		return nil
	}
	for line := range strings.Lines(v.Output) {
		fmt.Print("    ", line)
	}
	return nil
}

// show reads what the tasks left: refs, a verdict, the counts and the notices.
func (p *pusher) show(ctx context.Context) error {
	refs, err := p.host.git(ctx, p.dir, "ls-remote", p.host.url(p.repo), "refs/checks/*")
	if err != nil {
		return err
	}
	fmt.Println(refs)
	for _, word := range []string{"passed", "failed"} {
		ref, err := p.client.Repo(p.repo).Get(ctx, "refs/checks/"+word+"/main")
		if err != nil {
			return fmt.Errorf("read the ref of checks that %s: %w", word, err)
		}
		var v Verdict
		value, err := p.client.KV("checks").Get(ctx, key(p.repo, ref.ID))
		if err == nil {
			err = value.Decode(&v)
		}
		if err != nil {
			return fmt.Errorf("read the verdict: %w", err)
		}
		// The task that follows was made by the completion of the first one. Its result says who was told.
		told, err := notify.Of(p.client, v.Notice).Wait(ctx)
		if err != nil {
			return fmt.Errorf("task %s: %w", v.Notice, err)
		}
		n, err := p.client.KV("counts").Get(ctx, key(p.repo, word))
		if err != nil {
			return fmt.Errorf("read the count: %w", err)
		}
		fmt.Printf("%s: %s in all, the last one in %s; %s was told\n", word, n, time.Duration(v.Took)*time.Millisecond, told)
	}
	return nil
}

// gitHost is where Git finds the repositories of the server.
type gitHost struct {
	address   string // host:port of the REST listener
	namespace string
	token     string
}

func hostFromEnv() gitHost {
	return gitHost{
		address:   cmp.Or(os.Getenv("MILLRACE_REST_URL"), "127.0.0.1:7080"),
		namespace: cmp.Or(os.Getenv("MILLRACE_NAMESPACE"), "default"),
		token:     strings.TrimSpace(os.Getenv("MILLRACE_TOKEN")),
	}
}

func (h gitHost) url(repo string) string {
	return "http://" + h.address + "/git/" + h.namespace + "/" + repo + ".git"
}

// git runs git in a directory and returns what it prints. The token is in the environment, since other users of a machine see the
// arguments of programs.
func (h gitHost) git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(cleanEnv(dir),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.test", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.test",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader", "GIT_CONFIG_VALUE_0=Authorization: Bearer "+h.token)
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("git %s: %w: %s", args[0], err, text)
	}
	return text, nil
}

// cleanEnv is the environment of programs that are started: without the token and all else that is this process's own.
func cleanEnv(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C"}
}
