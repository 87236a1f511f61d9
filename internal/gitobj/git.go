package gitobj

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// gitProgram is git on this machine.
type gitProgram struct {
	// path is empty if git is not there, or too old.
	path    string
	version string
	// confined says that git runs with what it needs only within reach.
	confined bool
}

// Least version of git: the first whose syncs can be switched off by what is synced here, and that is widely installed.
const (
	gitMajor = 2
	gitMinor = 39
)

// versionText is what git says of its version.
var versionText = regexp.MustCompile(`^git version (\d+)\.(\d+)[^\n]*`)

// findGit looks for git and makes the empty gitdir. That there is none is logged, not an error. A
// git that does not answer within 10 s counts as not there.
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
	a.git = gitProgram{path: path, version: m[0], confined: ofSystem(path)}
	return nil
}

// Git returns what git calls itself, empty when there is none that serves.
func (a *Area) Git() string { return a.git.version }

// emptyGitdir is a gitdir without refs, in which git runs that is told everything it needs to know.
const emptyGitdir = "none.git"

// Bounds of one run of git.
const (
	stderrBytes = 4 << 10
	// PushTime and FetchTime bound how long a program may run for a push, and for a fetch.
	PushTime  = 10 * time.Minute
	FetchTime = time.Hour
	// pushCPU is for how long a push may use processors, besides a second for each mebibyte that a pack may have.
	pushCPU = time.Minute
	// objectCost is what a program needs for each object that it lists, in bytes.
	objectCost = 256
)

// lenient are checks of git's fsck that old histories fail, though what they find is harmless:
// authors' names, addresses and dates in the wrong form, and modes with a leading zero. All other
// checks of --strict apply: links, the order and the names of entries, .git in all its spellings,
// .gitmodules and .gitattributes, dates that overflow. A push with such an object is taken.
var lenient = []string{
	"badDate", "badEmail", "badName", "badTimezone", "missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate",
	"missingSpaceBeforeEmail", "multipleAuthors", "zeroPaddedDate", "zeroPaddedFilemode",
}

// strictly is the option of index-pack with which it checks objects. A symbolic link in the place of .gitattributes, of which git
// only warns, is refused as one in the place of .gitmodules is: programs other than git may follow it out of the work tree.
var strictly = "--strict=gitattributesSymlink=error," + strings.Join(lenient, "=ignore,") + "=ignore"

// config is that of every gitdir. The caches of a program that has the usual memory take half of it; packs are mapped, which
// does not count. What is received is synced by this package, once, and not by git.
func config(usual int64) string {
	return fmt.Sprintf(configText, cacheBytes(usual)>>20)
}

// cacheBytes is the size of one of the caches, in bytes: whole mebibytes. There are four of them,
// so that all together take half of the usual memory.
func cacheBytes(usual int64) int64 { return max(usual/8>>20, 1) << 20 }

// configText lacks the size of each of the four caches, in mebibytes. What is larger than one of them is not compared with
// others, and is copied without being held in memory.
const configText = `[core]
	repositoryformatversion = 0
	bare = true
	fsync = none
	packedGitWindowSize = 32m
	packedGitLimit = 256m
	deltaBaseCacheLimit = %[1]dm
	bigFileThreshold = %[1]dm
	hooksPath = /dev/null
	commitGraph = false
	multiPackIndex = false
[pack]
	threads = 1
	windowMemory = %[1]dm
	deltaCacheSize = %[1]dm
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
	class class
	// tenant is whose share of programs it takes.
	tenant    core.TenantID
	principal string // of the tenant; may be empty
	// bytes is how much memory it is thought to need; 0: the usual.
	bytes int64
	// patient has it wait for its place as long as it takes.
	patient bool
	// args are without the program's name; env is all of the environment.
	args []string
	env  []string
	// write is a directory that it writes a pack to, if that is not GIT_OBJECT_DIRECTORY. To the
	// directory of received objects it may write in any case.
	write string
	// feed writes the input and drain reads the output; see env.Command.
	feed  func(io.Writer) error
	drain func(io.Reader) error
	// files bounds the bytes of each file that it writes; 0: no bound.
	files uint64
	// most is how long it may run.
	most time.Duration
	// cpu is how long it may use processors; 0: as long as it may run.
	cpu time.Duration
	// grow, if it is set, is called before feed. Its argument reserves memory, up to the given bytes in all, and may wait.
	grow func(need func(bytes int64) error)
}

// FailedError says that git refused what it was given.
type FailedError struct {
	// Act is git's command, such as index-pack.
	Act      string
	Line     string // what it said, with the object that it was about, and with no path of this machine
	NotWhole bool   // an object links to what is neither in the pack nor held
}

// Error says what git said.
func (e *FailedError) Error() string { return e.Act + ": " + e.Line }

// run runs git within the limits. A bad end is a FailedError, or a fact that names the limit. It
// waits for a place first, so that time in the queue is not counted as time of the run.
func (a *Area) run(ctx context.Context, c call) error {
	if a.git.path == "" {
		return ErrNoGit
	}
	place, err := a.children.enter(ctx, wanted{class: c.class, by: asker{c.tenant, c.principal}, bytes: c.bytes, patient: c.patient})
	if err != nil {
		return err
	}
	var e env.Ended
	defer func() { place.end(e.CPU) }()
	bounded, cancel := context.WithTimeout(ctx, c.most)
	defer cancel()
	a.stats.children.Add(1)
	limits := env.Limits{MemoryBytes: uint64(place.s.most), FileBytes: c.files, CPU: cmp.Or(c.cpu, c.most)}
	command := env.Command{
		Path: a.git.path, Args: c.args, Env: c.env, Dir: a.o.Dir, Feed: c.feed, Drain: c.drain, StderrBytes: stderrBytes,
		Limits: limits, Yields: true, Reach: a.reach(&c),
	}
	if c.grow != nil {
		c.grow(func(bytes int64) error { return place.need(bounded, bytes) })
	}
	e, err = a.o.Exec.Run(bounded, command)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case env.NoDescriptors(err): // of its pipes
		return errDescriptors
	case errors.Is(err, context.DeadlineExceeded):
		a.stats.failed.Add(1)
		return core.Exhausted{Limit: "git_seconds", Max: int64(c.most / time.Second)}
	case err != nil:
		return err
	case !e.OK():
		a.stats.failed.Add(1)
		said := a.said(e)
		a.o.Logger.Info("git refused", "act", c.args[0], "exit", e.Code, "signal", e.Signal, "said", said)
		return a.failure(&c, limits, e, said)
	}
	return nil
}

// lackOfMemory is what git says when it gets no more memory.
var lackOfMemory = regexp.MustCompile(`(?i)out of memory|cannot allocate memory|unable to create thread`)

// failure says why a run ended badly. Limits are told by their names, so that a client or an
// operator can see which one was reached; all else is in git's words.
func (a *Area) failure(c *call, l env.Limits, e env.Ended, said string) error {
	switch {
	case e.Signal == syscall.SIGXCPU.String():
		return core.Exhausted{Limit: "git_cpu_seconds", Max: int64(l.CPU / time.Second)}
	case lackOfMemory.Match(e.Stderr):
		return core.Exhausted{Limit: "git_memory", Max: int64(l.MemoryBytes)}
	}
	return &FailedError{Act: c.args[0], Line: said, NotWhole: strings.Contains(said, notWhole)}
}

// system are the directories in which a system keeps programs, and what these need to run.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix/store", "/gnu/store", "/dev/urandom"}

// reach is what of the file system a run of git may use: the system's programs, its gitdir, and its
// repository alone. A git that is not one of the system's may need anything; then nothing is
// restricted. What it writes is its own directory below incoming, or the one that the call names.
func (a *Area) reach(c *call) *env.Reach {
	if !a.git.confined {
		return nil
	}
	r := &env.Reach{Read: append(slices.Clone(system), a.dir(emptyGitdir)), Write: []string{"/dev/null"}}
	for _, v := range c.env {
		name, value, _ := strings.Cut(v, "=")
		if name != "GIT_DIR" && name != "GIT_OBJECT_DIRECTORY" {
			continue
		}
		below, ok := strings.CutPrefix(value, a.o.Dir+"/")
		if parts := strings.SplitN(below, "/", 4); ok && len(parts) > 2 { // shard, repository, and what is in that
			r.Read = append(r.Read, a.dir(parts[0], parts[1]))
			if name == "GIT_OBJECT_DIRECTORY" && (parts[2] == incomingDir || c.write != "") { // a pack begins where objects are
				r.Write = append(r.Write, value)
			}
		}
	}
	if c.write != "" {
		r.Write = append(r.Write, c.write)
	}
	return r
}

// ofSystem reports whether a program is one of the system's, whatever names lead to it.
func ofSystem(path string) bool {
	path, err := env.RealPath(path)
	return err == nil && slices.ContainsFunc(system, func(dir string) bool { return strings.HasPrefix(path, dir+"/") })
}

// notWhole is how index-pack names an object that others link to and that is neither in the pack nor held.
const notWhole = "did not receive expected object "

// Bounds of what is told of git's error output: of its last errors, each in a line.
const (
	saidLines = 4
	saidBytes = 200
)

// said puts what git said into one line: its errors, the object first and then what was done with it, without warnings and
// without paths of this machine.
func (a *Area) said(e env.Ended) string {
	var out []string
	for _, line := range e.Lines() {
		if strings.HasPrefix(line, "warning: ") || strings.HasPrefix(line, "hint: ") {
			continue
		}
		line = strings.TrimPrefix(strings.TrimPrefix(line, "fatal: "), "error: ")
		line = strings.ReplaceAll(line, a.o.Dir, "")
		out = append(out, strings.ToValidUTF8(line[:min(len(line), saidBytes)], ""))
	}
	if e.Signal != "" {
		out = append(out, "git was ended: "+e.Signal)
	}
	return strings.Join(out[max(0, len(out)-saidLines):], "; ")
}
