package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench"
)

// gitEnv is the environment of git. It keeps the settings of the user who runs the bench out of it.
func gitEnv(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=bench",
		"GIT_AUTHOR_EMAIL=bench@localhost", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@localhost",
	}
}

// gitDir is a bare repository of git's own: its directory, and the home directory that git takes
// settings from.
type gitDir struct{ home, dir string }

// initGit makes a bare repository below home. args are further arguments of git init.
func initGit(ctx context.Context, home, name string, args ...string) (gitDir, error) {
	g := gitDir{home, filepath.Join(home, name)}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return g, err
	}
	_, err := g.run(ctx, "", append([]string{"init", "-q", "--bare"}, args...)...)
	return g, err
}

// command is a git command on the repository, not started yet.
func (g gitDir) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir", g.dir}, args...)...)
	cmd.Env = gitEnv(g.home)
	return cmd
}

// run runs git to its end with in as its input, and returns what it printed without the last line
// break. A failure is a *gitError.
func (g gitDir) run(ctx context.Context, in string, args ...string) (string, error) {
	cmd := g.command(ctx, args...)
	cmd.Stdin = strings.NewReader(in)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", &gitError{args[0], err, string(complaint.Bytes()[:min(complaint.Len(), gitComplaint)])}
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// gitError is a git command that ended with an error.
type gitError struct {
	// command is the git command, such as push.
	command string
	// err is how the process ended.
	err error
	// said is the beginning of what it wrote to its error stream.
	said string
}

// gitComplaint bounds said, in bytes.
const gitComplaint = 1500

// Error names the command, how it ended, and what it said.
func (e *gitError) Error() string { return "git " + e.command + ": " + e.err.Error() + ": " + e.said }

// Unwrap returns how the process ended.
func (e *gitError) Unwrap() error { return e.err }

// refReader reads all refs of the repository for an audit.
func (g gitDir) refReader(name string) bench.RefReader {
	return bench.RefReader{Name: name, Each: func(ctx context.Context, fn func(name, object string) error) error {
		// A repository without refs prints nothing.
		out, err := g.run(ctx, "", "for-each-ref", "--format=%(objectname) %(refname)")
		if err != nil || out == "" {
			return err
		}
		for line := range strings.SplitSeq(out, "\n") {
			object, name, _ := strings.Cut(line, " ")
			if err := fn(name, object); err != nil {
				return err
			}
		}
		return nil
	}}
}

// borrow lets the repository use the objects of another, without a copy.
func (g gitDir) borrow(from gitDir) error {
	name := filepath.Join(g.dir, "objects", "info", "alternates")
	return os.WriteFile(name, []byte(filepath.Join(from.dir, "objects")+"\n"), 0o600)
}

// hasReftable reports whether the installed git keeps refs in tables: it does from 2.45 on.
func hasReftable(ctx context.Context) bool {
	out, err := exec.CommandContext(ctx, "git", "--version").Output()
	if err != nil {
		return false
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "git version "), ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && (a > 2 || a == 2 && b >= 45)
}

// childrenCPU is the CPU time of this process's ended children, in seconds. The git processes are among them: they belong
// to the measurement and are not interference.
func childrenCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// gitRefs changes refs by one git process (update-ref --stdin) that lives as long as the run, so
// that no start of a process is measured.
type gitRefs struct {
	gitDir
	// cmd is the process, in its input and out its output.
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	// wrote is the text of one transaction, reused.
	wrote bytes.Buffer
}

// newGitRefs starts it on a repository of its own, which borrows objects. kind says how refs are
// kept and synced.
func newGitRefs(ctx context.Context, objects gitDir, kind string) (*gitRefs, error) {
	// sync is the value of core.fsync; empty: git's default. format chooses tables.
	sync, format := "reference", []string{}
	switch kind {
	case gitDefault:
		sync = ""
	case gitReftable:
		format = []string{"--ref-format=reftable"}
	}
	dir, err := initGit(ctx, objects.home, kind+".git", format...)
	if err != nil {
		return nil, err
	}
	if err := dir.borrow(objects); err != nil {
		return nil, err
	}
	g := &gitRefs{gitDir: dir}
	args := []string{"update-ref", "-z", "--stdin"}
	if sync != "" {
		args = append([]string{"-c", "core.fsync=" + sync}, args...)
	}
	g.cmd = dir.command(ctx, args...)
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	g.out = bufio.NewReader(out)
	return g, g.cmd.Start()
}

// transact writes one transaction and waits for both answers of git. The commit is answered when
// the refs are in place, and synced where the kind says so.
func (g *gitRefs) transact(_ context.Context, changes []refsChange) error {
	g.wrote.Reset()
	g.wrote.WriteString("start\x00")
	for _, c := range changes {
		switch {
		case c.old == "":
			g.wrote.WriteString("create " + c.name + "\x00" + c.new + "\x00")
		case c.new == "":
			g.wrote.WriteString("delete " + c.name + "\x00" + c.old + "\x00")
		default:
			g.wrote.WriteString("update " + c.name + "\x00" + c.new + "\x00" + c.old + "\x00")
		}
	}
	g.wrote.WriteString("commit\x00")
	if _, err := g.in.Write(g.wrote.Bytes()); err != nil {
		return fmt.Errorf("write to git: %w", err)
	}
	for _, want := range []string{"start: ok\n", "commit: ok\n"} {
		if line, err := g.out.ReadString('\n'); err != nil || line != want {
			return fmt.Errorf("git answers %q: %w", line, err)
		}
	}
	return nil
}

// restored packs the refs where the cell has packed ones.
func (g *gitRefs) restored(ctx context.Context, packed bool) error {
	if !packed {
		return nil
	}
	_, err := g.run(ctx, "", "pack-refs", "--all")
	return err
}

// close ends the process by the end of its input.
func (g *gitRefs) close() error { return errors.Join(g.in.Close(), g.cmd.Wait()) }
