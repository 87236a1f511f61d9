package main

import (
	"encoding/gob"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// A worker runs each command below a supervisor: a process of this program, one for each slot, that starts the command, ends all
// that the command started, and tells the worker how it went. A command that signals its parent does not reach the worker, what
// it leaves behind comes to its supervisor and to no other, and all of it ends with the worker, however that dies.

// superviseArg is the argument that makes this program a supervisor. It is not a subcommand: it is
// not in the help, and main looks for it before anything else.
const superviseArg = "work-supervisor"

// reportFD is the file descriptor to which a supervisor writes its reports. Its orders come on
// standard input. Both are gob streams; each side notices the other's end by the end of its stream.
const reportFD = 3

// order is what a worker sends to a supervisor: to start an attempt, or to signal the command that
// runs. One field is set.
type order struct {
	// Start begins an attempt.
	Start *attempt
	// Signal goes to the process group of the command.
	Signal syscall.Signal
}

// attempt is one execution of a command.
type attempt struct {
	// Path of the program, which the worker has looked up.
	Path string
	// Argv are the arguments, the program's name first.
	Argv []string
	// Env is all of the environment, as NAME=VALUE.
	Env []string
	// Stdin is what the command reads: the payload.
	Stdin []byte
	// The variables of Env that identify the attempt. No other process has all of them, so that
	// sweep can find what the attempt started.
	Own []string
	// The most bytes of its output that are kept.
	Most int
	// Path of the named pipe that is its standard error.
	Stderr string
	// The directory of the effects file, which the supervisor removes if the worker is gone.
	Dir string
}

// report is what a supervisor sends to its worker. An attempt has either one report with PID, when
// the command has started, and one with End, or a single one with Failed.
type report struct {
	// Process id of the command, which is also its process group.
	PID int
	// Why the command could not be started.
	Failed syscall.Errno
	// End is set when the attempt has ended.
	End *ending
}

// ending is how an attempt ended. When it is sent, nothing that the attempt started runs any more.
type ending struct {
	// Exit status; 0 if a signal ended the command.
	Status int
	// The signal that ended the command; 0 if it exited.
	Signal syscall.Signal
	// Output is what the command printed, Most bytes at most.
	Output []byte
	// It printed more than Most bytes; Output has the first ones.
	Over bool
	// The worker told the command to end before it did. The worker sets it; it is not sent.
	told bool
}

// supervise is the whole program of a supervisor. It takes orders until its input ends, which
// happens when the worker closes it or dies, and returns the exit code.
//
// The order of the preparations matters. Signals are caught first, as the command may signal its
// parent at any time. The main goroutine is locked to its thread because the kernel kills commands
// when the thread that started them ends. The process becomes a subreaper before the first command
// starts, so that no orphan is missed.
func supervise() int {
	catchAll()
	syscall.CloseOnExec(reportFD)
	runtime.LockOSThread() // a command dies with the thread that starts it: it must be the one that stays
	keepOrphans()
	orders := make(chan order)
	go func() {
		defer close(orders)
		in := gob.NewDecoder(os.Stdin)
		for {
			var o order
			if in.Decode(&o) != nil {
				return // the worker is gone, however it went
			}
			orders <- o
		}
	}()
	out := gob.NewEncoder(os.NewFile(reportFD, "reports"))
	// dir is that of the last attempt. A worker that lives has removed it before it closes the orders. One that was killed after the
	// attempt had ended has not.
	dir := ""
	defer func() {
		if dir != "" {
			_ = os.RemoveAll(dir) // nothing is left that could be told of it
		}
	}()
	// One attempt at a time: the worker sends the next start only after the report of the end.
	// superviseOne reads the orders meanwhile.
	for o := range orders {
		if o.Start == nil {
			continue // a signal that came too late
		}
		dir = o.Start.Dir
		r := superviseOne(o.Start, orders, func(r report) { _ = out.Encode(r) }) // a worker that is gone is noticed by its orders
		if out.Encode(r) != nil {
			return 1
		}
	}
	return 0
}

// catchAll keeps signals that a command sends to its parent from ending or stopping the supervisor.
// They are caught and not ignored, so that commands start with the default actions; signals that
// were ignored from the start stay ignored.
func catchAll() {
	nothing := make(chan os.Signal, 1) // never read
	for s := syscall.Signal(1); s < 32; s++ {
		if s != syscall.SIGKILL && s != syscall.SIGSTOP && !signal.Ignored(s) {
			signal.Notify(nothing, s)
		}
	}
}

// outputAfter is how long a supervisor waits for the end of the output after everything that the
// command started has ended. A process that was handed the output without being started by the
// command may hold it open for ever.
const outputAfter = time.Second

// superviseOne runs one attempt and returns when nothing of it is left. tell sends the report that
// it started.
//
//  1. It starts the command and reports its process id.
//  2. It passes signals on until the command itself has ended.
//  3. It kills what the command left behind. Meanwhile it still reads orders: their end means that
//     the worker is gone.
//  4. If the worker is gone, it removes the effects directory and exits, because there is no one
//     to report to. Otherwise it returns the report with the output.
func superviseOne(a *attempt, orders <-chan order, tell func(report)) report {
	c, errno := startCommand(a)
	if errno != 0 {
		return report{Failed: errno}
	}
	tell(report{PID: c.pid})
	status := c.follow(orders)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.endAll()
	}()
	// orders is nil once the worker is gone, so that the closed channel is not read in a busy loop.
	for orphaned := false; ; {
		select {
		case <-ended:
			if orphaned {
				os.RemoveAll(a.Dir) //nolint:errcheck // nothing is left that could be told of it
				os.Exit(1)
			}
			output, over := c.output()
			return report{End: &ending{Status: max(status.ExitStatus(), 0), Signal: signalOf(status), Output: output, Over: over}}
		case _, ok := <-orders: // a signal that came too late, or the end of the worker
			if !ok {
				orphaned, orders = true, nil
			}
		}
	}
}

// signalOf returns the signal that ended a process; 0 if it exited.
func signalOf(s syscall.WaitStatus) syscall.Signal {
	if s.Signaled() {
		return s.Signal()
	}
	return 0
}

// command is a command that runs, with the goroutines that feed it, read it and reap it.
type command struct {
	// Process id and process group of the command.
	pid int
	// The write end of its standard input; a goroutine writes the payload.
	stdin *os.File
	// The read end of its standard output; a goroutine reads it.
	stdout *os.File
	// Closed by the reader at the end of the output.
	read chan struct{}
	// What it printed. Only the reader may use it until read is closed.
	kept bounded
	// Receives the command's own status once, from reap; it has room for it, so reap never waits.
	status chan syscall.WaitStatus
	// Closed by reap when the supervisor has no child left: neither the command nor anything that
	// it started.
	none chan struct{}
}

// startCommand starts an attempt. The command gets pipes for input and output, and the named one of
// the worker for errors. A command that cannot be started is an errno, which the worker needs to tell
// passing trouble from a wrong command.
func startCommand(a *attempt) (*command, syscall.Errno) {
	// os.Pipe makes both ends close on exec, so that no other command of the worker inherits them;
	// ForkExec duplicates those that the command gets.
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, errnoOf(err)
	}
	defer in.Close() //nolint:errcheck // it is the command's
	stdout, out, err := os.Pipe()
	if err != nil {
		stdin.Close() //nolint:errcheck // nothing was written
		return nil, errnoOf(err)
	}
	defer out.Close() //nolint:errcheck // it is the command's
	// A worker that lives has both ends open. Where it was killed, an open that blocks would wait for ever, and this one fails. The
	// command must not find the pipe non-blocking.
	stderr, err := syscall.Open(a.Stderr, syscall.O_WRONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err == nil {
		err = syscall.SetNonblock(stderr, false)
	}
	if err != nil {
		stdin.Close()  //nolint:errcheck // nothing was written
		stdout.Close() //nolint:errcheck // nothing was read
		return nil, errnoOf(err)
	}
	defer syscall.Close(stderr) //nolint:errcheck // it is the command's
	pid, err := syscall.ForkExec(a.Path, a.Argv, &syscall.ProcAttr{
		Env: a.Env, Files: []uintptr{in.Fd(), out.Fd(), uintptr(stderr)}, Sys: childAttributes(),
	})
	if err != nil {
		stdin.Close()  //nolint:errcheck // nothing was written
		stdout.Close() //nolint:errcheck // nothing was read
		return nil, errnoOf(err)
	}
	c := &command{
		pid: pid, stdin: stdin, stdout: stdout, kept: bounded{max: a.Most},
		read: make(chan struct{}), status: make(chan syscall.WaitStatus, 1), none: make(chan struct{}),
	}
	go func() {
		_, _ = stdin.Write(a.Stdin) // a command need not read what it is given
		_ = stdin.Close()
	}()
	go func() {
		defer close(c.read)
		_, _ = io.Copy(&c.kept, stdout) // it ends with the output, or when output has waited long enough
	}()
	go c.reap()
	return c, 0
}

// errnoOf returns the errno inside err; EIO if it has none.
func errnoOf(err error) syscall.Errno {
	if errno, ok := errors.AsType[syscall.Errno](err); ok && errno != 0 {
		return errno
	}
	return syscall.EIO
}

// reap waits for all children of the supervisor: the command, and every process that became a child
// when its own parent ended. It ends when no child is left.
func (c *command) reap() {
	defer close(c.none)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return // all children are reaped
		case pid == c.pid:
			c.status <- status
		}
	}
}

// follow passes signals from orders on to the command until the command ends, and returns its
// status. When orders end the worker is gone, and the command is killed.
func (c *command) follow(orders <-chan order) syscall.WaitStatus {
	for {
		select {
		// The status is sent before the process id can be used again, as only reap waits for the
		// command.
		case status := <-c.status:
			return status
		case o, ok := <-orders:
			switch {
			case !ok:
				c.kill(syscall.SIGKILL)
				return <-c.status
			case o.Signal != 0:
				c.kill(o.Signal)
			}
		}
	}
}

// kill signals the command and its process group; the command may have left the group, so it is
// signalled on its own as well. SIGCONT follows, as a stopped process handles no other signal. The
// command has not been reaped, so its process id still belongs to it.
func (c *command) kill(s syscall.Signal) {
	_ = syscall.Kill(c.pid, s)
	_ = syscall.Kill(-c.pid, s)
	_ = syscall.Kill(-c.pid, syscall.SIGCONT) // one that is stopped heeds nothing else
}

// endAll kills what a command that has ended left behind, and returns when nothing is left. The
// process group goes first. Processes that left it become children of the supervisor when their
// parents end, so it kills its children again and again until reap has none. Killing a process may
// hand its children to the supervisor, which the next round kills.
func (c *command) endAll() {
	_ = syscall.Kill(-c.pid, syscall.SIGKILL)
	wait := 2 * time.Millisecond // as a rule nothing was left
	for {
		late := time.NewTimer(wait)
		select {
		case <-c.none:
			late.Stop()
			return
		case <-late.C:
		}
		// Where children are not known, as outside Linux, only the process group is killed.
		for _, pid := range children(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_ = syscall.Kill(-pid, syscall.SIGKILL) // its group, if it has one
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
}

// output returns what the command printed, and whether it printed more than was kept. It must be
// called when nothing of the command is left. It waits for the reader, at most outputAfter: a
// deadline then ends the read.
func (c *command) output() (kept []byte, over bool) {
	_ = c.stdin.Close()
	late := time.AfterFunc(outputAfter, func() { _ = c.stdout.SetReadDeadline(time.Now()) })
	<-c.read
	late.Stop()
	_ = c.stdout.Close()
	return c.kept.b, c.kept.over
}

// bounded is a writer that keeps the first max bytes and drops the rest, so that a command never
// blocks on its output. It has only the method Write: io.Copy would prefer ReadFrom, which has no
// bound.
type bounded struct {
	// b has the bytes that were kept; max bounds them.
	b   []byte
	max int
	// Bytes were dropped.
	over bool
}

// Write never fails: what does not fit is dropped and noted in over.
func (b *bounded) Write(p []byte) (int, error) {
	room := b.max - len(b.b)
	b.over = b.over || len(p) > room
	b.b = append(b.b, p[:min(len(p), room)]...)
	return len(p), nil
}
