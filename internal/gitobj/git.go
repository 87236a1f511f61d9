package gitobj

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// gitProgram is git on this machine.
type gitProgram struct {
	path    string // empty: not there, or too old
	version string
}

// Least version of git: the first whose syncs can be switched off by what is synced here, and that is widely installed.
const (
	gitMajor = 2
	gitMinor = 39
)

var versionText = regexp.MustCompile(`^git version (\d+)\.(\d+)[^\n]*`)

// findGit looks for git and makes the empty gitdir. That there is none is logged, not an error.
func (a *Area) findGit(ctx context.Context) error {
	if err := a.makeGitdir(a.dir(emptyGitdir)); err != nil {
		return fmt.Errorf("make gitdir: %w", err)
	}
	path, err := a.o.Exec.Find(a.o.Git)
	if err != nil {
		a.o.Logger.Warn("git is not there: git clients are refused", "git", a.o.Git)
		return nil
	}
	var out strings.Builder
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	e, err := a.o.Exec.Run(ctx, env.Command{
		Path: path, Args: []string{"version"}, Env: a.environment(a.dir(emptyGitdir)), StderrBytes: stderrBytes,
		Drain: func(r io.Reader) error { _, err := io.Copy(&out, io.LimitReader(r, 1<<10)); return err },
	})
	m := versionText.FindStringSubmatch(out.String())
	if err != nil || !e.OK() || m == nil {
		a.o.Logger.Warn("git does not say its version: git clients are refused", "git", path, "exit", e.Code, "err", err)
		return nil
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < gitMajor || major == gitMajor && minor < gitMinor {
		a.o.Logger.Warn("git is too old: git clients are refused", "git", path, "version", m[0])
		return nil
	}
	a.git = gitProgram{path: path, version: m[0]}
	return nil
}

// Git returns what git calls itself, empty when there is none that serves.
func (a *Area) Git() string { return a.git.version }

// emptyGitdir is a gitdir without refs, in which git runs that is told everything it needs to know.
const emptyGitdir = "none.git"

// Bounds of one run of git.
const (
	memoryBytes = 1 << 30
	stderrBytes = 4 << 10
	// PushTime and FetchTime bound how long a program may run for a push, and for a fetch.
	PushTime  = 10 * time.Minute
	FetchTime = time.Hour
)

// config is that of every gitdir. Memory: two threads, each with a window of deltas, stay below memoryBytes with packs
// mapped in windows. What is received is synced by this package, once, and not by git.
const config = `[core]
	repositoryformatversion = 0
	bare = true
	fsync = none
	packedGitWindowSize = 32m
	packedGitLimit = 256m
	deltaBaseCacheLimit = 64m
	bigFileThreshold = 32m
	hooksPath = /dev/null
	commitGraph = false
	multiPackIndex = false
[pack]
	threads = 2
	windowMemory = 128m
	deltaCacheSize = 64m
	writeReverseIndex = false
[uploadpack]
	allowAnySHA1InWant = true
	allowFilter = true
	keepAlive = 5
[transfer]
	advertiseSID = false
[gc]
	auto = 0
[protocol]
	allow = never
`

// environment is all that git gets from outside its gitdir.
func (a *Area) environment(gitdir string, more ...string) []string {
	return append([]string{
		"GIT_DIR=" + gitdir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=", "LC_ALL=C",
	}, more...)
}

// alternates is the value of a variable that lists directories, for one whose name may hold anything.
func alternates(dir string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(dir) + `"`
}

// call is one run of git.
type call struct {
	tenant core.TenantID
	args   []string
	env    []string
	feed   func(io.Writer) error
	drain  func(io.Reader) error
	files  uint64 // bytes of each file it writes; 0: no bound
	most   time.Duration
}

// FailedError says that git refused what it was given.
type FailedError struct {
	Act      string
	Line     string // what it said last, with no path of this machine
	NotWhole bool   // an object links to what is neither in the pack nor held
}

// Error says what git said.
func (e *FailedError) Error() string { return e.Act + ": " + e.Line }

// run runs git within the limits. A bad end is a FailedError.
func (a *Area) run(ctx context.Context, c call) error {
	if a.git.path == "" {
		return ErrNoGit
	}
	leave, err := a.children.enter(ctx, c.tenant)
	if err != nil {
		return err
	}
	defer leave()
	bounded, cancel := context.WithTimeout(ctx, c.most)
	defer cancel()
	a.stats.children.Add(1)
	e, err := a.o.Exec.Run(bounded, env.Command{
		Path: a.git.path, Args: c.args, Env: c.env, Dir: a.o.Dir, Feed: c.feed, Drain: c.drain, StderrBytes: stderrBytes,
		Limits: env.Limits{MemoryBytes: memoryBytes, FileBytes: c.files, CPU: c.most},
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		a.stats.failed.Add(1)
		return core.Exhausted{Limit: "git_seconds", Max: int64(c.most / time.Second)}
	case err != nil:
		return err
	case !e.OK():
		a.stats.failed.Add(1)
		line := e.Line()
		if e.Signal != "" {
			line = "git was ended: " + e.Signal
		}
		a.o.Logger.Info("git refused", "act", c.args[0], "exit", e.Code, "signal", e.Signal, "said", e.Line())
		line = a.clean(line)
		return &FailedError{Act: c.args[0], Line: line, NotWhole: strings.HasPrefix(line, "did not receive expected object ")}
	}
	return nil
}

// clean takes paths of this machine out of what git said.
func (a *Area) clean(line string) string {
	line = strings.TrimPrefix(line, "fatal: ")
	line = strings.ReplaceAll(line, a.o.Dir, "")
	return strings.ToValidUTF8(line[:min(len(line), 200)], "")
}
