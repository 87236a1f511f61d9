package env

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Exec runs other programs.
type Exec interface {
	// Find returns the absolute path of a program that is named by a path, or else looked for in the directories of the
	// process's PATH. It fails with ErrNoProgram.
	Find(name string) (string, error)
	// Run runs a program to its end. The error is about starting it, or ctx's, or what Feed or Drain returned; how the
	// program ended, even badly, is not an error.
	Run(ctx context.Context, c Command) (Ended, error)
}

// ErrNoProgram says that there is no such program.
var ErrNoProgram = errors.New("no such program")

// RealPath returns the path of a program without symbolic links.
func RealPath(path string) (string, error) { return filepath.EvalSymlinks(path) }

// Command is one run of a program.
type Command struct {
	Path string   // absolute
	Args []string // without the program's own name
	Env  []string // all of the environment, as NAME=value; nil is an empty one
	Dir  string   // working directory; empty is the root
	// Feed writes the program's input, which ends when Feed returns; nil is an empty input. It runs in the caller's
	// goroutine. Writing fails once the program has ended, which it may do before it has read everything.
	Feed func(w io.Writer) error
	// Drain reads the program's output and must not stop before its end unless it fails; nil discards it. It runs in a
	// goroutine of its own, which ends before Run does.
	Drain func(r io.Reader) error
	// StderrBytes is how much of the error output is kept: of a longer one the beginning and the end, half each.
	StderrBytes int
	Limits      Limits
	// Yields has the program take processors and the disk only when nothing else wants them, and has the system end it
	// before others when memory runs out.
	Yields bool
	Reach  *Reach // nil: all that the process may use
}

// Reach is what of the file system a program may use. Network connections are out of its reach altogether.
type Reach struct {
	Read  []string // files and directories that it may read and run, with all below them
	Write []string // those that it may change too
}

// Limits bound what a program takes. Zero is none.
type Limits struct {
	MemoryBytes uint64        // that it may write to, all its memory together; files it maps to read are not counted
	FileBytes   uint64        // of each file that it writes
	CPU         time.Duration // of each of its processes
}

// Ended is how a program ended.
type Ended struct {
	Code   int           // its exit code; -1 when a signal ended it
	Signal string        // the signal that ended it
	Stderr []byte        // its error output, without the middle if it is long
	CPU    time.Duration // of processors that it and what it started have used
}

// OK reports whether the program ended well.
func (e Ended) OK() bool { return e.Code == 0 }

// SystemExec runs programs of the machine. A program gets a process group of its own, which is killed when ctx ends, and
// when the program has ended but left processes behind; limits are in force before it gets any input. It cannot gain
// privileges by what it runs.
type SystemExec struct{}

// Find looks for a program.
func (SystemExec) Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errors.Join(ErrNoProgram, err)
	}
	return filepath.Abs(path)
}

// Run runs a program. The program starts in a goroutine with a thread of its own, is limited, and
// only then gets its input. Feed runs in the caller's goroutine, Drain and the error output in one
// each. Whatever ends the run (the program, ctx, a Feed or Drain that fails), the whole group is
// killed before Run waits for the streams: a process that was left behind may hold their pipes
// open.
func (SystemExec) Run(ctx context.Context, c Command) (Ended, error) {
	if err := ctx.Err(); err != nil {
		return Ended{}, err
	}
	cmd := &exec.Cmd{Path: c.Path, Args: append([]string{c.Path}, c.Args...), Env: c.Env, Dir: c.Dir}
	if cmd.Env == nil {
		cmd.Env = []string{} // to exec.Cmd, nil is the environment of this process
	}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	var pipes pipes
	defer pipes.close()
	if err := pipes.open(cmd); err != nil {
		return Ended{}, err
	}
	p := &process{cmd: cmd, reach: c.Reach, started: make(chan error, 1), ended: make(chan struct{})}
	go p.run()
	if err := <-p.started; err != nil {
		return Ended{}, err
	}
	pipes.closeTheirs()
	if err := limit(cmd.Process.Pid, c); err != nil {
		p.kill()
		<-p.ended
		return Ended{}, err
	}
	defer context.AfterFunc(ctx, p.kill)()

	var streams sync.WaitGroup
	var drained error
	kept := ends{half: c.StderrBytes / 2}
	streams.Go(func() { _, _ = io.Copy(&kept, pipes.stderr) })
	streams.Go(func() {
		if c.Drain != nil {
			drained = c.Drain(pipes.stdout)
		}
		if drained != nil {
			p.kill() // its output is not read any more
		}
		_, _ = io.Copy(io.Discard, pipes.stdout)
	})
	var fed error
	if c.Feed != nil {
		fed = c.Feed(pipes.stdin)
	}
	_ = pipes.stdin.Close()
	if fed != nil && !errors.Is(fed, syscall.EPIPE) {
		p.kill()
	}
	<-p.ended
	p.kill() // what it left behind may hold the pipes open
	streams.Wait()
	e := p.how()
	e.Stderr = kept.bytes()
	switch {
	case ctx.Err() != nil:
		return e, ctx.Err()
	case drained != nil:
		return e, drained
	case fed != nil && !errors.Is(fed, syscall.EPIPE):
		return e, fed
	}
	return e, nil
}

// process is one running program.
type process struct {
	// cmd is started and waited for by run alone. The others read its process after started, and
	// its state after ended.
	cmd   *exec.Cmd
	reach *Reach
	// started receives once: nil when the program runs, or why it does not. It has room for that
	// value, so run never waits for its reader.
	started chan error
	// ended is closed when run returns: the program was waited for, or was never started.
	ended chan struct{}
	// mu guards reaped. Once all members of a group are gone, its number may be given to another
	// group.
	mu sync.Mutex
	// reaped says that kill came once more after the program was waited for; from then on it does
	// nothing.
	reaped bool
}

// run starts the program and waits for it, from one thread: where the system can end a child with its parent, the
// parent is a thread. What confines the program is set for that thread, from which the program inherits it.
func (p *process) run() {
	defer close(p.ended)
	if err := confine(p.reach); err != nil {
		p.started <- err
		return
	}
	p.cmd.SysProcAttr = processAttributes()
	if err := p.cmd.Start(); err != nil {
		p.started <- err
		return
	}
	p.started <- nil
	_ = p.cmd.Wait() // how it ended is in its state
}

// kill kills the program's group. A group whose leader was waited for keeps its number while it has members; killing an
// empty one does nothing, unless the number was given to a new group, which takes a wrap of all process numbers between
// the wait and this call.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	select {
	case <-p.ended:
		p.reaped = true
	default:
	}
}

// how returns how the program ended. The caller has waited for ended.
func (p *process) how() Ended {
	state := p.cmd.ProcessState
	e := Ended{Code: state.ExitCode(), CPU: state.UserTime() + state.SystemTime()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal().String()
	}
	return e
}

// pipes are the three streams of a program.
type pipes struct {
	// stdin is where this process writes the program's input.
	stdin *os.File
	// stdout and stderr are where it reads what the program writes.
	stdout, stderr *os.File
	// theirs are the program's ends. They are closed here as soon as the program has them, since a
	// stream ends only when no process holds its writing end.
	theirs []*os.File
}

// open makes the pipes and hands the program's ends to cmd. If it fails, close closes those that
// were made.
func (p *pipes) open(cmd *exec.Cmd) error {
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	p.stdin, p.theirs = stdin, append(p.theirs, in)
	for _, s := range []struct {
		ours   **os.File
		theirs *io.Writer
	}{{&p.stdout, &cmd.Stdout}, {&p.stderr, &cmd.Stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		*s.ours, *s.theirs = r, w
		p.theirs = append(p.theirs, w)
	}
	cmd.Stdin = in
	return nil
}

// closeTheirs closes the program's ends in this process.
func (p *pipes) closeTheirs() {
	for _, f := range p.theirs {
		_ = f.Close()
	}
	p.theirs = nil
}

// close closes every end that is open. An end that was closed before does no harm.
func (p *pipes) close() {
	p.closeTheirs()
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// ends keeps the first and the last bytes of what is written to it, half of each at most.
type ends struct {
	// first and last are the beginning and the end of what was written, at most half bytes each.
	first, last []byte
	half        int
	cut         bool // something between them is missing
}

// Write takes all of p and never fails, so that a program is not held up by its own error output.
func (e *ends) Write(p []byte) (int, error) {
	n := min(len(p), e.half-len(e.first))
	e.first = append(e.first, p[:n]...)
	e.last = append(e.last, p[n:]...)
	if more := len(e.last) - e.half; more > 0 {
		e.last, e.cut = append(e.last[:0], e.last[more:]...), true
	}
	return len(p), nil
}

// bytes returns what is kept. Where something is missing, the line that it was cut from goes too.
func (e *ends) bytes() []byte {
	if e.cut {
		_, whole, _ := bytes.Cut(e.last, []byte("\n"))
		return append(append(e.first, '\n'), whole...)
	}
	return append(e.first, e.last...)
}

// Lines returns the lines of a program's error output that are not empty, without what a terminal would act on.
func (e Ended) Lines() []string {
	var out []string
	for _, line := range strings.FieldsFunc(string(e.Stderr), func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, strings.ToValidUTF8(line, "?")))
		if line != "" {
			out = append(out, line)
		}
	}
	return out
}
