package env

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// confine takes the calling goroutine's thread for what is started from it, and takes from that thread what a program is not to
// inherit. The thread ends with the goroutine: no other goroutine may get it. The kernel also sends a child the signal of
// its parent's death when the thread that made it ends, and the runtime may end one that is idle.
func confine(r *Reach) error {
	runtime.LockOSThread() // and never unlocked
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if r == nil || landlockVersion() < landlockLeast {
		return nil
	}
	if err := restrict(r); err != nil {
		return fmt.Errorf("restrict to directories: %w", err)
	}
	return nil
}

// processAttributes puts a child into a group of its own, and has it killed when this process is.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limit bounds a process from outside, and with it all that it starts later. The limits come after
// the start, by the process's number; Run gives the program no input before. A process that has
// ended meanwhile is not an error.
func limit(pid int, c Command) error {
	seconds := uint64((c.Limits.CPU + time.Second - 1) / time.Second)
	for _, r := range []struct {
		resource int
		value    uint64
		beyond   uint64 // from value to where the kernel kills
		// always sets the limit even if value is 0, which otherwise means that there is no limit.
		always bool
	}{
		{unix.RLIMIT_CORE, 0, 0, true},
		{unix.RLIMIT_DATA, c.Limits.MemoryBytes, 0, false},
		{unix.RLIMIT_FSIZE, c.Limits.FileBytes, 0, false},
		{unix.RLIMIT_CPU, seconds, 1, false}, // at the first a signal tells why it ends
	} {
		if r.value == 0 && !r.always {
			continue
		}
		if err := unix.Prlimit(pid, r.resource, &unix.Rlimit{Cur: r.value, Max: r.value + r.beyond}, nil); notGone(err) != nil {
			return fmt.Errorf("limit process: %w", err)
		}
	}
	if !c.Yields {
		return nil
	}
	return yield(pid)
}

// notGone is err, but for what says that a process has ended, which then needs no limit.
func notGone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

const (
	// outOfMemoryFirst is the score with which the kernel ends a process before all others when memory runs out.
	outOfMemoryFirst = 1000
	// nicer is by how much a process is put behind this one: it gets about a quarter of a processor that this one wants too. More,
	// or the policy for idle processors, could keep a client waiting for minutes on a busy machine.
	nicer = 5
	// nicest is the least priority; the system call counts from 20 down.
	nicest, callBase = 19, 20
)

// yield puts a process behind others.
func yield(pid int) error {
	err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", strconv.AppendInt(nil, outOfMemoryFirst, 10), 0)
	if notGone(err) != nil {
		return fmt.Errorf("raise score for want of memory: %w", err)
	}
	own, err := unix.Getpriority(unix.PRIO_PROCESS, os.Getpid())
	if err != nil {
		return fmt.Errorf("read priority: %w", err)
	}
	// The priority at the disk follows from it.
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, min(callBase-own+nicer, nicest)); notGone(err) != nil {
		return fmt.Errorf("lower priority: %w", err)
	}
	return nil
}
