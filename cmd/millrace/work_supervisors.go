package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// supervisors is the pool of the supervisors of one worker. It grows to the number of commands that
// ran at once, and keeps idle ones for the next task, as starting a process for each would cost
// more than many commands do.
type supervisors struct {
	// The environment of the supervisors themselves, which has no secrets. Commands get another one
	// with each attempt.
	env []string
	// How long a command may run after SIGTERM.
	killAfter time.Duration
	// The error stream of supervisors and commands.
	stderr io.Writer

	// mu guards idle.
	mu sync.Mutex
	// idle are the supervisors that run no command, the one that was used last at the end.
	idle []*supervisor
}

// supervisor is the worker's side of a supervisor process, which runs one command at a time; see
// supervise. It is used by one goroutine at a time: the one that took it from the pool.
type supervisor struct {
	// The process, and the encoder of its orders.
	cmd    *exec.Cmd
	orders *gob.Encoder
	// The write end of its orders. Closing it makes the supervisor exit.
	input io.Closer
	// Its reports; closed when the process has ended.
	reports chan report
}

// errSupervisorEnded says that a supervisor ended before its command began. The command did
// nothing, so the attempt may be made again.
var errSupervisorEnded = errors.New("the command's supervisor ended before the command began")

// errSupervisorKilled says that a supervisor ended while its command ran. What the command did is
// unknown, so the attempt fails.
var errSupervisorKilled = errors.New("the command's supervisor was killed, and the command with it")

// abandonAfter is how long after SIGKILL a supervisor may take to report the end of the command.
// Then it is killed itself: its command may have stopped it.
const abandonAfter = 5 * time.Second

// start starts a supervisor process. It has its own process group, so that signals of a terminal
// reach the worker only. A goroutine passes its reports on until the process closes them, then
// reaps it.
func (p *supervisors) start() (*supervisor, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close() //nolint:errcheck // it is the supervisor's
	cmd := exec.Command(selfPath, superviseArg)
	// The list of processes shows the name by which the worker was started, not /proc/self/exe.
	cmd.Args[0] = os.Args[0]
	cmd.Env, cmd.Stderr, cmd.ExtraFiles = p.env, p.stderr, []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signals are for the worker
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	s := &supervisor{cmd: cmd, orders: gob.NewEncoder(input), input: input, reports: make(chan report)}
	go func() {
		defer close(s.reports)
		for in := gob.NewDecoder(read); ; {
			var r report
			if in.Decode(&r) != nil {
				break
			}
			s.reports <- r
		}
		_ = read.Close()
		_ = cmd.Wait() // how it ended tells nothing more
	}()
	return s, nil
}

// take returns an idle supervisor, or starts one.
func (p *supervisors) take() (*supervisor, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	return p.start()
}

// put returns a supervisor whose attempt has ended to the pool.
func (p *supervisors) put(s *supervisor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

// close ends all idle supervisors and waits for them. No command may run.
func (p *supervisors) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.idle {
		s.end()
	}
	p.idle = nil
}

// end closes the orders of a supervisor, and drops its reports until the process has ended.
func (s *supervisor) end() {
	_ = s.input.Close()
	for range s.reports { //nolint:revive // until it has ended
	}
}

// signal makes the supervisor signal its command. A supervisor that the command has stopped is
// continued first, or it would not read the order.
func (s *supervisor) signal(to syscall.Signal) {
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.orders.Encode(order{Signal: to}) // a supervisor that is gone is noticed by its reports
}

// run runs an attempt once and returns when nothing that it started is left. When ctx ends the
// command gets SIGTERM, and SIGKILL after killAfter. When hurry ends it gets SIGKILL at once. An
// error that wraps an errno, or errSupervisorEnded, says that the command did not begin.
//
// A supervisor is returned to the pool only after it has reported the end of the attempt. One that
// ended without it has left its command behind, at least for a moment: the kernel kills the command
// itself, and sweep kills what the command started.
func (p *supervisors) run(ctx, hurry context.Context, a *attempt) (*ending, error) {
	s, err := p.take()
	if err != nil {
		return nil, err
	}
	began := ticks()
	_ = s.orders.Encode(order{Start: a}) // a supervisor that is gone is noticed by its reports
	// pid is set when the command has started. told and hurried become nil when they were acted on,
	// so that each happens once; told being nil also records that the command was told to end. late
	// fires when the last signal had no effect in time.
	pid := 0
	told, hurried := ctx.Done(), hurry.Done()
	late := time.NewTimer(0)
	late.Stop()
	defer late.Stop()
	for killed := false; ; {
		select {
		case r, ok := <-s.reports:
			switch {
			// No report came: the command did not begin.
			case !ok && pid == 0:
				return nil, errSupervisorEnded
			// The supervisor was killed or stopped by its command. What the command started may
			// still run.
			case !ok:
				a.sweep(pid, began)
				return nil, errSupervisorKilled
			// The first of two reports.
			case r.PID != 0:
				pid = r.PID
				continue
			}
			// The supervisor is idle again, whether the command ended or could not be started.
			p.put(s)
			if r.End == nil {
				return nil, fmt.Errorf("%s: %w", a.Path, r.Failed)
			}
			r.End.told = told == nil
			return r.End, nil
		// SIGTERM first; the timer then sends SIGKILL.
		case <-told:
			told = nil
			s.signal(syscall.SIGTERM)
			late.Reset(p.killAfter)
		// SIGKILL at once, and no SIGTERM after it.
		case <-hurried:
			hurried, told, killed = nil, nil, true
			s.signal(syscall.SIGKILL)
			late.Reset(abandonAfter)
		// The second SIGKILL is for the supervisor itself, which has not reported.
		case <-late.C:
			if killed {
				_ = s.cmd.Process.Kill()
				continue
			}
			killed = true
			s.signal(syscall.SIGKILL)
			late.Reset(abandonAfter)
		}
	}
}

// unclearFor is how long sweep waits for processes that might belong to the attempt although they
// show no variables. It is bounded, because any other program may have started a process without
// variables, which then never becomes clear.
const unclearFor = 10 * time.Second

// sweep kills what is left of an attempt whose supervisor was killed: the process group pid, and
// all processes that have the variables of the attempt. It returns when none is found. since is
// when the attempt began, in ticks: older processes cannot be part of it.
func (a *attempt) sweep(pid int, since uint64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		left, unclear := withVariables(since, a.Own...)
		if len(left) == 0 && (!unclear || time.Since(began) > unclearFor) {
			return
		}
		for _, id := range left {
			_ = syscall.Kill(id, syscall.SIGKILL)
		}
		<-tick.C
	}
}
