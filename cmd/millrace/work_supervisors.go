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

// supervisors are those of one worker: as many as commands ran at once.
type supervisors struct {
	env       []string      // theirs
	killAfter time.Duration // of a command that was told to end
	stderr    io.Writer

	mu   sync.Mutex // guards idle
	idle []*supervisor
}

// supervisor is a process that runs one command at a time; see supervise.
type supervisor struct {
	cmd     *exec.Cmd
	orders  *gob.Encoder
	input   io.Closer   // of its orders; its end ends the supervisor
	reports chan report // closed when the supervisor has ended
}

// errSupervisorEnded says that a supervisor ended before its command began: the command had no part in it.
var errSupervisorEnded = errors.New("the command's supervisor ended before the command began")

// errSupervisorKilled says that a supervisor ended while its command ran.
var errSupervisorKilled = errors.New("the command's supervisor was killed, and the command with it")

// abandonAfter is how long after SIGKILL a supervisor that has not reported the command's end is killed itself: its command may
// have stopped it.
const abandonAfter = 5 * time.Second

// start starts a supervisor.
func (p *supervisors) start() (*supervisor, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close() //nolint:errcheck // it is the supervisor's
	cmd := exec.Command(selfPath, superviseArg)
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

// take returns a supervisor without a command.
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

func (p *supervisors) put(s *supervisor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

// close ends the supervisors. No command runs.
func (p *supervisors) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.idle {
		s.end()
	}
	p.idle = nil
}

// end ends a supervisor, and takes in what it still reports.
func (s *supervisor) end() {
	_ = s.input.Close()
	for range s.reports { //nolint:revive // until it has ended
	}
}

// signal has the supervisor signal its command. One that was stopped goes on.
func (s *supervisor) signal(to syscall.Signal) {
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.orders.Encode(order{Signal: to}) // a supervisor that is gone is noticed by its reports
}

// run runs a once and returns when nothing that it started is left. When ctx ends the command is told to end, and killed if it
// does not; when hurry ends it is killed at once. An errno, or errSupervisorEnded, says that it did not begin.
func (p *supervisors) run(ctx, hurry context.Context, a *attempt) (*ending, error) {
	s, err := p.take()
	if err != nil {
		return nil, err
	}
	began := ticks()
	_ = s.orders.Encode(order{Start: a}) // a supervisor that is gone is noticed by its reports
	pid := 0
	told, hurried := ctx.Done(), hurry.Done()
	late := time.NewTimer(0)
	late.Stop()
	defer late.Stop()
	for killed := false; ; {
		select {
		case r, ok := <-s.reports:
			switch {
			case !ok && pid == 0:
				return nil, errSupervisorEnded
			case !ok:
				a.sweep(pid, began)
				return nil, errSupervisorKilled
			case r.PID != 0:
				pid = r.PID
				continue
			}
			p.put(s)
			if r.End == nil {
				return nil, fmt.Errorf("%s: %w", a.Path, r.Failed)
			}
			r.End.told = told == nil
			return r.End, nil
		case <-told:
			told = nil
			s.signal(syscall.SIGTERM)
			late.Reset(p.killAfter)
		case <-hurried:
			hurried, told, killed = nil, nil, true
			s.signal(syscall.SIGKILL)
			late.Reset(abandonAfter)
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

// unclearFor is how long a sweep waits for processes of which it cannot tell whose they are: any other program may have started one
// without variables.
const unclearFor = 10 * time.Second

// sweep kills what is left of an attempt whose supervisor was killed: the command's process group, and all that still has the
// variables of its task. It returns when nothing of it is left. since is when the attempt began.
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
