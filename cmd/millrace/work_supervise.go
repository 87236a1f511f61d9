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

// superviseArg is the argument that makes this program a supervisor. It is of no use to people.
const superviseArg = "work-supervisor"

// reportFD is where a supervisor writes its reports; its orders come on standard input.
const reportFD = 3

// order is what a worker tells a supervisor: to start an attempt, or to signal the command of the one that runs.
type order struct {
	Start  *attempt
	Signal syscall.Signal
}

// attempt is a command that is to run once.
type attempt struct {
	Path  string // of the program
	Argv  []string
	Env   []string
	Stdin []byte
	Own   []string // the variables of Env that tell which attempt it is; no other process has all of them
	Most  int      // bytes of its output that are kept
	Dir   string   // removed by the supervisor if the worker is gone
}

// report is what a supervisor tells its worker. For each attempt there is one that says that it started, then one with its end;
// or one that says why it could not be started.
type report struct {
	PID    int           // of the command that started, which is also its process group
	Failed syscall.Errno // why none did
	End    *ending
}

// ending is how an attempt ended. Nothing that it started runs any more.
type ending struct {
	Status int            // of the exit; 0 with a signal
	Signal syscall.Signal // that ended it; 0 with a status
	Output []byte
	Over   bool // it printed more than was kept
	told   bool // the worker told it to end, before it did
}

// supervise is the whole program of a supervisor.
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
	for o := range orders {
		if o.Start == nil {
			continue // a signal that came too late
		}
		r := superviseOne(o.Start, orders, func(r report) { _ = out.Encode(r) }) // a worker that is gone is noticed by its orders
		if out.Encode(r) != nil {
			return 1
		}
	}
	return 0
}

// catchAll keeps signals that a command sends to its parent from ending or stopping the supervisor. They are caught, not
// ignored, so that commands have them as they are by default; those that were ignored from the start stay so.
func catchAll() {
	nothing := make(chan os.Signal, 1) // never read
	for s := syscall.Signal(1); s < 32; s++ {
		if s != syscall.SIGKILL && s != syscall.SIGSTOP && !signal.Ignored(s) {
			signal.Notify(nothing, s)
		}
	}
}

// outputAfter is how long a supervisor waits for the end of the output once all that a command started has ended: a process that
// is not of the command, and was handed its output, may hold it open for ever.
const outputAfter = time.Second

// superviseOne runs a to its end, and to that of all that it started.
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

func signalOf(s syscall.WaitStatus) syscall.Signal {
	if s.Signaled() {
		return s.Signal()
	}
	return 0
}

// command is one that runs.
type command struct {
	pid    int
	stdin  *os.File // what is left of its input is written here
	stdout *os.File // what it prints is read here
	read   chan struct{}
	kept   bounded // what it printed; of the reader until read is closed
	status chan syscall.WaitStatus
	none   chan struct{} // closed when neither it nor anything it started is left
}

// startCommand starts a.
func startCommand(a *attempt) (*command, syscall.Errno) {
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
	pid, err := syscall.ForkExec(a.Path, a.Argv, &syscall.ProcAttr{
		Env: a.Env, Files: []uintptr{in.Fd(), out.Fd(), os.Stderr.Fd()}, Sys: childAttributes(),
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

// errnoOf returns why the system refused something.
func errnoOf(err error) syscall.Errno {
	if errno, ok := errors.AsType[syscall.Errno](err); ok && errno != 0 {
		return errno
	}
	return syscall.EIO
}

// reap takes in the end of the command, and of every process that came to the supervisor when its own parent ended.
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

// follow passes signals on to the command's process group until the command ends. When the worker is gone it kills all.
func (c *command) follow(orders <-chan order) syscall.WaitStatus {
	for {
		select {
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

// kill signals the command, which has not been waited for yet, and its process group, which it may have left.
func (c *command) kill(s syscall.Signal) {
	_ = syscall.Kill(c.pid, s)
	_ = syscall.Kill(-c.pid, s)
	_ = syscall.Kill(-c.pid, syscall.SIGCONT) // one that is stopped heeds nothing else
}

// endAll kills what a command that has ended left behind, in other sessions too, and returns when nothing of it is left.
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
		for _, pid := range children(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_ = syscall.Kill(-pid, syscall.SIGKILL) // its group, if it has one
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
}

// output returns what the command printed, once nothing of it is left.
func (c *command) output() (kept []byte, over bool) {
	_ = c.stdin.Close()
	late := time.AfterFunc(outputAfter, func() { _ = c.stdout.SetReadDeadline(time.Now()) })
	<-c.read
	late.Stop()
	_ = c.stdout.Close()
	return c.kept.b, c.kept.over
}

// bounded keeps the first max bytes that are written to it. It has no method but Write: io.Copy would prefer ReadFrom, which knows
// no bound.
type bounded struct {
	b    []byte
	max  int
	over bool // there were more
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.max - len(b.b)
	b.over = b.over || len(p) > room
	b.b = append(b.b, p[:min(len(p), room)]...)
	return len(p), nil
}
