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
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// gitEnv keeps the settings of who runs the bench out of git.
func gitEnv(dir string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=bench",
		"GIT_AUTHOR_EMAIL=bench@localhost", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@localhost",
	}
}

func git(ctx context.Context, home, dir, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir", dir}, args...)...)
	cmd.Env, cmd.Stdin = gitEnv(home), strings.NewReader(in)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, complaint.String())
	}
	return strings.TrimSpace(string(out)), nil
}

const refsRepo = "bench"

// refsObjects makes two commits, in a repository of git's own and in one of the server, which gets them by a push.
func refsObjects(ctx context.Context, rig *bench.Rig, home string) (commits [2]string, err error) {
	dir := filepath.Join(home, "objects.git")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return commits, err
	}
	if _, err := git(ctx, home, dir, "", "init", "-q", "--bare"); err != nil {
		return commits, err
	}
	tree, err := git(ctx, home, dir, "", "mktree")
	if err != nil {
		return commits, err
	}
	for i, message := range []string{"one", "two"} {
		if commits[i], err = git(ctx, home, dir, "", "commit-tree", "-m", message, tree); err != nil {
			return commits, err
		}
		if _, err := git(ctx, home, dir, "", "update-ref", fmt.Sprintf("refs/keep/%d", i), commits[i]); err != nil {
			return commits, err
		}
	}
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return commits, err
	}
	defer c.Close() //nolint:errcheck // what it was asked for is done, or an error tells
	if _, err := c.Repo(refsRepo).Create(ctx, millrace.RepoSettings{}); err != nil {
		return commits, err
	}
	_, address, _ := strings.Cut(rig.Servers[0].HTTP, "://")
	url := "http://bench:" + rig.Token + "@" + address + "/git/" + rig.Namespace + "/" + refsRepo + ".git"
	_, err = git(ctx, home, dir, "", "push", "-q", url, "refs/keep/*:refs/keep/*")
	return commits, err
}

// ourRefs changes refs through a session of the Go client.
type ourRefs struct {
	client  *millrace.Client
	session *millrace.RefSession
}

func newOurRefs(ctx context.Context, rig *bench.Rig) (*ourRefs, error) {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return nil, err
	}
	s, err := c.Repo(refsRepo).Session(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &ourRefs{c, s}, nil
}

func (o *ourRefs) transact(ctx context.Context, changes []refsChange) error {
	tx := o.session.Begin()
	for _, c := range changes {
		switch {
		case c.old == "":
			tx.Create(c.name, c.new)
		case c.new == "":
			tx.Delete(c.name, c.old)
		default:
			tx.Update(c.name, c.old, c.new)
		}
	}
	_, err := tx.Commit(ctx)
	return err
}

func (o *ourRefs) restored(context.Context, bool) error { return nil } // loose and packed are the same here

func (o *ourRefs) close() error { return errors.Join(o.session.Close(), o.client.Close()) }

// gitRefs changes refs by one git process that lives as long as the run.
type gitRefs struct {
	home, dir string
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Reader
	wrote     bytes.Buffer
}

func newGitRefs(ctx context.Context, home, sync string, number int) (*gitRefs, error) {
	g := &gitRefs{home: home, dir: filepath.Join(home, fmt.Sprintf("side-%d.git", number))}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := git(ctx, home, g.dir, "", "init", "-q", "--bare"); err != nil {
		return nil, err
	}
	alternates := filepath.Join(g.dir, "objects", "info", "alternates")
	if err := os.WriteFile(alternates, []byte(filepath.Join(home, "objects.git", "objects")+"\n"), 0o600); err != nil {
		return nil, err
	}
	g.cmd = exec.CommandContext(ctx, "git", "-c", "core.fsync="+sync, "--git-dir", g.dir, "update-ref", "-z", "--stdin")
	g.cmd.Env = gitEnv(home)
	var err error
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

func (g *gitRefs) restored(ctx context.Context, packed bool) error {
	if !packed {
		return nil
	}
	_, err := git(ctx, g.home, g.dir, "", "pack-refs", "--all")
	return err
}

func (g *gitRefs) close() error { return errors.Join(g.in.Close(), g.cmd.Wait()) }

// refsWork is what a cell does, on one side after the other.
type refsWork struct {
	rig     *bench.Rig
	cell    refsCell
	commits [2]string
	turn    [3]int // which commit the refs of a side are at
}

func (w *refsWork) name(i int) string { return fmt.Sprintf("refs/heads/branch-%d", i) }

// all makes one change of each ref, in transactions of size.
func (w *refsWork) all(ctx context.Context, s refsSide, size int, old, new string, each func(took time.Duration, began time.Time, n int)) error {
	for i := 0; i < w.cell.refs(); i += size {
		var changes []refsChange
		for n := i; n < min(i+size, w.cell.refs()); n++ {
			changes = append(changes, refsChange{w.name(n), old, new})
		}
		began := time.Now()
		if err := s.transact(ctx, changes); err != nil {
			return err
		}
		if each != nil {
			each(time.Since(began), began, len(changes))
		}
	}
	return nil
}

// prepare makes the refs.
func (w *refsWork) prepare(ctx context.Context, s refsSide) error {
	if err := w.all(ctx, s, w.cell.refs(), "", w.commits[0], nil); err != nil {
		return err
	}
	return s.restored(ctx, w.cell.packed)
}

// rounds works on the sides in turn until the window is over.
func (w *refsWork) rounds(ctx context.Context, sides []refsSide, tally *[3]refsTally, over func() bool) error {
	slice := w.rig.Window / time.Duration(refsRounds*len(sides))
	op := w.rig.Op("update")
	if w.cell.remove {
		op = w.rig.Op("delete")
	}
	for n := 0; !over() && ctx.Err() == nil; n++ {
		i := n % len(sides)
		for until := time.Now().Add(slice); time.Now().Before(until) && !over(); {
			err := w.once(ctx, sides[i], i, func(took time.Duration, began time.Time, refs int) {
				if w.rig.Measuring() {
					tally[i].refs += uint64(refs)
					tally[i].spent += took
				}
				if i == 0 {
					op.Record(0, began, refs, nil)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// once changes each ref once. Refs that were deleted are made again off the clock.
func (w *refsWork) once(ctx context.Context, s refsSide, i int, each func(took time.Duration, began time.Time, refs int)) error {
	old := w.commits[w.turn[i]]
	if !w.cell.remove {
		w.turn[i] = 1 - w.turn[i]
		return w.all(ctx, s, w.cell.size, old, w.commits[w.turn[i]], each)
	}
	if err := w.all(ctx, s, w.cell.size, old, "", each); err != nil {
		return err
	}
	return w.prepare(ctx, s)
}

// report tells the rates of all sides.
func (w *refsWork) report(tally *[3]refsTally) error {
	rates := [3]float64{}
	for i, name := range []string{"refs_per_s", "git_files_synced_refs_per_s", "git_default_refs_per_s"} {
		rates[i] = tally[i].rate()
		w.rig.Metric(name, rates[i], "refs/s")
	}
	if rates[1] > 0 {
		w.rig.Metric("ratio_to_git_files_synced", rates[0]/rates[1], "×")
	}
	if rates[2] > 0 {
		w.rig.Metric("ratio_to_git_files_default", rates[0]/rates[2], "×")
	}
	if rates[0] <= 0 {
		return errors.New("no transaction was answered in the window")
	}
	return nil
}
